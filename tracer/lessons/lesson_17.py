"""Exercises of notebook 17: the seven checks of the assignment, with d_k other than d_v and S other than T.

Shapes of scaled dot-product attention; the axis of the softmax; scale, mask, softmax in this order; heads split and
merged; what happens when tokens change places; shapes of a residual addition; what an attention map shows.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases
from .quote import rows, sums

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ 1. attention_steps


def attention_steps(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scaled scores and weights, both [B, H, T, S], and the mixed values [B, H, T, D_v]."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [B, H, T, D_k] @ [B, H, D_k, S] -> [B, H, T, S]
    weights = scores.softmax(dim=-1)
    return scores, weights, weights @ v  # [B, H, T, S] @ [B, H, S, D_v] -> [B, H, T, D_v]


def _steps(q: Tensor, k: Tensor, v: Tensor, scale: float, dim: int = -1) -> tuple[Tensor, Tensor, Tensor]:
    scores = q @ k.mT * scale
    return scores, scores.softmax(dim=dim), scores.softmax(dim=dim) @ v


def _scaled_after(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores = q @ k.mT
    weights = (scores / q.shape[-1] ** 0.5).softmax(dim=-1)
    return scores, weights, weights @ v


def _another_order(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores, weights, out = attention_steps(q, k, v)
    return out, weights, scores


def _row_of_weights(case: Case, got: tuple[Tensor, ...]) -> Numbers | None:
    total = got[1].sum(dim=-1)
    wrong = ((total - 1).abs() > 0.02).nonzero()
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    return {"at": list(at), "sum": f"{total[at].item():.4g}"}


ATTENTION_STEPS = Exercise(
    id="attention_steps",
    notebook="17",
    kind="function",
    question=N_(
        "Check 1, shapes: write attention_steps(q, k, v) for q [B, H, T, D_k], k [B, H, S, D_k] and v [B, H, S, D_v]. "
        "Return three tensors: the scaled scores [B, H, T, S], the weights [B, H, T, S], the output [B, H, T, D_v]. "
        "No mask."
    ),
    reference=attention_steps,
    why=N_("T rows, because there are T queries; D_v columns, because values are mixed. D_k and S are summed away."),
    hints=(
        N_("Write the last two axes of each product: [T, D_k] @ [D_k, S], then [T, S] @ [S, D_v]."),
        N_("The scale belongs to the scores: divide them by the root of D_k before you return them."),
        N_("return scores, weights, weights @ v"),
    ),
    minutes=8,
    points=3,
    review=2,
    given=("B H T D_k", "B H S D_k", "B H S D_v"),
    axes=("B H T S", "B H T S", "B H T D_v"),
    inputs=lambda draw: usual_cases(
        draw,
        "B H T S D_k D_v",
        lambda n, fill: (
            draw.normal(n["B"], n["H"], n["T"], n["D_k"]),
            draw.normal(n["B"], n["H"], n["S"], n["D_k"]),
            draw.normal(n["B"], n["H"], n["S"], n["D_v"]),
        ),
        derive=lambda n: {"S": max(n["S"], 2), "D_k": max(n["D_k"], 2)},
    ),
    properties=(
        Property(
            id="each_query_adds_up_to_1",
            says=N_("The weights of row {at} add up to {sum}. For each query they add up to 1 over the S = {S} keys."),
            fails=_row_of_weights,
        ),
    ),
    mistakes=(
        known(
            "scale_forgotten",
            N_(
                "The scores are not divided by the root of D_k = {D_k}. At {place} yours is {got}, and {want} is asked "
                "for."
            ),
            lambda q, k, v: _steps(q, k, v, 1.0),
        ),
        known(
            "scores_returned_unscaled",
            N_(
                "Weights and output are right, the scores that come back are those before the scale. Divide first, by "
                "the root of D_k = {D_k}, and return what enters the softmax."
            ),
            _scaled_after,
        ),
        known(
            "scale_by_model_dim",
            N_(
                "The scores are divided by the root of H·D_k = {H}·{D_k}: √{H} times too small. A score of one head is "
                "a sum of D_k products. With one head you would not notice."
            ),
            lambda q, k, v: _steps(q, k, v, (q.shape[1] * q.shape[-1]) ** -0.5),
        ),
        known(
            "scaled_by_something_else",
            N_(
                "The scores are divided, but not by the root of D_k = {D_k}: by D_k itself, or by the root of another "
                "axis."
            ),
            lambda q, k, v: _steps(q, k, v, v.shape[-1] ** -0.5),
            lambda q, k, v: _steps(q, k, v, 1 / q.shape[-1]),
            lambda q, k, v: _steps(q, k, v, k.shape[-2] ** -0.5),
            lambda q, k, v: _steps(q, k, v, q.shape[-2] ** -0.5),
        ),
        known(
            "softmax_wrong_dim",
            N_(
                "The softmax runs over another axis than the keys. Each query needs a distribution over the S = {S} "
                "keys, the last axis of the scores: dim=-1."
            ),
            *(lambda q, k, v, dim=dim: _steps(q, k, v, q.shape[-1] ** -0.5, dim) for dim in (0, 1, 2)),
        ),
        known(
            "results_in_another_order",
            N_("The three come back in another order. Asked for are scores, weights, output: as they are made."),
            _another_order,
        ),
        known(
            "keys_not_transposed",
            N_(
                "[T, D_k] @ [S, D_k] has no axis to sum over: transpose the last two axes of k, [D_k, S]. Where S and "
                "D_k happen to be equal, the same line runs and is wrong."
            ),
            lambda q, k, v: (q @ k, q @ k, q @ k @ v),
        ),
    ),
)


# ------------------------------------------------------------------ 2. softmax_over_keys


def softmax_over_keys(scores: Tensor) -> Tensor:
    """Turn each query's scores into shares of the keys, by hand: [B, H, T, S] -> [B, H, T, S]."""
    e = (scores - scores.amax(dim=-1, keepdim=True)).exp()  # the largest is taken away, or exp overflows
    return e / e.sum(dim=-1, keepdim=True)  # [B, H, T, S] / [B, H, T, 1]


