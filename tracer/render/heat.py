"""Attention maps as SVG in HTML without scripts, and as text; plain numbers in, one colour scale for all of them.

A panel is one head: a cell for each query and key, the token labels, what each row sums to, the entropy. Cells that a
mask closed are hatched, so that they are not taken for a weight of 0. The scale goes by steps whose bounds are printed;
it is one hue from page to ink, so that it reads without colour too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from unicodedata import east_asian_width

from ..speech import say
from .html import esc, label_html, small, style, whole_page
from .layout import plain

__all__ = ["BOUNDS", "DARK", "LIGHT", "Panel", "fragment", "level", "page", "sentences", "short", "text"]


_CSS = Path(__file__).with_name("heat.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Panel:
    """One head: `weights` and `closed` by query and key, `axes` the names of these two, `entropy` in bits."""

    layer: str
    head: int
    note: str
    axes: tuple[str, str]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    closed: tuple[tuple[bool, ...], ...]
    sums: tuple[float, ...]
    entropy: float

    @property
    def title(self) -> str:
        """Short text over the map."""
        head = say("head {n}", n=self.head)
        return f"{self.note}: {head}" if self.note else head


BOUNDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Where the steps of the scale begin."""
LIGHT = (
    *("#f4f6fb", "#e3eaf6", "#cddcf0", "#b3cae8", "#93b3dc"),
    *("#7099cc", "#4f7db8", "#35629f", "#1f4682", "#0c2a5e"),
)
DARK = (
    *("#16181d", "#1f2733", "#2a384a", "#374b64", "#486280"),
    *("#5f7f9f", "#7f9fbd", "#a3bfd6", "#c9dbea", "#f2f7fb"),
)
"""The steps on a light page and on a dark one, from no weight to all of it."""

NUMBERED = 10
"""Maps of at most so many keys have their numbers in the cells."""
WIDE, EDGE = 320.0, 26.0
"""Width of a panel, and the largest edge of a cell, in CSS pixels: a panel fits a telephone."""
_SMALLEST = 9.0
"""Edge of a cell beside which a label can still be read."""
_LETTERS = 9
"""Letters of a label, a Korean or Chinese one counting for two."""
_LETTER = 7.2
"""Width of such a letter at most, in CSS pixels."""


def level(weight: float) -> int:
    """Return the step of the scale that a weight belongs to.

    Example:
        >>> level(0.0), level(0.4), level(1.0)
        (0, 6, 9)
    """
    return max((i for i, bound in enumerate(BOUNDS) if weight >= bound), default=0)


def ink(colour: str) -> str:
    """Return the colour, black or white, that is read best on another."""
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (r, g, b)]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if light > 0.179 else "#ffffff"


def short(label: str, most: int = _LETTERS) -> str:
    """Return a label that fits beside a cell; spaces at its ends and empty ones are made visible."""
    label = plain(label.replace("\n", "⏎").replace(" ", "␣") if label.strip() != label or not label else label) or "∅"
    width, kept = 0, ""
    for letter in label:
        width += 2 if east_asian_width(letter) in "WF" else 1
        if width > most:
            return kept + "…"
        kept += letter
    return label


# ------------------------------------------------------------------ text


def text(panel: Panel) -> str:
    """Return one map as text: all numbers where there are few keys, else the strongest key of each query."""
    head = f"{plain(panel.layer)}, {plain(panel.title)}: {panel.axes[0]} x {panel.axes[1]}"
    if len(panel.keys) > NUMBERED:
        return "\n".join([head, *(f"  {line}" for line in sentences(panel))])
    keys = [short(k, 7) for k in panel.keys]
    left = max(_width(short(q)) for q in panel.queries)
    lines = [" " * left + "".join(_right(k, 8) for k in keys) + _right(say("sum"), 8)]
    for query, weights, closed, total in zip(panel.queries, panel.weights, panel.closed, panel.sums, strict=True):
        cells = ["-" if c else f"{w:.2f}" for w, c in zip(weights, closed, strict=True)]
        row = short(query) + " " * (left - _width(short(query)))
        lines.append(row + "".join(_right(c, 8) for c in cells) + _right(f"{total:.2f}", 8))
    closing = [say("- : masked")] if any(map(any, panel.closed)) else []
    return "\n".join([head, *(f"  {line}" for line in [*lines, *closing, _entropy(panel)])])


def sentences(panel: Panel, most: int = 40) -> list[str]:
    """Return what the map says in words: the strongest key of each query, what rows sum to, the entropy."""
    lines = []
    for query, weights in zip(panel.queries[:most], panel.weights, strict=False):
        top = max(range(len(weights)), key=lambda i: weights[i])
        lines.append(say("{query} looks most at {key}: {weight}", query=short(query), key=short(panel.keys[top]),
                         weight=f"{weights[top]:.2f}"))  # fmt: skip
    if len(panel.queries) > most:
        lines.append(say("and {n} more queries", n=len(panel.queries) - most))
    return [*lines, _sums(panel), _entropy(panel)]


