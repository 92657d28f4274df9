"""The words that sentences about operations share: axes and shapes with their sizes, and which axes become which.

A name that the trace shows as `?` is not said: its size is.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ..records import Op, TensorInfo
from ..speech import say
from .layout import as_written

__all__ = ["axis", "each", "groups_of", "listed", "number", "others", "shape", "size_groups", "times", "who"]


def axis(info: TensorInfo, i: int) -> str:
    """Return an axis with its size, `C=21`, and whose it is where two bear one name; only the size without a name."""
    name, size, origin = info.axes[i], info.shape[i], info.origins[i]
    if size < 0:
        return say("a ragged axis")
    if name in ("?", str(size)):
        return str(size)
    owner = origin.partition(" of ")[2] if origin else ""
    return say("{axis} of {owner}", axis=f"{name}={size}", owner=owner) if owner else f"{name}={size}"


def shape(info: TensorInfo) -> str:
    """Return the axes of a tensor with their sizes: `[B=2, T=5, 21]`."""
    if not info.shape:
        return say("one number")
    return "[" + ", ".join(axis(info, i) for i in range(len(info.shape))) + "]"


def times(info: TensorInfo, dims: Iterable[int]) -> str:
    """Return some axes with a cross between them: `H=3 x D=7`."""
    return " x ".join(axis(info, i) for i in dims)


def listed(info: TensorInfo, dims: Iterable[int]) -> str:
    """Return some axes one after another: `H=3, D=7`."""
    return ", ".join(axis(info, i) for i in dims)


def who(op: Op, i: int) -> str:
    """Return the variable of an input with its shape, `q [B=2, T=5]`; only the shape where it has none."""
    info = as_written(op.inputs[i], op)
    if info.variable and not info.shape:
        return info.variable
    return f"{info.variable} {shape(info)}" if info.variable else shape(info)


def each(info: TensorInfo, dims: Iterable[int] | None = None) -> str:
    """Return the words `, for each of B=2 x T=5`, or nothing where there is one alone."""
    dims = list(range(len(info.shape)) if dims is None else dims)
    return say(", for each of {axes}", axes=times(info, dims)) if dims else ""


def number(value: Any) -> str:
    """Return a number as it is read: six digits are enough."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def others(info: TensorInfo, gone: Iterable[int]) -> list[int]:
    """Return the axes that are not among these."""
    without = set(gone)
    return [i for i in range(len(info.shape)) if i not in without]


def size_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the groups of axes larger than 1 whose products agree."""
    ours, theirs = ([i for i, n in enumerate(sizes) if n != 1] for sizes in (old, new))
    groups: list[tuple[list[int], list[int]]] = []
    while ours:
        mine, other = [ours.pop(0)], [theirs.pop(0)]
        a, b = old[mine[0]], new[other[0]]
        while a != b:
            if a < b:
                mine.append(ours.pop(0))
                a *= old[mine[-1]]
            else:
                other.append(theirs.pop(0))
                b *= new[other[-1]]
        groups.append((mine, other))
    return groups


def groups_of(old: TensorInfo, new: TensorInfo) -> list[tuple[list[int], list[int]]]:
    """Return which old axes become which new ones, in order: the smallest groups whose products agree.

    An axis of size 1 is in no group, unless its name and its neighbours' tell that it was split off or joined.
    """
    if prod(old.shape) != prod(new.shape) or prod(old.shape) <= 0:
        return [(list(range(len(old.shape))), list(range(len(new.shape))))]
    groups = size_groups(old.shape, new.shape)
    for info, side, other in ((old, 0, new), (new, 1, old)):
        for i, n in enumerate(info.shape):
            if n == 1 and info.axes[i] not in ("1", "?") and info.axes[i] not in other.axes:
                near = [g for g in groups if _renamed(g, old, new) and _beside(i, g[side], info)]
                if near:
                    near[0][side].append(i)
                    near[0][side].sort()
    return groups


def _renamed(group: tuple[list[int], list[int]], old: TensorInfo, new: TensorInfo) -> bool:
    return [old.axes[i] for i in group[0]] != [new.axes[j] for j in group[1]]


def _beside(i: int, group: list[int], info: TensorInfo) -> bool:
    """Tell whether nothing but axes of size 1 stands between an axis and a group."""
    between = range(i + 1, min(group)) if i < min(group) else range(max(group) + 1, i)
    return all(info.shape[k] == 1 for k in between)
