"""Which step of one run answers to which step of another, and what differs: plain data, no text.

Steps are matched by module, line and operation first; what lies between such pairs (other code, other files, moved
lines) by operation, named shapes, variable and module, so that the whole order fits best. What is left on both sides
and is the same step in another place has moved. Sizes never decide: another H finds the same steps.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from math import isclose
from typing import Any, Literal

from .records import Op, TensorInfo
from .speech import say, say_count

__all__ = ["Change", "Difference", "Kind", "compare", "family"]

Kind = Literal["added", "gone", "changed", "moved"]
Difference = Literal["operation", "names", "sizes", "dtype", "memory", "arguments", "operands", "error"]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One step in which two runs differ.

    `kind`: `"added"` (only theirs has it), `"gone"` (only mine), `"changed"`, or `"moved"` (the same step at another
    place in the order; `differs` may name more). `mine` and `theirs` are the two operations, None where a run lacks it.
    `tensors` are the tensors to hold side by side: what the step made in either run; where a run lacks the step, the
    tensor that it goes on with instead (None where that is not known). `operands` names what either
    works on, where they differ in that. `for_twin`: a view that one run lacks, and needs not, since what works on it is
    said in another way there (`einsum` for `q @ k.mT`).
    """

    kind: Kind
    mine: Op | None
    theirs: Op | None
    differs: tuple[Difference, ...] = ()
    tensors: tuple[TensorInfo | None, TensorInfo | None] = (None, None)
    operands: tuple[str, str] = ("", "")
    for_twin: bool = False

    @property
    def slight(self) -> bool:
        """Whether the result is the same all the same: run earlier or later, copied, or made by a twin (`reshape`)."""
        if self.mine and self.theirs:
            twins = family(self.mine.name) == family(self.theirs.name)
            return twins and not set(self.differs) - {"operation", "memory"}
        return self.for_twin or any(op.name in _COPIES for op in (self.mine, self.theirs) if op)

    @property
    def module(self) -> str:
        """Path of the module of this step, in my run if it has the step."""
        op = self.mine or self.theirs
        return op.module if op else ""