def _score_cases(draw: Draw) -> list[Case]:
    cases = usual_cases(
        draw,
        "B H T S",
        lambda n, fill: (3 * draw.normal(n["B"], n["H"], n["T"], n["S"]),),
        derive=lambda n: {"S": max(n["S"], 2)},
    )
    cases[-2].args[0][0, 0, 0] += 1000.0  # beyond what exp can hold
    return cases


SOFTMAX_OVER_KEYS = Exercise(
    id="softmax_over_keys",
    notebook="17",
    kind="function",
    question=N_(
        "Check 2, the axis: write softmax_over_keys(scores) for scores [B, H, T, S], so that each query has one "
        "distribution over the S keys. By hand (exp, sum, divide) or with torch; scores may be as large as 1000."
    ),
    reference=softmax_over_keys,
    why=N_(
        "The sum over the last axis is 1 for every sentence, head and query. Taking the largest score away first "
        "changes nothing in the shares, and keeps exp from overflowing."
    ),
    hints=(
        N_("For one query: which numbers have to add up to 1, and along which axis do they lie?"),
        N_("sum(dim=-1, keepdim=True) is [B, H, T, 1] and lines up with the rows."),
        N_("exp(1000) is inf in float32, and inf / inf is NaN. Take each row's largest score away before."),
    ),
    minutes=5,
    points=2,
    review=3,
    given=("B H T S",),
    axes=("B H T S",),
    tolerance=3e-4,  # near 1000 a float32 is known to 6e-5
    inputs=_score_cases,
    properties=(
        Property(
            id="each_query_adds_up_to_1",
            says=N_("The weights of row {at} add up to {sum}. For each query they add up to 1 over the S = {S} keys."),
            fails=lambda case, got: _row_of_weights(case, (got, got)),
        ),
    ),
    mistakes=(
        known(
            "softmax_wrong_dim",
            N_(
                "The softmax runs over another axis: rows such as {at} add up to {sum}. Over T the queries compete for "
                "each key, over H the heads do. Each query needs a distribution over its keys: dim=-1."
            ),
            *(lambda scores, dim=dim: scores.softmax(dim=dim) for dim in (0, 1, 2)),
            numbers=sums,
        ),
        known(
            "softmax_over_several_axes",
            N_("All T·S weights of a head, or more, add up to 1 together. Each query needs a distribution of its own."),
            lambda scores: scores.flatten(2).softmax(dim=-1).view_as(scores),
            lambda scores: scores.flatten(1).softmax(dim=-1).view_as(scores),
            lambda scores: scores.flatten().softmax(dim=-1).view_as(scores),
        ),
        known(
            "exp_overflows",
            N_(
                "Scores of 1000 give NaN: exp(1000) is inf, and inf / inf is no number. Take each row's largest score "
                "away first."
            ),
            lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True),
        ),
        known(
            "normalise_without_keepdim",
            N_(
                "The sum over the keys is [B, H, T], and beside [B, H, T, S] broadcasting sets its T against S. "
                "keepdim=True keeps it as [B, H, T, 1]. Where the sizes happen to be equal, the same line runs and "
                "divides columns."
            ),
            lambda scores: scores.exp() / scores.exp().sum(dim=-1),
        ),
        known(
            "not_normalised",
            N_("Nothing divides by the sum: row {at} adds up to {sum}."),
            lambda scores: scores.sigmoid(),
            lambda scores: (scores - scores.amax(dim=-1, keepdim=True)).exp(),
            lambda scores: scores.exp(),
            numbers=sums,
        ),
        known(
            "logarithm_of_the_weights",
            N_("These are the logarithms of the weights: log_softmax serves the loss. Weights lie between 0 and 1."),
            lambda scores: scores.log_softmax(dim=-1),
        ),
        known(
            "heaviest_key_alone",
            N_("Each query takes its best key alone, with weight 1. A softmax gives every key a share."),
            lambda scores: torch.zeros_like(scores).scatter(-1, scores.argmax(dim=-1, keepdim=True), 1.0),
        ),
    ),
)


# ------------------------------------------------------------------ 3. scale_then_mask


