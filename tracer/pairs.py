"""What differs between the steps of two runs: each step beside the one that answers to it, as plain data.

Which step answers to which is found by `alignment`; `diff` shows the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isclose
from typing import Any, Literal

from .alignment import FAMILY, Match, align, targets
from .records import Op, TensorInfo
from .render.layout import block_of, memory_word
from .speech import N_

__all__ = ["WHAT", "Pair", "labels", "pair_up"]

Kind = Literal["equal", "changed", "added", "gone"]
WHAT = {
    "operation": N_("operation"),
    "results": N_("number of results"),
    "names": N_("names"),
    "sizes": N_("sizes"),
    "dtype": N_("type"),
    "memory": N_("memory"),
    "arguments": N_("arguments"),
    "inputs": N_("inputs"),
    "parameters": N_("parameters"),
    "error": N_("error"),
}
"""What can differ between two steps that answer to each other, and its word."""

_REWORDED = frozenset(FAMILY[name] for name in ("view", "transpose", "matmul", "chunk", "getitem"))
"""Families whose members do the same where they give the same names."""
_NO_CHANGE = frozenset(("contiguous", "clone", "detach", "alias"))
_EITHER_WAY = frozenset(("add", "mul", "eq", "ne", "maximum", "minimum", "logical_and", "logical_or"))
_OVER_AXES = frozenset(  # whose whole numbers are axes
    "softmax log_softmax softmin logsumexp sum mean prod max min amax amin argmax argmin var std norm all any "
    "cumsum cat stack unbind sort flip glu".split()
)

_MOST_ROUNDS = 50
"""Of looking for steps in another order: a round reaches one step further along what depends on them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A step of one trace beside the step of the other that answers to it.

    `kind`: `"changed"` (both are there and differ in `what`, keys of `WHAT`), `"gone"` (only `mine`), `"added"` (only
    `theirs`), or `"equal"`. Where a step is gone or added, `held` is the tensor that the other side goes on with in
    its place; None where that can't be told.
    `minor`: both sides go on with the same names and numbers: only a symbol has another size, or the step is said in
    another word (`reshape` for `view`), or it is a copy more.
    """

    kind: Kind
    mine: Op | None
    theirs: Op | None
    what: tuple[str, ...] = ()
    held: TensorInfo | None = None
    minor: bool = False

    @property
    def name(self) -> str:
        """The operation's name; `mul -> div` where there are two."""
        return " -> ".join(dict.fromkeys(op.name for op in (self.mine, self.theirs) if op))

    @property
    def labels(self) -> tuple[str, str]:
        """What each side has here by name, `("[B, T, H, D]", "[B, H, T, D]")`; "" where that can't be told."""
        held = self.held.label if self.held else ""
        return (labels(self.mine) if self.mine else held), (labels(self.theirs) if self.theirs else held)


def labels(op: Op) -> str:
    """Return the labels of an operation's results, one for all where they are alike."""
    found = [out.label for out in op.outputs]
    return f"{len(found)} x {found[0]}" if len(found) > 1 and len(set(found)) == 1 else ", ".join(found)


def pair_up(mine: Sequence[Op], theirs: Sequence[Op], failed: tuple[bool, bool] = (False, False)) -> tuple[Pair, ...]:
    """Return all steps of two runs in order, each beside its counterpart, and what differs between them.

    `failed` tells whether the last operation of either raised. Steps that do the same to the same tensors in another
    order are equal.
    """
    matches = align(mine, theirs)
    flow = _Flow(mine, theirs)
    for i, j in matches:
        if i is not None and j is not None:
            flow.follow(mine[i], theirs[j])
    for _ in range(_MOST_ROUNDS):
        before, matches = matches, _regardless_of_order(flow, mine, theirs, matches)
        if matches == before:
            break
    matches = _by_block(mine, theirs, matches)
    stopped = [ops[-1] if raised else None for ops, raised in zip((mine, theirs), failed, strict=True)]
    pairs = [_pair(flow, None if i is None else mine[i], None if j is None else theirs[j], stopped) for i, j in matches]
    return tuple(_made_up_for(pairs))


# ---------------------------------------------------------------- which tensor answers to which


