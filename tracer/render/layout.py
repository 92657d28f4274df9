"""What stands where, before it is text or HTML: lines of code, chains of shapes within a line, repeated blocks.

Every renderer starts here, so that all of them group, chain and fold alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ..records import Line, Op, Source, TensorInfo
from ..speech import N_, say, say_count
from .colours import SYMBOL

__all__ = [
    "MEANINGS",
    "MEMORY_WORDS",
    "Chain",
    "Repeat",
    "Sheet",
    "Step",
    "as_written",
    "block_of",
    "chains",
    "concrete",
    "fold",
    "header_sizes",
    "lines",
    "memory_word",
    "next_block",
    "operands",
    "owner",
    "place",
    "plain",
    "sizes_in_use",
    "span_of",
    "told_apart",
]


@dataclass(frozen=True)
class Sheet:
    """What a renderer is given: a trace with its names resolved."""

    ops: tuple[Op, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    device: str = ""
    warnings: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    failed: Op | None = None
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """index of an operation -> variables that the caller's statement gave its result"""
    returned: frozenset[int] | None = None
    """storages that the call returned, where that is known"""


# ---------------------------------------------------------------- lines of code


def owner(op: Op) -> str:
    """Return the module whose code holds the line that ran this operation.

    `q = self.c_attn(x)` runs a `linear` inside `attn.c_attn`; the line itself belongs to `attn`. Told by the text of
    the line, which calls the inner module by its name; where it does not, the operation's own module.
    """
    code = op.source.code if op.source else ""
    parts = op.module.split(".")
    for start in range(len(parts)):
        for stop in range(len(parts), start, -1):
            if f".{'.'.join(parts[start:stop])}(" in code:
                return ".".join(parts[:start])
    return op.module


def lines(ops: Iterable[Op]) -> tuple[Line, ...]:
    """Group operations that ran one after another by the line that ran them, one group for each pass over it."""
    found: list[Line] = []
    for (source, module), run in groupby(ops, key=lambda op: (op.source, owner(op))):
        batch = tuple(run)
        period = _period(batch) if source else len(batch)
        found += [Line(source, module, batch[i : i + period]) for i in range(0, len(batch), period)]
    return tuple(found)


def _period(ops: tuple[Op, ...]) -> int:
    """Return how many operations one pass over the line takes.

    A line in a loop may follow directly on itself. A pass ends where a variable is assigned; so the shortest stretch
    that ends so and then repeats to the end is one pass (`x = x + w` three times), and `y = x + x + x` stays one.
    """
    signs = [(op.name, tuple(out.variable for out in op.outputs), len(op.inputs), op.parent is None) for op in ops]
    for period in range(1, len(ops)):
        if ops[period - 1].variable and all(signs[i] == signs[i - period] for i in range(period, len(ops))):
            return period
    return len(ops)


def place(source: Source | None) -> str:
    """Return where a line stands, short."""
    return say("line unknown") if source is None else source.place


# ---------------------------------------------------------------- chains of shapes


@dataclass(frozen=True)
class Step:
    """One operation in a chain; `sign` is its operator (`@`, `+`) or "", `others` its operands beside the chain's."""

    op: Op
    sign: str
    others: tuple[TensorInfo, ...]


@dataclass(frozen=True)
class Chain:
    """Operations of one line that each go on with what the one before returned. `start` is None for `arange(T)`."""

    name: str
    start: TensorInfo | None
    steps: tuple[Step, ...]
    inner: bool = False
    """these are steps inside an operation that was opened"""