def scale_then_mask(scores: Tensor, keep: Tensor, D_k: int) -> Tensor:
    """Scale raw scores, hide what may not be seen, then softmax: [B, H, T, S], [T, S] -> [B, H, T, S]."""
    scores = scores / D_k**0.5
    return scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)


def _masked(scores: Tensor, keep: Tensor, D_k: int, fill: float = float("-inf"), scale: float | None = None) -> Tensor:
    scores = scores * (D_k**-0.5 if scale is None else scale)
    return scores.masked_fill(~keep, fill).softmax(dim=-1)


def _mask_cases(draw: Draw) -> list[Case]:
    """Raw scores with the spread that D_k features give; every query may see some keys, and not all."""

    def build(n: dict[str, int], fill: object) -> tuple[Tensor, Tensor, int]:
        keep = draw.normal(n["T"], n["S"]) > 0
        keep[:, 0], keep[0, -1], keep[-1, -1] = True, False, n["T"] > 1
        return draw.normal(n["B"], n["H"], n["T"], n["S"]) * n["D_k"] ** 0.5 - 1, keep, n["D_k"]

    return usual_cases(
        draw, "B H T S D_k", build, derive=lambda n: {"S": max(n["S"], 2), "D_k": n["D_k"] if n["D_k"] > 2 else 9}
    )


def _mask_not_kept(case: Case, got: Tensor) -> Numbers | None:
    keep = case.args[1]
    total = got.sum(dim=-1)
    wrong = ((total - 1).abs() > 0.02) | (got * ~keep).abs().amax(dim=-1).gt(1e-4)
    if not bool(wrong.any()):
        return None
    at = tuple(wrong.nonzero()[0].tolist())
    leak = (got * ~keep)[at].sum().item()
    return {"at": list(at), "sum": f"{total[at].item():.3g}", "leak": f"{leak:.3g}"}


def _leak(case: Case, got: Any, want: Any) -> Numbers:
    hidden = (got * ~case.args[1]).sum(dim=-1)
    at = tuple(int(n) for n in (hidden == hidden.max()).nonzero()[0])
    return {"at": list(at), "leak": f"{hidden.max().item():.2f}"}


SCALE_THEN_MASK = Exercise(
    id="scale_then_mask",
    notebook="17",
    kind="function",
    question=N_(
        "Check 3, the order: write scale_then_mask(scores, keep, D_k). scores [B, H, T, S] are the raw products q · k; "
        "keep [T, S] is True where a query may look. Scale by the root of D_k, mask, softmax; return the weights."
    ),
    reference=scale_then_mask,
    why=N_(
        "Both come before the softmax: then what is hidden has weight 0 and what is seen adds up to 1. With -inf the "
        "order of scale and mask does not matter; with a finite number it would be scaled too."
    ),
    hints=(
        N_("What must a score be, so that its exp is 0?"),
        N_("masked_fill fills where its mask is True. keep says where NOT to fill."),
        N_("masked_fill returns a new tensor; the old one is not changed."),
    ),
    minutes=6,
    points=3,
    review=3,
    given=("B H T S", "T S", None),
    axes=("B H T S",),
    inputs=_mask_cases,
    properties=(
        Property(
            id="what_is_seen_adds_up_to_1",
            says=N_(
                "Row {at}: the weights add up to {sum}, and what is hidden has {leak} of it. They add up to 1, and "
                "what is hidden has 0."
            ),
            fails=_mask_not_kept,
        ),
    ),
    mistakes=(
        known(
            "mask_after_softmax",
            N_(
                "The mask comes after the softmax. What is hidden is 0, but row {at} adds up to {sum}: the hidden keys "
                "have taken their share before. Mask the scores with -inf, then softmax."
            ),
            lambda scores, keep, D_k: (scores / D_k**0.5).softmax(dim=-1) * keep,
            numbers=sums,
        ),
        known(
            "mask_fill_not_minus_inf",
            N_(
                "Hidden scores are filled with a number near 0, and exp(0) = 1: in row {at} what is hidden gets {leak} "
                "of the weight. Fill with -inf (or with -1e9, a large negative number)."
            ),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, 1e-9),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, 0.0),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, -1.0),
            lambda scores, keep, D_k: (scores / D_k**0.5 * keep).softmax(dim=-1),
            numbers=_leak,
        ),
        known(
            "masked_fill_result_dropped",
            N_(
                "Nothing is hidden: your weights are those without a mask. masked_fill returns a NEW tensor: "
                "scores = scores.masked_fill(...)."
            ),
            lambda scores, keep, D_k: (scores / D_k**0.5).softmax(dim=-1),
        ),
        known(
            "mask_turned_round",
            N_(
                "The mask is turned round: what may be seen is filled. keep is True where a query MAY look, so fill "
                "where ~keep."
            ),
            lambda scores, keep, D_k: _masked(scores, ~keep, D_k),
        ),
        known(
            "mask_added_as_numbers",
            N_(
                "The mask is added as 0 and 1. That raises what may be seen a little and hides nothing: add 0 and -inf."
            ),
            lambda scores, keep, D_k: (scores / D_k**0.5 + keep.to(scores)).softmax(dim=-1),
            lambda scores, keep, D_k: (scores / D_k**0.5 - (~keep).to(scores)).softmax(dim=-1),
        ),
        known(
            "scale_forgotten",
            N_(
                "The scores are not scaled: divide by √D_k = √{D_k}. At {place} yours is {got}, and {want} is asked "
                "for."
            ),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=1.0),
        ),
        known(
            "scale_after_softmax",
            N_("The division comes after the softmax, so row {at} adds up to {sum}. It belongs to the scores, before."),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=1.0) / D_k**0.5,
            numbers=sums,
        ),
        known(
            "scaled_by_something_else",
            N_("The scores are scaled, but not divided by √D_k: by D_k itself, by √(H·D_k), or multiplied."),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=1 / D_k),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=D_k**0.5),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=(scores.shape[1] * D_k) ** -0.5),
            lambda scores, keep, D_k: _masked(scores, keep, D_k, scale=scores.shape[-1] ** -0.5),
        ),
        known(
            "softmax_wrong_dim",
            N_(
                "The softmax runs over another axis than the keys, the last one. A key that no query sees then gives "
                "NaN."
            ),
            *(
                lambda scores, keep, D_k, dim=dim: (
                    (scores / D_k**0.5).masked_fill(~keep, float("-inf")).softmax(dim=dim)
                )
                for dim in (0, 1, 2)
            ),
        ),
    ),
)


