"""Exercises of notebook 01: from x to the heads of q, k and v, and what view and transpose do to memory."""

from typing import Any

from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ fused_shape

FUSED_SHAPE = Exercise(
    id="fused_shape",
    notebook="01",
    kind="shape",
    question=N_(
        "x is [B, T, C]. One linear layer, nn.Linear(C, 3 * C), makes q, k and v together. What is the shape of its "
        "result, before anything is split?"
    ),
    reference="B T 3C",
    why=N_("A linear layer touches the last axis alone. q, k and v lie there side by side, C numbers each: 3C."),
    hints=(
        N_("Which axes does a linear layer leave alone?"),
        N_("Only the last axis changes: from C to the number of outputs."),
    ),
    minutes=1,
    review=1,
    mistakes=(
        known("split_too_early", N_("That is q alone. The layer has 3C outputs; chunk cuts them later."), "B T C"),
        known(
            "heads_come_later",
            N_("A matrix product makes no H axis. H appears only when view cuts C into H pieces of D."),
            *("B H T D", "B H T 3D", "B T H D", "B T H 3D", "3 B H T D"),
        ),
        known(
            "three_as_an_axis",
            N_("The three parts do not get an axis of their own: the layer's outputs stand in one row, 3C long."),
            *("3 B T C", "B T 3 C", "B T C 3", "B 3 T C"),
        ),
        known(
            "weight_shape", N_("That is the layer's weight, [out, in]. Asked for is what comes out."), "3C C", "C 3C"
        ),
        known("batch_left_out", N_("That is one sentence alone; the layer works on all B of them."), "T 3C"),
        known("width_not_last", N_("The layer works on the last axis and leaves its place: 3C comes last."), "B 3C T"),
    ),
)


# ------------------------------------------------------------------ view_alone_sees

VIEW_ALONE_SEES = Exercise(
    id="view_alone_sees",
    notebook="01",
    kind="choice",
    question=N_(
        "x is [1, 4, 6]: four tokens of six numbers. Someone writes x.view(1, 2, 4, 3) for two heads of three numbers, "
        "with no transpose. What does head 0 hold?"
    ),
    choices={
        "a": N_("the first three numbers of all four tokens"),
        "b": N_("every second number of all four tokens"),
        "c": N_("all six numbers of tokens 0 and 1, and nothing of tokens 2 and 3"),
        "d": N_("nothing: view raises an error"),
    },
    reference="c",
    why=N_(
        "view keeps the order in memory. Head 0 gets the first 12 numbers, and these are tokens 0 and 1 whole: the "
        "heads divide the tokens among them instead of the features."
    ),
    hints=(
        N_("Write down the 24 numbers in the order of memory: token 0 first, all six."),
        N_("Head 0 is the first half of the 24, cut into four rows of three."),
    ),
    minutes=2,
    review=1,
    mistakes=(
        known(
            "as_if_transposed",
            N_("That is what view(1, 4, 2, 3).transpose(1, 2) gives. view alone never brings H before T."),
            "a",
        ),
        known("as_if_strided", N_("view takes neighbours in memory; it skips no numbers."), "b"),
        known(
            "shape_is_no_proof",
            N_("2·4·3 is 24, so view is content. That is the trap: the shape fits and the contents do not."),
            "d",
        ),
    ),
)


# ------------------------------------------------------------------ qkv_heads


