"""Attention maps as a matplotlib figure, for print and slides: the panels and steps of `heat`, in its colours.

A font that has all letters of the labels is looked for among the installed ones; without it labels give way to numbers
and the figure says which font to install, since empty boxes say nothing.
"""

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from math import ceil

from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from ..speech import say
from .heat import BOUNDS, LIGHT, NUMBERED, Panel, ink, level, short

__all__ = ["figure", "font_for"]

PREFERRED = (
    *("DejaVu Sans", "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo"),
    *("AppleGothic", "Noto Sans CJK JP", "Noto Sans CJK SC"),
)
_REGULAR = (400, "normal", "regular", "book")


def font_for(letters: str) -> str | None:
    """Return the path of an installed font that has all these letters, or None; one that draws boxes is none."""
    wanted = {ord(letter) for letter in letters if not letter.isspace()}
    fonts = font_manager.fontManager.ttflist
    rank = {name: i for i, name in enumerate(PREFERRED)}
    plain = [f for f in fonts if f.style == "normal" and f.weight in _REGULAR and "lastresort" not in f.fname.lower()]
    for font in sorted(plain, key=lambda f: (rank.get(f.name, len(rank)), f.name)):
        if wanted <= _letters(font.fname):
            return str(font.fname)
    return None


@cache
def _letters(path: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(path).get_charmap())
    except Exception:  # a font file that is damaged, or of a kind that FreeType cannot read
        return frozenset()


def figure(panels: Sequence[Panel | None], columns: int) -> Figure:
    """Return panels in rows of `columns`; None leaves its place empty."""
    columns = max(1, min(columns, len(panels)))
    rows = ceil(len(panels) / columns)
    drawn = [panel for panel in panels if panel is not None]
    letters = "".join(label for panel in drawn for label in (*map(short, panel.queries), *map(short, panel.keys)))
    path = font_for(letters)
    made = Figure(figsize=(3.4 * columns, 3.7 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(made)
    axes = made.subplots(rows, columns, squeeze=False)
    for ax, panel in zip_longest(axes.flat, panels):
        if panel is None:
            ax.set_axis_off()
        else:
            _draw(ax, panel, path)
    if path is None:
        say_so = (
            "No installed font has all letters of the tokens: positions are numbered. A font that has them is Noto "
        )
        say_so += "Sans CJK (Debian: fonts-noto-cjk)."
        made.supxlabel(say(say_so), fontsize=8)
    return made


def _draw(ax: Axes, panel: Panel, path: str | None) -> None:
    """Draw one panel."""
    cells = [
        [float("nan") if c else w for w, c in zip(weights, closed, strict=True)]
        for weights, closed in zip(panel.weights, panel.closed, strict=True)
    ]
    colours = ListedColormap(LIGHT)
    ax.patch.set(hatch="////", edgecolor="#777777", facecolor="white")  # shows through where a mask closed a cell
    shown = ax.imshow(cells, cmap=colours, norm=BoundaryNorm([*BOUNDS, 1.0001], len(LIGHT)), aspect="auto")
    shown.set_clip_on(True)
    font = font_manager.FontProperties(fname=path, size=8) if path else font_manager.FontProperties(size=8)
    for axis, labels in ((ax.xaxis, panel.keys), (ax.yaxis, panel.queries)):
        every = max(1, ceil(len(labels) / 24))
        words = [short(label) if path else str(i) for i, label in enumerate(labels)]
        axis.set_ticks(range(0, len(labels), every), words[::every])
    for label in ax.get_xticklabels():
        label.set(rotation=90, fontproperties=font)
    for label in ax.get_yticklabels():
        label.set(fontproperties=font)
    ax.set_title(f"{panel.layer}\n{panel.title}", fontsize=9)
    ax.set_xlabel(
        say("keys ({axis}); entropy {bits} bits", axis=panel.axes[1], bits=f"{panel.entropy:.2f}"), fontsize=8
    )
    ax.set_ylabel(say("queries ({axis}); sums {low} to {high}", axis=panel.axes[0], low=f"{min(panel.sums):.2f}",
                      high=f"{max(panel.sums):.2f}"), fontsize=8)  # fmt: skip
    if len(panel.keys) <= NUMBERED:
        for i, (weights, closed) in enumerate(zip(panel.weights, panel.closed, strict=True)):
            for j, (weight, shut) in enumerate(zip(weights, closed, strict=True)):
                if not shut:
                    colour = ink(LIGHT[level(weight)])
                    ax.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=colour)