# ------------------------------------------------------------------ 4. multi_head


def multi_head(q: Tensor, k: Tensor, v: Tensor, H: int) -> Tensor:
    """Split, attend, merge: [B, T, (H D_k)], [B, S, (H D_k)], [B, S, (H D_v)] -> [B, T, (H D_v)]."""
    (B, T, _C), S = q.shape, k.shape[1]
    q = q.view(B, T, H, -1).transpose(1, 2)  # [B, T, (H D_k)] -> [B, T, H, D_k] -> [B, H, T, D_k]
    k = k.view(B, S, H, -1).transpose(1, 2)  # [B, H, S, D_k]
    v = v.view(B, S, H, -1).transpose(1, 2)  # [B, H, S, D_v]
    weights: Tensor = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)  # [B, H, T, S]
    return (weights @ v).transpose(1, 2).flatten(2)  # [B, H, T, D_v] -> [B, T, H, D_v] -> [B, T, (H D_v)]


def _split(x: Tensor, H: int) -> Tensor:
    return torch.unflatten(x, -1, (H, -1)).transpose(1, 2)


def _view(x: Tensor, H: int) -> Tensor:
    return x.reshape(x.shape[0], H, x.shape[1], -1)


def _in_turn(x: Tensor, H: int) -> Tensor:
    return torch.unflatten(x, -1, (-1, H)).permute(0, 3, 1, 2)


