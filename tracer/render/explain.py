"""What one operation did, in one plain sentence with its names and sizes; and what memory did.

Worked out from the record alone. A name that the trace shows as `?` is not said: its size is. One small function for
each family of operations, registered by its decorator; one that nobody described is told by its shapes.
"""

from collections.abc import Callable, Sequence
from math import prod

from ..calls import READS
from ..records import Op, TensorInfo
from ..speech import N_, say, say_count
from .layout import memory_word
from .motion import Asked, einsum_letters, index_of, motion, order_of, reduced
from .storage import memory_sentence
from .words import axis, each, groups_of, listed, number, others, shape, times, who

__all__ = ["explain", "memory_sentence"]


def explain(op: Op) -> str:
    """Return one sentence about what an operation did: `view: splits C=21 into H=3 x D=7; nothing moves in memory`."""
    asked = Asked(op)
    family = _WORDS.get(asked.name, _entrywise if motion(op).kind == "pointwise" else None)
    what = None
    if family is not None and op.outputs:
        try:
            what = family(asked)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # arguments of a form that is not known here
            what = None
    parts = [what or _by_shapes(op), _moved(op)]
    return say("{name}: {what}", name=op.name, what="; ".join(part for part in parts if part))


def _by_shapes(op: Op) -> str:
    """What can be said of any operation."""
    ins, outs = (", ".join(map(shape, infos)) for infos in (op.inputs, op.outputs))
    if not op.outputs:
        if op.name in READS:
            return say("hands what {ins} holds over to Python", ins=ins)
        return say("reads {ins} and gives no tensor", ins=ins) if ins else say("gives no tensor")
    return say("makes {outs} from {ins}", outs=outs, ins=ins) if ins else say("makes {outs}", outs=outs)


def _moved(op: Op) -> str:
    """Say in few words what memory did, where that is not plain: a result of a computation is new."""
    return {
        "view": say("nothing moves in memory"),
        "same": say("the very same tensor comes back"),
        "in-place": say("written over the memory that was there"),
        "copy": say("the numbers are copied to new memory"),
    }.get(memory_word(op), "")


# ---------------------------------------------------------------- the table

Words = Callable[[Asked], str | None]
_WORDS: dict[str, Words] = {}


def words(*names: str) -> Callable[[Words], Words]:
    """Register the sentence of these operations; a name that is there already raises."""

    def register(function: Words) -> Words:
        for name in names:
            if name in _WORDS:
                raise ValueError(f"two sentences for {name}")
            _WORDS[name] = function
        return function

    return register


# ---------------------------------------------------------------- views


@words(
    "view", "reshape", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze", "view_as", "reshape_as",
    "atleast_1d", "atleast_2d", "atleast_3d",
)  # fmt: skip
def _view(a: Asked) -> str:
    old, new = a.op.inputs[0], a.op.outputs[0]
    if old.dtype != new.dtype:
        return say(
            "reads the same bytes as {dtype}: {old} becomes {new}", dtype=new.dtype, old=shape(old), new=shape(new)
        )
    return regrouping(old, new)


def regrouping(old: TensorInfo, new: TensorInfo) -> str:
    """Return which axes are split, joined, added and dropped between two shapes of the same numbers."""
    said: list[str] = []
    groups = groups_of(old, new)
    for ours, theirs in groups:
        a, b = times(old, ours), times(new, theirs)
        if len(ours) == 1 < len(theirs):
            said.append(say("splits {old} into {new}", old=a, new=b))
        elif len(theirs) == 1 < len(ours):
            said.append(say("joins {old} into {new}", old=a, new=b))
        elif len(ours) > 1 and a != b:
            said.append(say("reads {old} as {new}", old=a, new=b))
    met = ({i for ours, _ in groups for i in ours}, {j for _, theirs in groups for j in theirs})
    kept = {n for n in old.axes if n not in "1?"} & set(new.axes)
    gone = [i for i in others(old, met[0]) if old.axes[i] not in kept]
    added = [j for j in others(new, met[1]) if new.axes[j] not in kept]
    if len(added) > len(gone):
        said.append(say_count("adds an axis of size 1", "adds {n} axes of size 1", len(added) - len(gone)))
    elif len(gone) > len(added):
        named = [axis(old, i) for i in gone if axis(old, i) != "1"]
        if named and not added:
            said.append(say("drops {axes}", axes=", ".join(named)))
        else:
            said.append(say_count("drops an axis of size 1", "drops {n} axes of size 1", len(gone) - len(added)))
    if not said:
        return say("keeps the shape {shape}", shape=shape(new)) if old.shape == new.shape else _as(old, new)
    return say(" and ").join(said)


def _as(old: TensorInfo, new: TensorInfo) -> str:
    return say("reads {old} as {new}", old=shape(old), new=shape(new))