_SIGNS = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm"), "@"),
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "eq": "==", "ne": "!=", "lt": "<", "le": "<="},
    **{"gt": ">", "ge": ">=", "floor_divide": "//", "remainder": "%", "bitwise_and": "&", "bitwise_or": "|"},
}
_DATA_INPUTS = {
    **dict.fromkeys(("linear", "embedding", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"), 1),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "prelu", "embedding_bag"), 1
    ),
    **dict.fromkeys(("rnn_tanh", "rnn_relu", "lstm", "gru"), 1),
    **{"bilinear": 2, "multi_head_attention_forward": 3},
}
"""How many of an operation's tensors are data: the rest are parameters, told by the label of the result."""


def as_written(info: TensorInfo, op: Op) -> TensorInfo:
    """Return an operand under the name that the module's own code has for it: `self.bias` for `blocks.0.attn.bias`."""
    own = f"{op.module}."
    if info.variable and op.module and info.variable.startswith(own):
        return replace(info, variable=f"self.{info.variable.removeprefix(own)}")
    return info


def operands(op: Op) -> tuple[TensorInfo, ...]:
    """Return the tensors that an operation works on, without the weights of a layer."""
    return op.inputs[: _DATA_INPUTS.get(op.name, len(op.inputs))]


def _read(op: Op) -> tuple[TensorInfo | None, str, tuple[TensorInfo, ...]]:
    """Return the tensor an operation goes on with, its sign, and its other operands."""
    inputs = tuple(as_written(info, op) for info in op.inputs)
    if op.name in ("addmm", "baddbmm") and len(inputs) > 2:
        return inputs[1], "@", inputs[2:3]
    data = inputs[: len(operands(op))]
    if not data:
        return None, "", ()
    sign = _SIGNS.get(op.name.rstrip("_"), "") if len(data) > 1 else ""
    return data[0], sign, data[1:]


def chains(line: Line) -> tuple[Chain, ...]:
    """Return the chains of one line; one that another needs stands above it.

    An operation goes on with the chain that ends in its first operand; else it starts a new one. A chain bears the name
    of the variable it starts from; where it starts with a sign (`q @ k`), of the variable its result was given.
    """
    runs: list[tuple[TensorInfo | None, list[Step]]] = []
    for op in line.ops:
        first, sign, others = _read(op)
        run = next((steps for _, steps in runs if first and _ends_in(steps[-1].op, first, op)), None)
        if run is None:
            runs.append((first, run := []))
        run.append(Step(op, sign, others))
    runs.sort(key=lambda found: found[1][-1].op.index)
    ends = {step.op.index: steps[-1].op.index for _, steps in runs for step in steps}
    runs.sort(key=lambda found: _below(found[1][-1].op, ends))
    return tuple(_chain(start, tuple(steps)) for start, steps in runs)


def _below(last: Op, ends: dict[int, int]) -> tuple[int, bool]:
    """Return the place of a chain among its line's: steps inside an operation stand under the chain that has it."""
    if last.parent is None:
        return last.index, False
    return ends.get(last.parent, last.index), True


def _ends_in(last: Op, tensor: TensorInfo, op: Op) -> bool:
    return last.parent == op.parent and any(out.id == tensor.id for out in last.outputs)


def _chain(start: TensorInfo | None, steps: tuple[Step, ...]) -> Chain:
    result = ", ".join(out.variable for out in steps[-1].op.outputs if out.variable)
    name = result if start is None or steps[0].sign else start.variable or result
    return Chain(name, start, steps, steps[0].op.parent is not None)


def told_apart(chain: Chain) -> str:
    """Return the label with origins where a name stands twice for the first time: `[B, H, T of q, T of k]`."""
    known = chain.start.origins if chain.start else ()
    for step in chain.steps:
        for out in step.op.outputs:
            if any(out.origins) and out.origins != known:
                axes = (origin or axis for origin, axis in zip(out.origins, out.axes, strict=True))
                return f"[{', '.join(axes)}]"
            known = out.origins
    return ""


def concrete(info: TensorInfo) -> str:
    """Return the sizes of a tensor in short, `2·8·48`; of a single number, `1`."""
    return "·".join(map(str, info.shape)) or "1"


# ---------------------------------------------------------------- memory

MEMORY_WORDS = {
    "view": N_("another view of its input's memory; nothing was moved"),
    "same": N_("the input itself was returned"),
    "in-place": N_("the input's memory was overwritten"),
    "copy": N_("the same numbers, moved to memory of their own"),
    "new": N_("results computed into memory of their own"),
    "inside": N_("a step inside the operation above, not materialised by its kernel: told by what the kernel computes"),
    "unknown": N_("the memory cannot be asked for"),
}
"""Word in a picture -> what it says; `copy` is `new` memory taken by an operation that only moves numbers."""

_MOVES = {
    *("contiguous", "reshape", "clone", "flatten", "unflatten", "expand", "expand_as", "repeat", "repeat_interleave"),
    *("cat", "stack", "to", "float", "half", "double", "bfloat16", "rearrange", "movedim", "permute", "roll", "flip"),
    *("getitem", "__getitem__", "index_select", "ravel", "squeeze", "unsqueeze", "view_as", "reshape_as"),
}


def memory_word(op: Op) -> str:
    """Return one of MEMORY_WORDS for an operation, or "" where it made no tensor."""
    if not op.outputs:
        return ""
    kind = op.outputs[0].memory
    if kind is None and op.parent is not None:
        return "inside"
    if kind == "new":
        return "copy" if op.name in _MOVES else "new"
    return kind or "unknown"


# ---------------------------------------------------------------- repeated blocks


@dataclass(frozen=True)
class Repeat:
    """Blocks that ran the same operations one after another: the first in full, the others by path and lines."""

    path: str
    first: "tuple[Line | Repeat, ...]"
    others: tuple[tuple[str, tuple[Line, ...]], ...]

    @property
    def note(self) -> str:
        """The sentence that stands for the others: `blocks.1-11: as blocks.0 (341 operations)`."""
        names = [path for path, _ in self.others]
        span = span_of(names)
        if {*names} == {self.path}:
            span = say_count("{path}, {n} more time", "{path}, {n} more times", len(names), path=self.path)
        count = say_count(
            "{n} operation", "{n} operations", sum(len(line.ops) for _, body in self.others for line in body)
        )
        return say("{span}: as {path} ({count})", span=span, path=self.path, count=count)


def span_of(paths: Sequence[str]) -> str:
    """Return the paths of blocks that follow one another in short: `blocks.1-95`."""
    return paths[0] if paths[0] == paths[-1] else f"{paths[0]}-{paths[-1].rpartition('.')[2]}"


def fold(found: Sequence[Line], prefix: str = "") -> tuple[Line | Repeat, ...]:
    """Gather numbered blocks (`h.0`, `h.1`, …) that ran the same operations with the same names and sizes."""
    runs = [
        (head, body)
        for head, run in groupby(found, key=lambda line: block_of(line.module, prefix))
        for body in (_passes(tuple(run), head) if head else (tuple(run),))
    ]
    signs = [_sign(body, head) if head else () for head, body in runs]
    items: list[Line | Repeat] = []
    at = 0
    while at < len(runs):
        head = runs[at][0]
        period, count = _repeated(runs, signs, at) if head else (1, 1)
        turn = runs[at : at + period]
        whole = [line for _, body in turn for line in body]
        first = whole if not head else fold(whole, head) if period == 1 else fold(whole, prefix)
        others = runs[at + period : at + period * count]
        span = span_of([path for path, _ in turn])
        items += [Repeat(span, tuple(first), tuple(others))] if others else first
        at += period * count
    return tuple(items)


_MOST_KINDS = 8
"""Blocks of several kinds may take turns (every sixth layer attends to all): longer turns are not looked for."""


def _repeated(runs: Sequence[tuple[str, tuple[Line, ...]]], signs: Sequence[object], at: int) -> tuple[int, int]:
    """Return how many blocks from here on take turns, and how many times: what hides most; (1, 1) for no repeat."""
    best = (1, 1)
    for period in range(1, min(_MOST_KINDS, (len(runs) - at) // 2) + 1):
        stop = at + period
        while stop < len(runs) and signs[stop] == signs[stop - period] and _follows(runs[stop - 1][0], runs[stop][0]):
            stop += 1
        inner = all(_follows(runs[i - 1][0], runs[i][0]) for i in range(at + 1, at + period))
        count = (stop - at) // period
        if inner and count > 1 and period * (count - 1) > best[0] * (best[1] - 1):
            best = (period, count)
    return best


def _follows(head: str, after: str) -> bool:
    """Say whether a block is the next one, or the same once more."""
    return bool(head) and after in (head, next_block(head, 1))


def _passes(body: tuple[Line, ...], head: str) -> list[tuple[Line, ...]]:
    """Cut what one block ran into equal passes: a layer that is used several times (ALBERT)."""
    signs = [_sign((line,), head) for line in body]
    for period in range(1, len(body) // 2 + 1):
        if len(body) % period == 0 and signs[period:] == signs[:-period]:
            return [body[i : i + period] for i in range(0, len(body), period)]
    return [body]


def block_of(module: str, prefix: str) -> str:
    """Return the path up to the first number after the prefix: `transformer.h.0` of `transformer.h.0.attn`; else ""."""
    parts = module.split(".")
    for i in range(prefix.count(".") + 1 if prefix else 0, len(parts)):
        if parts[i].isascii() and parts[i].isdigit():
            return ".".join(parts[: i + 1])
    return ""


def next_block(head: str, steps: int) -> str:
    """Return the path of the block so many numbers on: `h.3` of `h.0` and 3."""
    stem, dot, number = head.rpartition(".")
    return f"{stem}{dot}{int(number) + steps}"


def _sign(body: Sequence[Line], head: str) -> tuple[object, ...]:
    """What two blocks must have in common to be shown once."""
    return tuple(
        (
            (line.source, op.name, op.args, op.module.removeprefix(head), op.parent is None),
            *((*_tensor_sign(info), info.stride, info.memory, _own(info, head)) for info in op.outputs),
            *((*_tensor_sign(info), _own(info, head)) for info in op.inputs if "." in (info.variable or "")),
            *map(_tensor_sign, op.inputs),  # how an input was made, and its name, is no part of this block
        )
        for line in body
        for op in line.ops
    )


def _tensor_sign(info: TensorInfo) -> tuple[object, ...]:
    return info.label, info.shape, info.dtype, info.device, info.origins


def _own(info: TensorInfo, head: str) -> str:
    """Return a variable, or the path of a parameter within its block; what is returned as it came kept its name."""
    return "" if info.memory == "same" else (info.variable or "").removeprefix(head)


# ---------------------------------------------------------------- sizes and plain text

MEANINGS = {
    "B": N_("batch"),
    "T": N_("positions of the query or target"),
    "S": N_("positions of the key or source"),
    "C": N_("model width"),
    "H": N_("query heads"),
    "D": N_("head size"),
    "G": N_("key/value heads"),
    "M": N_("hidden width of the MLP"),
    "V": N_("vocabulary"),
    "L": N_("layers"),
    "E": N_("experts"),
    "K": N_("experts chosen for a token"),
    "P": N_("patch edge"),
    "Y": N_("rows of the image"),
    "X": N_("columns of the image"),
    "R": N_("colour channels"),
    "N": N_("patches"),
}
"""What each letter of the glossary stands for, in its order."""
_ORDER = {symbol: i for i, symbol in enumerate(MEANINGS)}


def sizes_in_use(ops: Iterable[Op]) -> dict[str, tuple[int, ...]]:
    """Return each symbol that stands for an axis, with the sizes it had, in the order of the glossary."""
    found: dict[str, set[int]] = {}
    for op in ops:
        for info in op.inputs + op.outputs:
            for axis, size in zip(info.axes, info.shape, strict=True):
                if SYMBOL.fullmatch(axis):
                    found.setdefault(axis, set()).add(size)
    return {s: tuple(sorted(found[s])) for s in sorted(found, key=lambda s: (_ORDER.get(s, len(_ORDER)), s))}


def header_sizes(sheet: Sheet) -> dict[str, str]:
    """Return the sizes to show above a trace: those on its axes, and declared ones that its names are made of."""
    met = {s: tuple(map(str, n)) for s, n in sizes_in_use(sheet.ops).items()}
    inside = {s for op in sheet.ops for info in op.inputs + op.outputs for a in info.axes for s in SYMBOL.findall(a)}
    for symbol in inside & sheet.sizes.keys():
        met.setdefault(symbol, (str(sheet.sizes[symbol]),))
    shown = {s: met[s][0] if len(met[s]) == 1 else f"{met[s][0]}..{met[s][-1]}" for s in met}
    return dict(sorted(shown.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0])))


def plain(text: str) -> str:
    """Return text that cannot move the cursor, ring or turn the writing direction: such characters are spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\u200d" else " " if c == "\t" else ascii(c)[1:-1] for c in text)
