"""Two traces beside each other: where they part and which steps are added, gone or changed, as text and HTML.

Which step answers to which, and what differs between the two, is found by `pairs`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import overload

from .pairs import WHAT, Pair, labels, pair_up
from .records import Op, Source, TensorInfo
from .render.html import document, esc, label_html, style, tensor_html
from .render.layout import Repeat, Sheet, as_written, concrete, fold, header_sizes, lines, memory_word, place, plain
from .speech import N_, say, say_count

__all__ = ["Diff", "compare"]

MARKS = {
    "gone": ("-", N_("gone"), N_("only in {mine}")),
    "added": ("+", N_("added"), N_("only in {theirs}")),
    "changed": ("~", N_("changed"), N_("in both, and not the same")),
    "equal": ("=", N_("equal"), N_("the same in both, in a line that differs")),
}
"""Kind of a pair -> its mark, its word, and what that means."""


def compare(mine: Sheet, theirs: Sheet, titles: tuple[str, str]) -> "Diff":
    """Return what differs between two traces; `titles` are what they are called when shown."""
    a, b = ((*sheet.ops, sheet.failed) if sheet.failed else sheet.ops for sheet in (mine, theirs))
    pairs = pair_up(a, b, (mine.failed is not None, theirs.failed is not None))
    return Diff(pairs, (mine, theirs), (titles[0] or say("this trace"), titles[1] or say("the other")))


@dataclass(frozen=True, eq=False, repr=False)
class Diff(Sequence[Pair]):
    """The steps in which two traces differ, in order: `len(d)`, `d[0]`, `for pair in d`; true if there are any.

    `d.pairs` has the equal steps too; `d.first` is where the traces part. `print(d)` shows it as text, a notebook as
    two columns; `d.to_html()` is a page. `sheets` are the two traces, `titles` their names.
    """

    pairs: tuple[Pair, ...]
    sheets: tuple[Sheet, Sheet]
    titles: tuple[str, str]

    @cached_property
    def _different(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.kind != "equal")

    @cached_property
    def _statements(self) -> list["_Statement"]:
        return _statements(self)

    def __len__(self) -> int:
        return len(self._different)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._different)

    @overload
    def __getitem__(self, key: int) -> Pair: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, key: int | slice) -> Pair | tuple[Pair, ...]:
        return self._different[key]

    @property
    def first(self) -> Pair | None:
        """The step where the traces part: the first that is not minor, else the first; None if they are equal.

        Its `labels` say what either has there: `("[B, T, H, D]", "[B, H, T, D]")`.
        """
        return next((pair for pair in self if not pair.minor), self[0] if self else None)

    @property
    def sizes(self) -> dict[str, tuple[str, str]]:
        """Symbols whose size is not the same in both: `{"H": ("4", "8")}`; "" where a trace has no such axis."""
        a, b = map(header_sizes, self.sheets)
        return {s: (a.get(s, ""), b.get(s, "")) for s in a | b if a.get(s) != b.get(s)}

    @property
    def summary(self) -> str:
        """What differs, in short: how many steps, which sizes, and where the traces part, with their lines."""
        parts = [*_counts(self), *_where(self)]
        return "\n".join(map(plain, parts))

    def to_text(self) -> str:
        """Return the summary and the steps that differ as text, by line of code; repeated blocks stand once."""
        return "\n".join([self.summary, *map(plain, _body(self))])

    def to_html(self) -> str:
        """Return the same as one offline HTML page in two columns; repeated blocks are folded and stay in reach."""
        return document(say("Two traces compared"), _fragment(self))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Diff: {'; '.join(_counts(self))}>"

    def _repr_html_(self) -> str:
        return _fragment(self)


# ---------------------------------------------------------------- by line of code


@dataclass(frozen=True)
class _Statement:
    """One pass over a line of code, with the line that answers to it."""

    module: str
    sources: tuple[Source | None, Source | None]
    ops: tuple[Pair, ...]


def _statements(diff: Diff) -> list[_Statement]:
    """Return the lines that differ; a step that only one side has stands with its own line's other steps."""
    mine, theirs = ({id(op): line for line in lines(_ops(diff, side)) for op in line.ops} for side in (0, 1))
    with_mine: dict[int, int] = {}  # a line of theirs -> the line of mine that its first equal step stands in
    for pair in diff.pairs:
        if pair.mine and pair.theirs:
            with_mine.setdefault(id(theirs[id(pair.theirs)]), id(mine[id(pair.mine)]))

    def line_of(pair: Pair) -> int:
        if pair.mine:
            return id(mine[id(pair.mine)])
        own = id(theirs[id(pair.theirs)])
        return with_mine.get(own, own)

    found = []
    for _, run in groupby(diff.pairs, key=line_of):
        pairs = tuple(run)
        if any(pair.kind != "equal" for pair in pairs):
            a = next((mine[id(pair.mine)] for pair in pairs if pair.mine), None)
            b = next((theirs[id(pair.theirs)] for pair in pairs if pair.theirs), None)
            module = next(line.module for line in (a, b) if line)
            found.append(_Statement(module, (a.source if a else None, b.source if b else None), pairs))
    return found


