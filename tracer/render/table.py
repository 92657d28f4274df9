"""A few tensors of a trace, chosen by name, in one table: what, shape by name, sizes, elements, bytes, memory, line."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from ..records import Op, TensorInfo
from ..speech import say
from .html import concrete_html, document_style, esc, label_html
from .layout import concrete, memory_word, place, plain

__all__ = ["Row", "Table", "row"]


@dataclass(frozen=True)
class Row:
    """One row: tensors of one shape and type, and the operations that made them (None for an input)."""

    what: str
    tensors: tuple[TensorInfo, ...]
    ops: tuple[Op | None, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells as text, in the order of HEADS."""
        info, count = self.tensors[0], len(self.tensors)
        each = f"{count} x " if count > 1 else ""
        size = item_size(info.dtype)
        elements = prod(info.shape)
        return (
            self.what,
            ", ".join(_distinct(t.variable or "" for t in self.tensors)),
            info.label,
            concrete(info) if info.shape else say("one number"),
            f"{each}{elements:,}",
            say("{each}{n:,} B", each=each, n=elements * size) if size else "?",
            f"{info.dtype.removeprefix('torch.')}",
            ", ".join(_distinct(memory_word(op) if op else say("input") for op in self.ops)),
            self._lines(),
        )

    def _lines(self) -> str:
        """Where the tensors were made: `attention.py:21, 22, 23`."""
        text = ""
        for where in _distinct(place(op.source) for op in self.ops if op):
            file, _, line = where.rpartition(":")
            text += f", {line}" if text.startswith(f"{file}:") else f"{'; ' if text else ''}{where}"
        return text


HEADS = ("what", "variable", "shape by name", "sizes", "elements", "memory size", "type", "memory", "line")


@dataclass(frozen=True)
class Table:
    """Chosen tensors of a trace; `print` shows it as text, a notebook as HTML."""

    rows: tuple[Row, ...]
    caption: str = ""

    def __str__(self) -> str:
        cells = [tuple(say(h) for h in HEADS), *(r.cells for r in self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(HEADS))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join(plain(line) for line in ([self.caption] if self.caption else []) + lines)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{esc(say(h))}</th>' for h in HEADS)
        body = "".join(_row_html(r) for r in self.rows)
        caption = f"<caption>{esc(self.caption)}</caption>" if self.caption else ""
        symbols = {a for r in self.rows for t in r.tensors for a in t.axes}
        return (
            f'<div class="shape-tracer">{document_style(symbols)}<div class="st-scroll" tabindex="0" role="region" '
            f'aria-label="{esc(self.caption or say("tensors"))}"><table class="st-t st-list">{caption}'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></div>"
        )