def _sums(panel: Panel) -> str:
    low, high = min(panel.sums), max(panel.sums)
    if f"{low:.2f}" == f"{high:.2f}":
        return say("each row sums to {total}", total=f"{low:.2f}")
    return say("rows sum to {low} at least, {high} at most", low=f"{low:.2f}", high=f"{high:.2f}")


def _entropy(panel: Panel) -> str:
    return say("entropy {bits} bits, the mean of its rows", bits=f"{panel.entropy:.2f}")


def _width(label: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in label)


def _right(label: str, width: int) -> str:
    return " " * (width - _width(label)) + label


# ------------------------------------------------------------------ HTML


def page(body: str) -> str:
    """Return an offline page around maps."""
    return whole_page(say("Attention maps"), body)


def fragment(layers: Sequence[tuple[str, Sequence[Sequence[Panel]]]], notes: Iterable[str] = ()) -> str:
    """Return maps as the piece that a notebook shows: by layer, groups of panels that stay next to each other."""
    shown = [panel for _, row in layers for group in row for panel in group]
    axes = {name for panel in shown for name in panel.axes}
    words = "".join(f"<p><small>{esc(note)}</small></p>" for note in notes if note)
    rows = "".join(_layer(name, row) for name, row in layers)
    masked = any(any(map(any, panel.closed)) for panel in shown)
    return f'<div class="shape-tracer">{style(axes)}<style>{_scale()}</style>{_legend(masked)}{rows}{words}</div>'


def _scale() -> str:
    """Return the style sheet with the steps of the scale, and what is written on them."""
    rules = []
    for i, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)):
        rules.append(f".shape-tracer .st-w{i}{{fill:{light};fill:light-dark({light},{dark})}}")
        light, dark = ink(light), ink(dark)
        rules.append(f".shape-tracer .st-heat text.st-i{i}{{fill:{light};fill:light-dark({light},{dark})}}")
    return small(_CSS) + "".join(rules)


def _legend(masked: bool) -> str:
    """The steps of the scale with their bounds."""
    w, parts = 29, []
    for i, bound in enumerate(BOUNDS):
        parts.append(f'<rect class="st-w{i}" x="{i * w}" y="0" width="{w}" height="12"/>')
        parts.append(f'<text x="{i * w}" y="25">{_number(bound)}</text>')
    wide = w * len(BOUNDS)
    parts.append(f'<rect class="st-frame" x=".5" y=".5" width="{wide - 1}" height="11"/>')
    name = esc(say("Scale of the weights: each step begins at the number under it"))
    svg = (
        f'<svg class="st-steps" role="img" aria-label="{name}" width="{wide}" height="28" viewBox="0 0 {wide} 28">'
        f"{''.join(parts)}</svg>"
    )
    hatched = (
        f'<span><svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true"><path class="st-no" '
        f'd="M0 14L14 0M0 7L7 0M7 14L14 7"/><rect class="st-frame" x=".5" y=".5" width="13" height="13"/></svg> '
        f"{esc(say('masked'))}</span>"
        if masked
        else ""
    )
    return f'<div class="st-heat"><span>{esc(say("weight"))} {svg}</span>{hatched}</div>'


def _number(value: float) -> str:
    return f"{value:g}".replace("0.", ".") if value else "0"


def _layer(name: str, row: Sequence[Sequence[Panel]]) -> str:
    figures = "".join(f'<div class="st-group">{"".join(map(_figure, group))}</div>' for group in row)
    return f'<h4 class="st-layer">{esc(name)}</h4><div class="st-heat">{figures}</div>'


def _figure(panel: Panel) -> str:
    """One panel with its caption, and the same as text to fold open."""
    rows, columns = (f'<span class="st-l">{label_html(name)}</span>' for name in panel.axes)
    caption = (
        f"<b>{esc(panel.title)}</b> · {esc(say('queries'))} {rows} ↓ {esc(say('keys'))} {columns} →<br>"
        f"{esc(_sums(panel))}; {esc(_entropy(panel))}"
    )
    words = f"<details><summary>{esc(say('as text'))}</summary><pre>{esc(text(panel))}</pre></details>"
    return f"<figure>{svg(panel)}<figcaption>{caption}{words}</figcaption></figure>"