_COPIES = {"contiguous", "clone", "detach", "to", "type", "bool", "float", "half", "double", "bfloat16", "long", "int"}
_FAMILIES = (
    ("view", "reshape", "unflatten", "flatten", "view_as", "reshape_as"),
    ("transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "mT", "T", "t"),
    ("matmul", "mm", "bmm", "mv", "einsum"),
    ("split", "chunk", "tensor_split", "unbind"),
    ("div", "mul", "true_divide"),
    ("masked_fill", "where"),
    ("expand", "repeat", "repeat_interleave", "expand_as"),
)
_FAMILY = {name: names[0] for names in _FAMILIES for name in names}


def family(name: str) -> str:
    """Return the first of the operations that do the same work under several names; in place or not is the same."""
    name = name if name.startswith("__") else name.rstrip("_")
    return _FAMILY.get(name, name)


def compare(mine: Sequence[Op], theirs: Sequence[Op]) -> tuple[Change, ...]:
    """Return all differences of two runs, in the order in which they are met."""
    a, b = _Run(mine), _Run(theirs)
    found = _compare(a, b)
    if not found or set(a.places) & set(b.places):
        return found
    return min(
        found, _compare(_Run(_by_data(a)), _Run(_by_data(b))), key=lambda c: (sum(not x.slight for x in c), len(c))
    )


def _compare(a: "_Run", b: "_Run") -> tuple[Change, ...]:
    pairs = _in_order(a, b)
    moved = _moved(a, b, pairs)
    swapped = _swapped(a, b, sorted(pairs), moved)
    partner = dict(pairs + moved + swapped)
    return tuple(_changes(a, b, partner, dict(moved)))


# ---------------------------------------------------------------- what a step is known by


class _Run:
    """The steps of one run with what they are matched by, worked out once."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.modules = {op.module for op in ops}
        self.families = [family(op.name) for op in ops]
        self.places = [(op.module, op.source and (op.source.place, op.source.code), op.name) for op in ops]
        self.ins = [tuple(info.axes for info in op.inputs) for op in ops]
        self.outs = [tuple(info.axes for info in op.outputs) for op in ops]
        self.sources = list(_sources(ops))
        self.outside = {
            info.variable: info
            for op, sources in zip(reversed(ops), reversed(self.sources), strict=True)
            for info, source in zip(op.inputs, sources, strict=True)
            if source is None and info.variable
        }
        """variable -> how a tensor that no step made was first met"""


def _sources(ops: Sequence[Op]) -> Iterator[tuple[Pair | None, ...]]:
    """Yield, for each step, which step and which of its outputs made each input; None for one from outside."""
    made: dict[int, Pair] = {}
    for i, op in enumerate(ops):
        yield tuple(made.get(info.id) for info in op.inputs)
        made.update({out.id: (i, n) for n, out in enumerate(op.outputs)})


def _by_data(run: _Run) -> list[Op]:
    """Return the steps so that each follows those it needs, first operand first, whenever they ran."""
    order: dict[int, None] = {}
    for end in reversed(range(len(run.ops))):  # the last result first: what it does not need follows it
        waiting = [(end, False)]
        while waiting:
            i, ready = waiting.pop()
            if ready:
                order[i] = None
            elif i not in order:
                waiting.append((i, True))
                waiting += [(source[0], False) for source in reversed(run.sources[i]) if source]
    return [run.ops[i] for i in order]


# ---------------------------------------------------------------- matching in order


_MOST_CELLS = 300_000
"""Longer stretches without a common line are matched by runs of equal steps in blocks of equal numbers: the best fit
would take seconds."""


def _in_order(a: _Run, b: _Run) -> list[Pair]:
    """Return the pairs that keep the order of both runs."""
    fixed = _equal_runs(a.places, b.places, range(len(a.ops)), range(len(b.ops)))
    pairs = list(fixed)
    for (i, j), (i_next, j_next) in pairwise([(-1, -1), *fixed, (len(a.ops), len(b.ops))]):
        pairs += _between(a, b, range(i + 1, i_next), range(j + 1, j_next))
    return sorted(pairs)


def _equal_runs(a: Sequence[Hashable], b: Sequence[Hashable], rows: range, columns: range) -> list[Pair]:
    """Pair equal keys, the longest runs first; the common ends are paired without a search."""
    pairs: list[Pair] = []
    top, left, bottom, right = rows.start, columns.start, rows.stop, columns.stop
    while top < bottom and left < right and a[top] == b[left]:
        pairs.append((top, left))
        top, left = top + 1, left + 1
    while top < bottom and left < right and a[bottom - 1] == b[right - 1]:
        bottom, right = bottom - 1, right - 1
        pairs.append((bottom, right))
    inner = SequenceMatcher(None, a[top:bottom], b[left:right], autojunk=False).get_matching_blocks()
    pairs += [(top + m.a + n, left + m.b + n) for m in inner for n in range(m.size)]
    return sorted(pairs)


def _between(a: _Run, b: _Run, rows: range, columns: range) -> list[Pair]:
    """Pair the steps of two stretches that have no line in common."""
    if not rows or not columns:
        return []
    if len(rows) * len(columns) <= _MOST_CELLS:
        return _best(rows, columns, lambda i, j: _likeness(a, b, i, j))
    blocks = [[re.sub(r"[^0-9]+", ".", op.module) for op in run.ops] for run in (a, b)]
    keys = [list(zip(n, run.families, run.outs, strict=True)) for n, run in zip(blocks, (a, b), strict=True)]
    return [(i, j) for i, j in _equal_runs(keys[0], keys[1], rows, columns) if _likeness(a, b, i, j)]


def _best(rows: range, columns: range, score: Callable[[int, int], int]) -> list[Pair]:
    """Return the pairs in order with the highest sum of scores (0: no pair); of equal ones, the earliest."""
    width = len(columns)
    table = [[0] * (width + 1) for _ in range(len(rows) + 1)]
    scores = [[score(i, j) for j in columns] for i in rows]
    for i in reversed(range(len(rows))):
        row, below, line = table[i], table[i + 1], scores[i]
        for j in reversed(range(width)):
            paired = below[j + 1] + line[j] if line[j] else 0
            row[j] = max(paired, below[j], row[j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(rows) and j < width:
        if scores[i][j] and table[i][j] == table[i + 1][j + 1] + scores[i][j]:
            pairs.append((rows[i], columns[j]))
            i, j = i + 1, j + 1
        elif table[i][j] == table[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(a: _Run, b: _Run, i: int, j: int) -> int:
    """Say how much two steps are one and the same; 0 where they are not.

    Another operation is another step. So is one of another module, where one run has both (`ln_2` of a block does not
    stand for its `ln_1`), unless one of the two lies in the other, or both are numbered members of one list.
    """
    mine, theirs = a.ops[i], b.ops[j]
    if a.families[i] != b.families[j] or (mine.parent is None) != (theirs.parent is None):
        return 0
    if bool(mine.outputs) != bool(theirs.outputs) and _ranks(a.ins[i]) != _ranks(b.ins[j]):
        return 0  # of a step that raised only the operands are known
    same_module = mine.module == theirs.module
    if not same_module and (mine.module in b.modules or theirs.module in a.modules):
        shorter, longer = sorted((mine.module, theirs.module), key=len)
        if shorter and not longer.startswith(f"{shorter}.") and not _same_list(shorter, longer):
            return 0
    return (
        4
        + 2 * (mine.name == theirs.name)
        + 3 * (a.outs[i] == b.outs[j])
        + 2 * (a.ins[i] == b.ins[j])
        + 3 * (bool(mine.args) and mine.args == theirs.args)
        + 2 * (mine.variable is not None and mine.variable == theirs.variable)
        + 2 * same_module
        + 2 * (a.places[i] == b.places[j])
    )


def _ranks(tensors: Sequence[tuple[str, ...]]) -> list[int]:
    return [len(axes) for axes in tensors]


def _same_list(a: str, b: str) -> bool:
    """Say whether two modules are members of one list, such as `net.1` and `net.2`: what is inserted moves numbers."""
    stems, numbers = zip(*(path.rpartition(".")[::2] for path in (a, b)), strict=True)
    return len(set(stems)) == 1 and all(number.isdigit() for number in numbers)


# ---------------------------------------------------------------- out of order


def _left(run: _Run, taken: set[int]) -> list[int]:
    return [i for i in range(len(run.ops)) if i not in taken]


def _moved(a: _Run, b: _Run, pairs: Sequence[Pair]) -> list[Pair]:
    """Pair what both runs have, each once, at different places in the order."""
    found: list[Pair] = []

    def known_by(run: _Run, i: int, closely: bool) -> Hashable:
        op = run.ops[i]
        return (op.module, run.families[i], run.outs[i], *((op.variable, run.ins[i]) if closely else ()))

    for closely in (True, False):
        rows = _left(a, {i for i, _ in [*pairs, *found]})
        columns = _left(b, {j for _, j in [*pairs, *found]})
        mine = [known_by(a, i, closely) for i in rows]
        theirs = [known_by(b, j, closely) for j in columns]
        once = {k for k, n in Counter(mine).items() if n == 1} & {k for k, n in Counter(theirs).items() if n == 1}
        at = {k: j for k, j in zip(theirs, columns, strict=True) if k in once}
        found += [(i, at[k]) for k, i in zip(mine, rows, strict=True) if k in once]
    return found


def _swapped(a: _Run, b: _Run, pairs: Sequence[Pair], moved: Sequence[Pair]) -> list[Pair]:
    """Pair steps that stand between the same two pairs and turn the same shapes into the same: another operation."""
    found: list[Pair] = []
    gone, come = {i for i, _ in moved}, {j for _, j in moved}
    for (i, j), (i_next, j_next) in pairwise([(-1, -1), *pairs, (len(a.ops), len(b.ops))]):
        columns = [n for n in range(j + 1, j_next) if n not in come]
        for row in (n for n in range(i + 1, i_next) if n not in gone):
            like = [
                n
                for n in columns
                if (a.ins[row], a.outs[row], a.ops[row].variable) == (b.ins[n], b.outs[n], b.ops[n].variable)
            ]
            if like:
                found.append((row, like[0]))
                columns = [n for n in columns if n > like[0]]
    return found


# ---------------------------------------------------------------- what differs


def _changes(a: _Run, b: _Run, partner: dict[int, int], moved: dict[int, int]) -> Iterator[Change]:
    """Yield every difference; what only they have stands before my next step that has a partner in order."""
    back = {j: i for i, j in partner.items()}
    rows, columns = _Facing(a, b, partner), _Facing(b, a, back)
    at = 0

    def added(stop: int) -> Iterator[Change]:
        for j in range(at, stop):
            if j not in back:
                theirs = b.ops[j]
                out = theirs.outputs[0] if theirs.outputs else None
                yield Change("added", None, theirs, (), (columns.of(j), out), for_twin=columns.for_twin(j))

    for i, mine in enumerate(a.ops):
        if i not in partner:
            out = mine.outputs[0] if mine.outputs else None
            yield Change("gone", mine, None, (), (out, rows.of(i)), for_twin=rows.for_twin(i))
            continue
        j = partner[i]
        if i not in moved:
            yield from added(j)
            at = max(at, j + 1)
        theirs = b.ops[j]
        operands = _other_operands(a, b, i, j, partner, back)
        outside = [
            pair
            for *pair, x, y in zip(mine.inputs, theirs.inputs, a.sources[i], b.sources[j], strict=False)
            if x is None or y is None
        ]  # what a step made was compared there
        differs = _differs(mine, theirs, outside, operands is not None)
        if differs or i in moved:
            kind: Kind = "moved" if i in moved else "changed"
            yield Change(kind, mine, theirs, differs, _side_by_side(mine, theirs), operands or ("", ""))
    yield from added(len(b.ops))


class _Facing:
    """For steps that the other run lacks: the other run's tensor that answers to what the step starts from."""

    def __init__(self, run: _Run, other: _Run, partner: dict[int, int]) -> None:
        self.run, self.other, self.partner = run, other, partner
        self.takers: dict[int, list[int]] = {}
        for i, sources in enumerate(run.sources):
            for source in sources:
                if source:
                    self.takers.setdefault(source[0], []).append(i)

    def for_twin(self, i: int) -> bool:
        """Say whether a step is a view for steps alone that the other run says in another way, to the same result."""
        takers = self.takers.get(i, [])
        return self.run.ops[i].memory == "view" and bool(takers) and all(map(self._reworded, takers))

    def _reworded(self, i: int) -> bool:
        if i not in self.partner:
            return False
        j = self.partner[i]
        return self.run.ops[i].name != self.other.ops[j].name and self.run.outs[i] == self.other.outs[j]

    def of(self, i: int) -> TensorInfo | None:
        """Return it where the other run has the step that made the first input, or knows the input by name."""
        if not self.run.sources[i]:
            return None
        source = self.run.sources[i][0]
        if source is None:
            return self.other.outside.get(self.run.ops[i].inputs[0].variable or "")
        outputs = self.other.ops[self.partner[source[0]]].outputs if source[0] in self.partner else ()
        return outputs[source[1]] if source[1] < len(outputs) else None


def _side_by_side(mine: Op, theirs: Op) -> tuple[TensorInfo | None, TensorInfo | None]:
    """Return the first outputs that differ in names or sizes, else the first of each."""
    if not mine.outputs or not theirs.outputs:
        return next(iter(mine.outputs), None), next(iter(theirs.outputs), None)
    both = list(zip(mine.outputs, theirs.outputs, strict=False))
    other = [pair for pair in both if _other_names(*pair) or pair[0].shape != pair[1].shape]
    return (other or both)[0]


def _other_names(a: TensorInfo, b: TensorInfo) -> bool:
    """Say whether names disagree; `?` disagrees with nothing."""
    return len(a.axes) != len(b.axes) or any(x != y and "?" not in (x, y) for x, y in zip(a.axes, b.axes, strict=True))


def _differs(mine: Op, theirs: Op, outside: Sequence[Sequence[TensorInfo]], operands: bool) -> tuple[Difference, ...]:
    """Return in what two steps that belong together differ; `outside` are their inputs that no step made.

    Code, variables and devices may be others.
    """
    tensors = [*zip(mine.outputs, theirs.outputs, strict=False), *outside]
    raised = bool(mine.outputs) != bool(theirs.outputs)
    sizes = any(x.shape != y.shape for x, y in tensors) or (len(mine.outputs) != len(theirs.outputs) and not raised)
    resized = any(x.shape != y.shape for x, y in zip(mine.inputs, theirs.inputs, strict=False))
    found: dict[Difference, bool] = {
        "error": raised,
        "operation": mine.name != theirs.name,
        "names": any(_other_names(x, y) for x, y in tensors),
        "sizes": sizes,
        "dtype": any(x.dtype != y.dtype for x, y in tensors),
        "memory": any(
            x.memory != y.memory and None not in (x.memory, y.memory)
            for x, y in zip(mine.outputs, theirs.outputs, strict=False)
        ),
        "arguments": _other_arguments(mine, theirs, sizes or resized),
        "operands": operands,
    }
    return tuple(what for what, so in found.items() if so)


_SHAPES = {"view", "reshape", "expand", "unflatten", "repeat"}
"""Operations whose numbers are the shape they return."""

_TAKES_SIZES = {
    *("split", "chunk", "narrow", "repeat_interleave", "getitem", "setitem", "layer_norm", "rms_norm", "one_hot"),
    *("arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "linspace", "eye", "interpolate"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "as_strided", "fold", "div", "mul"),
}
"""Operations whose bare numbers follow from sizes: where sizes differ, other numbers say nothing more."""


def _other_arguments(mine: Op, theirs: Op, sizes: bool) -> bool:
    """Say whether arguments differ: of one operation, or factors of a product and a division that do not agree."""
    if mine.name == theirs.name:
        return _arguments(mine, sizes) != _arguments(theirs, sizes)
    if family(mine.name) != "div" or family(theirs.name) != "div":
        return False
    if sizes:
        return False
    if "mul" not in (mine.name.rstrip("_"), theirs.name.rstrip("_")):
        return mine.args != theirs.args
    try:
        ((x,), (y,)) = ([float(arg) for arg in op.args] for op in (mine, theirs))
    except (TypeError, ValueError):
        return True
    return not isclose(x * y, 1, rel_tol=1e-6)


def _arguments(op: Op, sizes: bool) -> tuple[Any, ...]:
    """Return the arguments as compared: axes counted from the front, `device=` left out, as are sizes that differ."""
    if op.name in _SHAPES:
        return ()
    rank = len(op.inputs[0].shape) if op.inputs else 0
    keep = [arg for arg in op.args if not (isinstance(arg, str) and arg.startswith("device="))]
    if op.name in _TAKES_SIZES:
        return tuple(
            _from_front(arg, rank) if isinstance(arg, str) else arg for arg in keep if isinstance(arg, str) or not sizes
        )
    axes = tuple(_from_front(arg, rank) for arg in keep)
    return tuple(sorted(axes, key=repr)) if op.name in ("transpose", "swapaxes", "swapdims") else axes


def _from_front(arg: Any, rank: int) -> Any:
    if isinstance(arg, str) and arg.startswith("dim=") and arg[4:].lstrip("-").isdigit():
        arg = int(arg[4:])
    if isinstance(arg, tuple):
        return tuple(_from_front(part, rank) for part in arg)
    return arg + rank if isinstance(arg, int) and not isinstance(arg, bool) and -rank <= arg < 0 else arg


def _other_operands(
    a: _Run, b: _Run, i: int, j: int, there: dict[int, int], back: dict[int, int]
) -> tuple[str, str] | None:
    """Return the first operands of two steps that do not belong together, as each run calls them; None if all do.

    An operand made by a step that the other run lacks says nothing: that step is a difference already. Operands from
    outside differ where both runs know both by name.
    """
    for n, (x, y) in enumerate(zip(a.sources[i], b.sources[j], strict=False)):
        mine, theirs = a.ops[i].inputs[n].variable, b.ops[j].inputs[n].variable
        if x is not None and y is not None:
            other = x[0] in there and y[0] in back and (there[x[0]], x[1]) != y
        else:
            other = x is y and mine != theirs and mine in b.outside and theirs in a.outside
        if other:
            called = _called(a, i, n), _called(b, j, n)
            return (
                called if called[0] != called[1] else (_called(a, i, n, closely=True), _called(b, j, n, closely=True))
            )
    counts = len(a.ops[i].inputs), len(b.ops[j].inputs)
    if counts[0] == counts[1]:
        return None
    return say_count("{n} operand", "{n} operands", counts[0]), say_count("{n} operand", "{n} operands", counts[1])


def _called(run: _Run, i: int, n: int, closely: bool = False) -> str:
    """Return the variable of an input, or which operation made it; closely, both."""
    info, source = run.ops[i].inputs[n], run.sources[i][n]
    made = say("the result of {step}", step=run.ops[source[0]].name) if source else ""
    return ", ".join(w for w in (info.variable, made) if w) if closely else info.variable or made or info.label
