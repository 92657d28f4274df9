"""Exercises of notebook 07: layer norm by hand, the block with the norm before or after, and the final norm."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, show, usual_cases
from .quote import rows

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ layer_norm


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Bring each token to mean 0 and variance 1, then stretch and shift its features: [B, T, C] -> [B, T, C]."""
    mean = x.mean(dim=-1, keepdim=True)  # [B, T, 1]
    variance = x.var(dim=-1, keepdim=True, correction=0)  # [B, T, 1]
    return (x - mean) / (variance + 1e-5).sqrt() * gain + shift


def _standard(x: Tensor, dim: int | tuple[int, ...], correction: int = 0, eps: float = 1e-5) -> Tensor:
    mean, variance = x.mean(dim=dim, keepdim=True), x.var(dim=dim, keepdim=True, correction=correction)
    return (x - mean) / (variance + eps).sqrt()


def _norm_cases(draw: Draw) -> list[Case]:
    cases = usual_cases(
        draw,
        "B T C",
        lambda n, fill: (fill(n["B"], n["T"], n["C"]), draw.normal(n["C"]), draw.normal(n["C"])),
        derive=lambda n: {"T": max(n["T"], 2), "C": max(n["C"], 2)},
    )
    for case in cases:
        case.args[0][0, 0] = 0.005 * draw.normal(case.sizes["C"])  # a variance near the 1e-5 that are added
        case.args[0][0, -1] = 2.0  # a token whose features are all equal: its variance is 0
    return cases


def _token_not_standard(case: Case, got: Tensor) -> Numbers | None:
    """A token that varies has mean 0 and variance 1 before gain and shift; where gain is tiny nothing can be said."""
    x, gain, shift = (arg.double() for arg in case.args)
    if gain.abs().min() < 0.05:
        return None
    plain = (got - shift) / gain
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            spread = plain[b, t].var(correction=0).item()
            if x[b, t].var() > 0.1 and (abs(plain[b, t].mean().item()) > 0.01 or abs(spread - 1) > 0.02):
                return {"b": b, "t": t, "mean": f"{plain[b, t].mean().item():.3g}", "variance": f"{spread:.3g}"}
    return None


