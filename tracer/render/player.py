"""A trace packed for the player (`widget/player.js`): small JSON, and the page that holds both.

Everything that is shown once for many operations is written once and referred to by number: tensors as they look,
operations as they look, lines with their chains. A block that ran 96 times adds little more than its numbers.
Every sentence and every label is made here; the script draws.
"""

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..listings import Listing
from ..records import Line, Op, Source, TensorInfo
from ..speech import N_, say, say_count
from .colours import SYMBOL, axis_colour
from .explain import explain, memory_sentence
from .html import esc, fragment, small, whole_page
from .layout import (
    Chain,
    Repeat,
    Sheet,
    as_written,
    chains,
    concrete,
    fold,
    header_sizes,
    lines,
    place,
    plain,
    told_apart,
)
from .motion import Read, motion
from .text import step_text

__all__ = ["WIDGET", "json_html", "pack", "page", "script"]

WIDGET = Path(__file__).parents[1] / "widget"
MODULES = ("player-model.js", "player-stage.js", "player.js")
"""The script in the order in which it is put together: each imports from those before it alone."""
_TO_ONE = {"softmax", "gumbel_softmax"}
"""Operations whose rows sum to 1."""
_MOST_TENSORS = 4
"""Tensors that are drawn on either side of an operation; of the others the number is said."""

WORDS = {
    "player": N_("Player: a trace, step by step"),
    "back": N_("Back"),
    "next": N_("Next"),
    "first": N_("First step"),
    "last": N_("Last step"),
    "play": N_("Play"),
    "pause": N_("Pause"),
    "speed": N_("Speed"),
    "times": N_("{n} ×"),
    "by": N_("Steps"),
    "by_operation": N_("by operation"),
    "by_line": N_("by line of code"),
    "fold": N_("Fold all"),
    "unfold": N_("Unfold all"),
    "search": N_("Search"),
    "search_hint": N_("operation, variable, module, code"),
    "found": N_("{n} of {count}"),
    "nothing": N_("nothing found"),
    "step": N_("step {n} of {count}"),
    "code": N_("Code that ran"),
    "outline": N_("Modules and operations"),
    "before": N_("Before"),
    "after": N_("After"),
    "chain": N_("Shapes on this line"),
    "picture": N_("Picture"),
    "cells_of": N_("Elements of {name}: arrow keys choose one, Escape leaves"),
    "made_from": N_("{cell} is made from {parts}"),
    "folded": N_("{note}: stepped over as one"),
    "top": N_("top level"),
    "more": N_("and {n} more"),
    "none": N_("nothing: it makes a tensor of its own accord"),
    "no_result": N_("no tensor"),
    "stride": N_("stride {n}"),
    "keys": N_(
        "Keys: ← → step, Home and End, Space plays, F folds, L changes between lines and operations, / searches"
    ),
    "hidden": N_("some elements are left out of the picture: … stands for them"),
    "sum": N_("each outlined row sums to 1"),
    "warnings": N_("Warnings"),
    "no_code": N_("The code of this step is not known."),
}
"""Labels of the player's controls; `{n}` and the like are filled in by the script."""


class _Table:
    """Things of one kind, each once: `add` returns a thing's number."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def add(self, key: Hashable, item: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.items)
            self.items.append(item)
        return self._numbers[key]


# ---------------------------------------------------------------- packing


def pack(sheet: Sheet, code: Mapping[Source, Listing], folded: bool = True) -> dict[str, Any]:
    """Return what the player is given, ready for JSON; `folded` starts with repeated blocks folded away."""
    packer = _Packer(code)
    ops = (*sheet.ops, *([sheet.failed] if sheet.failed else []))
    found = lines(ops)
    for line in found:
        packer.line(line)
    packed = packer.packed()
    packed |= {
        "head": _head(sheet),
        "warnings": ["\n".join(map(plain, text.splitlines())) for text in sheet.warnings],
        "folds": _folds(found, len(sheet.ops)) if folded else [],
        "words": {key: say_words(text) for key, text in WORDS.items()},
    }
    return packed


def say_words(text: str) -> str:
    """Return a label in the reader's language with its places for values left as they are."""
    return say(text, **{name: f"{{{name}}}" for name in re.findall(r"{(\w+)}", text)})


