"""What an exercise is made of, as plain data, and how its inputs are drawn. Comparing answers is left to `judge`.

An exercise says what is asked, holds a reference, draws inputs on which right and wrong come apart, and lists the
mistakes that people make, each as code that runs. Sentences are written in English and marked with `N_`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ..speech import _

__all__ = ["Case", "Draw", "Exercise", "Kind", "Mistake", "Property", "counting", "known", "show", "usual_cases"]

Kind = Literal["function", "shape", "number", "choice"]
Numbers = dict[str, object]
PRIMES = (2, 3, 5, 7, 11, 13)  # distinct, and no product of two of them is one of them


@dataclass(frozen=True)
class Case:
    """One call of a learner's function: its arguments, and the sizes of the axes by name."""

    args: tuple[Any, ...]
    sizes: Mapping[str, int]


def _no_numbers(case: Case, got: Any, want: Any) -> Numbers:
    return {}


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer that people really give, with the words for it.

    `wrong` holds it in one or more runnable forms: functions, or for other kinds the answers themselves. `says` is a
    template; it may use the sizes of the case, what `numbers(case, got, want)` returns, and of the first number that
    differs `{place}`, `{got}` and `{want}`, or where the shapes differ `{shape}` and `{wanted}`. A form that raises is
    known by the same exception in the same cases; with `raises`, any exception counts whose text has this part.
    """

    id: str
    wrong: tuple[Any, ...]
    says: str
    numbers: Callable[[Case, Any, Any], Numbers] = _no_numbers
    raises: str | None = None


def known(
    id: str,
    says: str,
    *wrong: Any,
    numbers: Callable[[Case, Any, Any], Numbers] = _no_numbers,
    raises: str | None = None,
) -> Mistake:
    """Return a `Mistake`, written shortly: its name, its words, and its runnable forms."""
    return Mistake(id=id, wrong=wrong, says=says, numbers=numbers, raises=raises)


@dataclass(frozen=True, kw_only=True)
class Property:
    """Something that holds for every right answer and can be tested without the reference.

    `fails(case, got)` returns None where it holds, else the numbers for `says`. `got` is a float64 tensor of the right
    shape without NaN, or a tuple of them where several results are asked for.
    """

    id: str
    says: str
    fails: Callable[[Case, Any], Numbers | None]


class Fill(Protocol):
    """Makes a tensor of the given shape."""

    def __call__(self, *shape: int) -> Tensor: ...


class Draw:
    """Fresh random inputs. The global random state is neither read nor changed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._generator = torch.Generator("cpu").manual_seed(self._random.getrandbits(62))

    def sizes(self, letters: str) -> dict[str, int]:
        """Return a size for each letter, all distinct primes above 1; C is added as H·D where both are there."""
        names = letters.split()
        sizes = self._random.sample(PRIMES[: max(4, len(names))], len(names))
        return _with_width(dict(zip(names, sizes, strict=True)))

    def normal(self, *shape: int) -> Tensor:
        """Return independent standard normal numbers of this shape."""
        return torch.randn(shape, generator=self._generator, device="cpu", dtype=torch.float32)

    def digits(self, *shape: int) -> Tensor:
        """Return whole numbers from -3 to 3 of this shape, as floats: readable, and exact in sums and products."""
        return torch.randint(-3, 4, shape, generator=self._generator, device="cpu").float()

    def ids(self, below: int, *shape: int) -> Tensor:
        """Return whole numbers from 0 to `below` (not included) of this shape."""
        return torch.randint(below, shape, generator=self._generator, device="cpu")


def counting(*shape: int) -> Tensor:
    """Return 0, 1, 2, … in this shape: readable numbers for the first case, which messages quote."""
    return torch.arange(torch.Size(shape).numel(), device="cpu", dtype=torch.float32).reshape(shape)


def _with_width(sizes: dict[str, int]) -> dict[str, int]:
    return sizes | {"C": sizes["H"] * sizes["D"]} if {"H", "D"} <= sizes.keys() else sizes


def usual_cases(
    draw: Draw,
    letters: str,
    build: Callable[[dict[str, int], Fill], tuple[Any, ...]],
    *,
    first: Fill = counting,
    derive: Callable[[dict[str, int]], dict[str, int]] = lambda sizes: {},
) -> list[Case]:
    """Return the usual inputs: readable, random with distinct sizes twice, all sizes equal, and mostly ones.

    `build(sizes, fill)` makes the arguments; `first` fills those of the first case, which messages quote. Where there
    are T and S, T is the smaller, the larger, and the smaller again; so is H beside D. `derive(sizes)` returns sizes to
    replace or add: an even D, an H that G divides.
    """
    names = letters.split()
    plan: list[tuple[dict[str, int], Fill]] = []
    for place, fill in enumerate((first, draw.normal, draw.normal)):
        sizes = draw.sizes(letters)
        for a, b in (("T", "S"), ("H", "D")):
            if {a, b} <= sizes.keys() and (sizes[a] < sizes[b]) == (place == 1):
                sizes[a], sizes[b] = sizes[b], sizes[a]
        plan.append((sizes, fill))
    plan += [(_with_width(dict.fromkeys(names, 4)), draw.normal)]
    plan += [(_with_width(dict.fromkeys(names, 1) | {"D": 3}), draw.normal)]
    plan = [(sizes | derive(sizes), fill) for sizes, fill in plan]
    return [Case(build(sizes, fill), sizes) for sizes, fill in plan]


@dataclass(frozen=True, kw_only=True, repr=False)
class Exercise:
    """One self-check.

    `reference` is a function, the text of a shape, a number, or the letter of a choice, as `kind` says. `also` are
    further right answers: another writing, or functions of another convention, each followed throughout. `given` and
    `axes` name the axes of the arguments (None for a plain number) and of each result. With `gradients`, those of a
    right answer must be finite too. `review` is the number of the review question it belongs to. `why` is told with a
    right answer and with the solution.
    """

    id: str
    notebook: str
    kind: Kind
    question: str
    reference: Any
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, ...]
    why: str
    minutes: int
    points: int = 1
    review: int | None = None
    inputs: Callable[[Draw], Sequence[Case]] | None = None
    given: tuple[str | None, ...] = ()
    axes: tuple[str, ...] = ()
    properties: tuple[Property, ...] = ()
    also: tuple[Any, ...] = ()
    tolerance: float | None = None
    gradients: bool = False
    choices: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        head = _("{id} (notebook {notebook}, about {minutes} min)").format(**self._facts())
        return "\n".join([head, _(self.question), *self._choice_lines()])

    def __repr__(self) -> str:
        return f"Exercise({self.id!r}, notebook={self.notebook!r}, kind={self.kind!r})"

    def _repr_html_(self) -> str:
        head, *body = str(self).split("\n")
        return f"<div><b>{escape(head)}</b><br>{'<br>'.join(map(escape, body))}</div>"

    def _facts(self) -> dict[str, object]:
        return {"id": self.id, "notebook": self.notebook, "minutes": self.minutes}

    def _choice_lines(self) -> list[str]:
        return [f"{letter}: {_(text)}" for letter, text in self.choices.items()]


def show(values: Tensor, limit: int = 6) -> str:
    """Return a short list of numbers as a reader would write it: `[0, 1, 2]`, `[0.25, -1.5]`, `[0, 1, …]`."""
    flat = values.detach().flatten()
    texts = [f"{number:.4g}" for number in flat[:limit].tolist()]
    return "[" + ", ".join(texts + ["…"] * (flat.numel() > limit)) + "]"
