"""Attention in one call, masks, and shapes that do not broadcast."""

import re
from dataclasses import replace
from itertools import combinations

from ..naming import DATA
from ..records import TensorInfo
from ..speech import N_, say, say_count
from .core import Case, Finding, kind, mistakes, of_all
from .products import leading_repair
from .words import (
    alike,
    axis_of,
    clash,
    code_of,
    cut,
    fitting,
    heads_back,
    heads_behind,
    is_whole,
    join,
    rank,
    swap_last_two,
    unmoved,
    who,
)

__all__: list[str] = []


@kind("scaled_dot_product_attention")
def _attention(case: Case) -> Finding | None:
    q, k, v, *mask = case.inputs
    if q.shape[-1] != k.shape[-1]:
        return _attention_width(case, q, k)
    if (at := clash(q, k, skip=2)) is not None:
        what, n, rest = N_("q has {a} where k has {b}."), *divmod(q.shape[at], k.shape[at])
        repair = leading_repair(q, k, at)
        if at == -3 and not heads_behind(q, k, at) and not rest:
            repair = say("pass enable_gqa=True: {n} query heads then share each key head.", n=n)
        elif "enable_gqa=True" in case.op.args:
            repair = say("each key head serves equally many query heads: choose a number of them that divides.")
        return case.found(what, a=axis_of(q, at), b=axis_of(k, at), then=repair)
    if rank(k) > 1 < rank(v) and k.shape[-2] != v.shape[-2]:
        return case.found(
            "every key has one value; k has {a} positions, v has {b}.", "make k and v from the same tensor.",
            a=axis_of(k, -2), b=axis_of(v, -2),
        )  # fmt: skip
    return _attention_mask(case, q, k, mask[0]) if mask else None


def _attention_width(case: Case, q: TensorInfo, k: TensorInfo) -> Finding:
    if rank(k) < 2 or q.shape[-1] != k.shape[-2]:
        return case.found(
            "q and k are compared feature by feature; q has {a}, k has {b}.", "give q and k the same head size.",
            a=axis_of(q, -1), b=axis_of(k, -1),
        )  # fmt: skip
    before = unmoved(case.line, k)
    repair = N_("pass k as [B, H, S, D]: {c}.transpose(-2, -1).")
    if before != k and before.shape[-1] == q.shape[-1]:
        repair = N_("pass {before} as it was before the transpose.")
    what = N_("k is transposed, {label}; this call takes [B, H, S, D] and transposes it itself.")
    return case.found(what, repair, of=k, before=code_of(before))


def _attention_mask(case: Case, q: TensorInfo, k: TensorInfo, mask: TensorInfo) -> Finding | None:
    """A mask must broadcast to the scores, `[B, H, T, S]`, and be bool or float."""
    if is_whole(mask):
        what = N_("the mask is {dtype}; it must be bool (True: may look) or float (added to the scores).")
        return case.found(what, "{c}.bool()", of=mask, c=code_of(mask) or say("mask"))
    shape, axes = (*q.shape[:-1], k.shape[-2]), (*q.axes[:-1], k.axes[-2])
    scores = replace(q, variable=None, shape=shape, axes=axes)
    if (at := clash(scores, mask)) is None:
        return None
    return case.found(
        "the mask {label} is added to scores [{names}], lined up from the right.",
        "give the mask the shape of the scores, with 1 for axes that it does not depend on.",
        of=mask, names=", ".join(axes), then=_broadcast_repair(scores, mask, at),
    )  # fmt: skip


@kind("multi_head_attention_forward")
def _one_width(case: Case) -> Finding | None:
    """Keys of another width than the queries, as of a decoder's memory; the layer stops at a product inside."""
    case.told(r"mat1 and mat2 shapes cannot be multiplied")
    q, k = case.inputs[:2]
    if q.shape[-1] == k.shape[-1] or case.inputs[3].shape != (3 * q.shape[-1], q.shape[-1]):
        return None
    return case.found(
        "this layer was made for keys as wide as the queries, {a}; the last axis of its keys is {b}.",
        "bring them there first: nn.Linear({n}, {m}). nn.MultiheadAttention also takes kdim={n}, vdim={n}.",
        a=axis_of(q, -1), b=axis_of(k, -1), n=k.shape[-1], m=q.shape[-1],
    )  # fmt: skip


