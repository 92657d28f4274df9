"""The printable shape sheet of one run: A4 pages as PDF, made with matplotlib alone, readable in black and white.

Title and sizes, a card of the letters in use, the flow figure, then each line of code with its named shapes and their
sizes. Long code is wrapped, never cut; letters that no installed font has stand as numbers, and the sheet says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .drawing import ADVANCE, Fonts, cells, draw_row, page_axes, write
from .records import Line
from .render.layout import (
    MEANINGS,
    Chain,
    Repeat,
    Sheet,
    chains,
    concrete,
    fold,
    header_sizes,
    lines,
    memory_word,
    place,
    plain,
    told_apart,
)
from .render.plan import Picture, Run, runs_of
from .render.text import chain_text
from .speech import say, say_count

__all__ = ["pages", "save"]

WIDTH, HEIGHT = 595.28, 841.89
"""A4, in points."""
MARGIN = 40.0
_CODE, _SIZE, _HEAD, _TITLE = 7.5, 7.5, 9.0, 15.0
_LEADING = 10.0
_SPLIT = 42
"""Characters of the column of code; the rest of the width belongs to the shapes."""
_LETTER = _SIZE * ADVANCE
_COLUMNS = int((WIDTH - 2 * MARGIN) / _LETTER)
_SOFT = "#595959"


@dataclass(frozen=True)
class _Text:
    """One line of text on the sheet, from `x` points right of the margin."""

    x: float
    runs: tuple[Run, ...]
    size: float = _SIZE
    weight: str = "normal"
    color: str = "#1c1c1c"

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.runs)


@dataclass(frozen=True)
class _Block:
    """What stays together on a page: so high, drawn from its top; `rule`: a thin line stands above it."""

    height: float
    draw: Callable[[Axes, float, Fonts], None]
    texts: tuple[str, ...]
    rule: bool = False
    keep: bool = False
    """does not stand last on a page: a heading"""


def save(sheet: Sheet, picture: Picture, path: str | Path, title: str = "") -> int:
    """Write the sheet as PDF, the same bytes for the same run, and return its number of pages.

    Raises:
        OSError: the file cannot be written.
    """
    made, fonts = _made(sheet, picture, title)
    kind = 42 if fonts.truetype else 3  # 3 draws each letter
    with matplotlib.rc_context({"pdf.fonttype": kind}), open(path, "wb") as file:
        facts: Any = {"Title": plain(title or picture.title), "Creator": None, "Producer": None, "CreationDate": None}
        with PdfPages(file, metadata=facts) as pdf:
            for page in made:
                pdf.savefig(page)
    return len(made)


def pages(sheet: Sheet, picture: Picture, title: str = "") -> list[Figure]:
    """Return the pages of the sheet as figures."""
    return _made(sheet, picture, title)[0]


def _made(sheet: Sheet, picture: Picture, title: str) -> tuple[list[Figure], Fonts]:
    blocks = [*_top(sheet, title or picture.title), *_flow(picture), *_table(sheet)]
    footer = say("page {n} of {count}", n=0, count=0)
    fonts = Fonts([title, footer, *(text for block in blocks for text in block.texts)])
    if fonts.missing:
        blocks[1:1] = _note(_missing(fonts.missing))
    leaves: list[list[tuple[float, _Block]]] = [[]]
    y, bottom = MARGIN, HEIGHT - MARGIN - 14
    for i, block in enumerate(blocks):
        need = block.height
        for before, after in pairwise(blocks[i:]):
            if not before.keep:
                break
            need += after.height
        if y + need > bottom and leaves[-1]:
            leaves.append([])
            y = MARGIN
        leaves[-1].append((y, block))
        y += block.height
    name = plain(title or picture.title)
    return [_page(leaf, n, len(leaves), name, fonts) for n, leaf in enumerate(leaves, start=1)], fonts


def _page(leaf: Sequence[tuple[float, _Block]], n: int, count: int, title: str, fonts: Fonts) -> Figure:
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), facecolor="white")
    FigureCanvasPdf(figure)
    ax = page_axes(figure, WIDTH, HEIGHT)
    for y, block in leaf:
        if block.rule and y > MARGIN:
            ax.add_line(Line2D((MARGIN, WIDTH - MARGIN), (y, y), color="#c9c9c9", linewidth=0.4))
        block.draw(ax, y, fonts)
    text = say("page {n} of {count}", n=n, count=count)
    y = HEIGHT - MARGIN + 8
    write(ax, MARGIN, y, ((_first(title, _COLUMNS - len(text) - 4), ""),), _SIZE, 1.0, fonts, color=_SOFT)
    write(ax, WIDTH - MARGIN - len(text) * _LETTER, y, ((text, ""),), _SIZE, 1.0, fonts, color=_SOFT)
    return figure


def _first(text: str, most: int) -> str:
    return text if cells(text) <= most else wrapped(text, most - 1)[0] + "…"


def _missing(letters: str) -> str:
    return say(
        "No installed font has these letters, so they stand as numbers: {numbers}. Noto Sans CJK has Korean, Chinese "
        "and Japanese.",
        numbers=" ".join(ascii(c)[1:-1] for c in letters[:8]) + (" …" if len(letters) > 8 else ""),
    )


# ---------------------------------------------------------------- text


def wrapped(text: str, most: int, indent: str = "") -> list[str]:
    """Return a text in lines of at most so many letters' width, broken at a space or comma where one is near.

    Example:
        >>> wrapped("q = self.c_attn(x).split(C)", 16, "  ")
        ['q = self.c_attn(', '  x).split(C)']
    """
    found: list[str] = []
    line = ""
    for piece in _pieces(text):
        for part in _chopped(piece, most - len(indent)):
            if line and cells(line) + cells(part.rstrip()) > most:
                found.append(line)
                line = indent
            line += part
    return [*found, line] if line.strip() or not found else found


def _pieces(text: str) -> list[str]:
    """Return a text in pieces that a line may end after: at spaces, commas, and before a dot of a call."""
    found = [""]
    for before, c in zip(" " + text, text, strict=False):
        if (before in " ,(" and c != " ") or (c == "." and before == ")"):
            found.append("")
        found[-1] += c
    return [piece for piece in found if piece]


def _chopped(piece: str, most: int) -> list[str]:
    found = [""]
    for c in piece:
        if cells(found[-1]) + cells(c) > most:
            found.append("")
        found[-1] += c
    return found


def _lines(texts: Iterable[_Text], *, rule: bool = False, keep: bool = False, pad: float = 2.0) -> _Block:
    """Return texts under one another as a block."""
    shown = list(texts)
    heights = [max(_LEADING, text.size * 1.35) for text in shown]

    def draw(ax: Axes, y: float, fonts: Fonts) -> None:
        y += pad
        for text, height in zip(shown, heights, strict=True):
            write(
                ax,
                MARGIN + text.x,
                y + height * 0.8,
                text.runs,
                text.size,
                1.0,
                fonts,
                weight=text.weight,
                color=text.color,
            )
            y += height

    return _Block(sum(heights) + 2 * pad, draw, tuple(text.text for text in shown), rule, keep)


def _note(text: str) -> list[_Block]:
    return [_lines(_Text(0, ((line, ""),)) for line in wrapped(text, _COLUMNS, "  "))]


def _heading(text: str) -> _Block:
    return _lines([_Text(0, ((plain(text), ""),), 11.0, "bold")], keep=True, pad=6.0)


# ---------------------------------------------------------------- the parts of a sheet


def _top(sheet: Sheet, title: str) -> list[_Block]:
    """Return title, counts, warnings, and the card of the letters in use."""
    most = int((WIDTH - 2 * MARGIN) / (_TITLE * ADVANCE))
    blocks = [_lines((_Text(0, ((line, ""),), _TITLE, "bold") for line in wrapped(plain(title), most)), keep=True)]
    count = say_count("{n} operation", "{n} operations", len(sheet.ops))
    blocks += _note(say("Shape sheet of one run: {count}, {device}", count=count, device=sheet.device or "-"))
    for warning in sheet.warnings:
        blocks += _note(f"! {plain(' '.join(warning.split()))}")
    if sheet.failed is not None:
        blocks += _note("! " + say("Stopped here: {name} raised an error.", name=sheet.failed.name))
    sizes = header_sizes(sheet)
    if sizes:
        blocks.append(_heading(say("Letters and sizes")))
    cards = [_card(name, size) for name, size in sizes.items()]
    half = (len(cards) + 1) // 2
    for left, right in zip(cards[:half], [*cards[half:], ()], strict=False):
        texts = [(0.0, left), ((WIDTH - 2 * MARGIN) / 2, right)]
        blocks.append(_beside(texts))
    return blocks


def _card(name: str, size: str) -> tuple[Run, ...]:
    """Return `H = 3   query heads`."""
    known = MEANINGS.get(name)
    meaning = f"{' ' * max(3, 10 - cells(f'{name} = {size}'))}{say(known)}" if known else ""
    return (*runs_of(f"[{name}]")[1:-1], (f" = {size}{meaning}", ""))


def _beside(texts: Sequence[tuple[float, tuple[Run, ...]]]) -> _Block:
    def draw(ax: Axes, y: float, fonts: Fonts) -> None:
        for x, runs in texts:
            write(ax, MARGIN + x, y + 9, runs, _HEAD, 1.0, fonts)

    return _Block(12.0, draw, tuple("".join(t for t, _ in runs) for _, runs in texts))


def _flow(picture: Picture) -> list[_Block]:
    """Return the rows of the flow figure, made to fit the width of the page."""
    scale = min(
        0.75, (WIDTH - 2 * MARGIN) / picture.width, *((HEIGHT - 3 * MARGIN) / (row.height + 20) for row in picture.rows)
    )
    blocks = [_heading(say("Flow"))]

    def block(row: Any) -> _Block:
        texts = tuple(w.text for w in (*row.words, *(v for box in row.boxes for v in box.words)))
        return _Block(
            (row.height + 16) * scale,
            lambda ax, y, fonts: draw_row(ax, row, MARGIN, y + 4 * scale, scale, fonts, scale),
            texts,
        )

    blocks += [block(row) for row in picture.rows]
    for words in picture.foot:
        blocks.append(_lines([_Text(0, words.runs, color=_SOFT)], pad=0.0))
    return blocks


def _table(sheet: Sheet) -> list[_Block]:
    """Return every line of code with its chains of named shapes; repeated blocks once."""
    if not sheet.ops and sheet.failed is None:
        return []
    blocks = [_heading(say("Line by line: code, named shapes, sizes"))]
    module: str | None = None

    def walk(items: Iterable[Line | Repeat]) -> None:
        nonlocal module
        for item in items:
            if isinstance(item, Repeat):
                walk(item.first)
                blocks.append(
                    _lines(
                        [_Text(0, ((t, ""),), weight="bold") for t in wrapped(plain(item.note), _COLUMNS)], rule=True
                    )
                )
                module = None
                continue
            if item.module != module:
                module = item.module
                name = plain(module or say("top level"))
                blocks.append(
                    _lines([_Text(0, ((t, ""),), _HEAD, "bold") for t in wrapped(name, 90)], rule=True, keep=True)
                )
            blocks.extend(_entry(item))

    walk(fold(lines(sheet.ops)))
    if sheet.failed is not None:
        failed = sheet.failed
        told = say("Stopped here: {name} raised an error.", name=failed.name)
        operands = f"{failed.name}({', '.join(info.label for info in failed.inputs)})"
        code = failed.source.code if failed.source else ""
        for text in (told, f"{failed.module}   {place(failed.source)}   {code}", operands):
            blocks += _note(plain(text))
    return blocks


def _entry(line: Line) -> list[_Block]:
    """Return one line of code beside its shapes; several blocks where it is higher than a page should be."""
    left = [_Text(0, ((place(line.source), ""),), 6.5, color=_SOFT)]
    if line.source:
        left += [_Text(0, ((t, ""),), _CODE) for t in wrapped(plain(line.source.code), _SPLIT, "  ")]
    shift = (_SPLIT + 2) * _LETTER
    room = _COLUMNS - _SPLIT - 2
    right: list[_Text] = []
    for chain in chains(line):
        indent, shown, memory = "  " if chain.inner else "", plain(chain_text(chain)), _memory(chain)
        fits = cells(indent + shown + memory) <= room
        shown, memory = (shown + memory, "") if fits else (shown, memory.strip())
        right += [_Text(shift, runs_of_line(indent + t)) for t in wrapped(shown, room - len(indent), "  ")]
        right += [_Text(shift, ((f"  {t}", ""),), color=_SOFT) for t in wrapped(_sizes(chain), room - 2)]
        right += [_Text(shift, ((f"  {t}", ""),)) for t in wrapped(memory, room - 2) if memory]
        if label := told_apart(chain):
            right += [_Text(shift, ((f"  {t}", ""),)) for t in wrapped(say("that is {label}", label=label), room - 2)]
    count = max(len(left), len(right))
    most = 60
    return [_pair(left[i : i + most], right[i : i + most], i == 0) for i in range(0, count, most)]


def runs_of_line(text: str) -> tuple[Run, ...]:
    """Return a line that may begin or end within brackets in runs, each axis with its symbol."""
    opened = text.find("]") >= 0 and (text.find("[") < 0 or text.find("]") < text.find("["))
    closed = text.rfind("[") > text.rfind("]")
    runs = runs_of(("[" if opened else "") + text + ("]" if closed else ""))
    if opened:
        runs = ((runs[0][0][1:], ""), *runs[1:])
    if closed:
        runs = (*runs[:-1], (runs[-1][0][:-1], ""))
    return tuple(run for run in runs if run[0])


def _memory(chain: Chain) -> str:
    words = [memory_word(step.op) for step in chain.steps]
    return f"   # {', '.join(say(w) for w in words if w)}" if any(w not in ("", "new") for w in words) else ""


def _sizes(chain: Chain) -> str:
    """Return the sizes of a chain: `2·5·21 -> 2·5·3·7`."""
    found = [concrete(chain.start)] if chain.start else []
    for step in chain.steps:
        beside = f" {step.sign} {' '.join(map(concrete, step.others))}" if step.sign else ""
        if beside and found:
            found[-1] += beside
        outputs = list(dict.fromkeys(map(concrete, step.op.outputs)))
        found.append(", ".join(outputs) or "-")
    return " -> ".join(found)


def _pair(left: Sequence[_Text], right: Sequence[_Text], rule: bool) -> _Block:
    one, two = _lines(left), _lines(right)

    def draw(ax: Axes, y: float, fonts: Fonts) -> None:
        one.draw(ax, y, fonts)
        two.draw(ax, y, fonts)

    return _Block(max(one.height, two.height), draw, (*one.texts, *two.texts), rule)
