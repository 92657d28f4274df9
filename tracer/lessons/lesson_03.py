"""Exercises of notebook 03: scale, softmax axis, causal and padding mask, rows with no key left, shifted targets."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Mistake, Property, counting, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]
INF = float("inf")
TINY = 2e-2  # more than bfloat16 rounds a number near 1


# ------------------------------------------------------------------ scaled_scores


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the dot products of queries and keys over √D: [B, H, T, D], [B, H, S, D] -> [B, H, T, S]."""
    scores: Tensor = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [T, D] @ [D, S] -> [T, S]
    return scores


def _q_and_k(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return fill(n["B"], n["H"], n["T"], n["D"]), fill(n["B"], n["H"], n["S"], n["D"])

    return usual_cases(draw, "B H T S D", build, first=draw.digits)


def _scaled_by(wrong: Any) -> Any:
    """Return scores multiplied by a number that depends on B, H, T, D and S."""
    return lambda q, k: q @ k.mT * wrong(*q.shape, k.shape[2])


SCALED_SCORES = Exercise(
    id="scaled_scores",
    notebook="03",
    kind="function",
    question=N_(
        "Write scaled_scores(q, k): the scores q kᵀ of each head, scaled as the paper does. q is [B, H, T, D], k is "
        "[B, H, S, D], the result [B, H, T, S]."
    ),
    reference=scaled_scores,
    why=N_(
        "A sum of D products of independent numbers with variance 1 has variance D, so its spread is √D. Divided by √D "
        "it stays near 1, whatever the head size, and the softmax is not driven into its flat ends."
    ),
    hints=(
        N_("How many products does one score add up? That number, and no other, decides its spread."),
        N_("Variance D means spread √D. Divide by that."),
        N_("(q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5"),
    ),
    minutes=3,
    points=2,
    review=3,
    given=("B H T D", "B H S D"),
    axes=("B H T S",),
    inputs=_q_and_k,
    mistakes=(
        known(
            "not_scaled",
            N_("These are plain dot products: {got} at {place}, where {want} is asked for. Divide by √D = √{D}."),
            _scaled_by(lambda B, H, T, D, S: 1),
        ),
        known(
            "scale_by_model_dim",
            N_(
                "This divides by √C = √{C}. A score adds up the D = {D} products of its own head, so the scale is √D; "
                "√C makes scores √H = √{H} times too small. With one head nobody would see it."
            ),
            _scaled_by(lambda B, H, T, D, S: (H * D) ** -0.5),
        ),
        known(
            "scale_by_d",
            N_(
                "This divides by D = {D}, at once or by √D twice. The variance grows with D; the spread, which is its "
                "root, with √D."
            ),
            _scaled_by(lambda B, H, T, D, S: 1 / D),
        ),
        known(
            "scale_upside_down",
            N_("This multiplies by √D. Long sums are large already; divide."),
            _scaled_by(lambda B, H, T, D, S: D**0.5),
        ),
        known(
            "scale_by_a_length",
            N_("The scale is the root of a number of tokens. What a score sums over is features: D = {D} of them."),
            _scaled_by(lambda B, H, T, D, S: S**-0.5),
            _scaled_by(lambda B, H, T, D, S: T**-0.5),
        ),
        known(
            "scale_by_heads",
            N_("The scale is √H = √{H}. The number of heads does not enter a score; its D = {D} features do."),
            _scaled_by(lambda B, H, T, D, S: H**-0.5),
        ),
        known(
            "softmax_taken",
            N_("The scale is right, and a softmax has been taken too. Asked for are the scores before it."),
            lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1),
        ),
    ),
)


# ------------------------------------------------------------------ attention_weights


def attention_weights(scores: Tensor) -> Tensor:
    """Turn scores into shares that sum to 1 for each query: [B, H, T, S] -> [B, H, T, S]."""
    return scores.softmax(dim=-1)  # over the keys, S


