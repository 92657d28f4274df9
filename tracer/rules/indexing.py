"""Rules for taking and writing parts: slices, None, ellipsis, ids, masks, gather and scatter."""

import re
from typing import Any

from ..records import Slice
from .core import LINES_UP, UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .views import sliced

__all__: list[str] = []


@rule("getitem")
def _getitem(step: Step) -> list[Axes]:
    return [taken(step, step.tensor(), step.arg(1, "index"), step.outs[0])]


@rule("setitem")
def _setitem(step: Step) -> list[Axes]:
    x, value = step.tensor(), step.maybe(2, "value")
    if value is not None:
        place = taken(step, x, step.arg(1, "index"), None)
        if place is not None:
            step.broadcast([Tensor([a.size for a in place], place, constant=False, owner=None), value], LINES_UP)
    return [list(x.axes)]


def taken(step: Step, x: Tensor, index: Any, out: tuple[int, ...] | None) -> Any:
    """Return the axes of `x[index]`; `out` is the known shape of the result, for what a mask selects."""
    items = list(index) if type(index) is tuple and not isinstance(index, Slice) else [index]
    texts: list[str | None] = list(step.literals) if len(step.literals) == len(items) else [None] * len(items)
    if out is not None and items and len(out) == x.rank and all(type(i) is int for i in items):
        items, texts = [tuple(items)], [None]  # `x[[0, 2]]`: a list takes rows, and is recorded as a tuple
    used = sum(_covers(i) for i in items)
    if Ellipsis not in [i for i in items if not isinstance(i, Tensor)]:
        items, texts = [*items, Ellipsis], [*texts, None]
    axes: Axes = []
    fancy: list[tuple[int, Tensor | None, int]] = []  # (place in the result, index tensor or None for a mask, size)
    at = 0
    for item, text in zip(items, texts, strict=True):
        if item is None or item is True:
            axes.append(UNIT)
        elif item is Ellipsis:
            rest = x.rank - used
            axes += x.axes[at : at + rest]
            at += rest
        elif isinstance(item, Slice):
            axes.append(sliced(step, x, x.axes[at], item, _by_number(text)))
            at += 1
        elif type(item) is int:
            at += 1
        else:
            fancy.append((len(axes), *_fancy(item)))
            at += _covers(item)
    if fancy:
        return _with_fancy(step, axes, fancy, out)
    return axes


def _by_number(text: str | None) -> bool | None:
    """Tell whether a bound of a slice is written as a number: `: 4` takes four, whatever there is. None: unknown."""
    bounds = (text or "").split(":")
    return None if len(bounds) < 2 else any(b.strip(" -").isdigit() and b.strip() != "0" for b in bounds[:2])


def _covers(item: Any) -> int:
    """Return how many axes one entry of an index uses up."""
    if item is None or item is Ellipsis or item is True:
        return 0
    if isinstance(item, Tensor) and "bool" in item.dtype:
        return max(item.rank, 1)
    return 1


def _fancy(item: Any) -> tuple[Tensor | None, int]:
    if isinstance(item, Tensor) and "bool" not in item.dtype and "uint8" not in item.dtype:
        return item, -1
    return None, len(item) if type(item) is tuple else -1


def _with_fancy(
    step: Step, axes: Axes, fancy: list[tuple[int, Tensor | None, int]], out: tuple[int, ...] | None
) -> Axes | None:
    """Put the axes of index tensors where numpy's rule puts them: in place if they stand together, else in front."""
    tensors = [t for _, t, _ in fancy if t is not None]
    if len(tensors) == len(fancy):
        block = step.broadcast(tensors)
    elif out is not None:
        rank = len(out) - len(axes)
        place = fancy[0][0] if len({p for p, _, _ in fancy}) == 1 else 0
        block = step.fresh(out[place : place + rank])
    else:
        return None
    if len(fancy) == 1 and fancy[0][2] == 1 and len(block) == 1 and re.search(r"\[-?\d+\]", step.code):
        block = [UNIT]  # x[..., [-2], :]
    together = len({p for p, _, _ in fancy}) == 1
    place = fancy[0][0] if together else 0
    return [*axes[:place], *block, *axes[place:]]


@rule("gather", "take_along_dim", "take")
def _gather(step: Step) -> list[Axes]:
    """The result has the shape of the index; `take_along_dim` broadcasts the axes that it does not choose along."""
    x, index = step.tensor(), step.tensor(2 if step.name == "gather" else 1, "index")
    axes = list(index.axes)
    dim = step.arg(2, "dim")
    if step.name == "take_along_dim" and dim is not None:
        d = axis_index(dim, x.rank)
        axes = [a if i == d else step.meet(b, a) for i, (a, b) in enumerate(zip(axes, x.axes, strict=True))]
    return [axes]


@rule("index_select")
def _index_select(step: Step) -> list[Axes]:
    x, index = step.tensor(), step.tensor(2, "index")
    d = step.dim(1, x.rank)
    chosen: Axis = index.axes[0] if index.rank else UNIT
    return [[*x.axes[:d], chosen, *x.axes[d + 1 :]]]


@rule("searchsorted", "bucketize")
def _searchsorted(step: Step) -> list[Axes]:
    """One place for each value that is looked for."""
    found = step.tensor(1, "input") if step.name == "searchsorted" else step.tensor()
    return [list(found.axes)]


@rule(
    "masked_select", "nonzero", "nonzero_static", "unique", "unique_consecutive", "argwhere", "histc", "bincount",
    "histogram", "unravel_index",
)  # fmt: skip
def _counted(step: Step) -> list[Axes]:
    """How many there are depends on the values."""
    return [step.fresh(shape) for shape in step.outs]
