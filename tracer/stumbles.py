"""Failures in Python beside a tensor: `B, T, C = x.shape` of two axes, a tuple where a tensor is needed, einops.

No torch function was running, so nothing was recorded: what failed is read from the traceback, as a Failure like any
other. Only errors are taken whose message is known here; all others are the user's own and are left alone.
"""

import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor, nn

from .records import Call, Failure, Ref, Site, Source
from .sites import is_users

__all__ = ["stumble"]

_UNPACK = re.compile(r"(not enough|too many) values to unpack|^tuple index out of range")
_OPERATOR = re.compile(r"unsupported operand type\(s\) for ([^ ]+): ('Tensor' and '[\w.]+'|'\w+' and 'Tensor')")
_CONCATENATED = re.compile(r'^can only concatenate (?:tuple|list) \(not "Tensor"\)')
_ATTRIBUTE = re.compile(r"^'(?:tuple|list|NoneType)' object has no attribute '(\w+)'")
_CALL = re.compile(
    r"^(\w+)\(\): argument .\w+. .*must be (?:Tensor|tuple of Tensors), not \w+|^expected Tensor as element"
)
_EINOPS = re.compile(r"^ ?Error while processing (?:\w+-reduction|\w+) pattern")
_LAYER = re.compile(r"must be divisible by num_heads|must be equal to input_size|Expected hidden size")

_OWN = re.compile(r"\b(?:raise|assert)\b")  # the words are the user's then, whatever they are
_SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul", "**": "pow", "+=": "add", "*=": "mul"}
_CUTS = ("unbind", "split", "chunk", "split_with_sizes", "tensor_split")
_WHAT = re.compile(r"=\s*([A-Za-z_]\w*)\.(?:shape|size\(\))|([A-Za-z_]\w*)\.(?:shape\[|size\()")


def stumble(
    error: BaseException,
    traceback: TracebackType | None,
    ref: Callable[[Tensor, str], Ref],
    events: Sequence[tuple[Any, ...]],
    paths: Mapping[int, str],
) -> Failure | None:
    """Return what failed, or None where it is not for us to say.

    `ref` gives the number of a tensor of this name, `events` are the operations before, `paths` the modules by id.
    """
    message = str(error)
    name = _name(message, traceback)
    found = _users_line(traceback)
    if not name or found is None or _OWN.search(found[1].code):
        return None
    frame, source = found
    tensors = [ref(t, variable) for variable, t in _tensors(frame, source.code)]
    args: tuple[Any, ...] = tuple(tensors)
    if name in ("unpack", "shape", "size"):
        args = _unpacked(frame, source, ref, events)
    if not args and not any(kind.search(message) for kind in (_ATTRIBUTE, _CALL, _CONCATENATED, _LAYER)):
        return None
    owner = _variable(frame, "self")
    path = paths.get(id(owner), "") if isinstance(owner, nn.Module) else ""
    return Failure(Call(name), args, (), Site(source), path, type(error).__name__, message.strip())


def _name(message: str, traceback: TracebackType | None) -> str:
    """Return what the failing operation is called, or "" for an error that is not known."""
    functions = [frame.f_code.co_name for frame, _ in _frames(traceback)]
    if _EINOPS.search(message) or (_UNPACK.search(message) and not _raised_by_the_user(traceback)):
        return next((f for f in functions if f in ("rearrange", "repeat", "reduce")), "")
    if _UNPACK.search(message):
        return "unpack" if "unpack" in message else "shape"
    if message.startswith("Dimension out of range"):
        return "size"
    if said := _OPERATOR.search(message):
        return _SIGNS.get(said.group(1), said.group(1))
    if _CONCATENATED.search(message):
        return "add"
    if said := _ATTRIBUTE.search(message):
        return said.group(1) if hasattr(Tensor, said.group(1)) else ""
    if said := _CALL.search(message):
        return said.group(1) or "cat"
    if _LAYER.search(message) and not _raised_by_the_user(traceback):
        owners = [_variable(frame, "self") for frame, _ in _frames(traceback)]
        return next((type(m).__name__ for m in reversed(owners) if isinstance(m, nn.Module)), "")
    return ""


def _raised_by_the_user(traceback: TracebackType | None) -> bool:
    """Tell whether the innermost frame is the user's: then the words are theirs too."""
    return any(is_users(frame.f_code) for frame, _ in list(_frames(traceback))[-1:])


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a traceback with their lines, outermost first."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _variable(frame: FrameType, name: str) -> Any:
    """Return a variable of a frame, or None; the frame may still run, and must hold no more than before.

    Until Python 3.13 a function's frame keeps what `f_locals` shows, and with it tensors that the code lets go. It is
    emptied again, unless somebody else holds it, as the result of `locals()`.
    """
    held = frame.f_locals
    value = held.get(name)
    if type(held) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(held) <= _UNSHARED:
        held.clear()
    return value


_UNSHARED = 3
"""References to what `f_locals` shows: the frame's, ours and that of the question."""


def _users_line(traceback: TracebackType | None) -> tuple[FrameType, Source] | None:
    """Return the innermost frame of the user's code with its line."""
    for frame, line in reversed(list(_frames(traceback))):
        if is_users(frame.f_code):
            file = frame.f_code.co_filename
            return frame, Source(file, line, linecache.getline(file, line, frame.f_globals).strip())
    return None


def _tensors(frame: FrameType, code: str) -> list[tuple[str, Tensor]]:
    """Return the tensors that a line names, in its order, each once."""
    names = dict.fromkeys(re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*", code.rpartition(" = ")[2]))
    return [(name, value) for name in names if isinstance(value := _variable(frame, name), Tensor)]


def _unpacked(
    frame: FrameType, source: Source, ref: Callable[[Tensor, str], Ref], events: Sequence[tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Return the tensor that a statement took apart, how, and into how many parts; () where it is something else."""
    if said := _WHAT.search(source.code):
        name = said.group(1) or said.group(2)
        x = _variable(frame, name)
        return (ref(x, name), "shape", len(x.shape)) if isinstance(x, Tensor) else ()
    call, args, _, outs, _, site, *_ = events[-1] if events else (None, (), (), (), (), None)
    here = site is not None and (site.source.file, site.source.line) == (source.file, source.line)
    if call is None or not here or call.name not in _CUTS or not args or type(args[0]) is not Ref:
        return ()
    return args[0], call.name, len(outs)
