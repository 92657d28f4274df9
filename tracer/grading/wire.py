"""How values pass between the grader and the closed process: a JSON header and raw buffers, never a pickle.

What arrives is data from hostile code. Sizes are checked before anything is read or made; what doesn't fit raises
WireError, and nothing is built but numbers, texts, tuples, lists, dictionaries and plain tensors.
"""

import __future__

import contextlib
import inspect
import json
import math
import struct
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import TracerError

__all__ = [
    "GOODBYE",
    "HEAD",
    "Frames",
    "Limits",
    "Reader",
    "TooMuch",
    "WireError",
    "clean",
    "frame",
    "other",
    "travels",
    "write_tree",
]

HEAD = struct.Struct("<II")  # bytes of the JSON header, bytes of the buffers
GOODBYE = b"\xff"  # the grader ends, and was not killed
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
TEXT = 2_000  # characters
DIGITS = 300  # of a whole number
ITEMS = 1_000
DEPTH = 5
AXES = 16
ELEMENTS = 1 << 21


class WireError(TracerError, ValueError):
    """A value cannot be sent, or bytes that arrived are not what they claim to be."""


class TooMuch(WireError):
    """More was sent than is taken from one notebook."""


@dataclass
class Limits:
    """What one notebook may send in all, in bytes and frames; `take` counts it down."""

    header: int = 1 << 20
    body: int = 48 << 20
    total: int = 96 << 20
    count: int = 2_000

    def take(self, header: int, body: int) -> None:
        """Count one frame; raises TooMuch when it is too large, or one too many."""
        self.count -= 1
        self.total -= header + body
        if header > self.header or body > self.body or self.total < 0 or self.count < 0:
            raise TooMuch("more output than is taken from one notebook")


# ------------------------------------------------------------------ values


def other(name: str) -> Any:
    """Return a stand-in for a value that does not travel; its type has the given name and nothing else."""
    return type("".join(c for c in name if c.isidentifier() or c.isdigit())[:60] or "object", (), {})()


def write_tree(value: Any, buffers: list[bytes], depth: int = 0) -> list[Any]:
    """Return a value as JSON; the numbers of its tensors are appended to `buffers`.

    A function that an exercise gives as an input, or a layer without state around one (its `rule`), travels as source,
    and only to the closed process: `Reader` makes one where it is told to. It uses its arguments and torch alone.
    """
    if value is None or value is ...:
        return ["none" if value is None else "dots"]
    if isinstance(value, bool):
        return ["bool", bool(value)]
    if isinstance(value, str):
        return ["text", str(value)[:TEXT]]
    if isinstance(value, Tensor):
        return _write_tensor(value, buffers)
    if isinstance(value, Integral) and abs(int(value)) < 10**DIGITS:
        return ["int", str(int(value))]
    if isinstance(value, Real):
        return ["float", float(value).hex()]
    if isinstance(value, torch.dtype) and value in DTYPES.values():
        return ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, tuple | list | dict) and len(value) <= ITEMS and depth < DEPTH:
        if isinstance(value, dict):
            return ["dict", [[str(key)[:TEXT], write_tree(item, buffers, depth + 1)] for key, item in value.items()]]
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [write_tree(item, buffers, depth + 1) for item in value]]
    rule = getattr(value, "rule", None) if isinstance(value, nn.Module) and not value.state_dict() else value
    if isinstance(rule, types.FunctionType) and rule.__name__.isidentifier() and not rule.__code__.co_freevars:
        with contextlib.suppress(OSError, TypeError):
            return [
                "layer" if rule is not value else "function",
                rule.__name__,
                textwrap.dedent(inspect.getsource(rule)),
            ]
    return ["other", type(value).__name__[:60]]


def _write_tensor(value: Tensor, buffers: list[bytes]) -> list[Any]:
    name = str(value.dtype).removeprefix("torch.")
    if value.is_meta or name not in DTYPES or value.numel() > ELEMENTS or value.is_quantized:
        return ["other", "Tensor"]
    plain = value.detach().to("cpu").to_dense().resolve_conj().resolve_neg().contiguous()
    buffers.append(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return ["tensor", name, list(plain.shape)]


class _Layer(nn.Module):
    """A layer without parameters, made of a function."""

    def __init__(self, rule: Callable[..., Any]) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, *args: Any) -> Any:
        """Call the function."""
        return self.rule(*args)


