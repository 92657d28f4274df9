"""The two ways to run code and get a Trace of it: `trace` for one call, `record` for a block.

Tracing must change nothing. The traced call gets its own arguments and gives its own result, a tensor is only ever
asked for its description, and known by weak reference; what was put in place is taken away whatever happens.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import nn

from . import hooks
from .advice import explain
from .declared import bind
from .errors import AxesError, TracerError
from .ledger import DisableTorchFunction
from .namer import name_log
from .recorder import GuestRecorder, Recorder, tidy
from .records import Log
from .result import Trace
from .sites import stop_at
from .speech import say

__all__ = ["Recording", "new_recorder", "record", "run", "trace"]


def trace(
    model_or_function: Any,
    /,
    *inputs: Any,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    expand: bool = False,
    keep_values: bool = False,
    **kwargs: Any,
) -> Trace:
    """Call a model or function as usual and return what it did, operation by operation, with its axes by name.

    Args:
        model_or_function: any `nn.Module` or callable.
        *inputs: its positional arguments.
        axes: einops-style texts, one for each positional tensor (`["B T C"]`), or a dict by parameter name.
        sizes: sizes of symbols, `{"C": 48, "H": 3}`, over those that the model declares.
        expand: show the steps inside fused attention and recurrent layers (`Op.parent` is their operation), and open
            modules that are else shown as one operation because tracing would change their path.
        keep_values: keep the numbers of tensors of at most 64 elements.
        **kwargs: its other arguments.

    Raises:
        AxesError: `axes` or `sizes` do not fit, told before anything runs. What the call itself raises leaves with its
            own type, a note that explains it, and the trace so far as `.trace`.
        TypeError: the first argument cannot be called, as in `trace(model(x))`.
    """
    __tracebackhide__ = True
    if not callable(model_or_function):
        kind = type(model_or_function).__name__
        text = "trace takes a model or a function, and then its inputs: trace(model, x); the first is of type {kind}."
        raise TypeError(say(text, kind=kind))
    return run(new_recorder(sizes, expand, keep_values), model_or_function, inputs, kwargs, axes)


def run(
    recorder: Recorder,
    model_or_function: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    axes: Sequence[str] | Mapping[str, str] | None,
) -> Trace:
    """Call a model or function under a recorder that is not in place yet, as `trace` says."""
    __tracebackhide__ = True
    with DisableTorchFunction():
        signature = model_or_function.forward if isinstance(model_or_function, nn.Module) else model_or_function
        recorder.declare(model_or_function, bind(signature, inputs, kwargs), axes)
    with Recording(recorder, {}) as found:
        if _is_compiled(model_or_function):
            found.output = _call(hooks.run_untouched, (model_or_function, inputs, kwargs), {})
        else:
            found.output = _call(model_or_function, inputs, kwargs)
        recorder.returned(found.output)
    _look_at(found.output, recorder)
    return found


def record(
    axes: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    expand: bool = False,
    keep_values: bool = False,
) -> AbstractContextManager[Trace]:
    """Return a context manager that records the code of its block into a Trace, which fills as the block runs.

    `axes` names variables: the first tensor that the code gives to that variable gets these axes. The other arguments
    are those of `trace`.

    Raises:
        AxesError: a text of `axes` cannot be read, or `sizes` are no sizes. A text that does not fit its tensor becomes
            a warning of the trace: the block's own code must not fail for it.
    """
    recorder = new_recorder(sizes, expand, keep_values)
    recorder.watch(axes)
    return Recording(recorder)


class Recording(AbstractContextManager[Trace]):
    """An open block.

    `namespace` holds variables from before the block, `block` is the file and the name of its code; without them, they
    are those of the code that opens it.
    """

    def __init__(
        self, recorder: Recorder, namespace: Mapping[str, Any] | None = None, block: tuple[str, str] | None = None
    ) -> None:
        self.recorder, self.namespace, self.block = recorder, namespace, block
        self.trace = Trace(recorder.log, device=recorder.device)

    def __enter__(self) -> Trace:
        if self.recorder.closed:
            raise TracerError("This recording is over: open another block with tracer.record().")
        frame = sys._getframe(1)
        code = frame.f_code
        if self.namespace is None and not code.co_flags & inspect.CO_OPTIMIZED:
            self.namespace = frame.f_globals  # a script or a notebook: its variables are globals
        self.recorder.look_for(self.namespace or {}, self.block or (code.co_filename, code.co_name))
        self.namespace = None
        self.trace._recorder = self.recorder
        hooks.open_(self.recorder)
        return self.trace

    def __exit__(self, kind: Any, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self.recorder.blame(error, traceback)
        try:
            hooks.close(self.recorder)
        finally:
            self.trace._recorder = None
            self.trace.device = self.recorder.device
        if isinstance(error, Exception):
            if not hooks.recorders():
                tidy(traceback)
            _annotate(error, self.trace, self.recorder.log)


def new_recorder(sizes: Mapping[str, int] | None, expand: bool, keep_values: bool) -> Recorder:
    """Return a recorder that is not in place yet.

    Raises:
        AxesError: `sizes` are not whole numbers by symbol.
    """
    if sizes is not None and not isinstance(sizes, Mapping):
        raise AxesError(f'sizes= is {sizes!r}. Give whole numbers by symbol, such as {{"C": 48, "H": 3}}.')
    for name, size in (sizes or {}).items():
        if not isinstance(name, str) or type(size) is not int or size < 1:
            raise AxesError(f'sizes= has {name!r}: {size!r}. Give whole numbers by symbol, such as {{"C": 48}}.')
    alone = torch._C._len_torch_function_stack() == 0
    return (Recorder if alone else GuestRecorder)(dict(sizes or {}), expand, keep_values)


def _call(function: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call. The search for the line that called an operation ends at this frame."""
    __tracebackhide__ = True
    return function(*inputs, **kwargs)


stop_at(_call.__code__)


def _is_compiled(target: Any) -> bool:
    """Tell whether a callable is one whose code torch.compile has taken over, other than by wrapping a module."""
    if isinstance(target, nn.Module):
        return getattr(target, "_compiled_call_impl", None) is not None
    return hasattr(target, "_torchdynamo_orig_callable") or isinstance(target, torch.jit.ScriptFunction)


def _look_at(output: Any, recorder: Recorder) -> None:
    if inspect.isgenerator(output) or inspect.isasyncgen(output) or inspect.iscoroutine(output):
        recorder.note(f"The call returned a {type(output).__name__}: its code runs later, outside this trace.")


def _annotate(error: Exception, found: Trace, log: Log) -> None:
    """Add the explanation and the trace so far to an exception that leaves."""
    try:
        error.trace = found  # type: ignore[attr-defined]
    except Exception:  # some exceptions take no attributes; the note can still be added
        pass
    if log.failure is None or any(n.startswith("Shape Tracer") for n in getattr(error, "__notes__", ())):
        return  # where one trace runs inside another, the inner one has explained it
    try:
        named = name_log(log)
        note = explain(named.failed, log.failure.error, log.failure.message, named.sizes) if named.failed else ""
    except Exception as broken:  # the user's own exception must leave in any case
        note = f"Shape Tracer could not explain this ({type(broken).__name__}: {broken})."
    if note:
        error.add_note(note)