class _Flow:
    """Which tensor of one run answers to which of the other.

    Results of steps that answer to each other do; so do tensors from outside under one name, else those that steps
    which answer to each other take in the same place.
    """

    def __init__(self, mine: Sequence[Op], theirs: Sequence[Op]) -> None:
        self.there: dict[int, int] = {}
        self.here: dict[int, int] = {}
        self.infos: tuple[dict[int, TensorInfo], dict[int, TensorInfo]] = ({}, {})
        self.made: list[set[int]] = []
        outside: list[dict[str, int]] = []
        for ops, infos in zip((mine, theirs), self.infos, strict=True):
            made: set[int] = set()
            found: dict[str, int] = {}
            for op in ops:
                for info in op.inputs:
                    infos.setdefault(info.id, info)
                    if info.variable and info.id not in made:
                        found.setdefault(info.variable, info.id)
                made.update(out.id for out in op.outputs if out.memory != "in-place")
                infos.update((out.id, out) for out in op.outputs)
            self.made.append(made)
            outside.append(found)
        for name in outside[0].keys() & outside[1].keys():
            self._tie(outside[0][name], outside[1][name])

    def _tie(self, mine: int, theirs: int) -> None:
        self.here.pop(self.there.pop(mine, -1), None)
        self.there.pop(self.here.pop(theirs, -1), None)
        self.there[mine], self.here[theirs] = theirs, mine

    def follow(self, mine: Op, theirs: Op) -> None:
        """Tie the results of two steps that answer to each other, and what they take from outside."""
        for a, b in zip(mine.inputs, theirs.inputs, strict=False):
            if not (a.id in self.made[0] or b.id in self.made[1] or a.id in self.there or b.id in self.here):
                self._tie(a.id, b.id)
        for a, b in zip(mine.outputs, theirs.outputs, strict=False):
            self._tie(a.id, b.id)

    def more_parameters(self, mine: Op, theirs: Op) -> bool:
        """Tell whether one of two steps of a name takes a parameter more: a bias."""
        shared = min(len(mine.inputs), len(theirs.inputs))
        more = {i.id for i in (*mine.inputs[shared:], *theirs.inputs[shared:])}
        return (
            bool(more)
            and mine.name == theirs.name
            and not more & (self.made[0] if mine.inputs[shared:] else self.made[1])
        )

    def other_inputs(self, mine: Op, theirs: Op) -> bool:
        """Tell whether two steps take tensors that are known not to answer to each other."""
        if len(mine.inputs) != len(theirs.inputs) and not self.more_parameters(mine, theirs):
            return True
        apart = [(a.id, b.id) for a, b in zip(mine.inputs, theirs.inputs, strict=False) if self.there.get(a.id) != b.id]
        if mine.name in _EITHER_WAY and {self.there.get(a) for a, _ in apart} == {b for _, b in apart}:
            return False
        return any(a in self.there and b in self.here for a, b in apart)


def _regardless_of_order(flow: _Flow, mine: Sequence[Op], theirs: Sequence[Op], matches: list[Match]) -> list[Match]:
    """Pair steps that do the same to the same tensors, though they stand in another order.

    Steps left alone look for a partner, and so do those whose partner is known to take other tensors; these keep it
    where there is no better one.
    """
    doubtful = {i: j for i, j in matches if i is not None and j is not None and flow.other_inputs(mine[i], theirs[j])}
    alone = [i for i, j in matches if i is not None and (j is None or i in doubtful)]
    free = [j for i, j in matches if j is not None and (i is None or i in doubtful)]
    ends = targets(mine), targets(theirs)
    found: dict[int, int] = {}
    while alone and free:
        waiting = {key: j for j in reversed(free) if (key := _deed(flow, theirs[j], ends[1][j], there=True))}
        met: dict[int, int] = {}
        for i in alone:
            deed = _deed(flow, mine[i], ends[0][i], there=False)
            if deed in waiting:
                met[i] = waiting.pop(deed)
                flow.follow(mine[i], theirs[met[i]])
        if not met:
            break
        found |= met
        alone = [i for i in alone if i not in met]
        free = [j for j in free if j not in found.values()]
    taken = set(found.values())
    kept = {i: j for i, j in doubtful.items() if i not in found and j not in taken}
    new: list[Match] = []
    for a, b in matches:
        if a is None:
            new += [] if b in taken else [(None, b)]
            continue
        new.append((a, found[a] if a in found else None if a in doubtful and a not in kept else b))
        if a in doubtful and new[-1][1] != b and b not in taken:
            new.append((None, b))
    return new