@kind("multi_head_attention_forward")
def _batch_second(case: Case) -> Finding | None:
    """A padding mask [B, S] that is right, and a layer that reads the batch on axis 1."""
    case.told(r"key_padded_mask\.shape\[0\] to be")
    x, mask = case.inputs[1], case.inputs[-1]
    if x.axes[0] != "B" or x.shape[:2] != mask.shape:
        return None
    what = N_("the layer reads its input as [T, B, C], the batch second; it is {label}.")
    return case.found(what, "make the layer with batch_first=True.", of=x)


mistakes(
    "multi_head_attention_forward",
    (
        r"key_padded_mask\.shape\[(\d)\] to be (\d+), but got",
        N_("key_padding_mask is [B, S], an entry for each key of each example; its axis {a} should have {b}."),
        N_("give it a row for each example and a column for each key, True at the padding."),
    ),
    (
        r"shape of the (2)D attn_mask is .*but should be (\(.+\))",
        N_("attn_mask says for each query which keys it may not look at, [T, S]: {b} here."),
        N_("a padding mask [B, S] goes in as key_padding_mask (src_key_padding_mask of an encoder)."),
    ),
    (
        r"shape of the (3)D attn_mask is .*but should be (\(.+\))",
        N_("attn_mask is [T, S], or [B * H, T, S] with the heads of an example one after another; here {b}."),
        N_("give one mask [T, S] for all, or repeat that of each example: mask.repeat_interleave(num_heads, dim=0)."),
    ),
    (
        r"query should be unbatched 2D or batched 3D tensor but received (\d)-D",
        N_("this layer takes [B, T, C] and splits the heads itself; its query is {label}."),
        N_("pass it before its heads are split."),
    ),
    (
        r"shape '\[.*\]' is invalid for input of size",
        N_("query and key must be of equally many examples; as the layer sees them they are {label} and {y_label}."),
        N_("compare the batch sizes; nn.MultiheadAttention takes the batch in front only with batch_first=True."),
    ),
)
mistakes(
    "MultiheadAttention",
    (
        r"embed_dim must be divisible by num_heads",
        N_("the heads share the width of the layer in equal parts, and this number of heads does not divide it."),
        N_("choose num_heads so that embed_dim % num_heads is 0."),
    ),
)


# ---------------------------------------------------------------- masks


@kind("masked_fill", "where")
def _mask_type(case: Case) -> Finding | None:
    case.told("boolean")
    mask = case.inputs[1 if case.op.name.startswith("masked") and len(case.inputs) > 1 else 0]
    what, repair = (
        N_("a mask says yes or no; {x} is {dtype}."),
        N_("compare it: {c} == 0 marks its zeros; or {c}.bool()."),
    )
    return case.found(what, repair, of=mask, called=N_("the mask"), c=code_of(mask) or say("mask"))


mistakes(
    "masked_fill",
    (
        r"only supports a 0-dimensional value tensor",
        N_("masked_fill writes one number wherever the mask is True; this value is a tensor of several."),
        N_("give a number, float('-inf') before a softmax; entry by entry: torch.where({d}, value, {c})."),
    ),
)
mistakes(
    "tril triu",
    (
        r"at least 2 dimensions",
        N_("{name} keeps a triangle of the last two axes; {x} is {label}."),
        N_("a causal mask starts as a square: torch.ones(T, T).tril()."),
    ),
)
mistakes(
    "neg sub rsub",
    (
        r"with a bool tensor|on a bool tensor",
        N_("a mask of True and False takes no minus."),
        N_("~ turns it round: True where it was False."),
    ),
)


# ---------------------------------------------------------------- broadcasting


@of_all(first=False)
def _broadcast(case: Case) -> Finding | None:
    """Two shapes that do not line up: sums, masks, comparisons, and whatever else combines entry by entry."""
    case.told(r"must match the size|broadcast")
    for a, b in combinations(case.inputs, 2):
        if (at := clash(a, b)) is not None:
            halves = _repeated(a, b) if case.op.name == "mul" and at == -1 else ""
            halves = halves or _keepdim(case, min(a, b, key=rank))
            return case.found(
                "shapes are lined up from the right; {x} has {one} where {z} has {other}, and neither is 1.",
                of=a, called=N_("the first"), one=axis_of(a, at), z=who(b, N_("the second")), other=axis_of(b, at),
                then=halves or _broadcast_repair(a, b, at),
            )  # fmt: skip
    if case.op.name.endswith("_") and rank(case.inputs[1]) > rank(case.inputs[0]):
        what, repair = N_("an in-place operation cannot grow {x}."), N_("use {name} without the underscore.")
        return case.found(what, repair, called=N_("its tensor"))
    return None


