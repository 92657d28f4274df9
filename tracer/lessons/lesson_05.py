"""Exercises of notebook 05: heads joined and projected, what that costs, and multi-head attention whole."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, counting, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ join_and_project


def join_and_project(out: Tensor, w_o: Tensor) -> Tensor:
    """Put the heads side by side and mix them: [B, H, T, D], w_o [C, C] (outputs first) -> [B, T, C]."""
    B, H, T, D = out.shape
    joined = out.transpose(1, 2).reshape(B, T, H * D)  # [B, T, C]
    return joined @ w_o.T


def _join(out: Tensor) -> Tensor:
    return out.transpose(1, 2).flatten(2)


def _join_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        w_o = draw.digits(n["C"], n["C"]) if fill is counting else fill(n["C"], n["C"]) / n["C"] ** 0.5
        return fill(n["B"], n["H"], n["T"], n["D"]), w_o

    return usual_cases(draw, "B H T D", build)


def _other_tokens_enter(case: Case, got: Tensor) -> Numbers | None:
    out, w_o = (arg.to(got) for arg in case.args)
    for t in range(out.shape[2]):
        right = _join(out[:1, :, t : t + 1])[0, 0] @ w_o.T
        if (got[0, t] - right).abs().max() > 2e-2 * (1 + right.abs().max()):
            return {"t": t, "row": show(got[0, t]), "right": show(right)}
    return None


def _strides(case: Case, got: Any, want: Any) -> Numbers:
    turned = case.args[0].transpose(1, 2)
    return {"stride": turned.stride(), "packed": turned.contiguous().stride()}


def _merged_tokens(case: Case, got: Any, want: Any) -> Numbers:
    n = case.sizes
    token = torch.arange(n["T"]).view(1, 1, -1, 1).expand(n["B"], n["H"], n["T"], n["D"])
    mixed = sorted(set(token.reshape(n["B"], n["T"], n["C"])[0, 0].tolist()))
    return {"tokens": ", ".join(map(str, mixed))}


JOIN_AND_PROJECT = Exercise(
    id="join_and_project",
    notebook="05",
    kind="function",
    question=N_(
        "Write join_and_project(out, w_o): out [B, H, T, D] is what the heads gave. Put the heads side by side, [B, T, "
        "C] with C = H·D, and apply the output projection w_o [C, C], stored as in nn.Linear (outputs first, no bias)."
    ),
    reference=join_and_project,
    why=N_(
        "Joining only sets the heads side by side. W_O lets every head write into every number of the token's vector."
    ),
    hints=(
        N_("First the way back from heads: which two axes must stand side by side before they can be read as one?"),
        N_("out.transpose(1, 2) is [B, T, H, D]; view refuses its memory, reshape copies it."),
        N_("nn.Linear stores [out, in], so the product is joined @ w_o.T."),
    ),
    minutes=5,
    points=2,
    review=5,
    given=("B H T D", "C C"),
    axes=("B T C",),
    inputs=_join_cases,
    properties=(
        Property(
            id="token_t_comes_from_token_t",
            says=N_(
                "Token t={t} of sentence 0 becomes {row}. Its heads, joined and projected alone, make {right}; no "
                "other token enters here."
            ),
            fails=_other_tokens_enter,
        ),
    ),
    mistakes=(
        known(
            "merge_heads_no_transpose",
            N_(
                "The heads are joined without the transpose back: row t=0 mixes the tokens {tokens} of head 0. Bring H "
                "next to D first, transpose(1, 2). The loss would go down all the same, so it will not tell you."
            ),
            lambda out, w_o: out.reshape(out.shape[0], out.shape[2], -1) @ w_o.T,
            numbers=_merged_tokens,
        ),
        known(
            "view_on_non_contiguous",
            N_(
                "The plan is right, the memory is not ready: transpose only changed the strides, to {stride}, and view "
                "needs {packed}. Write .contiguous() before .view, or use .reshape. Without the transpose the error is "
                "gone and the heads are scrambled."
            ),
            lambda out, w_o: out.transpose(1, 2).view(out.shape[0], out.shape[2], -1) @ w_o.T,
            numbers=_strides,
            raises="view size is not compatible with input tensor's size and stride",
        ),
        known(
            "weight_not_transposed",
            N_("The heads are joined rightly, and w_o is used as [in, out]. nn.Linear stores [out, in]: @ w_o.T."),
            lambda out, w_o: _join(out) @ w_o,
        ),
        known(
            "not_projected",
            N_("The heads are joined, and W_O is missing: each head's numbers still stand in a block of their own."),
            lambda out, w_o: _join(out),
        ),
        known(
            "d_before_h",
            N_(
                "The width is joined as (D H), one number of each head in turn. Head 0 should stand whole before head "
                "1."
            ),
            lambda out, w_o: out.permute(0, 2, 3, 1).flatten(2) @ w_o.T,
        ),
        known(
            "wrong_axes_swapped",
            N_("Another pair of axes is swapped. In [B, H, T, D] bring H (1) next to D (3): swap 1 and 2."),
            lambda out, w_o: out.transpose(1, 3).reshape(out.shape[0], out.shape[2], -1) @ w_o.T,
            lambda out, w_o: out.transpose(2, 3).reshape(out.shape[0], out.shape[2], -1) @ w_o.T,
        ),
        known(
            "blocks_projected_apart",
            N_(
                "Each head goes through its own block on the diagonal of W_O: heads never meet. W_O is full, so every "
                "head can write into every number."
            ),
            lambda out, w_o: _join(
                torch.stack(
                    [
                        out[:, h]
                        @ w_o[h * out.shape[3] : (h + 1) * out.shape[3], h * out.shape[3] :][:, : out.shape[3]].T
                        for h in range(out.shape[1])
                    ],
                    dim=1,
                )
            ),
        ),
    ),
)


# ------------------------------------------------------------------ multi_head_attention


def multi_head_attention(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    """Attend in H heads, without a mask: [B, T, C], w_qkv [3C, C], w_o [C, C] (outputs first) -> [B, T, C]."""
    B, T, C = x.shape
    q, k, v = (x @ w_qkv.T).chunk(3, dim=-1)  # [B, T, 3C] -> three times [B, T, C]
    q = q.view(B, T, H, C // H).transpose(1, 2)  # [B, H, T, D]
    k = k.view(B, T, H, C // H).transpose(1, 2)  # [B, H, T, D]
    v = v.view(B, T, H, C // H).transpose(1, 2)  # [B, H, T, D]
    scores = q @ k.transpose(-2, -1) / (C // H) ** 0.5  # [T, D] @ [D, T] -> [B, H, T, T]
    weights: Tensor = scores.softmax(dim=-1)
    out = weights @ v  # [T, T] @ [T, D] -> [B, H, T, D]
    out = out.transpose(1, 2).reshape(B, T, C)  # [B, T, C]
    return out @ w_o.T


def _attention_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        root = n["C"] ** 0.5
        w_qkv, w_o = draw.normal(3 * n["C"], n["C"]) / root, draw.normal(n["C"], n["C"]) / root
        return fill(n["B"], n["T"], n["C"]), w_qkv * 1.5, w_o, n["H"]

    return usual_cases(draw, "B T H D", build, first=draw.digits)


def _with(
    *,
    split: Any = None,
    scale: Any = None,
    order: tuple[int, int, int] = (0, 1, 2),
    dim: int = -1,
    join: Any = _join,
    turned: tuple[bool, bool] = (True, True),
    project: bool = True,
) -> Any:
    """Return multi-head attention with one step done in another way."""

    def attend(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Any:
        D = x.shape[-1] // H
        cut = split or (lambda y, H: y.unflatten(-1, (H, -1)).transpose(1, 2))
        qkv = x @ w_qkv.T if turned[0] else x @ w_qkv.view(x.shape[-1], -1)
        parts = [cut(part, H) for part in qkv.chunk(3, -1)]
        q, k, v = (parts[i] for i in order)
        scores = q @ k.mT * (D**-0.5 if scale is None else scale(x.shape[-1], D))
        out = join(scores.softmax(dim) @ v)
        return out if not project else out @ w_o.T if turned[1] else out @ w_o

    return attend


MULTI_HEAD_ATTENTION = Exercise(
    id="multi_head_attention",
    notebook="05",
    kind="function",
    question=N_(
        "Write multi_head_attention(x, w_qkv, w_o, H) without a mask: x is [B, T, C]; w_qkv [3C, C] makes q, k and v "
        "in this order; w_o [C, C] is the output projection. Weights are stored as in nn.Linear, outputs first, "
        "without biases. The result is [B, T, C]."
    ),
    reference=multi_head_attention,
    why=N_(
        "Four products, all there is: x·W_QKV, q·kᵀ, weights·v, joined·W_O. Everything else turns axes, scales and "
        "shares out."
    ),
    hints=(
        N_(
            "You have written all the parts: qkv_heads, scaled_scores, attention_weights, mix_values, join_and_project."
        ),
        N_("x @ w_qkv.T is [B, T, 3C]. Then chunk, view, transpose; scores, scale, softmax; mix; transpose, reshape."),
        N_("The scale is √D with D = C // H; the last step is @ w_o.T."),
    ),
    minutes=12,
    points=4,
    review=5,
    given=("B T C", "3C C", "C C", None),
    axes=("B T C",),
    inputs=_attention_cases,
    mistakes=(
        known(
            "split_heads_view_only",
            N_(
                "The heads are cut by view alone, straight to [B, H, T, D]: they hold other tokens instead of other "
                "features."
            ),
            _with(split=lambda y, H: y.reshape(y.shape[0], H, y.shape[1], -1)),
        ),
        known(
            "merge_heads_no_transpose",
            N_(
                "The heads are joined without the transpose back: each row mixes tokens of one head. transpose(1, 2) "
                "first."
            ),
            _with(join=lambda out: out.reshape(out.shape[0], out.shape[2], -1)),
        ),
        known(
            "scrambled_there_and_back",
            N_(
                "view alone cuts the heads, and view alone joins them again: the shapes are right all the way, and "
                "each head attended among a few tokens only. Both ways need their transpose."
            ),
            _with(
                split=lambda y, H: y.reshape(y.shape[0], H, y.shape[1], -1),
                join=lambda out: out.reshape(out.shape[0], out.shape[2], -1),
            ),
        ),
        known(
            "not_scaled",
            N_("The scale is missing: scores are divided by √D = √{D} before the softmax."),
            _with(scale=lambda C, D: 1),
        ),
        known(
            "scale_by_model_dim",
            N_("The scores are divided by √C = √{C}. Each head adds up D = {D} products: the scale is √D."),
            _with(scale=lambda C, D: C**-0.5),
        ),
        known(
            "scale_by_d",
            N_("The scores are divided by D = {D}. The scale is its root, √D."),
            _with(scale=lambda C, D: 1 / D),
        ),
        known(
            "softmax_wrong_dim",
            N_(
                "The softmax runs over another axis than the keys. Each query's row must sum to 1: the last axis, "
                "dim=-1."
            ),
            *(_with(dim=dim) for dim in (0, 1, 2)),
        ),
        known(
            "parts_in_another_order",
            N_("q, k and v are taken in another order than w_qkv makes them: first q, then k, then v."),
            *(_with(order=order) for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1))),
        ),
        known(
            "keys_mixed",
            N_("The weights mix the keys, or the queries, instead of the values: v plays no part."),
            _with(order=(0, 1, 1)),
            _with(order=(0, 1, 0)),
        ),
        known("not_projected", N_("W_O is missing: the joined heads come back as they are."), _with(project=False)),
        known(
            "weight_not_transposed",
            N_("w_o is used as [in, out]. nn.Linear stores [out, in]: joined @ w_o.T."),
            _with(turned=(True, False)),
        ),
        known(
            "qkv_weight_reshaped",
            N_(
                "w_qkv is brought to [C, 3C] by view, which leaves its numbers in the old order. Transpose it: w_qkv.T."
            ),
            _with(turned=(False, True)),
        ),
        known(
            "one_wide_head",
            N_("H plays no part: this is one head as wide as the model. Cut q, k and v into H heads of D = {D}."),
            lambda x, w_qkv, w_o, H: _with()(x, w_qkv, w_o, 1),
        ),
        known(
            "heads_compared",
            N_(
                "H was not brought before T: the product compares the heads of one token with each other, and tokens "
                "never meet. transpose(1, 2) after the view."
            ),
            _with(split=lambda y, H: y.unflatten(-1, (H, -1)), join=lambda out: out.flatten(2)),
        ),
        known(
            "input_added",
            N_("x is added to the result. The residual belongs to the block around attention, not into it."),
            lambda x, w_qkv, w_o, H: x + _with()(x, w_qkv, w_o, H),
        ),
    ),
)


# ------------------------------------------------------------------ count_products

COUNT_PRODUCTS = Exercise(
    id="count_products",
    notebook="05",
    kind="number",
    question=N_(
        "How many matrix products does one layer of multi-head attention compute, if q, k and v come from one fused "
        "projection? (A batched product for all heads counts once.)"
    ),
    reference=4,
    why=N_("x·W_QKV, q·kᵀ, weights·v, joined·W_O."),
    hints=(
        N_("Two of them have weights that are learned, two have activations on both sides."),
        N_("Go through the trace and count @ and linear."),
    ),
    minutes=2,
    review=5,
    mistakes=(
        known("projections_apart", N_("6 counts three projections for q, k and v. Here one makes all three."), 6),
        known("without_parameters", N_("2 counts q·kᵀ and weights·v alone. Two projections frame them."), 2),
        known(
            "output_forgotten", N_("One is missing: after the heads are joined comes W_O. Or the one for q, k, v."), 3
        ),
        known("no_product_for_softmax", N_("5 is one too many: softmax, scale and mask are no matrix products."), 5),
    ),
)


# ------------------------------------------------------------------ wide_output_projection

_C, _H, _DV = 48, 3, 20

WIDE_OUTPUT_PROJECTION = Exercise(
    id="wide_output_projection",
    notebook="05",
    kind="number",
    question=N_(
        "A model is C = 48 wide and has H = 3 heads whose values have D_v = 20 numbers each, so that H·D_v is not C. "
        "How many weights has its output projection W_O? (No bias.)"
    ),
    reference=_H * _DV * _C,
    why=N_(
        "The joined heads are 60 wide, and the residual addition needs 48: W_O is [48, 60]. Here the shape alone asks "
        "for it; where H·D_v = C it is there to mix the heads."
    ),
    hints=(
        N_("How wide are the three heads side by side?"),
        N_("How wide must the result be, so that it can be added to x?"),
    ),
    minutes=2,
    review=5,
    mistakes=(
        known("square_of_width", N_("48·48 takes H·D_v for C. The joined heads are 3·20 = 60 wide here."), _C * _C),
        known("one_head", N_("That projects one head, 20 wide. All three are joined first: 60."), _DV * _C),
        known("square_of_heads", N_("60·60 leaves the result 60 wide. It must be added to x, which is 48 wide."), 3600),
        known("bias_counted", N_("A bias is counted; this layer has none."), _H * _DV * _C + _C),
        known("width_alone", N_("That is a width, not the number of weights: [48, 60] has 48·60."), 60, 48),
    ),
)


# ------------------------------------------------------------------ more_heads_same_width, more_heads_same_size

MORE_HEADS_SAME_WIDTH = Exercise(
    id="more_heads_same_width",
    notebook="05",
    kind="number",
    question=N_(
        "Attention with C = 64 and H = 4 heads of D = C/H has W_Q, W_K, W_V and W_O, without biases. C stays 64 and H "
        "becomes 8. How many weights do the four matrices have then?"
    ),
    reference=4 * 64 * 64,
    why=N_(
        "With C held, D halves when H doubles: every matrix stays [64, 64]. Heads cut what is there; they add nothing."
    ),
    hints=(
        N_("How large is D now? And H·D?"),
        N_("Each of the four is [H·D, C] or [C, H·D]."),
    ),
    minutes=2,
    review=5,
    mistakes=(
        known(
            "doubled", N_("That is twice as many, as if D stayed 16. With C held, D goes from 16 to 8."), 8 * 64 * 64
        ),
        known("one_head_of_each", N_("That counts one head. There are 8 of them in each matrix."), 4 * 64 * 8),
        known("output_forgotten", N_("W_O is missing: four matrices, not three."), 3 * 64 * 64),
        known("one_matrix", N_("That is one matrix. There are four."), 64 * 64),
        known("biases_counted", N_("Biases are counted; these matrices have none."), 4 * (64 * 64 + 64)),
        known("nothing_added", N_("0 is how many are added. Asked for is how many there are."), 0),
    ),
)

MORE_HEADS_SAME_SIZE = Exercise(
    id="more_heads_same_size",
    notebook="05",
    kind="number",
    question=N_(
        "The same layer, C = 64 and H = 4 heads of D = 16, no biases. Now D is held at 16 and x stays 64 wide, and H "
        "becomes 8, so that H·D = 128. How many weights do W_Q, W_K, W_V and W_O have then?"
    ),
    reference=4 * 64 * 128,
    why=N_(
        "W_Q, W_K and W_V are [128, 64], W_O is [64, 128]: twice as many as before. “Heads cost nothing” holds only "
        "while H·D is held."
    ),
    hints=(
        N_("q, k and v are H·D wide each. What goes in is still 64 wide."),
        N_("W_O takes the joined heads, 128 wide, back to 64."),
    ),
    minutes=3,
    points=2,
    review=5,
    mistakes=(
        known("as_if_width_held", N_("That holds if H·D stays 64. With D held, H·D is 8·16 = 128."), 4 * 64 * 64),
        known(
            "model_widened_too",
            N_("[128, 128] widens the model too. x stays 64 wide; only the heads' side is 128."),
            4 * 128 * 128,
        ),
        known("output_forgotten", N_("W_O is missing: it takes 128 back to 64."), 3 * 64 * 128),
        known(
            "output_square",
            N_("W_O is counted as [64, 64]. What goes in are the joined heads, 128 wide."),
            3 * 64 * 128 + 64 * 64,
        ),
        known(
            "output_wide_square",
            N_("W_O is counted as [128, 128]. It ends in the residual stream, 64 wide."),
            3 * 64 * 128 + 128 * 128,
        ),
        known("biases_counted", N_("Biases are counted; these matrices have none."), 4 * 64 * 128 + 3 * 128 + 64),
    ),
)


# ------------------------------------------------------------------ why_w_o

WHY_W_O = Exercise(
    id="why_w_o",
    notebook="05",
    kind="choice",
    question=N_("H·D = C, so the joined heads have the right shape already. What would be lost without W_O?"),
    choices={
        "a": N_("nothing but the names of the heads' roles, which W_O assigns"),
        "b": N_("the sum to 1 of the attention weights"),
        "c": N_("the exchange between tokens"),
        "d": N_("head h could only write into its own D numbers of the token's vector, not into the others"),
    },
    reference="d",
    why=N_(
        "Joined heads lie in separate blocks. W_O mixes them, so each head can write anywhere in the residual stream."
    ),
    hints=(
        N_("Where in the joined vector do the numbers of head 0 lie?"),
        N_("W_O works on each token alone. What can it mix, then?"),
    ),
    minutes=2,
    review=5,
    mistakes=(
        known("roles_assigned", N_("Nobody assigns roles to heads, and no matrix does. They come from training."), "a"),
        known("weights_sum_before", N_("The softmax makes the weights sum to 1, long before W_O."), "b"),
        known("tokens_mixed_by_weights", N_("Tokens meet in weights·v. W_O works on each token alone."), "c"),
    ),
)


EXERCISES = (
    JOIN_AND_PROJECT,
    WIDE_OUTPUT_PROJECTION,
    WHY_W_O,
    MORE_HEADS_SAME_WIDTH,
    MORE_HEADS_SAME_SIZE,
    COUNT_PRODUCTS,
    MULTI_HEAD_ATTENTION,
)
