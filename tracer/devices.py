"""The device that the notebooks and examples run on."""

import os

import torch

from .errors import TracerError

__all__ = ["device"]

_VARIABLE = "SHAPE_TRACER_DEVICE"


def device() -> torch.device:
    """Return the fastest device that works here: CUDA, else XPU, else Apple's MPS, else the CPU.

    The environment variable SHAPE_TRACER_DEVICE (`cpu`, `cuda:1`, …) decides instead where it is set.

    Raises:
        TracerError: the variable names a device that this machine does not have.
    """
    wanted = os.environ.get(_VARIABLE, "").strip()
    if wanted:
        return _named(wanted)
    return next((d for d in _present() if _works(d)), torch.device("cpu"))


def _present() -> list[torch.device]:
    found = [name for name in ("cuda", "xpu") if getattr(torch, name).is_available()]
    if torch.backends.mps.is_available():
        found.append("mps")
    return [torch.device(name) for name in [*found, "cpu"]]


def _works(d: torch.device) -> bool:
    """Try one product: a driver or a build of torch may not fit the card."""
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            x = torch.ones(2, 2, device=d)
            return (x @ x).sum().item() == 8.0
    except (RuntimeError, AssertionError, NotImplementedError):
        return False


def _named(text: str) -> torch.device:
    here = ", ".join(d.type for d in _present())
    try:
        d = torch.device(text)
    except RuntimeError:
        raise TracerError(f'{_VARIABLE}="{text}" is no device. This machine has: {here}.') from None
    if not _works(d):
        raise TracerError(f'{_VARIABLE}="{text}", but that device does not work here. This machine has: {here}.')
    return d
