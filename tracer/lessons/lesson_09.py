"""Exercises of notebook 09: cross-attention, its lengths and its sources, and what GPT leaves out of the decoder."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ shapes

SOURCE_SCORES_SHAPE = Exercise(
    id="source_scores_shape",
    notebook="09",
    kind="shape",
    question=N_(
        "A decoder of T tokens looks at a source of S tokens through H heads: q is [B, H, T, D], k and v are "
        "[B, H, S, D]. What is the shape of the scores?"
    ),
    reference="B H T S",
    why=N_("One row for each query of the target, one column for each key of the source: [B, H, T, S], seldom square."),
    hints=(
        N_("Write the last two axes of q and of k transposed, one under the other."),
        N_("[T, D] times [D, S]: the inner pair is summed away."),
    ),
    minutes=2,
    review=9,
    mistakes=(
        known(
            "square_as_in_self_attention",
            N_(
                "That is self-attention, where queries and keys are the same tokens. Here the keys are the S of the "
                "source."
            ),
            "B H T T",
            "B H S S",
        ),
        known(
            "keys_in_the_rows",
            N_("Rows and columns have changed places. q comes first in the product, so the queries, T, are the rows."),
            "B H S T",
        ),
        known("heads_forgotten", N_("Each head has a table of its own: the axis H is missing."), "B T S", "B S T"),
        known(
            "one_sequence_of_both",
            N_("Two axes are merged or added. Target and source are two sequences, and each keeps an axis."),
            "B H (T S)",
            "B H T S D",
        ),
        known(
            "still_features",
            N_("D is summed away in the product: a score is one number for a query and a key."),
            "B H T D",
            "B H S D",
        ),
    ),
)

CROSS_OUTPUT_SHAPE = Exercise(
    id="cross_output_shape",
    notebook="09",
    kind="shape",
    question=N_(
        "And what does the whole cross-attention layer return to the decoder, whose stream is [B, T, C], after heads "
        "are merged and projected? The source has S tokens."
    ),
    reference="B T C",
    why=N_(
        "There are as many outputs as queries. S is summed away in weights @ v, so the result can be added to [B, T, "
        "C]."
    ),
    hints=(
        N_("weights are [B, H, T, S], v is [B, H, S, D]. Which axis does that product sum over?"),
        N_("The result is added to the stream of the decoder. Which shape must it have for that?"),
    ),
    minutes=2,
    review=9,
    mistakes=(
        known(
            "as_long_as_the_source",
            N_("S is gone: weights @ v sums over the keys. There is one output for each query, and these are T."),
            "B S C",
        ),
        known("heads_not_merged", N_("The heads are merged and projected by then: H and D are C again."), "B H T D"),
        known(
            "shape_of_the_weights", N_("That is the table of weights. It has been used up in weights @ v."), "B H T S"
        ),
        known(
            "both_lengths",
            N_("T and S do not stand beside each other at the end: the source has been summed up, query by query."),
            "B T S C",
            "B T S",
        ),
    ),
)


# ------------------------------------------------------------------ cross_attention


def cross_attention(x: Tensor, source: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """One head, queries of x and keys and values of the source: [B, T, C] and [B, S, C] -> [B, T, D]."""
    q, k, v = x @ w_q, source @ w_k, source @ w_v  # [B, T, D], [B, S, D], [B, S, D]
    scores: Tensor = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [B, T, S]
    return scores.softmax(dim=-1) @ v  # [B, T, D]


def _attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, dim: int = -1, mask: Any = None) -> Tensor:
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=dim) @ v


def _causal(x: Tensor, source: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    mask = torch.ones(x.shape[1], source.shape[1], dtype=torch.bool).tril()
    return _attend(x @ w_q, source @ w_k, source @ w_v, mask=mask)


def _cross_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: object) -> tuple[Tensor, ...]:
        x, source = draw.normal(n["B"], n["T"], n["C"]), draw.normal(n["B"], n["S"], n["C"])
        return x, source, *(draw.normal(n["C"], n["D"]) for _w in range(3))

    return usual_cases(draw, "B T S C D", build)


def _outside_the_values(case: Case, got: Tensor) -> Numbers | None:
    """A weighted mean lies between the smallest and the largest value of the source, feature by feature."""
    _x, source, _q, _k, w_v = (arg.double() for arg in case.args)
    v = source @ w_v
    low, high = v.amin(dim=1, keepdim=True), v.amax(dim=1, keepdim=True)
    wrong = ((got < low - 0.02 * (1 + low.abs())) | (got > high + 0.02 * (1 + high.abs()))).nonzero()
    if not len(wrong):
        return None
    b, t, d = wrong[0].tolist()
    found = {"got": got[b, t, d], "low": low[b, 0, d], "high": high[b, 0, d]}
    return {"b": b, "t": t, "d": d} | {name: f"{number.item():.4g}" for name, number in found.items()}


CROSS_ATTENTION = Exercise(
    id="cross_attention",
    notebook="09",
    kind="function",
    question=N_(
        "Write cross_attention(x, source, w_q, w_k, w_v), one head without a mask: x [B, T, C] is the decoder's "
        "stream, source [B, S, C] what the encoder made, the three matrices are [C, D]. Return [B, T, D]."
    ),
    reference=cross_attention,
    why=N_(
        "The decoder asks, the source answers: q of x, k and v of the source. The result has one row for each query, "
        "however long the source is."
    ),
    hints=(
        N_("Who is looking for something, and who is looked at?"),
        N_("q = x @ w_q. Keys and values describe the same S tokens, so both come from the source."),
        N_("Scores [B, T, S], divided by the root of D, softmax over S, times v [B, S, D]."),
    ),
    minutes=6,
    points=2,
    review=9,
    given=("B T C", "B S C", "C D", "C D", "C D"),
    axes=("B T D",),
    inputs=_cross_cases,
    properties=(
        Property(
            id="a_weighted_mean_lies_between",
            says=N_(
                "In sentence {b}, feature {d} of row t={t} is {got}, but over the source the values of that feature "
                "lie between {low} and {high}. A weighted mean cannot leave that range."
            ),
            fails=_outside_the_values,
        ),
    ),
    mistakes=(
        known(
            "queries_from_the_source",
            N_(
                "The roles are exchanged: the source asks and the decoder answers, so the result is {shape}, one row "
                "for each source token. Queries come from x: {wanted}."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(source @ w_q, x @ w_k, x @ w_v),
        ),
        known(
            "self_attention",
            N_(
                "The source is not used: q, k and v all come from x. That is self-attention. k and v come from the "
                "source."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, x @ w_k, x @ w_v),
        ),
        known(
            "all_from_the_source",
            N_(
                "q, k and v all come from the source: the encoder's self-attention once more, {shape}. The queries are "
                "those of the decoder, x: {wanted}."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(source @ w_q, source @ w_k, source @ w_v),
        ),
        known(
            "keys_and_values_from_different_tokens",
            N_(
                "Keys and values come from different sequences, of S and of T tokens, and a weight for one cannot be "
                "used on the other. A key and its value describe the same token: both come from the source."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, x @ w_v),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, x @ w_k, source @ w_v),
        ),
        known(
            "keys_not_transposed",
            N_(
                "[T, D] @ [S, D] has no axis to sum over: transpose the last two axes of k, [D, S]. Where S and D "
                "happen to be equal, the same line runs and is wrong."
            ),
            lambda x, source, w_q, w_k, w_v: (
                ((x @ w_q) @ (source @ w_k) / w_q.shape[1] ** 0.5).softmax(dim=-1) @ (source @ w_v)
            ),
        ),
        known(
            "softmax_over_the_queries",
            N_(
                "The softmax runs over T, the queries: they compete for each source token. Each query needs a "
                "distribution over the S tokens it may look at: dim=-1. At {place} yours is {got}, and {want} is asked "
                "for."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, dim=-2),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, dim=0),
        ),
        known(
            "causal_mask_on_the_source",
            N_(
                "A causal mask lies over the source: query 0 sees only the first source token. The source is there "
                "from the beginning, and every query may see all of it."
            ),
            _causal,
        ),
        known(
            "scale_forgotten",
            N_("The scores are not divided by the root of D = {D}: the softmax is sharper than asked for."),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, scale=1.0),
        ),
        known(
            "scaled_by_something_else",
            N_(
                "The scores are divided, but not by the root of D = {D}. The sum in a score has D terms, whatever the "
                "width C and the lengths are; and it is the root that divides."
            ),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, scale=x.shape[-1] ** -0.5),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, scale=1 / w_q.shape[1]),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_v, scale=w_q.shape[1] ** 0.5),
            lambda x, source, w_q, w_k, w_v: _attend(
                x @ w_q, source @ w_k, source @ w_v, scale=source.shape[1] ** -0.5
            ),
        ),
        known(
            "softmax_forgotten",
            N_(
                "There is no softmax: the scores themselves weigh the values. They may be negative and add up to "
                "anything."
            ),
            lambda x, source, w_q, w_k, w_v: (x @ w_q) @ (source @ w_k).mT / w_q.shape[1] ** 0.5 @ (source @ w_v),
        ),
        known(
            "keys_mixed_instead_of_values",
            N_("The weights mix the keys. Keys are compared with the query; what is handed on are the values."),
            lambda x, source, w_q, w_k, w_v: _attend(x @ w_q, source @ w_k, source @ w_k),
        ),
    ),
)


# ------------------------------------------------------------------ choices

CROSS_SOURCES = Exercise(
    id="cross_sources",
    notebook="09",
    kind="choice",
    question=N_("A model translates. In the decoder's cross-attention, where do q, k and v come from?"),
    choices={
        "a": N_("q, k and v from the encoder's output"),
        "b": N_("q from the encoder's output, k and v from the decoder's stream"),
        "c": N_("q from the decoder's stream, k and v from the encoder's output"),
        "d": N_("q and k from the decoder's stream, v from the encoder's output"),
    },
    reference="c",
    why=N_(
        "The sentence being written asks, and the sentence that was read answers: with keys to compare, values to hand "
        "on."
    ),
    hints=(
        N_("The decoder needs something that the encoder has. Who asks?"),
        N_("A key says how well a token fits, its value what it hands on. Both speak about the same token."),
    ),
    minutes=1,
    review=9,
    mistakes=(
        known(
            "that_is_the_encoder",
            N_("Then the decoder would have no say. That is the encoder's own self-attention."),
            "a",
        ),
        known(
            "roles_exchanged",
            N_("Then the source would ask, and there would be one output for each source token. The decoder asks."),
            "b",
        ),
        known(
            "key_and_value_of_one_token",
            N_(
                "A weight found on a decoder's key would pick a value of another sequence. Keys and values go together."
            ),
            "d",
        ),
    ),
)

GPT_LEAVES_OUT = Exercise(
    id="gpt_leaves_out",
    notebook="09",
    kind="choice",
    question=N_("The decoder block of 2017 has three sublayers. Which of them does a GPT block not have?"),
    choices={
        "a": N_("masked self-attention"),
        "b": N_("cross-attention"),
        "c": N_("the MLP (feed-forward network)"),
        "d": N_("none: GPT has all three"),
    },
    reference="b",
    why=N_(
        "Prompt and continuation are one stream, so there is no second sequence to look at. The other changes (pre-LN, "
        "a final norm, learned positions, GELU) are not sublayers."
    ),
    hints=(
        N_("Which sublayer reads something other than the stream itself?"),
        N_("GPT has no encoder. What would be left without an input?"),
    ),
    minutes=1,
    review=9,
    mistakes=(
        known(
            "the_mask_makes_it_a_decoder",
            N_("Masked self-attention is what makes GPT able to predict the next token; it is there in each block."),
            "a",
        ),
        known(
            "the_mlp_is_there", N_("The MLP is there in each block, and holds about two thirds of its weights."), "c"
        ),
        known("there_is_no_source", N_("One of the three reads the output of an encoder. GPT has no encoder."), "d"),
    ),
)


EXERCISES = (SOURCE_SCORES_SHAPE, CROSS_OUTPUT_SHAPE, CROSS_ATTENTION, CROSS_SOURCES, GPT_LEAVES_OUT)