def _heads(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    return (q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(dim=-1) @ v


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


def _across_heads(q: Tensor, k: Tensor, v: Tensor, H: int) -> Tensor:
    q, k, v = (torch.unflatten(x, -1, (H, -1)) for x in (q, k, v))  # [B, T, H, D]: never transposed
    return _heads(q, k, v).flatten(2)


def _projected_cases(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B H T S D_k D_v",
        lambda n, fill: (
            draw.normal(n["B"], n["T"], n["H"] * n["D_k"]),
            draw.normal(n["B"], n["S"], n["H"] * n["D_k"]),
            draw.normal(n["B"], n["S"], n["H"] * n["D_v"]),
            n["H"],
        ),
        derive=lambda n: {"S": max(n["S"], 2), "D_k": max(n["D_k"], 2)},
    )


MULTI_HEAD = Exercise(
    id="multi_head",
    notebook="17",
    kind="function",
    question=N_(
        "Check 4, the heads: write multi_head(q, k, v, H) for q [B, T, H·D_k], k [B, S, H·D_k] and v [B, S, H·D_v], "
        "all projected already. Split each into H heads, attend (no mask), merge the heads again: [B, T, H·D_v]. W_O "
        "is not part of it."
    ),
    reference=multi_head,
    why=N_(
        "view cuts the last axis, transpose brings H before T; afterwards the same two in reverse. T and H never "
        "change their contents, only their places. D_k and D_v may differ, T and S too."
    ),
    hints=(
        N_("Print the shape after each step. q: [B, T, H·D_k] -> [B, T, H, D_k] -> [B, H, T, D_k]."),
        N_("v has a head size of its own: H·D_v divided by H, not D_k."),
        N_("The way back: transpose first, [B, T, H, D_v], then read H and D_v as one axis."),
    ),
    minutes=10,
    points=4,
    review=1,
    given=("B T (H D_k)", "B S (H D_k)", "B S (H D_v)", None),
    axes=("B T (H D_v)",),
    inputs=_projected_cases,
    mistakes=(
        known(
            "split_heads_view_only",
            N_(
                "The heads are split by view alone, straight to [B, H, T, D]: the shape is right, and tokens and "
                "features are mixed. Cut the last axis first, [B, T, H, D], then swap axes 1 and 2. Row {at} is {got}, "
                "and {want} is asked for."
            ),
            lambda q, k, v, H: _joined(_heads(_view(q, H), _view(k, H), _view(v, H))),
            lambda q, k, v, H: _heads(_view(q, H), _view(k, H), _view(v, H)).reshape(*q.shape[:2], -1),
            lambda q, k, v, H: _joined(_heads(_view(q, H), _split(k, H), _split(v, H))),
            lambda q, k, v, H: _joined(_heads(_split(q, H), _view(k, H), _split(v, H))),
            lambda q, k, v, H: _joined(_heads(_split(q, H), _split(k, H), _view(v, H))),
            numbers=rows,
        ),
        known(
            "merge_heads_no_transpose",
            N_(
                "The heads are merged without the transpose back: row {at} is {got}, which holds several tokens of one "
                "head. Bring H next to D_v first, [B, T, H, D_v]: {want} is asked for."
            ),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)).reshape(*q.shape[:2], -1),
            numbers=rows,
        ),
        known(
            "view_on_non_contiguous",
            N_(
                "transpose moved no number, it only changed the strides, and view refuses memory in that order. Write "
                ".contiguous() before .view, or use .reshape. Leaving the transpose out would silence the error and "
                "scramble the result."
            ),
            lambda q, k, v, H: (
                _heads(_split(q, H), _split(k, H), _split(v, H)).transpose(1, 2).view(*q.shape[:2], v.shape[-1])
            ),
        ),
        known(
            "heads_cut_in_turn",
            N_(
                "The width is cut as (D H): head 0 takes every H-th feature. H is the outer part: head 0 owns the "
                "first D features. Row {at} is {got}, and {want} is asked for."
            ),
            lambda q, k, v, H: _heads(_in_turn(q, H), _in_turn(k, H), _in_turn(v, H)).permute(0, 2, 3, 1).flatten(2),
            lambda q, k, v, H: _joined(_heads(_in_turn(q, H), _in_turn(k, H), _in_turn(v, H))),
            numbers=rows,
        ),
        known(
            "merged_in_turn",
            N_(
                "The heads are merged as (D_v H): one number of each head in turn. Head 0 should stand whole before "
                "head 1. Row {at} is {got}, and {want} is asked for."
            ),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)).permute(0, 2, 3, 1).flatten(2),
            numbers=rows,
        ),
        known(
            "heads_compared_with_heads",
            N_(
                "H was not brought before T, so the product compares the heads of one token with each other, [H, H], "
                "and tokens never meet. After the cut, swap axes 1 and 2."
            ),
            _across_heads,
        ),
        known(
            "one_wide_head",
            N_(
                "There is one head as wide as all: every score sums over H·D_k features. Each head compares its own "
                "D_k = {D_k}, and has weights of its own."
            ),
            lambda q, k, v, H: _heads(q, k, v),
            lambda q, k, v, H: _heads(q, k, v, (q.shape[-1] // H) ** -0.5),
        ),
        known(
            "scale_by_model_dim",
            N_(
                "The scores are divided by the root of the whole width H·D_k: √{H} times too small. A score of one "
                "head is a sum of D_k = {D_k} products."
            ),
            lambda q, k, v, H: _joined(_heads(_split(q, H), _split(k, H), _split(v, H), q.shape[-1] ** -0.5)),
        ),
        known(
            "scale_forgotten",
            N_("The scores are not divided by the root of D_k = {D_k}."),
            lambda q, k, v, H: _joined(_heads(_split(q, H), _split(k, H), _split(v, H), 1.0)),
        ),
        known(
            "heads_added_up",
            N_(
                "The heads are added up or averaged, {shape}. Merging loses nothing: they stand side by side, {wanted}."
            ),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)).sum(dim=1),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)).mean(dim=1),
        ),
        known(
            "heads_not_merged",
            N_("The heads are still an axis of their own, {shape}. Merged they are {wanted}."),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)),
            lambda q, k, v, H: _heads(_split(q, H), _split(k, H), _split(v, H)).transpose(1, 2),
        ),
    ),
)


# ------------------------------------------------------------------ 5. permutation_differences


def permutation_differences(x: Tensor, perm: Tensor) -> tuple[Tensor, Tensor]:
    """Compare attention of permuted tokens with permuted attention, without and with a causal mask: two numbers."""
    T, C = x.shape[1:]
    causal = torch.ones(T, T, dtype=torch.bool).tril()

    def attention(z: Tensor, keep: Tensor) -> Tensor:
        scores: Tensor = z @ z.transpose(-2, -1) / C**0.5
        return scores.masked_fill(~keep, float("-inf")).softmax(dim=-1) @ z

    free, masked = (
        (attention(x[:, perm], keep) - attention(x, keep)[:, perm]).abs().max()
        for keep in (torch.ones_like(causal), causal)
    )
    return free, masked


def _self(z: Tensor, causal: bool) -> Tensor:
    scores = z @ z.mT / math.sqrt(z.shape[-1])
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    return scores.softmax(dim=-1) @ z