def _deed(flow: _Flow, op: Op, end: tuple[str, ...], there: bool) -> tuple[object, ...] | None:
    """Return what a step does, in terms of the other run's tensors; None where it writes over or draws numbers."""
    if op.memory == "in-place" or not op.inputs or op.name == "dropout":
        return None
    made = flow.made[there]
    ids = tuple(i.id if there and i.id in flow.here else flow.there.get(i.id) if not there else None for i in op.inputs)
    if any(known is None and info.id in made for known, info in zip(ids, op.inputs, strict=True)):
        return None
    reworded = FAMILY.get(op.name) in _REWORDED  # what these do is told by what they give
    name, arguments = (FAMILY[op.name][0], ()) if reworded else (op.name, _arguments(op, numbers=True))
    return name, ids, end if None in ids else (), labels(op), tuple(i.label for i in op.inputs), arguments


def _by_block(mine: Sequence[Op], theirs: Sequence[Op], matches: list[Match]) -> list[Match]:
    """Let steps that are left alone stand with the block that they belong to, before those of the next one."""

    def block(match: Match) -> str:
        i, j = match
        return block_of(mine[i].module if i is not None else theirs[j].module if j is not None else "")

    found: list[Match] = []
    for alone, run in groupby(matches, key=lambda match: None in match):
        gap = list(run)
        if alone and found:
            here = block(found[-1])
            gap.sort(key=lambda match: block(match) != here)
        found += gap
    return found


# ---------------------------------------------------------------- what differs


def _pair(flow: _Flow, mine: Op | None, theirs: Op | None, stopped: Sequence[Op | None]) -> Pair:
    if mine is None or theirs is None:
        op, infos, other = (theirs, flow.infos[0], flow.here) if mine is None else (mine, flow.infos[1], flow.there)
        assert op is not None
        held = next((infos[other[i.id]] for i in op.inputs[:1] if i.id in other), None)
        return Pair("added" if mine is None else "gone", mine, theirs, (), held, op not in stopped and _idle(op))
    what = tuple(_what(flow, mine, theirs))
    if (mine is stopped[0]) != (theirs is stopped[1]):
        return Pair("changed", mine, theirs, ("error", *(w for w in what if w not in ("results", "names", "memory"))))
    return Pair("changed" if what else "equal", mine, theirs, what, None, _minor(mine, theirs, what))


def _made_up_for(pairs: Sequence[Pair]) -> list[Pair]:
    """Mark as minor a view that one side needs because it says what follows in another word: `q @ k.mT`, `einsum`."""
    takers: dict[tuple[bool, int], list[Pair]] = {}
    for pair in pairs:
        for side, op in enumerate((pair.mine, pair.theirs)):
            for info in op.inputs if op else ():
                takers.setdefault((bool(side), info.id), []).append(pair)
    found = []
    for pair in pairs:
        op = pair.theirs if pair.kind == "added" else pair.mine
        if pair.kind in ("added", "gone") and op and op.memory == "view":
            after = [taker for out in op.outputs for taker in takers.get((pair.kind == "added", out.id), ())]
            if after and all(taker.minor and "operation" in taker.what for taker in after):
                pair = replace(pair, minor=True)
        found.append(pair)
    return found


def _idle(op: Op) -> bool:
    """Tell whether a step hands on what it got."""
    return op.memory == "same" or (op.name in _NO_CHANGE and labels(op) == op.inputs[0].label)


def _what(flow: _Flow, mine: Op, theirs: Op) -> list[str]:
    """Return in what two steps differ, the gravest first."""
    found: list[str] = []
    if mine.name != theirs.name:
        found.append("operation")
    if len(mine.outputs) != len(theirs.outputs):
        found.append("results")
    both = list(zip(mine.outputs, theirs.outputs, strict=False))
    renamed = [_renamed(a, b) for a, b in both]
    if any(renamed):
        found.append("names")
    if any(a.shape != b.shape and not new for (a, b), new in zip(both, renamed, strict=True)):
        found.append("sizes")
    if any(a.dtype != b.dtype for a, b in both):
        found.append("dtype")
    if memory_word(mine) != memory_word(theirs):
        found.append("memory")
    if _other_arguments(mine, theirs):
        found.append("arguments")
    if flow.other_inputs(mine, theirs):
        found.append("inputs")
    if flow.more_parameters(mine, theirs):
        found.append("parameters")
    return found


