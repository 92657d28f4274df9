"""`check_axes`: an assertion by name, `check_axes(x, "B H T D", H=3)`. Knows only shapes; no trace is needed."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from operator import index
from typing import Any

from .errors import AxesError, AxisMismatch
from .naming import parse_axes, size_of
from .render.colours import SYMBOL

__all__ = ["check_axes"]

_MOST_AXES = 6
"""Orders of more axes than this are not tried."""


def check_axes(x: Any, axes: str, /, **sizes: int) -> dict[str, int]:
    """Check that a tensor has these axes, and return the size of every symbol, given or found.

    `x` is anything with a `shape`; of a trace's tensor, `t["q"]`, the names are compared too. `axes` names one axis each:
    a symbol `T`, a multiple `3C`, a part `D/2`, a product `(H D)`, a sum `S+T`, a number, or `?` for any. A symbol has
    one size wherever it stands. `sizes` are those known, also of symbols that `axes` doesn't have; nothing else is
    assumed: where C should be H·D, write `(H D)`.

    Raises:
        AxisMismatch: the shape does not fit; the message says which axis, and whether another order would fit.
        AxesError: the text cannot be read, `x` has no shape, or a size is none.

    Example:
        >>> import numpy
        >>> check_axes(numpy.zeros((2, 3, 5, 7)), "B H T D", H=3)
        {'H': 3, 'B': 2, 'T': 5, 'D': 7}
    """
    shape, names = _shape(x, axes), _names(axes)
    sizes = {symbol: _given(symbol, size, axes) for symbol, size in sizes.items()}
    if len(names) != len(shape):
        wrong = [_count(names, shape, sizes)]
    else:
        found, wrong = _bind(names, shape, sizes)
        wrong = [*wrong, *_other_order(names, shape, sizes)] if wrong else _by_trace(x, names)
        if not wrong:
            return found
    known = f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}" if sizes else ""
    raise AxisMismatch("\n".join([f"expected {_label(names)}{known}, got {list(shape)}", *wrong]))


def _label(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _shape(x: Any, axes: Any) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    if shape is not None:
        return tuple(int(n) for n in shape)
    text = f"check_axes needs something with a shape, such as a tensor; this is of type {type(x).__name__}."
    if isinstance(x, str) and hasattr(axes, "shape"):
        text += " The tensor comes first, then the axes."
    if isinstance(x, tuple) and all(isinstance(n, int) for n in x):
        text += " Give the tensor itself, not its shape."
    raise AxesError(text)


def _names(axes: Any) -> tuple[str, ...]:
    if isinstance(axes, str):
        return parse_axes(axes)
    written = " ".join(axes) if isinstance(axes, list | tuple) and all(isinstance(a, str) for a in axes) else "B T C"
    raise AxesError(f'The axes are one text, such as "{written}"; this is of type {type(axes).__name__}.')


def _given(symbol: str, size: Any, axes: str) -> int:
    """Return a size as a whole number; a symbol that the text has in the other case only would check nothing."""
    try:
        number = -1 if isinstance(size, bool) else index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise AxesError(f"{symbol}={size!r} is no size; give a whole number, such as H=3.")
    symbols = SYMBOL.findall(axes)
    if symbol not in symbols and symbol.swapcase() in symbols:
        raise AxesError(f'{symbol}={number} is given, but "{axes}" has {symbol.swapcase()}.')
    return number


def _by_trace(x: Any, names: Sequence[str]) -> list[str]:
    """Say where a trace's tensor has an axis by another name: one that is also asked for, at another place."""
    known = getattr(x, "axes", None)
    if not isinstance(known, tuple) or len(known) != len(names):
        return []
    wrong = [i for i, name in enumerate(names) if SYMBOL.fullmatch(name) and known[i] in names and known[i] != name]
    return [f"axis {i} is {known[i]} in the trace, where {names[i]} is expected" for i in wrong]


