"""Exercises of notebook 02: scores as dot products, by hand, with S other than T."""

from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, known, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


def _q_and_k(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        return fill(n["B"], n["H"], n["T"], n["D"]), fill(n["B"], n["H"], n["S"], n["D"])

    return usual_cases(draw, "B H T S D", build, first=draw.digits)


# ------------------------------------------------------------------ cross_scores_shape

CROSS_SCORES_SHAPE = Exercise(
    id="cross_scores_shape",
    notebook="02",
    kind="shape",
    question=N_(
        "The queries come from T positions, the keys from S others: q is [B, H, T, D], k is [B, H, S, D]. What is the "
        "shape of scores = q @ k.transpose(-2, -1)?"
    ),
    reference="B H T S",
    why=N_("[T, D] times [D, S] is [T, S], once for each sentence and head: a row for each query, a column per key."),
    hints=(
        N_("What does transpose(-2, -1) make of k's last two axes?"),
        N_("Write the last two axes of both sides side by side: [T, D] [D, S]. The inner pair is summed away."),
    ),
    minutes=1,
    review=2,
    mistakes=(
        known(
            "one_length_for_both",
            N_("T and S are two lengths here. The rows are queries, T of them; the columns are keys, S of them."),
            *("B H T T", "B H S S"),
        ),
        known(
            "keys_in_rows",
            N_("That is k @ qᵀ: a row for each key. q stands left here, so queries are rows."),
            "B H S T",
        ),
        known(
            "features_still_there",
            N_("D is the axis that the product sums over. No feature is left in a score."),
            *("B H T D", "B H S D", "B H T S D", "B H D S", "B H D D"),
        ),
        known("heads_summed", N_("Each head compares on its own: B and H stay in front."), "B T S", "T S", "H T S"),
        known("heads_not_in_front", N_("B and H stay in front; the product works on the last two axes."), "B T S H"),
    ),
)


# ------------------------------------------------------------------ one_score


def one_score(q: Tensor, k: Tensor, b: int, h: int, t: int, s: int) -> Tensor:
    """Return one entry of q kᵀ: how well query t meets key s, in sentence b and head h."""
    return (q[b, h, t] * k[b, h, s]).sum()  # [D] * [D] -> a number


def _one_score_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        q, k = fill(n["B"], n["H"], n["T"], n["D"]), fill(n["B"], n["H"], n["S"], n["D"])
        return q, k, n["B"] - 1, max(n["H"] - 2, 0), n["T"] - 1, max(n["S"] - 2, 0)

    return usual_cases(draw, "B H T S D", build, first=draw.digits)


ONE_SCORE = Exercise(
    id="one_score",
    notebook="02",
    kind="function",
    question=N_(
        "Write one_score(q, k, b, h, t, s): the single score, before any scaling, of query t for key s in head h of "
        "sentence b. q is [B, H, T, D], k is [B, H, S, D]. The result is one number."
    ),
    reference=one_score,
    why=N_("A score is one dot product: two rows of D numbers, multiplied number by number and added up."),
    hints=(
        N_("Which D numbers are query t? Which are key s?"),
        N_("q[b, h, t] and k[b, h, s] are rows of D numbers. Multiply them number by number."),
        N_("Then add up: .sum(), or use @, or torch.dot."),
    ),
    minutes=3,
    points=2,
    review=2,
    given=("B H T D", "B H S D", None, None, None, None),
    axes=("",),
    inputs=_one_score_cases,
    mistakes=(
        known(
            "products_not_added",
            N_("These are the {D} products, one for each feature. A score is their sum: one number."),
            lambda q, k, b, h, t, s: q[b, h, t] * k[b, h, s],
        ),
        known(
            "products_averaged",
            N_("This is the mean of the {D} products, {got}. The dot product is their sum, {want}."),
            lambda q, k, b, h, t, s: (q[b, h, t] * k[b, h, s]).mean(),
        ),
        known(
            "scaled_already",
            N_("This is divided by √D already. Asked for is the plain dot product, {want}; scaling comes next."),
            lambda q, k, b, h, t, s: q[b, h, t] @ k[b, h, s] / q.shape[-1] ** 0.5,
        ),
        known(
            "angle_alone",
            N_("This divides by both lengths: it is the cosine of the angle. A score keeps the lengths: {want}."),
            lambda q, k, b, h, t, s: torch.cosine_similarity(q[b, h, t], k[b, h, s], dim=0),
        ),
        known(
            "summed_over_heads",
            N_("This adds up all heads. Each head has scores of its own; take head h alone."),
            lambda q, k, b, h, t, s: (q[b, :, t] * k[b, :, s]).sum(),
        ),
        known(
            "positions_swapped",
            N_("t and s have changed places: t counts queries and goes with q, s counts keys and goes with k."),
            lambda q, k, b, h, t, s: q[b, h, s] @ k[b, h, t],
        ),
    ),
)


# ------------------------------------------------------------------ all_scores


def all_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the dot product of every query with every key: [B, H, T, D], [B, H, S, D] -> [B, H, T, S]."""
    return q @ k.transpose(-2, -1)  # [T, D] @ [D, S] -> [T, S]


def _entry_is_no_dot_product(case: Case, got: Tensor) -> Numbers | None:
    q, k = (arg.to(got) for arg in case.args)
    for t in range(q.shape[2]):
        for s in range(k.shape[2]):
            dot = (q[-1, -1, t] * k[-1, -1, s]).sum()
            if abs(got[-1, -1, t, s] - dot) > 2e-2 * (1 + abs(dot)):
                b, h = q.shape[0] - 1, q.shape[1] - 1
                return {"b": b, "h": h, "t": t, "s": s, "mine": f"{got[-1, -1, t, s]:.4g}", "dot": f"{dot:.4g}"}
    return None


def _by_loops_of_t(q: Tensor, k: Tensor) -> Tensor:
    B, H, T, _D = q.shape
    scores = torch.zeros(B, H, T, k.shape[2])
    for t in range(T):
        for s in range(T):
            scores[:, :, t, s] = (q[:, :, t] * k[:, :, s]).sum(-1)
    return scores


def _without_the_last_key(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.mT
    scores[..., -1] = 0
    return scores


ALL_SCORES = Exercise(
    id="all_scores",
    notebook="02",
    kind="function",
    question=N_(
        "Write all_scores(q, k): every query's dot product with every key, not scaled. q is [B, H, T, D], k is [B, H, "
        "S, D], the result [B, H, T, S]. Loops are welcome the first time; then try one matrix product."
    ),
    reference=all_scores,
    why=N_(
        "q @ kᵀ is all the dot products at once: entry [t, s] is row t of q times row s of k, which is column s of kᵀ."
    ),
    hints=(
        N_("Start from one entry: scores[b, h, t, s] is a dot product. Four loops fill the table."),
        N_("A matrix product takes rows from the left and columns from the right. The keys are rows of k."),
        N_("Turn k's last two axes: k.transpose(-2, -1) is [B, H, D, S]."),
    ),
    minutes=6,
    points=2,
    review=2,
    given=("B H T D", "B H S D"),
    axes=("B H T S",),
    inputs=_q_and_k,
    properties=(
        Property(
            id="an_entry_is_a_dot_product",
            says=N_(
                "In sentence {b}, head {h}, the entry for query {t} and key {s} is {mine}; the dot product of these "
                "two rows is {dot}."
            ),
            fails=_entry_is_no_dot_product,
        ),
    ),
    mistakes=(
        known(
            "keys_not_transposed",
            N_(
                "The product needs D against D. As they stand, q's last axis is D = {D} and k's last but one is S = "
                "{S}. Turn k: k.transpose(-2, -1) is [B, H, D, S]."
            ),
            lambda q, k: q @ k,
        ),
        known(
            "keys_reshaped",
            N_(
                "reshape gives k the shape [B, H, D, S] and leaves the numbers in their old order: its columns are not "
                "the keys. The shape is right, the scores are not: {got} at {place}, where {want} belongs. transpose "
                "swaps the axes themselves."
            ),
            lambda q, k: q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]),
        ),
        known(
            "keys_in_rows",
            N_("This is k @ qᵀ, [B, H, S, T] = {shape}: a row for each key. Each query needs a row: {wanted}."),
            lambda q, k: k @ q.mT,
        ),
        known(
            "summed_over_positions",
            N_("This is qᵀ @ k, which lines T = {T} up with S = {S}. A score sums over features: q @ kᵀ."),
            lambda q, k: q.mT @ k,
        ),
        known(
            "heads_compared",
            N_(
                "Here the heads of one token meet each other, [B, T, H, H]. Transpose the last two axes of k, not "
                "heads and positions."
            ),
            lambda q, k: q.transpose(1, 2) @ k.transpose(1, 2).mT,
        ),
        known(
            "heads_added_up",
            N_("The heads are added up: every head shows one and the same table. Each has its own; H must stay."),
            lambda q, k: torch.einsum("bhtd,bhsd->bts", q, k).unsqueeze(1).expand(-1, q.shape[1], -1, -1),
            lambda q, k: torch.einsum("bhtd,bgsd->bhts", q, k),
            lambda q, k: torch.einsum("bhtd,bhsd->bts", q, k),
        ),
        known(
            "scaled_already",
            N_("These are divided by √D = √{D} already. Asked for are the plain dot products; scaling comes next."),
            lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
        ),
        known(
            "keys_counted_as_queries",
            N_(
                "The loop over keys runs to T = {T}, but there are S = {S} of them: columns are missing, or keys are "
                "read that do not exist. Take S from k.shape."
            ),
            _by_loops_of_t,
        ),
        known(
            "last_key_left_out",
            N_("The last key is left out: its column is 0. range(S) already ends before S."),
            _without_the_last_key,
        ),
        known(
            "angles_alone",
            N_("This divides by the lengths of q and k: these are cosines. A score keeps the lengths."),
            lambda q, k: (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT,
            lambda q, k: torch.nn.functional.normalize(q, dim=-1) @ torch.nn.functional.normalize(k, dim=-1).mT,
        ),
        known(
            "weights_already",
            N_("These are weights: a softmax has been taken. Asked for are the scores before it."),
            lambda q, k: (q @ k.mT).softmax(dim=-1),
            lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1),
        ),
    ),
)


# ------------------------------------------------------------------ worked_score

WORKED_SCORE = Exercise(
    id="worked_score",
    notebook="02",
    kind="number",
    question=N_(
        "Two features, D = 2: q = [1, 0], and the keys are k1 = [1, 0], k2 = [0, 1], k3 = [1, 1]. What is the score of "
        "q for k3 after division by √D? Two digits after the point are enough."
    ),
    reference=2**-0.5,
    tolerance=0.008,
    why=N_("1·1 + 0·1 = 1, and 1/√2 is about 0.71. k1 gets the same score, k2 gets 0."),
    hints=(
        N_("First the dot product: feature by feature, then the sum."),
        N_("Then divide by the root of the number of features, √2."),
    ),
    minutes=2,
    review=2,
    mistakes=(
        known("not_scaled", N_("1 is the plain dot product. Divide it by √2."), 1),
        known("divided_by_d", N_("This divides by D = 2. The scale is its root, √2."), 0.5),
        known("multiplied", N_("This multiplies by √2. Scores are made smaller, not larger."), 2**0.5),
        known("score_of_k2", N_("That is k2's score: q and k2 share no feature."), 0),
        known(
            "weight_of_k3",
            N_("0.40 is k3's weight, after the softmax over all three scores. Asked for is its score."),
            0.401,
        ),
        known("sum_of_features", N_("This adds up k3 alone, or without q: q has a 0 that wipes out k3's second 1."), 2),
    ),
)


# ------------------------------------------------------------------ longer_key_wins

LONGER_KEY_WINS = Exercise(
    id="longer_key_wins",
    notebook="02",
    kind="choice",
    question=N_(
        "With q = [1, 0], the key k3 = [1, 1] points 45 degrees away from q, and k1 = [1, 0] points the same way. Both "
        "get the same score. Why?"
    ),
    choices={
        "a": N_("because the angle does not matter to a dot product"),
        "b": N_("because k3 is longer, and a dot product grows with the length as well as with the direction"),
        "c": N_("because the softmax makes them equal"),
        "d": N_("because of the division by √D"),
    },
    reference="b",
    why=N_("q·k = |q|·|k|·cos(angle): for k3 it is 1·√2·cos 45° = 1. A long key can win against a closer one."),
    hints=(
        N_("Work out the lengths of k1 and k3."),
        N_("q·k = |q|·|k|·cos(angle)."),
    ),
    minutes=1,
    review=2,
    mistakes=(
        known("angle_matters_too", N_("It does matter: k2, 90 degrees away, gets 0. Something makes up for it."), "a"),
        known(
            "before_any_softmax", N_("The scores are equal before any softmax, which only turns them into shares."), "c"
        ),
        known("one_scale_for_all", N_("Every score is divided by the same √D. That changes no order."), "d"),
    ),
)


EXERCISES = (CROSS_SCORES_SHAPE, ONE_SCORE, ALL_SCORES, WORKED_SCORE, LONGER_KEY_WINS)
