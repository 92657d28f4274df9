"""What the kinds of mistakes share: words for tensors and axes, and ways in which two shapes could fit."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from ..naming import DATA
from ..records import TensorInfo
from ..speech import N_, say

__all__ = [
    "alike",
    "axis_of",
    "clash",
    "code_of",
    "cut",
    "dtype_of",
    "fitting",
    "heads_back",
    "heads_behind",
    "is_whole",
    "join",
    "product",
    "rank",
    "reordered",
    "swap_last_two",
    "unmoved",
    "who",
]

# ---------------------------------------------------------------- words


def dtype_of(info: TensorInfo) -> str:
    """Return the type without torch's name: `float32`."""
    return info.dtype.removeprefix("torch.")


def is_whole(info: TensorInfo) -> bool:
    """Tell whether a tensor holds whole numbers."""
    return dtype_of(info).startswith(("int", "uint"))


def rank(info: TensorInfo) -> int:
    """Return the number of axes."""
    return len(info.shape)


def who(info: TensorInfo, otherwise: str) -> str:
    """Return the variable, or the words for a tensor that has none."""
    return info.variable or say(otherwise)


def code_of(info: TensorInfo) -> str:
    """Return the variable to write before a dot, or nothing: `k.transpose(-2, -1)`, `.transpose(-2, -1)`."""
    name = info.variable or ""
    return name if name.removeprefix("self.").isidentifier() else ""


def axis_of(info: TensorInfo, i: int) -> str:
    """Return an axis with its size, `D = 7`; only the size where it has no name."""
    name, size = info.axes[i], info.shape[i]
    return say("size {n}", n=size) if name in ("?", str(size)) else f"{name} = {size}"


def product(sizes: Sequence[int]) -> str:
    """Return `3 x 7`."""
    return " x ".join(map(str, sizes))


def swap_last_two(info: TensorInfo, otherwise: str) -> str:
    """Say how to transpose the last two axes."""
    return say("transpose the last two axes of {x}: {c}.transpose(-2, -1).", x=who(info, otherwise), c=code_of(info))


def unmoved(line: str, info: TensorInfo) -> TensorInfo:
    """Return an operand as it was before the line transposed it (`k` for the `k.T` of `q @ k.T`), or itself."""
    found = re.findall(r"([\w.]+)\.(T|mT|(?:transpose|permute)\(([-\d, ]+)\))(?!\w)", line)
    if info.variable or len(found) != 1 or "." in found[0][0].removeprefix("self."):
        return info
    name, call, numbers = found[0]
    order = list(range(rank(info)))
    given = [int(n) % len(order) for n in numbers.split(",")] if numbers else [-2, -1]
    if call == "T":
        order.reverse()
    elif call.startswith("permute"):
        order = [given.index(i) for i in order]
    else:
        order[given[0]], order[given[1]] = order[given[1]], order[given[0]]
    shape, axes = tuple(info.shape[i] for i in order), tuple(info.axes[i] for i in order)
    return replace(info, variable=name, shape=shape, axes=axes)


# ---------------------------------------------------------------- how two shapes could fit


def clash(a: TensorInfo, b: TensorInfo, skip: int = 0) -> int | None:
    """Return the first axis from the right (-1, -2, …) that does not broadcast, after the last `skip` axes."""
    for i in range(-1 - skip, -min(rank(a), rank(b)) - 1, -1):
        if a.shape[i] != b.shape[i] and 1 not in (a.shape[i], b.shape[i]):
            return i
    return None


def alike(a: TensorInfo, i: int, b: TensorInfo, j: int) -> bool:
    """Tell whether two axes can be the same one: of one size, and not known under two names."""
    return a.shape[i] == b.shape[j] and (a.axes[i] == b.axes[j] or "?" in (a.axes[i], b.axes[j]))


def fitting(small: TensorInfo, large: TensorInfo) -> str:
    """Return the index, transpose or permute that lines `small` up with `large`, or ""."""
    n, m = rank(small), rank(large)
    if n == m:
        return reordered(small, large)
    fits = [at for at in combinations(range(m), n) if all(_lines_up(small, i, large, j) for i, j in enumerate(at))]
    if not n or not fits:
        return ""
    at = max(fits)  # a padding mask [B, T] hides keys, the last axis of the scores
    features = at[-1] == m - 1 and large.axes[-1] not in DATA | {"?"}
    if features and any(small.axes[i] == "?" and large.axes[j] == "B" for i, j in enumerate(at)):
        return ""  # positions, of which there happen to be as many as examples
    return f"[{', '.join(':' if i in at else 'None' for i in range(at[0], m))}]"


def _lines_up(small: TensorInfo, i: int, large: TensorInfo, j: int) -> bool:
    return alike(small, i, large, j) or small.shape[i] == 1


def reordered(mine: TensorInfo, theirs: TensorInfo, free: int | None = None) -> str:
    """Return the transpose or permute that puts the same axes into one order, or ""; axis `free` may differ in size."""
    if not 1 < rank(mine) == rank(theirs) < 6:
        return ""
    orders = [
        order
        for order in permutations(range(rank(mine)))
        if all(alike(mine, i, theirs, j) for j, i in enumerate(order) if j != free)
    ]
    moves = [[i for i, j in enumerate(order) if i != j] for order in orders]
    moved = min(moves, key=len, default=[])
    if not moved:
        return ""
    order = orders[moves.index(moved)]
    return f".transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f".permute({', '.join(map(str, order))})"


def join(x: TensorInfo, wanted: int) -> str:
    """Return how the heads are joined where that gives the width that is wanted, or ""."""
    n = rank(x)
    if n > 1 and x.shape[-2] * x.shape[-1] == wanted and x.axes[-2] not in ("T", "S"):
        return say("join the last two axes first: {c}.flatten({i}).", c=code_of(x), i=n - 2)
    if n > 2 and x.shape[-3] * x.shape[-1] == wanted and x.axes[-3] in ("H", "?"):
        return say("join the heads first: {c}.transpose({i}, {j}).flatten({j}).", c=code_of(x), i=n - 3, j=n - 2)
    return ""


def heads_back(x: TensorInfo, at: int) -> str:
    """Return the repair of an axis joined of positions and features, `(T D)`, or ""."""
    axis = x.axes[at]
    names = set(axis.strip("()").split())
    if not (axis.startswith("(") and names & {"T", "S"} and names & {"C", "D"}):
        return ""
    text = N_("{x} has positions joined with features, {axis}: bring the heads back behind the positions first.")
    return say(text, x=who(x, N_("one of them")), axis=axis)


def heads_behind(a: TensorInfo, b: TensorInfo, at: int) -> bool:
    """Tell whether one side has its heads before its positions, the other behind."""
    if at != -3:
        return False
    names = {a.axes[at], b.axes[at]}
    if "?" not in names:
        return "H" in names and bool(names & {"T", "S"}) and "H" in a.axes and "H" in b.axes
    return a.shape[at] in b.shape[-2:] and b.shape[at] in a.shape[-2:]


def cut(long: TensorInfo, shape: Sequence[int]) -> str:
    """Return the index that cuts a buffer made for the longest text to the positions in use."""
    n = min(rank(long), len(shape))
    longer = [i for i in range(-n, 0) if long.shape[i] > shape[i]]
    index = ", ".join(f":{shape[i]}" if i in longer else ":" for i in range(longer[0], 0)) if longer else ""
    return say("cut it to the positions in use: {x}[..., {index}].", x=code_of(long), index=index) if index else ""
