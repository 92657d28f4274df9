"""The memory picture: the cells of the storage in order, and the tensor's grid before and after, as one SVG.

A plain function from an operation to SVG text, with a text form of its own. Each cell of a grid bears the number of its
place in memory; a shade of the axis colour tells pieces apart and is never the only sign. Large tensors are drawn from
their ends. What is said about memory comes from `storage`; all text goes through `esc`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod

from ..costs import bytes_of
from ..records import Op, TensorInfo
from ..speech import say, say_count
from .colours import axis_colour
from .html import esc, label_html, style
from .layout import memory_word, plain
from .layout import place as line_of
from .motion import Read, motion
from .storage import before_of, memory_sentence, strides_text, why_needed
from .words import axis, groups_of, listed, shape

__all__ = ["Picture", "Shared", "Sharing", "memory_svg", "memory_text", "picture", "sharing"]

WIDTH = 400
"""Width of the picture in its own units; it grows and shrinks with the page."""
_CHAR = 5.8
"""Width of a letter; the fonts that may come are at most so wide at this size."""
_HEIGHT, _GAP = 20, 8
_MOST_ROWS, _MOST_COLUMNS, _MOST_BLOCKS, _MOST_LINES = 6, 8, 6, 3
_SHADES = (0.08, 0.2, 0.32, 0.44)
_TEXT_CELLS = 64
"""Up to so many cells the text form lists them all."""

Index = tuple[int, ...]


def memory_svg(op: Op, note: str = "") -> str:
    """Return the picture of what memory did in one operation, with the shades, the strides and the text form inside.

    `note` is one more sentence to stand beneath it: why a copy is needed here.
    """
    page = _Page()
    title = say("memory of operation {index}, {name}", index=op.index, name=op.name)
    page.text(title, bold=True)
    for sentence in _sentences(memory_sentence(op)) + ([note] if note else []):
        page.text(sentence)
    if op.outputs and op.outputs[0].stride is not None and op.outputs[0].offset is not None:
        _draw(op, page)
    return page.svg(title, memory_text(op, note))


def memory_text(op: Op, note: str = "") -> str:
    """Return what the picture shows as text: a small tensor's places in memory, in the order of its axes."""
    lines = [memory_sentence(op), *([note] if note else [])]
    out, before = op.outputs[0] if op.outputs else None, before_of(op)
    for word, info in ((say("before"), before), (say("after"), out)):
        if info is not None and info.stride is not None and 0 < prod(info.shape) <= _TEXT_CELLS:
            numbers = " ".join(str(place(info, index)) for index in product(*map(range, info.shape)))
            lines.append(say("{when}, {x}: places {numbers}", when=word, x=shape(info), numbers=numbers))
    return "\n".join(lines)


def _sentences(text: str) -> list[str]:
    return [f"{part.removesuffix('.')}." for part in text.split(". ")]


# ---------------------------------------------------------------- what a trace gives


@dataclass(frozen=True)
class Picture:
    """What memory did in one operation: `str` gives it as text, a notebook shows the picture, `svg` is the picture."""

    op: Op
    note: str = ""
    """why the copy that it made is needed, where that can be told"""

    @property
    def svg(self) -> str:
        """The picture as SVG text."""
        return memory_svg(self.op, self.note)

    def __str__(self) -> str:
        head = say("operation {index}, {name}:", index=self.op.index, name=self.op.name)
        return "\n".join(plain(line) for line in (head, *memory_text(self.op, self.note).splitlines()))

    def _repr_html_(self) -> str:
        return f'<div class="shape-tracer">{style(())}{self.svg}</div>'


def picture(op: Op, later: Iterable[Op]) -> Picture:
    """Return the picture of one operation; `later` are those after it, which tell what a copy is needed for."""
    return Picture(op, why_needed(op, later))


@dataclass(frozen=True)
class Shared:
    """One memory: its number, the bytes that are known of it, and its tensors with the operation that made each."""

    storage: int
    bytes: int
    tensors: tuple[tuple[TensorInfo, Op | None], ...]


