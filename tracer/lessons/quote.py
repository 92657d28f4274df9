"""The numbers that feedback quotes beside the first that differs: the whole row, or its sum. Judges nothing.

Each function is a `Mistake.numbers`: it gets the case, the learner's result and the wanted one, and names what a
sentence may use.
"""

from typing import Any

import torch
from torch import Tensor

from .exercise import Case, show

__all__ = ["rows", "sums"]

Numbers = dict[str, object]
SHOWN = 6  # numbers of a row


def rows(case: Case, got: Any, want: Any) -> Numbers:
    """Return the index `at` of the first row along the last axis that differs, and both rows, `got` and `want`.

    Where two long rows begin alike, they are shown from shortly before the first number that differs.
    """
    *at, first = _first_difference(got, want)
    start = first - 1 if first >= SHOWN else 0
    return {"at": at} | {name: _part(row[tuple(at)], start) for name, row in (("got", got), ("want", want))}


def sums(case: Case, got: Any, want: Any) -> Numbers:
    """Return the index `at` of the row along the last axis whose sum is furthest from 1, and its `sum`."""
    total = got.sum(dim=-1)
    far = (total - 1).abs().nan_to_num(nan=0.0)
    at = tuple((far == far.max()).nonzero()[0].tolist())
    return {"at": list(at), "sum": f"{total[at].item():.4g}"}


def _part(row: Tensor, start: int) -> str:
    return show(row, SHOWN) if not start else "[…, " + show(row[start:], SHOWN)[1:]


def _first_difference(got: Tensor, want: Tensor) -> tuple[int, ...]:
    differs = ~torch.isclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    places = differs.nonzero() if differs.any() else torch.zeros(1, got.dim(), dtype=torch.int64)
    return tuple(places[0].tolist())
