"""Which device to run on: an accelerator if there is one."""

import os

import torch

__all__ = ["device"]

VARIABLE = "SHAPE_TRACER_DEVICE"


def device() -> torch.device:
    """Return the device for models and data: CUDA, else Apple's MPS, else Intel's XPU, else the CPU.

    The environment variable `SHAPE_TRACER_DEVICE` (`cpu`, `cuda`, `cuda:1`, `mps`, `xpu`) decides instead.

    Raises:
        ValueError: the variable names no device, or one that this machine does not have.

    Example:
        >>> device().type in ("cpu", "cuda", "mps", "xpu")
        True
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if not wanted:
        return torch.device(next((kind for kind in ("cuda", "mps", "xpu") if _available(kind)), "cpu"))
    try:
        found = torch.device(wanted)
    except RuntimeError:
        raise ValueError(f"{VARIABLE}={wanted!r} is no device. Use cpu, cuda, cuda:1, mps or xpu, or unset it.") from None
    if found.type != "cpu" and not _available(found.type):
        raise ValueError(f"{VARIABLE}={wanted!r}, but torch sees no such device here. Use cpu, or unset it.")
    return found


def _available(kind: str) -> bool:
    part = getattr(torch.backends, kind, None) if kind == "mps" else getattr(torch, kind, None)
    return part is not None and bool(part.is_available())