def svg(panel: Panel) -> str:
    """Return the map of one head as SVG; its colours come from the style of `fragment`."""
    T, S = len(panel.queries), len(panel.keys)
    labels = [short(q) for q in panel.queries]
    left = 8 + _LETTER * max(map(_width, labels))
    right = 34.0 if T <= 24 else 4.0
    edge = min(EDGE, (WIDE - left - right) / S, WIDE * 1.5 / T)
    keys = [short(k) for k in panel.keys]
    top = 8 + _LETTER * max(map(_width, keys)) if edge < _LETTER * max(map(_width, keys)) else 18.0
    width, height = left + edge * S + right, top + edge * T + 4
    parts = [*_cells(panel, left, top, edge), *_lines(panel, left, top, edge)]
    parts += _row_labels(labels, left, top, edge) + _column_labels(keys, left, top, edge)
    if right > 10 and edge >= _SMALLEST:
        x = left + edge * S + 4
        parts.append(f'<text class="st-n" x="{x:g}" y="{top - 5:g}">{esc(say("sum"))}</text>')
        for i, total in enumerate(panel.sums):
            parts.append(f'<text class="st-n" x="{x:g}" y="{top + edge * (i + 0.5) + 3.5:.4g}">{total:.2f}</text>')
    name = f"{panel.layer}, {panel.title}: {'. '.join(sentences(panel, 12))}"
    return (
        f'<svg role="img" aria-label="{esc(name)}" width="{width:.4g}" height="{height:.4g}" '
        f'viewBox="0 0 {width:.4g} {height:.4g}">{"".join(parts)}</svg>'
    )


def _cells(panel: Panel, left: float, top: float, edge: float) -> list[str]:
    """The cells as one path for each step of the scale, neighbours of one step drawn together; then the numbers."""
    paths: dict[int, list[str]] = {}
    numbers = []
    for i, (weights, closed) in enumerate(zip(panel.weights, panel.closed, strict=True)):
        row = [None if c else level(w) for w, c in zip(weights, closed, strict=True)]
        start = 0
        for step, run in groupby(row):
            wide = len(list(run))
            if step is not None:
                paths.setdefault(step, []).append(f"M{start} {i}h{wide}v1h-{wide}z")
            start += wide
        if len(row) <= NUMBERED:
            numbers += [
                f'<text class="st-n st-i{step}" text-anchor="middle" x="{left + edge * (j + 0.5):.4g}" '
                f'y="{top + edge * (i + 0.5) + 3.5:.4g}">{_hundredths(weights[j])}</text>'
                for j, step in enumerate(row)
                if step is not None
            ]
    drawn = "".join(f'<path class="st-w{step}" d="{"".join(d)}"/>' for step, d in sorted(paths.items()))
    return [f'<g transform="{_place(left, top, edge)}">{drawn}</g>', *numbers]


def _place(left: float, top: float, edge: float) -> str:
    """Return the transform after which a cell is 1 wide and 1 high, so that its path is short."""
    return f"translate({left:.4g} {top:.4g}) scale({edge:.4g})"


def _hundredths(weight: float) -> str:
    """Return a weight as it fits into a cell: `.07`, `1`."""
    return "1" if weight >= 0.995 else f"{weight:.2f}".removeprefix("0")


def _lines(panel: Panel, left: float, top: float, edge: float) -> list[str]:
    """A frame, and a stroke through each cell that a mask closed, from corner to corner."""
    T, S = len(panel.queries), len(panel.keys)
    strokes = []
    for total in range(T + S - 1):  # cells with one sum of row and column: their strokes are one line
        cells = [(i, total - i) for i in range(max(0, total - S + 1), min(T, total + 1))]
        for shut, run in groupby(cells, key=lambda at: panel.closed[at[0]][at[1]]):
            if shut:
                (i, j), long = (line := list(run))[0], len(line)
                strokes.append(f"M{j + 1} {i}l{-long} {long}")
    hatch = f'<path class="st-no" transform="{_place(left, top, edge)}" d="{"".join(strokes)}"/>' if strokes else ""
    return [
        hatch,
        f'<rect class="st-frame" x="{left:.4g}" y="{top:.4g}" width="{edge * S:.4g}" height="{edge * T:.4g}"/>',
    ]


def _every(edge: float) -> int:
    """Return that each so-manieth label has room."""
    return max(1, -int(-16 // edge)) if edge < _SMALLEST else 1


def _row_labels(labels: Sequence[str], left: float, top: float, edge: float) -> list[str]:
    return [
        f'<text text-anchor="end" x="{left - 4:.4g}" y="{top + edge * (i + 0.5) + 4:.4g}">{esc(label)}</text>'
        for i, label in enumerate(labels)
        if i % _every(edge) == 0
    ]


def _column_labels(labels: Sequence[str], left: float, top: float, edge: float) -> list[str]:
    turned = top > 18
    parts = []
    for j, label in enumerate(labels):
        if j % _every(edge) == 0:
            x, y = left + edge * (j + 0.5), top - 5
            turn = f' transform="rotate(-90 {x + 4:.4g} {y:.4g})" x="{x + 4:.4g}"' if turned else f' x="{x:.4g}"'
            anchor = "" if turned else ' text-anchor="middle"'
            parts.append(f'<text{anchor}{turn} y="{y:.4g}">{esc(label)}</text>')
    return parts