def _pair(compare: Any) -> Any:
    """Return the experiment with another comparison: `compare(attend, x, perm)` gives two tensors."""

    def experiment(x: Tensor, perm: Tensor) -> tuple[Tensor, ...]:
        pairs = [compare(lambda z, causal=causal: _self(z, causal), x, perm) for causal in (False, True)]
        return tuple((one - other).abs().max() for one, other in pairs)

    return experiment


def _permuted_cases(draw: Draw) -> list[Case]:
    """Orders that are not their own inverse; the largest masked difference is negative, positive, and so on in turn."""
    signs = iter((-1, 1) * 3)

    def build(n: dict[str, int], fill: object) -> tuple[Tensor, Tensor]:
        perm, x, sign = draw.normal(n["T"]).argsort(), draw.normal(n["B"], n["T"], n["C"]), next(signs)
        if torch.equal(perm[perm], torch.arange(n["T"])):
            perm = torch.arange(n["T"]).roll(1)
        off = _self(x[:, perm], True) - _self(x, True)[:, perm]
        return (x if off.flatten()[off.abs().argmax()] * sign > 0 else -x), perm  # attention(-x) is -attention(x)

    return usual_cases(draw, "B T C", build, derive=lambda n: {"T": n["T"] if n["T"] > 2 else 9, "C": max(n["C"], 2)})


def _not_equivariant(case: Case, got: tuple[Tensor, Tensor]) -> Numbers | None:
    return None if got[0] < 1e-3 < got[1] else {"free": f"{got[0].item():.3g}", "causal": f"{got[1].item():.3g}"}


PERMUTATION_DIFFERENCES = Exercise(
    id="permutation_differences",
    notebook="17",
    kind="function",
    question=N_(
        "Check 5, positions: attention(x) = softmax(x xᵀ / √C) x, for x [B, T, C], with x itself as q, k and v. perm "
        "[T] is an order of the tokens: x[:, perm] are the same tokens in that order. Write permutation_differences(x, "
        "perm): the largest absolute difference between attention(x[:, perm]) and attention(x)[:, perm], first without "
        "a mask, then with a causal one. Return two numbers."
    ),
    reference=permutation_differences,
    why=N_(
        "Without a mask the difference is 0 up to rounding: the layer knows no order. The causal mask breaks that, as "
        "the set of tokens that one may see depends on its place. Word order still needs positions."
    ),
    hints=(
        N_("Write attention once, with the mask as a switch, and call it four times."),
        N_("Permute before it, permute after it, subtract; .abs().max() makes one number of it."),
        N_("Both mask and softmax belong inside: the mask lies over the places, whoever stands there."),
    ),
    minutes=8,
    points=3,
    review=8,
    given=("B T C", "T"),
    axes=("", ""),
    tolerance=1e-4,
    inputs=_permuted_cases,
    properties=(
        Property(
            id="equivariant_without_a_mask_alone",
            says=N_(
                "Without a mask you find a difference of {free}, with the causal one {causal}. The first is 0 up to "
                "rounding, the second is not."
            ),
            fails=_not_equivariant,
        ),
    ),
    mistakes=(
        known(
            "output_not_permuted",
            N_(
                "The output of the permuted tokens is compared with the output in the OLD order. Row t belongs to "
                "whoever stands at t: permute attention(x) as well, attention(x)[:, perm]."
            ),
            _pair(lambda attend, x, perm: (attend(x[:, perm]), attend(x))),
        ),
        known(
            "permuted_back_instead_of_forth",
            N_(
                "The two sides are permuted in opposite directions: one by perm, one by its inverse (perm.argsort(), "
                "or an assignment y[:, perm] = ...). Both sides use perm the same way."
            ),
            _pair(lambda attend, x, perm: (attend(x[:, perm]), attend(x)[:, perm.argsort()])),
            _pair(lambda attend, x, perm: (attend(x[:, perm.argsort()]), attend(x)[:, perm])),
        ),
        known(
            "mask_moves_along",
            N_(
                "The causal mask is permuted along with the tokens, or lies over the old places: then nothing is "
                "broken, and the second number is 0 too. The mask goes by the place, whoever stands there."
            ),
            lambda x, perm: (permutation_differences(x, perm)[0], torch.zeros(())),
        ),
        known(
            "results_exchanged",
            N_("The two numbers have changed places: first without a mask, then with the causal one."),
            lambda x, perm: permutation_differences(x, perm)[::-1],
        ),
        known(
            "largest_without_absolute",
            N_(
                "The largest difference is taken with its sign. A difference of -2 is larger than one of 1: .abs() "
                "first."
            ),
            lambda x, perm: tuple(
                (_self(x[:, perm], causal) - _self(x, causal)[:, perm]).max() for causal in (False, True)
            ),
        ),
        known(
            "mean_not_largest",
            N_("That is the mean of the differences. Asked for is the largest."),
            lambda x, perm: tuple(
                (_self(x[:, perm], causal) - _self(x, causal)[:, perm]).abs().mean() for causal in (False, True)
            ),
        ),
    ),
)


# ------------------------------------------------------------------ 6. add_heads


