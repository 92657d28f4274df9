"""A few tensors of a trace, chosen by name, in one table: what, shape by name, sizes, elements, bytes, memory, line."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from unicodedata import east_asian_width

from ..costs import item_size
from ..records import Op, TensorInfo
from ..speech import N_, say
from .html import esc, label_html, style
from .layout import concrete, memory_word, place, plain

__all__ = ["HEADS", "Row", "Table", "grid", "rows"]


HEADS = (
    N_("what"),
    N_("variable"),
    N_("shape by name"),
    N_("sizes"),
    N_("elements"),
    N_("bytes"),
    N_("type"),
    N_("memory"),
    N_("line"),
)
_SHAPE = 2


@dataclass(frozen=True)
class Row:
    """One row: tensors of one shape and type, each with the operation that made it (None for an input)."""

    what: str
    variables: tuple[str, ...]
    tensors: tuple[TensorInfo, ...]
    ops: tuple[Op | None, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells as text, in the order of HEADS."""
        info, count = self.tensors[0], len(self.tensors)
        elements = prod(info.shape)
        each = f"{count} x " if count > 1 else ""
        return (
            self.what,
            ", ".join(self.variables),
            info.label,
            concrete(info),
            f"{each}{elements:,}",
            f"{each}{elements * item_size(info.dtype):,}",
            info.dtype.removeprefix("torch."),
            ", ".join(_distinct(say(memory_word(op)) if op else say("input") for op in self.ops)),
            self._lines(),
        )

    def _lines(self) -> str:
        """Where the tensors were made: `attention.py:21, 22, 23`."""
        text = ""
        for where in _distinct(place(op.source) for op in self.ops if op):
            file, _, line = where.rpartition(":")
            text += f", {line}" if file and text.startswith(f"{file}:") else f"{'; ' if text else ''}{where}"
        return text


@dataclass(frozen=True, repr=False)
class Table:
    """Chosen tensors of a trace; `print` shows it as text, a notebook as HTML."""

    rows: tuple[Row, ...]
    caption: str = ""

    def __str__(self) -> str:
        cells = [tuple(map(say, HEADS)), *(tuple(map(plain, row.cells)) for row in self.rows)]
        return "\n".join([*([plain(self.caption)] if self.caption else []), *grid(cells)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{esc(say(head))}</th>' for head in HEADS)
        body = "".join(_row_html(row) for row in self.rows)
        caption = f"<caption>{esc(self.caption)}</caption>" if self.caption else ""
        axes = {axis for row in self.rows for info in row.tensors for axis in info.axes}
        table = f'<table class="st-t st-list">{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        return f'<div class="shape-tracer">{style(axes)}{table}</div>'


def grid(cells: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of text in columns, with a rule under the first; those in `right` end at one place, as numbers do."""
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    rows = [[" " * (w - _width(c)) for c, w in zip(row, widths, strict=True)] for row in cells]
    lines = [
        "  ".join(pad + c if i in right else c + pad for i, (c, pad) in enumerate(zip(row, pads, strict=True))).rstrip()
        for row, pads in zip(cells, rows, strict=True)
    ]
    return [lines[0], "  ".join("-" * w for w in widths), *lines[1:]]


def _row_html(row: Row) -> str:
    first, *rest = row.cells
    cells = [f'<th scope="row">{esc(first)}</th>']
    for i, (head, cell) in enumerate(zip(HEADS[1:], rest, strict=True), start=1):
        text = f'<span class="st-l">{label_html(cell)}</span>' if i == _SHAPE else esc(cell)
        cells.append(f'<td data-h="{esc(say(head))}">{text}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _distinct(words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word]


def _width(text: str) -> int:
    """Return the columns that a text takes in a terminal, where Korean letters take two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def rows(what: str, picked: Sequence[tuple[str, TensorInfo, Op | None]]) -> list[Row]:
    """Return one row for all tensors where they are alike (names, sizes, type, memory), else one for each."""
    signs = {(info.label, info.shape, info.dtype, memory_word(op) if op else "") for _, info, op in picked}
    groups = [picked] if len(signs) == 1 else [[one] for one in picked]
    return [Row(what, *map(tuple, zip(*group, strict=True))) for group in groups if group]
