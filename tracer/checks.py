"""`check_axes`: an assertion by name, `check_axes(x, "B H T D", H=3)`. Knows only shapes; no trace is needed."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from operator import index
from typing import Any

from .errors import AxesError, AxisMismatch
from .naming import parse_axes, size_of
from .render.colours import SYMBOL
from .speech import say, say_count

__all__ = ["check_axes"]

_MOST_AXES = 6
"""Orders of more axes than this are not tried."""


def check_axes(x: Any, axes: str, /, **sizes: int) -> dict[str, int]:
    """Check that a tensor has these axes, and return the size of every symbol, given or found.

    `x` is anything with a `shape`. `axes` names one axis each: a symbol `T`, a multiple `3C`, a part `D/2`, a product
    `(H D)`, a sum `S+T`, a number, or `?` for any. A symbol has one size wherever it stands. `sizes` are those known;
    nothing else is assumed: where C should be H·D, write `(H D)`.

    Raises:
        AxisMismatch: the shape does not fit; the message says which axis, and whether another order would fit.
        AxesError: the text cannot be read, `x` has no shape, or a size is none.

    Example:
        >>> import numpy
        >>> check_axes(numpy.zeros((2, 3, 5, 7)), "B H T D", H=3)
        {'H': 3, 'B': 2, 'T': 5, 'D': 7}
    """
    shape, names = _shape(x), _names(axes)
    sizes = {symbol: _given(symbol, size, names) for symbol, size in sizes.items()}
    if len(names) != len(shape):
        wrong = [_count(names, shape, sizes)]
    else:
        found, wrong = _bind(names, shape, sizes)
        if not wrong:
            return found
        wrong += _other_order(names, shape, sizes)
    known = f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}" if sizes else ""
    raise AxisMismatch("\n".join([f"expected {_label(names)}{known}, got {list(shape)}", *wrong]))


def _shape(x: Any) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    if shape is not None:
        return tuple(int(n) for n in shape)
    text = say(
        "check_axes needs something with a shape, such as a tensor; this is of type {kind}.", kind=type(x).__name__
    )
    if isinstance(x, str):
        text += say(" The tensor comes first, then the axes.")
    if isinstance(x, tuple | list) and x and all(isinstance(n, int) for n in x):
        text += say(" Give the tensor itself, not its shape.")
    raise AxesError(text)


def _names(axes: Any) -> tuple[str, ...]:
    if not isinstance(axes, str):
        raise AxesError(say('axes are one text, such as "B H T D"; this is of type {kind}.', kind=type(axes).__name__))
    return parse_axes(axes)


def _given(symbol: str, size: Any, names: Sequence[str]) -> int:
    """Return a size that was given as an int; a symbol that no axis has is fine, unless it is one in the wrong case."""
    known = {s for name in names for s in SYMBOL.findall(name)}
    meant = [s for s in sorted(known) if s.lower() == symbol.lower()]
    if meant and symbol not in known:
        raise AxesError(say("no axis is called {symbol}; did you mean {meant}?", symbol=symbol, meant=meant[0]))
    if not SYMBOL.fullmatch(symbol):
        raise AxesError(say("a size is given for one symbol; {symbol} is none.", symbol=symbol))
    try:
        number = None if isinstance(size, bool) else index(size)
    except TypeError:
        number = None
    if number is None or number < 0:
        raise AxesError(
            say("the size of {symbol} should be a whole number; it is {size}.", symbol=symbol, size=repr(size))
        )
    return number


def _label(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _count(names: tuple[str, ...], shape: tuple[int, ...], sizes: Mapping[str, int]) -> str:
    """Say that the number of axes differs, and which one axis would explain it."""
    text = say_count(
        "{n} axis is expected, there are {there}",
        "{n} axes are expected, there are {there}",
        len(names),
        there=len(shape),
    )
    if len(names) == 1 and len(names[0]) == len(shape) and names[0].isalpha():
        return text + say(": write spaces between the axes, {axes}", axes=repr(" ".join(names[0])))
    if len(names) == 1 and names[0].startswith("(") and len(names[0].split()) == len(shape):
        return text + say(": round brackets join axes into one; leave them out")
    without = [names[i] for i in range(len(names)) if _fits(names[:i] + names[i + 1 :], shape, sizes)]
    extra = [i for i in range(len(shape)) if _fits(names, shape[:i] + shape[i + 1 :], sizes)]
    if len(without) == 1:
        return text + say(": {axis} looks missing", axis=without[0])
    if len(extra) == 1:
        return text + say(": axis {i}, of size {size}, looks like one too many", i=extra[0], size=shape[extra[0]])
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
