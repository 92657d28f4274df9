"""Puts recorders in place and takes them away, tells them which module runs, and steps aside where it must.

Two hooks on all modules are shared by all open recorders. They hold no recorder: each asks which ones are on the
function-mode stack of its own thread, so that other threads, code inside a torch function, and modules that run
untouched are passed by. They stand under a key that never changes: torch.compile guards on the keys, and a new one for
each trace would make it compile anew until it gives up.
"""

import re
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode

from .calls import module_call
from .costs import encoder_flops
from .ledger import DisableTorchFunction, Entry
from .recorder import Frozen, Recorder, set_stack, stack

__all__ = ["close", "open_", "recorders", "run_untouched"]

_KEY: Any = "tracer"
_count, _at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at

_lock = threading.RLock()  # a generator that is collected inside these few lines closes its block there
_open: list[Recorder] = []
"""Recorders in place now, in any thread; empty again when the last has gone."""
_asides: "dict[int, Aside]" = {}
"""Thread -> the module that runs untouched in it now."""


# ------------------------------------------------------------------ in place, and away


def open_(recorder: Recorder) -> None:
    """Put a recorder on this thread's mode stack, and the hooks if they are not there yet."""
    recorder.thread = threading.get_ident()
    with _lock:
        _open.append(recorder)
        _install()
    torch._C._push_on_torch_function_stack(recorder)


def close(recorder: Recorder) -> None:
    """Take a recorder away, wherever it stands on the stack: generators may close their blocks in any order."""
    with _lock:
        if recorder in _open:
            _open.remove(recorder)
    aside = _asides.get(threading.get_ident())
    if aside is not None and any(r is recorder for r, _, _ in aside.calls):
        _restore(aside)  # left by an exception that module hooks are not told of
    _drop_spent([recorder])
    count = _count()
    if count and _at(count - 1) is recorder:
        torch._C._pop_torch_function_stack()
    else:
        set_stack([m for m in stack() if m is not recorder])
    with _lock:
        if not _open:
            _remove()
    recorder.close()


def _install() -> None:
    torch_modules._global_forward_pre_hooks[_KEY] = _enter
    torch_modules._global_forward_hooks[_KEY] = _leave
    torch_modules._global_forward_hooks_always_called[_KEY] = True
    if not _filtered:
        warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]
        _filtered.append(warnings.filters)


def _remove() -> None:
    torch_modules._global_forward_pre_hooks.pop(_KEY, None)
    torch_modules._global_forward_hooks.pop(_KEY, None)
    torch_modules._global_forward_hooks_always_called.pop(_KEY, None)
    for filters in (*_filtered, warnings.filters):
        if _QUIET in filters:
            filters.remove(_QUIET)
    _filtered.clear()


_QUIET = ("ignore", re.compile(r"Using `torch\.compile\(module\)` when there are global hooks"), UserWarning, None, 0)
"""A compiled module warns of any hook on all modules; these ones go away while it runs."""
_filtered: list[Any] = []
"""Lists that hold this filter: `warnings.catch_warnings` in the traced code puts a copy in the place of the first."""


# ------------------------------------------------------------------ which module runs


def recorders() -> Sequence[Recorder]:
    """Return the recorders that are at work in this thread at this moment, outermost first."""
    return [m for m in stack() if isinstance(m, Recorder) and not m.closed]


def _enter(module: nn.Module, args: tuple[Any, ...]) -> None:
    if is_dynamo_compiling():
        return
    mode = _at(0) if _count() == 1 else None
    here = (mode,) if type(mode) is Recorder and not mode.closed else recorders()
    try:
        for r in here:
            r.enter(module, args)
        if not here:
            _note_other_thread()
        elif type(module) not in _PLAIN:
            _consider(module, args, here, _why_aside(type(module)))
    except Exception as error:
        for r in here:
            r.lost(error)


def _leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    if is_dynamo_compiling():
        return
    aside = _asides.get(threading.get_ident()) if _asides else None
    if aside is not None:
        if aside.module is module:
            _come_back(aside, output)
        return
    mode = _at(0) if _count() == 1 else None
    for r in (mode,) if type(mode) is Recorder and not mode.closed else recorders():
        try:
            r.leave(module, output)
        except Exception as error:
            r.lost(error)


def _note_other_thread() -> None:
    me = threading.get_ident()
    if all(r.thread != me for r in _open):
        for r in _open:
            r.note("Modules ran in another thread meanwhile: their operations are not in this trace.")


# ------------------------------------------------------------------ stepping aside

_OPENED = (
    "expand=True opened {name}: under tracing PyTorch leaves its fused path for this module, so numbers differ in the "
    "last digits, and padded positions get values where the fused path gives zeros."
)
_UNTOUCHED = "{name} is {why}: it ran untouched, as one operation. Trace the original to see what it does."

_FAST = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


@dataclass
class Aside:
    """What must be put back when a module that runs untouched has ended."""

    module: nn.Module | None
    name: str
    args: tuple[Any, ...]
    modes: list[TorchFunctionMode]
    calls: list[tuple[Recorder, Frozen, list[Entry]]]
    hookless: bool
    handle: Any = None