def _keepdim(case: Case, small: TensorInfo) -> str:
    """`x / x.sum(-1)`: the sum has lost the axis that it should be spread over again."""
    calls = re.findall(r"\.(sum|mean|norm|amax|amin|var|std|logsumexp)\(", case.line)
    if small.variable or len(calls) != 1 or "keepdim" in case.line or len({rank(t) for t in case.inputs}) == 1:
        return ""
    return say("keep the axis that {f} takes away, with size 1: {f}(..., keepdim=True).", f=calls[0])


def _repeated(a: TensorInfo, b: TensorInfo) -> str:
    """Rotary embedding: one cosine turns two features."""
    half = min(a, b, key=lambda info: info.shape[-1])
    if half.shape[-1] * 2 != max(a.shape[-1], b.shape[-1]):
        return ""
    return say(
        "each entry of {x} is for two features: torch.cat(({c}, {c}), -1) where the halves of D are turned together, "
        "{c}.repeat_interleave(2, -1) where neighbours are.",
        x=who(half, N_("the smaller tensor")), c=code_of(half) or "x",
    )  # fmt: skip


def _broadcast_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    small, large = (a, b) if rank(a) < rank(b) else (b, a)
    if calls := fitting(small, large):
        if n := calls.count("None"):
            x = who(small, N_("the smaller tensor"))
            one, many = N_("{x} lacks an axis: {c}{calls}."), N_("{x} lacks {n} axes: {c}{calls}.")
            return say_count(one, many, n, x=x, c=code_of(small), calls=calls)
        return say("bring the axes into one order: {c}{calls}.", c=code_of(small), calls=calls)
    if 1 < rank(small) < rank(large) and all(alike(small, i, large, -3 - i) for i in (-1, -2)):
        if clash(small, large, skip=2) is None:
            return swap_last_two(small, N_("the smaller tensor"))  # a mask [S, T] for scores [B, T, S]
    if rank(small) < rank(large) and (joined := join(large, small.shape[-1])):
        return joined
    for table, other in ((small, large), (large, small)):
        if repair := _table_repair(table, other, at):
            return repair
    if mixed := heads_back(a, at) or heads_back(b, at):
        return mixed
    if rank(a) == rank(b) and at == -1 and not {a.axes[-1], b.axes[-1]} & DATA:
        return say("bring one to the width of the other with a linear layer before they meet.")
    return ""


def _table_repair(table: TensorInfo, other: TensorInfo, at: int) -> str:
    """A mask or a table of positions is made once, for the longest text; it may be longer or shorter than this one."""
    if at < -2 or not 1 < rank(table) <= rank(other) or (rank(table) > 2 and table.shape[0] != 1):
        return ""
    mask = table.shape[-1] == table.shape[-2] and rank(other) > 2
    have, need = table.shape[at], other.shape[at]
    half_cut = rank(table) == 2 and rank(other) > 2 and table.shape[0] == other.shape[-1] == other.shape[-2] < have
    if at == -1 and not mask and not half_cut:  # half cut: mask[:T] of a mask for the longest text
        return ""
    if table.axes[at] not in ("?", "T", "S") or other.axes[at] not in ("?", "T", "S"):
        return ""
    if mask and other.shape[-1] != other.shape[-2]:  # queries and keys of two lengths
        T, S = other.shape[-2:]
        return say("a mask has a row for each query and a column for each key: make it {n} x {m}.", n=T, m=S)
    if have > need:
        return cut(table, other.shape)
    if mask:
        return say("make the mask T x T, {n} x {n} here: block_size ({m}) is smaller than T.", n=need, m=have)
    if not table.variable:  # cut in the same line, by something else than T
        return ""
    return say("make it for {n} positions or more: block_size ({m}) is smaller than T.", n=need, m=have)