@dataclass(frozen=True)
class Sharing:
    """Which tensors of a run share one memory: a row for each memory that has several; printable, with HTML."""

    rows: tuple[Shared, ...]

    def __str__(self) -> str:
        lines = [] if self.rows else [say("No two tensors share memory.")]
        for row in self.rows:
            lines += [_head(row), *(f"    {plain(_made(*one))}" for one in row.tensors)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.rows:
            return f'<div class="shape-tracer">{style(())}<p>{esc(self)}</p></div>'
        axes = {name for row in self.rows for info, _ in row.tensors for name in info.axes}
        heads = "".join(f'<th scope="col">{esc(h)}</th>' for h in (say("memory"), say("tensors that share it")))
        caption = esc(say("Tensors that share memory: what is written into one is seen in all."))
        top = f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
        body = "".join(map(_row, self.rows))
        return f'<div class="shape-tracer">{style(axes)}<table class="st-t">{top}<tbody>{body}</tbody></table></div>'


def _row(row: Shared) -> str:
    tensors = "<br>".join(_made_html(*one) for one in row.tensors)
    return f'<tr><th scope="row">{esc(_head(row))}</th><td>{tensors}</td></tr>'


def _head(row: Shared) -> str:
    text = say_count("{n} tensor", "{n} tensors", len(row.tensors))
    return say("memory {number}, {bytes:,} bytes, {tensors}", number=row.storage, bytes=row.bytes, tensors=text)


def _made(info: TensorInfo, op: Op | None) -> str:
    return " ".join(part for part in (info.variable or "", info.label, _by(info, op)) if part)


def _made_html(info: TensorInfo, op: Op | None) -> str:
    name = f"<code>{esc(info.variable)}</code> " if info.variable else ""
    return f'{name}<span class="st-l">{label_html(info.label)}</span> <small>{esc(_by(info, op))}</small>'


def _by(info: TensorInfo, op: Op | None) -> str:
    strides = strides_text(info.stride or ())
    if op is None:
        return say("from outside, strides {strides}", strides=strides)
    text = "by {name}, operation {index} ({place}), strides {strides}"
    return say(text, name=op.name, index=op.index, place=line_of(op.source), strides=strides)


def sharing(ops: Iterable[Op]) -> Sharing:
    """Return the memories that several tensors of a run share, in the order in which they were met.

    A tensor that an operation changed in place, or gave back as it came, is the same tensor still and counts once.
    """
    found: dict[int, dict[int, tuple[TensorInfo, Op | None]]] = {}
    for op in ops:
        for info, maker in [*((i, None) for i in op.inputs), *((o, op) for o in op.outputs)]:
            if info.storage is not None:
                found.setdefault(info.storage, {}).setdefault(info.id, (info, maker))
    rows = [
        Shared(storage, max(bytes_of(info) for info, _ in tensors.values()), tuple(tensors.values()))
        for storage, tensors in found.items()
        if len(tensors) > 1
    ]
    return Sharing(tuple(rows))


# ---------------------------------------------------------------- places and indices


def place(info: TensorInfo, index: Sequence[int]) -> int:
    """Return the place in memory of one entry, counted in entries from the start of the storage."""
    return (info.offset or 0) + sum(i * s for i, s in zip(index, info.stride or (), strict=True))


def entry_at(info: TensorInfo, where: int) -> Index | None:
    """Return the entry that stands at a place, or None; of entries that share the place, the first."""
    rest = where - (info.offset or 0)
    index = [0] * len(info.shape)
    for step, at in sorted(((s, i) for i, s in enumerate(info.stride or ())), reverse=True):
        if step > 0:
            index[at] = min(rest // step, info.shape[at] - 1) if rest > 0 else 0
            rest -= index[at] * step
    return tuple(index) if rest == 0 else None


def span(infos: Iterable[TensorInfo]) -> tuple[int, int]:
    """Return the first place that some tensors have in one memory, and the place after their last one."""
    ends = [(place(i, [0] * len(i.shape)), place(i, [n - 1 for n in i.shape])) for i in infos if prod(i.shape) > 0]
    return (min(first for first, _ in ends), max(last for _, last in ends) + 1) if ends else (0, 0)


def source(read: Read, index: Index, out: Index, shape: Index) -> Index | None:
    """Return the one input entry that a result's entry reads, or None where it is several or not known."""
    if read is None:
        return None
    if read[0] == "flat":
        number = 0
        for i, n in zip(index, out, strict=True):
            number = number * n + i
        found: list[int] = []
        for n in reversed(shape):
            found.append(number % n)
            number //= n
        return tuple(reversed(found))
    places: list[int] = []
    for entry, n in zip(read[1], shape, strict=True):
        if entry == "all" and n > 1:
            return None
        i = 0 if entry == "all" or n == 1 else index[entry] if isinstance(entry, int) else index[entry[0]] - entry[1]
        if not 0 <= i < n:
            return None
        places.append(i)
    return tuple(places)


def shown(n: int, most: int) -> list[int | None]:
    """Return the indices to draw: all of them, or the first ones, None for what is left out, and the last."""
    return list(range(n)) if n <= most else [*range(max(most - 2, 1)), None, n - 1]


# ---------------------------------------------------------------- shades


@dataclass(frozen=True)
class _Shade:
    """The axis whose indices the shades tell apart: axis `at` of `info`."""

    info: TensorInfo
    at: int

    def of(self, index: Index | None) -> int | None:
        return None if index is None else index[self.at] % len(_SHADES)


def _shade(op: Op, before: TensorInfo | None, shared: bool) -> _Shade | None:
    """Choose the axis to shade: one that was moved, split or joined; else the first one that is larger than 1."""
    out = op.outputs[0]
    if before is not None:
        moved = motion(op)
        if moved.kind in ("move", "cut") and moved.axes and before.shape[moved.axes[0]] > 1:
            return _Shade(before, moved.axes[0])
        for ours, theirs in groups_of(before, out) if moved.kind == "regroup" else ():
            if len(ours) > 1:
                return _Shade(before, ours[0])
            if len(theirs) > 1 and shared:
                return _Shade(out, theirs[0])
    info = before or out
    at = next((i for i, n in enumerate(info.shape) if n > 1 and (info.stride or ())[i]), None)
    return None if at is None else _Shade(info, at)


# ---------------------------------------------------------------- drawing


@dataclass
class _Page:
    """Pieces of SVG from top to bottom; `y` is where the next one starts."""

    parts: list[str] = field(default_factory=list)
    colours: set[str] = field(default_factory=set)
    y: float = 4

    def text(self, words: str, *, bold: bool = False, x: float = 4) -> None:
        """Add words, in as many lines as they need."""
        for line in _wrapped(words, int((WIDTH - x - 4) / _CHAR)):
            self.y += 12
            weight = ' class="sm-b"' if bold else ""
            self.parts.append(f'<text x="{x:g}" y="{self.y:g}"{weight}>{esc(line)}</text>')
        self.y += 4

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        words: str,
        shade: _Shade | None,
        number: int | None,
        dashed: bool = False,
    ) -> None:
        """Add one cell, in the shade of that number."""
        kind = "sm-c sm-o" if dashed else "sm-c"
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{_HEIGHT}"/>')
        if shade is not None and number is not None:
            name = shade.info.axes[shade.at]
            self.colours.add(name)
            self.parts.append(
                f'<rect class="sm-a{_number(name)}" fill-opacity="{_SHADES[number]}" x="{x:g}" y="{y:g}" '
                f'width="{width:g}" height="{_HEIGHT}"/>'
            )
        middle, base = x + width / 2, y + _HEIGHT / 2 + 3.5
        self.parts.append(f'<text class="sm-n" x="{middle:g}" y="{base:g}">{esc(words)}</text>')

    def left_out(self, x: float, y: float, width: float) -> None:
        """Add the sign for cells that are not drawn."""
        self.parts.append(f'<text class="sm-n" x="{x + width / 2:g}" y="{y + _HEIGHT / 2 + 3:g}">…</text>')

    def svg(self, title: str, about: str) -> str:
        """Return the whole picture."""
        height = self.y + 6
        rules = "".join(_rule(name) for name in sorted(self.colours))
        return (
            f'<svg class="shape-memory" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
            f'role="img" style="max-width:{WIDTH * 1.6:g}px;width:100%;height:auto">'
            f"<title>{esc(title)}</title><desc>{esc(' '.join(about.splitlines()))}</desc>"
            f"<style>{_STYLE}{rules}</style>{''.join(self.parts)}</svg>"
        )


_FG, _BG = "light-dark(#1c1c1c,#f2f2f2)", "light-dark(#ffffff,#111111)"
_SOFT = "light-dark(#595959,#b8b8b8)"
_STYLE = (
    ".shape-memory text{fill:#1c1c1c;fill:" + _FG + ";font:9.5px ui-monospace,Menlo,Consolas,monospace}"
    ".shape-memory .sm-b{font-weight:700}.shape-memory .sm-n{text-anchor:middle}.shape-memory .sm-e{text-anchor:end}"
    ".shape-memory .sm-c{fill:#fff;fill:" + _BG + ";stroke:#595959;stroke:" + _SOFT + ";stroke-width:.8}"
    ".shape-memory .sm-o{stroke-dasharray:2 2}"
    ".shape-memory .sm-l{stroke:#1c1c1c;stroke:" + _FG + ";stroke-width:1;fill:none}"
)


def _number(name: str) -> str:
    """Return what tells the classes of two colours apart."""
    return axis_colour(name)[0].removeprefix("#")


def _rule(name: str) -> str:
    light, dark = axis_colour(name)
    return f".shape-memory .sm-a{_number(name)}{{fill:{light};fill:light-dark({light},{dark})}}"


def _wrapped(words: str, most: int) -> list[str]:
    lines = [""]
    for word in words.split():
        while len(word) > most:
            lines.append(word[:most])
            word = word[most:]
        if len(lines[-1]) + len(word) + 1 > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line] or [""]