@words("transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "T", "mT", "H", "mH", "adjoint")
def _transpose(a: Asked) -> str:
    x, moved = a.op.inputs[0], [i for i, j in enumerate(order_of(a)) if i != j]
    if not moved:
        return say("leaves the axes {shape} in their order", shape=shape(x))
    if len(moved) == 2:
        return say("swaps {i} and {j}", i=axis(x, moved[0]), j=axis(x, moved[1]))
    return say("puts the axes {old} in the order {new}", old=shape(x), new=shape(a.op.outputs[0]))


@words("expand", "expand_as", "broadcast_to")
def _expand(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    ahead = len(out.shape) - len(x.shape)
    wider = [i for i in range(len(out.shape)) if i < ahead or x.shape[i - ahead] != out.shape[i]]
    if not wider:
        return say("keeps the shape {shape}", shape=shape(x))
    return say(
        "shows {x} again and again along {axes}: each repeat is the same memory", x=shape(x), axes=listed(out, wider)
    )


@words("repeat", "tile")
def _repeat(a: Asked) -> str | None:
    if any(isinstance(x, str) and "->" in x for x in a.plain):
        return _einops(a)
    x, out = a.op.inputs[0], a.op.outputs[0]
    return say("writes copies of {x} side by side, {out}", x=shape(x), out=shape(out))


@words("repeat_interleave")
def _interleave(a: Asked) -> str | None:
    count = a.arg(0, "repeats")
    if type(count) is not int:
        return None
    x, out = a.op.inputs[0], a.op.outputs[0]
    text = "writes each entry along {axis} {n} times, one after another: {x} becomes {out}"
    if type(dim := a.arg(1, "dim")) is not int:
        return None
    return say(text, axis=axis(x, dim), n=count, x=shape(x), out=shape(out))


@words("diagonal")
def _diagonal(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    dims = motion(a.op).axes
    return say("takes a diagonal of {axes}, {n} entries", axes=times(x, dims), n=axis(out, -1))


@words("view_as_real")
def _as_real(a: Asked) -> str:
    return say("reads each complex number as 2 real ones: {out}", out=shape(a.op.outputs[0]))


@words("view_as_complex")
def _as_complex(a: Asked) -> str:
    return say("reads each pair of real numbers as a complex one: {out}", out=shape(a.op.outputs[0]))


@words("rearrange", "reduce", "pack", "unpack")
def _einops(a: Asked) -> str | None:
    pattern = next((x for x in a.plain if isinstance(x, str)), None)
    if pattern is None:
        return None
    said = ", ".join([f"'{pattern}'", *map(str, a.plain[1:]), *(f"{k}={v}" for k, v in a.named.items())])
    ins, outs = (", ".join(map(shape, infos)) for infos in (a.op.inputs, a.op.outputs))
    return say("by the pattern {said}: {ins} becomes {outs}", said=said, ins=ins, outs=outs)


# ---------------------------------------------------------------- joins and cuts


@words("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "dstack", "column_stack")
def _cat(a: Asked) -> str | None:
    out = a.op.outputs[0]
    parts = [info for info in a.op.inputs if len(info.shape) == len(out.shape)]
    if not parts or any(prod(info.shape) for info in a.op.inputs if info not in parts):
        return None  # vectors that become rows or columns first
    if len(parts) == 1:
        return say("keeps {x}, with nothing to put to it", x=shape(parts[0]))
    (d,) = motion(a.op).axes
    text = "puts {n} tensors end to end: {parts} is {whole}"
    return say(text, n=len(parts), parts=" + ".join(axis(info, d) for info in parts), whole=axis(out, d))


@words("stack")
def _stack(a: Asked) -> str:
    out = a.op.outputs[0]
    d = a.dim(0, len(out.shape), 0)
    text = "lays {n} tensors {x} side by side along a new axis, {axis}"
    return say(text, n=len(a.shapes), x=shape(a.op.inputs[0]), axis=axis(out, d))


@words(
    "split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
    "hsplit", "vsplit", "dsplit",
)  # fmt: skip
def _split(a: Asked) -> str:
    (d,) = motion(a.op).axes
    x, outs = a.op.inputs[0], a.op.outputs
    pieces = [axis(o, d) for o in outs]
    if len(pieces) > 6:
        pieces = [*pieces[:3], "…", pieces[-1]]
    return say("cuts {whole} into {n}: {pieces}", whole=axis(x, d), n=len(outs), pieces=", ".join(pieces))


@words("unbind")
def _unbind(a: Asked) -> str:
    (d,) = motion(a.op).axes
    return say(
        "takes {axis} apart into {n} tensors, {out}",
        axis=axis(a.op.inputs[0], d),
        n=len(a.op.outputs),
        out=shape(a.op.outputs[0]),
    )


@words("select")
def _select(a: Asked) -> str:
    (d,) = motion(a.op).axes
    return say("takes entry {i} along {axis}", i=a.arg(1, "index"), axis=axis(a.op.inputs[0], d))


@words("narrow")
def _narrow(a: Asked) -> str:
    (d,) = motion(a.op).axes
    x, out = a.op.inputs[0], a.op.outputs[0]
    return say("takes {part} of {whole}, from entry {i} on", part=axis(out, d), whole=axis(x, d), i=a.arg(1, "start"))


@words("getitem")
def _getitem(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    places = index_of(a)
    if any(p.kind == "tensor" for p in places):
        dims = [p.axis for p in places if p.kind == "tensor"]
        if len(a.op.inputs) > 1 and "bool" in a.op.inputs[1].dtype:
            return say(
                "takes the entries of {x} where {mask} is True: {out}",
                x=shape(x),
                mask=shape(a.op.inputs[1]),
                out=shape(out),
            )
        return say("takes the entries along {axes} that the ids name: {out}", axes=listed(x, dims), out=shape(out))
    said: list[str] = []
    taken: list[str] = []
    at = 0
    for p in places:
        if p.kind == "number":
            said.append(say("takes entry {i} along {axis}", i=p.start, axis=axis(x, p.axis)))
        elif p.kind == "slice" and not p.whole:
            text = {1: N_("{part} of {whole}"), 2: N_("every other entry of {whole}, {part}")}.get(
                p.step, N_("every {n}th entry of {whole}, {part}")
            )
            taken.append(say(text, part=axis(out, at), whole=axis(x, p.axis), n=p.step))
        at += p.kind in ("new", "slice")
    said += [say("takes {parts}", parts=", ".join(taken))] if taken else []
    if new := sum(p.kind == "new" for p in places):
        said.append(say_count("adds an axis of size 1", "adds {n} axes of size 1", new))
    return say(" and ").join(said) if said else say("takes all of {x}", x=shape(x))


@words("setitem")
def _setitem(a: Asked) -> str:
    x = a.op.inputs[0]
    places = index_of(a)
    dims = [p for p in places if p.axis >= 0 and not p.whole]
    value = (
        number(a.plain[1]) if len(a.plain) > 1 else shape(a.op.inputs[-1]) if len(a.op.inputs) > 1 else say("a value")
    )
    if any(p.kind == "tensor" for p in dims):
        return say("writes {value} into the entries of {x} that the index names", value=value, x=shape(x))
    if not dims:
        return say("writes {value} over all of {x}", value=value, x=shape(x))
    parts = ", ".join(_part(p.kind, p.start, p.step, x, p.axis) for p in dims)
    return say("writes {value} into {x} at {parts}", value=value, x=shape(x), parts=parts)


def _part(kind: str, start: int, step: int, x: TensorInfo, d: int) -> str:
    text = N_("entry {start} of {axis}") if kind == "number" else N_("entries from {start} on of {axis}")
    return say(text, start=start, axis=axis(x, d))


@words("pad", "constant_pad_nd")
def _pad(a: Asked) -> str | None:
    x, axes = a.op.inputs[0], motion(a.op).axes
    pads, rank = a.numbers(0, "pad"), len(x.shape)
    pads = pads[0] if pads and isinstance(pads[0], tuple) else pads
    said = [
        say(
            "{before} before and {after} after {axis}",
            before=pads[2 * (rank - 1 - d)], after=pads[2 * (rank - 1 - d) + 1], axis=axis(x, d),
        )
        for d in axes
    ]  # fmt: skip
    if any(n < 0 for n in pads):
        return None
    return say("adds entries, {parts}", parts=", ".join(said)) if said else say("adds nothing to {x}", x=shape(x))


# ---------------------------------------------------------------- products


@words("matmul", "mm", "bmm", "mv", "dot", "vdot", "rmatmul", "inner", "tensordot", "vecdot", "einsum")
def _product(a: Asked) -> str | None:
    left, out = a.op.inputs[0], a.op.outputs[0]
    moved = motion(a.op)
    if a.name == "einsum":
        return _einsum(a)
    gone = [axis(left, i) for i in moved.axes]
    if len(gone) == 1 and moved.reads[1] is not None and moved.reads[1][0] == "axes":
        right = a.op.inputs[1]
        (theirs,) = (i for i, e in enumerate(moved.reads[1][1]) if e == "all")
        if "?" not in (names := {left.axes[moved.axes[0]], right.axes[theirs]}) and len(names) > 1:
            gone = [say("{x} against {y}", x=gone[0], y=axis(right, theirs))]
    return _sums(gone, out)


def _sums(gone: Sequence[str], out: TensorInfo) -> str:
    if not gone:
        return say("multiplies each with each: {out}", out=shape(out))
    if not out.shape:
        return say("multiplies entry by entry and adds up along {axes}: one number", axes=" x ".join(gone))
    text = "multiplies and adds up along {axes}{each}"
    return say(text, axes=" x ".join(gone), each=each(out))


def _einsum(a: Asked) -> str | None:
    terms, out = einsum_letters(a)
    gone: dict[str, str] = {}
    for names, info in zip(terms, a.op.inputs, strict=True):
        for i, n in enumerate(names):
            if n not in out and (n not in gone or "=" not in gone[n]):
                gone[n] = axis(info, i)
    result = a.op.outputs[0]
    if len(terms) > 1:
        return _sums(list(gone.values()), result)
    if gone:
        return say("adds up {axes}{each}", axes=" x ".join(gone.values()), each=each(result))
    return say("puts the axes {old} in the order {new}", old=shape(a.op.inputs[0]), new=shape(result))


@words("addmm", "baddbmm", "addbmm", "addmv", "addr")
def _addmm(a: Asked) -> str:
    bias, left, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    if a.name == "addr":
        return say("multiplies each with each and adds {bias}: {out}", bias=shape(bias), out=shape(out))
    gone = [0, 2] if a.name == "addbmm" else [len(left.shape) - 1]
    text = "multiplies and adds up along {axes}, plus {bias}{each}"
    return say(text, axes=times(left, gone), bias=shape(bias), each=each(out))


@words("linear")
def _linear(a: Asked) -> str | None:
    x, weight, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    if len(weight.shape) != 2:
        return None
    text = N_("makes {new} out of {old}: each is a weighted sum of all {n}, plus a bias{each}")
    if len(a.op.inputs) < 3:
        text = N_("makes {new} out of {old}: each is a weighted sum of all {n}{each}")
    last = len(x.shape) - 1
    return say(text, new=axis(out, last), old=axis(x, last), n=x.shape[-1], each=each(x, range(last)))


@words("bilinear")
def _bilinear(a: Asked) -> str:
    x, y, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    last = len(out.shape) - 1
    text = "makes {new} out of {x} and {y}: each is a weighted sum of all products of two{each}"
    return say(text, new=axis(out, last), x=axis(x, last), y=axis(y, last), each=each(out, range(last)))


@words("outer", "ger")
def _outer(a: Asked) -> str:
    x, y = a.op.inputs[:2]
    return say("multiplies each of {x} with each of {y}", x=axis(x, 0), y=axis(y, 0))


@words("embedding")
def _embedding(a: Asked) -> str:
    ids, table, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    text = "looks up one of the {rows} rows of the table: {width} numbers{each}"
    return say(text, rows=axis(table, 0), width=axis(out, -1), each=each(ids))


@words("conv1d", "conv2d", "conv3d")
def _conv(a: Asked) -> str:
    x, weight, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    spatial = len(weight.shape) - 2
    c = len(x.shape) - spatial - 1
    text = N_("slides a window of {window} along {places}: each of {new} is a weighted sum of it over {old}")
    if weight.shape[1] != x.shape[c]:
        text = N_("slides a window of {window} along {places}: each of {new} is a weighted sum of it over {n} of {old}")
    return say(
        text, window=" x ".join(map(str, weight.shape[2:])), places=times(x, range(c + 1, len(x.shape))),
        new=axis(out, c), n=weight.shape[1], old=axis(x, c),
    )  # fmt: skip


@words("scaled_dot_product_attention")
def _sdpa(a: Asked) -> str:
    q, k, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    text = "each of {T} queries weighs {S} keys by a softmax over products along {D}, and mixes their values{each}"
    said = [say(text, T=axis(q, -2), S=axis(k, -2), D=axis(q, -1), each=each(out, range(len(out.shape) - 2)))]
    if a.named.get("is_causal") is True or any(x is True for x in a.plain[:3]):
        said.append(say("no query looks past its own place"))
    if len(a.op.inputs) > 3:
        said.append(say("the mask {mask} has its say", mask=shape(a.op.inputs[3])))
    return ", ".join(said)


@words("multi_head_attention_forward")
def _mha(a: Asked) -> str | None:
    q, k = a.op.inputs[0], a.op.inputs[1]
    heads = a.arg(1, "num_heads")
    if type(heads) is not int:
        return None
    text = (
        "maps {C} to queries, keys and values in {heads} heads, each of {T} positions attends to {S}, and one map "
        "joins the heads"
    )
    return say(text, C=axis(q, -1), heads=heads, T=axis(q, 0), S=axis(k, 0))


@words("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(a: Asked) -> str | None:
    x, out = a.op.inputs[0], a.op.outputs[0]
    flags = [v for v in a.plain if v is not None]
    if len(flags) < 6 or len(x.shape) < 2:  # a packed sequence has no axis of positions
        return None
    d = len(x.shape) - 2 if flags[-1] is True else 0
    text = "reads {T} positions one after another and makes {new} at each out of {old} and the state before"
    if flags[-2] is True:
        text = N_("reads {T} positions one after another, once forwards and once backwards: {new} at each out of {old}")
    return say(text, T=axis(x, d), new=axis(out, -1), old=axis(x, -1))


@words("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    return say("one step: makes the new state {new} out of {x} and the state before", new=shape(out), x=shape(x))


# ---------------------------------------------------------------- entry by entry

_PAIRS = {
    "add": N_("adds {x} and {y} entry by entry"),
    "sub": N_("subtracts {y} from {x} entry by entry"),
    "rsub": N_("subtracts {x} from {y} entry by entry"),
    "mul": N_("multiplies {x} by {y} entry by entry"),
    "div": N_("divides {x} by {y} entry by entry"),
    "rdiv": N_("divides {y} by {x} entry by entry"),
    "floor_divide": N_("divides {x} by {y} entry by entry and rounds down"),
    "remainder": N_("takes what is left when {x} is divided by {y}, entry by entry"),
    "pow": N_("computes a power entry by entry, from {x} and {y}"),
    "maximum": N_("keeps the larger one of {x} and {y}, entry by entry"),
    "minimum": N_("keeps the smaller one of {x} and {y}, entry by entry"),
    "eq": N_("asks of each entry whether {x} equals {y}"),
    "ne": N_("asks of each entry whether {x} differs from {y}"),
    "lt": N_("asks of each entry whether {x} is less than {y}"),
    "le": N_("asks of each entry whether {x} is at most {y}"),
    "gt": N_("asks of each entry whether {x} is more than {y}"),
    "ge": N_("asks of each entry whether {x} is at least {y}"),
    "bitwise_and": N_("combines {x} and {y} entry by entry with 'and'"),
    "bitwise_or": N_("combines {x} and {y} entry by entry with 'or'"),
}
_ALIASES = {
    **{"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "logical_and": "bitwise_and"},
    **{"logical_or": "bitwise_or", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt"},
    **{"greater_equal": "ge", "max": "maximum", "min": "minimum", "and": "bitwise_and", "or": "bitwise_or"},
}


def _entrywise(a: Asked) -> str | None:
    """Say what was done to each entry, with which number or tensor, and what was used again for it."""
    op, out = a.op, a.op.outputs[0]
    read = [i for i, r in enumerate(motion(op).reads) if r is not None]
    text = _PAIRS.get(_ALIASES.get(a.name, a.name))
    sides = [who(op, i) for i in read]
    if len(read) == 1 and len(a.plain) == 1 and isinstance(a.plain[0], int | float):
        sides.append(number(a.plain[0]))
    if text is not None and len(sides) == 2 and not a.named:
        said = say(text, x=sides[0], y=sides[1])
    elif len(read) == 1:
        said = say("computes {name} of each entry of {x}", name=a.name, x=sides[0])
    else:
        said = say("computes {name} entry by entry from {ins}", name=a.name, ins=", ".join(sides))
    again = [
        say("{x} is used again along {axes}", x=who(op, i), axes=listed(out, wider))
        for i in read
        if op.inputs[i].shape and (wider := _wider(op.inputs[i], out))
    ]
    return "; ".join([said, *again])


def _wider(x: TensorInfo, out: TensorInfo) -> list[int]:
    """Return the axes of the result along which an operand was repeated."""
    ahead = len(out.shape) - len(x.shape)
    return [i for i in range(len(out.shape)) if out.shape[i] != 1 and (i < ahead or x.shape[i - ahead] == 1)]


@words("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def _clamp(a: Asked) -> str | None:
    if len(a.op.inputs) > 1:
        return None
    low = a.arg(0, "min", "min_val") if a.name != "clamp_max" else None
    high = a.arg(1, "max", "max_val") if a.name != "clamp_max" else a.arg(0, "max")
    x = who(a.op, 0)
    if low is None:
        return say("brings each entry of {x} down to {high} at most", x=x, high=number(high))
    if high is None:
        return say("brings each entry of {x} up to {low} at least", x=x, low=number(low))
    return say("brings each entry of {x} between {low} and {high}", x=x, low=number(low), high=number(high))


@words("where")
def _where(a: Asked) -> str | None:
    if len(a.op.inputs) + len(a.plain) != 3:
        return None
    mask, out = a.op.inputs[0], a.op.outputs[0]
    if "bool" not in mask.dtype:
        return None
    if len(a.op.inputs) == 3:
        text = "takes from {x} where {mask} is True, and from {y} where it is False: {out}"
        return say(text, x=who(a.op, 1), y=who(a.op, 2), mask=who(a.op, 0), out=shape(out))
    text = "takes each of {out} from one of two where {mask} is True, and from the other where it is False"
    return say(text, mask=who(a.op, 0), out=shape(out))


@words("masked_fill")
def _masked_fill(a: Asked) -> str | None:
    mask, out = a.op.inputs[1], a.op.outputs[0]
    value = number(a.plain[0]) if a.plain else number(a.named["value"]) if "value" in a.named else say("a value")
    said = say(
        "writes {value} wherever {mask} is True, and keeps the rest of {out}",
        value=value,
        mask=who(a.op, 1),
        out=shape(out),
    )
    wider = _wider(mask, out)
    return f"{said}; {say('the mask is used again along {axes}', axes=listed(out, wider))}" if wider else said


@words("tril", "triu")
def _triangle(a: Asked) -> str:
    k, x = a.arg(0, "diagonal", default=0), a.op.inputs[0]
    text = N_("keeps what is on and below diagonal {k} of {axes}, and writes 0 above it")
    if a.name == "triu":
        text = N_("keeps what is on and above diagonal {k} of {axes}, and writes 0 below it")
    return say(text, k=k, axes=times(x, (-2, -1)))


@words("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout")
def _dropout(a: Asked) -> str | None:
    p, training = a.arg(0, "p", default=0.5), a.arg(1, "training", "train", default=True)
    x = shape(a.op.inputs[0])
    if training is False or p == 0:
        return (
            say("leaves {x} as it is: dropout acts in training alone", x=x)
            if training is False
            else say("leaves {x} as it is: it drops with probability 0", x=x)
        )
    if a.name != "dropout" or p == 1:
        return None
    return say(
        "sets each entry of {x} to 0 with probability {p}, and divides the rest by {q}",
        x=x,
        p=number(p),
        q=number(1 - p),
    )


@words("contiguous", "clone", "detach", "alias", "data", "copy", "deepcopy")
def _copied(a: Asked) -> str | None:
    x, out = a.op.inputs[0], a.op.outputs[0]
    if a.name == "copy":
        return say("writes {y} over {x}", y=who(a.op, 1), x=shape(x)) if len(a.op.inputs) > 1 else None
    if a.name == "contiguous" and out.memory == "new":
        return say("lays the entries of {x} out in the order of its axes", x=shape(x))
    if a.name == "contiguous" and out.memory in ("same", "view"):
        return say("{x} stands in the order of its axes already", x=shape(x))
    if a.name in ("clone", "deepcopy"):
        return say("copies {x}", x=shape(x))
    if a.name in ("detach", "data"):
        return say("the same numbers {x}, without their history for gradients", x=shape(x))
    return None


@words("to", "type", "float", "half", "double", "bfloat16", "long", "int", "bool", "type_as", "cpu", "cuda")
def _converted(a: Asked) -> str | None:
    x, out = a.op.inputs[0], a.op.outputs[0]
    if x.dtype != out.dtype:
        return say("turns {x} from {old} into {new}", x=shape(x), old=x.dtype, new=out.dtype)
    if x.device != out.device:
        return say("copies {x} from {old} to {new}", x=shape(x), old=x.device, new=out.device)
    return (
        say("{x} is {dtype} on {device} already", x=shape(x), dtype=x.dtype, device=x.device)
        if out.memory == "same"
        else None
    )


@words("fill", "zero")
def _filled(a: Asked) -> str:
    x = shape(a.op.inputs[0])
    if a.name == "zero":
        return say("writes 0 over all of {x}", x=x)
    return say("writes {value} over all of {x}", value=number(a.plain[0]) if a.plain else say("one number"), x=x)


# ---------------------------------------------------------------- along an axis


@words("softmax", "softmin", "log_softmax", "gumbel_softmax", "normalize")
def _softmax(a: Asked) -> str | None:
    out = a.op.outputs[0]
    axes = motion(a.op).axes
    if len(axes) != 1:
        return None
    rest = each(out, others(out, axes))
    text = {
        "softmax": N_("turns the numbers along {axis} into weights that sum to 1{each}"),
        "softmin": N_("turns the numbers along {axis} into weights that sum to 1, the smallest one the heaviest{each}"),
        "log_softmax": N_("turns the numbers along {axis} into logarithms of weights that sum to 1{each}"),
        "gumbel_softmax": N_("draws weights along {axis} that sum to 1{each}"),
        "normalize": N_("divides the numbers along {axis} by their length (norm){each}"),
    }[a.name]
    return say(text, axis=axis(out, axes[0]), each=rest)


@words("layer_norm", "rms_norm")
def _layer_norm(a: Asked) -> str:
    out = a.op.outputs[0]
    dims = motion(a.op).axes
    text = {
        "layer_norm": N_("shifts and scales the numbers along {axes} to mean 0 and variance 1{each}"),
        "rms_norm": N_("divides the numbers along {axes} by their root mean square{each}"),
    }[a.name]
    said = say(text, axes=times(out, dims), each=each(out, others(out, dims)))
    if len(a.op.inputs) == 3:
        return f"{said}, {say('then times a weight, plus a bias')}"
    if len(a.op.inputs) == 2 and a.name == "rms_norm":
        return f"{said}, {say('then times a weight')}"
    return f"{said}, {say('then times a weight, or plus a bias')}" if len(a.op.inputs) == 2 else said


@words("batch_norm", "group_norm", "instance_norm")
def _channel_norm(a: Asked) -> str | None:
    out = a.op.outputs[0]
    dims = motion(a.op).axes
    if a.name == "group_norm":
        text = "shifts and scales {C} in {n} groups to mean 0 and variance 1, each group of each example by itself"
        return say(text, C=axis(out, 1), n=a.arg(0, "num_groups"))
    if not dims:
        return say("shifts and scales each of {C} by the mean and variance that were kept in training", C=axis(out, 1))
    text = "shifts and scales the numbers along {axes} to mean 0 and variance 1{each}"
    return say(text, axes=times(out, dims), each=each(out, others(out, dims)))


_FOUND = {
    "sum": N_("adds up the numbers along {axes}{each}"),
    "mean": N_("takes the mean along {axes}{each}"),
    "prod": N_("multiplies the numbers along {axes}{each}"),
    "std": N_("takes the standard deviation along {axes}{each}"),
    "var": N_("takes the variance along {axes}{each}"),
    "max": N_("finds the largest number along {axes}{each}"),
    "min": N_("finds the smallest number along {axes}{each}"),
    "argmax": N_("finds the place of the largest number along {axes}{each}"),
    "argmin": N_("finds the place of the smallest number along {axes}{each}"),
    "any": N_("asks whether anything along {axes} is True{each}"),
    "all": N_("asks whether everything along {axes} is True{each}"),
    "norm": N_("takes the length (norm) along {axes}{each}"),
    "logsumexp": N_("adds up the exponentials along {axes} and takes the logarithm{each}"),
    "median": N_("takes the median along {axes}{each}"),
    "count_nonzero": N_("counts what is not 0 along {axes}{each}"),
    "var_mean": N_("takes the variance and the mean along {axes}{each}"),
    "std_mean": N_("takes the standard deviation and the mean along {axes}{each}"),
}
_FOUND |= {"amax": _FOUND["max"], "amin": _FOUND["min"], "vector_norm": _FOUND["norm"], "nansum": _FOUND["sum"]}


@words(*_FOUND, "nanmean", "nanmedian", "aminmax", "quantile", "kthvalue", "mode")
def _reduce(a: Asked) -> str | None:
    if a.name in ("max", "min") and len(a.op.inputs) > 1:
        return _entrywise(a)
    x = a.op.inputs[0]
    gone = reduced(a)
    text = _FOUND.get(a.name, N_("reduces the numbers along {axes} to one{each}"))
    if not x.shape:
        return None
    return say(text, axes=times(x, gone), each=each(x, others(x, gone)))


@words("topk", "sort", "argsort")
def _sort(a: Asked) -> str | None:
    x, out = a.op.inputs[0], a.op.outputs[0]
    d = motion(a.op).axes[0]
    rest = each(x, others(x, [d]))
    if a.name == "topk":
        text = N_("finds the {k} largest numbers along {axis}{each}")
        if a.arg(2, "largest", default=True) is False:
            text = N_("finds the {k} smallest numbers along {axis}{each}")
        return say(text, k=out.shape[d], axis=axis(x, d), each=rest)
    if a.name == "argsort":
        return say("finds the order in which the numbers along {axis} are sorted{each}", axis=axis(x, d), each=rest)
    return say("sorts the numbers along {axis}{each}", axis=axis(x, d), each=rest)


@words("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def _running(a: Asked) -> str:
    out = a.op.outputs[0]
    (d,) = motion(a.op).axes
    text = {
        "cumsum": N_("adds up along {axis} as it goes: each entry is the sum of all up to its own{each}"),
        "cumprod": N_("multiplies along {axis} as it goes: each entry is the product of all up to its own{each}"),
    }.get(a.name, N_("gathers along {axis} as it goes: each entry is made of all up to its own{each}"))
    return say(text, axis=axis(out, d), each=each(out, others(out, [d])))


@words("flip", "roll")
def _flip(a: Asked) -> str | None:
    x = a.op.inputs[0]
    dims = a.arg(1, "dims") if a.name == "roll" else a.numbers(0, "dims")
    dims = dims if isinstance(dims, tuple) else (dims,)
    if not all(type(d) is int for d in dims):
        return None
    text = (
        N_("turns the order along {axes} round")
        if a.name == "flip"
        else N_("moves the entries along {axes} on, the last ones to the front")
    )
    return say(text, axes=listed(x, dims))


@words("cosine_similarity", "pairwise_distance")
def _distance(a: Asked) -> str | None:
    x, y = a.op.inputs[:2]
    (d,) = motion(a.op).axes
    if len(x.shape) != len(y.shape):
        return None
    text = N_("takes the cosine of the angle between {x} and {y} along {axis}")
    if a.name != "cosine_similarity":
        text = N_("takes the distance between {x} and {y} along {axis}")
    return say(text, x=shape(x), y=shape(y), axis=axis(x, d))


# ---------------------------------------------------------------- losses


@words("cross_entropy", "nll_loss")
def _cross_entropy(a: Asked) -> str | None:
    logits, target, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    if not logits.shape:
        return None
    classes = 1 if len(logits.shape) > 1 else 0
    rows = each(logits, others(logits, [classes]))
    text = N_("takes minus the logarithm of the weight that a softmax over {V} gives to the right one{each}")
    if a.name == "nll_loss":
        text = N_("takes minus the number that stands at the right one of {V}{each}")
    elif len(target.shape) == len(logits.shape):
        text = N_("compares a softmax over {V} with the weights that are wanted{each}")
    if a.named.get("label_smoothing") or any(type(x) is float and x for x in a.plain):
        text = N_("compares a softmax over {V} with smoothed targets{each}")
    return say(text, V=axis(logits, classes), each=rows) + _gathered(a, out)


def _gathered(a: Asked, out: TensorInfo) -> str:
    """Say what becomes of the losses of all entries."""
    how = a.named.get("reduction", next((x for x in a.plain if x in ("mean", "sum", "none", "batchmean")), "mean"))
    if out.shape or how == "none":
        return ""
    if how == "batchmean":
        return ", " + say("added up, divided by the number of examples")
    return ", " + (say("added up to one number") if how == "sum" else say("averaged to one number"))


@words("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div",
       "binary_cross_entropy_with_logits")  # fmt: skip
def _pair_loss(a: Asked) -> str:
    x, y, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    text = {
        "mse_loss": N_("takes the squared difference of {x} and {y} entry by entry"),
        "l1_loss": N_("takes the distance of {x} and {y} entry by entry"),
    }.get(a.name, N_("compares {x} with {y} entry by entry"))
    return say(text, x=shape(x), y=shape(y)) + _gathered(a, out)


# ---------------------------------------------------------------- choices by number, factories


@words("gather", "take_along_dim", "index_select", "take")
def _gather(a: Asked) -> str:
    x, index, out = a.op.inputs[0], a.op.inputs[1], a.op.outputs[0]
    axes = motion(a.op).axes
    if not axes:
        return say("takes the entries of {x} that {index} names by number", x=shape(x), index=shape(index))
    text = "takes the entries along {axis} that the ids {index} name: {out}"
    return say(text, axis=axis(x, axes[0]), index=shape(index), out=shape(out))


@words("scatter", "scatter_add", "index_add", "index_copy", "index_fill", "masked_scatter", "scatter_reduce")
def _scatter(a: Asked) -> str:
    text = N_("adds numbers to the entries of {x} that the index names")
    if "add" not in a.name:
        text = N_("writes into the entries of {x} that the index names")
    return say(text, x=shape(a.op.inputs[0]))


@words("one_hot")
def _one_hot(a: Asked) -> str:
    out = a.op.outputs[0]
    return say("writes each id as a row of {n} numbers: 1 at its own place, 0 elsewhere", n=axis(out, -1))


@words("arange")
def _arange(a: Asked) -> str:
    out = a.op.outputs[0]
    bounds = [x for x in a.plain if isinstance(x, int | float)]
    if len(bounds) == 1:
        bounds = [0, *bounds]
    if len(bounds) < 2 or out.shape[0] < 1:
        return say("counts: {out}", out=shape(out))
    return (
        say(
            "counts from {start} up to, not including, {stop}: {out}",
            start=number(bounds[0]),
            stop=number(bounds[1]),
            out=shape(out),
        )
        if len(bounds) == 2
        else say("counts in steps of {step}: {out}", step=number(bounds[2]), out=shape(out))
    )


_MADE = {
    "zeros": N_("makes {out}, all 0"),
    "ones": N_("makes {out}, all 1"),
    "full": N_("makes {out}, all one number"),
    "empty": N_("takes memory for {out}, with whatever stands there"),
    "randn": N_("draws {out} from the normal distribution with mean 0 and variance 1"),
    "rand": N_("draws {out} evenly from 0 up to 1"),
    "randint": N_("draws whole numbers {out}"),
    "eye": N_("makes {out} with 1 on the diagonal and 0 elsewhere"),
    "randperm": N_("draws an order of {out}"),
    "tensor": N_("makes {out} from numbers of Python"),
    "linspace": N_("makes {out}, evenly spaced"),
}


@words(*_MADE, *(f"{n}_like" for n in ("zeros", "ones", "full", "empty", "randn", "rand", "randint")),
       *(f"new_{n}" for n in ("zeros", "ones", "full", "empty", "tensor")))  # fmt: skip
def _made(a: Asked) -> str:
    name = a.name.removesuffix("_like").removeprefix("new_")
    text = (
        N_("makes {out} from another tensor's numbers")
        if name == "tensor" and a.op.inputs and not a.name.startswith("new_")
        else _MADE[name]
    )
    return say(text, out=shape(a.op.outputs[0]))


@words("masked_select", "nonzero", "argwhere")
def _counted(a: Asked) -> str:
    text = N_("lists the places of what is not 0 in {x}: {out}; how many they are, the numbers tell")
    if a.name == "masked_select":
        text = N_("takes the entries of {x} that the mask allows: {out}; how many they are, the mask tells")
    return say(text, x=shape(a.op.inputs[0]), out=shape(a.op.outputs[0]))


@words("multinomial")
def _multinomial(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    rest = each(x, range(len(x.shape) - 1))
    return say("draws {n} of the places along {axis}, by weight{each}", n=out.shape[-1], axis=axis(x, -1), each=rest)


@words("glu")
def _glu(a: Asked) -> str:
    x, out = a.op.inputs[0], a.op.outputs[0]
    d = a.dim(0, len(x.shape), -1)
    text = "multiplies the first half of {whole} by the sigmoid of the second: {half}"
    return say(text, whole=axis(x, d), half=axis(out, d))


@words("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def _pool(a: Asked) -> str:
    text = N_("keeps the largest number of each window: {x} becomes {out}")
    if a.name.startswith("avg"):
        text = N_("takes the mean of each window: {x} becomes {out}")
    return say(text, x=shape(a.op.inputs[0]), out=shape(a.op.outputs[0]))


@words("cdist")
def _cdist(a: Asked) -> str:
    x, y = a.op.inputs[:2]
    return say(
        "takes the distance of each of {x} from each of {y} along {D}", x=axis(x, -2), y=axis(y, -2), D=axis(x, -1)
    )
