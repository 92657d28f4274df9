"""Which operation of one run answers to which of another: the best alignment of two sequences, in order.

Knows nothing of what differs between two operations that answer to each other; that is the business of `diff`.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .records import Op
from .render.layout import lines

__all__ = ["FAMILY", "Match", "align", "targets"]

Match = tuple[int | None, int | None]
"""Places in the two sequences; None where one of them has nothing."""

_FAMILIES = (
    ("view", "reshape", "flatten", "unflatten", "rearrange", "view_as", "reshape_as"),
    ("transpose", "permute", "swapaxes", "swapdims", "movedim", "t", "T", "mT"),
    ("matmul", "bmm", "mm", "einsum", "linear", "addmm", "baddbmm", "mv", "dot"),
    ("chunk", "split", "tensor_split", "unbind"),
    ("masked_fill", "where"),
    ("getitem", "narrow", "select", "index_select"),
    ("squeeze", "unsqueeze"),
    ("expand", "repeat", "repeat_interleave", "expand_as"),
    ("mul", "div"),
    ("add", "sub"),
)
FAMILY = {name: family for family in _FAMILIES for name in family}
"""Name of an operation -> the names that say nearly the same."""

_MOST_CELLS = 12_000_000
"""Pairs that one table may weigh, about 60 MB; longer runs are cut where they surely agree."""
_NUMBERS = re.compile(r"(?<![^.])\d+(?![^.])")
"""The numbered parts of a path: the 3 of `h.3.ln_1`."""


def align(mine: Sequence[Op], theirs: Sequence[Op]) -> list[Match]:
    """Return the operations of both in order, each beside the one that answers to it, or alone."""
    a, b = _keys(mine), _keys(theirs)
    stop = min(len(a), len(b))
    head = next((i for i in range(stop) if a[i] != b[i]), stop)
    tail = next((i for i in range(stop - head) if a[-1 - i] != b[-1 - i]), stop - head)
    found: list[Match] = [(i, i) for i in range(head)]
    signs = _Signs(mine, theirs) if stop < len(a) or stop < len(b) or head < stop else None
    for i, i_end, j, j_end in _parts(a, b, head, tail):
        found += _best(signs, i, i_end, j, j_end) if signs else []
    return found + [(len(a) - k, len(b) - k) for k in range(tail, 0, -1)]


# ---------------------------------------------------------------- what is surely the same step


def _keys(ops: Sequence[Op]) -> list[Hashable]:
    """Return module, line and name of each: the same code in the same place."""
    return [
        (op.module, op.source or tuple(o.label for o in op.outputs), op.name, op.variable, op.parent is None)
        for op in ops
    ]


def _parts(a: Sequence[Hashable], b: Sequence[Hashable], head: int, tail: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut what lies between equal ends into pieces small enough: at steps that surely agree, else in proportion."""
    waiting = [(head, len(a) - tail, head, len(b) - tail)]
    while waiting:
        i, i_end, j, j_end = waiting.pop()
        if (i_end - i) * (j_end - j) <= _MOST_CELLS:
            yield i, i_end, j, j_end
            continue
        pairs = _in_order(a, b, (i, i_end, j, j_end))
        half = ((i + i_end) // 2, (j + j_end) // 2)
        at = min(pairs, key=lambda pair: abs(pair[0] - half[0]) + abs(pair[1] - half[1]), default=half)
        if at in ((i, j), (i_end, j_end)):
            at = half
        waiting += [(at[0], i_end, at[1], j_end), (i, at[0], j, at[1])]


def _in_order(a: Sequence[Hashable], b: Sequence[Hashable], part: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Return the longest run of pairs in order, of those that are the n-th step of their key in both."""
    i, i_end, j, j_end = part
    seen: Counter[Hashable] = Counter()
    place: dict[Hashable, int] = {}
    for n in range(j, j_end):
        place[b[n], seen[b[n]]] = n
        seen[b[n]] += 1
    seen.clear()
    ends: list[int] = []  # the smallest place in b that a run of each length can end with
    last: list[int] = []  # and the pair that does so
    pairs: list[tuple[int, int, int]] = []  # the pair, and the one before it in its run
    for n in range(i, i_end):
        found = place.get((a[n], seen[a[n]]))
        seen[a[n]] += 1
        if found is None:
            continue
        at = bisect_left(ends, found)
        pairs.append((n, found, last[at - 1] if at else -1))
        ends[at : at + 1], last[at : at + 1] = [found], [len(pairs) - 1]
    run, at = [], last[-1] if last else -1
    while at >= 0:
        n, found, at = pairs[at]
        run.append((n, found))
    return run[::-1]


# ---------------------------------------------------------------- what is likely the same step

_Column = NDArray[np.int32]


class _Signs:
    """What tells two operations apart, as numbers: equal signs have equal numbers in both runs."""

    def __init__(self, mine: Sequence[Op], theirs: Sequence[Op]) -> None:
        ends = targets(mine), targets(theirs)
        own: list[Callable[[Op], Hashable]] = [
            lambda op: op.name,
            lambda op: FAMILY.get(op.name, op.name),
            lambda op: op.module,
            lambda op: _NUMBERS.sub("#", op.module),
            lambda op: tuple(_NUMBERS.findall(op.module)),
            lambda op: op.module.rpartition(".")[2],
            lambda op: op.source or op.index,  # an unknown line equals none
            lambda op: tuple(o.label for o in op.outputs),
            lambda op: tuple(i.label for i in op.inputs),
            lambda op: str(op.args),
            lambda op: op.parent is None,
        ]
        self.a, self.b = [], []
        for sign in own:
            a, b = _numbered([sign(op) for op in mine], [sign(op) for op in theirs])
            self.a.append(a)
            self.b.append(b)
        self.target_a, self.target_b = _numbered(*ends)
        self.shared_a, self.shared_b = _shared(self.a[2], self.b[2])
        self.known_a, self.known_b = _shared(self.target_a, self.target_b)
        self.known_a &= np.array([bool(t) for t in ends[0]], dtype=bool)
        self.known_b &= np.array([bool(t) for t in ends[1]], dtype=bool)

    def weigh(self, i: int, j: int, j_end: int) -> NDArray[np.int8]:
        """Return how well operation `i` of mine answers to each of theirs from `j` on; above 0, better than not at all.

        The name counts most. A module or a variable that both runs know speaks against any other: `attn.wq` of one is
        not `attn.wk` of the other, however alike they are.
        """
        name, family, module, pattern, numbers, leaf, source, out, into, args, top = (
            column[j:j_end] == mine[i] for mine, column in zip(self.a, self.b, strict=True)
        )
        target = self.target_b[j:j_end] == self.target_a[i]
        both_modules = self.shared_b[j:j_end] & self.shared_a[i]
        both_targets = self.known_b[j:j_end] & self.known_a[i]
        score = np.where(name, 4, np.where(family, 2, -5))
        near = np.where(pattern, -1, -10)
        score += np.where(module, 4, np.where(both_modules, near, numbers.astype(int) + leaf))
        score += np.where(both_targets, np.where(target, 2, -5), 0)
        score += 2 * source + 3 * out + into + 2 * args - 3
        return np.where(top, score, -99).astype(np.int8)


def _numbered(mine: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[_Column, _Column]:
    numbers: dict[Hashable, int] = {}
    a, b = ([numbers.setdefault(sign, len(numbers)) for sign in signs] for signs in (mine, theirs))
    return np.array(a, dtype=np.int32), np.array(b, dtype=np.int32)


def _shared(a: _Column, b: _Column) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return np.isin(a, b), np.isin(b, a)


def targets(ops: Sequence[Op]) -> list[tuple[str, ...]]:
    """Return for each operation the variables that its statement ends in: `q` for both steps of `q = x.view().mT`."""
    return [
        next((v for last in reversed(line.ops) if (v := tuple(o.variable for o in last.outputs if o.variable))), ())
        for line in lines(ops)
        for _ in line.ops
    ]


def _best(signs: _Signs, i: int, i_end: int, j: int, j_end: int) -> list[Match]:
    """Return the alignment of two stretches with the greatest sum of weights (Needleman and Wunsch 1970, free gaps).

    Of equally good ones the one that pairs earlier steps. A row of the table is one running maximum.
    """
    n, m = i_end - i, j_end - j
    if not n or not m:
        return [*((x, None) for x in range(i, i_end)), *((None, y) for y in range(j, j_end))]
    weight = np.stack([signs.weigh(x, j, j_end) for x in range(i, i_end)])
    best = np.zeros((n + 1, m + 1), dtype=np.int32)  # of what is left from here
    for x in range(n - 1, -1, -1):
        paired = np.maximum(best[x + 1, :-1], best[x + 1, 1:] + weight[x])
        best[x, :-1] = np.maximum.accumulate(paired[::-1])[::-1]
    found: list[Match] = []
    x = y = 0
    while x < n and y < m:
        if weight[x, y] > 0 and best[x, y] == best[x + 1, y + 1] + weight[x, y]:
            found.append((i + x, j + y))
            x, y = x + 1, y + 1
        elif best[x, y] == best[x + 1, y]:
            found.append((i + x, None))
            x += 1
        else:
            found.append((None, j + y))
            y += 1
    return found + [(i + k, None) for k in range(x, n)] + [(None, j + k) for k in range(y, m)]
