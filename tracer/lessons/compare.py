"""Compares a learner's result with the wanted one and words the first difference. Nothing is ever broadcast."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import AxesError
from ..speech import _
from .exercise import Case
from .shapes import Axis, read, write

__all__ = ["all_numbers", "as_numbers", "describe_inputs", "difference", "facts", "label"]

# Allowed difference by the kind of number that the results hold: relative to the number, and to the largest
# number of the wanted result where that is above 1 (a sum of large terms may end near 0).
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}


def label(axes: str) -> str:
    """Return axes in the notation of the traces: `B (H D)` becomes `[B, C]`; sums and words stay as they are."""
    found = _readable(axes)
    return f"[{', '.join(axes.split())}]" if found is None else write(found)


def _readable(axes: str) -> tuple[Axis, ...] | None:
    """Return axes as `shapes` reads them; None for a sum, `1+N`, and for a word, `window`, which it does not."""
    try:
        return read(axes)[0] if axes else ()
    except AxesError:
        return None


def describe_inputs(names: tuple[str, ...], given: tuple[str | None, ...], case: Case) -> str:
    """Return what a function was called with: `x: [B, T, C] = [2, 5, 12], H = 3`."""
    texts = []
    for name, axes, arg in zip(names, given, case.args, strict=True):
        if isinstance(arg, Tensor):
            texts.append(f"{name}: {label(axes or '')} = {list(arg.shape)}")
        else:
            texts.append(f"{name} = {getattr(arg, '__name__', str(arg)).strip('_')}")
    return ", ".join(texts)


def as_numbers(value: Any) -> Tensor | None:
    """Return a result as a detached float64 tensor on the CPU, or None if it cannot be one."""
    if isinstance(value, bool | int | float):
        return torch.tensor(float(value), dtype=torch.float64, device="cpu")
    if not isinstance(value, Tensor) or value.is_complex():
        return None
    try:
        return value.detach().to(device="cpu", dtype=torch.float64).to_dense()
    except (RuntimeError, NotImplementedError):  # a meta tensor, a quantized one: no numbers to read
        return None


def difference(got: Any, want: Any, axes: tuple[str, ...], tolerance: float | None = None) -> str | None:
    """Return a sentence on the first difference in kind, shape or numbers; None where there is none."""
    if isinstance(want, tuple):
        return _of_several(got, want, axes, tolerance)
    wanted, numbers = as_numbers(want), as_numbers(got)
    name = axes[0] if axes else ""
    if wanted is None:
        return None if type(got) is type(want) and got == want else _wrong_kind(got, name)
    if numbers is None:
        return _wrong_kind(got, name)
    if numbers.shape != wanted.shape:
        text = _("Your result has the shape {got}; asked for is {label} = {want}.")
        return text.format(got=list(numbers.shape), label=label(name), want=list(wanted.shape))
    close = _close(numbers, wanted, tolerance or _tolerance(got, want))
    return None if bool(close.all()) else _wrong_numbers(numbers, wanted, close, name)


def _tolerance(got: Any, want: Any) -> float:
    """Return what the coarser of both allows: a float64 answer may be nearer to the truth than a float32 reference."""
    dtypes = [value.dtype if isinstance(value, Tensor) else torch.float64 for value in (got, want)]
    return max(TOLERANCE.get(dtype, 0.0) for dtype in dtypes)


def _close(got: Tensor, want: Tensor, limit: float) -> Tensor:
    largest = want[want.isfinite()].abs().max().item() if bool(want.isfinite().any()) else 0.0
    return torch.isclose(got, want, rtol=limit, atol=limit * max(1.0, largest), equal_nan=True)


def all_numbers(value: Any) -> Any:
    """Return `as_numbers` of a result, or of each of several as a tuple."""
    return tuple(map(as_numbers, value)) if isinstance(value, tuple | list) else as_numbers(value)


def facts(got: Any, want: Any, axes: tuple[str, ...], tolerance: float | None = None) -> dict[str, object]:
    """Return what a message may quote: `shape`, `wanted`; and `place`, `got`, `want` of the first number that differs.

    Of several results the first that differs is taken. Empty where the results cannot be compared.
    """
    if isinstance(want, tuple) and isinstance(got, tuple | list) and len(got) == len(want):
        parts = (facts(g, w, (a,), tolerance) for g, w, a in zip(got, want, axes, strict=True))
        return next((part for part in parts if "place" in part or part.get("shape") != part.get("wanted")), {})
    numbers, wanted = as_numbers(got), as_numbers(want)
    if numbers is None or wanted is None:
        return {}
    found: dict[str, object] = {"shape": list(numbers.shape), "wanted": list(wanted.shape)}
    if numbers.shape == wanted.shape:
        off = (~_close(numbers, wanted, tolerance or _tolerance(got, want))).nonzero()
        for first in off[:1].tolist():
            found |= {"place": _coordinates(axes[0] if axes else "", first)}
            found |= {"got": f"{numbers[tuple(first)].item():.4g}", "want": f"{wanted[tuple(first)].item():.4g}"}
    return found


def _of_several(got: Any, want: tuple[Any, ...], axes: tuple[str, ...], tolerance: float | None) -> str | None:
    if not isinstance(got, tuple | list) or len(got) != len(want):
        text = _("{count} results are asked for, as in `return a, b`; yours gave {kind}.")
        return text.format(count=len(want), kind=_kind(got))
    names = (*axes, *("" for _n in want))  # a catalogued mistake may have more or fewer results than are asked for
    for place, (one, wanted, name) in enumerate(zip(got, want, names, strict=False)):
        found = difference(one, wanted, (name,), tolerance)
        if found is not None:
            return _("Result {place}: {text}").format(place=place, text=found)
    return None


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return _("{count} values as {type}").format(type=type(value).__name__, count=len(value))
    return _("a value of type {type}").format(type=type(value).__name__)


def _wrong_kind(got: Any, axes: str) -> str:
    if isinstance(got, Tensor):
        text = _("Your tensor is {dtype} on {device}; real numbers on the CPU are asked for.")
        return text.format(dtype=got.dtype, device=got.device)
    return _("Your function gave {kind}; a tensor {label} is asked for.").format(kind=_kind(got), label=label(axes))


def _wrong_numbers(got: Tensor, want: Tensor, close: Tensor, axes: str) -> str:
    first = [int(i) for i in (~close).nonzero()[0]]
    found: Mapping[str, object] = {
        "place": _coordinates(axes, first),
        "got": f"{got[tuple(first)].item():.4g}",
        "want": f"{want[tuple(first)].item():.4g}",
        "wrong": int((~close).sum()),
        "all": close.numel(),
    }
    text = _("The shape is right. The first number that differs is at {place}: {got}, and {want} is asked for.")
    text += " " + _("{wrong} of {all} numbers differ.")
    if bool(got.isnan().any()):
        text += " " + _("Your result holds NaN.")
    return text.format(**found)


def _coordinates(axes: str, index: list[int]) -> str:
    names = [str(axis).strip("()").replace(" ", "").lower() for axis in _readable(axes) or ()]
    if len(names) != len(index):
        return str(index)
    return "[" + ", ".join(f"{name}={i}" for name, i in zip(names, index, strict=True)) + "]"
