"""How the entries of one operation move: its kind, the axes it is about, and which input entries each result reads.

Worked out from the record alone: shapes and arguments. Drawing is left to the player, sentences to `explain`. One small
function per family of operations, registered by its decorator; an operation that has none moves nothing that is known.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, Literal

from ..records import Op

__all__ = ["Asked", "Entry", "Kind", "Motion", "Read", "motion"]

Kind = Literal[
    "regroup", "move", "contract", "mask", "normalise", "reduce", "pointwise", "gather", "join", "cut", "make", "other"
]  # fmt: skip
Entry = int | Literal["all"] | tuple[int, int]
Read = tuple[Literal["flat"]] | tuple[Literal["axes"], tuple[Entry, ...]] | None
Reads = Sequence[Read]


@dataclass(frozen=True, slots=True)
class Motion:
    """What one entry of a result is made of.

    `axes` are those the operation is about (swapped, contracted, normalised, cut), counted in the first input. `reads`
    has one entry for each input: None where it is not known, or nothing is read; `("flat",)` for the entry with the
    same row-major number; `("axes", ...)` with one entry for each of the input's axes: the number of the result's axis
    that has the same index (0 where the input's size is 1), `"all"` of them, or `(axis, offset)`: the index on that
    axis of the result less `offset`, and nothing where that is outside.

    Where a mask, a zero or a choice hides an entry (`masked_fill`, `tril`, `max`, causal attention), it is named all
    the same: the operation covers it.
    """

    kind: Kind
    axes: tuple[int, ...]
    reads: tuple[Read, ...]


Shape = tuple[int, ...]
Found = tuple[Kind, tuple[int, ...], Reads]
FLAT: Read = ("flat",)


def motion(op: Op, output: int = 0) -> Motion:
    """Return how the entries of one result of an operation come about; `output` tells which, the first by default."""
    nothing = (None,) * len(op.inputs)
    asked = Asked(op, output)
    family = _FAMILIES.get(asked.name)
    if family is None or not 0 <= output < len(op.outputs):
        return Motion("other", (), nothing)
    try:
        kind, axes, reads = family(asked)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # arguments of a form that is not known here
        return Motion("other", (), nothing)
    known = [_checked(read, shape, asked.out) for read, shape in zip(reads, asked.shapes, strict=False)]
    known = [None if i and _only_written(op, i) else read for i, read in enumerate(known)]
    return Motion(kind, axes, (*known, *nothing[len(known) :]))


def _checked(read: Read, shape: Shape, out: Shape) -> Read:
    """Return a read, or None where it does not fit the shapes that were recorded."""
    if read is None or (read[0] == "flat" and prod(shape) == prod(out)):
        return read
    if read[0] == "flat" or len(read[1]) != len(shape):
        return None
    for entry, n in zip(read[1], shape, strict=True):
        axis = entry[0] if isinstance(entry, tuple) else entry
        if axis != "all" and not (0 <= axis < len(out) and (isinstance(entry, tuple) or n in (1, out[axis]))):
            return None
    return read


def _only_written(op: Op, i: int) -> bool:
    """Tell whether an input after the first is where the result goes (`out=`), and is not read."""
    return op.memory == "in-place" and not op.name.endswith("_") and op.inputs[i].id == op.outputs[0].id


class Asked:
    """An operation as its family reads it: `shapes` of its inputs, `out` of the result; arguments by place or name.

    Tensors do not count among the places, as in `Op.args`.
    """

    def __init__(self, op: Op, output: int = 0) -> None:
        self.op, self.output = op, output
        self.name = plain_name(op.name)
        self.shapes: list[Shape] = [info.shape for info in op.inputs]
        self.out: Shape = op.outputs[output].shape if 0 <= output < len(op.outputs) else ()
        self.plain: list[Any] = []
        self.named: dict[str, Any] = {}
        for arg in op.args:
            name, equals, value = arg.partition("=") if isinstance(arg, str) else ("", "", "")
            if equals and name.isidentifier():
                self.named[name] = _value(value)
            else:
                self.plain.append(arg)

    def arg(self, at: int, *names: str, default: Any = None) -> Any:
        """Return an argument by its place among those that are no tensors, or by one of its names."""
        named = next((self.named[n] for n in names if n in self.named), default)
        return self.plain[at] if at < len(self.plain) else named

    def dim(self, at: int, rank: int, default: Any = None, *names: str) -> int:
        """Return an argument that is an axis, counted from the front."""
        return front(self.arg(at, *(names or ("dim", "axis")), default=default), rank)

    def numbers(self, at: int, *names: str) -> tuple[Any, ...]:
        """Return `f(x, 1, 2)` and `f(x, (1, 2))` alike as `(1, 2)`."""
        rest = self.plain[at:] or [self.arg(at, *names, default=())]
        return rest[0] if len(rest) == 1 and isinstance(rest[0], tuple) else tuple(rest)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def plain_name(name: str) -> str:
    """Return the name under which families know an operation: `exp` for `exp_` and `special_exp`."""
    if name in _FAMILIES:
        return name
    return name.rstrip("_").removeprefix("special_").removeprefix("linalg_").removesuffix("_copy")


def front(dim: Any, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        TypeError: it is no number.
        ValueError: there is no such axis.
    """
    if type(dim) is not int:
        raise TypeError(dim)
    if not -rank <= dim < max(rank, 1):
        raise ValueError(dim)
    return dim + rank if dim < 0 else dim


# ---------------------------------------------------------------- the table

Family = Callable[[Asked], Found]
_FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    """Register how these operations move; a name that is there already raises."""

    def register(function: Family) -> Family:
        for name in names:
            if name in _FAMILIES:
                raise ValueError(f"two families for {name}")
            _FAMILIES[name] = function
        return function

    return register


def aligned(shape: Shape, out: Shape) -> Read:
    """Return what broadcasting reads: axes line up from the right."""
    if shape == out:
        return FLAT
    return by_axes(range(len(out) - len(shape), len(out)))


def by_axes(entries: Iterable[Entry]) -> Read:
    """Return a read with one entry for each axis."""
    return ("axes", tuple(entries))


def along(shape: Shape, dims: Iterable[int]) -> Read:
    """Return the read of a result of the input's shape that needs all of some axes: a softmax."""
    gone = set(dims)
    return by_axes("all" if i in gone else i for i in range(len(shape)))


def without(rank: int, dims: Iterable[int], kept: bool) -> list[Entry]:
    """Return where each axis is after a reduction over `dims`: "all" for these."""
    gone = set(dims)
    return ["all" if i in gone else i if kept else i - sum(d < i for d in gone) for i in range(rank)]


# ---------------------------------------------------------------- views


@family(
    "view", "reshape", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze", "view_as", "reshape_as",
    "atleast_1d", "atleast_2d", "atleast_3d",
)  # fmt: skip
def _view(a: Asked) -> Found:
    if a.name.startswith("atleast"):
        return "regroup", (), [FLAT if i == a.output else None for i in range(len(a.shapes))]
    return "regroup", (), [FLAT]


@family("transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "T", "mT", "H", "mH", "adjoint")
def _moved(a: Asked) -> Found:
    order = order_of(a)
    moved = tuple(i for i, j in enumerate(order) if i != j)
    return "move", moved, [by_axes(order.index(i) for i in range(len(order)))]


def order_of(a: Asked) -> list[int]:
    """Return which axis of the input stands at each place of a transpose or permute."""
    rank = len(a.shapes[0])
    order = list(range(rank))
    if a.name == "permute":
        order = [front(d, rank) for d in a.numbers(0, "dims")]
    elif a.name in ("movedim", "moveaxis"):
        source, target = a.arg(0, "source"), a.arg(1, "destination")
        source, target = ([front(d, rank) for d in (v if isinstance(v, tuple) else (v,))] for v in (source, target))
        order = [i for i in order if i not in source]
        for t, s in sorted(zip(target, source, strict=True)):
            order.insert(t, s)
    elif a.name == "T":
        order.reverse()
    elif rank > 1:
        swaps = a.name in ("transpose", "swapaxes", "swapdims")
        i = a.dim(0, rank, None, "dim0", "axis0") if swaps else rank - 2
        j = a.dim(1, rank, None, "dim1", "axis1") if swaps else rank - 1
        order[i], order[j] = order[j], order[i]
    return order


@family("expand", "expand_as", "broadcast_to")
def _expand(a: Asked) -> Found:
    return "other", (), [aligned(a.shapes[0], a.out)]


@family("broadcast_tensors")
def _broadcast(a: Asked) -> Found:
    return "other", (), [aligned(s, a.out) if i == a.output else None for i, s in enumerate(a.shapes)]


@family("repeat", "tile", "repeat_interleave")
def _repeat(a: Asked) -> Found:
    """Copies that stand one after another are read by the remainder of an index, which has no form here."""
    if any(isinstance(x, str) and "->" in x for x in a.plain):
        return _pattern(a)
    return "other", (), [aligned(a.shapes[0], a.out)]


@family("view_as_real")
def _as_real(a: Asked) -> Found:
    return "regroup", (), [by_axes(range(len(a.shapes[0])))]


@family("view_as_complex")
def _as_complex(a: Asked) -> Found:
    return "regroup", (), [by_axes([*range(len(a.out)), "all"])]


@family("diagonal")
def _diagonal(a: Asked) -> Found:
    rank, last = len(a.shapes[0]), len(a.out) - 1
    offset, first, second = (
        a.arg(at, name, default=default) for at, name, default in ((0, "offset", 0), (1, "dim1", 0), (2, "dim2", 1))
    )
    i, j = front(first, rank), front(second, rank)
    entries: dict[int, Entry] = {i: (last, min(offset, 0)), j: (last, -max(offset, 0))}
    others = iter(range(rank))
    return "cut", (i, j), [by_axes(entries[k] if k in entries else next(others) for k in range(rank))]


# ---------------------------------------------------------------- joins and cuts


@family("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "dstack", "column_stack")
def _cat(a: Asked) -> Found:
    rank = len(a.out)
    fixed = {"hstack": min(1, rank - 1), "vstack": 0, "row_stack": 0, "dstack": 2, "column_stack": 1}
    d = fixed[a.name] if a.name in fixed else a.dim(0, rank, 0)
    if any(len(s) != rank for s in a.shapes if prod(s)):  # vstack of vectors: as stack
        return "join", (), [None] * len(a.shapes)
    starts = accumulate((s[d] if len(s) == rank else 0 for s in a.shapes), initial=0)
    reads = [
        by_axes((d, start) if i == d else i for i in range(rank)) for start, _ in zip(starts, a.shapes, strict=False)
    ]
    return "join", (d,), reads


@family("stack")
def _stack(a: Asked) -> Found:
    """Which of the tensors is read is told by an index of the result that none of them has."""
    return "join", (), [None] * len(a.shapes)


@family("block_diag")
def _block_diag(a: Asked) -> Found:
    reads: list[Read] = []
    row = column = 0
    for shape in a.shapes:
        reads.append(by_axes([(0, row), (1, column)]) if len(shape) == 2 else None)
        n, m = ((1,) * 2 + shape)[-2:]
        row, column = row + n, column + m
    return "join", (), reads


@family(
    "split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
    "hsplit", "vsplit", "dsplit",
)  # fmt: skip
def _split(a: Asked) -> Found:
    rank = len(a.shapes[0])
    fixed = {"hsplit": min(1, rank - 1), "vsplit": 0, "dsplit": 2}
    d = fixed[a.name] if a.name in fixed else a.dim(1, rank, 0)
    start = sum(out.shape[d] for out in a.op.outputs[: a.output])
    return "cut", (d,), [by_axes((i, -start) if i == d else i for i in range(rank))]


@family("narrow")
def _narrow(a: Asked) -> Found:
    rank = len(a.shapes[0])
    d, start = a.dim(0, rank), a.arg(1, "start")
    start += a.shapes[0][d] if start < 0 else 0
    return "cut", (d,), [by_axes((i, -start) if i == d else i for i in range(rank))]


@family("unbind", "select")
def _select(a: Asked) -> Found:
    """One index of an axis has no form among the reads, except where it is the only one."""
    rank = len(a.shapes[0])
    d = a.dim(0, rank, 0)
    entries = without(rank, [d], kept=False)
    return "cut", (d,), [by_axes(entries) if a.shapes[0][d] == 1 else None]


@family("getitem")
def _getitem(a: Asked) -> Found:
    places = index_of(a)
    axes = tuple(p.axis for p in places if p.axis >= 0 and not p.whole)
    if any(p.kind == "tensor" for p in places):
        return "gather", axes, _indexed(a, places)
    if not axes:
        return "regroup", (), [FLAT]
    entries: list[Entry] = []
    at = 0
    for place in places:
        if place.axis >= 0:
            entries.append("all" if place.kind == "number" else at if place.whole else (at, -place.start))
        at += place.kind in ("new", "slice")
    lost = any((p.kind == "number" and a.shapes[0][p.axis] > 1) or p.step != 1 for p in places)
    return "cut", axes, [None if lost else by_axes(entries)]


def _indexed(a: Asked, places: "list[Place]") -> Reads:
    """Return the reads of `x[:, ids]`: the ids where they stand; which entries of x they name is not known."""
    ids = a.shapes[1:]
    if (
        len(ids) != 1
        or sum(p.kind == "tensor" for p in places) > 1
        or "bool" in a.op.inputs[1].dtype
        or any(p.kind == "number" for p in places)
    ):
        return [None] * len(a.shapes)
    at = next(i for i, p in enumerate(places) if p.kind == "tensor")
    before = sum(p.kind in ("new", "slice") for p in places[:at])
    return [None, by_axes(range(before, before + len(ids[0])))]


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of an index: the input's axis it stands for (-1: none), and for a slice where it starts and steps."""

    kind: Literal["slice", "number", "new", "tensor"]
    axis: int
    start: int = 0
    step: int = 1
    whole: bool = False


def index_of(a: Asked) -> list[Place]:
    """Return what `x[...]` says of each axis, in order; an ellipsis and what follows the index are written out.

    Raises:
        ValueError: the index has a form that the record does not keep.
    """
    shape, tensors = a.shapes[0], len(a.op.inputs) - 1
    if a.name == "setitem":
        tensors -= len(a.plain) < 2 and tensors > 0  # the value
    index = a.plain[0] if a.plain else ("tensor",) * tensors if tensors else (None,)
    items = list(index) if isinstance(index, tuple) else [index]
    if all(type(i) is int for i in items) and a.name == "getitem" and len(a.out) == len(shape) and items:
        items = [tuple(items)]  # a list of rows is recorded as a tuple
    if sum(i == "tensor" for i in items) != tensors or any(isinstance(i, bool) for i in items):
        raise ValueError(index)
    masks = [t for t in a.op.inputs[1 : 1 + tensors] if "bool" in t.dtype or "uint8" in t.dtype]
    if masks and (len(items) > 1 or tensors > 1):
        raise ValueError(index)
    used = sum(i is not None and i != "..." for i in items)
    items = items if "..." in items else [*items, "..."]
    places: list[Place] = []
    at = 0
    for item in items:
        if item is None:
            places.append(Place("new", -1))
        elif item == "...":
            rest = max(0, len(shape) - (len(masks[0].shape) if masks else used))
            places += [Place("slice", at + i, whole=True) for i in range(rest)]
            at += rest
        elif item == "tensor" or isinstance(item, tuple):
            places.append(Place("tensor", at))
            at += len(masks[0].shape) if masks and item == "tensor" else 1
        elif type(item) is int:
            places.append(Place("number", at, front(item, shape[at])))
            at += 1
        else:
            start, stop, step = _bounds(item, shape[at])
            places.append(Place("slice", at, start, step, (start, stop, step) == (0, shape[at], 1)))
            at += 1
    return places


def _bounds(text: Any, size: int) -> tuple[int, int, int]:
    parts = [int(p) if p else None for p in text.split(":")]
    if not 1 < len(parts) < 4:
        raise ValueError(text)
    return slice(*parts).indices(size)


@family("setitem")
def _setitem(a: Asked) -> Found:
    """What is overwritten is named with the rest; the value where the index is slices alone."""
    reads: list[Read] = [FLAT, *[None] * (len(a.shapes) - 1)]
    places = index_of(a)
    if len(a.plain) < 2 and len(a.shapes) > 1 and all(p.kind == "slice" and p.step == 1 for p in places):
        shape = a.shapes[-1]
        for_value: list[Entry] = []
        for place, n in zip(places[len(places) - len(shape) :], shape, strict=True):
            if n == 1 and not place.whole:
                return "other", (), reads
            for_value.append(place.axis if place.whole else (place.axis, place.start))
        reads[-1] = by_axes(for_value)
    return "other", tuple(p.axis for p in places if p.axis >= 0 and not p.whole), reads


@family("pad", "constant_pad_nd")
def _pad(a: Asked) -> Found:
    pads, rank = a.numbers(0, "pad"), len(a.shapes[0])
    pads = pads[0] if pads and isinstance(pads[0], tuple) else pads
    before = {rank - 1 - k: pads[2 * k] for k in range(len(pads) // 2) if pads[2 * k] or pads[2 * k + 1]}
    mode = a.arg(1, "mode", default="constant")
    known = mode == "constant" or isinstance(mode, int | float)
    read = by_axes((i, before[i]) if i in before else i for i in range(rank))
    return "other", tuple(sorted(before)), [read if known else None]


# ---------------------------------------------------------------- products


@family("matmul", "mm", "bmm", "mv", "dot", "vdot", "rmatmul")
def _matmul(a: Asked) -> Found:
    left, right = a.shapes[:2] if a.name != "rmatmul" else a.shapes[1::-1]
    reads = product_reads(left, right, len(a.out))
    if a.name == "rmatmul":
        return "contract", (max(0, len(right) - 2),), reads[::-1]
    return "contract", (len(left) - 1,), reads


def product_reads(left: Shape, right: Shape, rank: int) -> list[Read]:
    """Return the reads of both sides of a matmul whose result has that many axes."""
    batch = rank - (len(left) > 1) - (len(right) > 1)
    ours: list[Entry] = [*range(batch - len(left[:-2]), batch), batch, "all"] if len(left) > 1 else ["all"]
    theirs: list[Entry] = [*range(batch - len(right[:-2]), batch), "all", rank - 1] if len(right) > 1 else ["all"]
    return [by_axes(ours), by_axes(theirs)]


@family("addmm", "baddbmm", "addbmm", "addmv", "addr")
def _addmm(a: Asked) -> Found:
    bias, left, right = a.shapes[:3]
    first = aligned(bias, a.out)
    if a.name == "addr":
        return "contract", (), [first, by_axes([0]), by_axes([1])]
    if a.name == "addbmm":
        return "contract", (), [first, by_axes(["all", 0, "all"]), by_axes(["all", "all", 1])]
    return "contract", (), [first, *product_reads(left, right, len(a.out))]


@family("linear")
def _linear(a: Asked) -> Found:
    x, weight = a.shapes[:2]
    last = len(a.out) - 1
    if len(weight) == 1:
        return "contract", (len(x) - 1,), [by_axes([*range(len(x) - 1), "all"]), by_axes(["all"]), by_axes([])]
    reads = [by_axes([*range(last), "all"]), by_axes([last, "all"]), by_axes([last])]
    return "contract", (len(x) - 1,), reads


@family("bilinear")
def _bilinear(a: Asked) -> Found:
    last = len(a.out) - 1
    side = by_axes([*range(last), "all"])
    return "contract", (last,), [side, side, by_axes([last, "all", "all"]), by_axes([last])]


@family("einsum")
def _einsum(a: Asked) -> Found:
    terms, out = einsum_letters(a)
    reads: list[Read] = []
    for letters in terms:
        twice = {n for n in letters if letters.count(n) > 1 and n not in out}  # a trace: only the diagonal
        reads.append(None if twice else by_axes(out.index(n) if n in out else "all" for n in letters))
    gone = tuple(i for i, n in enumerate(terms[0]) if n not in out)
    return ("contract" if gone or len(terms) > 1 else "move"), gone, reads


def einsum_letters(a: Asked) -> tuple[list[list[str]], list[str]]:
    """Return one name for each axis of each operand and of the result; as torch writes them, or einops.

    Raises:
        ValueError: the equation is not known, does not fit the shapes, or fits in two ways.
    """
    equation = next((x for x in a.plain if isinstance(x, str)), "")
    left, arrow, right = equation.partition("->")
    found: list[tuple[list[list[str]], list[str]]] = []
    for split in (list, str.split) if arrow else (list,):
        terms = [_names(split(_dots(t)), len(s)) for t, s in zip(left.split(","), a.shapes, strict=True)]
        out = _names(split(_dots(right)), len(a.out)) if arrow else _implicit(terms)
        if _sizes_agree([*terms, out], [*a.shapes, a.out]) and (terms, out) not in found:
            found.append((terms, out))
    if len(found) != 1:
        raise ValueError(equation)
    return found[0]


def _dots(term: str) -> str:
    return term.replace("...", "\0").strip()


def _names(names: list[str], rank: int) -> list[str]:
    """Return one name for each axis; the axes under `...` count from the right."""
    names = [n for n in names if n != " "]
    if "\0" in names:
        at, hidden = names.index("\0"), rank - len(names) + 1
        names[at : at + 1] = [f"...{hidden - i}" for i in range(hidden)]
    return names


def _implicit(terms: list[list[str]]) -> list[str]:
    every = [n for names in terms for n in names]
    dots = sorted({n for n in every if n.startswith("...")}, key=lambda n: -int(n[3:]))
    return dots + sorted(n for n in set(every) if not n.startswith("...") and every.count(n) == 1)


def _sizes_agree(names: list[list[str]], shapes: list[Shape]) -> bool:
    """Tell whether each axis has a name, and each name one size besides 1."""
    sizes: dict[str, set[int]] = {}
    for mine, shape in zip(names, shapes, strict=True):
        if len(mine) != len(shape):
            return False
        for n, size in zip(mine, shape, strict=True):
            sizes.setdefault(n, {1}).add(size)
    return all(len(found) < 3 for found in sizes.values())


@family("outer", "ger", "inner", "tensordot", "cdist", "vecdot")
def _pairs(a: Asked) -> Found:
    x, y = (len(s) for s in a.shapes[:2])
    gone: dict[int, int] = {}
    if a.name == "inner" and x and y:
        gone = {x - 1: y - 1}
    elif a.name == "tensordot":
        dims = a.arg(0, "dims", default=2)
        pairs = (range(x - dims, x), range(dims)) if isinstance(dims, int) else dims
        ours, theirs = ([p] if isinstance(p, int) else list(p) for p in pairs)
        gone = {front(i, x): front(j, y) for i, j in zip(ours, theirs, strict=True)}
    elif a.name == "cdist":
        rank = len(a.out)
        heads = [by_axes([*range(rank - r, rank - 2), at, "all"]) for r, at in ((x, rank - 2), (y, rank - 1))]
        return "contract", (x - 1,), heads
    elif a.name == "vecdot":
        return _two_sides(a, a.dim(0, max(x, y), -1), "contract")
    left = by_axes(without(x, gone, kept=False))
    right = without(y, gone.values(), kept=False)
    return "contract", tuple(gone), [left, by_axes(e + x - len(gone) if isinstance(e, int) else e for e in right)]


def _two_sides(a: Asked, d: int, kind: Kind) -> Found:
    """Two tensors that are broadcast, and reduced along one axis."""
    rank = max(len(s) for s in a.shapes[:2])
    entries = without(rank, [d], kept=len(a.out) == rank)
    return kind, (d,), [by_axes(entries[rank - len(s) :]) for s in a.shapes[:2]]


@family("chain_matmul", "multi_dot")
def _chain(a: Asked) -> Found:
    reads: list[Read] = [along(s, range(len(s))) for s in a.shapes]
    first: list[Entry] = [0, "all"]
    last: list[Entry] = ["all", len(a.out) - 1]
    reads[0], reads[-1] = by_axes(first[-len(a.shapes[0]) :]), by_axes(last[: len(a.shapes[-1])])
    return "contract", (len(a.shapes[0]) - 1,), reads


@family("conv1d", "conv2d", "conv3d")
def _conv(a: Asked) -> Found:
    """A window has no form among the reads, except one of a single position, or of all there are."""
    x, weight = a.shapes[:2]
    spatial = len(weight) - 2
    channel = len(x) - spatial - 1
    past_bias = a.plain[1:] if a.plain[:1] == [None] else a.plain
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    stride, padding, _, groups = (
        past_bias[i] if i < len(past_bias) else a.named.get(name, default)
        for i, (name, default) in enumerate(defaults.items())
    )
    whole = _each(padding, spatial) == (0,) * spatial and groups in (1, x[channel])
    entries: list[Entry] = [*range(channel), "all" if groups == 1 else channel]
    for i, step in zip(range(channel + 1, len(x)), _each(stride, spatial), strict=True):
        window = weight[i - len(x)]
        covers = window == x[i] and a.out[i] == 1
        whole = whole and (covers or (window == 1 and step == 1))
        entries.append("all" if covers else i)
    if groups > 1 and weight[0] != x[channel]:
        whole = False
    kernel = by_axes(channel if i == 0 else "all" for i in range(spatial + 2))
    return "contract", (channel,), [by_axes(entries) if whole else None, kernel, by_axes([channel])]


def _each(value: Any, count: int) -> Any:
    value = 0 if value == "valid" else value
    return value * (count // len(value)) if isinstance(value, tuple) else (value,) * count


@family("embedding")
def _embedding(a: Asked) -> Found:
    return "gather", (), [by_axes(range(len(a.shapes[0]))), None]


@family("scaled_dot_product_attention")
def _sdpa(a: Asked) -> Found:
    rank = len(a.out)
    q, k, v = a.shapes[:3]
    lead = [list(range(rank - len(s), rank - 2)) for s in (q, k, v)]
    mask: list[Read] = []
    if len(a.shapes) > 3:
        scores = (*a.out[:-1], k[-2])
        entries: list[Entry] = [*range(rank - 1), "all"]
        mask = [by_axes(entries[len(scores) - len(a.shapes[3]) :])]
    grouped = len(k) > 2 and k[-3] not in (1, a.out[-3])
    reads = [
        by_axes([*lead[0], rank - 2, "all"]),
        by_axes([*lead[1], "all", "all"]),
        by_axes([*lead[2], "all", rank - 1]),
    ]
    return "contract", (rank - 1,), [reads[0], *([None, None] if grouped else reads[1:]), *mask]


@family("multi_head_attention_forward")
def _mha(a: Asked) -> Found:
    """All of one example's keys and values; of the learned maps, what the output map mixes is everything."""
    if a.output:
        return "contract", (), [None] * len(a.shapes)
    rank = len(a.out)
    batch = list(range(1, rank - 1))
    other = by_axes(["all", *batch, "all"])
    return "contract", (rank - 1,), [by_axes([0, *batch, "all"]), other, other]


# ---------------------------------------------------------------- entry by entry


_POINTWISE = """
abs absolute acos acosh add addcdiv addcmul airy_ai alias alpha_dropout and angle arccos arccosh arcsin arcsinh arctan
arctan2 arctanh asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 bfloat16 binomial
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bool byte cdouble ceil
celu cfloat chalf char clamp clamp_max clamp_min clip clone complex conj conj_physical contiguous copysign cos
cosh cpu cuda data deg2rad detach digamma div divide double dropout elu
entr eq erf erfc erfcx erfinv exp exp2 expit expm1 fix float float_power floor floor_divide
fmax fmin fmod frac frexp gammainc gammaincc gammaln gcd ge gelu greater greater_equal gt half
hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma igammac imag int invert ior isclose
isfinite isinf isnan isneginf isposinf isreal ixor lcm ldexp le leaky_relu lerp less less_equal lgamma log log10
log1p log2 log_ndtr log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
logsigmoid long lt maximum minimum mish mod mul multiply nan_to_num native_dropout
ndtr ndtri ne neg negative nextafter not_equal or pin_memory polar polygamma positive pow
psi rad2deg rdiv real reciprocal relu relu6 remainder
requires_grad resolve_conj resolve_neg rfloor_divide round rpow rrelu rremainder rsqrt rsub selu sgn short sigmoid
sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold
true_divide trunc xlog1py xlogy xor zeta
"""


@family(*_POINTWISE.split())
def _pointwise(a: Asked) -> Found:
    return "pointwise", (), [aligned(s, a.out) for s in a.shapes]


@family("to", "type", "type_as", "deepcopy", "prelu", "isin", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")
def _first_alone(a: Asked) -> Found:
    """The second tensor gives a type, one slope for each channel, or a set."""
    rest: list[Read] = [None] * (len(a.shapes) - 1)
    if a.name == "prelu":
        rest = [by_axes([1 if len(a.out) > 1 and a.shapes[1] != (1,) else 0]) if a.out else None]
    elif a.name == "isin" and rest:
        rest = [along(a.shapes[1], range(len(a.shapes[1])))]
    return "pointwise", (), [FLAT, *rest]


@family("copy", "fill")
def _written(a: Asked) -> Found:
    return "pointwise", (), [None, *(aligned(s, a.out) for s in a.shapes[1:])]


@family("masked_fill", "where", "tril", "triu")
def _masked(a: Asked) -> Found:
    """An entry that the mask hides is named too."""
    if a.name == "where" and len(a.shapes) + len(a.plain) < 2:
        return "other", (), [None]
    return "mask", (), [aligned(s, a.out) for s in a.shapes]


@family("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "masked_scatter")
def _scatter(a: Asked) -> Found:
    """The entries that stay are the first tensor's; which ones the others change, their values tell."""
    return "other", (), [FLAT]


# ---------------------------------------------------------------- along an axis


@family("softmax", "log_softmax", "softmin", "gumbel_softmax", "normalize")
def _softmax(a: Asked) -> Found:
    place, names, default = {"normalize": (1, ("dim",), 1), "gumbel_softmax": (3, ("dim",), -1)}.get(
        a.name, (0, ("dim", "axis"), None)
    )
    d = a.dim(place, len(a.out), default, *names)
    return "normalise", (d,), [along(a.out, [d])]


@family("layer_norm", "rms_norm")
def _layer_norm(a: Asked) -> Found:
    over = a.arg(0, "normalized_shape")
    count = len(over) if isinstance(over, tuple) else 1
    dims = tuple(range(len(a.out) - count, len(a.out)))
    return "normalise", dims, [along(a.out, dims), *(aligned(s, a.out) for s in a.shapes[1:])]


@family("batch_norm", "group_norm", "instance_norm")
def _channel_norm(a: Asked) -> Found:
    """Statistics that are only kept up to date are no part of the result."""
    rank = len(a.out)
    rest: list[Read] = [by_axes([1])] * (len(a.shapes) - 1)
    batch = [i for i in range(rank) if i != 1]
    if a.name == "group_norm":
        groups = a.arg(0, "num_groups")
        if groups not in (1, a.out[1]):
            return "normalise", (1,), [None, *rest]
        dims = list(range(1 if groups == 1 else 2, rank))
        return "normalise", tuple(dims), [along(a.out, dims), *rest]
    flag = next(
        (x for x in [*a.plain, a.named.get("training"), a.named.get("use_input_stats")] if type(x) is bool), None
    )
    live = flag if flag is not None else a.name == "instance_norm"
    if live and rest:
        rest = [None, None, *rest[2:]] if len(rest) == 4 else [None] * len(rest)
    dims = (batch if a.name == "batch_norm" else batch[1:]) if live else []
    return "normalise", tuple(dims), [along(a.out, dims), *rest]


# ---------------------------------------------------------------- reductions

_DIM_AT = dict.fromkeys(("norm", "vector_norm", "quantile", "nanquantile", "kthvalue", "matrix_norm"), 1)
_LAST = {"mode": -1, "kthvalue": -1, "matrix_norm": (-2, -1), "det": (-2, -1), "logdet": (-2, -1)}


@family(
    "sum", "mean", "amax", "amin", "any", "all", "prod", "std", "var", "norm", "logsumexp", "argmax", "argmin",
    "median", "nansum", "nanmean", "nanmedian", "count_nonzero", "std_mean", "var_mean", "aminmax", "vector_norm",
    "quantile", "nanquantile", "max", "min", *_LAST,
)  # fmt: skip
def _reduce(a: Asked) -> Found:
    if a.name in ("max", "min") and len(a.shapes) > 1:
        return _pointwise(a)
    gone = reduced(a)
    rank = len(a.shapes[0])
    if "quantile" in a.name and len(a.out) not in (rank, rank - len(gone)):
        return "reduce", gone, [None]
    kept = len(a.out) == rank
    return "reduce", gone, [by_axes(without(rank, gone, kept))]


def reduced(a: Asked) -> tuple[int, ...]:
    """Return the axes of the input that a reduction takes away, in order."""
    rank = len(a.shapes[0])
    at = _DIM_AT.get(a.name, 0)
    if "quantile" in a.name and len(a.shapes) > 1:
        at = 0
    dim = a.arg(at, "dim", "axis", default=_LAST.get(a.name))
    if at == 0 and len(a.plain) > 1 and all(type(x) is int for x in a.plain):
        dim = tuple(a.plain)
    if a.name in ("det", "logdet"):
        dim = (-2, -1)
    dims = [d for d in (dim if isinstance(dim, tuple) else (dim,)) if type(d) is int]
    return tuple(sorted({front(d, rank) for d in dims})) if dims else tuple(range(rank))


@family("topk", "sort", "argsort", "msort")
def _sorted(a: Asked) -> Found:
    rank = len(a.out)
    d = a.dim(1 if a.name == "topk" else 0, rank, -1) if a.name != "msort" else 0
    return "other", (d,), [along(a.out, [d])]


@family("cosine_similarity", "pairwise_distance")
def _distance(a: Asked) -> Found:
    rank = max(len(s) for s in a.shapes[:2])
    d = a.dim(0, rank, 1) if a.name == "cosine_similarity" else rank - 1
    return _two_sides(a, d, "reduce")


@family("cross_entropy", "nll_loss")
def _cross_entropy(a: Asked) -> Found:
    logits, target = a.shapes[:2]
    classes = 1 if len(logits) > 1 else 0
    if not a.out:
        everything = [along(s, range(len(s))) for s in (logits, target)]
        return "reduce", tuple(range(len(logits))), everything
    rows = by_axes(without(len(logits), [classes], kept=False))
    return "reduce", (classes,), [rows, rows if len(target) == len(logits) else FLAT]


@family(
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "kl_div", "poisson_nll_loss", "soft_margin_loss", "dist",
)  # fmt: skip
def _pair_loss(a: Asked) -> Found:
    pair = a.shapes[:2]
    if a.out or not any(pair):
        return "pointwise", (), [aligned(s, a.out) for s in pair]
    return "reduce", tuple(range(len(pair[0]))), [along(s, range(len(s))) for s in pair]


@family(
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "cummin",
    "flip",
    "roll",
    "diff",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
)
def _unsaid(a: Asked) -> Found:
    """All entries up to one, the mirrored one, the one before: none has a form among the reads."""
    along_one = a.name.startswith(("cum", "logcum"))
    return "other", (a.dim(0, len(a.out)),) if along_one else (), [None] * len(a.shapes)


# ---------------------------------------------------------------- choices by number


@family("gather", "take_along_dim", "take", "index_select")
def _gather(a: Asked) -> Found:
    d = a.arg(0, "dim")
    axes = (front(d, len(a.shapes[0])),) if type(d) is int else ()
    index = by_axes(axes) if a.name == "index_select" else aligned(a.shapes[1], a.out)
    return "gather", axes, [None, index]


@family("one_hot")
def _one_hot(a: Asked) -> Found:
    return "gather", (), [by_axes(range(len(a.shapes[0])))]


@family("meshgrid")
def _meshgrid(a: Asked) -> Found:
    axes = list(range(len(a.shapes)))
    if a.named.get("indexing") == "xy":
        axes[:2] = axes[1::-1]
    return "make", (), [by_axes([axes[i]]) if i == a.output else None for i in range(len(axes))]


@family(
    "arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "tensor", "as_tensor", "eye",
    "linspace", "logspace", "range", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "from_numpy",
    "scalar_tensor", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like",
    "zero", "normal", "uniform", "bernoulli", "exponential", "random", "tril_indices", "triu_indices",
)  # fmt: skip
def _made(a: Asked) -> Found:
    """The other tensor, if there is one, gives its shape and type."""
    copies = a.name in ("tensor", "as_tensor", "bernoulli") and a.shapes == [a.out]
    return "make", (), [FLAT if copies and not a.op.name.endswith("_") else None] * len(a.shapes)


# ---------------------------------------------------------------- einops


@family("rearrange", "reduce")
def _pattern(a: Asked) -> Found:
    left, out = pattern_of(a)
    kind: Kind = "reduce" if a.name == "reduce" else "regroup"
    flat = [[n for group in side for n in group] for side in (left, out)]
    if flat[0] == flat[1]:
        return kind, (), [FLAT]
    gone = {n for n in flat[0] if n not in flat[1]}
    entries: list[Entry] = []
    for group in left:
        if group and gone.issuperset(group):
            entries.append("all")
        else:
            entries.append(out.index(group) if group else 0)
    if gone:
        return "reduce", tuple(i for i, e in enumerate(entries) if e == "all"), [by_axes(entries)]
    moved = tuple(i for i, e in enumerate(entries) if e != i)
    return ("move" if a.name == "rearrange" else "other"), moved, [by_axes(entries)]


def pattern_of(a: Asked) -> tuple[list[list[str]], list[list[str]]]:
    """Return both sides of an einops pattern, one list of names for each axis.

    Raises:
        ValueError: there is no pattern that fits the shapes.
    """
    pattern = next((x for x in a.plain if isinstance(x, str) and "->" in x), "")
    left, right = pattern.split("->")
    return _groups(left, len(a.shapes[0])), _groups(right, len(a.out))


def _groups(side: str, rank: int) -> list[list[str]]:
    groups: list[list[str]] = []
    inside: list[str] | None = None
    for word in side.replace("(", " ( ").replace(")", " ) ").replace("...", " ... ").split():
        if word == "(":
            groups.append(inside := [])
        elif word == ")":
            inside = None
        elif inside is not None:
            inside += [word] if word != "1" else []
        else:
            groups.append([word] if word != "1" else [])
    at = groups.index(["..."]) if ["..."] in groups else None
    if at is not None:
        hidden = rank - len(groups) + 1
        groups[at : at + 1] = [[f"...{hidden - i}"] for i in range(hidden)]
    if len(groups) != rank:
        raise ValueError(side)
    return groups
