"""The flow figure with matplotlib, and the fonts that a text needs; loaded when it is asked for, since it brings that.

`render/plan` says what stands where; here it is put on the axes of a figure, in the same places.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from unicodedata import combining, east_asian_width

from matplotlib import font_manager, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from matplotlib.text import Text

from .render.colours import axis_colour
from .render.plan import Box, Path, Picture, Row, Run, Words
from .render.svg import Svg

__all__ = ["FlowFigure", "Fonts", "draw_row", "figure", "page_axes", "write"]

MONO = "DejaVu Sans Mono"
"""Ships with matplotlib; each of its letters is as wide as the others."""
ADVANCE = 0.602
"""Width of a letter of MONO, in its size; letters of twice the width (Korean, Chinese) are given two."""
_POINTS = 0.75
"""Points for one unit of a picture: 96 units are one inch, as in SVG."""
_INK, _SOFT, _BAND, _STOP = "#1c1c1c", "#595959", "#f3f3f3", "#8a3b00"


class FlowFigure(Figure):
    """A matplotlib figure that a notebook shows, whether or not its backend was chosen."""

    svg: Svg

    def draw(self, renderer: Any) -> None:
        """Draw with letters of their true width: rounded to whole pixels, words outgrow the room that they have."""
        with rc_context({"text.hinting": "none"}):
            super().draw(renderer)

    def _repr_svg_(self) -> str:
        return str(self.svg)


# ---------------------------------------------------------------- fonts


@cache
def _letters(path: str) -> frozenset[int]:
    """Return what a font file can write; nothing where it cannot be read."""
    try:
        return frozenset(FT2Font(path).get_charmap())
    except Exception:  # a damaged font among the installed ones is no reason to stop
        return frozenset()


@cache
def _truetype(path: str) -> bool:
    """Whether a file's (first) font has TrueType outlines; those of PostScript's kind cannot be embedded as such."""
    with open(path, "rb") as file:
        tag = file.read(16)
        if tag[:4] == b"ttcf":
            file.seek(int.from_bytes(tag[12:16], "big"))
            tag = file.read(4)
    return tag[:4] != b"OTTO"


class Fonts:
    """The fonts for a set of texts: `families` for matplotlib, and the `missing` letters that none of them has."""

    def __init__(self, texts: Iterable[str]) -> None:
        wanted = {ord(c) for text in texts for c in text if not combining(c) and c.isprintable()}
        self.families = [MONO]
        self.truetype = True
        """Whether PDF can embed them all as TrueType, so that their text can be searched."""
        self._mono = _letters(font_manager.findfont(MONO))
        left = wanted - self._mono
        for listed in (True, False):
            if left and not listed:
                _add_new_fonts()
            fonts = [f for f in font_manager.fontManager.ttflist if _usable(f)] if left else []
            fonts.sort(key=lambda font: (font.name, font.fname))
            while left and (
                best := max(fonts, key=lambda f: (len(left & _letters(f.fname)), _truetype(f.fname)), default=None)
            ):
                if not left & _letters(best.fname):
                    break
                self.families.append(best.name)
                self.truetype = self.truetype and _truetype(best.fname)
                left -= _letters(best.fname)
        self.missing = "".join(map(chr, sorted(left)))

    def shown(self, text: str) -> str:
        """Return a text with the letters that no font has written as numbers, as `ascii` does."""
        return "".join(ascii(c)[1:-1] if c in self.missing else c for c in text)

    def bold(self, text: str) -> bool:
        """Whether a text can be set in bold: fonts for other scripts are looked for in their usual weight alone."""
        return all(ord(c) in self._mono for c in text)


def _usable(font: font_manager.FontEntry) -> bool:
    """Leave out slanted and bold ones, and those that have a box with a number for every letter there is."""
    return font.style == "normal" and font.weight in (400, "normal") and "Last Resort" not in font.name


def _add_new_fonts() -> None:
    """Tell matplotlib of fonts that were installed since it made its list."""
    known = {font.fname for font in font_manager.fontManager.ttflist}
    for path in sorted({*font_manager.findSystemFonts()} - known):
        try:
            font_manager.fontManager.addfont(path)
        except Exception:  # not a font that FreeType reads
            continue


def cells(text: str) -> int:
    """Return how many letters of MONO a text is as wide as."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


# ---------------------------------------------------------------- drawing


