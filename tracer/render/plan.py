"""Where everything of a flow stands: boxes in columns and lanes, lines between them, labels beside their lines.

The outcome is a `Picture`: rectangles, lines and texts with coordinates, which SVG and matplotlib draw alike. Space is
reserved from an upper bound of the width of each text, so that no label can touch a box or another label: a label
stands in the gap after its box, where nothing else runs on its height; lines that change height do so right of it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from unicodedata import combining

from ..speech import say
from .colours import SYMBOL
from .flow import Flow, Net, Node
from .layout import plain

__all__ = ["Box", "Path", "Picture", "Row", "Run", "Words", "picture", "text_width"]

Run = tuple[str, str]
"""A piece of text, and the symbol of the axis it names or ""."""
Style = Literal["box", "step", "add", "input", "output", "stopped", "from", "to", "net", "rail", "frame", "dot"]

SIZE, SMALL, TITLE = 11.0, 10.0, 12.0
"""Sizes of text, in the units of the picture."""
_ADVANCE, _WIDE = 0.62, 1.32
"""Upper bounds of the width of a character, in its size: of monospaced fonts, and of other scripts and emoji."""
_PITCH = 16.0
"""Between two lines that run side by side."""
_STEP = 9.0
"""Between two lines that rise or fall side by side."""
_ARROW, _PAD, _LANE_GAP, _ROW_GAP, _MARGIN = 13.0, 8.0, 12.0, 20.0, 12.0
_LEADING = 14.0
_LONGEST = 30
"""Characters of a name in a box."""


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class Box:
    """A rectangle: a module, a step, an end, or (as "dot") the place where lines meet."""

    style: Style
    x: float
    y: float
    width: float
    height: float
    tip: str = ""
    words: tuple["Words", ...] = ()


@dataclass(frozen=True)
class Path:
    """A line through points; `arrow` at its end."""

    style: Style
    points: tuple[tuple[float, float], ...]
    arrow: bool = False


@dataclass(frozen=True)
class Words:
    """A text: `x` is where it begins, `y` its baseline."""

    x: float
    y: float
    runs: tuple[Run, ...]
    size: float = SIZE
    bold: bool = False
    role: Literal["label", "title", "row", "note"] = "label"

    @property
    def text(self) -> str:
        """The text as a whole."""
        return "".join(text for text, _ in self.runs)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom that the text surely stays within."""
        return self.x, self.y - 0.92 * self.size, self.x + text_width(self.text, self.size), self.y + 0.28 * self.size


