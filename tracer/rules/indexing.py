"""Rules for taking and writing parts: slices, None, ellipsis, ids, masks, gather and scatter."""

from typing import Any

from ..records import Slice
from .core import LINES_UP, UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .views import sliced

__all__: list[str] = []


@rule("getitem")
def _getitem(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None else [taken(step, x, step.arg(1, "index"), step.outs[0])]


@rule("setitem")
def _setitem(step: Step) -> list[Axes] | None:
    x, value = step.tensor(), step.tensor(2, "value")
    if x is None:
        return None
    if value is not None:
        place = taken(step, x, step.arg(1, "index"), None)
        if place is not None:
            step.broadcast([Tensor([a.size for a in place], place, constant=False, owner=None), value], LINES_UP)
    return [list(x.axes)]


def taken(step: Step, x: Tensor, index: Any, out: tuple[int, ...] | None) -> Any:
    """Return the axes of `x[index]`; `out` is the known shape of the result, for what a mask selects."""
    items = list(index) if type(index) is tuple and not isinstance(index, Slice) else [index]
    used = sum(_covers(i) for i in items)
    if Ellipsis not in [i for i in items if not isinstance(i, Tensor)]:
        items.append(Ellipsis)
    axes: Axes = []
    fancy: list[tuple[int, Tensor | None, int]] = []  # (place in the result, index tensor or None for a mask, size)
    at = 0
    for item in items:
        if item is None or item is True:
            axes.append(UNIT)
        elif item is Ellipsis:
            rest = x.rank - used
            axes += x.axes[at : at + rest]
            at += rest
        elif isinstance(item, Slice):
            axes.append(sliced(step, x, x.axes[at], *item))
            at += 1
        elif type(item) is int:
            at += 1
        else:
            fancy.append((len(axes), *_fancy(item)))
            at += _covers(item)
    if fancy:
        return _with_fancy(step, axes, fancy, out)
    return axes


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
    together = len({p for p, _, _ in fancy}) == 1
    place = fancy[0][0] if together else 0
    return [*axes[:place], *block, *axes[place:]]


@rule("gather", "take_along_dim")
def _gather(step: Step) -> list[Axes] | None:
    x, index = step.tensor(), step.tensor(2 if step.name == "gather" else 1, "index")
    return None if x is None or index is None or index.rank != len(step.outs[0]) else [list(index.axes)]


@rule(
    "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "masked_scatter", "index_put"
)
def _scatter(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None else [list(x.axes)]


@rule("index_select")
def _index_select(step: Step) -> list[Axes] | None:
    x, index = step.tensor(), step.tensor(2, "index")
    if x is None or index is None:
        return None
    d = axis_index(step.arg(1, "dim"), x.rank)
    chosen: Axis = index.axes[0] if index.rank else UNIT
    return [[*x.axes[:d], chosen, *x.axes[d + 1 :]]]


@rule("masked_select", "nonzero", "unique", "argwhere")
def _masked_select(step: Step) -> list[Axes] | None:
    return [step.fresh(shape) for shape in step.outs]