def _ops(diff: Diff, side: int) -> list[Op]:
    """Return the operations of one side in their order."""
    ops = [op for pair in diff.pairs if (op := pair.theirs if side else pair.mine)]
    return sorted(ops, key=lambda op: op.index)


def _sign(found: Sequence[_Statement], head: str) -> object:
    """What two blocks must have in common to be shown once."""
    return [
        (statement.module.removeprefix(head), statement.sources, [_pair_sign(pair) for pair in statement.ops])
        for statement in found
    ]


def _pair_sign(pair: Pair) -> object:
    return (
        pair.kind,
        pair.what,
        *(op and _op_sign(op) for op in (pair.mine, pair.theirs)),
        pair.held and pair.held.label,
    )


def _op_sign(op: Op) -> object:
    return op.name, op.args, [(o.label, o.shape, o.dtype, o.memory) for o in op.outputs], [i.label for i in op.inputs]


# ---------------------------------------------------------------- in words


def _counts(diff: Diff) -> list[str]:
    """The sentences on the whole: how many steps of which kind, and the sizes that differ."""
    n = [len(_ops(diff, side)) for side in (0, 1)]
    if not diff:
        return [
            say_count("The two traces are equal: {n} operation.", "The two traces are equal: {n} operations.", n[0])
        ]
    kinds = Counter[str](pair.kind for pair in diff.pairs)
    each = ", ".join(f"{kinds[kind]:,} {say(word)}" for kind, (_, word, _) in MARKS.items() if kinds[kind])
    sides = ", ".join(
        say_count("{title}: {n:,} operation", "{title}: {n:,} operations", count, title=title)
        for title, count in zip(diff.titles, n, strict=True)
    )
    none = say("none")
    sizes = ", ".join(f"{symbol} {a or none} -> {b or none}" for symbol, (a, b) in diff.sizes.items())
    return [sides, each, *([say("sizes: {sizes}", sizes=sizes)] if sizes else [])]


def _where(diff: Diff) -> list[str]:
    """Where the traces part: the line of either, and what each has there."""
    first = diff.first
    if first is None:
        return []
    (statement,) = (s for s in diff._statements if any(pair is first for pair in s.ops))
    a, b = statement.sources
    sides = [("", a)] if a == b else zip((f"{title}: " for title in diff.titles), (a, b), strict=True)
    rows = [f"  {title}{_line(source, statement.module)}" for title, source in sides if source]
    return [say("They part here:"), *rows, f"  {_told(first, diff.titles)}"]


def _line(source: Source | None, module: str) -> str:
    return "   ".join(part for part in (module, place(source), source.code if source else "") if part)


def _told(pair: Pair, titles: tuple[str, str]) -> str:
    """Say what both sides have at one step: `transpose: yours [B, T, H, D], the reference [B, H, T, D]`."""
    if pair.kind == "changed":
        details = _details(pair, titles)
        if "names" in pair.what:
            details[0] = ", ".join(f"{t} {s}" for t, s in zip(titles, pair.labels, strict=True))
        return f"{pair.name}: {'; '.join(details)}"
    (op, title, other, held) = (
        (pair.mine, *titles, pair.labels[1]) if pair.mine else (pair.theirs, *titles[::-1], pair.labels[0])
    )
    assert op is not None
    result = labels(op)
    values = {"title": title, "name": op.name, "result": result, "other": other, "held": held}
    if held and held != result:
        return say("{name}: {title} has {result}, {other} stays at {held}", **values)
    return say("{name} {result}: only in {title}", **values)