def qkv_heads(qkv: Tensor, H: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut one fused projection into the heads of q, k and v: [B, T, 3C] -> three times [B, H, T, D]."""
    B, T, _ = qkv.shape
    q, k, v = qkv.chunk(3, dim=-1)  # each [B, T, C]
    q = q.view(B, T, H, -1).transpose(1, 2)  # [B, H, T, D]
    k = k.view(B, T, H, -1).transpose(1, 2)  # [B, H, T, D]
    v = v.view(B, T, H, -1).transpose(1, 2)  # [B, H, T, D]
    return q, k, v


def _split(x: Tensor, H: int) -> Tensor:
    return x.reshape(*x.shape[:2], H, -1).transpose(1, 2)


def _qkv_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return fill(n["B"], n["T"], 3 * n["C"]), n["H"]

    return usual_cases(draw, "B T H D", build)


def _k_of_token_0(case: Case, got: Any, want: Any) -> Numbers:
    return {"got": show(got[1][0, 0, 0]), "want": show(want[1][0, 0, 0])}


def _q_of_token_1(case: Case, got: Any, want: Any) -> Numbers:
    t = min(1, case.sizes["T"] - 1)
    return {"t": t, "got": show(got[0][0, 0, t]), "want": show(want[0][0, 0, t])}


def _head_holds_other_features(case: Case, got: Any) -> Numbers | None:
    qkv, H = case.args
    C = qkv.shape[-1] // 3
    D = C // H
    for part, name in enumerate("qkv"):
        for h in range(H):
            start = part * C + h * D
            mine, right = got[part][0, h, -1], qkv[0, -1, start : start + D]
            if (mine - right).abs().max() > 2e-2 * (1 + right.abs().max()):
                return {"name": name, "h": h, "from": start, "to": start + D, "mine": show(mine), "right": show(right)}
    return None


QKV_HEADS = Exercise(
    id="qkv_heads",
    notebook="01",
    kind="function",
    question=N_(
        "One projection made qkv [B, T, 3C]: first all of q, then all of k, then all of v. Write qkv_heads(qkv, H): "
        "return q, k, v, each [B, H, T, D] with D = C // H."
    ),
    reference=qkv_heads,
    why=N_("chunk cuts 3C into three blocks of C, view cuts each C into H blocks of D, transpose brings H before T."),
    hints=(
        N_("Three steps: cut off q, k and v; cut each into heads; bring H before T."),
        N_("q is the first C numbers of each token: qkv.chunk(3, dim=-1) gives all three."),
        N_("For each of them: view(B, T, H, D), then transpose(1, 2)."),
    ),
    minutes=6,
    points=2,
    review=1,
    given=("B T 3C", None),
    axes=("B H T D", "B H T D", "B H T D"),
    inputs=_qkv_cases,
    properties=(
        Property(
            id="a_head_is_a_block_of_features",
            says=N_(
                "Head {h} of {name} holds {mine} for the last token of sentence 0. It should hold its numbers {from} "
                "to {to} (end not included): {right}."
            ),
            fails=_head_holds_other_features,
        ),
    ),
    mistakes=(
        known(
            "split_heads_view_only",
            N_(
                "q, k and v are cut off rightly, then view goes straight to [B, H, T, D]: head 0 of q at t={t} holds "
                "{got}, where token {t} has {want}. view moves no number. Cut C first, [B, T, H, D], then swap 1 and 2."
            ),
            lambda qkv, H: tuple(x.reshape(x.shape[0], H, x.shape[1], -1) for x in qkv.chunk(3, -1)),
            numbers=_q_of_token_1,
        ),
        known(
            "heads_before_parts",
            N_(
                "The width is cut as (H 3 D): head by head, q, k and v inside each. This projection has all of q "
                "first, so head 0 of k begins {want} for token 0, not {got}. Some models do pack it your way."
            ),
            lambda qkv, H: tuple(qkv.unflatten(-1, (H, 3, -1)).permute(3, 0, 2, 1, 4)),
            numbers=_k_of_token_0,
        ),
        known(
            "parts_interleaved",
            N_(
                "The width is cut as (C 3) or (H D 3): every third number goes to q. Here q, k and v are blocks; head "
                "0 of k begins {want} for token 0, not {got}."
            ),
            lambda qkv, H: tuple(_split(qkv[..., i::3], H) for i in range(3)),
            numbers=_k_of_token_0,
        ),
        known(
            "d_before_h",
            N_(
                "C is cut as (D H) instead of (H D): head 0 takes numbers that lie {H} apart, {got} for k of token 0, "
                "and not the first {D}, {want}. In view(B, T, H, D) the outer part, H, is written first."
            ),
            lambda qkv, H: tuple(x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2) for x in qkv.chunk(3, -1)),
            numbers=_k_of_token_0,
        ),
        known(
            "parts_in_another_order",
            N_("The three are all there, in another order. The projection holds q, then k, then v: return them so."),
            *(
                lambda qkv, H, order=order: tuple(_split(qkv.chunk(3, -1)[i], H) for i in order)
                for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
            ),
        ),
        known(
            "same_part_three_times",
            N_("q, k and v are one and the same here. They are three blocks of 3C, each made by weights of its own."),
            *(lambda qkv, H, i=i: (_split(qkv.chunk(3, -1)[i], H),) * 3 for i in range(3)),
        ),
        known(
            "heads_not_transposed",
            N_("This is [B, T, H, D] = {shape}. C is cut as it should be; swap axes 1 and 2, to bring H before T."),
            lambda qkv, H: tuple(x.unflatten(-1, (H, -1)) for x in qkv.chunk(3, -1)),
        ),
        known(
            "not_cut_into_heads",
            N_("These are q, k and v whole, [B, T, C] = {shape}. Cut each into heads: {wanted}."),
            lambda qkv, H: qkv.chunk(3, -1),
        ),
    ),
)


# ------------------------------------------------------------------ turned_key_shape

TURNED_KEY_SHAPE = Exercise(
    id="turned_key_shape",
    notebook="01",
    kind="shape",
    question=N_(
        "k is [B, T, C]. Follow its axes by name: k.view(B, T, H, C // H).transpose(1, 2).transpose(-2, -1). What is "
        "the shape at the end?"
    ),
    reference="B H D T",
    why=N_(
        "[B, T, C] -> view [B, T, H, D] -> transpose(1, 2) [B, H, T, D] -> transpose(-2, -1) [B, H, D, T]: ready to "
        "meet q [B, H, T, D] in a product."
    ),
    hints=(
        N_("Write the axes down after each step, with letters and not with sizes."),
        N_("transpose(1, 2) swaps the two in the middle, transpose(-2, -1) the last two."),
    ),
    minutes=2,
    review=1,
    mistakes=(
        known(
            "one_step_early", N_("That is after the first transpose. The second swaps the last two axes."), "B H T D"
        ),
        known("after_view", N_("That is after view alone. Two swaps follow."), "B T H D"),
        known("first_swap_forgotten", N_("The swap of axes 1 and 2 is missing: view left [B, T, H, D]."), "B T D H"),
        known(
            "other_axes_swapped",
            N_(
                "All four are there, in another order. Axis 0 is B: transpose(1, 2) swaps T and H, the next swaps T "
                "and D."
            ),
            *("B D H T", "B D T H", "H B D T", "T H B D"),
        ),
        known(
            "width_not_cut",
            N_("view cut C into H and D: no axis is C wide any longer."),
            "B C T",
            "B T C",
            "B H C T",
            "B H T C",
        ),
    ),
)


# ------------------------------------------------------------------ head_weight


def head_weight(w: Tensor, h: int, H: int) -> Tensor:
    """Take the weights that make head h out of a projection's: [C, C] (out, in) -> [D, C]."""
    D = w.shape[0] // H
    return w[h * D : (h + 1) * D]  # [D, C]


def _weight_cases(draw: Draw) -> list[Case]:
    heads = iter((-1, 0, 1, 2, 0))  # the last, the first, and others

    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return fill(n["C"], n["C"]), next(heads) % n["H"], n["H"]

    return usual_cases(draw, "B H D", build)


HEAD_WEIGHT = Exercise(
    id="head_weight",
    notebook="01",
    kind="function",
    question=N_(
        "q = x @ w.T, with the weight w [C, C] of nn.Linear (outputs first). q is then cut into H heads. Write "
        "head_weight(w, h, H): the part of w, [D, C], that alone makes head h of q."
    ),
    reference=head_weight,
    why=N_(
        "Head h is D neighbouring outputs, so it is D neighbouring rows of w. Written on paper as q = x W, with W = "
        "wᵀ, they are columns: splitting q into heads is splitting W_Q into blocks of columns."
    ),
    hints=(
        N_("Which of q's numbers belong to head h? From h·D up to (h+1)·D, end not included."),
        N_("nn.Linear stores [out, in]: one row for each output."),
    ),
    minutes=3,
    points=2,
    review=1,
    given=("C C", None, None),
    axes=("D C",),
    inputs=_weight_cases,
    mistakes=(
        known(
            "columns_of_w",
            N_(
                "These are columns of w, {shape}. On paper, in q = x W, a head is a block of columns; nn.Linear stores "
                "the transpose, [out, in], where the outputs are rows."
            ),
            lambda w, h, H: w[:, h * (w.shape[1] // H) : (h + 1) * (w.shape[1] // H)],
        ),
        known(
            "columns_turned",
            N_(
                "This takes columns of w and turns them: they are the weights that read some inputs for all heads. A "
                "head is a block of outputs, which are the rows of w."
            ),
            lambda w, h, H: w.T[h * (w.shape[1] // H) : (h + 1) * (w.shape[1] // H)],
        ),
        known(
            "rows_turned",
            N_("The rows are the right ones, and turned: this is [C, D] = {shape}. Asked for is [D, C] = {wanted}."),
            lambda w, h, H: w[h * (w.shape[0] // H) : (h + 1) * (w.shape[0] // H)].T,
        ),
        known(
            "every_hth_row",
            N_("These are rows {H} apart, as if the width were cut (D H). The rows of one head are neighbours."),
            lambda w, h, H: w[h::H],
        ),
        known(
            "h_rows_from_h",
            N_("The block begins at row h. Each head before it takes D rows, so it begins at row h·D."),
            lambda w, h, H: w[h : h + w.shape[0] // H],
        ),
        known("first_head_always", N_("This is head 0, whatever h is."), lambda w, h, H: w[: w.shape[0] // H]),
        known(
            "head_counted_from_one",
            N_("This is another head: h counts from 0, so head h begins at row h·D."),
            lambda w, h, H: w[max(h - 1, 0) * (w.shape[0] // H) :][: w.shape[0] // H] if h else w[-(w.shape[0] // H) :],
        ),
    ),
)


# ------------------------------------------------------------------ stride_of_heads

STRIDE_OF_HEADS = Exercise(
    id="stride_of_heads",
    notebook="01",
    kind="number",
    question=N_(
        "x is [2, 5, 12] and lies packed in memory. heads = x.view(2, 5, 3, 4).transpose(1, 2) is [2, 3, 5, 4]. How "
        "many numbers further in memory is head 1 than head 0, at the same token? (heads.stride(1))"
    ),
    reference=4,
    why=N_(
        "No number has moved: the heads of one token still lie side by side, D = 4 apart, and tokens are C = 12 apart. "
        "Packed memory of [2, 3, 5, 4] would have 20 and 4 there, so heads is not contiguous."
    ),
    hints=(
        N_("view and transpose move nothing. Where does head 1 of token 0 lie in x?"),
        N_("The first 12 numbers are token 0: head 0, head 1, head 2, four numbers each."),
    ),
    minutes=3,
    review=1,
    mistakes=(
        known(
            "stride_if_packed",
            N_("20 = T·D would be right had transpose copied the numbers into a new order. It only renames the axes."),
            20,
        ),
        known("stride_of_tokens", N_("12 = C is the way from one token to the next. Heads lie inside a token."), 12),
        known("stride_of_sentences", N_("60 = T·C is the way from one sentence to the next."), 60),
        known("number_of_heads", N_("3 is how many heads there are. Between two of them lie D numbers."), 3),
        known("stride_of_features", N_("1 is the way from one feature to the next inside a head."), 1.0),
        known("stride_of_bytes", N_("16 counts bytes, at 4 bytes for a number. Strides count numbers."), 16),
    ),
)


# ------------------------------------------------------------------ contiguous_needed

CONTIGUOUS_NEEDED = Exercise(
    id="contiguous_needed",
    notebook="01",
    kind="choice",
    question=N_(
        "q = x.view(B, T, H, D).transpose(1, 2) is [B, H, T, D], with B, T, H and D above 1. Which of these lines "
        "raises an error and needs .contiguous() first?"
    ),
    choices={
        "a": N_("q.view(B, H, T * D)"),
        "b": N_("q.view(B, H, T, 2, D // 2)"),
        "c": N_("q @ q.transpose(-2, -1)"),
        "d": N_("q.reshape(B, H, T * D)"),
    },
    reference="a",
    why=N_(
        "view can merge T and D only where they lie one behind the other in memory. After the transpose the rows of "
        "one head are C apart, with the other heads between them."
    ),
    hints=(
        N_("view moves nothing: it must be able to say the new shape with strides alone."),
        N_("Cutting an axis always works. Merging two axes works only if they are neighbours in memory."),
    ),
    minutes=2,
    review=1,
    mistakes=(
        known("products_take_strides", N_("Products read any strides, and copy inside where they must."), "c"),
        known("cutting_is_free", N_("This cuts D alone, and one axis can always be cut where it lies."), "b"),
        known("reshape_copies", N_("reshape looks first, and copies by itself where view would raise."), "d"),
    ),
)


EXERCISES = (FUSED_SHAPE, VIEW_ALONE_SEES, TURNED_KEY_SHAPE, QKV_HEADS, HEAD_WEIGHT, STRIDE_OF_HEADS, CONTIGUOUS_NEEDED)
