"""Exercises of notebook 04: weights mix values; what one head gives back; what a weight does not tell."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ summed_axis

SUMMED_AXIS = Exercise(
    id="summed_axis",
    notebook="04",
    kind="choice",
    question=N_(
        "out = weights @ v with weights [B, H, T, S] and v [B, H, S, D]. Over which axis does the product sum?"
    ),
    choices={
        "a": N_("T, the queries"),
        "b": N_("S, the keys, each with its value"),
        "c": N_("D, the features"),
        "d": N_("H, the heads"),
    },
    reference="b",
    why=N_("[T, S] [S, D]: the inner pair is S. Each query adds up all S values, each times its weight."),
    hints=(
        N_("Write the last two axes of both sides side by side: [T, S] [S, D]."),
        N_("Which letter is not in the result, [B, H, T, D]?"),
    ),
    minutes=1,
    review=4,
    mistakes=(
        known("queries_stay", N_("T is in the result: there is one row for each query."), "a"),
        known("features_stay", N_("D is in the result. D was summed over before, in q kᵀ."), "c"),
        known("heads_stay", N_("H is in the result: heads do not meet before the output projection."), "d"),
    ),
)


# ------------------------------------------------------------------ mix_values


def mix_values(weights: Tensor, v: Tensor) -> Tensor:
    """Return each query's weighted sum of the values: [B, H, T, S], [B, H, S, D] -> [B, H, T, D]."""
    return weights @ v  # [T, S] @ [S, D] -> [T, D]


def _mix_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        weights = draw.normal(n["B"], n["H"], n["T"], n["S"]).softmax(-1)
        return weights, fill(n["B"], n["H"], n["S"], n["D"])

    return usual_cases(draw, "B H T S D", build, first=draw.digits)


def _out_of_range(case: Case, got: Tensor) -> Numbers | None:
    """A sum with weights that are shares lies between the smallest and the largest value."""
    low, high = case.args[1].amin(2, keepdim=True).to(got), case.args[1].amax(2, keepdim=True).to(got)
    off = ((got < low - 0.02) | (got > high + 0.02)).nonzero()
    if not len(off):
        return None
    b, h, t, d = off[0].tolist()
    low, high = low[b, h, 0, d], high[b, h, 0, d]
    return {"t": t, "d": d, "mine": f"{got[b, h, t, d]:.4g}", "low": f"{low:.4g}", "high": f"{high:.4g}"}


MIX_VALUES = Exercise(
    id="mix_values",
    notebook="04",
    kind="function",
    question=N_(
        "Write mix_values(weights, v): weights is [B, H, T, S], v is [B, H, S, D]. For each query return the sum of "
        "all values, each times the query's weight for its key: [B, H, T, D]."
    ),
    reference=mix_values,
    why=N_("Row t of the weights times column d of v: every output is a weighted sum of values, and of nothing else."),
    hints=(
        N_("For one query: out[t] = weights[t, 0]·v[0] + weights[t, 1]·v[1] + …"),
        N_("A matrix product does all of these sums at once. Which axes must meet?"),
        N_("S stands last in weights and last but one in v already: nothing has to be turned."),
    ),
    minutes=4,
    points=2,
    review=4,
    given=("B H T S", "B H S D"),
    axes=("B H T D",),
    inputs=_mix_cases,
    properties=(
        Property(
            id="a_mixture_lies_between_its_parts",
            says=N_(
                "Query {t} gets {mine} as feature {d}. Shares that sum to 1 cannot leave the range of the values, "
                "{low} to {high}."
            ),
            fails=_out_of_range,
        ),
    ),
    mistakes=(
        known(
            "values_transposed",
            N_(
                "v is turned, [B, H, D, S], as k was for the scores. Here the keys' axis S must meet the weights' S, "
                "and it stands right already: weights @ v."
            ),
            lambda weights, v: weights @ v.mT,
        ),
        known(
            "weights_transposed",
            N_(
                "The weights are turned, [B, H, S, T]: each key would collect from the queries. Where T and S are "
                "equal nothing is raised. Rows are queries: weights @ v."
            ),
            lambda weights, v: weights.mT @ v,
        ),
        known(
            "not_summed",
            N_(
                "The weights meet the values one by one, without a sum. An output is a sum over the keys: a product, @."
            ),
            lambda weights, v: weights * v,
        ),
        known(
            "products_not_summed",
            N_("These are the weighted values one by one, {shape}: the sum over the keys, S, is still to be taken."),
            lambda weights, v: weights.unsqueeze(-1) * v.unsqueeze(2),
        ),
        known(
            "values_averaged",
            N_("This is the plain mean of the values, the same for every query. The weights play no part in it."),
            lambda weights, v: v.mean(2, keepdim=True).expand(-1, -1, weights.shape[2], -1),
        ),
        known(
            "best_value_alone",
            N_("This takes the value with the largest weight alone. Every value enters, each with its share."),
            lambda weights, v: v.gather(2, weights.argmax(-1, keepdim=True).expand(*weights.shape[:3], v.shape[-1])),
        ),
        known(
            "softmax_twice",
            N_(
                "A second softmax is taken. The weights are shares already; another softmax brings them nearer to "
                "equal."
            ),
            lambda weights, v: weights.softmax(-1) @ v,
        ),
        known(
            "divided_by_keys",
            N_("The sum is divided by S = {S}. The weights sum to 1 already, so this is an average as it stands."),
            lambda weights, v: weights @ v / v.shape[2],
        ),
        known(
            "heads_mixed",
            N_("The heads are added up: each head has values of its own, and gives back a result of its own."),
            lambda weights, v: torch.einsum("bhts,bgsd->bhtd", weights, v),
            lambda weights, v: torch.einsum("bhts,bhsd->btd", weights, v),
        ),
    ),
)


