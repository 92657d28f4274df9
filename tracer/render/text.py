"""A trace as text, grouped by the line of code, in the notation `q: [B, T, C] -> view [B, T, H, D]`."""

from collections.abc import Iterable, Sequence

from ..records import Line, Op, TensorInfo
from ..speech import say, say_count
from .layout import (
    MEMORY_WORDS,
    Chain,
    Repeat,
    Sheet,
    Step,
    chains,
    fold,
    header_sizes,
    lines,
    memory_word,
    place,
    plain,
    told_apart,
)

__all__ = ["chain_text", "head_text", "step_text", "summary", "to_text"]


def to_text(sheet: Sheet, folded: bool = True) -> str:
    """Return the whole trace as text; `folded` shows repeated blocks once."""
    found = lines(sheet.ops)
    items = fold(found) if folded else found
    parts = [summary(sheet), "", *_items(items)]
    if sheet.failed is not None:
        parts += ["", *_stopped(sheet.failed)]
    parts += _footer(sheet)
    return "\n".join(plain(part) for part in parts)


def summary(sheet: Sheet) -> str:
    """Return the line above a trace: how many operations, where, and the sizes in use."""
    sizes = " ".join(f"{name}={size}" for name, size in header_sizes(sheet).items())
    count = say_count("{n} operation", "{n} operations", len(sheet.ops))
    return "   ".join(part for part in (count, sheet.device, sizes) if part)


def head_text(line: Line) -> str:
    """Return where a line stands and what it says: `h.0.attn   attention.py:41   q = q.view(...)`."""
    code = line.source.code if line.source else ""
    return "   ".join(part for part in (line.module, place(line.source), code) if part)


def chain_text(chain: Chain) -> str:
    """Return one chain without its memory note: `q: [B, T, C] -> view [B, T, H, D]`."""
    text = f"{chain.name}: " if chain.name else ""
    if chain.start is not None:
        text += chain.start.label
    for step in chain.steps:
        text += step_text(step, first=chain.start is None and step is chain.steps[0])
    return text


def step_text(step: Step, first: bool) -> str:
    """Return one step of a chain: ` -> view [B, T, H, D]`; `first`: nothing stands before it."""
    result = _outputs(step.op.outputs)
    if step.sign:
        return f" {step.sign} {' '.join(o.label for o in step.others)} -> {result}".rstrip()
    beside = f"({_operands(step.others)})" if step.others else ""
    return f"{'' if first else ' -> '}{step.op.name}{beside} {result}".rstrip()


def _operands(others: Sequence[TensorInfo], most: int = 3) -> str:
    shown = [f"{o.variable} {o.label}" if o.variable else o.label for o in others[:most]]
    if len(others) > most:
        shown.append(say("{n} more", n=len(others) - most))
    return ", ".join(shown)


def _outputs(outputs: Sequence[TensorInfo]) -> str:
    labels = [out.label for out in outputs]
    if len(labels) > 1 and len(set(labels)) == 1:
        return f"{len(labels)} x {labels[0]}"
    return ", ".join(labels)


def _items(items: Iterable[Line | Repeat]) -> list[str]:
    text: list[str] = []
    for item in items:
        text += [*_items(item.first), item.note] if isinstance(item, Repeat) else _line(item)
    return text


def _line(line: Line) -> list[str]:
    inside = all(op.parent is not None for op in line.ops)
    text = [f"{'    ' if inside else ''}{head_text(line)}"]
    for chain in chains(line):
        indent = "        " if chain.inner else "    "
        words = [memory_word(step.op) for step in chain.steps]
        note = f"   # {', '.join(w for w in words if w)}" if any(w not in ("", "new") for w in words) else ""
        text.append(f"{indent}{chain_text(chain)}{note}")
        if label := told_apart(chain):
            text.append(f"{indent}    {say('that is {label}', label=label)}")
    return text


def _stopped(op: Op) -> list[str]:
    """The operation that raised: its line and its operands."""
    operands = ", ".join(o.label for o in op.inputs)
    return [
        say("Stopped here: {name} raised an error.", name=op.name),
        f"    {head_text(Line(op.source, op.module, (op,)))}",
        f"    {op.name}({operands})",
    ]


def _warnings(sheet: Sheet) -> list[str]:
    return [f"  {'  ' if i else '! '}{line}" for text in sheet.warnings for i, line in enumerate(text.splitlines())]


def _footer(sheet: Sheet) -> list[str]:
    """Warnings, operations without a rule, and the memory words that were used."""
    text: list[str] = []
    if sheet.warnings:
        text += ["", say_count("{n} warning:", "{n} warnings:", len(sheet.warnings)), *_warnings(sheet)]
    if sheet.unnamed:
        text += ["", say("No rule names the axes of: {names}", names=", ".join(sheet.unnamed))]
    used = {memory_word(op) for op in sheet.ops} - {"", "new"}
    if used:
        text += ["", say("Memory, step by step, after # (left out where every step is new):")]
        text += [f"  {word}: {say(meaning)}" for word, meaning in MEMORY_WORDS.items() if word in used | {"new"}]
    return text
