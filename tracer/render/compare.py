"""The differences of two traces, as text and as HTML: what stands where comes from `matching`, the look from style.css.

Each kind of change has a sign and a word; the colour only helps. Equal changes of numbered blocks are shown once.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..matching import Change, Difference, Kind
from ..records import Line, Op
from ..speech import N_, say, say_count
from .html import chain_html, esc, label_html, style
from .layout import block_of, chains, concrete, memory_word, next_block, place, plain, span_of
from .text import chain_text

__all__ = ["Comparison", "parting", "to_html", "to_text", "totals"]

_SIGNS: dict[Kind, str] = {"added": "+", "gone": "-", "changed": "~", "moved": ">"}
_KINDS: dict[Kind, str] = {"added": N_("added"), "gone": N_("gone"), "changed": N_("changed"), "moved": N_("moved")}
_DIFFERS: dict[Difference, str] = {
    "operation": N_("another operation"),
    "names": N_("other axes"),
    "sizes": N_("other sizes"),
    "dtype": N_("another dtype"),
    "memory": N_("other memory"),
    "arguments": N_("other arguments"),
    "operands": N_("other operands"),
    "error": N_("an error"),
}


@dataclass(frozen=True)
class Comparison:
    """What a renderer is given: the changes, how many steps each run has, and what the two runs are called."""

    changes: tuple[Change, ...]
    steps: tuple[int, int]
    names: tuple[str, str]


# ---------------------------------------------------------------- sentences


def totals(found: Comparison) -> str:
    """Return the line above: how many steps, and how many changes of each kind."""
    counts = [say_count("{n} operation", "{n} operations", n) for n in found.steps]
    text = ", ".join(f"{name}: {count}" for name, count in zip(found.names, counts, strict=True))
    if not found.changes:
        return say("Equal, step by step. {counts}.", counts=text)
    kinds = [(kind, sum(c.kind == kind for c in found.changes)) for kind in _SIGNS]
    return f"{text}. " + ", ".join(f"{n} {say(_KINDS[kind])}" for kind, n in kinds if n) + "."


def parting(change: Change, names: tuple[str, str]) -> str:
    """Say in one sentence how two runs differ in a step, with the named shapes of both."""
    words = dict.fromkeys(info.variable for info in change.tensors if info and info.variable)
    ops = (change.mine, change.theirs)
    steps = dict.fromkeys(op.name for op in ops if op)
    at = say(" at {what}", what=" / ".join(words or steps))
    here = [f"{name} {_in_short(change, side)}" for side, name in enumerate(names)]
    text = say("They part{at}: {mine}; {theirs}.", at=at, mine=here[0], theirs=here[1])
    for name, op, other in zip(names, ops, reversed(ops), strict=True):
        if op is not None and other is None:
            text += say(" Only {name} has this {step} ({place}).", name=name, step=op.name, place=place(op.source))
    if change.kind == "moved" and change.mine:
        text += say(" This {step} stands at another place.", step=change.mine.name)
    return text + (f" ({_how(change)})" if change.differs else "")


def _in_short(change: Change, side: int) -> str:
    """Return what one run has: its named shape, and what else the change is about."""
    info, op = change.tensors[side], (change.mine, change.theirs)[side]
    text = info.label if info else say("an error") if op and "error" in change.differs else say("without it")
    if op is None or len({*change.differs} - {"names"}) + (change.kind == "moved") == 0:
        return text
    name = f"{op.name} " if "operation" in change.differs else ""
    extras = _extras(op, change, side)
    return f"{name}{text}" + (f", {', '.join(extras)}" if extras else "")


def _how(change: Change) -> str:
    return ", ".join(say(_DIFFERS[what]) for what in change.differs)


def _title(change: Change) -> str:
    """Return `~ changed (other sizes)`."""
    how = f" ({_how(change)})" if change.differs else ""
    return f"{_SIGNS[change.kind]} {say(_KINDS[change.kind])}{how}"


# ---------------------------------------------------------------- repeated blocks


@dataclass(frozen=True)
class _Fold:
    """The same changes in blocks that follow one another: the first in full."""

    path: str
    first: tuple[Change, ...]
    others: tuple[tuple[str, tuple[Change, ...]], ...]

    @property
    def note(self) -> str:
        span = span_of([path for path, _ in self.others])
        count = say_count("{n} change", "{n} changes", sum(len(body) for _, body in self.others))
        return say("{span}: as {path} ({count})", span=span, path=self.path, count=count)


def _folded(changes: Sequence[Change]) -> list[Change | _Fold]:
    """Gather blocks (`h.0`, `h.1`, …) with the same changes."""
    runs = [(head, tuple(run)) for head, run in groupby(changes, key=lambda c: block_of(c.module, ""))]
    items: list[Change | _Fold] = []
    while runs:
        head, body = runs.pop(0)
        others: list[tuple[str, tuple[Change, ...]]] = []
        while head and runs and runs[0][0] == next_block(head, len(others) + 1) and _same(runs[0], (head, body)):
            others.append(runs.pop(0))
        items += [_Fold(head, body, tuple(others))] if others else body
    return items


def _same(one: tuple[str, tuple[Change, ...]], two: tuple[str, tuple[Change, ...]]) -> bool:
    return [_sign(c, one[0]) for c in one[1]] == [_sign(c, two[0]) for c in two[1]]


def _sign(change: Change, head: str) -> tuple[object, ...]:
    def side(op: Op | None) -> object:
        if op is None:
            return None
        tensors = [(i.label, i.shape, i.dtype, i.memory, (i.variable or "").removeprefix(head)) for i in op.outputs]
        inputs = [(i.label, i.shape, i.dtype, (i.variable or "").removeprefix(head)) for i in op.inputs]
        return op.name, op.args, op.source, op.module.removeprefix(head), tensors, inputs

    return change.kind, change.differs, side(change.mine), side(change.theirs)


# ---------------------------------------------------------------- text


def to_text(found: Comparison, first: Change | None, folded: bool = True) -> str:
    """Return the differences as text; `folded` shows equal changes of numbered blocks once."""
    parts = [totals(found)]
    if first is not None:
        parts += [parting(first, found.names), ""]
    for item in _folded(found.changes) if folded else found.changes:
        if isinstance(item, _Fold):
            parts += [line for change in item.first for line in _change_text(change, found.names)] + [item.note]
        else:
            parts += _change_text(item, found.names)
    return "\n".join(plain(part) for part in parts)


def _change_text(change: Change, names: tuple[str, str]) -> list[str]:
    """Return one line where only one run has the step, else three."""
    title = f"{_title(change)}   {change.module}".rstrip()
    if change.mine and change.theirs:
        width = max(map(len, names))
        return [title, *(f"    {name.ljust(width)}  {_side_text(change, side)}" for side, name in enumerate(names))]
    side = 0 if change.mine else 1
    stays = f"   ({names[1 - side]}: {text})" if (text := _stays(change, 1 - side)) else ""
    return [f"{title}   {names[side]}: {_side_text(change, side)}{stays}"]


def _stays(change: Change, side: int) -> str:
    """Say what the run without the step goes on with, where that is another named shape."""
    info, other = change.tensors[side], change.tensors[1 - side]
    return say("stays {label}", label=info.label) if info and other and info.label != other.label else ""


def _side_text(change: Change, side: int) -> str:
    op = (change.mine, change.theirs)[side]
    if op is None:
        return say("no such step")
    text = f"{place(op.source)}   {'; '.join(map(chain_text, chains(Line(op.source, op.module, (op,)))))}"
    return text + "".join(f"   {extra}" for extra in _extras(op, change, side))


def _extras(op: Op, change: Change, side: int) -> list[str]:
    """Return what shapes do not tell and the change is about: sizes, arguments, memory, dtype, operands, an error."""
    found = {
        "sizes": ", ".join(dict.fromkeys(map(concrete, op.outputs))),
        "dtype": ", ".join(dict.fromkeys(out.dtype.removeprefix("torch.") for out in op.outputs)),
        "memory": say("memory: {word}", word=say(memory_word(op))),
        "arguments": say("arguments: {args}", args=", ".join(map(str, op.args)) or "-"),
        "operands": say("works on {operands}", operands=change.operands[side]),
        "error": "" if op.outputs else say("raised an error"),
    }
    return [text for what, text in found.items() if what in change.differs and text]


# ---------------------------------------------------------------- HTML


def to_html(found: Comparison, first: Change | None, folded: bool = True) -> str:
    """Return the piece that a notebook shows: two columns, one row for each change."""
    ops = [op for c in found.changes for op in (c.mine, c.theirs) if op]
    axes = {axis for op in ops for info in op.inputs + op.outputs for axis in info.axes}
    head = f'<p class="st-head"><b>{esc(totals(found))}</b></p>'
    if first is not None:
        head += f'<div class="st-box" role="note"><div>{_marked(parting(first, found.names))}</div></div>'
    parts: list[str] = []
    items = _folded(found.changes) if folded else list(found.changes)
    for is_fold, run in groupby(items, key=lambda item: isinstance(item, _Fold)):
        if not is_fold:
            parts.append(_table([c for c in run if isinstance(c, Change)], found.names))
            continue
        for item in run:
            if isinstance(item, _Fold):
                rest = "".join(_table(body, found.names) for _, body in item.others)
                parts.append(_table(item.first, found.names))
                parts.append(f"<details><summary>{esc(item.note)}</summary>{rest}</details>")
    return f'<div class="shape-tracer">{style(axes)}{head}{"".join(parts)}</div>'


def _marked(text: str) -> str:
    """Return a sentence with the axes of its named shapes in their colours; its other words are no axes."""
    parts = re.split(r"(\[[^\[\]]*\])", text)
    return "".join(label_html(part) if part.startswith("[") else esc(part) for part in parts)


def _table(changes: Sequence[Change], names: tuple[str, str]) -> str:
    heads = "".join(f'<th scope="col">{esc(h)}</th>' for h in (say("change"), *names))
    body = "".join(_module(module, run, names) for module, run in groupby(changes, key=lambda c: c.module))
    return f'<table class="st-t st-diff"><thead><tr>{heads}</tr></thead>{body}</table>'


def _module(module: str, run: Iterable[Change], names: tuple[str, str]) -> str:
    name = esc(module or say("top level"))
    head = f'<tr><th scope="rowgroup" colspan="3" class="st-mod">{name}</th></tr>'
    return f"<tbody>{head}{''.join(_row(change, names) for change in run)}</tbody>"


def _row(change: Change, names: tuple[str, str]) -> str:
    cells = "".join(f'<td data-h="{esc(name)}">{_side(change, side)}</td>' for side, name in enumerate(names))
    return f'<tr class="st-{change.kind}"><th scope="row">{esc(_title(change))}</th>{cells}</tr>'


def _side(change: Change, side: int) -> str:
    op = (change.mine, change.theirs)[side]
    if op is None:
        stays = f" ({_stays(change, side)})" if _stays(change, side) else ""
        return f"<small>{esc(say('no such step'))}{_marked(stays)}</small>"
    shapes = "".join(map(chain_html, chains(Line(op.source, op.module, (op,)))))
    code = f"<code>{esc(op.source.code)}</code>" if op.source else ""
    told = replace(change, differs=tuple(what for what in change.differs if what not in ("sizes", "memory")))
    extras = "".join(f"<div>{esc(text)}</div>" for text in _extras(op, told, side))  # the chain shows sizes and memory
    return f'<small class="st-at">{esc(place(op.source))}</small>{code}{shapes}{extras}'