class _Packer:
    """Fills the tables, line by line."""

    def __init__(self, code: Mapping[Source, Listing]) -> None:
        self.code = code
        self.tensors, self.looks, self.rows = _Table(), _Table(), _Table()
        self.modules, self.sources, self.listings = _Table(), _Table(), _Table()
        self.run: list[tuple[int, int]] = []
        self.lines: list[tuple[int, int, int]] = []
        self.numbers: list[int] = []
        self.axes: set[str] = set()

    def line(self, line: Line) -> None:
        first = len(self.run)
        for op in line.ops:
            self.run.append((self.op(op), self.modules.add(op.module, plain(op.module))))
            self.numbers.append(op.index)
        order = {op.index: at for at, op in enumerate(line.ops)}
        drawn = [_chain(chain, order) for chain in chains(line)]
        inside = all(op.parent is not None for op in line.ops)
        row = (self.source(line.source), inside, drawn)
        at = self.rows.add(json.dumps(row), {"at": row[0], "inner": int(inside), "chains": drawn})
        self.lines.append((at, self.modules.add(line.module, plain(line.module)), len(self.run) - first))

    def op(self, op: Op) -> int:
        op = replace(op, inputs=tuple(as_written(info, op) for info in op.inputs))
        ins = [self.tensor(info) for info in op.inputs[:_MOST_TENSORS]]
        outs = [self.tensor(info) for info in op.outputs[:_MOST_TENSORS]]
        stopped = not op.outputs
        look = {
            "name": plain(op.name),
            "args": plain(", ".join(map(str, op.args))),
            "in": ins,
            "out": outs,
            "more": [len(op.inputs) - len(ins), len(op.outputs) - len(outs)],
            "says": _says(op),
            "memory": "" if stopped else plain(memory_sentence(op)),
            **_motion(op),
        }
        return self.looks.add(json.dumps(look), look)

    def tensor(self, info: TensorInfo) -> int:
        self.axes |= {*info.axes}
        look = {
            "name": plain(info.variable or ""),
            "label": plain(info.label),
            "axes": [plain(axis) for axis in info.axes],
            "shape": info.shape,
            "stride": info.stride,
            "origins": [plain(o or "") for o in info.origins] if any(info.origins) else None,
            "about": plain(_about(info)),
            "values": _flat(info.values) if info.values is not None else None,
        }
        return self.tensors.add(json.dumps(look), look)

    def source(self, source: Source | None) -> int:
        if source is None:
            return -1
        listing = self.code.get(source)
        at = -1 if listing is None else self.listings.add(listing, _listing(listing))
        return self.sources.add(source, [at, source.line, plain(source.code), plain(place(source))])

    def packed(self) -> dict[str, Any]:
        symbols = {s for axis in self.axes for s in SYMBOL.findall(axis)}
        return {
            "tensors": self.tensors.items,
            "looks": self.looks.items,
            "run": [n for pair in self.run for n in pair],
            "numbers": None if self.numbers == list(range(len(self.numbers))) else self.numbers,
            "rows": self.rows.items,
            "lines": [n for line in self.lines for n in line],
            "modules": self.modules.items,
            "sources": self.sources.items,
            "listings": self.listings.items,
            "colours": {plain(axis): axis_colour(axis) for axis in sorted(self.axes | symbols)},
        }


def _says(op: Op) -> str:
    if not op.outputs and op.inputs:
        return say("Stopped here: {name} raised an error.", name=plain(op.name))
    return plain(explain(op))


def _motion(op: Op) -> dict[str, Any]:
    """Return what moves: the kind, its axes, and for each result what is read of each input.

    `one`: its rows sum to 1; `hatch`: the number of the input that is its mask.
    """
    found = [motion(op, at) for at in range(min(len(op.outputs), _MOST_TENSORS))]
    if not found:
        return {"kind": "other", "about": [], "reads": []}
    reads = [[_read(read) for read in one.reads[:_MOST_TENSORS]] for one in found]
    name = op.name.rstrip("_")
    marks = {"one": True} if name in _TO_ONE else {"hatch": 1} if name == "masked_fill" else {}
    return {"kind": found[0].kind, "about": list(found[0].axes), "reads": reads, **marks}


def _read(read: Read) -> Any:
    if read is None or read[0] == "flat":
        return None if read is None else "flat"
    return [list(entry) if isinstance(entry, tuple) else entry for entry in read[1]]


