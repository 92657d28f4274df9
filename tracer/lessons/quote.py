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


def rows(case: Case, got: Any, want: Any) -> Numbers:
    """Return the index `at` of the first row along the last axis that differs, and both rows, `got` and `want`."""
    at = _first_row(got, want)
    return {"at": list(at), "got": show(got[at]), "want": show(want[at])}


def sums(case: Case, got: Any, want: Any) -> Numbers:
    """Return the index `at` of the first row along the last axis that differs, and its `sum`."""
    at = _first_row(got, want)
    return {"at": list(at), "sum": f"{got[at].sum().item():.3g}"}


def _first_row(got: Tensor, want: Tensor) -> tuple[int, ...]:
    differs = ~torch.isclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    places = differs.nonzero() if differs.any() else torch.zeros(1, got.dim(), dtype=torch.int64)
    return tuple(places[0, :-1].tolist())
