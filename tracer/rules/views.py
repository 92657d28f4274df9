"""Rules for operations that rearrange axes: views, joins, cuts, repeats."""

import re
from itertools import accumulate, groupby, pairwise
from typing import Any

from ..naming import number
from ..records import Slice
from .core import UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .regroup import counted, entries, merged, regroup, spelled, written_sizes

__all__: list[str] = []


@rule("view", "reshape", "view_as", "reshape_as")
def _view(step: Step) -> list[Axes]:
    x = step.tensor()
    other = step.arg(1, "shape", step.kwargs.get("dtype"))
    if type(other).__name__ == "dtype":
        return [list(x.axes)]
    rank = len(step.outs[0])
    written = written_sizes(step, () if isinstance(other, Tensor) else step.numbers(1, "shape"), rank)
    return [regroup(step, x.axes, step.outs[0], written, constant=x.constant)]


@rule("flatten", "ravel")
def _flatten(step: Step) -> list[Axes]:
    x = step.tensor()
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
def _unflatten(step: Step) -> list[Axes]:
    x, sizes = step.tensor(), step.arg(2, "sizes")
    dim, out = axis_index(step.arg(1, "dim"), x.rank), step.outs[0]
    written = written_sizes(step, sizes, len(sizes))
    part = regroup(step, [x.axes[dim]], out[dim : dim + len(sizes)], written, constant=x.constant)
    return [[*x.axes[:dim], *part, *x.axes[dim + 1 :]]]


@rule("transpose", "swapaxes", "swapdims")
def _transpose(step: Step) -> list[Axes]:
    axes = list(step.tensor().axes)
    if axes:
        i = axis_index(step.arg(1, "dim0", step.kwargs.get("axis0", 0)), len(axes))
        j = axis_index(step.arg(2, "dim1", step.kwargs.get("axis1", 0)), len(axes))
        axes[i], axes[j] = axes[j], axes[i]
    return [axes]


@rule("permute")
def _permute(step: Step) -> list[Axes]:
    x = step.tensor()
    return [[x.axes[d] for d in step.numbers(1, "dims")]]


@rule("movedim", "moveaxis")
def _movedim(step: Step) -> list[Axes]:
    x = step.tensor()
    source, target = (
        [axis_index(d, x.rank) for d in (v if isinstance(v, tuple) else (v,))]
        for v in (step.arg(1, "source"), step.arg(2, "destination"))
    )
    rest = [a for i, a in enumerate(x.axes) if i not in source]
    for t, s in sorted(zip(target, source, strict=True)):
        rest.insert(t, x.axes[s])
    return [rest]


@rule("t", "T", "mT", "H", "mH", "adjoint", "pinverse", "pinv")
def _swap_last(step: Step) -> list[Axes]:
    x = step.tensor()
    whole = step.name == "T"
    return [x.axes[::-1] if whole or x.rank < 2 else [*x.axes[:-2], x.axes[-1], x.axes[-2]]]


@rule("squeeze")
def _squeeze(step: Step) -> list[Axes]:
    x = step.tensor()
    dims = [d for v in step.numbers(1, "dim") for d in (v if isinstance(v, tuple) else (v,))]
    where = {axis_index(d, x.rank) for d in dims} if dims else set(range(x.rank))
    return [[a for i, a in enumerate(x.axes) if not (i in where and a.size == 1)]]


@rule("unsqueeze")
def _unsqueeze(step: Step) -> list[Axes]:
    x = step.tensor()
    axes = list(x.axes)
    axes.insert(step.dim(1, x.rank + 1), UNIT)
    return [axes]


@rule("expand", "expand_as", "broadcast_to")
def _expand(step: Step) -> list[Axes]:
    x, other = step.tensor(), step.arg(1, "size")
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
def _repeat(step: Step) -> list[Axes]:
    x = step.tensor()
    new = step.outs[0]
    axes = [UNIT] * (len(new) - x.rank) + list(x.axes)[max(0, x.rank - len(new)) :]
    written = written_sizes(step, (), len(new))
    return [[_expanded(step, a, n, w) for a, n, w in zip(axes, new, written, strict=True)]]


@rule("repeat_interleave")
def _repeat_interleave(step: Step) -> list[Axes]:
    x, times = step.tensor(), step.arg(1, "repeats")
    d = 0 if x.rank == 1 else step.dim(2, x.rank)
    new = step.fresh([step.outs[0][d]])[0]
    if isinstance(times, int):
        at = 1 - (len(step.args) + len(step.kwargs) - len(step.literals))  # 0 in x.repeat_interleave(2, 3)
        written = step.literals[at].rpartition("=")[2] if 0 <= at < len(step.literals) else ""
        features = 1 < x.rank == d + 1 and not step.space.is_data(x.axes[d].term)
        factor = [Axis(number(times))] if features and written.isdigit() else step.fresh([times])
        # One entry, repeated, is any axis of that many: a single key head becomes H of them.
        parts = factor if x.axes[d].size == 1 else [x.axes[d], *factor]
        new = Axis(step.space.product(a.term for a in parts))
    return [[*x.axes[:d], new, *x.axes[d + 1 :]]]