def _scores(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return (fill(n["B"], n["H"], n["T"], n["S"]),)

    return usual_cases(draw, "B H T S", build, first=draw.digits)


def _row_sum(case: Case, got: Any, want: Any) -> Numbers:
    return {"rowsum": f"{got[0, 0, 0].sum():.4g}"}


def _row_does_not_sum_to_one(case: Case, got: Tensor) -> Numbers | None:
    sums = got.sum(-1)
    off = ((sums - 1).abs() > TINY).nonzero()
    if not len(off):
        return None
    b, h, t = off[0].tolist()
    return {"b": b, "h": h, "t": t, "sum": f"{sums[b, h, t]:.4g}"}


ROWS_SUM_TO_ONE = Property(
    id="rows_sum_to_one",
    says=N_("The weights of query t={t} (b={b}, h={h}) sum to {sum} over the keys; they must sum to 1."),
    fails=_row_does_not_sum_to_one,
)

ATTENTION_WEIGHTS = Exercise(
    id="attention_weights",
    notebook="03",
    kind="function",
    question=N_(
        "Write attention_weights(scores): scores is [B, H, T, S], a row for each query, a column for each key. Return "
        "weights of the same shape: for each query, shares of the keys that sum to 1."
    ),
    reference=attention_weights,
    why=N_("Each query shares itself out among the keys, so the softmax runs along a row: the last axis, S."),
    hints=(
        N_("Who shares out, and among whom? One query, among all keys."),
        N_("Which axis holds the keys of one query?"),
        N_("Add up weights over that axis to test: weights.sum(-1) must be 1 everywhere."),
    ),
    minutes=3,
    review=3,
    given=("B H T S",),
    axes=("B H T S",),
    inputs=_scores,
    properties=(ROWS_SUM_TO_ONE,),
    mistakes=(
        known(
            "softmax_over_queries",
            N_(
                "This softmax runs over the queries, T: each key's column sums to 1. Each query's row must: yours sums "
                "to {rowsum} for query 0. Take the last axis."
            ),
            lambda scores: scores.softmax(dim=-2),
            numbers=_row_sum,
        ),
        known(
            "softmax_wrong_dim",
            N_(
                "This softmax runs over axis 1, the heads: they share one key out among them. Row sums are not 1 "
                "({rowsum} for query 0). Keys are the last axis, dim=-1."
            ),
            lambda scores: scores.softmax(dim=1),
            numbers=_row_sum,
        ),
        known(
            "softmax_over_batch",
            N_("This softmax runs over the batch: sentences that have nothing to do with each other share one key."),
            lambda scores: scores.softmax(dim=0),
        ),
        known(
            "softmax_over_everything",
            N_("One softmax runs over several axes at once: the shares of query 0 sum to {rowsum}, not to 1."),
            lambda scores: scores.flatten().softmax(0).view_as(scores),
            lambda scores: scores.flatten(2).softmax(-1).view_as(scores),
            numbers=_row_sum,
        ),
        known(
            "normalise_without_keepdim",
            N_(
                "sum(-1) gives [B, H, T], and the division lines that T up with the keys' axis, S. Where T and S are "
                "equal nothing is raised, and the columns are divided instead of the rows. keepdim=True keeps [B, H, "
                "T, 1]."
            ),
            lambda scores: scores.exp() / scores.exp().sum(-1),
        ),
        known(
            "not_normalised",
            N_("This is exp alone: all positive, and query 0 sums to {rowsum}. Divide each row by its own sum."),
            lambda scores: scores.exp(),
            numbers=_row_sum,
        ),
        known(
            "each_score_alone",
            N_("sigmoid looks at each score alone. Shares compare the keys with each other and sum to 1."),
            lambda scores: scores.sigmoid(),
        ),
        known(
            "logarithms",
            N_("These are logarithms of the weights (log_softmax): all at most 0. The weights are their exp."),
            lambda scores: scores.log_softmax(-1),
        ),
        known(
            "divided_without_exp",
            N_("This divides scores by their sum, without exp: scores may be negative, or sum to 0."),
            lambda scores: scores / scores.sum(-1, keepdim=True),
        ),
        known(
            "winner_takes_all",
            N_("This gives the best key everything. A softmax leaves every key a share, so that gradients reach all."),
            lambda scores: (scores == scores.amax(-1, keepdim=True)).float(),
            lambda scores: torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float(),
        ),
    ),
)


# ------------------------------------------------------------------ causal_weights


def causal_weights(scores: Tensor) -> Tensor:
    """Turn scores into weights on the present and the past alone: [B, H, T, T] -> [B, H, T, T]."""
    T = scores.shape[-1]
    keep = torch.ones(T, T, dtype=torch.bool).tril()  # [T, T]: row t keeps keys 0 to t
    scores = scores.masked_fill(~keep, float("-inf"))
    return scores.softmax(dim=-1)


def _causal_cases(draw: Draw) -> list[Case]:
    """Scores of several levels: where all that may be seen is far below 0, a small fill would take the weight."""
    levels = iter((0, 0, -60, 0, 0))

    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return (fill(n["B"], n["H"], n["T"], n["T"]) + next(levels),)

    return usual_cases(draw, "B H T", build, first=draw.digits)


def _causal(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool).tril()


def _future_has_weight(case: Case, got: Tensor) -> Numbers | None:
    future = got.triu(1)
    if not bool((future.abs() > 1e-6).any()):
        return None
    _b, _h, t, s = (future.abs() == future.abs().max()).nonzero()[0].tolist()
    return {"t": t, "s": s, "weight": f"{future.abs().max():.4g}"}


def _row_zero(case: Case, got: Any, want: Any) -> Numbers:
    return {"row": show(got[0, 0, 0]), "right": show(want[0, 0, 0]), "rowsum": f"{got[0, 0, 0].sum():.4g}"}


def _future(case: Case, got: Any, want: Any) -> Numbers:
    return _future_has_weight(case, got) or {"t": 0, "s": 0, "weight": 0}


def _mask_mistakes(keep: Any) -> tuple[Mistake, ...]:
    """Return the mistakes that a mask invites, whatever it hides; `keep(*args)` is the right mask, True where kept."""

    def filled(value: float) -> Any:
        return lambda scores, *rest: scores.masked_fill(~keep(scores, *rest), value).softmax(-1)

    return (
        known(
            "mask_after_softmax",
            N_(
                "The mask comes after the softmax. What is hidden is 0, but it has taken its share before: the row of "
                "query 0 is {row} and sums to {rowsum}. Fill the SCORES with -inf, then take the softmax."
            ),
            lambda scores, *rest: scores.softmax(-1) * keep(scores, *rest),
            numbers=_row_zero,
        ),
        known(
            "mask_fill_not_minus_inf",
            N_(
                "The fill is 0, or as good as 0, and exp(0) = 1: a hidden key still gets weight. The row of query 0 is "
                "{row}, and {right} is asked for. Fill with -inf, or with a very large negative number."
            ),
            filled(1e-9),
            numbers=_row_zero,
        ),
        known(
            "mask_fill_plus_inf",
            N_("The fill is +inf, or a huge positive number: what should be hidden takes all the weight."),
            filled(INF),
            filled(1e9),
        ),
        known(
            "masked_fill_result_dropped",
            N_(
                "These are the weights without any mask. masked_fill returns a new tensor and leaves the old one as it "
                "was: keep what it returns, scores = scores.masked_fill(…)."
            ),
            lambda scores, *rest: scores.softmax(-1),
        ),
        known(
            "mask_inverted",
            N_(
                "The mask is turned round: what should be seen is hidden, what should be hidden is seen. masked_fill "
                "fills where its mask is True. Where nothing is left to see, the row is NaN."
            ),
            lambda scores, *rest: scores.masked_fill(keep(scores, *rest), -INF).softmax(-1),
        ),
        known(
            "mask_added_as_numbers",
            N_("The mask is added as 0 and 1. That moves a score by 1 and hides nothing: -inf must be added."),
            lambda scores, *rest: (scores + keep(scores, *rest)).softmax(-1),
            lambda scores, *rest: (scores + ~keep(scores, *rest)).softmax(-1),
        ),
    )


CAUSAL_WEIGHTS = Exercise(
    id="causal_weights",
    notebook="03",
    kind="function",
    question=N_(
        "Write causal_weights(scores): scores is [B, H, T, T], queries in rows. Hide from each query every key that "
        "comes after it, and return the weights [B, H, T, T]. What a query may see must sum to 1."
    ),
    reference=causal_weights,
    why=N_("exp(-inf) = 0, so the future takes part in no sum: what is left is a whole softmax over past and present."),
    hints=(
        N_("Draw the T-by-T table and cross out what lies in the future. Row 0 keeps one key, the last row all."),
        N_("torch.ones(T, T).tril() is 1 on and below the diagonal."),
        N_("Fill the scores with float('-inf') where that is 0; then take the softmax over the last axis."),
    ),
    minutes=6,
    points=2,
    review=3,
    given=("B H T T",),
    axes=("B H T T",),
    inputs=_causal_cases,
    properties=(
        Property(
            id="the_future_has_no_weight",
            says=N_("Query t={t} gives the later key s={s} a weight of {weight}. It must be 0."),
            fails=_future_has_weight,
        ),
        ROWS_SUM_TO_ONE,
    ),
    mistakes=(
        *_mask_mistakes(_causal),
        known(
            "past_hidden",
            N_(
                "The past is hidden and the future seen. tril keeps the diagonal and what is below, triu what is above."
            ),
            lambda scores: scores.masked_fill(~_causal(scores).mT, -INF).softmax(-1),
        ),
        known(
            "diagonal_hidden_too",
            N_(
                "The diagonal is hidden as well: no token sees itself, and query 0 sees nothing at all, which makes "
                "its row NaN. Hide from the first diagonal above: triu(1), or keep tril()."
            ),
            lambda scores: scores.masked_fill(~_causal(scores).tril(-1), -INF).softmax(-1),
        ),
        known(
            "next_token_seen",
            N_(
                "Each query sees one key too many: query {t} gives key {s} a weight of {weight}. That key is the very "
                "token to be predicted."
            ),
            lambda scores: scores.masked_fill(torch.ones_like(scores).triu(2).bool(), -INF).softmax(-1),
            numbers=_future,
        ),
        known(
            "softmax_over_queries",
            N_("The mask is right; the softmax runs over the queries, so that columns sum to 1, not rows. Use dim=-1."),
            lambda scores: scores.masked_fill(~_causal(scores), -INF).softmax(-2),
        ),
        known(
            "minus_inf_times_zero",
            N_("-inf · 0 is NaN, not 0. Build the mask with masked_fill or torch.where instead of a product."),
            lambda scores: (scores + (~_causal(scores)).float() * -INF).softmax(-1),
        ),
    ),
)


# ------------------------------------------------------------------ padding_mask_shape

PADDING_MASK_SHAPE = Exercise(
    id="padding_mask_shape",
    notebook="03",
    kind="shape",
    question=N_(
        "keep is [B, S]: True where a sentence has a word, False where it is filled up. The scores are [B, H, T, S]. "
        "To which shape of four axes must keep be brought, as small as can be, so that it lines up with the scores?"
    ),
    reference="B 1 1 S",
    why=N_("The same keys are hidden from every head and every query: axes of size 1, which broadcasting repeats."),
    hints=(
        N_("keep knows nothing of heads and queries. What size does such an axis have?"),
        N_("Broadcasting lines shapes up from the right: S must be last, B first."),
    ),
    minutes=2,
    review=3,
    mistakes=(
        known(
            "queries_hidden",
            N_("That would hide queries, the rows. Filled-up places must not be looked at: they are hidden as keys."),
            *("B 1 S 1", "B 1 T 1", "B S 1 1"),
        ),
        known(
            "one_axis_short",
            N_(
                "Lined up from the right, that puts B against the heads. Four axes are needed: B, heads, queries, keys."
            ),
            *("B 1 S", "1 B S"),
        ),
        known("as_it_came", N_("Lined up from the right, [B, S] puts B against the queries, T."), "B S", "1 1 B S"),
        known(
            "written_out",
            N_("That is keep repeated for every head and query. It works, and holds H·T times what is needed."),
            *("B H T S", "B H 1 S", "B 1 T S"),
        ),
        known("batch_gone", N_("Each sentence has a length of its own: B must stay."), "1 1 1 S", "1 1 T S"),
    ),
)


# ------------------------------------------------------------------ padded_weights


def padded_weights(scores: Tensor, keep: Tensor) -> Tensor:
    """Turn scores into weights on real words alone: [B, H, T, S], keep [B, S] -> [B, H, T, S]."""
    keep = keep[:, None, None, :]  # [B, 1, 1, S]
    return scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)