# ------------------------------------------------------------------ one_head_output


def one_head_output(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √D) v of each head: [B, H, T, D], [B, H, S, D], [B, H, S, D] -> [B, H, T, D]."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [B, H, T, S]
    weights: Tensor = scores.softmax(dim=-1)
    return weights @ v  # [T, S] @ [S, D] -> [T, D]


def _qkv_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        q, keys = (n["B"], n["H"], n["T"], n["D"]), (n["B"], n["H"], n["S"], n["D"])
        return fill(*q), fill(*keys), fill(*keys)

    return usual_cases(draw, "B H T S D", build, first=draw.digits)


def _attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, dim: int = -1) -> Any:
    return (q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(dim) @ v


def _row_zero(case: Case, got: Any, want: Any) -> Numbers:
    return {"row": show(got[0, 0, 0]), "right": show(want[0, 0, 0])}


ONE_HEAD_OUTPUT = Exercise(
    id="one_head_output",
    notebook="04",
    kind="function",
    question=N_(
        "Write one_head_output(q, k, v): scaled dot-product attention without a mask, softmax(q kᵀ / √D) v, in each "
        "head. q is [B, H, T, D], k and v are [B, H, S, D], the result is [B, H, T, D]."
    ),
    reference=one_head_output,
    why=N_("q and k decide how much, v decides what: keys make weights and are gone, only values are in the result."),
    hints=(
        N_("Four steps: compare, scale, share out, mix."),
        N_("Compare is q @ kᵀ, scale is 1/√D, share out is a softmax over the keys, mix is @ v."),
        N_("Print the shape after each step: [B, H, T, S] three times, then [B, H, T, D]."),
    ),
    minutes=6,
    points=3,
    review=4,
    given=("B H T D", "B H S D", "B H S D"),
    axes=("B H T D",),
    inputs=_qkv_cases,
    properties=(
        Property(
            id="a_mixture_lies_between_its_parts",
            says=N_(
                "Query {t} gets {mine} as feature {d}. Shares that sum to 1 cannot leave the range of the values, "
                "{low} to {high}."
            ),
            fails=lambda case, got: _out_of_range(Case(case.args[1:], case.sizes), got),
        ),
    ),
    mistakes=(
        known(
            "keys_mixed",
            N_(
                "Here the keys are mixed: query 0 gets {row}. Keys only decide the weights; mix v, which gives {right}."
            ),
            lambda q, k, v: _attend(q, k, k),
            numbers=_row_zero,
        ),
        known(
            "values_compared",
            N_("Here q is compared with v, and v is mixed: k plays no part. Scores are q kᵀ."),
            lambda q, k, v: _attend(q, v, v),
        ),
        known(
            "keys_and_values_swapped",
            N_("k and v have changed places: q meets the keys, the weights meet the values."),
            lambda q, k, v: _attend(q, v, k),
        ),
        known(
            "not_scaled",
            N_("The scale is missing: divide the scores by √D = √{D} before the softmax."),
            lambda q, k, v: _attend(q, k, v, scale=1),
        ),
        known(
            "scale_by_model_dim",
            N_("The scores are divided by √C = √{C}. A score adds up D = {D} products, so the scale is √D."),
            lambda q, k, v: _attend(q, k, v, scale=(q.shape[1] * q.shape[-1]) ** -0.5),
        ),
        known(
            "scale_by_d",
            N_("The scores are divided by D = {D}. The scale is its root."),
            lambda q, k, v: _attend(q, k, v, scale=1 / q.shape[-1]),
        ),
        known(
            "scaled_after_softmax",
            N_("The scale comes after the softmax: it makes every output √D times smaller and the weights no softer."),
            lambda q, k, v: _attend(q, k, v, scale=1) / q.shape[-1] ** 0.5,
        ),
        known(
            "softmax_wrong_dim",
            N_(
                "The softmax runs over another axis than the keys. The weights of one query, a row, must sum to 1: "
                "dim=-1."
            ),
            *(lambda q, k, v, dim=dim: _attend(q, k, v, dim=dim) for dim in (0, 1, 2)),
        ),
        known(
            "no_softmax",
            N_(
                "There is no softmax: the scores themselves mix the values, and they neither sum to 1 nor stay "
                "positive."
            ),
            lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5 @ v,
        ),
        known(
            "keys_reshaped",
            N_(
                "k is brought to [B, H, D, S] by reshape, which leaves its numbers in the old order. transpose swaps "
                "axes."
            ),
            lambda q, k, v: (q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / q.shape[-1] ** 0.5).softmax(-1) @ v,
        ),
        known(
            "keys_not_transposed",
            N_("k is not turned: its D = {D} must meet q's D. k.transpose(-2, -1) is [B, H, D, S]."),
            lambda q, k, v: (q @ k / q.shape[-1] ** 0.5).softmax(-1) @ v,
        ),
        known(
            "future_hidden",
            N_("A causal mask is applied. This head was asked for without one: every query sees every key."),
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
    ),
)


# ------------------------------------------------------------------ worked_output

WORKED_OUTPUT = Exercise(
    id="worked_output",
    notebook="04",
    kind="number",
    question=N_(
        "The example of notebook 02 goes on: q = [1, 0], k1 = [1, 0], k2 = [0, 1], k3 = [1, 1], and the values are v1 "
        "= [1, 0], v2 = [0, 1], v3 = [1, 1]. With scale and softmax, what is the first number of the output? Two "
        "digits after the point are enough."
    ),
    reference=0.8022,
    tolerance=0.004,
    why=N_("The weights are 0.401, 0.198, 0.401; v1 and v3 have a 1 in front: 0.401 + 0.401 is about 0.80."),
    hints=(
        N_("The scores are 0.707, 0 and 0.707. What does the softmax make of them?"),
        N_("Weights: about 0.40, 0.20, 0.40. Add up weight times first feature of each value."),
    ),
    minutes=4,
    points=2,
    review=4,
    mistakes=(
        known("second_number", N_("0.60 is the second number: v2 and v3 have a 1 there."), 0.599),
        known("one_weight", N_("0.40 is a single weight. v1 and v3 both bring a 1: add their weights."), 0.401),
        known("not_scaled", N_("This comes of scores 1, 0, 1: they were not divided by √2."), 0.8446),
        known("scaled_by_d", N_("This comes of scores 0.5, 0, 0.5: they were divided by D, not by √D."), 0.7673),
        known(
            "values_averaged",
            N_("2/3 is the plain mean of the values. The weights are not equal: k2 gets less."),
            2 / 3,
        ),
        known("no_softmax", N_("1.41 is the sum with the scores themselves: the softmax is missing."), 2**0.5),
        known("weights_of_one_each", N_("2 gives v1 and v3 a weight of 1 each. Weights sum to 1 over all keys."), 2),
    ),
)


# ------------------------------------------------------------------ weight_or_contribution

WEIGHT_OR_CONTRIBUTION = Exercise(
    id="weight_or_contribution",
    notebook="04",
    kind="number",
    question=N_(
        "One feature: a query gives key 1 the weight 0.8 and key 2 the weight 0.2. Their values are v1 = 0.5 and v2 = "
        "10. Which share of the output comes from key 2? Two digits after the point are enough."
    ),
    reference=2 / 2.4,
    tolerance=0.004,
    why=N_(
        "0.8·0.5 = 0.4 and 0.2·10 = 2: the key with a fifth of the weight makes five sixths of the output. A weight "
        "says how much of a value is taken, not how large that value is, nor what later layers make of it."
    ),
    hints=(
        N_("Work out what each key brings: weight times value."),
        N_("0.4 and 2. Which share of their sum is the second?"),
    ),
    minutes=2,
    review=4,
    mistakes=(
        known("weight_as_share", N_("0.2 is key 2's weight. What it brings is weight times value: 0.2·10."), 0.2),
        known("other_key", N_("That is the share of key 1, or its weight."), 0.8, 0.4 / 2.4),
        known("contribution_itself", N_("2 is what key 2 brings. Asked for is its share of the whole output."), 2),
        known("whole_output", N_("2.4 is the whole output. Which share of it does key 2 bring?"), 2.4),
        known(
            "values_alone", N_("That compares the values alone, 10 of 10.5, as if the weights were equal."), 10 / 10.5
        ),
        known("a_ratio", N_("5 is how many times more key 2 brings than key 1. Its share is 5 of 6."), 5),
    ),
)


EXERCISES = (SUMMED_AXIS, MIX_VALUES, ONE_HEAD_OUTPUT, WORKED_OUTPUT, WEIGHT_OR_CONTRIBUTION)
