"""A trace as JSON text and back. Reading trusts nothing: every value is checked, and nothing in the text is run.

Tensors and sources are written once and referred to by number. Numbers that JSON does not have (`inf`) and slices are
written as `{"float": "inf"}` and `{"slice": [0, 5, null]}`.
"""

import json
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from ..errors import TraceFileError
from ..records import Memory, Op, Slice, Source, TensorInfo
from .layout import Sheet

__all__ = ["FORMAT", "VERSION", "from_json", "to_json"]

FORMAT = "shape-tracer"
VERSION = 1

_MEMORY: tuple[Memory, ...] = ("view", "same", "in-place", "new")
_T = TypeVar("_T")


# ---------------------------------------------------------------- writing


def to_json(sheet: Sheet) -> str:
    """Return a trace as JSON text; the output of the traced call is not part of it."""
    tensors: dict[int, int] = {}
    sources: dict[Source, int] = {}
    table: list[dict[str, Any]] = []

    def number(info: TensorInfo) -> int:
        if id(info) not in tensors:
            tensors[id(info)] = len(table)
            table.append(_tensor(info))
        return tensors[id(info)]

    def row(op: Op) -> dict[str, Any]:
        return {
            "index": op.index,
            "name": op.name,
            "inputs": [number(i) for i in op.inputs],
            "outputs": [number(o) for o in op.outputs],
            "args": [_plain(a) for a in op.args],
            "module": op.module,
            "source": None if op.source is None else sources.setdefault(op.source, len(sources)),
            "flops": op.flops,
            "bytes": [op.bytes_read, op.bytes_written, op.bytes_new],
            "parent": op.parent,
        }

    ops = [row(op) for op in sheet.ops]
    failed = row(sheet.failed) if sheet.failed else None
    data = {
        "format": FORMAT,
        "version": VERSION,
        "device": sheet.device,
        "sizes": dict(sheet.sizes),
        "warnings": list(sheet.warnings),
        "unnamed": list(sheet.unnamed),
        "names": {str(index): list(names) for index, names in sheet.names.items()},
        "returned": None if sheet.returned is None else sorted(sheet.returned),
        "sources": [[s.file, s.line, s.code] for s in sources],
        "tensors": table,
        "ops": ops,
        "failed": failed,
    }
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {name: _plain(getattr(info, name)) for name in TensorInfo.__dataclass_fields__}


def _plain(value: Any) -> Any:
    """Return a recorded argument as JSON has it; what it has no form for, as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, Slice):
        return {"slice": [_plain(v) for v in value]}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value)


# ---------------------------------------------------------------- reading


def from_json(text: str) -> Sheet:
    """Read what `to_json` wrote.

    Raises:
        TraceFileError: the text is not JSON, not a trace, of another version, or inconsistent in itself.
    """
    data = _Node(_parse(text), "the file")
    if data.get("format", _text) != FORMAT:
        raise TraceFileError(f'This is not a saved trace: its "format" is not "{FORMAT}".')
    if (version := data.get("version", _whole)) != VERSION:
        raise TraceFileError(
            f"This trace is saved in version {version} of the format; this release reads version {VERSION}."
        )
    sources = data.get("sources", _list(_source))
    tensors = data.get("tensors", _list(_read_tensor))
    ops = data.get("ops", _list(lambda value, where: _op(value, where, tensors, sources)))
    if any(a.index >= b.index for a, b in pairwise(ops)):
        raise TraceFileError("The operations of this trace are not in order.")
    return Sheet(
        ops=ops,
        sizes=data.get("sizes", _map(_whole)),
        device=data.get("device", _text),
        warnings=data.get("warnings", _list(_text)),
        unnamed=data.get("unnamed", _list(_text)),
        failed=data.get("failed", _maybe(lambda value, where: _op(value, where, tensors, sources))),
        returned=None if (kept := data.get("returned", _maybe(_list(_whole)))) is None else frozenset(kept),
        names={_index(k): v for k, v in data.get("names", _map(_list(_text))).items()},
    )


def _parse(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError, TypeError) as error:
        raise TraceFileError(f"This is not a saved trace: it cannot be read as JSON ({error}).") from None


_Reader = Callable[[Any, str], _T]


def _wrong(where: str, wanted: str, value: Any) -> TraceFileError:
    return TraceFileError(f"This trace is damaged: {where} should be {wanted}, and is {ascii(value)[:60]}.")


class _Node:
    """An object of the file: `get` reads one of its fields with a reader that checks it."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        self.value, self.where = value, where

    def get(self, name: str, reader: _Reader[_T]) -> _T:
        if name not in self.value:
            raise TraceFileError(f'This trace is damaged: {self.where} has no "{name}".')
        return reader(self.value[name], f'"{name}" of {self.where}')


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "text", value)
    return value


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise _wrong(where, "a whole number from 0", value)
    return value