def _padded_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        lengths = 1 + draw.ids(n["S"], n["B"], 1)  # [B, 1], at least one word each
        lengths[0] = max(1, n["S"] - 1)
        lengths[-1] = max(1, n["S"] // 2)
        return fill(n["B"], n["H"], n["T"], n["S"]), torch.arange(n["S"]) < lengths

    return usual_cases(draw, "B H T S", build, first=draw.digits)


def _padding(scores: Tensor, keep: Tensor) -> Tensor:
    return keep[:, None, None]


def _filler_has_weight(case: Case, got: Tensor) -> Numbers | None:
    hidden = got.masked_fill(case.args[1][:, None, None], 0).abs()
    if not bool((hidden > 1e-6).any()):
        return None
    b, _h, t, s = (hidden == hidden.max()).nonzero()[0].tolist()
    return {"b": b, "t": t, "s": s, "weight": f"{hidden.max():.4g}"}


PADDED_WEIGHTS = Exercise(
    id="padded_weights",
    notebook="03",
    kind="function",
    question=N_(
        "Write padded_weights(scores, keep): scores is [B, H, T, S], keep [B, S] is True for real words and False for "
        "filler. Return weights [B, H, T, S] that give filler nothing and sum to 1 for every query."
    ),
    reference=padded_weights,
    why=N_("keep[:, None, None, :] is [B, 1, 1, S]: each sentence hides its own keys, from all heads and all queries."),
    hints=(
        N_("keep needs axes for heads and queries. Which size, and where?"),
        N_("keep[:, None, None, :] puts two axes of size 1 in the middle."),
        N_("masked_fill fills where its mask is True: that is where keep is False, ~keep."),
    ),
    minutes=5,
    points=2,
    review=3,
    given=("B H T S", "B S"),
    axes=("B H T S",),
    inputs=_padded_cases,
    properties=(
        Property(
            id="filler_has_no_weight",
            says=N_("In sentence {b}, query {t} gives the filler at s={s} a weight of {weight}. It must be 0."),
            fails=_filler_has_weight,
        ),
        ROWS_SUM_TO_ONE,
    ),
    mistakes=(
        *_mask_mistakes(_padding),
        known(
            "keep_not_widened",
            N_(
                "keep is used as [B, S]. Lined up from the right, its B = {B} meets the queries' T = {T}. Where the "
                "two are equal nothing is raised, and each query gets the lengths of another sentence."
            ),
            lambda scores, keep: scores.masked_fill(~keep, -INF).softmax(-1),
        ),
        known(
            "keep_widened_once",
            N_(
                "keep has three axes here, [B, 1, S]. Lined up from the right, its B = {B} meets the heads, H = {H}. "
                "Four axes are needed: [B, 1, 1, S]."
            ),
            lambda scores, keep: scores.masked_fill(~keep[:, None], -INF).softmax(-1),
        ),
        known(
            "queries_hidden",
            N_(
                "keep stands at the queries, [B, 1, S, 1]. Filler must not be looked at, so it is hidden as a key: S "
                "is the last axis. Whole rows at -inf would be NaN, too."
            ),
            lambda scores, keep: scores.masked_fill(~keep[:, None, :, None], -INF).softmax(-1),
        ),
        known(
            "one_sentence_for_all",
            N_("The lengths of sentence 0 are used for all. Each sentence has its own: [B, 1, 1, S]."),
            lambda scores, keep: scores.masked_fill(~keep[0], -INF).softmax(-1),
        ),
    ),
)


# ------------------------------------------------------------------ fill_value

FILL_VALUE = Exercise(
    id="fill_value",
    notebook="03",
    kind="choice",
    question=N_("Scores are filled where a key must not be seen, and then comes the softmax. Which fill is right?"),
    choices={"a": "-inf", "b": "1e-9", "c": "0", "d": "inf"},
    reference="a",
    why=N_(
        "exp(-inf) is exactly 0. -1e9 is merely large: it does the same while something is left to see, and shares a "
        "wholly masked row out evenly, where -inf makes it NaN."
    ),
    hints=(
        N_("The softmax begins with exp. Which number has exp 0?"),
        N_("Work out exp(0) and exp(1e-9)."),
    ),
    minutes=1,
    review=3,
    mistakes=(
        known("zero_is_a_score", N_("exp(0) = 1: the hidden key gets as much as a key with score 0."), "c"),
        known(
            "tiny_is_almost_zero",
            N_("1e-9 is as good as 0, and exp of that is 1. It was meant as -1e9: the sign belongs to the number."),
            "b",
        ),
        known("plus_infinity", N_("+inf would give the hidden key everything, or NaN."), "d"),
    ),
)


# ------------------------------------------------------------------ rows_without_keys


def rows_without_keys(scores: Tensor, keep: Tensor) -> Tensor:
    """Turn scores [B, H, T, S] into weights by keep [B, 1, T, S]; a query with no key left gets zeros."""
    seen = keep.any(dim=-1, keepdim=True)  # [B, 1, T, 1]: is anything left to see?
    scores = scores.masked_fill(~keep & seen, float("-inf"))  # a row with nothing left stays as it is
    return scores.softmax(dim=-1) * seen


def _keyless_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        keep = draw.normal(n["B"], 1, n["T"], n["S"]) > -0.3
        keep[0, 0, 0] = False
        keep[-1, 0, -1, 0] = n["B"] * n["T"] > 1
        return fill(n["B"], n["H"], n["T"], n["S"]), keep

    return usual_cases(draw, "B H T S", build, first=draw.digits)


def _keyless_row_not_zero(case: Case, got: Tensor) -> Numbers | None:
    rows = got * ~case.args[1].any(-1, keepdim=True)
    if not bool((rows.abs() > TINY).any()):
        return None
    b, h, t, _s = (rows.abs() > TINY).nonzero()[0].tolist()
    return {"b": b, "h": h, "t": t, "row": show(got[b, h, t])}


def _hidden_has_weight(case: Case, got: Tensor) -> Numbers | None:
    hidden = got.masked_fill(case.args[1], 0).abs()
    if not bool((hidden > 1e-6).any()):
        return None
    b, h, t, s = (hidden == hidden.max()).nonzero()[0].tolist()
    return {"b": b, "h": h, "t": t, "s": s, "weight": f"{hidden.max():.4g}"}


ROWS_WITHOUT_KEYS = Exercise(
    id="rows_without_keys",
    notebook="03",
    kind="function",
    question=N_(
        "Write rows_without_keys(scores, keep): weights for scores [B, H, T, S] and a mask keep [B, 1, T, S], which is "
        "True where a key may be seen. Some queries have no key left. We choose that their weights are all 0; other "
        "rows sum to 1."
    ),
    reference=rows_without_keys,
    why=N_(
        "A row wholly at -inf is 0/0 = NaN in a plain softmax. Returning zeros is a choice, as fused kernels make it; "
        "others raise or share evenly. Leaving such rows unmasked and zeroing them afterwards keeps gradients finite, "
        "too: NaN times 0 is still NaN on the way back."
    ),
    hints=(
        N_("What is exp(-inf) / (exp(-inf) + exp(-inf))?"),
        N_("Find the rows with something to see: keep.any(dim=-1, keepdim=True)."),
        N_("Mask only in those rows, take the softmax, and multiply the other rows by 0."),
    ),
    minutes=7,
    points=3,
    review=3,
    given=("B H T S", "B 1 T S"),
    axes=("B H T S",),
    inputs=_keyless_cases,
    gradients=True,
    properties=(
        Property(
            id="a_row_without_keys_is_zero",
            says=N_("Query t={t} (b={b}, h={h}) has no key left and holds {row}; we ask for zeros."),
            fails=_keyless_row_not_zero,
        ),
        Property(
            id="a_hidden_key_has_no_weight",
            says=N_("Query t={t} (b={b}, h={h}) gives the hidden key s={s} a weight of {weight}. It must be 0."),
            fails=_hidden_has_weight,
        ),
    ),
    mistakes=(
        known(
            "fully_masked_row_nan",
            N_(
                "Query 0 of sentence 0 has no key left, and its row is NaN: every score is -inf, and 0/0 is not a "
                "number. Multiplying by 0 afterwards does not help, NaN · 0 is NaN. Find such rows with keep.any(-1, "
                "keepdim=True), and do not mask them."
            ),
            lambda scores, keep: scores.masked_fill(~keep, -INF).softmax(-1),
        ),
        known(
            "shared_out_evenly",
            N_(
                "The fill is a large finite number. In a row with no key left all scores are then equal, and its "
                "weight is shared out evenly over keys that must not be seen. Zero such rows after the softmax."
            ),
            lambda scores, keep: scores.masked_fill(~keep, -1e9).softmax(-1),
        ),
        known(
            "row_left_unmasked",
            N_("Rows with no key left are not masked, and keep a whole softmax. They must be set to 0 at the end."),
            lambda scores, keep: scores.masked_fill(~keep & keep.any(-1, keepdim=True), -INF).softmax(-1),
        ),
        known(
            "mask_after_softmax",
            N_(
                "The mask comes after the softmax: rows without a key are 0, and the others sum to less than 1, since "
                "hidden keys took their share before. Mask the scores."
            ),
            lambda scores, keep: scores.softmax(-1) * keep,
        ),
        known(
            "mask_inverted",
            N_("The mask is turned round: keep is True where a key may be seen, masked_fill fills where it is True."),
            lambda scores, keep: scores.masked_fill(keep, -INF).softmax(-1).nan_to_num(0),
        ),
        known(
            "all_instead_of_any",
            N_("A row is kept only if ALL its keys may be seen. One is enough: any, not all."),
            lambda scores, keep: scores.masked_fill(~keep, -1e9).softmax(-1) * keep.all(-1, keepdim=True),
        ),
    ),
)


# ------------------------------------------------------------------ scale_and_mask_order

SCALE_AND_MASK_ORDER = Exercise(
    id="scale_and_mask_order",
    notebook="03",
    kind="choice",
    question=N_("Scores are divided by √D and hidden places are filled with -inf. Which order gives wrong weights?"),
    choices={
        "a": N_("scale, mask, softmax"),
        "b": N_("mask, scale, softmax"),
        "c": N_("q divided by √D first; then scores, mask, softmax"),
        "d": N_("scale, softmax, mask"),
    },
    reference="d",
    why=N_(
        "-inf divided by √D is still -inf, so scale and mask may change places. Both must come before the softmax: "
        "afterwards the hidden keys have taken their share, and the row no longer sums to 1."
    ),
    hints=(
        N_("What is -inf / √D?"),
        N_("When is a row's sum fixed to 1? What may still happen after that?"),
    ),
    minutes=2,
    review=3,
    mistakes=(
        known("order_of_the_paper", N_("That is the usual order, and it is right."), "a"),
        known(
            "mask_then_scale",
            N_("With -inf this is not wrong: it stays -inf under any scale. A finite fill would be scaled as well."),
            "b",
        ),
        known("scale_moved_to_q", N_("(q/√D)·k is (q·k)/√D: the scale may sit on q, as many kernels have it."), "c"),
    ),
)


# ------------------------------------------------------------------ shifted_targets


def shifted_targets(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Cut ids into what goes in and what must come out: [B, T] -> [B, T-1] and [B, T-1]."""
    return ids[:, :-1], ids[:, 1:]


def _ids_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return (fill(n["B"], n["T"]).long(),)

    cases = usual_cases(draw, "B T", build, first=counting)
    fresh = [Case((draw.ids(50, *case.args[0].shape),), case.sizes) for case in cases[1:]]
    return [cases[0], *fresh]


def _target_is_not_next(case: Case, got: Any) -> Numbers | None:
    inputs, targets = got
    ids = case.args[0]
    for t in range(inputs.shape[1]):
        if inputs[0, t] != ids[0, t] or targets[0, t] != ids[0, t + 1]:
            return {"t": t, "in": int(inputs[0, t]), "out": int(targets[0, t]), "row": show(ids[0], 12)}
    return None


def _first_row(case: Case, got: Any, want: Any) -> Numbers:
    return {"row": show(case.args[0][0]), "first": show(got[0][0]), "second": show(got[1][0])}


SHIFTED_TARGETS = Exercise(
    id="shifted_targets",
    notebook="03",
    kind="function",
    question=N_(
        "Each token is to predict the next one: of “attention is very cool” the model reads “attention is very” and "
        "must say “is very cool”. Write shifted_targets(ids): from ids [B, T] return inputs and targets, each [B, T-1]."
    ),
    reference=shifted_targets,
    why=N_("Target t is token t+1. The last token has nothing to predict, the first is predicted from nothing."),
    hints=(
        N_("Write one sentence twice, one under the other, the second moved by one."),
        N_("Which token can be no input? Which can be no target?"),
        N_("ids[:, :-1] leaves the last out, ids[:, 1:] the first."),
    ),
    minutes=2,
    review=3,
    given=("B T",),
    axes=("B T", "B T"),
    inputs=_ids_cases,
    properties=(
        Property(
            id="target_t_is_token_t_plus_1",
            says=N_("Of the ids {row}, place {t} has the input {in} and the target {out}: no token and its next."),
            fails=_target_is_not_next,
        ),
    ),
    mistakes=(
        known(
            "targets_not_shifted",
            N_(
                "Inputs and targets are the same tokens, so the model can copy what it reads: near 100% right, and "
                "nothing learned. Target t must be token t+1."
            ),
            lambda ids: (ids, ids),
            lambda ids: (ids[:, :-1], ids[:, :-1]),
            lambda ids: (ids[:, 1:], ids[:, 1:]),
        ),
        known(
            "shifted_backwards",
            N_("This predicts the token before: of {row}, the inputs are {first} and the targets {second}. Swap them."),
            lambda ids: (ids[:, 1:], ids[:, :-1]),
            numbers=_first_row,
        ),
        known(
            "rolled_round",
            N_(
                "roll brings the first token to the end: the last target is the beginning of the sentence. Cut "
                "instead, [B, T-1] each."
            ),
            lambda ids: (ids, ids.roll(-1, 1)),
        ),
        known(
            "rolled_forwards",
            N_("roll moves the wrong way and round the end: each token would predict the one before. Cut instead."),
            lambda ids: (ids, ids.roll(1, 1)),
        ),
        known(
            "sentences_shifted",
            N_("The shift runs along the batch: sentences are lost, not tokens. Tokens are axis 1: ids[:, :-1]."),
            lambda ids: (ids[:-1], ids[1:]),
        ),
        known(
            "only_targets_shifted",
            N_("The targets are right, the inputs still have T tokens: the last has no target. Leave it out of them."),
            lambda ids: (ids, ids[:, 1:]),
        ),
        known(
            "two_steps_ahead",
            N_("The targets lie two tokens ahead: of {row} they are {second}."),
            lambda ids: (ids[:, :-2], ids[:, 2:]),
            numbers=_first_row,
        ),
    ),
)


EXERCISES = (
    SCALED_SCORES,
    ATTENTION_WEIGHTS,
    CAUSAL_WEIGHTS,
    PADDING_MASK_SHAPE,
    PADDED_WEIGHTS,
    FILL_VALUE,
    ROWS_WITHOUT_KEYS,
    SCALE_AND_MASK_ORDER,
    SHIFTED_TARGETS,
)
