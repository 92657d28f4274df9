"""Shapes as learners write them: `B T C`, `[B, T, C]`, `(B, T, H*D)`, `B x T x 3C`. Reads them into comparable axes.

Axes are compared by what they mean: C is (H D), C/H is D, while (D H) stays another order. How the tracer itself
writes axes is the business of `naming`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ..errors import AxesError
from ..speech import _

__all__ = ["Axis", "read", "write"]

LETTERS = "B T S C H D G M V L E K P Y X R N"
_COMMAS = ",;|\u00d7"  # between axes; the last is the multiplication sign
LONGEST = 200  # characters of an answer
_TIMES = "*\u00b7\u2219\u22c5"  # the star and the three dots that are written for a product
_HEAD_SIZE = "[Dd]_[KkVv]|[Dd][kv]"  # D_k and D_v, where keys and values differ
_FACTOR = re.compile(rf"\(([^()]*)\)|([0-9]+)|({_HEAD_SIZE}|[A-Za-z])|(//|[/{_TIMES}])")


@dataclass(frozen=True)
class Axis:
    """One axis: a number times ordered letters over letters. `(H D)` and `C` are equal, `(D H)` is not."""

    factor: Fraction
    letters: tuple[str, ...]
    below: tuple[str, ...] = ()

    def times(self, other: "Axis") -> "Axis":
        """Return the product, this axis's letters first."""
        return _axis(self.factor * other.factor, self.letters + other.letters, self.below + other.below)

    def over(self, other: "Axis") -> "Axis":
        """Return the quotient."""
        return _axis(self.factor / other.factor, self.letters + other.below, self.below + other.letters)

    def __str__(self) -> str:
        text = re.sub(r"H D(?!_)", "C", " ".join(self.letters))
        text = f"({text})" if " " in text else text
        below = "".join(f"/{letter}" for letter in self.below)
        top = "" if self.factor.numerator == 1 and text else str(self.factor.numerator)
        bottom = "" if self.factor.denominator == 1 else f"/{self.factor.denominator}"
        return f"{top}{text}{below}{bottom}"


def _axis(factor: Fraction, letters: Iterable[str], below: Iterable[str]) -> Axis:
    top, rest = list(letters), []
    for letter in below:
        if letter in top:
            top.remove(letter)
        else:
            rest.append(letter)
    return Axis(factor, tuple(top), tuple(sorted(rest)))


def write(axes: tuple[Axis, ...]) -> str:
    """Return axes in the notation of the traces, `[B, T, C]`."""
    return "[" + ", ".join(map(str, axes)) + "]"


def read(text: str) -> list[tuple[Axis, ...]]:
    """Return every reading of a shape, the likeliest first; `(B T)` alone may be two axes or one.

    Raises AxesError with a sentence for the learner when the text is not a shape.
    """
    # 1. The outer writing: torch.Size(...), brackets around everything, " x " between axes.
    body = re.sub(r"^(torch\.)?Size\s*", "", text.strip())
    body = re.sub(r"(?<=[A-Z0-9)\]\s])x(?=[\s(A-Z0-9])", ",", body)
    if len(text) > LONGEST:
        raise _unreadable(text[:20] + "…")
    if re.fullmatch(r"\[\s*\]|\(\s*\)", body):
        return [()]  # a single number has no axes
    inner, bracket = _unwrap(body)
    # 2. Which readings it has.
    if re.fullmatch(f"[{LETTERS.replace(' ', '')}]{{2,}}", inner, re.IGNORECASE):
        return [_axes(" ".join(inner)), (_axis_of(inner.upper()),)]  # "btc": three axes, or their product
    readings = [_axes(inner)]
    if bracket == "(" and not re.search(f"[{_COMMAS}]", inner):
        readings.append((_axis_of(inner),))
    apart = re.sub(r"(?<=\))(?=[A-Za-z(])|(?<=[A-Za-z])(?=\()", " ", inner)
    if apart != inner:
        readings.append(_axes(apart))  # "(B T)V": two axes, or their product
    if not any(axis.letters or axis.below or axis.factor == 1 for axis in readings[0]):
        raise AxesError(_("This exercise asks for letters, such as B T C, not for sizes."))
    return readings


def _unwrap(text: str) -> tuple[str, str]:
    """Take off the brackets that enclose everything; return the inside and the last bracket taken off."""
    bracket = ""
    while text[:1] in ("(", "[") and _closing(text) == len(text) - 1:
        if bracket == "[" and not re.search(f"[{_COMMAS}]", text):
            break  # "[(B T)]": the square brackets are the shape, the round ones an axis
        bracket, text = text[0], text[1:-1].strip()
    return text, bracket


def _closing(text: str) -> int:
    """Return where the bracket that opens `text` is closed, or -1."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if depth == 0:
            return place
    return -1


def _axes(text: str) -> tuple[Axis, ...]:
    """Read axes that stand side by side, with spaces or separators between them."""
    text = text.translate(str.maketrans("[]", "()"))
    text = re.sub(rf"\s*(//|[/{_TIMES}])\s*", r"\1", text)
    pieces: list[str] = re.findall(rf"(?:\([^()]*\)|[^\s{_COMMAS}])+", text)
    return tuple(_axis_of(piece) for piece in pieces)


def _axis_of(piece: str) -> Axis:
    """Read one axis: `C`, `3C`, `(H D)`, `H*D`, `C//H`; factors that touch are multiplied."""
    if _FACTOR.sub("", re.sub(rf"[\s{_COMMAS}]", "", piece)) or re.search(r"[a-z]{3}", piece):
        raise _unreadable(piece)
    total, over = Axis(Fraction(1), ()), False
    for group, number, letter, operator in _FACTOR.findall(piece):
        if operator:
            over = "/" in operator
            continue
        part = _axis_of(group) if group else Axis(Fraction(number), ()) if number else _letter(letter)
        if over and not part.factor:
            raise _unreadable(piece)
        total, over = total.over(part) if over else total.times(part), False
    return total


def _letter(letter: str) -> Axis:
    if len(letter) > 1:
        return Axis(Fraction(1), (f"D_{letter[-1].lower()}",))
    name = letter.upper()
    if name not in LETTERS.split():
        raise _unreadable(letter)
    return Axis(Fraction(1), ("H", "D") if name == "C" else (name,))


def _unreadable(piece: str) -> AxesError:
    text = _("“{piece}” cannot be read as an axis. Use the letters of the symbol card: {letters}.")
    return AxesError(text.format(piece=piece, letters=LETTERS))