def _chain(chain: Chain, order: Mapping[int, int]) -> list[Any]:
    """Return [what it starts with, [[operation of the line, text], …], inside an operation, whose the axes are]."""
    start = (f"{chain.name}: " if chain.name else "") + (chain.start.label if chain.start else "")
    steps = [
        [order[step.op.index], plain(step_text(step, first=chain.start is None and at == 0).strip())]
        for at, step in enumerate(chain.steps)
    ]
    apart = told_apart(chain)
    return [plain(start), steps, int(chain.inner), plain(say("that is {label}", label=apart)) if apart else ""]


def _listing(listing: Listing) -> list[Any]:
    file = Source(listing.file, 0, "").place.rpartition(":")[0]
    numbers = [n for n, _ in listing.lines]
    return [plain(file), plain(listing.name), numbers, [plain(text) for _, text in listing.lines]]


def _about(info: TensorInfo) -> str:
    """Return sizes, dtype, device and strides in short."""
    parts = [concrete(info) if info.shape else say("one number"), info.dtype.removeprefix("torch."), info.device]
    if info.stride:
        parts.append(say("stride {stride}", stride="·".join(map(str, info.stride))))
    if info.contiguous is False:
        parts.append(say("not contiguous"))
    if any(info.origins):
        parts.append(say("that is {label}", label=_whose(info)))
    return ", ".join(part for part in parts if part)


def _whose(info: TensorInfo) -> str:
    axes = (origin or axis for origin, axis in zip(info.origins, info.axes, strict=True))
    return f"[{', '.join(axes)}]"


def _flat(values: Any) -> list[float | str]:
    """Return kept numbers in row-major order: four digits, and as text what JSON has no number for."""
    if isinstance(values, list | tuple):
        return [number for part in values for number in _flat(part)]
    if isinstance(values, complex):
        return [str(values)]
    number = float(values)
    return [float(f"{number:.4g}") if math.isfinite(number) else str(number)]


def _folds(found: Sequence[Line], ops: int) -> list[list[Any]]:
    """Return [first line, line after the last, sentence] of the blocks that repeat the ones before them."""
    numbers = {id(line): at for at, line in enumerate(found)}
    folds: list[list[Any]] = []
    waiting: list[Line | Repeat] = list(fold(found))
    while waiting:
        item = waiting.pop()
        if isinstance(item, Repeat):
            rest = [line for _, body in item.others for line in body]
            folds.append([numbers[id(rest[0])], numbers[id(rest[-1])] + 1, plain(item.note)])
            waiting += item.first
    return sorted(folds)


def _head(sheet: Sheet) -> list[str]:
    count = say_count("{n} operation", "{n} operations", len(sheet.ops))
    sizes = [f"{name} = {size}" for name, size in header_sizes(sheet).items()]
    return [plain(part) for part in (count, sheet.device, *sizes) if part]


# ---------------------------------------------------------------- the page


def json_html(data: Any) -> str:
    """Return JSON that is safe inside a script element: no text in it can end the element."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def script() -> str:
    """Return the player as one module: its parts in order, without their imports from each other."""
    parts = [(WIDGET / name).read_text(encoding="utf-8") for name in MODULES]
    parts = [re.sub(r"^import .*?;\n", "", part, flags=re.MULTILINE) for part in parts]
    inner = [re.sub(r"^export (?!default)", "", part, flags=re.MULTILINE) for part in parts]
    return "\n".join(inner)


_START = """const byId = (name) => document.getElementById(`tracer-${name}`);
mount(byId("player"), JSON.parse(byId("data").textContent));
byId("table").open = false;"""


def page(sheet: Sheet, code: Mapping[Source, Listing], folded: bool = True) -> str:
    """Return one whole offline page: the player, and the trace as a table, which is all that shows without scripts."""
    css = small((WIDGET / "player.css").read_text(encoding="utf-8"))
    module = script().replace("export default { render };", _START)
    body = (
        f'<style>{css}</style><div id="tracer-player"></div>'
        f'<details id="tracer-table" open><summary>{esc(say("The whole trace as a table"))}</summary>'
        f"{fragment(sheet, folded, lean=True)}</details>"
        f'<script type="application/json" id="tracer-data">{json_html(pack(sheet, code, folded))}</script>'
        f'<script type="module">{module}</script>'
    )
    return whole_page(say("Shape trace"), body)