def joined(step: Step, axes: Axes) -> Axis:
    """Return some axes end to end; how many equal ones a list holds is known only where the code spells it out."""
    space, parts = step.space, [a.term if a.size != 1 or a.term.atoms else number(1) for a in axes]
    if counted(step) != len(axes):
        runs = [list(run) for _, run in groupby(parts, key=lambda t: (t.num, t.den, space.walk(t).atoms))]
        parts = [
            t
            for one, *more in runs
            for t in ([space.counted(one, 1 + len(more))] if more and one.den == 1 else [one, *more])
        ]
    return Axis(space.sum(parts))


@rule("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "dstack", "column_stack")
def _cat(step: Step) -> list[Axes]:
    rank = len(step.outs[0])
    parts = [t.axes for t in step.arg(0, "tensors", ()) if isinstance(t, Tensor)]
    if step.name == "column_stack":
        parts, d = [[*p, UNIT] if len(p) == 1 else p for p in parts], 1
    elif "stack" in step.name:
        parts = [_at_least(p, {"hstack": 1, "dstack": 3}.get(step.name, 2)) for p in parts]
        d = {"hstack": min(1, rank - 1), "dstack": 2}.get(step.name, 0)
    else:
        d = step.dim(1, rank, 0)
        parts = [p for p in parts if len(p) == rank]
    axes = list(parts[0])
    for part in parts[1:]:
        axes = [axes[i] if i == d else step.meet(axes[i], part[i]) for i in range(rank)]
    axes[d] = joined(step, [p[d] for p in parts])
    return [axes]


def _at_least(axes: Axes, rank: int) -> Axes:
    """Add axes of 1 where `atleast_1d`, `_2d` and `_3d` put them."""
    axes = [UNIT] * (min(rank, 2) - len(axes)) + list(axes)
    return [*axes, UNIT] if rank == 3 and len(axes) == 2 else axes


@rule("atleast_1d", "atleast_2d", "atleast_3d")
def _atleast(step: Step) -> list[Axes]:
    return [_at_least(t.axes, int(step.name[-2])) for t in step.tensors()]


@rule("block_diag")
def _block_diag(step: Step) -> list[Axes]:
    parts = [_at_least(t.axes, 2) for t in step.tensors()]
    return [[joined(step, [p[i] for p in parts]) for i in range(2)]]


@rule("stack")
def _stack(step: Step) -> list[Axes]:
    parts = [t for t in step.arg(0, "tensors", ()) if isinstance(t, Tensor)]
    axes = step.broadcast(parts)
    d = step.dim(1, len(step.outs[0]), 0)
    spelled_out = len(entries(step)) == len(parts)  # `stack([x, y])` is two by its code, `stack(heads)` by a size
    new = [Axis(number(len(parts)))] if spelled_out else step.fresh([len(parts)])
    return [[*axes[:d], *new, *axes[d:]]]


@rule("meshgrid")
def _meshgrid(step: Step) -> list[Axes]:
    axes = [t.axes[0] if t.rank else UNIT for t in step.tensors()]
    if step.kwargs.get("indexing") == "xy":
        axes[:2] = axes[1::-1]
    return [axes] * len(step.outs)


@rule("kron")
def _kron(step: Step) -> list[Axes]:
    a, b = (t.axes for t in step.tensors()[:2])
    rank = max(len(a), len(b))
    pairs = zip([UNIT] * (rank - len(a)) + a, [UNIT] * (rank - len(b)) + b, strict=True)
    return [[merged(step, list(pair)) for pair in pairs]]


@rule("cartesian_prod", "combinations")
def _cartesian(step: Step) -> list[Axes]:
    whole = [t.axes[0] for t in step.tensors()]
    product = [merged(step, whole)] if step.name == "cartesian_prod" else step.fresh(step.outs[0][:1])
    return [[*product, *step.fresh(step.outs[0][1:])]]


@rule(
    "split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
    "hsplit", "vsplit", "dsplit",
)  # fmt: skip
def _split(step: Step) -> list[Axes]:
    x = step.tensor()
    fixed = {"hsplit": min(1, x.rank - 1), "vsplit": 0, "dsplit": 2}.get(step.name)
    d = step.dim(2, x.rank, 0) if fixed is None else fixed
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


def taken_from(step: Step, x: Tensor, whole: Axis, first: int, last: int, number: bool = False) -> Axis:
    """Return the axis of entries `first` to `last - 1`; neither data axes nor a bare `number` get new names so.

    The N of `1+N`, what follows bare numbers, is no new name.
    """
    space = step.space
    joint = None if x.constant else space.joint(whole.term, first, last)
    if (number or space.is_data(whole.term)) and (first, last) != space.after_numbers(whole.term):
        joint = None  # S+T cut at T, where S is as large?
    return Axis(joint or space.slice(whole.term, first, last))


@rule("glu")
def _glu(step: Step) -> list[Axes]:
    x = step.tensor()
    d = step.dim(1, x.rank, -1)
    half = _cut(step, x, x.axes[d], [step.outs[0][d]] * 2)[0]
    return [[*x.axes[:d], half, *x.axes[d + 1 :]]]


@rule("unbind", "select")
def _select(step: Step) -> list[Axes]:
    x = step.tensor()
    d = step.dim(1, x.rank, 0)
    return [[*x.axes[:d], *x.axes[d + 1 :]]] * len(step.outs)


@rule("narrow")
def _narrow(step: Step) -> list[Axes]:
    x = step.tensor()
    d, start, length = step.dim(1, x.rank), step.arg(2, "start"), step.arg(3, "length")
    new = step.fresh([step.outs[0][d]])[0]
    if _ints(start, length):
        new = sliced(step, x, x.axes[d], Slice(start, start + length, 1), spelled(step, length))
    return [[*x.axes[:d], new, *x.axes[d + 1 :]]]


def sliced(step: Step, x: Tensor, axis: Axis, cut: Slice, number: bool | None) -> Axis:
    """Return the axis of `x[start:stop:stride]`: the same axis, a half of it, or an axis with no name yet.

    A bounded slice of a constant is a new axis even where it is full: a mask of `block_size` rows cut to T. So is one
    that is bounded by a `number`, or may be (None): `x[:4]` may happen to be all of x, or half.
    """
    n, (start, stop, stride) = axis.size, cut
    first, last, by = slice(start, stop, stride).indices(n) if _ints(start, stop, stride) else (0, -1, 0)
    length = len(range(first, last, by)) if by else -1
    if start in (None, 0) and stop is None and by == 1:
        return axis
    if number and (start, stop) in ((-1, None), (None, 1), (0, 1)) and by == 1:
        return UNIT
    if number is not False and not (by == 2 and stop is None):  # `1::2` takes every other entry, however many there are
        whole = length <= 0 or length == n or by != 1
        return step.fresh([max(length, 0)])[0] if whole else taken_from(step, x, axis, first, last, True)
    if length == n and by == 1 and not x.constant:
        return axis
    halved = by == 2 or step.space.walk(axis.term).var is None or re.search(r"// ?2\b|half", step.code)
    if halved and length >= 0 and 2 * length == n and not x.constant and _half(first, last, by, n):
        if not step.space.is_data(axis.term) and not step.space.has_part(axis.term, length):
            return Axis(step.space.scaled(axis.term, 1, 2))
    if length > 0 and by == 1 and length < n:
        return taken_from(step, x, axis, first, last)
    return step.fresh([max(length, 0)])[0]


def _ints(*values: Any) -> bool:
    return all(v is None or type(v) is int for v in values)


def _half(first: int, last: int, by: int, n: int) -> bool:
    return (by == 1 and first in (0, n // 2)) or (by == 2 and first in (0, 1))


@rule("diagonal", "diag", "diagflat", "diag_embed")
def _diagonal(step: Step) -> list[Axes]:
    x, offset = step.tensor(), step.arg(1, "offset", step.kwargs.get("diagonal", 0))
    if step.name in ("diag", "diagflat", "diag_embed") and len(step.outs[0]) == x.rank + 1:
        rank = x.rank + 1
        i, j = (axis_index(d, rank) for d in (step.arg(2, "dim1", -2), step.arg(3, "dim2", -1)))
        one, two = [x.axes[-1]] * 2 if not offset else step.fresh(step.outs[0][k] for k in (i, j))
        others = iter(x.axes[:-1])
        return [[one if k == i else two if k == j else next(others) for k in range(rank)]]
    last = (-2, -1) if step.name.startswith("linalg") else (0, 1)
    i, j = (axis_index(d, x.rank) for d in (step.arg(2, "dim1", last[0]), step.arg(3, "dim2", last[1])))
    rest = [a for k, a in enumerate(x.axes) if k not in (i, j)]
    square = not offset and step.space.same(x.axes[i].term, x.axes[j].term)
    return [[*rest, x.axes[i] if square else step.fresh(step.outs[0][-1:])[0]]]


@rule("pad", "constant_pad_nd")
def _pad(step: Step) -> list[Axes]:
    axes, pads = list(step.tensor().axes), step.arg(1, "pad")
    for k in range(len(pads) // 2):  # pairs, from the last axis on; a shift (1, -1) keeps the size, not the positions
        if pads[2 * k] or pads[2 * k + 1]:
            axes[-1 - k] = step.fresh([step.outs[0][-1 - k]])[0]
    return [axes]


# ---------------------------------------------------------------- complex numbers


@rule("view_as_real")
def _view_as_real(step: Step) -> list[Axes]:
    return [[*step.tensor().axes, Axis(number(2))]]


@rule("view_as_complex")
def _view_as_complex(step: Step) -> list[Axes]:
    return [list(step.tensor().axes[:-1])]
