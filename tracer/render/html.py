"""A trace as HTML: one piece without scripts or links, for a notebook or as a page; the look is in style.css.

Tables by line of code; the axes keep their names, the colour only helps. Every text goes through `esc`.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ..records import Line, Op, TensorInfo
from ..speech import say, say_count
from .colours import SYMBOL, axis_colour
from .layout import (
    MEMORY_WORDS,
    Chain,
    Repeat,
    Sheet,
    Step,
    as_written,
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

__all__ = ["chain_html", "esc", "fragment", "label_html", "small", "style", "whole_page"]

_CSS = Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def esc(text: object) -> str:
    """Return any text safe for HTML, between tags and in quoted attributes."""
    return escape(plain(str(text)), quote=True)


def whole_page(title: str, body: str) -> str:
    """Return an offline page around one piece."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root{color-scheme:light dark}body{margin:0}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def fragment(sheet: Sheet, folded: bool = True, lean: bool = False) -> str:
    """Return the piece that a notebook shows; `lean` leaves the hints on tensors out of blocks shown once already."""
    found = lines(sheet.ops)
    items = fold(found) if folded else found
    axes = {a for op in sheet.ops for info in op.inputs + op.outputs for a in info.axes} | set(header_sizes(sheet))
    parts = [style(axes), _head(sheet), _warnings(sheet), _items(items, lean), _stopped(sheet), _legend(sheet)]
    return f'<div class="shape-tracer">{"".join(parts)}</div>'


# ---------------------------------------------------------------- colours and labels


def style(axes: Iterable[str]) -> str:
    """Return the style sheet with the colours of these axes."""
    symbols = sorted({s for axis in axes for s in SYMBOL.findall(axis)})
    rules = "".join(_colour_rule(s) for s in symbols)
    return f"<style>{small(_CSS)}{rules}</style>"


def small(css: str) -> str:
    """Return a style sheet without its first comment and its line breaks."""
    return " ".join(css[css.index("*/") + 2 :].split())


def _colour_rule(symbol: str) -> str:
    light, dark = axis_colour(symbol)
    return f".shape-tracer .st-a-{symbol}{{color:{light};color:light-dark({light},{dark})}}"


def label_html(text: str) -> str:
    """Return a label or an axis name with each symbol in its colour: `[B, T, (H D)]`, `[B, H, T of q, T of k]`."""
    parts: list[str] = []
    end = 0
    for found in SYMBOL.finditer(text):
        name = found.group()
        if name == "of" or text[: found.start()].endswith(" of "):
            continue  # whose axis it is: words and a variable, no axis
        parts += [esc(text[end : found.start()]), f'<b class="st-a-{name}">{name}</b>']
        end = found.end()
    return "".join(parts) + esc(text[end:])


def _tensor(info: TensorInfo) -> str:
    details = [info.dtype.removeprefix("torch."), info.device]
    if info.stride is not None:
        details.append(say("stride {stride}", stride="·".join(map(str, info.stride)) or "-"))
    title = esc(", ".join(d for d in details if d))
    sizes = f"<small>{esc(concrete(info))}</small>" if info.shape else f"<small>{esc(say('one number'))}</small>"
    return f'<span class="st-x" title="{title}"><span class="st-l">{label_html(info.label)}</span>{sizes}</span>'


# ---------------------------------------------------------------- the parts of a page


def _head(sheet: Sheet) -> str:
    count = say_count("{n} operation", "{n} operations", len(sheet.ops))
    sizes = "".join(f'<span class="st-l">{label_html(k)} = {esc(v)}</span>' for k, v in header_sizes(sheet).items())
    return f'<p class="st-head"><span>{esc(count)}</span><span>{esc(sheet.device)}</span>{sizes}</p>'


def _warnings(sheet: Sheet) -> str:
    if not sheet.warnings:
        return ""
    title = esc(say_count("{n} warning", "{n} warnings", len(sheet.warnings)))
    rows = "".join("<li>" + "<br>".join(map(esc, w.splitlines())) + "</li>" for w in sheet.warnings)
    return f'<div class="st-box" role="note"><b>{title}</b><ul>{rows}</ul></div>'


def _items(items: Iterable[Line | Repeat], lean: bool) -> str:
    """Runs of lines become tables; repeated blocks are folded away under a sentence."""
    parts: list[str] = []
    run: list[Line] = []
    for item in items:
        if isinstance(item, Line):
            run.append(item)
            continue
        parts += [_table(run), _items(item.first, lean), _repeat(item, lean)]
        run = []
    return "".join(parts) + _table(run)