Tint = Callable[[Index], int | None]


def _draw(op: Op, page: _Page) -> None:
    """Draw before, the memory, and after; two memories where the numbers were copied, one for new numbers."""
    out, before = op.outputs[0], before_of(op)
    if before is not None and (before.stride is None or before.offset is None):
        before = None
    shared = memory_word(op) in ("view", "same", "in-place") and before is not None
    shade = _shade(op, before, shared)
    tints = _tints(op, before, shared, shade)
    width = _cell_width(max(span([out])[1], span([before])[1] if before else 0))
    if shade is not None:
        _legend(page, shade, width)
    if before is None:
        page.text(say("the result: {x}", x=_named(out)), bold=True)
        _grid(page, out, tints[1], shade, width)
        _strip(page, say("in new memory:"), [out], tints[1], shade, width)
        return
    page.text(say("before: {x}", x=_named(before)), bold=True)
    _grid(page, before, tints[0], shade, width)
    if shared:
        _strip(page, say("the memory of both:"), [out, before], tints[1], shade, width, above=before, below=out)
    else:
        _strip(page, say("its memory:"), [before], tints[0], shade, width, above=before)
        _strip(page, say("the copy, in new memory:"), [out], tints[1], shade, width, below=out)
    page.text(say("after: {x}", x=_named(out)), bold=True)
    _grid(page, out, tints[1], shade, width)