def _renamed(a: TensorInfo, b: TensorInfo) -> bool:
    """Tell whether names differ; an unknown one, `?`, may be any."""
    if len(a.axes) != len(b.axes):
        return True
    return any(x != y and "?" not in (x, y) for x, y in zip(a.axes, b.axes, strict=True))


def _minor(mine: Op, theirs: Op, what: Sequence[str]) -> bool:
    """Tell whether both sides go on with the same names and numbers."""
    grave = set(what)
    if "sizes" in grave:
        changed = [
            pair for pair in zip(_arguments(mine, False), _arguments(theirs, False), strict=False) if len(set(pair)) > 1
        ]
        if all(isinstance(value, float) for pair in changed for value in pair):
            grave -= {"arguments"}  # sqrt(D) follows D
        unknown = any("?" in o.axes for o in mine.outputs + theirs.outputs)
        grave -= set() if unknown else {"sizes"}
    if "operation" in grave and mine.name in FAMILY and FAMILY[mine.name] in _REWORDED:
        if theirs.name in FAMILY[mine.name]:
            grave -= {"operation", "arguments", "memory"}
    if {mine.name, theirs.name} == {"mul", "div"} and _inverse(mine, theirs):
        grave -= {"operation"}
    return not grave - {"memory", "parameters"}


def _inverse(mine: Op, theirs: Op) -> bool:
    """Tell whether one multiplies by what the other divides by."""
    try:
        ((a,), (b,)) = ([float(arg) for arg in op.args] for op in (mine, theirs))
    except (TypeError, ValueError):
        return False
    return len(mine.inputs) == len(theirs.inputs) == 1 and isclose(a * b, 1, rel_tol=1e-6)


# ---------------------------------------------------------------- arguments


def _other_arguments(mine: Op, theirs: Op) -> bool:
    """Tell whether the arguments differ in what they do.

    Where sizes differ, whole numbers in arguments are sizes too; and a view is known by what it gives.
    """
    if mine.name != theirs.name or not mine.outputs or not theirs.outputs:
        return False
    a, b = mine.outputs[0], theirs.outputs[0]
    if mine.memory in ("view", "same") and (a.axes, a.shape, a.stride, a.offset) == (
        b.axes,
        b.shape,
        b.stride,
        b.offset,
    ):
        return False
    shapes = [[i.shape for i in op.inputs + op.outputs] for op in (mine, theirs)]
    numbers = shapes[0] == shapes[1]
    x, y = (_arguments(op, numbers) for op in (mine, theirs))
    return len(x) != len(y) or not all(map(_same_value, x, y))


def _arguments(op: Op, numbers: bool) -> tuple[Any, ...]:
    """Return the values of the arguments that say something, by whatever way they are written.

    `dim=-1`, `-1` and the number of the last axis are one; None and False are what is left out. Without `numbers`
    only those that are no sizes.
    """
    rank = len(op.inputs[0].shape) if op.inputs else 0
    found: list[tuple[str, Any]] = []
    for arg in op.args:
        keyword, _, value = arg.partition("=") if isinstance(arg, str) else ("", "", arg)
        if isinstance(arg, str) and not value:
            keyword, value = "", arg
        if str(value) in ("None", "False"):
            continue
        whole = _whole(value)
        over_axes = keyword in ("dim", "axis") or op.name in _OVER_AXES
        if whole is not None and over_axes:
            whole = whole + rank if -rank <= whole < 0 else whole
        if numbers or over_axes or (whole is None and not isinstance(value, tuple)):
            found.append((keyword, whole if whole is not None else value if isinstance(value, float) else str(value)))
    return tuple(value for _, value in sorted(found, key=lambda item: item[0]))  # those without a keyword stay in order


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _same_value(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or isclose(float(a), float(b), rel_tol=1e-6)
    except (TypeError, ValueError, OverflowError):
        return False