def _repeat(repeat: Repeat, lean: bool) -> str:
    others = "".join(_table(body) for _, body in repeat.others)
    if lean:
        others = re.sub(r' title="[^"]*"', "", others)  # no quote stands in it: it went through `esc`
    return f"<details><summary>{esc(repeat.note)}</summary>{others}</details>"


def _table(run: Sequence[Line]) -> str:
    if not run:
        return ""
    caption = say("operations {first} to {last}", first=run[0].ops[0].index, last=run[-1].ops[-1].index)
    heads = "".join(
        f'<th scope="col"{c}>{esc(h)}</th>' for h, c in zip(_heads(), (' class="st-code"', ""), strict=True)
    )
    body = "".join(_module(module, part) for module, part in groupby(run, key=lambda line: line.module))
    return f'<table class="st-t"><caption>{esc(caption)}</caption><thead><tr>{heads}</tr></thead>{body}</table>'


def _heads() -> tuple[str, str]:
    return say("line of code"), say("shapes, step by step")


def _module(module: str, part: Iterable[Line]) -> str:
    name = esc(module or say("top level"))
    head = f'<tr><th scope="rowgroup" colspan="2" class="st-mod">{name}</th></tr>'
    return f"<tbody>{head}{''.join(map(_row, part))}</tbody>"


def _row(line: Line) -> str:
    code = f"<code>{esc(line.source.code)}</code>" if line.source else ""
    where = f'<small class="st-at">{esc(place(line.source))}</small>'
    shapes = "".join(chain_html(chain) for chain in chains(line))
    inside = " st-inside" if all(op.parent is not None for op in line.ops) else ""
    return f'<tr><th scope="row" class="st-code{inside}">{where}{code}</th><td>{shapes}</td></tr>'


def chain_html(chain: Chain) -> str:
    """Return one chain of shapes."""
    start = _tensor(chain.start) if chain.start else ""
    name = f'<span class="st-l">{esc(chain.name)}:</span>' if chain.name else ""
    steps = "".join(_step(step, bool(start) or i > 0) for i, step in enumerate(chain.steps))
    apart = told_apart(chain)
    note = f'<small>{esc(say("that is"))} <span class="st-l">{label_html(apart)}</span></small>' if apart else ""
    head = f"<span>{name}{start}</span>" if name or start else ""
    return f'<div class="st-chain{" st-inner" if chain.inner else ""}">{head}{steps}{note}</div>'


def _step(step: Step, arrow: bool) -> str:
    """One step: its sign or name, its other operands, and what it returned."""
    result = ", ".join(map(_tensor, _outputs(step.op)))
    count = len(step.op.outputs)
    times = f"{count} × " if count > 1 and len(_outputs(step.op)) == 1 else ""
    memory = memory_word(step.op)
    word = f"<small>{esc(say(memory))}</small>" if memory not in ("", "new") else ""
    if step.sign:
        operands = " ".join(map(_tensor, step.others))
        return f"<span>{esc(step.sign)} {operands}</span><span>→ {times}{result}{word}</span>"
    beside = f" ({', '.join(map(_operand, step.others))})" if step.others else ""
    name = f'<span class="st-op">{esc(step.op.name)}{word}</span>'
    return f"<span>{'→ ' if arrow else ''}{name}{beside} {times}{result}</span>"


def _operand(info: TensorInfo) -> str:
    return (f"<code>{esc(info.variable)}</code> " if info.variable else "") + _tensor(info)


def _outputs(op: Op) -> tuple[TensorInfo, ...]:
    """Return the outputs to draw: one for all, where they are alike."""
    return op.outputs[:1] if len({out.label for out in op.outputs}) == 1 else op.outputs


def _stopped(sheet: Sheet) -> str:
    if sheet.failed is None:
        return ""
    op = sheet.failed
    title = esc(say("Stopped here: {name} raised an error.", name=op.name))
    code = f"<code>{esc(op.source.code)}</code>" if op.source else ""
    where = f"<div>{esc(op.module)} {esc(place(op.source))} {code}</div>"
    operands = ", ".join(_operand(as_written(info, op)) for info in op.inputs)
    return f'<div class="st-box" role="note"><b>{title}</b>{where}{operands}</div>'


def _legend(sheet: Sheet) -> str:
    used = {memory_word(op) for op in sheet.ops} - {"", "new"}
    unnamed = ""
    if sheet.unnamed:
        unnamed = f"<p>{esc(say('No rule names the axes of: {names}', names=', '.join(sheet.unnamed)))}</p>"
    if not used:
        return unnamed
    words = "".join(f"<dt>{esc(say(w))}</dt><dd>{esc(say(m))}</dd>" for w, m in MEMORY_WORDS.items() if w in used)
    title = esc(say("Memory: the word under an operation; none means results in memory of their own."))
    return f"{unnamed}<small>{title}<dl>{words}</dl></small>"