def _tints(op: Op, before: TensorInfo | None, shared: bool, shade: _Shade | None) -> tuple[Tint, Tint]:
    """Return the shade of an entry of the tensor before, and of an entry of the result."""
    out = op.outputs[0]
    read = next((r for r, info in zip(motion(op).reads, op.inputs, strict=True) if info is before), None)

    def of_before(index: Index) -> int | None:
        if shade is None or before is None:
            return None
        return shade.of(index if shade.info is before else entry_at(out, place(before, index)))

    def of_after(index: Index) -> int | None:
        if shade is None:
            return None
        if shade.info is out or before is None:
            return shade.of(index)
        if shared:
            return shade.of(entry_at(before, place(out, index)))
        return shade.of(source(read, index, out.shape, before.shape))

    return of_before, of_after


def _named(info: TensorInfo) -> str:
    text = say("{x}, strides {strides}", x=shape(info), strides=strides_text(info.stride or ()))
    if info.offset:
        text = say("{x}, from place {offset} on", x=text, offset=info.offset)
    return f"{info.variable} {text}" if info.variable else text


def _cell_width(places: int) -> float:
    return max(18.0, 6.0 * len(str(places)) + 5)


def _legend(page: _Page, shade: _Shade, width: float) -> None:
    """Say which axis the shades tell apart, with a cell of each shade."""
    n = shade.info.shape[shade.at]
    words = say("shades count along {axis}:", axis=axis(shade.info, shade.at))
    page.y += 2
    page.parts.append(f'<text x="4" y="{page.y + 13:g}">{esc(words)}</text>')
    x = 12 + _CHAR * len(words)
    for i in range(min(n, len(_SHADES))):
        page.cell(x + i * width, page.y, width, str(i), shade, i)
    if n > len(_SHADES):
        more = say("and again")
        page.parts.append(f'<text x="{x + len(_SHADES) * width + 4:g}" y="{page.y + 13:g}">{esc(more)}</text>')
    page.y += _HEIGHT + 4