def add_heads(x: Tensor, heads: Tensor, w_o: Tensor) -> Tensor:
    """Bring the heads back to the stream's width and add: [B, T, C], [B, H, T, D_v], [(H D_v), C] -> [B, T, C]."""
    merged = heads.transpose(1, 2).flatten(2)  # [B, T, H, D_v] -> [B, T, (H D_v)]
    return x + merged @ w_o  # [B, T, (H D_v)] @ [(H D_v), C] -> [B, T, C]


def _stream_cases(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B H T D_v C",
        lambda n, fill: (
            draw.normal(n["B"], n["T"], n["C"]),
            draw.normal(n["B"], n["H"], n["T"], n["D_v"]),
            draw.normal(n["H"] * n["D_v"], n["C"]),
        ),
    )


ADD_HEADS = Exercise(
    id="add_heads",
    notebook="17",
    kind="function",
    question=N_(
        "Check 6, the residual: write add_heads(x, heads, w_o). The stream x is [B, T, C], the result of the heads is "
        "[B, H, T, D_v], w_o is [H·D_v, C], and H·D_v need not be C. Merge the heads, project them, add them to the "
        "stream."
    ),
    reference=add_heads,
    why=N_(
        "An addition wants equal shapes. However small D_v is: merged and projected, the heads are [B, T, C] again, "
        "and that is what W_O is needed for here."
    ),
    hints=(
        N_("Which shape must be added to x? Which has it before W_O, which before the merge?"),
        N_("[B, H, T, D_v] -> [B, T, H, D_v] -> [B, T, H·D_v] -> @ w_o."),
    ),
    minutes=5,
    points=2,
    review=5,
    given=("B T C", "B H T D_v", "(H D_v) C"),
    axes=("B T C",),
    inputs=_stream_cases,
    mistakes=(
        known(
            "stream_forgotten",
            N_("The projected heads take the place of the stream. They are added to it: x + ..."),
            lambda x, heads, w_o: _joined(heads) @ w_o,
        ),
        known(
            "merge_heads_no_transpose",
            N_(
                "The heads are merged without the transpose: one row then holds several tokens of one head. Bring H "
                "next to D_v first. Row {at} is {got}, and {want} is asked for."
            ),
            lambda x, heads, w_o: x + heads.reshape(*x.shape[:2], -1) @ w_o,
            numbers=rows,
        ),
        known(
            "merged_in_turn",
            N_(
                "The heads are merged as (D_v H): one number of each head in turn. The rows of w_o expect head 0 "
                "whole, then head 1. Row {at} is {got}, and {want} is asked for."
            ),
            lambda x, heads, w_o: x + heads.permute(0, 2, 3, 1).flatten(2) @ w_o,
            numbers=rows,
        ),
        known(
            "added_without_projection",
            N_(
                "The heads are added without W_O. They have H·D_v = {H}·{D_v} features, the stream has C = {C}: the "
                "shapes need not fit, and where they do, something else comes out."
            ),
            lambda x, heads, w_o: x + _joined(heads),
        ),
        known(
            "stream_subtracted",
            N_("The stream is subtracted, or the heads are. A residual connection adds."),
            lambda x, heads, w_o: _joined(heads) @ w_o - x,
            lambda x, heads, w_o: x - _joined(heads) @ w_o,
        ),
        known(
            "stream_added_twice",
            N_("The stream is there twice. x + attention(x): once."),
            lambda x, heads, w_o: x + x + _joined(heads) @ w_o,
        ),
        known(
            "each_head_projected_alone",
            N_(
                "Only one head, or the mean of all, reaches the stream. W_O has H·D_v rows, D_v for each head: every "
                "head writes with its own."
            ),
            lambda x, heads, w_o: x + heads[:, 0] @ w_o[: heads.shape[-1]],
            lambda x, heads, w_o: x + heads[:, -1] @ w_o[-heads.shape[-1] :],
            lambda x, heads, w_o: x + _joined(heads) @ w_o / heads.shape[1],
        ),
    ),
)


# ------------------------------------------------------------------ 7. read_the_map