def _length(value: Any, where: str) -> int:
    return value if value == -1 and type(value) is int else _whole(value, where)  # -1: a ragged axis


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _maybe(reader: _Reader[_T]) -> _Reader[_T | None]:
    return lambda value, where: None if value is None else reader(value, where)


def _list(reader: _Reader[_T]) -> _Reader[tuple[_T, ...]]:
    def read(value: Any, where: str) -> tuple[_T, ...]:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return tuple(reader(item, f"entry {i} of {where}") for i, item in enumerate(value))

    return read


def _map(reader: _Reader[_T]) -> _Reader[Mapping[str, _T]]:
    def read(value: Any, where: str) -> Mapping[str, _T]:
        node = _Node(value, where)
        return {name: node.get(name, reader) for name in node.value}

    return read


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _wrong('a key of "names"', "the number of an operation", text)
    return int(text)


def _source(value: Any, where: str) -> Source:
    if not isinstance(value, list) or len(value) != 3:
        raise _wrong(where, "a file, a line number and the text of the line", value)
    return Source(_text(value[0], where), _whole(value[1], where), _text(value[2], where))


def _argument(value: Any, where: str) -> Any:
    """Read an argument or a tensor's values: numbers, text, tuples of them, `inf`, slices."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return tuple(_argument(v, where) for v in value)
    if isinstance(value, dict) and value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    if (
        isinstance(value, dict)
        and value.keys() == {"slice"}
        and isinstance(value["slice"], list)
        and len(value["slice"]) == 3
    ):
        return Slice(*(_argument(v, where) for v in value["slice"]))
    raise _wrong(where, "a number, text or a list of them", value)


def _lists(values: Any) -> Any:
    """Return a tensor's values as the nested lists that they were recorded as."""
    return [_lists(v) for v in values] if isinstance(values, tuple) else values


def _signed(value: Any, where: str) -> int:
    if type(value) is not int:
        raise _wrong(where, "a whole number", value)
    return value


def _memory(value: Any, where: str) -> Memory | None:
    found = next((kind for kind in _MEMORY if kind == value), None)
    if value is not None and found is None:
        raise _wrong(where, f"one of {', '.join(_MEMORY)}", value)
    return found


def _read_tensor(value: Any, where: str) -> TensorInfo:
    node = _Node(value, where)
    info = TensorInfo(
        id=node.get("id", _whole),
        shape=node.get("shape", _list(_length)),
        axes=node.get("axes", _list(_text)),
        label=node.get("label", _text),
        variable=node.get("variable", _maybe(_text)),
        dtype=node.get("dtype", _text),
        device=node.get("device", _text),
        stride=node.get("stride", _maybe(_list(_signed))),
        contiguous=node.get("contiguous", _maybe(_flag)),
        storage=node.get("storage", _maybe(_whole)),
        offset=node.get("offset", _maybe(_whole)),
        memory=node.get("memory", _memory),
        origins=node.get("origins", _list(_maybe(_text))),
        values=_lists(node.get("values", _argument)),
    )
    rank = len(info.shape)
    if len(info.axes) != rank or len(info.origins) != rank or len(info.stride or info.shape) != rank:
        raise TraceFileError(f"This trace is damaged: {where} has not one name and one stride for each axis.")
    return info


def _op(value: Any, where: str, tensors: tuple[TensorInfo, ...], sources: tuple[Source, ...]) -> Op:
    def pick(table: tuple[_T, ...]) -> _Reader[_T]:
        def read(value: Any, where: str) -> _T:
            if (at := _whole(value, where)) >= len(table):
                raise _wrong(where, f"a number below {len(table)}", at)
            return table[at]

        return read

    node = _Node(value, where)
    costs = node.get("bytes", _list(_whole))
    if len(costs) != 3:
        raise _wrong(f'"bytes" of {where}', "three numbers", costs)
    return Op(
        index=node.get("index", _whole),
        name=node.get("name", _text),
        inputs=node.get("inputs", _list(pick(tensors))),
        outputs=node.get("outputs", _list(pick(tensors))),
        args=node.get("args", _list(_argument)),
        module=node.get("module", _text),
        source=node.get("source", _maybe(pick(sources))),
        flops=node.get("flops", _whole),
        bytes_read=costs[0],
        bytes_written=costs[1],
        bytes_new=costs[2],
        parent=node.get("parent", _maybe(_whole)),
    )