def _details(pair: Pair, titles: tuple[str, str]) -> list[str]:
    """Return what differs between two steps, the shapes first."""
    a, b = pair.mine, pair.theirs
    if a is None or b is None:
        return []
    left, right = pair.labels
    told = [f"{left} -> {right}" if "names" in pair.what else left or right]
    for what in pair.what:
        if what == "sizes":
            told.append(f"{_sizes(a)} -> {_sizes(b)}")
        elif what == "dtype":
            told.append(" -> ".join(op.outputs[0].dtype.removeprefix("torch.") for op in (a, b)))
        elif what == "memory":
            told.append(" -> ".join(say(memory_word(op)) or "-" for op in (a, b)))
        elif what == "arguments":
            told.append(say("arguments {a} -> {b}", a=_arguments(a), b=_arguments(b)))
        elif what in ("inputs", "parameters"):
            told.append(say("takes {a} -> {b}", a=_takes(a), b=_takes(b)))
        elif what == "error":
            told.append(say("raised an error in {title}", title=titles[0] if not a.outputs else titles[1]))
        elif what == "results":
            told.append(say(WHAT[what]))
    return told


def _sizes(op: Op) -> str:
    return ", ".join(dict.fromkeys(map(concrete, op.outputs)))


def _arguments(op: Op) -> str:
    return f"({', '.join(map(str, op.args))})"


def _takes(op: Op) -> str:
    return "(" + ", ".join(f"{i.variable} {i.label}" if i.variable else i.label for i in _inputs(op)) + ")"


def _inputs(op: Op) -> list[TensorInfo]:
    return [as_written(info, op) for info in op.inputs]


# ---------------------------------------------------------------- as text


def _body(diff: Diff) -> list[str]:
    if not diff:
        return []
    used = {pair.kind for statement in diff._statements for pair in statement.ops}
    mine, theirs = diff.titles
    legend = [
        f"  {mark} {say(word)}: {say(meaning, mine=mine, theirs=theirs)}"
        for kind, (mark, word, meaning) in MARKS.items()
        if kind in used
    ]
    return ["", *_items(fold(diff._statements, sign=_sign), diff.titles), "", *legend]


def _items(items: Iterable[_Statement | Repeat[_Statement]], titles: tuple[str, str]) -> list[str]:
    text: list[str] = []
    for item in items:
        text += [*_items(item.first, titles), _note(item)] if isinstance(item, Repeat) else _rows(item, titles)
    return text


def _note(repeat: Repeat[_Statement]) -> str:
    one, many = "{span}: as {path} ({n} step)", "{span}: as {path} ({n:,} steps)"
    return say_count(one, many, repeat.count, span=repeat.span, path=repeat.path)


def _rows(statement: _Statement, titles: tuple[str, str]) -> list[str]:
    a, b = statement.sources
    if a == b:
        heads = [f"  {_line(a, statement.module)}"]
    else:
        sides = ((mark, source) for mark, source in zip("-+", (a, b), strict=True) if source)
        heads = [f"{mark} {_line(source, statement.module)}" for mark, source in sides]
    return [*heads, *(f"    {MARKS[pair.kind][0]} {_row(pair, titles)}" for pair in statement.ops)]


def _row(pair: Pair, titles: tuple[str, str]) -> str:
    if pair.kind in ("equal", "changed"):
        return " ".join((f"{pair.name}:", "; ".join(_details(pair, titles)))).rstrip(": ")
    op, other, held = (pair.mine, titles[1], pair.labels[1]) if pair.mine else (pair.theirs, titles[0], pair.labels[0])
    assert op is not None
    text = f"{op.name}: {labels(op)}".rstrip(": ")
    if held and held != labels(op):
        text += "   " + say("({other} stays at {held})", other=other, held=held)
    return text


# ---------------------------------------------------------------- as HTML


def _fragment(diff: Diff) -> str:
    axes = {a for side in (0, 1) for op in _ops(diff, side) for info in op.inputs + op.outputs for a in info.axes}
    axes |= {symbol for sheet in diff.sheets for symbol in header_sizes(sheet)}
    counts = "".join(f"<span>{esc(sentence)}</span>" for sentence in _counts(diff))
    parts = [style(axes), f'<p class="st-head">{counts}</p>']
    if diff:
        parts += [_part_box(diff), _blocks(fold(diff._statements, sign=_sign), diff.titles), _legend(diff)]
    return f'<div class="shape-tracer">{"".join(parts)}</div>'


def _part_box(diff: Diff) -> str:
    title, *rows = _where(diff)
    *places, told = (esc(row.strip()) for row in rows)
    text = "".join(f"<div><code>{row}</code></div>" for row in places)
    return f'<div class="st-box" role="note"><b>{esc(title)}</b>{text}<div>{told}</div></div>'