def read_the_map(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sums of rows and the heaviest key of each, [B, H, T], and the largest weight on a future key, []."""
    future = weights.triu(1)  # what lies right of the diagonal, 0 elsewhere
    return weights.sum(dim=-1), future.max(), weights.argmax(dim=-1)


def _map_cases(draw: Draw) -> list[Case]:
    """Maps that are wrong: rows that do not add up to 1, weight in the future; the heaviest weights lie elsewhere."""
    orders = iter(((0.9, 1.0, 1.1), (0.9, 1.1, 1.0), (1.1, 1.0, 0.9)) * 2)  # the future is the heaviest once in three

    def build(n: dict[str, int], fill: object) -> tuple[Tensor]:
        weights = (2 * draw.normal(n["B"], n["H"], n["T"], n["T"])).softmax(dim=-1)
        weights = weights * (0.2 + 0.7 * draw.normal(n["B"], n["H"], n["T"], 1).sigmoid())  # below 0.9
        b, h = (int(draw.ids(size, 1)) for size in (n["B"], n["H"]))
        for (t, s), most in zip(((0, 1), (1, 1), (2, 0)), next(orders), strict=True):  # future, itself, past
            weights[b, h, t, s] = most + 0.1 * draw.normal(1).sigmoid()
        return (weights,)

    return usual_cases(draw, "B H T", build, derive=lambda n: {"T": n["T"] if n["T"] > 2 else 9})


def _outside_the_map(case: Case, got: tuple[Tensor, ...]) -> Numbers | None:
    weights, (_sums, leak, keys) = case.args[0].double(), got
    T = case.sizes["T"]
    if bool(((keys < 0) | (keys >= T) | (keys != keys.round())).any()):
        return {"what": "a key that does not exist"}
    seen = weights.gather(-1, keys.long().unsqueeze(-1)).squeeze(-1)
    if bool((seen < weights.amax(dim=-1) - 1e-4).any()):
        return {"what": "a key that is not the heaviest of its row"}
    return None if bool((weights - leak).abs().min() < 1e-3) else {"what": "a weight that is nowhere in the map"}


READ_THE_MAP = Exercise(
    id="read_the_map",
    notebook="17",
    kind="function",
    question=N_(
        "Check 7, the map: somebody hands you weights [B, H, T, T] that should be causal, and you do not trust them. "
        "Write read_the_map(weights): the sum of each row [B, H, T], the largest weight anywhere on a key of the "
        "future (above the diagonal), and for each query the number of the key it looks at most [B, H, T]."
    ),
    reference=read_the_map,
    why=N_(
        "Sound causal weights show sums of 1 and a largest future weight of 0. The heaviest key says where a query "
        "looks most, not why: a map is no explanation of the model."
    ),
    hints=(
        N_("Rows are queries, columns are keys. Which axis do you sum over?"),
        N_("triu(1) keeps what lies strictly above the diagonal. The diagonal itself is a token that sees itself."),
        N_("max gives the weight, argmax gives its place."),
    ),
    minutes=6,
    points=3,
    review=4,
    given=("B H T T",),
    axes=("B H T", "", "B H T"),
    inputs=_map_cases,
    properties=(
        Property(
            id="what_is_read_stands_in_the_map",
            says=N_("Your reading names something that the map does not hold: {what}."),
            fails=_outside_the_map,
        ),
    ),
    mistakes=(
        known(
            "columns_summed",
            N_(
                "The columns are summed: how much weight each KEY gets from all queries. A distribution belongs to a "
                "query: dim=-1."
            ),
            lambda weights: (weights.sum(dim=-2), weights.triu(1).max(), weights.argmax(dim=-1)),
        ),
        known(
            "diagonal_counted_as_future",
            N_(
                "The diagonal is counted as future. A token may see itself: the future begins one to the right, "
                "triu(1)."
            ),
            lambda weights: (weights.sum(dim=-1), weights.triu(0).max(), weights.argmax(dim=-1)),
        ),
        known(
            "past_instead_of_future",
            N_("What lies below the diagonal is the past. Key s is in the future of query t where s > t: above it."),
            lambda weights: (weights.sum(dim=-1), weights.tril(-1).max(), weights.argmax(dim=-1)),
            lambda weights: (weights.sum(dim=-1), weights.tril(0).max(), weights.argmax(dim=-1)),
        ),
        known(
            "largest_of_all",
            N_("That is the largest weight of the whole map. Asked for is the largest on a key of the future."),
            lambda weights: (weights.sum(dim=-1), weights.max(), weights.argmax(dim=-1)),
        ),
        known(
            "one_step_skipped",
            N_("The nearest future key is skipped: triu(2). For query t it begins at key t + 1, which is triu(1)."),
            lambda weights: (weights.sum(dim=-1), weights.triu(2).max(), weights.argmax(dim=-1)),
        ),
        known(
            "future_added_up",
            N_("The future weights are added up or averaged. Asked for is the largest single one."),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).sum(), weights.argmax(dim=-1)),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).mean(), weights.argmax(dim=-1)),
        ),
        known(
            "query_instead_of_key",
            N_(
                "For each key the query is given that looks at it most. Asked for is the key of each query: "
                "argmax(dim=-1)."
            ),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).max(), weights.argmax(dim=-2)),
        ),
        known(
            "weight_instead_of_key",
            N_("The largest weights are given, not where they stand. argmax gives the number of the key."),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).max(), weights.amax(dim=-1)),
        ),
        known(
            "keys_counted_from_1",
            N_("The keys are counted from 1. Positions begin with 0."),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).max(), weights.argmax(dim=-1) + 1),
        ),
        known(
            "one_future_for_each_row",
            N_(
                "The largest future weight is given row by row or head by head. One number for the whole batch is "
                "asked for."
            ),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).amax(dim=-1), weights.argmax(dim=-1)),
            lambda weights: (weights.sum(dim=-1), weights.triu(1).amax(dim=(-2, -1)), weights.argmax(dim=-1)),
        ),
    ),
)


EXERCISES = (
    ATTENTION_STEPS,
    SOFTMAX_OVER_KEYS,
    SCALE_THEN_MASK,
    MULTI_HEAD,
    PERMUTATION_DIFFERENCES,
    ADD_HEADS,
    READ_THE_MAP,
)
