"""Exercises of notebook 00: the shape after the embedding, splitting and merging heads, the shape of the scores."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Exercise, Mistake, Property, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ shape_of_embedding

SHAPE_OF_EMBEDDING = Exercise(
    id="shape_of_embedding",
    notebook="00",
    kind="shape",
    question=N_(
        "Token ids come as [B, T]. The embedding looks up one vector of C numbers for each id. What is the result's "
        "shape?"
    ),
    reference="B T C",
    why=N_("Each id is replaced by its own row of the table: the axes of the ids stay, and C is added at the end."),
    hints=(
        N_("An id is one number. What stands in its place after the look-up?"),
        N_("The look-up keeps the axes of the ids and puts one new axis behind them."),
        N_("Two axes from the ids, then the width of one vector: three letters."),
    ),
    minutes=1,
    mistakes=(
        Mistake(
            id="shape_of_the_ids",
            wrong=("B T",),
            says=N_(
                "[B, T] is the shape of the ids themselves. After the look-up a whole vector stands where each id "
                "stood."
            ),
        ),
        Mistake(
            id="batch_forgotten",
            wrong=("T C", "C T"),
            says=N_("That is one sentence alone. There are B sentences in the batch, and the look-up keeps that axis."),
        ),
        Mistake(
            id="positions_and_width_swapped",
            wrong=("B C T", "C B T", "C T B"),
            says=N_("The width C comes last: every id becomes a row, and its C numbers lie side by side."),
        ),
        Mistake(
            id="batch_and_positions_swapped",
            wrong=("T B C",),
            says=N_("B and T have changed places. The look-up keeps the order of the ids, which is [B, T]."),
        ),
        Mistake(
            id="shape_of_the_table",
            wrong=("V C", "C V"),
            says=N_(
                "That is the table with one row for each word of the vocabulary. Asked for are the rows that B·T ids "
                "pick out."
            ),
        ),
        Mistake(
            id="one_number_for_each_word",
            wrong=("B T V", "B T V C"),
            says=N_("V counts the rows to choose from. One row is chosen for each id, so V is gone after the look-up."),
        ),
        Mistake(
            id="heads_too_early",
            wrong=("B H T D", "B T H D"),
            says=N_("There are no heads yet: H appears only when attention cuts C into H pieces of D."),
        ),
        Mistake(
            id="positions_merged_with_batch",
            wrong=("(B T) C",),
            says=N_("B and T stay two axes here. They are merged only later, where the loss wants one row per token."),
        ),
    ),
)


# ------------------------------------------------------------------ split_heads


def split_heads(x: Tensor, H: int) -> Tensor:
    """Cut the width into heads: [B, T, C] -> [B, H, T, D]."""
    B, T, C = x.shape
    x = x.view(B, T, H, C // H)  # [B, T, H, D]
    return x.transpose(1, 2)  # [B, H, T, D]


def _view_only(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.reshape(B, H, T, C // H)


def _left_at_b_t_h_d(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C // H)


def _swapped_t_and_d(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C // H).transpose(1, 3)  # [B, D, H, T]


def _swapped_h_and_d(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C // H).transpose(2, 3)  # [B, T, D, H]


def _swapped_b_and_t(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C // H).transpose(0, 1)  # [T, B, H, D]


def _keys_transposed(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C // H).permute(0, 2, 3, 1)  # [B, H, D, T]


def _cut_d_before_h(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, C // H, H).permute(0, 3, 1, 2)


def _cut_d_before_h_only(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, C // H, H)  # [B, T, D, H]


def _cut_d_before_h_swapped(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, C // H, H).transpose(1, 2)  # [B, D, T, H]


def _reshaped_after_transpose(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.transpose(1, 2).reshape(B, H, T, C // H)


def _view_after_early_transpose(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.transpose(1, 2).view(B, H, T, C // H)


def _heads_first(x: Tensor, H: int) -> Tensor:
    return torch.stack(x.chunk(H, dim=-1))  # [H, B, T, D]


def _width_not_divided(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, T, H, C).transpose(1, 2)


def _token_1_of_head_0(case: Case, got: Any, want: Any) -> Numbers:
    t = min(1, case.sizes["T"] - 1)
    return {"t": t, "got": show(got[0, 0, t]), "want": show(want[0, 0, t])}


def _features_of_head_0(case: Case, got: Any, want: Any) -> Numbers:
    return {"got": show(got[0, 0, 0]), "want": show(want[0, 0, 0])}


def _shape_of(case: Case, got: Any, want: Any) -> Numbers:
    return {"shape": list(got.shape), "wanted": list(want.shape)}


def _head_holds_wrong_features(case: Case, got: Tensor) -> Numbers | None:
    x, H = case.args
    D = x.shape[-1] // H
    for h in range(H):
        for t in range(x.shape[1]):
            mine, right = got[0, h, t], x[0, t, h * D : (h + 1) * D]
            if not torch.allclose(mine, right.to(mine), atol=2e-2):
                return {"h": h, "t": t, "from": h * D, "to": (h + 1) * D, "got": show(mine), "want": show(right)}
    return None


SPLIT_HEADS = Exercise(
    id="split_heads",
    notebook="00",
    kind="function",
    question=N_("Write split_heads(x, H): cut x [B, T, C] into H heads, [B, H, T, D] with D = C // H."),
    reference=split_heads,
    why=N_(
        "view cuts C, the last axis, into H pieces of D; transpose then brings H before T. Neither moves a number in "
        "memory."
    ),
    hints=(
        N_("Two steps: one makes four axes out of three, the other changes the order of axes."),
        N_("Only neighbouring numbers belong to one head, so cut the last axis where it stands: [B, T, H, D]."),
        N_("After view(B, T, H, C // H), swap axes 1 and 2."),
    ),
    minutes=5,
    points=2,
    review=1,
    given=("B T C", None),
    axes=("B H T D",),
    inputs=lambda draw: usual_cases(draw, "B T H D", lambda n, fill: (fill(n["B"], n["T"], n["C"]), n["H"])),
    properties=(
        Property(
            id="head_h_is_a_block_of_features",
            says=N_(
                "For sentence 0, head {h} at t={t} holds {got}. It should hold features {from} to {to} (end not "
                "included) of token {t}: {want}."
            ),
            fails=_head_holds_wrong_features,
        ),
    ),
    mistakes=(
        Mistake(
            id="split_heads_view_only",
            wrong=(_view_only,),
            says=N_(
                "This is view alone, straight to [B, H, T, D]. The shape is right and the contents are scrambled: "
                "head 0 at t={t} holds {got}, "
                "where token {t} has {want}. view keeps the numbers in their old order and only draws new borders. "
                "Cut the last axis first, [B, T, H, D], then swap axes 1 and 2."
            ),
            numbers=_token_1_of_head_0,
        ),
        Mistake(
            id="split_heads_not_transposed",
            wrong=(_left_at_b_t_h_d,),
            says=N_(
                "This is [B, T, H, D] = {shape}: C is cut as it should be, but H still stands behind T. "
                "Swap axes 1 and 2, so that each head has its own [T, D] matrix."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="split_heads_wrong_axes",
            wrong=(_swapped_t_and_d, _swapped_h_and_d, _swapped_b_and_t),
            says=N_(
                "C is cut as it should be, but another pair of axes is swapped: the result is {shape} and {wanted} "
                "is asked for. "
                "After the view the axes are 0: B, 1: T, 2: H, 3: D. The pair to swap is 1 and 2."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="split_heads_keys_transposed",
            wrong=(_keys_transposed,),
            says=N_(
                "This is [B, H, D, T] = {shape}: how the keys enter the product q @ kᵀ, one step too far. Stop at "
                "[B, H, T, D]."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="split_heads_d_before_h",
            wrong=(_cut_d_before_h,),
            says=N_(
                "The width is cut as (D H) instead of (H D): head 0 takes features that lie {H} "
                "apart, {got} of token 0, and not the first {D}, {want}. "
                "In view(B, T, H, D) the outer part, H, is written first."
            ),
            numbers=_features_of_head_0,
        ),
        Mistake(
            id="split_heads_view_in_wrong_order",
            wrong=(_cut_d_before_h_only, _cut_d_before_h_swapped),
            says=N_(
                "The width is cut as (D H) instead of (H D), and the result is {shape} where {wanted} is asked for. "
                "In view(B, T, H, D) the outer part, H, is written first; then axes 1 and 2 are swapped."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="split_heads_reshape_after_transpose",
            wrong=(_reshaped_after_transpose,),
            says=N_(
                "The transpose comes before the cut. Then the last axis is T, and reshape cuts across the tokens: "
                "head 0 at t=0 holds {got}, where token 0 has {want}. Cut C first, while it is the last axis."
            ),
            numbers=_features_of_head_0,
        ),
        Mistake(
            id="split_heads_view_after_transpose",
            wrong=(_view_after_early_transpose,),
            raises="view size is not compatible with input tensor's size and stride",
            says=N_(
                "The transpose comes before the cut, and view refuses memory that is out of order. Do not copy it "
                "into order: that would scramble the heads. Cut C first, [B, T, H, D], then swap axes 1 and 2."
            ),
        ),
        Mistake(
            id="split_heads_heads_first",
            wrong=(_heads_first,),
            says=N_(
                "This is [H, B, T, D] = {shape}: the pieces are right, and the head axis stands before the batch. "
                "stack takes dim=1."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="split_heads_width_not_divided",
            wrong=(_width_not_divided,),
            raises="is invalid for input of size",
            says=N_(
                "view must keep every number: H·D has to be C. Here C = {C} and H = {H}, so D = C // H = {D}. "
                "The sizes that you gave to view have another product. Take them from x.shape and H: "
                "the C and D of the notebook's own cells are those of another tensor."
            ),
        ),
    ),
)


# ------------------------------------------------------------------ merge_heads


def merge_heads(out: Tensor) -> Tensor:
    """Put the heads side by side again: [B, H, T, D] -> [B, T, C]."""
    B, H, T, D = out.shape
    out = out.transpose(1, 2)  # [B, T, H, D]
    return out.reshape(B, T, H * D)  # [B, T, C]


def _merge_without_transpose(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.reshape(B, T, H * D)


def _view_after_transpose(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.transpose(1, 2).view(B, T, H * D)


def _merge_d_before_h(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.permute(0, 2, 3, 1).reshape(B, T, D * H)


def _swapped_h_and_d_back(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.transpose(1, 3).reshape(B, T, H * D)


def _swapped_t_and_d_back(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.transpose(2, 3).reshape(B, T, H * D)


def _heads_summed(out: Tensor) -> Tensor:
    return out.sum(dim=1)


def _heads_averaged(out: Tensor) -> Tensor:
    return out.mean(dim=1)


def _not_merged(out: Tensor) -> Tensor:
    return out.transpose(1, 2)


def _tokens_merged_with_features(out: Tensor) -> Tensor:
    return out.flatten(2)  # [B, H, (T D)]


def _tokens_merged_with_heads(out: Tensor) -> Tensor:
    return out.transpose(1, 2).flatten(1, 2)  # [B, (T H), D]


def _width_is_not_h_times_d(out: Tensor) -> Tensor:
    B, _H, T, D = out.shape
    return out.transpose(1, 2).reshape(B, T, D)


def _tokens_in_row_0(case: Case, got: Any, want: Any) -> Numbers:
    n = case.sizes
    token = torch.arange(n["T"]).view(1, 1, -1, 1).expand(n["B"], n["H"], n["T"], n["D"])
    mixed = sorted(set(_merge_without_transpose(token)[0, 0].tolist()))
    return {"tokens": ", ".join(map(str, mixed)), "got": show(got[0, 0], 8), "want": show(want[0, 0], 8)}


def _strides(case: Case, got: Any, want: Any) -> Numbers:
    out = case.args[0]
    return {"stride": out.transpose(1, 2).stride(), "packed": out.transpose(1, 2).contiguous().stride()}


def _row_0(case: Case, got: Any, want: Any) -> Numbers:
    return {"got": show(got[0, 0]), "want": show(want[0, 0])}


def _row_holds_another_token(case: Case, got: Tensor) -> Numbers | None:
    out = case.args[0].to(got)
    for t in range(out.shape[2]):
        whole = out[0, :, t].flatten()
        if not torch.allclose(got[0, t].sort().values, whole.sort().values, atol=2e-2):
            return {"t": t, "got": show(got[0, t], 8), "want": show(whole, 8)}
    return None


MERGE_HEADS = Exercise(
    id="merge_heads",
    notebook="00",
    kind="function",
    question=N_(
        "Write merge_heads(out): put the heads of out [B, H, T, D] side by side again, [B, T, C] with C = H·D."
    ),
    reference=merge_heads,
    why=N_(
        "The way back is the way there in reverse: transpose brings H next to D, then the two are read as one axis, "
        "(H D) = C."
    ),
    hints=(
        N_("Undo split_heads, last step first."),
        N_("H and D can be read as one axis only when they stand side by side."),
        N_("After the transpose the numbers lie in another order than the axes; view refuses that, reshape copies."),
    ),
    minutes=5,
    points=2,
    review=5,
    given=("B H T D",),
    axes=("B T C",),
    inputs=lambda draw: usual_cases(draw, "B T H D", lambda n, fill: (fill(n["B"], n["H"], n["T"], n["D"]),)),
    properties=(
        Property(
            id="row_t_holds_token_t",
            says=N_(
                "For sentence 0, row t={t} holds {got}. It should hold all heads of token {t} and nothing else: {want}."
            ),
            fails=_row_holds_another_token,
        ),
    ),
    mistakes=(
        Mistake(
            id="merge_heads_no_transpose",
            wrong=(_merge_without_transpose,),
            says=N_(
                "This merges without the transpose back. Row t=0 is {got}: it mixes the tokens {tokens} of head 0. "
                "It should be token 0 of all heads, {want}. Bring H next to D first: transpose(1, 2). "
                "The loss would not tell you: such a model still learns something."
            ),
            numbers=_tokens_in_row_0,
        ),
        Mistake(
            id="merge_heads_wrong_axes",
            wrong=(_swapped_h_and_d_back, _swapped_t_and_d_back),
            says=N_(
                "Another pair of axes is swapped. The shape is right and the contents are scrambled: row t=0 is {got}, "
                "and token 0 of all heads is {want}. "
                "In [B, H, T, D] the axes are 0: B, 1: H, 2: T, 3: D. To bring H next to D, swap 1 and 2."
            ),
            numbers=_row_0,
        ),
        Mistake(
            id="view_on_non_contiguous",
            wrong=(_view_after_transpose,),
            raises="view size is not compatible with input tensor's size and stride",
            says=N_(
                "The plan is right, the memory is not ready. transpose moved no number, it only changed the strides: "
                "they are now {stride}, "
                "and view needs {packed}. Write .contiguous() before .view, or use .reshape. "
                "Leaving the transpose out would silence the error and scramble the result."
            ),
            numbers=_strides,
        ),
        Mistake(
            id="merge_heads_d_before_h",
            wrong=(_merge_d_before_h,),
            says=N_(
                "The width is merged as (D H) instead of (H D): row t=0 is {got}, which takes one number of each "
                "head in turn. "
                "Head 0 should stand whole before head 1: {want}."
            ),
            numbers=_row_0,
        ),
        Mistake(
            id="merge_heads_added_up",
            wrong=(_heads_summed, _heads_averaged),
            says=N_(
                "The heads are added up, and the width is D = {D} where C = {C} is asked for. Merging loses nothing: "
                "the heads stand side by side. Mixing them is the work of the output projection."
            ),
        ),
        Mistake(
            id="merge_heads_not_merged",
            wrong=(_not_merged,),
            says=N_(
                "This is [B, T, H, D] = {shape}: the order is right, and H and D are still two axes. Read them as "
                "one: {wanted}."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="merge_heads_wrong_pair",
            wrong=(_tokens_merged_with_features, _tokens_merged_with_heads),
            says=N_(
                "Another pair of axes is merged: the result is {shape}, and T no longer has an axis of its own. "
                "Merge H with D: {wanted}."
            ),
            numbers=_shape_of,
        ),
        Mistake(
            id="merge_heads_width_is_d",
            wrong=(_width_is_not_h_times_d,),
            raises="is invalid for input of size",
            says=N_(
                "The sizes have another product than those of out. There are H = {H} heads of D = {D} numbers for each "
                "token, so the width is H·D = {C}. Take the sizes from out.shape: "
                "the C and D of the notebook's own cells are those of another tensor."
            ),
        ),
    ),
)


# ------------------------------------------------------------------ scores_shape

SCORES_SHAPE = Exercise(
    id="scores_shape",
    notebook="00",
    kind="shape",
    question=N_("q and k are [B, H, T, D]. What is the shape of scores = q @ k.transpose(-2, -1)?"),
    reference="B H T T",
    also=("B H T S",),
    why=N_(
        "The product works on the last two axes: [T, D] times [D, T] is [T, T], once for every sentence and head. D "
        "is summed away."
    ),
    hints=(
        N_("@ leaves B and H alone and multiplies the last two axes as matrices."),
        N_("Write the last two axes of both sides, one under the other: [T, D] and [D, T]."),
        N_("The inner pair is summed away. The outer pair stays: one number for each query and each key."),
    ),
    minutes=2,
    review=2,
    mistakes=(
        Mistake(
            id="heads_summed_away",
            wrong=("B T T", "B T S"),
            says=N_(
                "The head axis is missing. Every head compares the tokens on its own, so each has its own T-by-T table."
            ),
        ),
        Mistake(
            id="still_the_shape_of_q",
            wrong=("B H T D", "B H D T"),
            says=N_(
                "That is the shape of q, or of k transposed. D is the axis that the product sums over, so it is gone."
            ),
        ),
        Mistake(
            id="summed_over_positions",
            wrong=("B H D D",),
            says=N_(
                "That is kᵀ @ q: it sums over the tokens and compares features. A score compares two tokens, so T "
                "stays twice."
            ),
        ),
        Mistake(
            id="heads_compared_with_heads",
            wrong=("B T H H",),
            says=N_(
                "That compares the heads of one token with each other. It happens when H was not brought before T."
            ),
        ),
        Mistake(
            id="width_still_there",
            wrong=("B T C", "B H T C"),
            says=N_("No feature is left in a score: q and k were multiplied feature by feature and summed up."),
        ),
        Mistake(
            id="heads_behind_positions",
            wrong=("B T T H", "B T H T"),
            says=N_(
                "The letters are right, the order is not: B and H stand first in q and in k, and the product leaves "
                "them there."
            ),
        ),
    ),
)


# ------------------------------------------------------------------ parameter_or_activation

PARAMETER_OR_ACTIVATION = Exercise(
    id="parameter_or_activation",
    notebook="00",
    kind="choice",
    question=N_("A trained model is saved with its state dict. Which of these is in the file?"),
    choices={
        "a": N_("q, the queries of the last sentence"),
        "b": N_("c_attn.weight, which makes q, k and v"),
        "c": N_("the attention weights of head 0"),
        "d": N_("the logits"),
    },
    reference="b",
    why=N_(
        "c_attn.weight is learned and stays. q, the attention weights and the logits are computed anew for every input."
    ),
    hints=(
        N_("Which of them is still the same when another sentence comes in?"),
        N_("A state dict holds what training changed, not what one sentence made."),
    ),
    minutes=1,
    mistakes=(
        Mistake(
            id="q_is_computed",
            wrong=("a",),
            says=N_("q is an activation: it is x times a part of c_attn.weight, and another sentence makes another q."),
        ),
        Mistake(
            id="attention_weights_are_not_parameters",
            wrong=("c",),
            says=N_(
                "The word is used twice. Attention weights are the output of a softmax, made for this sentence; they "
                "are not learned."
            ),
        ),
        Mistake(
            id="logits_are_the_output",
            wrong=("d",),
            says=N_(
                "The logits are what the model says about one input. They are gone after the run unless you keep them."
            ),
        ),
    ),
)


EXERCISES = (SHAPE_OF_EMBEDDING, SPLIT_HEADS, MERGE_HEADS, SCORES_SHAPE, PARAMETER_OR_ACTIVATION)