@dataclass(frozen=True)
class Row:
    """One row of the picture from its own top at 0."""

    width: float
    height: float
    boxes: tuple[Box, ...] = ()
    paths: tuple[Path, ...] = ()
    words: tuple[Words, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A flow with coordinates: rows one under another, what stands above and below, and the same in words."""

    title: str
    width: float
    rows: tuple[Row, ...]
    head: tuple[Words, ...]
    foot: tuple[Words, ...]
    text: tuple[str, ...]
    top: float = field(default=30.0)

    @property
    def height(self) -> float:
        """The height of all rows with head and foot."""
        return self.tops[-1] + _LEADING * len(self.foot) + _MARGIN

    @property
    def tops(self) -> tuple[float, ...]:
        """The top of each row, and at the end the top of the foot."""
        found = [self.top]
        for row in self.rows:
            found.append(found[-1] + row.height + _ROW_GAP)
        return tuple(found)


def text_width(text: str, size: float) -> float:
    """Return an upper bound of the width of a text, in the unit of its size."""
    return size * sum(0.0 if combining(c) else _ADVANCE if ord(c) < 0x370 or c in "…×·→" else _WIDE for c in text)


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return a text of at most so many characters, cut in the middle."""
    text = plain(text)
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"


def runs_of(text: str) -> tuple[Run, ...]:
    """Return a text in runs: axes inside brackets with their symbol; `T of q` names one axis."""
    found: list[Run] = []
    for i, piece in enumerate(re.split(r"(\[[^\[\]]*\])", plain(text))):
        end = 0
        for match in SYMBOL.finditer(piece) if i % 2 else ():
            if match.group() != "of" and not piece[: match.start()].endswith(" of "):
                found += [(piece[end : match.start()], ""), (match.group(), match.group())]
                end = match.end()
        found.append((piece[end:], ""))
    return tuple(run for run in found if run[0])


# ---------------------------------------------------------------- the whole picture


def picture(flow: Flow, sizes: Mapping[str, str], width: float = 760.0) -> Picture:
    """Return a flow with coordinates; rows are no wider than `width` where boxes allow it.

    Raises:
        ValueError: `width` leaves no room for a box.
    """
    if width < 240:
        raise ValueError(say("width={width} leaves no room for a box. Give 240 or more.", width=width))
    rows = tuple(_rows(flow, width - 2 * _MARGIN))
    wide = max([width, *(row.width + 2 * _MARGIN for row in rows)])
    head = _head(flow.title, sizes, wide)
    foot = _foot(flow)
    rows = tuple(_shifted(row, _MARGIN) for row in rows)
    top = head[-1].y + 12
    lines = [Words(_MARGIN, 0.0, runs_of(line), SMALL, role="note") for text in foot for line in _wrapped(text, wide)]
    return Picture(plain(flow.title), wide, rows, tuple(head), tuple(lines), tuple(flow.text()), top)


def _head(title: str, sizes: Mapping[str, str], width: float) -> list[Words]:
    """Return the title, and the sizes in use in as many lines as they need."""
    room = int((width - 2 * _MARGIN) / (TITLE * _ADVANCE))
    found = [Words(_MARGIN, 22.0, ((shortened(title, room), ""),), TITLE, True, "title")]
    x, y = _MARGIN, 22.0 + _LEADING
    for name, size in sizes.items():
        runs: tuple[Run, ...] = (*runs_of(f"[{name}]")[1:-1], (f" = {size}", ""))
        word = Words(x, y, runs, SIZE, role="note")
        if word.bounds[2] > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + _LEADING
            word = replace(word, x=x, y=y)
        found.append(word)
        x = word.bounds[2] + 14
    return found


def _foot(flow: Flow) -> list[str]:
    if flow.empty:
        return [flow.empty]
    found = []
    if flow.residual:
        found.append(say("Thick line: the residual stream. +: what a branch computed from it is added to it."))
    if flow.twice:
        found.append(say("Where a name stands twice: {shapes}.", shapes="; ".join(flow.twice)))
    if any(node.kind == "box" for node in flow.nodes):
        found.append(say("Box with a solid edge: a module. Dashed: a line of code. Not shown: weights."))
    return found


def _wrapped(text: str, width: float, size: float = SMALL) -> list[str]:
    """Return a text in lines that fit."""
    lines = [""]
    for word in text.split():
        line = f"{lines[-1]} {word}".strip()
        if text_width(line, size) > width - 2 * _MARGIN and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = line
    return lines


def _shifted(row: Row, x: float) -> Row:
    def words(found: Iterable[Words]) -> tuple[Words, ...]:
        return tuple(replace(one, x=one.x + x) for one in found)

    boxes = tuple(replace(box, x=box.x + x, words=words(box.words)) for box in row.boxes)
    paths = tuple(replace(path, points=tuple((px + x, py) for px, py in path.points)) for path in row.paths)
    return replace(row, boxes=boxes, paths=paths, words=words(row.words))


# ---------------------------------------------------------------- columns, rows


def _columns(flow: Flow) -> list[list[list[Node]]]:
    """Return the columns of each stream: a box stands right of all it reads, a block right of what ran before it."""
    starts = {*flow.starts}
    parts: list[list[Node]] = [[]]
    for node in flow.nodes:
        if node.kind == "input":
            continue
        if node.key in starts:
            parts.append([])
        parts[-1].append(node)
    part_of = {node.key: i for i, part in enumerate(parts) for node in part}
    feeds: dict[int, list[int]] = {}
    into: dict[int, list[int]] = {}
    for net in flow.nets:
        feeds.setdefault(net.source, []).extend(net.sinks)
        for sink in net.sinks:
            into.setdefault(sink, []).append(net.source)
    for node in flow.nodes:
        if node.kind == "output":  # an end stands with what it ends
            parts[part_of[node.key]].remove(node)
            part_of[node.key] = part_of[into[node.key][0]]
            parts[part_of[node.key]].append(node)
    for node in flow.nodes:
        if node.kind == "input":
            first = min((part_of[sink] for sink in feeds.get(node.key, [])), default=0)
            parts[first].insert(0, node)
            part_of[node.key] = first
    return [_layered(part, into, feeds) for part in parts if part]


def _layered(part: Sequence[Node], into: Mapping[int, list[int]], feeds: Mapping[int, list[int]]) -> list[list[Node]]:
    at: dict[int, int] = {}
    floor, frame, top = 0, None, -1
    for node in part:
        if node.kind in ("input", "output"):
            continue
        if frame is not None and node.frame != frame:
            floor = top + 1
        frame = node.frame
        at[node.key] = max([floor, *(at[k] + 1 for k in into.get(node.key, []) if k in at)])
        top = max(top, at[node.key])
    for node in reversed(part):  # what reads nothing here stands just before its first reader
        readers = [at[k] for k in feeds.get(node.key, []) if k in at]
        if node.kind == "input":
            at[node.key] = _before(at, part, min(readers, default=0))
        elif node.kind == "output":
            at[node.key] = max((at[k] for k in into.get(node.key, []) if k in at), default=top) + 1
        elif readers and not any(k in at and k >= 0 for k in into.get(node.key, [])) and not node.frame:
            at[node.key] = max(at[node.key], _outside(at, part, min(readers) - 1))
    low = min(at.values(), default=0)
    columns: list[list[Node]] = [[] for _ in range(max(at.values(), default=low) - low + 1)]
    for node in part:
        columns[at[node.key] - low].append(node)
    return [column for column in columns if column]


def _outside(at: Mapping[int, int], part: Sequence[Node], column: int) -> int:
    """Return this column, or the last before it that stands under no block's bracket."""
    taken = {at[n.key] for n in part if n.key in at and n.frame}
    while column in taken:
        column -= 1
    return column


def _before(at: dict[int, int], part: Sequence[Node], column: int) -> int:
    """Return a column before this one for a tensor from outside; not under another block's bracket."""
    frames = {n.key: n.frame for n in part if n.key in at}
    own = {frames[key] for key in at if at[key] == column}
    if own - {""} or not any(frames[key] for key in at if at[key] == column - 1):
        return _outside(at, part, column - 1)
    at.update({key: found + 1 for key, found in at.items() if found >= column})
    return column


def _rows(flow: Flow, width: float) -> list[Row]:
    """Break the columns of each stream into rows that fit."""
    found: list[Row] = []
    told: set[str] = set()
    marks: dict[tuple[int, int], str] = {}
    repeated = _repeated(flow)
    place: dict[int, int] = {}
    cuts: list[list[list[Node]]] = []
    for columns in _columns(flow):
        start = 0
        while start < len(columns):
            stop, best = start + 1, start + 1
            while stop <= len(columns):
                row = _row(flow, columns[start:stop], {}, set(), {})
                if row.width > width and stop > start + 1:
                    break
                best, stop = stop, stop + 1
            best = _good_end(flow.nets, columns, start, best)
            cuts.append(columns[start:best])
            start = best
    for i, cut in enumerate(cuts):
        place.update({node.key: i for column in cut for node in column})
    cuts = _without_idle_inputs(flow, cuts, place)
    for net in flow.nets:
        rows = {place[net.source], *(place[sink] for sink in net.sinks)}
        if len(rows) > 1 and net.source not in repeated:
            marks[net.source, net.tensor] = _letter(len(marks))
    for cut in cuts:
        found.append(_row(flow, cut, marks, told, place))
        told |= {node.frame for column in cut for node in column}
    return found


def _repeated(flow: Flow) -> set[int]:
    """Return the inputs that stand anew in each row that reads them: all but one that is the residual stream."""
    rails = {net.source for net in flow.nets if net.rail}
    return {node.key for node in flow.nodes if node.kind == "input"} - rails


def _without_idle_inputs(
    flow: Flow, cuts: Sequence[Sequence[Sequence[Node]]], place: Mapping[int, int]
) -> list[list[list[Node]]]:
    """Leave out an input where no box of its row reads it."""
    idle = {net.source for net in flow.nets} & _repeated(flow)
    idle -= {n.source for n in flow.nets if any(place[sink] == place[n.source] for sink in n.sinks)}
    kept = [[[node for node in column if node.key not in idle] for column in cut] for cut in cuts]
    return [found for cut in kept if (found := [column for column in cut if column])]


def _letter(n: int) -> str:
    return chr(ord("a") + n) if n < 26 else f"{_letter(n // 26 - 1)}{chr(ord('a') + n % 26)}"


def _good_end(nets: Sequence[Net], columns: Sequence[Sequence[Node]], start: int, stop: int) -> int:
    """Return where to break a row that has to end: where few tensors cross, late in the row."""
    if stop == len(columns):
        return stop
    at = {node.key: i for i, column in enumerate(columns) for node in column}

    def crossing(end: int) -> int:
        return sum(at.get(net.source, end) < end and any(at.get(sink, -1) >= end for sink in net.sinks) for net in nets)

    ends = range(stop, start + (stop - start) // 2, -1)
    return min(ends, key=lambda end: crossing(end) + 0.4 * (stop - end) + _cuts_frame(columns[end - 1], columns[end]))


def _cuts_frame(one: Sequence[Node], two: Sequence[Node]) -> bool:
    return bool({node.frame for node in one} & {node.frame for node in two} - {""})


# ---------------------------------------------------------------- one row


@dataclass
class _Seat:
    """A node in its row: where it stands and how large it is."""

    node: Node
    column: int
    lane: int
    width: float
    height: float
    words: list[Words]


def _row(
    flow: Flow,
    columns: Sequence[Sequence[Node]],
    marks: Mapping[tuple[int, int], str],
    told: Iterable[str],
    place: Mapping[int, int],
) -> Row:
    """Lay one row out.

    `marks` are the letters of tensors that cross rows, empty while rows are being tried; `told` the frames that stand
    above; `place` is the row of each node, where that is settled.
    """
    grid, nets, goes_on = _with_marks(flow, columns, marks, place)
    names = {f: f if f in told else flow.notes.get(f, f) for f in {n.frame for column in columns for n in column} if f}
    return _Router(_seated(grid, nets, flow.spine), nets, len(grid), names, goes_on).row()


def _with_marks(
    flow: Flow, columns: Sequence[Sequence[Node]], marks: Mapping[tuple[int, int], str], place: Mapping[int, int]
) -> tuple[list[list[Node]], list[Net], dict[tuple[int, int], str]]:
    """Return the nodes and nets of one row: what comes from another row has an end of its own, as has the stream.

    The last part is what to add to the label of a tensor that goes on in another row.
    """
    grid = [list(column) for column in columns]
    here = {node.key: i for i, column in enumerate(grid) for node in column}
    key = max([n.key for n in flow.nodes], default=0) + 1
    nets: list[Net] = []
    ends: list[tuple[Node, int]] = []
    goes_on: dict[tuple[int, int], str] = {}
    inputs = _repeated(flow)
    for net in flow.nets:
        mark = marks.get((net.source, net.tensor), "x")
        sinks = tuple(sink for sink in net.sinks if sink in here)
        if net.source in here:
            if len(sinks) < len(net.sinks) and net.source not in inputs:
                if net.rail:
                    ends.append((Node(key, "to", f"→ {mark}", main=net.source), len(grid)))
                    sinks, key = (*sinks, key), key + 1
                else:
                    goes_on[net.source, net.tensor] = f" → {mark}"
            nets.append(replace(net, sinks=sinks))
        elif sinks:
            first = min(here[sink] for sink in sinks)
            start = Node(key, "from", f"{mark} → {net.name}", main=net.source)
            if net.source in inputs:
                start = replace(start, kind="input", title=net.name)
            ends.append((start, -1 if net.rail else first - 1))
            source, key = key, key + 1
            if net.rail and any(place.get(sink, -1) > place[columns[0][0].key] for sink in net.sinks if place):
                ends.append((Node(key, "to", f"→ {mark}", main=net.source), len(grid)))
                sinks, key = (*sinks, key), key + 1
            nets.append(replace(net, source=source, sinks=sinks))
    if any(column == -1 for _, column in ends):
        grid.insert(0, [])
        ends = [(node, column + 1) for node, column in ends]
    for node, column in ends:
        grid += [[] for _ in range(column + 1 - len(grid))]
        grid[column].append(node)
    return grid, nets, goes_on


def _seated(grid: Sequence[Sequence[Node]], nets: Sequence[Net], spine: Iterable[int]) -> dict[int, _Seat]:
    """Give each node a lane: the main path the first, others that of what they read where it is free."""
    main = {*spine}
    nodes = {node.key: node for column in grid for node in column}
    for net in nets:
        if nodes[net.source].kind == "from" and any(
            _goes_on(net, nodes, sink, main) or nodes[sink].kind == "to" for sink in net.sinks
        ):
            main.add(net.source)
        main |= {sink for sink in net.sinks if nodes[sink].kind == "to"}
    into: dict[int, list[int]] = {}
    for net in nets:
        for sink in net.sinks:
            into.setdefault(sink, []).append(net.source)
    seats: dict[int, _Seat] = {}
    for i, column in enumerate(grid):
        taken: set[int] = set()
        for node in sorted(column, key=lambda n: n.key not in main):
            lane = 0
            if node.key not in main or 0 in taken:
                above = [seats[k].lane for k in into.get(node.key, []) if k in seats and seats[k].lane > 0]
                lane = next((n for n in above if n not in taken), 1)
                while lane in taken:
                    lane += 1
            taken.add(lane)
            seats[node.key] = _seat(node, i, lane)
    used = sorted({seat.lane for seat in seats.values()})
    for seat in seats.values():
        seat.lane = used.index(seat.lane)
    return seats


def _goes_on(net: Net, nodes: Mapping[int, Node], sink: int, main: Iterable[int]) -> bool:
    """Whether a tensor from another row is the main path's next step here."""
    if sink not in main:
        return False
    return net.rail or (nodes[sink].kind != "add" and nodes[sink].main == nodes[net.source].main)


def _seat(node: Node, column: int, lane: int) -> _Seat:
    """Return the size of a node and its texts, from its own corner."""
    if node.kind == "add":
        return _Seat(
            node, column, lane, 26.0, 34.0, [Words(13 - _ADVANCE * 8, 23.0, (("+", ""),), 16.0, True, "title")]
        )
    if node.kind in ("input", "output", "from", "to"):
        text = shortened(node.title)
        words = Words(_PAD, 15.5, ((text, ""),), SIZE, node.kind == "input", "title")
        return _Seat(node, column, lane, text_width(text, SIZE) + 2 * _PAD, 22.0, [words])
    title = shortened(node.title)
    words_ = [Words(_PAD, 17.0, ((title, ""),), TITLE, True, "title")]
    for i, (name, label) in enumerate(node.rows):
        runs: tuple[Run, ...] = ((shortened(name), ""),)
        if label:
            runs = (*runs, (" ", ""), *_cut(runs_of(label)))
        words_.append(Words(_PAD, 32.0 + i * _LEADING, runs, SMALL, role="row"))
    width = max(text_width(w.text, w.size) for w in words_) + 2 * _PAD
    return _Seat(node, column, lane, width, 25.0 + _LEADING * len(node.rows), words_)


def _cut(runs: tuple[Run, ...], most: int = 34) -> tuple[Run, ...]:
    """Return a label that is not longer than a box should be wide."""
    found: list[Run] = []
    for text, symbol in runs:
        most -= len(text)
        if most < 0:
            return (*found, ("…]", ""))
        found.append((text, symbol))
    return tuple(found)


# ---------------------------------------------------------------- lines of one row


@dataclass(frozen=True)
class _Track:
    """A horizontal stretch of a net on one lane, through the gaps from `first` to `last`."""

    net: int
    lane: int
    first: int
    last: int


class _Router:
    """Draws the lines of one row: along lanes, and in the gaps from one lane to another."""

    def __init__(
        self,
        seats: dict[int, _Seat],
        nets: Sequence[Net],
        columns: int,
        frames: Mapping[str, str],
        goes_on: Mapping[tuple[int, int], str],
    ) -> None:
        self.seats, self.nets, self.columns, self.frames, self.goes_on = seats, list(nets), columns, frames, goes_on
        self.lanes = max((seat.lane for seat in seats.values()), default=-1) + 1
        self.tracks = self._tracks()
        self.slots = self._slots()
        self._measure()

    # ------------------------------------------------------------ which lane a line runs on

    def _tracks(self) -> list[_Track]:
        taken = {(seat.lane, seat.column) for seat in self.seats.values()}
        found: list[_Track] = []
        self.trunks: dict[int, int] = {}
        order = sorted(range(len(self.nets)), key=lambda i: not self.nets[i].rail)
        for i in order:
            net = self.nets[i]
            source = self.seats[net.source]
            sinks = [self.seats[key] for key in net.sinks]
            far = max(sinks, key=lambda s: s.column, default=source)
            trunk = source.lane
            if far.column > source.column + 1:
                between = range(source.column + 1, far.column)
                choices = [source.lane, far.lane, *range(1, self.lanes)]
                free = [lane for lane in choices if not any((lane, c) in taken for c in between)]
                if free:
                    trunk = free[0]
                else:
                    trunk, self.lanes = self.lanes, self.lanes + 1
            self.trunks[i] = trunk
            gaps: dict[int, set[int]] = {trunk: {*range(source.column, far.column)}}
            gaps.setdefault(source.lane, set()).add(source.column)
            for sink in sinks:
                gaps.setdefault(sink.lane, set()).add(sink.column - 1)
            for lane, gap in gaps.items():
                walls = {column for at, column in taken if at == lane}
                found += [_Track(i, lane, first, last) for first, last in _stretches(gap, walls)]
        return found

    def _slots(self) -> dict[_Track, int]:
        """Give tracks of one lane that meet in a gap different heights; the residual stream the middle."""
        found: dict[_Track, int] = {}
        for lane in range(self.lanes):
            here = sorted(
                (t for t in self.tracks if t.lane == lane),
                key=lambda t: (not self.nets[t.net].rail, not self._straight(t), t.first - t.last, t.first, t.net),
            )
            for track in here:
                near = {found[t] for t in here if t in found and t.first <= track.last and track.first <= t.last}
                n = 0
                while n in near:
                    n = -n if n > 0 else 1 - n
                found[track] = n
        return self._in_order(found)

    def _straight(self, track: _Track) -> bool:
        """Whether a track leads from the box that gave the tensor to one that reads it."""
        net = self.nets[track.net]
        seats = [self.seats[key] for key in (net.source, *net.sinks)]
        return (seats[0].lane, seats[0].column) == (track.lane, track.first) and any(
            (seat.lane, seat.column) == (track.lane, track.last + 1) for seat in seats[1:]
        )

    def _in_order(self, slots: dict[_Track, int]) -> dict[_Track, int]:
        """Let tensors that run side by side from one box keep their order: q, k, v."""
        alike: dict[tuple[int, int, int], list[_Track]] = {}
        for track in slots:
            net = self.nets[track.net]
            if not net.rail and self.seats[net.source].lane == track.lane:
                alike.setdefault((net.source, track.first, track.last), []).append(track)
        for tracks in alike.values():
            heights = sorted(slots[t] for t in tracks)
            slots.update(zip(sorted(tracks, key=lambda t: t.net), heights, strict=True))
        return slots

    # ------------------------------------------------------------ sizes

    def _measure(self) -> None:
        half: list[float] = [0.0] * self.lanes
        for track, slot in self.slots.items():
            half[track.lane] = max(half[track.lane], abs(slot) * _PITCH + _LEADING + 1)
            for seat in self.seats.values():
                ends = seat.lane == track.lane and seat.column in (track.first, track.last + 1)
                if ends and seat.node.key in (self.nets[track.net].source, *self.nets[track.net].sinks):
                    seat.height = max(seat.height, 2 * abs(slot) * _PITCH + 14)
        for seat in self.seats.values():
            half[seat.lane] = max(half[seat.lane], seat.height / 2)
        self.middle: list[float] = []
        y = 0.0
        for size in half:
            self.middle.append(y + size)
            y += 2 * size + _LANE_GAP
        self.height = y - _LANE_GAP if half else 0.0
        self.labels = self._labels()
        self.rising = [self._rising(gap) for gap in range(self.columns)]
        self.left: list[float] = []
        self.right: list[float] = []
        self.text_end: list[float] = []
        x = 0.0
        for column in range(self.columns):
            width = max((s.width for s in self.seats.values() if s.column == column), default=0.0)
            self.left.append(x)
            self.right.append(x + width)
            wide = max((text_width(t, SIZE) for n, t in self.labels.items() if self._gap(n) == column), default=0.0)
            self.text_end.append(x + width + (wide + 10 if wide else 4))
            x = self.text_end[-1] + _STEP * len(self.rising[column]) + _ARROW
        last = [n for n in self.labels if self._gap(n) == self.columns - 1]
        self.width = self.text_end[-1] + _ARROW if last else self.right[-1] if self.right else 0.0

    def _gap(self, net: int) -> int:
        return self.seats[self.nets[net].source].column

    def _labels(self) -> dict[int, str]:
        """Return the text of each line; along the stream it is said again only where it changes or a row begins."""
        found: dict[int, str] = {}
        for i, net in enumerate(self.nets):
            source = self.seats[net.source].node
            before = [n for n in self.nets if n.rail and source.key in n.sinks]
            told = source.kind == "from" or (source.kind == "input" and source.title == net.name)
            told = told or (source.kind == "add" and any(n.name == net.name for n in before))
            known = source.title in (net.info.variable, net.name) and source.kind in ("step", "input")
            text = "" if told else shortened(net.info.label if known else net.name, 44)
            text += self.goes_on.get((net.source, net.tensor), "")
            if text:
                found[i] = text.strip()
        return found

    def _rising(self, gap: int) -> list[int]:
        """Return the nets that change height in a gap, in the order of their places there."""
        nets = dict.fromkeys(t.net for t in self.tracks if t.first <= gap <= t.last)
        return sorted((net for net in nets if len(self._heights(net, gap)) > 1), key=lambda net: self._turn(net, gap))

    def _turn(self, net: int, gap: int) -> tuple[bool, float]:
        """Sort lines so that they cross little: those that rise before those that fall, the inner ones first."""
        heights = self._heights(net, gap)
        tracks = [t for t in self.tracks if t.net == net and t.first <= gap <= t.last]
        source = self.seats[self.nets[net].source]
        start = next((self._y(t) for t in tracks if t.first < gap), None)
        if start is None:
            start = next(self._y(t) for t in tracks if t.lane == source.lane)
        falls = heights[-1] - start > start - heights[0]
        return falls, -start if falls else start

    def _heights(self, net: int, gap: int) -> list[float]:
        return sorted({self._y(t) for t in self.tracks if t.net == net and t.first <= gap <= t.last})

    def _y(self, track: _Track) -> float:
        return self.middle[track.lane] + self.slots[track] * _PITCH

    def _x(self, net: int, gap: int) -> float:
        return self.text_end[gap] + _STEP * (self.rising[gap].index(net) + 0.5)

    # ------------------------------------------------------------ drawing

    def row(self) -> Row:
        """Return the row, with the names of its frames above."""
        paths: list[Path] = []
        boxes = [self._box(seat) for seat in self.seats.values()]
        words = [self._label(net, text) for net, text in self.labels.items()]
        for track in self.tracks:
            paths.append(self._along(track))
        for gap, rising in enumerate(self.rising):
            for net in rising:
                paths.append(self._across(net, gap))
                boxes += self._dots(net, gap)
        frames, titles, room = self._frames()
        row = Row(self.width, self.height, tuple(boxes), tuple(paths), tuple(words))
        row = _lowered(row, room)
        wide = max([self.width, *(t.bounds[2] for t in titles)])
        return replace(
            row, width=wide, height=row.height + room, paths=(*row.paths, *frames), words=(*row.words, *titles)
        )

    def _box(self, seat: _Seat) -> Box:
        x = self.left[seat.column] + (self.right[seat.column] - self.left[seat.column] - seat.width) / 2
        y = self.middle[seat.lane] - seat.height / 2
        natural = max((w.y for w in seat.words), default=0.0)
        down = (
            0.0 if seat.node.rows else max(0.0, seat.height / 2 - natural + (5.5 if seat.node.kind == "add" else 4.0))
        )
        if seat.node.kind in ("box", "step") and not seat.node.rows:
            down = max(0.0, seat.height / 2 + 4 - natural)
        words = tuple(replace(w, x=w.x + x, y=w.y + y + down) for w in seat.words)
        return Box(seat.node.kind, x, y, seat.width, seat.height, _tip(seat.node), words)

    def _edge(self, seat: _Seat, side: int) -> float:
        box_left = self.left[seat.column] + (self.right[seat.column] - self.left[seat.column] - seat.width) / 2
        return box_left + (seat.width if side else 0.0)

    def _along(self, track: _Track) -> Path:
        net = self.nets[track.net]
        source = self.seats[net.source]
        y = self._y(track)
        starts = source.lane == track.lane and source.column == track.first
        sink = next(
            (s for s in map(self.seats.__getitem__, net.sinks) if (s.lane, s.column) == (track.lane, track.last + 1)),
            None,
        )
        x1 = self._edge(source, 1) if starts else self._x(track.net, track.first)
        if not net.sinks:
            return Path("net", ((x1, y), (self.text_end[track.last], y)), True)
        x2 = self._edge(sink, 0) if sink else self._x(track.net, track.last)
        rail = net.rail and track.lane == self.trunks[track.net]
        return Path("rail" if rail else "net", ((x1, y), (x2, y)), sink is not None)

    def _across(self, net: int, gap: int) -> Path:
        heights = self._heights(net, gap)
        x = self._x(net, gap)
        return Path("net", ((x, heights[0]), (x, heights[-1])))

    def _dots(self, net: int, gap: int) -> list[Box]:
        """Return a dot wherever three or four arms of one line meet."""
        x, heights = self._x(net, gap), self._heights(net, gap)
        found = []
        for y in heights:
            arms = (y > heights[0]) + (y < heights[-1])
            for t in self.tracks:
                if t.net == net and t.first <= gap <= t.last and self._y(t) == y:
                    (x1, _), (x2, _) = self._along(t).points
                    arms += (x1 < x) + (x2 > x)
            if arms > 2:
                found.append(Box("dot", x - 3, y - 3, 6, 6))
        return found

    def _label(self, net: int, text: str) -> Words:
        source = self.seats[self.nets[net].source]
        track = next(
            t for t in self.tracks if t.net == net and t.lane == source.lane and t.first <= source.column <= t.last
        )
        return Words(self.right[source.column] + 4, self._y(track) - 4, runs_of(text), SIZE)

    def _frames(self) -> tuple[list[Path], list[Words], float]:
        """Return a bracket over the columns of each block, with its name, and the room that they take above."""
        spans: dict[str, list[int]] = {}
        for seat in self.seats.values():
            if seat.node.frame:
                spans.setdefault(seat.node.frame, []).append(seat.column)
        paths: list[Path] = []
        titles: list[Words] = []
        ends: list[float] = []
        placed: list[tuple[float, float, int, str]] = []
        room = int((max(self.width, 300.0)) / (SIZE * _ADVANCE))
        for frame, columns in sorted(spans.items(), key=lambda item: min(item[1])):
            x1, x2 = self.left[min(columns)] - 4, self.right[max(columns)] + 4
            text = shortened(self.frames[frame], room)
            start = max(0.0, min(x1, self.width - text_width(text, SIZE)))
            level = next((n for n, end in enumerate(ends) if end < min(start, x1) - 8), len(ends))
            ends[level : level + 1] = [max(x2, start + text_width(text, SIZE))]
            placed.append((x1, x2, level, text))
        height = 26.0 * len(ends)
        for x1, x2, level, text in placed:
            y = 26.0 * (len(ends) - level) - 6
            start = max(0.0, min(x1, self.width - text_width(text, SIZE)))
            paths.append(Path("frame", ((x1, y + 5), (x1, y), (x2, y), (x2, y + 5))))
            titles.append(Words(start, y - 4, ((text, ""),), SIZE, True, "title"))
        return paths, titles, height


def _tip(node: Node) -> str:
    if node.kind not in ("box", "step"):
        return ""
    places = list(dict.fromkeys(op.source.place for op in node.ops if op.source))
    return ": ".join(filter(None, (node.path, ", ".join(places[:3]))))


def _lowered(row: Row, y: float) -> Row:
    def words(found: Iterable[Words]) -> tuple[Words, ...]:
        return tuple(replace(one, y=one.y + y) for one in found)

    boxes = tuple(replace(box, y=box.y + y, words=words(box.words)) for box in row.boxes)
    paths = tuple(replace(path, points=tuple((px, py + y) for px, py in path.points)) for path in row.paths)
    return replace(row, boxes=boxes, paths=paths, words=words(row.words))


def _stretches(gaps: Iterable[int], walls: Collection[int]) -> list[tuple[int, int]]:
    """Return gaps as stretches, 1, 2, 4 -> (1, 2), (4, 4); a box in column 2 stands between gap 1 and gap 2."""
    found: list[tuple[int, int]] = []
    for gap in sorted(gaps):
        if found and found[-1][1] == gap - 1 and gap not in walls:
            found[-1] = (found[-1][0], gap)
        else:
            found.append((gap, gap))
    return found