_PLAIN: set[type] = set()
"""Classes of modules that never have to run untouched; a cache."""


def _why_aside(kind: type) -> str:
    """Return why modules of a class may have to run untouched, or ""."""
    if issubclass(kind, _FAST):
        return "fast path"
    if issubclass(kind, torch.jit.ScriptModule):
        return "a script"
    if any(c.__name__ == "OptimizedModule" and c.__module__.startswith("torch._dynamo") for c in kind.__mro__):
        return "compiled"
    _PLAIN.add(kind)
    return ""


def _consider(module: nn.Module, args: tuple[Any, ...], here: Sequence[Recorder], why: str) -> None:
    """Step aside for a module if it must run untouched this time."""
    if not why:
        return
    if why == "fast path":
        if not _takes_fast_path(module, args):
            return
        if all(r.expand for r in here):
            for r in here:
                r.note(_OPENED.format(name=type(module).__name__))
            return
    _step_aside(module, args, here, why)


def _takes_fast_path(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Tell whether a module may take PyTorch's fused path, which a function mode would close to it.

    Asks a part of what PyTorch asks: where this says yes too often, a module is shown as one operation, and its numbers
    are right.
    """
    if module.training or not torch.backends.mha.get_fastpath_enabled():
        return False
    if isinstance(module, nn.MultiheadAttention) and any(a is not b for a, b in pairwise(args[:3])):
        return False
    first = module.layers[0] if isinstance(module, nn.TransformerEncoder) else module
    tensors = [*first.parameters(), *(a for a in args if isinstance(a, Tensor))]
    with DisableTorchFunction():
        return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


def _step_aside(
    module: nn.Module | None, args: tuple[Any, ...], here: Sequence[Recorder], why: str, name: str = ""
) -> None:
    """Take modes, and for compiled modules the hooks too, away until the module's forward has ended."""
    _drop_spent(here)
    calls = []
    for r in here:
        inputs: list[Entry] = []
        with DisableTorchFunction():
            calls.append((r, r.before(args, None, inputs), inputs))
    original = getattr(module, "_orig_mod", module)
    name = name or getattr(module, "original_name", "") or type(original).__name__
    me = threading.get_ident()
    modes = stack()
    hookless = why == "compiled" and all(r.thread == me for r in _open)
    aside = Aside(module, name, args, modes, calls, hookless)
    if hookless:
        if module is not None:
            aside.handle = module.register_forward_hook(_leave, always_call=True)
        _remove()
    _asides[me] = aside
    set_stack([m for m in modes if not isinstance(m, Recorder)])
    if why != "fast path":
        for r in here:
            r.note(_UNTOUCHED.format(name=name, why=why))


def _come_back(aside: Aside, output: Any) -> None:
    _restore(aside)
    frame = sys._getframe(2)
    call = module_call(aside.name)
    for r, frozen, inputs in aside.calls:
        if not r.closed:
            number = len(r.events)
            with DisableTorchFunction():
                r.after(None, call, frozen, inputs, output, frame)
                if len(r.events) > number:  # a call that gave no tensor is no operation
                    r.log.work[number] = _work(aside.module, aside.args)
            if aside.module is not None:
                r.leave(aside.module, output)


def _work(module: nn.Module | None, args: tuple[Any, ...]) -> tuple[int, int]:
    """Return the FLOPs of a module that ran untouched, where they can be told, and the bytes of its parameters."""
    weights = [] if module is None else list(module.parameters())
    held = sum(w.nbytes for w in weights)
    x = args[0] if args else None
    if not (isinstance(module, _FAST) and isinstance(x, Tensor)):
        return 0, held
    batch_first = all(m.batch_first for m in module.modules() if isinstance(m, nn.MultiheadAttention))
    return encoder_flops(tuple(x.shape), [tuple(w.shape) for w in weights], batch_first), held


def _restore(aside: Aside) -> None:
    _asides.pop(threading.get_ident(), None)
    since = [m for m in stack() if not any(m is old for old in aside.modes)]
    set_stack([m for m in aside.modes if not (isinstance(m, Recorder) and m.closed)] + since)
    if aside.hookless and _open:
        _install()
    if aside.handle is not None:  # not removed here: torch may be going through the module's hooks at this moment
        aside.calls[0][0].spent.append(aside.handle)


def _drop_spent(here: Sequence[Recorder]) -> None:
    for r in here:
        while r.spent:
            r.spent.pop().remove()


def run_untouched(function: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a compiled function as one operation, without modes and hooks."""
    __tracebackhide__ = True
    here = recorders()
    name = getattr(function, "__name__", "") or type(function).__name__
    _step_aside(None, tuple(inputs), here, "compiled", name)
    output = None
    try:
        output = function(*inputs, **kwargs)
        return output
    finally:
        aside = _asides.get(threading.get_ident())
        if aside is not None:
            _come_back(aside, output)
