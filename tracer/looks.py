"""Attention in a stream of operations: a softmax over the last axis whose result is multiplied with the values.

`Follower` is told of one operation after the other, while they run or from a finished trace, and holds only the
weights that are on their way to their product. Names, layers and heads are left to `maps`.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["FAR_BELOW", "Follower", "Look", "Seen"]

FAR_BELOW = 5_000.0
"""A score that lies this far under the largest of its row has been masked by a large negative number."""

_SAME = frozenset(
    """view reshape transpose permute unsqueeze squeeze flatten unflatten expand expand_as swapaxes swapdims movedim
    contiguous clone detach to type type_as float double half bfloat16 mT T view_as reshape_as dropout dropout_
    native_dropout rearrange""".split()
)
"""Operations after which the weights are the same numbers: other strides, another type, or dropout's share of them."""
_CHANGED = frozenset("masked_fill masked_fill_ where nan_to_num mul mul_ rmul div div_ getitem".split())
"""Operations whose result, where it is as large as the weights or a part of them, is the weights from then on."""
_PRODUCTS = frozenset("matmul rmatmul bmm mm mv einsum dot".split())


class Seen(NamedTuple):
    """One tensor of an operation: a number that is its own, its shape, and its numbers where they are known."""

    number: int
    shape: tuple[int, ...]
    value: Tensor | None = None


class Look(NamedTuple):
    """Weights that were multiplied with values.

    `softmax` and `product` are the numbers of the tensors that these gave, `shape` is that of the weights in the
    product. `weights` are a copy, as they were before dropout; `closed` is True where a score was masked, None where
    nothing was or the scores are not known.
    """

    softmax: int
    product: int
    shape: tuple[int, ...]
    weights: Tensor | None
    closed: Tensor | None


class _Weights(NamedTuple):
    softmax: int
    size: int
    value: Tensor | None
    closed: Tensor | None


class Follower:
    """Finds the weights among operations; `found` has one Look for each, in the order of their products."""

    def __init__(self) -> None:
        self.found: list[Look] = []
        self._weights: dict[int, _Weights] = {}
        self._spread: dict[int, _Weights] = {}
        """weights times values that are not summed yet"""
        self._exps: dict[int, Tensor | None] = {}
        self._sums: dict[int, int] = {}

    def see(self, name: str, args: Sequence[object], inputs: Sequence[Seen], outputs: Sequence[Seen]) -> None:
        """Take in one operation; `args` are its other arguments, `"dim=-1"` where given by name."""
        if not inputs or not outputs:
            return
        first, out = inputs[0], outputs[0]
        held = next((x for x in inputs if x.number in self._weights), None)
        if name == "softmax" and len(first.shape) > 1 and _dim(args) in (-1, len(first.shape) - 1):
            self._weights[out.number] = _Weights(out.number, prod(out.shape), out.value, _closed(first.value))
        elif held is not None:
            self._go_on(name, held, out)
        elif name == "sum" and first.number in self._spread:
            self._keep(self._spread.pop(first.number), out, first.shape)
        else:
            self._by_hand(name, args, inputs, out)

    def _go_on(self, name: str, held: Seen, out: Seen) -> None:
        """Follow weights through an operation that was given them."""
        weights = self._weights[held.number]
        whole = prod(out.shape) == weights.size
        if name in _SAME or (name == "getitem" and whole):
            self._weights[out.number] = weights
        elif name in _PRODUCTS:
            self._keep(weights, out, held.shape)
        elif name in _CHANGED and prod(out.shape) <= weights.size:
            closed = weights.closed if whole else None
            if closed is None and weights.closed is not None and out.shape[:-1] == weights.closed.shape[:-1]:
                closed = weights.closed[..., : out.shape[-1]]  # a column for 'none of them' was cut off
            self._weights[out.number] = _Weights(weights.softmax, prod(out.shape), out.value, closed)
        elif name in ("mul", "rmul"):
            self._spread[out.number] = weights

    def _keep(self, weights: _Weights, product: Seen, shape: tuple[int, ...]) -> None:
        if all(look.softmax != weights.softmax for look in self.found):
            value = None if weights.value is None else weights.value.to("cpu", torch.float32, copy=True)
            self.found.append(Look(weights.softmax, product.number, shape, value, weights.closed))
        for number, other in self._weights.items():
            if other.softmax == weights.softmax:  # known still, for a second product, but held no longer
                self._weights[number] = other._replace(value=None, closed=None)

    def _by_hand(self, name: str, args: Sequence[object], inputs: Sequence[Seen], out: Seen) -> None:
        """Find a softmax that is written out: exp, its sum over the last axis, the quotient."""
        first = inputs[0]
        if name == "exp" and len(first.shape) > 1:
            self._exps[out.number] = _closed(first.value)
        elif name == "sum" and first.number in self._exps and out.shape == (*first.shape[:-1], 1):
            self._sums[out.number] = first.number
        elif name == "div" and len(inputs) > 1 and self._sums.get(inputs[1].number) == first.number:
            closed = self._exps.pop(first.number)
            self._weights[out.number] = _Weights(out.number, prod(out.shape), out.value, closed)


def _dim(args: Sequence[object]) -> int | None:
    """Return the axis that a softmax was told."""
    for arg in args:
        if isinstance(arg, str) and arg.startswith("dim="):
            return int(arg.removeprefix("dim="))
        if type(arg) is int:
            return arg
    return None


def _closed(scores: Tensor | None) -> Tensor | None:
    """Return where a score was masked: it is -inf, or far below the largest of its row; None where none was."""
    if scores is None or not scores.is_floating_point():
        return None
    lowest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min) - FAR_BELOW
    closed = scores < lowest
    return closed if bool(closed.any()) else None
