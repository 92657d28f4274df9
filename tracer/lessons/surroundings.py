"""Keeps what lies around a learner's code as it was: random numbers, torch's settings and functions, output.

What code changed for good is put back and named. What it printed is kept, up to a limit.
"""

import builtins
import contextlib
import io
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from ..speech import N_, _

__all__ = ["Surroundings", "kept", "shell"]

MOST = 4000  # characters of output that are kept


@dataclass
class Surroundings:
    """What happened around one run: names of what it changed, which is put back, and what it printed."""

    changed: list[str] = field(default_factory=list)
    printed: str = ""


def _device() -> torch.device | None:
    """Return the device for new tensors, None where it was never chosen: `cpu` would be a choice, and slower."""
    device = torch.get_default_device()
    return None if device == torch.device("cpu") else device


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def _go_to(folder: str | None) -> None:
    with contextlib.suppress(OSError, TypeError):
        os.chdir(folder)  # type: ignore[arg-type]


# What it is called, how to read it, how to set it.
_SETTINGS: tuple[tuple[str, Callable[[], Any], Callable[[Any], object]], ...] = (
    (N_("torch's default dtype"), torch.get_default_dtype, torch.set_default_dtype),
    (N_("torch's default device"), _device, torch.set_default_device),
    (N_("whether torch records gradients"), torch.is_grad_enabled, torch.set_grad_enabled),
    (N_("the number of threads"), torch.get_num_threads, torch.set_num_threads),
    (N_("the folder that the notebook works in"), _folder, _go_to),
    (N_("Python's recursion limit"), sys.getrecursionlimit, sys.setrecursionlimit),
)
_SPACES: tuple[ModuleType | type, ...] = (torch, torch.nn.functional, torch.Tensor, torch.nn.Module, builtins)


def shell() -> Any:
    """Return IPython's shell while it runs a cell, else None."""
    return getattr(builtins, "get_ipython", lambda: None)()


@contextlib.contextmanager
def _exit_is_an_exception() -> Iterator[None]:
    """Let `exit()` and `quit()` raise SystemExit in a notebook too, where they would end the kernel."""
    own = vars(found) if (found := shell()) is not None else {}
    before = own.get("ask_exit")
    if found is not None:
        own["ask_exit"] = sys.exit
    try:
        yield
    finally:
        if before is None:
            own.pop("ask_exit", None)
        else:
            own["ask_exit"] = before


@contextlib.contextmanager
def kept() -> Iterator[Surroundings]:
    """Put everything back when the block is left, however it is left; then the result says what was changed."""
    found, output = Surroundings(), _Output()
    settings = [read() for _name, read, _set in _SETTINGS]
    functions = [dict(vars(space)) for space in _SPACES]
    back = _random_state()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            with _exit_is_an_exception():
                yield found
    finally:
        for (name, read, put), setting in zip(_SETTINGS, settings, strict=True):
            if read() != setting:
                put(setting)
                found.changed.append(_(name))
        for space, before in zip(_SPACES, functions, strict=True):
            found.changed += _put_back(space, before)
        back()
        found.printed = output.getvalue()


def _random_state() -> Callable[[], None]:
    """Return a function that puts the random numbers of Python, numpy and torch back to where they are now."""
    python, cpu = random.getstate(), torch.get_rng_state()
    numpy = sys.modules.get("numpy")
    array = numpy.random.get_state() if numpy else None
    gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]

    def back() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if numpy:
            numpy.random.set_state(array)
        if gpu:
            torch.cuda.set_rng_state_all(gpu)

    return back


def _put_back(space: ModuleType | type, before: dict[str, Any]) -> list[str]:
    """Undo what was replaced in a module or class, also by hiding what the class inherits; return the names of that."""
    now = vars(space)
    other = [name for name, value in before.items() if now.get(name) is not value and name != "_"]
    hidden = [name for name in now if name not in before and any(hasattr(base, name) for base in _bases(space))]
    for name in other:
        setattr(space, name, before[name])
    for name in hidden:
        delattr(space, name)
    return [f"{space.__name__}.{name}" for name in (*other, *hidden)]


def _bases(space: ModuleType | type) -> tuple[type, ...]:
    return space.__bases__ if isinstance(space, type) else ()


class _Output(io.StringIO):
    """Takes what is printed and drops what is more than anyone reads."""

    def write(self, text: str) -> int:
        left = MOST - self.tell()
        super().write(text[:left] if left > 0 else "")
        return len(text)