def _grid(page: _Page, info: TensorInfo, tint: Tint, shade: _Shade | None, width: float) -> None:
    """Draw a tensor: the last axis across, the one before it down, one block for each index of the others."""
    rank = len(info.shape)
    if prod(info.shape) <= 0:
        page.text(say("it has no entries"))
        return
    dirs = [say("{axis} across", axis=axis(info, -1))] if rank else []
    dirs += [say("{axis} down", axis=axis(info, -2))] if rank > 1 else []
    dirs += [say("a block for each of {axes}", axes=listed(info, range(rank - 2)))] if rank > 2 else []
    if dirs:
        page.text(", ".join(dirs))
    room = int((WIDTH - 8) / width)
    columns = shown(info.shape[-1], room if info.shape[-1] <= room else min(room, _MOST_COLUMNS)) if rank else [0]
    rows = shown(info.shape[-2], _MOST_ROWS) if rank > 1 else [0]
    wide, high = len(columns) * width, len(rows) * _HEIGHT
    across = max(1, int((WIDTH - 8 + _GAP) / (wide + _GAP)))
    blocks = list(islice(product(*map(range, info.shape[:-2])), min(_MOST_BLOCKS, 2 * across))) if rank > 2 else [()]
    for start in range(0, len(blocks), across):
        run = blocks[start : start + across]
        if rank > 2:
            page.y += 14
        for k, block in enumerate(run):
            x = 4 + k * (wide + _GAP)
            if rank > 2:
                name = _block_name(info, block, int(wide / _CHAR))
                page.parts.append(f'<text x="{x:g}" y="{page.y - 2:g}">{esc(name)}</text>')
            for (r, i), (c, j) in product(enumerate(rows), enumerate(columns)):
                left, top = x + c * width, page.y + r * _HEIGHT
                if i is None or j is None:
                    page.left_out(left, top, width)
                    continue
                index = (*block, i, j)[-rank:] if rank else ()
                page.cell(left, top, width, str(place(info, index)), shade, tint(index))
        page.y += high + 5
    hidden = prod(info.shape[:-2]) - len(blocks)
    if rank > 2 and hidden:
        page.text(say_count("… and {n} more block", "… and {n} more blocks", hidden))
    page.y += 3


def _block_name(info: TensorInfo, block: Index, most: int) -> str:
    """Return `B=0 H=1`, or the numbers alone where that has no room."""
    bare = {"?"} | {n for n in info.axes if n.isdigit()}
    text = " ".join(str(i) if n in bare else f"{n}={i}" for n, i in zip(info.axes, block, strict=False))
    return text if len(text) <= most else ",".join(map(str, block))


def _strip(
    page: _Page,
    title: str,
    infos: Sequence[TensorInfo],
    tint: Tint,
    shade: _Shade | None,
    width: float,
    *,
    above: TensorInfo | None = None,
    below: TensorInfo | None = None,
) -> None:
    """Draw the cells of one memory in order, with the steps of a tensor above them and of another below.

    `tint` is for entries of the first tensor; a place that it does not have is dashed.
    """
    first, last = span(infos)
    if first == last:
        return
    page.text(title, bold=True)
    columns = int((WIDTH - 8) / width)
    drawn: list[int | None] = list(range(first, last))
    if last - first > columns * _MOST_LINES:
        drawn = [*range(first, first + 2 * columns - 2), None, last - 1]
    if above is not None:
        _steps(page, above, first, columns, width)
    for number, where in enumerate(drawn):
        x, y = 4 + number % columns * width, page.y + number // columns * _HEIGHT
        if where is None:
            page.left_out(x, y, width)
            continue
        entry = entry_at(infos[0], where)
        page.cell(x, y, width, str(where), shade, None if entry is None else tint(entry), entry is None)
    page.y += -(-len(drawn) // columns) * _HEIGHT + 3
    if below is not None:
        _steps(page, below, first, columns, width)
    dashed = any(entry_at(infos[0], where) is None for where in drawn if where is not None)
    if dashed:
        page.text(say("dashed: places that the result does not have"))
    page.y += 3


def _steps(page: _Page, info: TensorInfo, first: int, columns: int, width: float) -> None:
    """Draw how far one step along each axis leads, from the tensor's first place on."""
    start = (info.offset or 0) - first
    for i, step in enumerate(info.stride or ()):
        if info.shape[i] < 2:
            continue
        name = axis(info, i).partition("=")[0] if info.axes[i] != "?" else say("axis {i}", i=i)
        words = say_count("one step along {axis}: {n} place", "one step along {axis}: {n} places", step, axis=name)
        room = WIDTH - 12 - _CHAR * len(words)
        x, y = 4 + (start % columns + 0.5) * width, page.y + 7
        fits = start < columns and start + step < columns and 4 + (start + step + 0.5) * width < room
        end = 4 + (start + step + 0.5) * width if fits else room
        if step and start < columns and x < end:
            head = f"M{end - 4:g} {y - 3:g}L{end:g} {y:g}L{end - 4:g} {y + 3:g}" if fits else ""
            dash = "" if fits else ' stroke-dasharray="3 2"'
            page.parts.append(f'<path class="sm-l"{dash} d="M{x:g} {y - 3:g}V{y + 3:g}M{x:g} {y:g}H{end:g}{head}"/>')
        page.parts.append(f'<text class="sm-e" x="{WIDTH - 4}" y="{y + 3:g}">{esc(words)}</text>')
        page.y += 13
    page.y += 3