class Reader:
    """Reads values from JSON trees and the raw bytes of one message, in the order in which they were written."""

    def __init__(self, body: bytes, *, functions: bool = False) -> None:
        self._body, self._place = memoryview(body), 0
        self._functions = functions

    def value(self, tree: Any, depth: int = 0) -> Any:
        """Return the value that a tree stands for; raises WireError where there is none, or the bytes don't fit."""
        if not isinstance(tree, list) or not tree or not isinstance(tree[0], str) or depth > DEPTH:
            raise WireError("not a value")
        kind, *rest = tree
        if kind == "tensor":
            return self._tensor(rest)
        if kind in {"function", "layer"}:
            return self._function(kind, rest)
        if kind in {"tuple", "list", "dict"}:
            return self._several(kind, rest, depth + 1)
        try:
            return _PLAIN[kind](*rest)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise WireError("not a value") from None

    def _several(self, kind: str, rest: list[Any], depth: int) -> Any:
        items = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else None
        if items is None or len(items) > ITEMS:
            raise WireError("not a list")
        if kind == "dict":
            if not all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items):
                raise WireError("not a dictionary")
            return {clean(key): self.value(item, depth) for key, item in items}
        values = [self.value(item, depth) for item in items]
        return tuple(values) if kind == "tuple" else values

    def _tensor(self, rest: list[Any]) -> Tensor:
        if len(rest) != 2 or not isinstance(rest[0], str) or rest[0] not in DTYPES or not isinstance(rest[1], list):
            raise WireError("not a tensor")
        dtype, shape = DTYPES[rest[0]], rest[1]
        if len(shape) > AXES or not all(type(size) is int and 0 <= size <= ELEMENTS for size in shape):
            raise WireError("not a shape")
        if math.prod(size for size in shape if size) > ELEMENTS:  # also where another axis is empty
            raise WireError("a tensor is too large")
        data = bytearray(self._take(math.prod(shape) * dtype.itemsize))
        if dtype is torch.bool:  # any other byte than 0 and 1 is no truth value
            data = bytearray(byte != 0 for byte in data)
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(shape)

    def _function(self, kind: str, rest: list[Any]) -> Any:
        """Return a function where that is allowed, in the closed process; elsewhere a stand-in, and run no code."""
        if not self._functions:
            return other(kind)
        name, text = rest
        space: dict[str, Any] = {"torch": torch}
        exec(compile(text, f"<{name}>", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True), space)
        return space[name] if kind == "function" else _Layer(space[name])

    def _take(self, count: int) -> bytes:
        piece = self._body[self._place : self._place + count]
        if len(piece) != count:
            raise WireError("a buffer is shorter than its header says")
        self._place += count
        return bytes(piece)


def clean(text: Any) -> str:
    """Return a text of bounded length that can be written as UTF-8; raises TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError("not a text")
    return text[:TEXT].encode("utf-8", "replace").decode("utf-8")


def _whole(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise ValueError("too long")
    return int(text)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a truth value")
    return value


_PLAIN: dict[str, Callable[..., Any]] = {
    "none": lambda: None,
    "dots": lambda: ...,
    "bool": _truth,
    "text": clean,
    "int": _whole,
    "float": float.fromhex,
    "dtype": lambda name: DTYPES[name],
    "other": lambda name: other(clean(name)),
}


# ------------------------------------------------------------------ frames


def frame(header: dict[str, Any], buffers: list[bytes]) -> bytes:
    """Return one message: the lengths, the header as JSON, the raw bytes."""
    text = json.dumps(header).encode("ascii")
    body = b"".join(buffers)
    return HEAD.pack(len(text), len(body)) + text + body


def travels(value: Any) -> bool:
    """Whether a value travels whole: no part of it would arrive as a stand-in."""

    def whole(tree: Any) -> bool:
        return not isinstance(tree, list) or ((not tree or tree[0] != "other") and all(map(whole, tree)))

    return whole(write_tree(value, []))


@dataclass
class Frames:
    """Takes bytes as they arrive and gives back whole messages; raises WireError for what is none."""

    limits: Limits = field(default_factory=Limits)
    rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the messages that are complete with `data`."""
        self.rest += data
        while len(self.rest) >= HEAD.size:
            head, body = HEAD.unpack_from(self.rest)
            if head > self.limits.header or body > self.limits.body:
                raise TooMuch("more output than is taken from one notebook")
            end = HEAD.size + head + body
            if len(self.rest) < end:
                return
            self.limits.take(head, body)
            text, raw = bytes(self.rest[HEAD.size : HEAD.size + head]), bytes(self.rest[HEAD.size + head : end])
            del self.rest[:end]
            yield _header(text), raw


def _header(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("a header is not JSON") from None
    if not isinstance(found, dict):
        raise WireError("a header is not a record")
    return found
