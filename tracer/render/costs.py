"""What a run costs, as a table with bars: by operation, by module, or by line of code."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..costs import By, Cost, Peak, peak, tally
from ..records import Op
from ..speech import N_, say, say_count
from .html import esc, style
from .layout import Sheet, place, plain
from .table import grid

__all__ = ["CostTable", "table"]

HEADS = (N_("operations"), N_("FLOPs"), N_("part"), N_("bytes moved"), N_("part"), N_("new memory"))
_FIRST = {"operation": N_("operation"), "module": N_("module"), "line": N_("line")}
_KEYS: Mapping[str, Callable[[Op], str]] = {
    "operation": lambda op: op.name,
    "module": lambda op: op.module,
    "line": lambda op: f"{place(op.source)}  {op.source.code if op.source else ''}".rstrip(),
}
_NUMBERS, _BARS = {1, 2, 4, 6}, {2, 4}
"""Columns of the text that are numbers; cells after the name that are bars."""
_BAR = 10
"""Characters of a bar that stands for all."""
_LONGEST = 72
"""Characters of a name in the text; a line of code may be longer."""


@dataclass(frozen=True, repr=False)
class CostTable:
    """Costs in rows, the most expensive first; `print` shows it as text, a notebook as HTML.

    `rows` has one `Cost` for each operation name, module or line. What is shown gathers numbered modules that cost the
    same (`blocks.*.attn`), and leaves out what costs nothing.
    """

    rows: tuple[Cost, ...]
    by: By
    total: Cost
    peak: Peak

    @property
    def shown(self) -> tuple[Cost, ...]:
        """The rows of the table that is shown."""
        rows = _gathered(self.rows) if self.by == "module" else self.rows
        return tuple(c for c in rows if c.flops or c.bytes_moved or c.bytes_new)

    @property
    def caption(self) -> str:
        """The totals in one sentence."""
        t = self.total
        where = f" ({self.peak.op.name}, {place(self.peak.op.source)})" if self.peak.op else ""
        return say(
            "{flops} FLOPs, {read} read, {written} written, {new} of new memory; {peak} of results alive at the peak"
            "{where}",
            flops=short(t.flops), read=short(t.bytes_read, "B"), written=short(t.bytes_written, "B"),
            new=short(t.bytes_new, "B"), peak=short(self.peak.bytes, "B"), where=where,
        )  # fmt: skip

    @property
    def free(self) -> str:
        """A sentence on the rows that cost nothing, or ""."""
        names = [c.name for c in self.rows if not (c.flops or c.bytes_moved or c.bytes_new)]
        if self.by == "operation" and names:
            return say("At no cost: {names}", names=", ".join(names))
        return say_count("{n} more at no cost", "{n} more at no cost", len(names)) if names else ""

    def __str__(self) -> str:
        heads = (say(_FIRST[self.by]), *map(say, HEADS))
        rows = [(_short_name(name), *cells) for name, *cells in (_cells(c, _bar) for c in self.shown)]
        return "\n".join(
            part for part in (plain(self.caption), *grid([heads, *rows], _NUMBERS), plain(self.free)) if part
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = (say(_FIRST[self.by]), *map(say, HEADS))
        head = "".join(f'<th scope="col">{esc(h)}</th>' for h in heads)
        body = "".join(map(_row, self.shown))
        code = f'<table class="st-t st-list"><caption>{esc(self.caption)}</caption><thead><tr>{head}</tr></thead>'
        note = f"<p><small>{esc(self.free)}</small></p>" if self.free else ""
        return f'<div class="shape-tracer">{style(())}{code}<tbody>{body}</tbody></table>{note}</div>'


def table(sheet: Sheet, by: By) -> CostTable:
    """Return the costs of a trace in rows.

    Raises:
        ValueError: `by` is not "operation", "module" or "line".
    """
    if by not in _KEYS:
        raise ValueError(f'by={by!r}: costs come by "operation", by "module" or by "line".')
    rows = tally(sheet.ops, _KEYS[by])
    total = next(iter(tally(sheet.ops, lambda op: "")), Cost("", 0, 0, 0, 0, 0, 0.0, 0.0))
    return CostTable(tuple(rows), by, total, peak(sheet.ops, sheet.returned))


def short(n: int, unit: str = "") -> str:
    """Return a number in three digits with its thousands: `12.3 k`, `1.23 MB`.

    Example:
        >>> short(12288), short(12288, "B"), short(40, "B")
        ('12.3 k', '12.3 kB', '40 B')
    """
    value, power = float(n), 0
    while value >= 999.5 and power < len(_POWERS) - 1:
        value, power = value / 1000, power + 1
    digits = 0 if not power or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {_POWERS[power]}{unit}".rstrip()


def _cells(cost: Cost, bar: Callable[[float], str]) -> tuple[str, ...]:
    return (
        cost.name or say("top level"),
        str(cost.count),
        short(cost.flops),
        bar(cost.share),
        short(cost.bytes_moved, "B"),
        bar(cost.share_bytes),
        short(cost.bytes_new, "B"),
    )


def _short_name(name: str) -> str:
    name = plain(name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _bar(share: float) -> str:
    """Return a part as per cent and as a bar of characters; a part too small for a bar has a thin one."""
    return f"{share:4.0%} {'█' * round(share * _BAR) or ('▏' if share else '')}".rstrip()


def _bar_html(share: float) -> str:
    return f'<span class="st-bar"><span><i style="width:{share:.1%}"></i></span> {share:.0%}</span>'


def _row(cost: Cost) -> str:
    name, *cells = _cells(cost, _bar_html)
    tags = (
        f'<td data-h="{esc(say(h))}">{c if i in _BARS else esc(c)}</td>'
        for i, (h, c) in enumerate(zip(HEADS, cells, strict=True))
    )
    return f'<tr><th scope="row"><code>{esc(name)}</code></th>{"".join(tags)}</tr>'


_POWERS = ("", "k", "M", "G", "T", "P")


def _gathered(rows: Sequence[Cost]) -> list[Cost]:
    """Put numbered modules that cost the same into one row."""

    def sign(cost: Cost) -> tuple[object, ...]:
        numberless = re.sub(r"(?<![^.])\d+(?![^.])", "*", cost.name)
        return numberless, cost.count, cost.flops, cost.bytes_read, cost.bytes_written, cost.bytes_new

    found: dict[tuple[object, ...], list[Cost]] = {}
    for cost in rows:
        found.setdefault(sign(cost), []).append(cost)
    gathered = [_sum(str(key[0]), group) if len(group) > 1 else group[0] for key, group in found.items()]
    return sorted(gathered, key=lambda cost: (-cost.flops, -cost.bytes_moved))


def _sum(name: str, group: Sequence[Cost]) -> Cost:
    n, one = len(group), group[0]
    return Cost(
        name, one.count * n, one.flops * n, one.bytes_read * n, one.bytes_written * n, one.bytes_new * n,
        one.share * n, one.share_bytes * n,
    )  # fmt: skip
