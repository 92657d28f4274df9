"""Rules for operations that rearrange axes: views, joins, cuts, repeats."""

from itertools import accumulate, pairwise
from typing import Any

from ..naming import number
from .core import UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .regroup import merged, regroup, written_sizes

__all__: list[str] = []


@rule("view", "reshape", "view_as", "reshape_as")
def _view(step: Step) -> list[Axes] | None:
    x = step.tensor()
    other = step.arg(1, "shape")
    if x is None or not step.outs or "dtype" in str(other):
        return None
    rank = len(step.outs[0])
    written = written_sizes(step, () if isinstance(other, Tensor) else step.numbers(1, "shape"), rank)
    return [regroup(step, x.axes, step.outs[0], written, constant=x.constant)]


@rule("flatten", "ravel")
def _flatten(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    if not x.rank:
        return [[UNIT]]
    start, end = (axis_index(d, x.rank) for d in (step.arg(1, "start_dim", 0), step.arg(2, "end_dim", -1)))
    sizes = [a.size for a in x.axes]
    total = 1
    for n in sizes[start : end + 1]:
        total *= n
    new = (*sizes[:start], total, *sizes[end + 1 :])
    if start == end:
        return [list(x.axes)]
    middle = x.axes[start : end + 1]
    checked = regroup(step, middle, (total,), ["-1"], constant=True)
    if len(new) > 1 and not x.constant:
        regroup(step, [*middle, UNIT], (total, 1), ["-1", "1"], constant=False)
    return [[*x.axes[:start], *(checked if total else [Axis(step.space.fresh(0))]), *x.axes[end + 1 :]]]


@rule("unflatten")
def _unflatten(step: Step) -> list[Axes] | None:
    x, sizes = step.tensor(), step.arg(2, "sizes")
    if x is None or not isinstance(sizes, tuple):
        return None
    dim, out = axis_index(step.arg(1, "dim"), x.rank), step.outs[0]
    written = written_sizes(step, sizes, len(sizes))
    part = regroup(step, [x.axes[dim]], out[dim : dim + len(sizes)], written, constant=x.constant)
    return [[*x.axes[:dim], *part, *x.axes[dim + 1 :]]]


@rule("transpose", "swapaxes", "swapdims")
def _transpose(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None or not x.rank:
        return None if x is None else [[]]
    i = axis_index(step.arg(1, "dim0", step.kwargs.get("axis0", 0)), x.rank)
    j = axis_index(step.arg(2, "dim1", step.kwargs.get("axis1", 0)), x.rank)
    axes = list(x.axes)
    axes[i], axes[j] = axes[j], axes[i]
    return [axes]


@rule("permute")
def _permute(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None else [[x.axes[d] for d in step.numbers(1, "dims")]]


@rule("movedim", "moveaxis")
def _movedim(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    source, target = (
        [axis_index(d, x.rank) for d in (v if isinstance(v, tuple) else (v,))]
        for v in (step.arg(1, "source"), step.arg(2, "destination"))
    )
    rest = [a for i, a in enumerate(x.axes) if i not in source]
    for t, s in sorted(zip(target, source, strict=True)):
        rest.insert(t, x.axes[s])
    return [rest]


@rule("t", "T", "mT", "H", "mH", "adjoint")
def _swap_last(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    whole = step.name == "T"
    return [x.axes[::-1] if whole or x.rank < 2 else [*x.axes[:-2], x.axes[-1], x.axes[-2]]]


@rule("squeeze")
def _squeeze(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    dims = [d for v in step.numbers(1, "dim") for d in (v if isinstance(v, tuple) else (v,))]
    where = {axis_index(d, x.rank) for d in dims} if dims else set(range(x.rank))
    return [[a for i, a in enumerate(x.axes) if not (i in where and a.size == 1)]]


@rule("unsqueeze")
def _unsqueeze(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    axes = list(x.axes)
    axes.insert(axis_index(step.arg(1, "dim"), x.rank + 1), UNIT)
    return [axes]


@rule("expand", "expand_as", "broadcast_to")
def _expand(step: Step) -> list[Axes] | None:
    x, other = step.tensor(), step.arg(1, "size")
    if x is None:
        return None
    new = step.outs[0]
    if isinstance(other, Tensor):
        return [step.broadcast([x, other])]
    axes = [UNIT] * (len(new) - x.rank) + list(x.axes)
    written = written_sizes(step, step.numbers(1, "size"), len(new))
    return [[_expanded(step, a, n, w) for a, n, w in zip(axes, new, written, strict=True)]]


def _expanded(step: Step, axis: Axis, size: int, written: str | None) -> Axis:
    """An axis of 1 that is expanded to a size given by name is that size's axis, also where it happens to be 1."""
    if axis.size != size or (not axis.term.atoms and size == 1 and written not in ("1", "-1")):
        return Axis(step.space.fresh(size))
    return axis


@rule("repeat", "tile")
def _repeat(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    new = step.outs[0]
    axes = [UNIT] * (len(new) - x.rank) + list(x.axes)[max(0, x.rank - len(new)) :]
    written = written_sizes(step, (), len(new))
    return [[_expanded(step, a, n, w) for a, n, w in zip(axes, new, written, strict=True)]]


@rule("repeat_interleave")
def _repeat_interleave(step: Step) -> list[Axes] | None:
    x, times, dim = step.tensor(), step.arg(1, "repeats"), step.arg(2, "dim")
    if x is None or not isinstance(times, int) or dim is None:
        return None
    axes, d = list(x.axes), axis_index(dim, x.rank)
    axes[d] = merged(step, [axes[d], *step.fresh([times])])
    return [axes]


@rule("cat", "concat", "concatenate")
def _cat(step: Step) -> list[Axes] | None:
    parts = [t for t in step.arg(0, "tensors", ()) if isinstance(t, Tensor)]
    real = [t for t in parts if t.rank == len(step.outs[0])]
    if not real:
        return None
    d = axis_index(step.arg(1, "dim", step.kwargs.get("axis", 0)), real[0].rank)
    axes = list(real[0].axes)
    for t in real[1:]:
        for i in range(len(axes)):
            if i != d:
                axes[i] = step.meet(axes[i], t.axes[i])
    axes[d] = Axis(
        step.space.sum([t.axes[d].term if t.shape[d] != 1 or t.axes[d].term.atoms else number(1) for t in real])
    )
    return [axes]


@rule("stack")
def _stack(step: Step) -> list[Axes] | None:
    parts = [t for t in step.arg(0, "tensors", ()) if isinstance(t, Tensor)]
    axes = step.broadcast(parts)
    d = axis_index(step.arg(1, "dim", 0), len(step.outs[0]))
    return [[*axes[:d], *step.fresh([len(parts)]), *axes[d:]]]


@rule("split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split")
def _split(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    d = axis_index(step.arg(2, "dim", 0), x.rank)
    whole, sizes = x.axes[d], [s[d] for s in step.outs]
    return [[*x.axes[:d], a, *x.axes[d + 1 :]] for a in _cut(step, x, whole, sizes)]


def _cut(step: Step, x: Tensor, whole: Axis, sizes: list[int]) -> Axes:
    """Cut one axis into consecutive pieces: 3C into three C, C + 2 (G D) into its parts; data axes get no new names."""
    space, n = step.space, len(sizes)
    if n == 1:
        return [whole]
    if len(set(sizes)) == 1 and sizes[0]:
        space.narrow(whole.term, n)
        term = space.walk(whole.term)
        if not x.constant and not space.is_data(term) and (term.num % n == 0 or n == 2):
            return [Axis(space.scaled(term, 1, n))] * n
        if term.var and not x.constant:
            return [Axis(space.scaled(term, 1, n))] * n
    ends = list(accumulate(sizes, initial=0))
    return [taken_from(step, x, whole, first, last) for first, last in pairwise(ends)]


def taken_from(step: Step, x: Tensor, whole: Axis, first: int, last: int) -> Axis:
    """Return the axis of entries `first` to `last - 1`; data axes get no new names."""
    space = step.space
    joint = None if x.constant or space.is_data(whole.term) else space.joint(whole.term, first, last)
    return Axis(joint or space.slice(whole.term, first, last))


@rule("unbind")
def _unbind(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    d = axis_index(step.arg(1, "dim", 0), x.rank)
    rest = [*x.axes[:d], *x.axes[d + 1 :]]
    return [rest] * len(step.outs)


@rule("select")
def _select(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    d = axis_index(step.arg(1, "dim"), x.rank)
    return [[*x.axes[:d], *x.axes[d + 1 :]]]


@rule("narrow")
def _narrow(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    d, start, length = axis_index(step.arg(1, "dim"), x.rank), step.arg(2, "start"), step.arg(3, "length")
    if not isinstance(start, int) or not isinstance(length, int):
        return None
    return [[*x.axes[:d], sliced(step, x, x.axes[d], start, start + length, 1), *x.axes[d + 1 :]]]


def sliced(step: Step, x: Tensor, axis: Axis, start: Any, stop: Any, stride: Any) -> Axis:
    """Return the axis of `x[start:stop:stride]`: the same axis, a half of it, or an axis with no name yet.

    A bounded slice of a constant is a new axis even where it is full: a mask of `block_size` rows cut to T.
    """
    n = axis.size
    open_ended = start in (None, 0) and stop is None
    first, last, by = slice(start, stop, stride).indices(n) if _ints(start, stop, stride) else (0, -1, 0)
    length = len(range(first, last, by)) if by else -1
    if open_ended and by == 1:
        return axis
    if start == -1 and stop is None and by == 1:
        return UNIT if n > 1 else step.fresh([1])[0]  # `-1:` or `-n:`
    if length == n and by == 1 and not x.constant:
        return axis
    if length >= 0 and 2 * length == n and not x.constant and _half(first, last, by, n):
        if not step.space.is_data(axis.term) and not step.space.has_part(axis.term, length):
            return Axis(step.space.scaled(axis.term, 1, 2))
    if length > 0 and by == 1 and length < n:
        return taken_from(step, x, axis, first, last)
    return step.fresh([max(length, 0)])[0]


def _ints(*values: Any) -> bool:
    return all(v is None or type(v) is int for v in values)


def _half(first: int, last: int, by: int, n: int) -> bool:
    return (by == 1 and first in (0, n // 2)) or (by == 2 and first in (0, 1))


@rule("roll", "flip", "fliplr", "flipud", "rot90", "tril", "triu")
def _same_axes(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None or x.rank != len(step.outs[0]) else [list(x.axes)]


@rule("diagonal", "diag", "diag_embed")
def _diagonal(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None or step.name != "diagonal" or step.arg(1, "offset", 0):
        return None
    i, j = (axis_index(d, x.rank) for d in (step.arg(2, "dim1", 0), step.arg(3, "dim2", 1)))
    rest = [a for k, a in enumerate(x.axes) if k not in (i, j)]
    return [[*rest, step.meet(x.axes[i], x.axes[j]) if x.shape[i] == x.shape[j] else step.fresh(step.outs[0][-1:])[0]]]


@rule("pad")
def _pad(step: Step) -> list[Axes] | None:
    x, pads = step.tensor(), step.arg(1, "pad")
    if x is None or not isinstance(pads, tuple):
        return None
    axes = list(x.axes)
    for k in range(len(pads) // 2):  # pairs, from the last axis on; a shift (1, -1) keeps the size, not the positions
        if pads[2 * k] or pads[2 * k + 1]:
            axes[-1 - k] = step.fresh([step.outs[0][-1 - k]])[0]
    return [axes]