def figure(picture: Picture, svg: Svg) -> FlowFigure:
    """Return a picture as a figure of its own size."""
    made = FlowFigure(figsize=(picture.width * _POINTS / 72, picture.height * _POINTS / 72), facecolor="white")
    made.svg = svg
    FigureCanvasAgg(made)
    ax = page_axes(made, picture.width, picture.height)
    fonts = Fonts(words.text for words in _all_words(picture))
    for words in picture.head:
        _words(ax, words, 0.0, 0.0, _POINTS, fonts)
    for row, top in zip(picture.rows, picture.tops, strict=False):
        draw_row(ax, row, 0.0, top, _POINTS, fonts)
    for i, words in enumerate(picture.foot):
        _words(ax, words, 0.0, picture.tops[-1] + 14 * (i + 1) - 4, _POINTS, fonts)
    return made


def page_axes(figure: Figure, width: float, height: float) -> Axes:
    """Return axes that cover a figure, counted from its upper left corner."""
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_axis_off()
    return ax


def draw_row(ax: Axes, row: Row, x: float, y: float, points: float, fonts: Fonts, scale: float = 1.0) -> None:
    """Draw one row from (x, y); a unit of the picture is so many `points`, and `scale` units of the axes."""
    for path in row.paths:
        _path(ax, path, x, y, points, scale)
    for box in row.boxes:
        _box(ax, box, x, y, points, scale)
        for words in box.words:
            _words(ax, words, x, y, points, fonts, scale)
    for words in row.words:
        _words(ax, words, x, y, points, fonts, scale)


def write(
    ax: Axes, x: float, y: float, runs: Sequence[Run], size: float, unit: float, fonts: Fonts, **look: Any
) -> None:
    """Write runs one after another from (x, y), `size` in points, `unit` points in one unit of the axes."""
    for text, symbol in runs:
        text = fonts.shown(text)
        colour = axis_colour(symbol)[0] if symbol else look.get("color", _INK)
        weight = "bold" if symbol else look.get("weight", "normal")
        weight = weight if fonts.bold(text) else "normal"
        ax.add_artist(
            Text(x, y, text, color=colour, weight=weight, fontsize=size, family=fonts.families, parse_math=False)
        )
        x += cells(text) * ADVANCE * size / unit


def _all_words(picture: Picture) -> list[Words]:
    rows = [w for row in picture.rows for w in (*row.words, *(v for box in row.boxes for v in box.words))]
    return [*picture.head, *rows, *picture.foot]


def _words(ax: Axes, words: Words, x: float, y: float, points: float, fonts: Fonts, scale: float = 1.0) -> None:
    look: dict[str, Any] = {
        "weight": "bold" if words.bold else "normal",
        "color": _SOFT if words.role == "note" else _INK,
    }
    at = x + words.x * scale, y + words.y * scale
    write(ax, *at, words.runs, words.size * points, points / scale, fonts, **look)


def _box(ax: Axes, box: Box, x: float, y: float, points: float, scale: float) -> None:
    left, top, width, height = x + box.x * scale, y + box.y * scale, box.width * scale, box.height * scale
    if box.style == "dot":
        ax.add_patch(Circle((left + width / 2, top + height / 2), width / 2, facecolor=_INK, edgecolor="none"))
        return
    round_ = min({"add": 13.0, "input": 11.0, "output": 11.0}.get(box.style, 4.0) * scale, height / 2, width / 2)
    edge = {"stopped": _STOP, "from": _SOFT, "to": _SOFT}.get(box.style, _INK)
    wide = {"add": 2.0, "stopped": 3.0}.get(box.style, 1.0) * points
    dashes: Any = {"step": (0, (4, 3)), "from": (0, (1, 3)), "to": (0, (1, 3))}.get(box.style, "solid")
    face = _BAND if box.style in ("box", "stopped") else "white"
    style = f"round,pad=0,rounding_size={round_}"
    patch = FancyBboxPatch(
        (left, top), width, height, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=wide, linestyle=dashes
    )
    ax.add_patch(patch)


def _path(ax: Axes, path: Path, x: float, y: float, points: float, scale: float) -> None:
    way = [(x + px * scale, y + py * scale) for px, py in path.points]
    wide = {"rail": 3.5, "frame": 1.0}.get(path.style, 1.2) * points
    colour = _INK if path.style == "rail" else _SOFT
    if path.arrow:
        tip, size = way[-1], (4.5 if path.style == "rail" else 3.5) * scale
        way[-1] = (tip[0] - size, tip[1])
        corners = [tip, (tip[0] - 2 * size, tip[1] - size), (tip[0] - 2 * size, tip[1] + size)]
        ax.add_patch(Polygon(corners, facecolor=_INK, edgecolor="none"))
    xs, ys = zip(*way, strict=True)
    ax.add_line(Line2D(xs, ys, color=colour, linewidth=wide, solid_capstyle="butt", solid_joinstyle="miter"))