LAYER_NORM = Exercise(
    id="layer_norm",
    notebook="07",
    kind="function",
    question=N_(
        "Write layer_norm(x, gain, shift) by hand for x [B, T, C], gain [C] and shift [C]: every token gets mean 0 and "
        "variance 1 over its own C features (1e-5 is added to the variance), then gain multiplies and shift is added. "
        "The variance divides by C, not by C - 1."
    ),
    reference=layer_norm,
    why=N_(
        "Each token is standardised by itself, over C: no number crosses from one token to another. gain and shift are "
        "learned, C numbers each."
    ),
    hints=(
        N_("Which axis holds the features of one token? The mean and the variance run over that axis alone."),
        N_("keepdim=True keeps the axis as size 1, [B, T, 1], so that the result lines up with x."),
        N_("x.var(dim=-1, keepdim=True, correction=0) divides by C; the square root of it divides x - mean."),
    ),
    minutes=6,
    points=2,
    review=7,
    given=("B T C", "C", "C"),
    axes=("B T C",),
    inputs=_norm_cases,
    properties=(
        Property(
            id="a_token_has_mean_0_and_variance_1",
            says=N_(
                "Take shift away and divide by gain: token t={t} of sentence {b} has mean {mean} and variance "
                "{variance}. Every token whose features differ should have 0 and 1."
            ),
            fails=_token_not_standard,
        ),
    ),
    mistakes=(
        known(
            "normalised_over_tokens",
            N_(
                "The mean and the variance run over other tokens, so that a token's result depends on its neighbours: "
                "row {at} is {got}, and {want} is asked for. Layer norm runs over C, dim=-1, within one token."
            ),
            lambda x, gain, shift: _standard(x, 1) * gain + shift,
            lambda x, gain, shift: _standard(x, 0) * gain + shift,
            lambda x, gain, shift: _standard(x, (0, 1)) * gain + shift,
            numbers=rows,
        ),
        known(
            "normalised_over_everything",
            N_(
                "One mean and one variance serve many tokens together: row {at} is {got}, and {want} is asked for. "
                "Each of the {T} tokens has a mean and a variance of its own, [B, T, 1]."
            ),
            lambda x, gain, shift: _standard(x, (1, 2)) * gain + shift,
            lambda x, gain, shift: _standard(x, (0, 1, 2)) * gain + shift,
            numbers=rows,
        ),
        known(
            "variance_divided_by_c_minus_1",
            N_(
                "The variance divides by C - 1. That is the default of x.var and x.std, which estimate the spread of a "
                "sample. Layer norm divides by C: correction=0. At {place} that gives {want}, yours is {got}."
            ),
            lambda x, gain, shift: _standard(x, -1, 1) * gain + shift,
        ),
        known(
            "divided_by_the_variance",
            N_(
                "x - mean is divided by the variance itself. Divide by its square root: then the result has variance "
                "1. At {place} yours is {got}, and {want} is asked for."
            ),
            lambda x, gain, shift: (
                (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5) * gain + shift
            ),
        ),
        known(
            "mean_not_taken_away",
            N_(
                "The mean is still there: x is divided, and nothing is taken away before. Dividing by the root of the "
                "mean square without it is another norm, RMSNorm, which comes in notebook 15."
            ),
            lambda x, gain, shift: x / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * gain + shift,
            lambda x, gain, shift: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + shift,
        ),
        known(
            "eps_forgotten",
            N_(
                "A token whose features are all equal has variance 0, and 0 / 0 is NaN. The 1e-5 under the root is "
                "there for such a token: it comes out as shift alone."
            ),
            lambda x, gain, shift: _standard(x, -1, eps=0.0) * gain + shift,
        ),
        known(
            "eps_of_another_size",
            N_(
                "All is right but the number that keeps the root from 0: 1e-5 is added to the variance, under the "
                "root. With another number, or added after the root, tokens that hardly vary come out differently: at "
                "{place} yours is {got}, and {want} is asked for."
            ),
            *(
                lambda x, gain, shift, eps=eps: _standard(x, -1, eps=eps) * gain + shift
                for eps in (1e-3, 1e-6, 1e-8, 1e-12)
            ),
            lambda x, gain, shift: (
                (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + 1e-5) * gain + shift
            ),
        ),
        known(
            "gain_and_shift_forgotten",
            N_(
                "The token is standardised, and gain or shift is not applied. Both are learned: without them every "
                "feature is held at the same scale for good."
            ),
            lambda x, gain, shift: _standard(x, -1),
            lambda x, gain, shift: _standard(x, -1) * gain,
            lambda x, gain, shift: _standard(x, -1) + shift,
        ),
        known(
            "gain_and_shift_swapped",
            N_(
                "gain multiplies first, then shift is added: standardised * gain + shift. Yours applies them the other "
                "way round."
            ),
            lambda x, gain, shift: _standard(x, -1) * shift + gain,
            lambda x, gain, shift: (_standard(x, -1) + shift) * gain,
        ),
        known(
            "keepdim_forgotten",
            N_(
                "Two shapes do not line up. x.mean(-1) is [B, T], and beside [B, T, C] broadcasting sets its T against "
                "C. keepdim=True keeps it as [B, T, 1]. Where B, T and C happen to be equal, the same line runs and is "
                "wrong."
            ),
            lambda x, gain, shift: (
                (x - x.mean(-1)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * gain + shift
            ),
        ),
    ),
)


# ------------------------------------------------------------------ pre_ln_block, post_ln_block


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _mlp(x: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return (x @ w_1).relu() @ w_2


def pre_ln_block(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    """Normalise what a sublayer reads; the stream itself is only added to: [B, T, C] -> [B, T, C]."""
    norm = torch.nn.functional.layer_norm
    x = x + weights @ norm(x, x.shape[-1:])  # [T, T] @ [B, T, C] -> [B, T, C]
    return x + torch.relu(norm(x, x.shape[-1:]) @ w_1) @ w_2  # [B, T, C] -> [B, T, M] -> [B, T, C]


def post_ln_block(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    """Normalise the stream after each addition: [B, T, C] -> [B, T, C]."""
    norm = torch.nn.functional.layer_norm
    x = norm(x + weights @ x, x.shape[-1:])
    return norm(x + torch.relu(x @ w_1) @ w_2, x.shape[-1:])


def _stream_replaced(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = _norm(x)
    x = x + weights @ x
    x = _norm(x)
    return x + _mlp(x, w_1, w_2)


def _pre_parallel(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return x + weights @ _norm(x) + _mlp(_norm(x), w_1, w_2)


def _pre_one_norm(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = x + weights @ _norm(x)
    return x + _mlp(x, w_1, w_2)


def _pre_other_norm(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = x + weights @ x
    return x + _mlp(_norm(x), w_1, w_2)


def _post_one_norm(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = _norm(x + weights @ x)
    return x + _mlp(x, w_1, w_2)


def _post_other_norm(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = x + weights @ x
    return _norm(x + _mlp(x, w_1, w_2))


def _without_norms(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = x + weights @ x
    return x + _mlp(x, w_1, w_2)


def _pre_without_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return _mlp(_norm(weights @ _norm(x)), w_1, w_2)


def _pre_without_first_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = weights @ _norm(x)
    return x + _mlp(_norm(x), w_1, w_2)


def _pre_without_second_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return _mlp(_norm(x + weights @ _norm(x)), w_1, w_2)


def _post_without_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return _norm(_mlp(_norm(weights @ x), w_1, w_2))


def _post_without_first_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = _norm(weights @ x)
    return _norm(x + _mlp(x, w_1, w_2))


def _post_without_second_stream(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return _norm(_mlp(_norm(x + weights @ x), w_1, w_2))


def _post_norm_inside(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = x + _norm(weights @ x)
    return x + _norm(_mlp(x, w_1, w_2))


def _block_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: object) -> tuple[Tensor, ...]:
        weights = draw.normal(n["T"], n["T"]).softmax(dim=-1)
        x = 3 * draw.normal(n["B"], n["T"], n["C"]) + draw.normal(n["C"])
        return x, weights, draw.normal(n["C"], n["M"]), draw.normal(n["M"], n["C"])

    return usual_cases(draw, "B T C M", build, derive=lambda n: {"C": n["C"] if n["C"] > 2 else 9})


def _spread_of_a_token(case: Case, got: Tensor, want: Tensor) -> Numbers:
    return {"got": f"{got[0, 0].std(correction=0).item():.3g}", "want": f"{want[0, 0].std(correction=0).item():.3g}"}


def _token_of_result_not_standard(case: Case, got: Tensor) -> Numbers | None:
    for t in range(got.shape[1]):
        mean, spread = got[0, t].mean().item(), got[0, t].var(correction=0).item()
        if abs(mean) > 1e-3 or abs(spread - 1) > 0.05:
            return {"t": t, "mean": f"{mean:.3g}", "variance": f"{spread:.3g}", "row": show(got[0, t])}
    return None


_NO_NORMS = known(
    "norms_forgotten",
    N_("There is no norm at all. A block has two: one that belongs to the attention, one that belongs to the MLP."),
    _without_norms,
)

_NORM_INSIDE = known(
    "norm_after_the_sublayer_before_the_sum",
    N_(
        "What a sublayer gives is normalised, and then added. In pre-LN the norm stands before the sublayer, in "
        "post-LN it stands after the sum; here it is between the two."
    ),
    _post_norm_inside,
)

_NORM_REPLACES = known(
    "norm_replaces_the_stream",
    N_(
        "x = norm(x) replaces the stream itself, and what is added later is added to the normalised copy. In pre-LN "
        "only the sublayer reads the normalised copy: x + attention(norm(x)). In post-LN the norm comes after the sum."
    ),
    _stream_replaced,
)

PRE_LN_BLOCK = Exercise(
    id="pre_ln_block",
    notebook="07",
    kind="function",
    question=N_(
        "Write pre_ln_block(x, weights, w_1, w_2) in the order of GPT-2. The attention is held fixed: attention(z) = "
        "weights @ z with weights [T, T]. mlp(z) = relu(z @ w_1) @ w_2. norm(z) = F.layer_norm(z, (C,)), without gain "
        "and shift. x is [B, T, C]."
    ),
    reference=pre_ln_block,
    why=N_(
        "In pre-LN each sublayer reads a normalised copy, and the stream is only ever added to: from the input to the "
        "last block a path without any norm runs through."
    ),
    hints=(
        N_("Two lines, each of the form x = x + sublayer(...)."),
        N_("The norm stands inside the brackets of the sublayer, never around the sum."),
        N_("x = x + attention(norm(x)), then x = x + mlp(norm(x)), where the second line reads the x of the first."),
    ),
    minutes=6,
    points=2,
    review=7,
    given=("B T C", "T T", "C M", "M C"),
    axes=("B T C",),
    inputs=_block_cases,
    mistakes=(
        known(
            "post_ln_order",
            N_(
                "This is the order of the paper, post-LN: norm(x + sublayer(x)). Each token leaves your block with a "
                "spread of {got}; in pre-LN nobody normalises the stream, and it leaves with {want}."
            ),
            post_ln_block,
            numbers=_spread_of_a_token,
        ),
        known(
            "second_norm_forgotten",
            N_("The MLP reads x as it is. It has a norm of its own in front: mlp(norm(x))."),
            _pre_one_norm,
        ),
        known(
            "first_norm_forgotten",
            N_("The attention reads x as it is. It has a norm of its own in front: attention(norm(x))."),
            _pre_other_norm,
        ),
        known(
            "mlp_reads_the_old_x",
            N_(
                "Both sublayers read the same x, so the MLP does not see what the attention has added. Some models do "
                "that on purpose (parallel blocks); in GPT-2 the second line starts from the result of the first."
            ),
            _pre_parallel,
        ),
        known(
            "residual_forgotten",
            N_(
                "A sublayer's result takes the place of x instead of being added to it. Each line is x = x + ...: the "
                "stream goes on, the sublayer gives a correction."
            ),
            _pre_without_stream,
            _pre_without_first_stream,
            _pre_without_second_stream,
        ),
        known(
            "a_norm_at_the_end_of_the_block",
            N_(
                "The block is right up to a norm around its result. In a pre-LN model there is one such norm, after "
                "the LAST block; it is no part of a block."
            ),
            lambda x, weights, w_1, w_2: _norm(pre_ln_block(x, weights, w_1, w_2)),
        ),
        _NO_NORMS,
        _NORM_INSIDE,
        _NORM_REPLACES,
    ),
)

POST_LN_BLOCK = Exercise(
    id="post_ln_block",
    notebook="07",
    kind="function",
    question=N_(
        "The same parts in the order of the paper of 2017: write post_ln_block(x, weights, w_1, w_2). attention(z) = "
        "weights @ z, mlp(z) = relu(z @ w_1) @ w_2, norm(z) = F.layer_norm(z, (C,)); x is [B, T, C]."
    ),
    reference=post_ln_block,
    why=N_(
        "The same parts with the same parameters as in pre-LN; only the norm has moved behind the sum. What leaves a "
        "post-LN block has mean 0 and variance 1 for every token, so its model needs no final norm."
    ),
    hints=(
        N_("Again two lines, again with a sum in each. What does the norm enclose this time?"),
        N_("The sublayer reads x as it is. The norm is taken of the whole sum."),
        N_("x = norm(x + attention(x)), then x = norm(x + mlp(x))."),
    ),
    minutes=4,
    points=2,
    review=7,
    given=("B T C", "T T", "C M", "M C"),
    axes=("B T C",),
    inputs=_block_cases,
    properties=(
        Property(
            id="what_leaves_the_block_is_normalised",
            says=N_(
                "Token t={t} of sentence 0 leaves your block as {row}, with mean {mean} and variance {variance}. After "
                "the last norm of a post-LN block these are 0 and 1."
            ),
            fails=_token_of_result_not_standard,
        ),
    ),
    mistakes=(
        known(
            "pre_ln_order",
            N_(
                "This is the order of GPT-2, pre-LN: x + sublayer(norm(x)). Each token leaves your block with a spread "
                "of {got}; in post-LN the norm comes last, and it leaves with {want}."
            ),
            pre_ln_block,
            numbers=_spread_of_a_token,
        ),
        known(
            "second_norm_forgotten",
            N_("The sum with the MLP is not normalised. Both sums are: norm(x + mlp(x)) as well."),
            _post_one_norm,
        ),
        known(
            "first_norm_forgotten",
            N_("The sum with the attention is not normalised before the MLP reads it: norm(x + attention(x))."),
            _post_other_norm,
        ),
        known(
            "residual_forgotten",
            N_(
                "A norm is taken of a sublayer's result alone. It encloses the sum: norm(x + attention(x)), and "
                "norm(x + mlp(x)) with the new x."
            ),
            _post_without_stream,
            _post_without_first_stream,
            _post_without_second_stream,
        ),
        _NO_NORMS,
        _NORM_INSIDE,
        _NORM_REPLACES,
    ),
)


# ------------------------------------------------------------------ the final norm

FINAL_NORM_PARAMETERS = Exercise(
    id="final_norm_parameters",
    notebook="07",
    kind="number",
    question=N_(
        "Two models have the same 12 blocks of width C = 768; one is built post-LN as in the paper, the other pre-LN "
        "as in GPT-2. Each norm has a gain and a shift. How many parameters has the pre-LN model more?"
    ),
    reference=2 * 768,
    why=N_(
        "The blocks have the same parameters. The pre-LN model adds one norm after its last block: a gain and a shift, "
        "2C = 1536 numbers."
    ),
    hints=(
        N_("Count the norms of one block, written both ways. Now look at what follows the last block."),
        N_("A norm has a gain and a shift for each of the C features."),
    ),
    minutes=2,
    review=7,
    mistakes=(
        known(
            "blocks_alone_compared",
            N_(
                "The blocks do have equally many. The models do not: behind the last pre-LN block the stream has not "
                "been normalised, and a norm stands there."
            ),
            0,
        ),
        known("gain_alone", N_("That is the gain alone. A layer norm also has a shift for each feature."), 768),
        known(
            "one_more_in_each_block",
            N_("That is one norm more in each of the 12 blocks. It is one for the whole model."),
            12 * 2 * 768,
            12 * 768,
        ),
        known(
            "both_norms_of_a_block",
            N_("That is two norms. Both kinds of block have two; the pre-LN model has one more, after the last."),
            4 * 768,
        ),
    ),
)

WHY_A_FINAL_NORM = Exercise(
    id="why_a_final_norm",
    notebook="07",
    kind="choice",
    question=N_("Why does a pre-LN model have a norm between its last block and the head?"),
    choices={
        "a": N_(
            "The last block's sum is a stream to which every block has added, and nothing has brought it to scale."
        ),
        "b": N_("The softmax of the loss needs numbers between 0 and 1."),
        "c": N_("The residual additions have changed the width, which the norm brings back to C."),
        "d": N_("Without it the tokens would not have been mixed after the last MLP."),
    },
    reference="a",
    why=N_(
        "In pre-LN the norms stand in the branches. The stream grows from block to block, and only the final norm "
        "brings it to a known scale before the head reads it."
    ),
    hints=(
        N_("Follow the stream alone, past the branches. Does it ever go through a norm?"),
        N_("What a norm does: mean 0, variance 1, for each token by itself; the shape stays."),
    ),
    minutes=2,
    review=7,
    mistakes=(
        known(
            "softmax_takes_any_number",
            N_("A softmax takes any real numbers and makes shares of them; and a norm gives numbers beyond 1 too."),
            "b",
        ),
        known(
            "additions_keep_the_width",
            N_("An addition keeps the shape, [B, T, C] throughout, and so does a norm."),
            "c",
        ),
        known("a_norm_mixes_no_tokens", N_("A norm works within one token. Tokens are mixed by attention alone."), "d"),
    ),
)


EXERCISES = (LAYER_NORM, PRE_LN_BLOCK, POST_LN_BLOCK, FINAL_NORM_PARAMETERS, WHY_A_FINAL_NORM)