def _count(names: tuple[str, ...], shape: tuple[int, ...], sizes: Mapping[str, int]) -> str:
    """Say that the number of axes differs, and which one axis would explain it."""
    expected = "1 axis is" if len(names) == 1 else f"{len(names)} axes are"
    text = f"{expected} expected, there {'is' if len(shape) == 1 else 'are'} {len(shape)}"
    apart = names[0] if len(names) == 1 else ""
    apart = " ".join(apart if apart.isalpha() else SYMBOL.findall(apart))
    if len(shape) > 1 and len(apart.split()) == len(shape):
        return f'{text}: {names[0]} is one axis; {len(shape)} axes are written "{apart}"'
    without = [names[i] for i in range(len(names)) if _fits(names[:i] + names[i + 1 :], shape, sizes)]
    extra = [i for i in range(len(shape)) if _fits(names, shape[:i] + shape[i + 1 :], sizes)]
    if len(without) == 1:
        return f"{text}: {without[0]} looks missing"
    if len(extra) == 1:
        return f"{text}: axis {extra[0]}, of size {shape[extra[0]]}, looks like one too many"
    return text


# ---------------------------------------------------------------- sizes of symbols


def _fits(names: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    return len(names) == len(shape) and not _bind(names, shape, sizes)[1]


def _bind(names: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Give each symbol its size: plain symbols first, then what one unknown is left in; return what does not fit.

    A term with two unknowns, `(H D)` with neither known, fits any size.
    """
    known = dict(sizes)
    told = {symbol: f"{symbol}={size} was given" for symbol, size in sizes.items()}
    wrong: dict[int, str] = {}
    waiting = sorted((i for i, n in enumerate(names) if n != "?"), key=lambda i: SYMBOL.fullmatch(names[i]) is None)
    while ready := [i for i in waiting if len(_unknown(names[i], known)) < 2]:
        i = ready[0]
        waiting.remove(i)
        missing = _unknown(names[i], known)
        size = _solve(names[i], missing[0], shape[i], known) if missing else None
        if missing and size is None:
            wrong[i] = f"axis {i} has size {shape[i]}, and no {missing[0]} makes that {names[i]}"
        elif size is not None:
            known[missing[0]] = size
            told[missing[0]] = f"{missing[0]} is {size} by axis {i}"
        elif (value := _size(names[i], known)) != shape[i]:
            reasons = ", ".join(told[s] for s in dict.fromkeys(SYMBOL.findall(names[i])))
            should = f"{names[i]} is no whole number" if value is None else f"{names[i]} is {value}"
            should = f"should have {value}" if names[i].isdigit() else should
            wrong[i] = f"axis {i} has size {shape[i]}, but {should}" + (f" ({reasons})" if reasons else "")
    return known, [wrong[i] for i in sorted(wrong)]


def _unknown(name: str, known: Mapping[str, int]) -> list[str]:
    return sorted({s for s in SYMBOL.findall(name) if s not in known})


def _size(name: str, known: Mapping[str, int]) -> int | None:
    """Return the size of a term from its own symbols alone."""
    return size_of(name, {s: known[s] for s in SYMBOL.findall(name) if s in known})


def _solve(name: str, symbol: str, size: int, known: Mapping[str, int]) -> int | None:
    """Return the size of the one unknown symbol that gives the term its size: a term is a straight line in it."""
    if name == symbol:
        return size
    low, high = (_size(name, {**known, symbol: n}) for n in (5040, 10080))  # both divisible by 2 to 10
    if low is None or high is None or low == high:
        return None
    found = 5040 + (size - low) * 5040 // (high - low)
    return found if found >= 0 and _size(name, {**known, symbol: found}) == size else None


# ---------------------------------------------------------------- another order


def _other_order(names: tuple[str, ...], shape: tuple[int, ...], sizes: Mapping[str, int]) -> list[str]:
    """Say in which order the axes would fit, if one order is nearest to the one expected."""
    if len(names) > _MOST_AXES:
        return []
    orders = {order for order in permutations(names) if _fits(order, shape, sizes)}
    moved = {order: [i for i in range(len(names)) if order[i] != names[i]] for order in orders}
    nearest = [order for order in orders if len(moved[order]) == min(map(len, moved.values()))]
    if len(nearest) != 1:
        return []
    order = nearest[0]
    axes = [str(i) for i in moved[order]]
    what = f"axes {axes[0]} and {axes[1]} look swapped" if len(axes) == 2 else f"axes {', '.join(axes)} look reordered"
    return [f"{what}: {list(shape)} is {' '.join(order)}"]
