"""The flow figure as SVG: one element that needs nothing else, light and dark, and readable in black and white.

Colours only help: a module has a solid edge, a line of code a dashed one, the residual stream is thick, axes have their
names. What is drawn, and where, comes from `plan`.
"""

from collections.abc import Iterable

from .colours import axis_colour
from .html import esc
from .plan import Box, Path, Picture, Words

__all__ = ["Svg", "to_svg"]

_FONT = "Menlo,Consolas,'DejaVu Sans Mono',ui-monospace,monospace"
_LIGHT = {"bg": "#ffffff", "fg": "#1c1c1c", "soft": "#595959", "box": "#f3f3f3", "line": "#595959", "stop": "#8a3b00"}
_DARK = {"bg": "#111111", "fg": "#f2f2f2", "soft": "#b8b8b8", "box": "#222222", "line": "#b8b8b8", "stop": "#ffb870"}
_RULES = (
    ".bg{fill:var(--bg)}text{fill:var(--fg);white-space:pre}.soft,.note{fill:var(--soft)}"
    ".box,.step,.add,.input,.output,.stopped{fill:var(--box);stroke:var(--fg)}"
    ".step{stroke-dasharray:4 3;fill:var(--bg)}.add{fill:var(--bg);stroke-width:2}.input,.output{fill:var(--bg)}"
    ".stopped{stroke:var(--stop);stroke-width:3}.from,.to{fill:none;stroke:var(--line);stroke-dasharray:1 3}"
    ".net,.rail,.frame{fill:none;stroke:var(--line);stroke-width:1.2}.rail{stroke:var(--fg);stroke-width:3.5}"
    ".frame{stroke:var(--soft)}.head{fill:var(--fg);stroke:none}.dot{fill:var(--fg)}"
)


class Svg(str):
    """The text of a figure; a notebook shows the figure itself."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def to_svg(picture: Picture) -> Svg:
    """Return the picture as one `<svg>` element."""
    words = [
        *picture.head,
        *(w for row in picture.rows for w in (*row.words, *(v for b in row.boxes for v in b.words))),
    ]
    symbols = sorted({symbol for one in words for _, symbol in one.runs if symbol})
    parts = [f'<rect class="bg" width="{_n(picture.width)}" height="{_n(picture.height)}"/>']
    parts += [_words(one) for one in picture.head]
    for row, top in zip(picture.rows, picture.tops, strict=False):
        inner = (
            [_path(path) for path in row.paths] + [_box(box) for box in row.boxes] + [_words(one) for one in row.words]
        )
        parts.append(f'<g transform="translate(0 {_n(top)})">{"".join(inner)}</g>')
    for i, one in enumerate(picture.foot):
        parts.append(_words(one, picture.tops[-1] + 14 * (i + 1) - 4))
    size = f'viewBox="0 0 {_n(picture.width)} {_n(picture.height)}" width="{_n(picture.width)}"'
    lines = "\n".join(map(esc, picture.text))
    return Svg(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="st-flow" role="img" {size} '
        f'style="max-width:100%;height:auto" font-family="{_FONT}">'
        f"<title>{esc(picture.title)}</title><desc>{lines}</desc>"
        f"<style>{_style(symbols)}</style>{''.join(parts)}</svg>\n"
    )


def _style(symbols: Iterable[str]) -> str:
    """Return the rules: variables for light and dark, the axes in use, and how each kind of thing looks."""
    shown = list(symbols)
    rules = _RULES + "".join(f".{_class(s)}{{fill:var(--{_class(s)});font-weight:bold}}" for s in shown)
    scoped = "".join(f".st-flow {rule}}}" for rule in rules.split("}") if rule).replace(",.", ",.st-flow .")
    both = []
    for theme, i in ((_LIGHT, 0), (_DARK, 1)):
        names = {**theme, **{_class(s): axis_colour(s)[i] for s in shown}}
        both.append("".join(f"--{k}:{v};" for k, v in names.items()))
    light, dark = both
    dark_pages = "body[data-jp-theme-light=false] .st-flow,body.vscode-dark .st-flow,html[theme=dark] .st-flow"
    light_pages = "body[data-jp-theme-light=true] .st-flow,body.vscode-light .st-flow,html[theme=light] .st-flow"
    return (
        f".st-flow{{{light}}}@media screen and (prefers-color-scheme:dark){{.st-flow{{{dark}}}}}"
        f"@media screen{{{dark_pages}{{{dark}}}{light_pages}{{{light}}}}}{scoped}"
    )


def _class(symbol: str) -> str:
    """Return the class of an axis: one for all figures of a page, and names that differ in case alone stay apart."""
    return f"a{symbol.encode().hex()}"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _box(box: Box) -> str:
    if box.style == "dot":
        return f'<circle class="dot" cx="{_n(box.x + 3)}" cy="{_n(box.y + 3)}" r="3"/>'
    radius = {"add": 13.0, "input": 11.0, "output": 11.0}.get(box.style, 4.0)
    tip = f"<title>{esc(box.tip)}</title>" if box.tip else ""
    shape = (
        f'<rect class="{box.style}" x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        f'rx="{_n(min(radius, box.height / 2))}"/>'
    )
    return f"<g>{tip}{shape}{''.join(_words(one) for one in box.words)}</g>"


def _path(path: Path) -> str:
    points = list(path.points)
    head = ""
    if path.arrow:
        (x0, _), (x, y) = points[-2:]
        del x0
        size = 4.5 if path.style == "rail" else 3.5
        head = f'<path class="head" d="M{_n(x)} {_n(y)}l{_n(-2 * size)} {_n(-size)}v{_n(2 * size)}z"/>'
        points[-1] = (x - size, y)
    way = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    return f'<polyline class="{path.style}" points="{way}"/>{head}'


def _words(words: Words, y: float | None = None) -> str:
    runs = "".join(f'<tspan class="{_class(s)}">{esc(t)}</tspan>' if s else esc(t) for t, s in words.runs)
    bold = ' font-weight="bold"' if words.bold else ""
    kind = ' class="note"' if words.role == "note" and not any(s for _, s in words.runs) else ""
    at = f'x="{_n(words.x)}" y="{_n(words.y if y is None else y)}" font-size="{_n(words.size)}"'
    return f"<text{kind} {at}{bold}>{runs}</text>"