def _legend(diff: Diff) -> str:
    used = {pair.kind for statement in diff._statements for pair in statement.ops}
    mine, theirs = diff.titles
    rows = "".join(
        f"<dt>{_mark(kind)}</dt><dd>{esc(say(meaning, mine=mine, theirs=theirs))}</dd>"
        for kind, (_, _, meaning) in MARKS.items()
        if kind in used
    )
    return f"<small><dl>{rows}</dl></small>"


def _mark(kind: str) -> str:
    sign, word, _ = MARKS[kind]
    return f'<b class="st-{kind}">{sign} {esc(say(word))}</b>'


def _blocks(items: Iterable[_Statement | Repeat[_Statement]], titles: tuple[str, str]) -> str:
    parts: list[str] = []
    run: list[_Statement] = []
    for item in items:
        if isinstance(item, Repeat):
            others = "".join(_table(body, titles) for _, body in item.others)
            folded = f"<details><summary>{esc(_note(item))}</summary>{others}</details>"
            parts += [_table(run, titles), _blocks(item.first, titles), folded]
            run = []
        else:
            run.append(item)
    return "".join(parts) + _table(run, titles)


def _table(run: Sequence[_Statement], titles: tuple[str, str]) -> str:
    if not run:
        return ""
    heads = "".join(f'<th scope="col">{esc(h)}</th>' for h in (say("step"), *titles))
    body = "".join(
        f'<tbody><tr><th scope="rowgroup" colspan="3" class="st-mod">{esc(module or say("top level"))}</th></tr>'
        f"{''.join(_statement(s, titles) for s in part)}</tbody>"
        for module, part in groupby(run, key=lambda statement: statement.module)
    )
    return f'<table class="st-t st-diff"><thead><tr>{heads}</tr></thead>{body}</table>'


def _statement(statement: _Statement, titles: tuple[str, str]) -> str:
    a, b = statement.sources
    heads = _code(a, say("both"), ' colspan="2"') if a == b else _code(a, titles[0]) + _code(b, titles[1])
    head = f'<tr class="st-line"><th scope="row"><small>{esc(say("line of code"))}</small></th>{heads}</tr>'
    return head + "".join(_pair(pair, titles) for pair in statement.ops)


def _code(source: Source | None, title: str, span: str = "") -> str:
    text = f'<small class="st-at">{esc(place(source))}</small><code>{esc(source.code)}</code>' if source else ""
    return _cell(text, title, span)


def _cell(text: str, title: str, span: str = "") -> str:
    return f'<td{span} data-h="{esc(title)}">{text}</td>'


def _pair(pair: Pair, titles: tuple[str, str]) -> str:
    what = ", ".join(say(WHAT[w]) for w in pair.what)
    note = f"<small>{esc(what)}</small>" if what else ""
    head = f'<th scope="row">{_mark(pair.kind)} <span class="st-op">{esc(pair.name)}{note}</span></th>'
    sides = (_side(op, pair) for op in (pair.mine, pair.theirs))
    return f"<tr>{head}{''.join(map(_cell, sides, titles))}</tr>"


def _side(op: Op | None, pair: Pair) -> str:
    """What one side has at a step: its results, and whatever else differs."""
    if op is None:
        held = _tensors([pair.held]) if pair.held else ""
        return f"<small>{esc(say('nothing; stays at') if held else say('nothing'))}</small> {held}"
    if not op.outputs:
        return f"<small>{esc(say('raised an error') if 'error' in pair.what else say('no tensor'))}</small>"
    more = []
    if "dtype" in pair.what:
        more.append(op.outputs[0].dtype.removeprefix("torch."))
    if "memory" in pair.what:
        more.append(say(memory_word(op)))
    if "arguments" in pair.what:
        more.append(say("arguments {a}", a=_arguments(op)))
    details = f"<div><small>{esc(', '.join(more))}</small></div>" if more else ""
    if {"inputs", "parameters"} & set(pair.what):
        taken = ", ".join(f"{esc(i.variable or '')} {label_html(i.label)}" for i in _inputs(op))
        details += f'<div><small>{esc(say("takes"))} <span class="st-l">{taken}</span></small></div>'
    return f"{_tensors(op.outputs)}{details}"


def _tensors(outputs: Sequence[TensorInfo]) -> str:
    alike = len({out.label for out in outputs}) == 1
    times = f"{len(outputs)} × " if alike and len(outputs) > 1 else ""
    return times + ", ".join(map(tensor_html, outputs[:1] if alike else outputs))
