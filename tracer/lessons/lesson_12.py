"""Exercises of notebook 12: attention where d_k differs from d_v and S from T, the fused projection, the variance."""

from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases

__all__ = ["EXERCISES", "attend", "outside_the_values"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ attention


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Look up S keys with T queries: [B, T, D_k], [B, S, D_k] and [B, S, D_v] -> [B, T, D_v]."""
    scores: Tensor = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [B, T, S]
    weights = scores.softmax(dim=-1)  # [B, T, S]
    return weights @ v  # [B, T, D_v]


def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, dim: int = -1) -> Tensor:
    """Return attention with another scale, or with the softmax over another axis: the usual mistakes."""
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores.softmax(dim=dim) @ v


def outside_the_values(case: Case, got: Tensor) -> Numbers | None:
    """A weighted mean lies between the smallest and the largest value, feature by feature: v is the third argument."""
    v = case.args[2].double()
    low, high = v.amin(dim=-2, keepdim=True).expand_as(got), v.amax(dim=-2, keepdim=True).expand_as(got)
    wrong = ((got < low - 0.02 * (1 + low.abs())) | (got > high + 0.02 * (1 + high.abs()))).nonzero()
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    found = {"got": got[at], "low": low[at], "high": high[at]}
    return {"at": list(at)} | {name: f"{number.item():.4g}" for name, number in found.items()}


def _three_inputs(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B T S D_k D_v",
        lambda n, fill: (
            draw.normal(n["B"], n["T"], n["D_k"]),
            draw.normal(n["B"], n["S"], n["D_k"]),
            draw.normal(n["B"], n["S"], n["D_v"]),
        ),
        derive=lambda n: {"S": max(n["S"], 2), "D_k": max(n["D_k"], 2)},
    )


ATTENTION = Exercise(
    id="attention",
    notebook="12",
    kind="function",
    question=N_(
        "Write attention(q, k, v) for T queries q [B, T, D_k], S keys k [B, S, D_k] and their values v [B, S, D_v], "
        "without a mask and without heads. Return [B, T, D_v]."
    ),
    reference=attention,
    why=N_(
        "[T, D_k] @ [D_k, S] compares, the softmax over S makes shares, [T, S] @ [S, D_v] mixes. As many rows as "
        "queries, as many columns as a value has."
    ),
    hints=(
        N_("Two products with a softmax between them. Which axis does each product sum over?"),
        N_("The scores are [B, T, S]: k has to be transposed in its last two axes. Divide by the root of D_k."),
        N_("weights = (q @ k.transpose(-2, -1) / D_k ** 0.5).softmax(dim=-1), then weights @ v."),
    ),
    minutes=6,
    points=2,
    review=4,
    given=("B T D_k", "B S D_k", "B S D_v"),
    axes=("B T D_v",),
    inputs=_three_inputs,
    properties=(
        Property(
            id="a_weighted_mean_lies_between",
            says=N_(
                "At {at} your result is {got}, but the values that are mixed there lie between {low} and {high}. A "
                "weighted mean cannot leave that range."
            ),
            fails=outside_the_values,
        ),
    ),
    mistakes=(
        known(
            "scale_forgotten",
            N_("The scores are not divided by the root of D_k = {D_k}: the softmax is sharper than asked for."),
            lambda q, k, v: attend(q, k, v, scale=1.0),
        ),
        known(
            "scaled_by_the_width_of_v",
            N_(
                "The scores are divided by the root of D_v = {D_v}. A score is a sum of D_k = {D_k} products: v has no "
                "part in it."
            ),
            lambda q, k, v: attend(q, k, v, scale=v.shape[-1] ** -0.5),
        ),
        known(
            "root_forgotten",
            N_("The scores are divided by D_k = {D_k} itself. Their spread grows like the root of D_k."),
            lambda q, k, v: attend(q, k, v, scale=1 / q.shape[-1]),
        ),
        known(
            "scaled_up",
            N_("The scores are multiplied with the root of D_k = {D_k}. They are too spread out already: divide."),
            lambda q, k, v: attend(q, k, v, scale=q.shape[-1] ** 0.5),
        ),
        known(
            "scaled_by_a_length",
            N_("The scores are divided by the root of a length, T or S. A score is a sum over features: D_k = {D_k}."),
            lambda q, k, v: attend(q, k, v, scale=q.shape[-2] ** -0.5),
            lambda q, k, v: attend(q, k, v, scale=k.shape[-2] ** -0.5),
        ),
        known(
            "scaled_after_the_softmax",
            N_(
                "The division comes after the softmax: the shares then add up to less than 1. It belongs to the "
                "scores, before."
            ),
            lambda q, k, v: (q @ k.mT).softmax(dim=-1) / q.shape[-1] ** 0.5 @ v,
        ),
        known(
            "softmax_over_the_queries",
            N_(
                "The softmax runs over T, the queries, or over the batch: they compete for each key. Each query needs "
                "a distribution over the S = {S} keys: dim=-1. At {place} yours is {got}, and {want} is asked for."
            ),
            lambda q, k, v: attend(q, k, v, dim=-2),
            lambda q, k, v: attend(q, k, v, dim=0),
        ),
        known(
            "softmax_forgotten",
            N_(
                "There is no softmax: the scores themselves weigh the values. They may be negative and add up to "
                "anything."
            ),
            lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5 @ v,
        ),
        known(
            "keys_not_transposed",
            N_(
                "[T, D_k] @ [S, D_k] has no axis to sum over: transpose the last two axes of k, [D_k, S]. Where S and "
                "D_k happen to be equal, the same line runs and is wrong."
            ),
            lambda q, k, v: (q @ k / q.shape[-1] ** 0.5).softmax(dim=-1) @ v,
        ),
        known(
            "weights_returned",
            N_("These are the weights, {shape}. The result mixes the values with them: weights @ v, {wanted}."),
            lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1),
        ),
    ),
)

ATTENTION_OUTPUT_SHAPE = Exercise(
    id="attention_output_shape",
    notebook="12",
    kind="shape",
    question=N_(
        "q is [B, T, D_k], k is [B, S, D_k], v is [B, S, D_v]. What is the shape of softmax(q kᵀ / √D_k) v? Write D_k "
        "and D_v."
    ),
    reference="B T D_v",
    why=N_(
        "D_k is summed away in the scores and S in the mixing. T queries are left, each with D_v features of values."
    ),
    hints=(
        N_("First the shape of the weights. Then one more product."),
        N_("[T, S] @ [S, D_v]: which axis is summed away?"),
    ),
    minutes=2,
    review=4,
    mistakes=(
        known(
            "width_of_the_keys",
            N_("D_k has been summed away in the scores. What is mixed are values, and these have D_v features."),
            "B T D_k",
            "B T D",
        ),
        known(
            "as_many_rows_as_keys",
            N_("S has been summed away: each query's result is a sum over all keys. T rows are left."),
            "B S D_v",
            "B S D_k",
        ),
        known("shape_of_the_weights", N_("That is the shape of the weights. They still multiply v."), "B T S"),
        known(
            "heads_not_asked_for", N_("There are no heads in this question: q has three axes."), "B H T D_v", "B H T D"
        ),
    ),
)


# ------------------------------------------------------------------ split_fused


def split_fused(z: Tensor, D_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a fused projection into q, k and v: [B, N, 2D_k+D_v] -> [B, N, D_k], [B, N, D_k], [B, N, D_v]."""
    q, k, v = z.tensor_split([D_k, 2 * D_k], dim=-1)
    return q, k, v


def _fused_cases(draw: Draw) -> list[Case]:
    """D_v is the larger one: a third part that ends at 3 D_k is then too short."""
    return usual_cases(
        draw,
        "B T D_k D_v",
        lambda n, fill: (fill(n["B"], n["T"], 2 * n["D_k"] + n["D_v"]), n["D_k"]),
        derive=lambda n: {"D_k": min(n["D_k"], n["D_v"]), "D_v": max(n["D_k"], n["D_v"])},
    )


SPLIT_FUSED = Exercise(
    id="split_fused",
    notebook="12",
    kind="function",
    question=N_(
        "One matrix makes q, k and v at once: z = x @ [W_q W_k W_v] is [B, T, 2D_k+D_v]. Write split_fused(z, D_k), "
        "which gives back q, k and v in this order. D_v may differ from D_k."
    ),
    reference=split_fused,
    why=N_("The widths add up to 2 D_k + D_v: only where D_k = D_v are these three equal parts, and the width is 3 D."),
    hints=(
        N_("How wide is v? z holds D_k twice, and the rest."),
        N_("The cuts are at D_k and at 2·D_k; a chunk into three would make equal parts."),
        N_("z.split takes a list of widths, [D_k, D_k, the rest]; slices do as well, or tensor_split with the cuts."),
    ),
    minutes=4,
    review=1,
    given=("B T 2D_k+D_v", None),
    axes=("B T D_k", "B T D_k", "B T D_v"),
    inputs=_fused_cases,
    mistakes=(
        known(
            "three_equal_parts",
            N_(
                "z is cut into three equal parts, or into parts of D_k. q and k have D_k = {D_k} features, v has D_v = "
                "{D_v}: the cuts are at {D_k} and at 2·{D_k}."
            ),
            lambda z, D_k: z.chunk(3, dim=-1),
            lambda z, D_k: (z[..., :D_k], z[..., D_k : 2 * D_k], z[..., 2 * D_k : 3 * D_k]),
            lambda z, D_k: z.tensor_split(3, dim=-1),
        ),
        known(
            "values_first",
            N_("The order is another one. The matrices stand as [W_q W_k W_v], so q comes first and v last."),
            lambda z, D_k: (split_fused(z, D_k)[1], split_fused(z, D_k)[0], split_fused(z, D_k)[2]),
            lambda z, D_k: (split_fused(z, D_k)[2], split_fused(z, D_k)[1], split_fused(z, D_k)[0]),
            lambda z, D_k: (z[..., -2 * D_k : -D_k], z[..., -D_k:], z[..., : -2 * D_k]),
        ),
        known(
            "cut_along_the_tokens",
            N_(
                "z is cut along another axis than the last: some tokens then make q and others v. Every token makes "
                "all three."
            ),
            lambda z, D_k: z.tensor_split(3, dim=1),
            lambda z, D_k: z.tensor_split([D_k, 2 * D_k], dim=1),
            lambda z, D_k: z.chunk(3, dim=1),
        ),
        known(
            "features_taken_in_turn",
            N_(
                "Features are taken in turn, 0, 3, 6, ... The three matrices stand side by side, so the features of q "
                "are the first D_k = {D_k}, those of k the next."
            ),
            lambda z, D_k: (z[..., : 2 * D_k : 2], z[..., 1 : 2 * D_k : 2], z[..., 2 * D_k :]),
            lambda z, D_k: (z[..., 0::3], z[..., 1::3], z[..., 2::3]),
        ),
    ),
)


# ------------------------------------------------------------------ numbers

_D_K, _D_V = 24, 40

FUSED_WIDTH = Exercise(
    id="fused_width",
    notebook="12",
    kind="number",
    question=N_("d_k = 24 and d_v = 40, one head. How many columns has the fused matrix [W_q W_k W_v]?"),
    reference=2 * _D_K + _D_V,
    why=N_("q and k must fit each other, so both have d_k = 24 columns; v has its own d_v = 40: 2·24 + 40 = 88."),
    hints=(
        N_("How many columns has each of the three matrices?"),
        N_("q and k meet in a product: they are equally wide. v need not be."),
    ),
    minutes=1,
    review=1,
    mistakes=(
        known("three_times_d_k", N_("That is 3 d_k. The values have a width of their own, d_v."), 3 * _D_K),
        known("three_times_d_v", N_("That is 3 d_v. Queries and keys are d_k wide."), 3 * _D_V),
        known("one_of_q_and_k", N_("That is d_k + d_v. Queries and keys have a matrix each."), _D_K + _D_V),
        known(
            "values_counted_twice", N_("d_v is counted twice. It is q and k that have the same width."), _D_K + 2 * _D_V
        ),
    ),
)

SCORE_VARIANCE = Exercise(
    id="score_variance",
    notebook="12",
    kind="number",
    question=N_(
        "The components of q and k are independent, with mean 0 and variance 1; d = 64. What is the variance of q · k?"
    ),
    reference=64,
    tolerance=0.5,
    why=N_(
        "A product of two such components has variance 1, and variances of independent terms add up: d = 64 exactly. "
        "Dividing by √64 = 8 brings it to 1. A layer with its own weights need not behave like this."
    ),
    hints=(
        N_("q · k is a sum of 64 products. What are the mean and the variance of one of them?"),
        N_("Variances of independent terms add up."),
    ),
    minutes=2,
    review=3,
    mistakes=(
        known("standard_deviation", N_("That is the standard deviation, √64. The variance is its square."), 8),
        known("after_the_scaling", N_("That is the variance after the division by √d. Asked for is q · k itself."), 1),
        known("mean", N_("That is the mean: positive and negative products cancel. They still spread."), 0),
        known("squared", N_("That is d². A sum of d terms of variance 1 has variance d."), 64 * 64),
        known("terms_of_two", N_("Each product has variance 1·1, not 1 + 1."), 128),
    ),
)


EXERCISES = (FUSED_WIDTH, SPLIT_FUSED, SCORE_VARIANCE, ATTENTION, ATTENTION_OUTPUT_SHAPE)
