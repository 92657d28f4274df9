"""Exercises of notebook 11: additive attention and why it needs its tanh, the softmax over the input, the context."""

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases
from .quote import rows, sums

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ additive_scores


def additive_scores(s: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Compare one decoder state with every encoder state: [B, C] and [B, S, C] -> [B, S]."""
    query = (s @ w).unsqueeze(1)  # [B, C] @ [C, M] -> [B, M] -> [B, 1, M]
    return torch.tanh(query + h @ u) @ v  # [B, S, M] @ [M] -> [B, S]


def _additive_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: object) -> tuple[Tensor, ...]:
        matrices = (draw.normal(n["C"], n["M"]) / 2, draw.normal(n["C"], n["M"]) / 2, draw.normal(n["M"]))
        return draw.normal(n["B"], n["C"]), draw.normal(n["B"], n["S"], n["C"]), *matrices

    return usual_cases(draw, "B S C M", build)


def _beyond_the_tanh(case: Case, got: Tensor) -> Numbers | None:
    """As tanh stays between -1 and 1, a score stays within the sum of |v|."""
    most = case.args[-1].abs().sum().item()
    wrong = (got.abs() > most * 1.02 + 1e-3).nonzero()
    if not len(wrong):
        return None
    b, i = wrong[0].tolist()
    return {"b": b, "i": i, "got": f"{got[b, i].item():.4g}", "most": f"{most:.4g}"}


ADDITIVE_SCORES = Exercise(
    id="additive_scores",
    notebook="11",
    kind="function",
    question=N_(
        "Write additive_scores(s, h, w, u, v): score i = v · tanh(s W + h_i U), for one decoder state s [B, C] and the "
        "encoder states h [B, S, C]; w and u are [C, M], v is [M]. Return the scores before the softmax, [B, S]."
    ),
    reference=additive_scores,
    why=N_(
        "s W is the same for every input position; h_i U is not. The tanh ties the two together before v sums up, so "
        "that which input fits depends on the state of the decoder."
    ),
    hints=(
        N_("There are S sums to make. Which of the two terms has an axis S, and which has to be repeated along it?"),
        N_("s @ w is [B, M]. As [B, 1, M] it can be added to h @ u, [B, S, M]."),
        N_("tanh comes before v: torch.tanh(...) @ v takes M away and leaves [B, S]."),
    ),
    minutes=6,
    points=2,
    given=("B C", "B S C", "C M", "C M", "M"),
    axes=("B S",),
    inputs=_additive_cases,
    properties=(
        Property(
            id="tanh_bounds_a_score",
            says=N_(
                "Score {i} of sentence {b} is {got}. tanh stays between -1 and 1, so no score can be beyond the sum of "
                "|v|, which is {most}."
            ),
            fails=_beyond_the_tanh,
        ),
    ),
    mistakes=(
        known(
            "tanh_forgotten",
            N_(
                "The tanh is missing: v · (s W + h_i U). Then s adds the same number to every score, the softmax "
                "cancels it, and the attention is the same for all states of the decoder."
            ),
            lambda s, h, w, u, v: ((s @ w).unsqueeze(1) + h @ u) @ v,
        ),
        known(
            "tanh_outside",
            N_(
                "tanh is taken of the score, after v has summed up. It belongs inside, before v: v · tanh(...). At "
                "{place} yours is {got}, and {want} is asked for."
            ),
            lambda s, h, w, u, v: torch.tanh(((s @ w).unsqueeze(1) + h @ u) @ v),
        ),
        known(
            "tanh_of_each_part",
            N_(
                "tanh is taken of each part, and the sum comes after: then s again adds the same to every score. Add "
                "first, then tanh."
            ),
            lambda s, h, w, u, v: (torch.tanh(s @ w).unsqueeze(1) + torch.tanh(h @ u)) @ v,
        ),
        known(
            "another_nonlinearity",
            N_("There is a nonlinearity, but it is not tanh. At {place} yours is {got}, and {want} is asked for."),
            lambda s, h, w, u, v: torch.relu((s @ w).unsqueeze(1) + h @ u) @ v,
            lambda s, h, w, u, v: torch.sigmoid((s @ w).unsqueeze(1) + h @ u) @ v,
        ),
        known(
            "w_and_u_exchanged",
            N_(
                "The matrices have changed places: w belongs to the state s of the decoder, u to the states h of the "
                "encoder."
            ),
            lambda s, h, w, u, v: torch.tanh((s @ u).unsqueeze(1) + h @ w) @ v,
        ),
        known(
            "multiplied_instead_of_added",
            N_("s W and h_i U are multiplied. This score is called additive because they are added."),
            lambda s, h, w, u, v: torch.tanh((s @ w).unsqueeze(1) * (h @ u)) @ v,
            lambda s, h, w, u, v: ((s @ w).unsqueeze(1) * (h @ u)) @ v,
        ),
        known(
            "dot_product_score",
            N_(
                "This is a dot product of s and h_i, another way to score. Asked for is the additive one, with w, u "
                "and v."
            ),
            lambda s, h, w, u, v: (h @ s.unsqueeze(-1)).squeeze(-1),
            lambda s, h, w, u, v: ((h @ u) @ (s @ w).unsqueeze(-1)).squeeze(-1),
        ),
        known(
            "softmax_already",
            N_("The softmax has been taken already. Asked for are the scores before it."),
            lambda s, h, w, u, v: additive_scores(s, h, w, u, v).softmax(dim=-1),
        ),
        known(
            "one_state_left_out",
            N_("Only one of the two enters the scores. Both the state of the decoder and those of the encoder do."),
            lambda s, h, w, u, v: torch.tanh(h @ u) @ v,
        ),
        known(
            "state_not_lined_up",
            N_(
                "s @ w is [B, M] and h @ u is [B, S, M]: without an axis of size 1 in the middle B would stand under "
                "S. Write (s @ w).unsqueeze(1) for [B, 1, M]."
            ),
            lambda s, h, w, u, v: torch.tanh(s @ w + h @ u) @ v,
        ),
    ),
)


# ------------------------------------------------------------------ alignment_weights


def alignment_weights(scores: Tensor) -> Tensor:
    """Turn the scores of T outputs for S inputs into shares over the inputs: [B, T, S] -> [B, T, S]."""
    return scores.softmax(dim=-1)


def _row_sum(case: Case, got: Tensor) -> Numbers | None:
    total = got.sum(dim=-1)
    wrong = ((total - 1).abs() > 0.02).nonzero()
    if not len(wrong):
        return None
    b, t = wrong[0].tolist()
    return {"b": b, "t": t, "sum": f"{total[b, t].item():.4g}"}


ALIGNMENT_WEIGHTS = Exercise(
    id="alignment_weights",
    notebook="11",
    kind="function",
    question=N_(
        "scores [B, T, S] compare T output steps with S input positions. Write alignment_weights(scores): the "
        "attention weights, so that each output step has a distribution over the input."
    ),
    reference=alignment_weights,
    why=N_("One distribution for each output step: the softmax runs over the input axis, S, the last one."),
    hints=(
        N_("Fix one output step. Which numbers have to add up to 1?"),
        N_("The axis over which the sum is 1 is the one that softmax runs over."),
    ),
    minutes=3,
    given=("B T S",),
    axes=("B T S",),
    inputs=lambda draw: usual_cases(
        draw,
        "B T S",
        lambda n, fill: (3 * draw.normal(n["B"], n["T"], n["S"]),),
        derive=lambda n: {"S": n["S"] + (n["S"] == 1)},
    ),
    properties=(
        Property(
            id="each_output_step_adds_up_to_1",
            says=N_(
                "In sentence {b}, the weights of output step {t} add up to {sum}. Over the input they add up to 1."
            ),
            fails=_row_sum,
        ),
    ),
    mistakes=(
        known(
            "softmax_over_the_outputs",
            N_(
                "The softmax runs over T, the output steps: they compete for each input position. The weights of row "
                "{at} add up to {sum}; over the input, dim=-1, they would add up to 1."
            ),
            lambda scores: scores.softmax(dim=1),
            numbers=sums,
        ),
        known(
            "softmax_over_the_batch",
            N_("The softmax runs over axis 0, the batch: sentences that have nothing to do with each other compete."),
            lambda scores: scores.softmax(dim=0),
        ),
        known(
            "softmax_over_both",
            N_("All T·S weights together add up to 1. Each output step needs a distribution of its own."),
            lambda scores: scores.flatten(1).softmax(dim=-1).view_as(scores),
            lambda scores: scores.flatten().softmax(dim=-1).view_as(scores),
        ),
        known(
            "divided_without_exp",
            N_(
                "The scores are divided by their sum, without exp. Scores may be negative, and their sum may be close "
                "to 0: row {at} is {got}, and {want} is asked for."
            ),
            lambda scores: scores / scores.sum(dim=-1, keepdim=True),
            lambda scores: scores.abs() / scores.abs().sum(dim=-1, keepdim=True),
            numbers=rows,
        ),
        known(
            "not_normalised",
            N_("Every number is positive, but nothing divides by the sum: row {at} adds up to {sum}."),
            lambda scores: scores.exp(),
            lambda scores: scores.sigmoid(),
            numbers=sums,
        ),
        known(
            "logarithm_of_the_weights",
            N_("These are the logarithms of the weights: log_softmax serves the loss. Weights lie between 0 and 1."),
            lambda scores: scores.log_softmax(dim=-1),
        ),
    ),
)


# ------------------------------------------------------------------ context_vectors


def context_vectors(weights: Tensor, h: Tensor) -> Tensor:
    """Sum the encoder states up, weighted, for each output step: [B, T, S] and [B, S, C] -> [B, T, C]."""
    return weights @ h


CONTEXT_VECTORS = Exercise(
    id="context_vectors",
    notebook="11",
    kind="function",
    question=N_(
        "Write context_vectors(weights, h): for each of T output steps the sum of the encoder states h [B, S, C], "
        "weighted with that step's row of weights [B, T, S]. Return [B, T, C]."
    ),
    reference=context_vectors,
    why=N_(
        "A weighted sum over S for each row is a matrix product, [T, S] @ [S, C]. A fixed context is the special case "
        "in which all rows are equal and lie on the last state."
    ),
    hints=(
        N_("Which axis is summed over? Both tensors have it."),
        N_("Write the last two axes of both one after the other: [T, S] and [S, C]."),
    ),
    minutes=4,
    given=("B T S", "B S C"),
    axes=("B T C",),
    inputs=lambda draw: usual_cases(
        draw,
        "B T S C",
        lambda n, fill: (draw.normal(n["B"], n["T"], n["S"]).softmax(dim=-1), fill(n["B"], n["S"], n["C"])),
        derive=lambda n: {"S": n["S"] + (n["S"] == 1)},
    ),
    mistakes=(
        known(
            "plain_mean",
            N_(
                "Every state has the same weight: this is the mean of h, or its sum, and the weights are not used. Row "
                "{at} is {got}, and {want} is asked for."
            ),
            lambda weights, h: h.mean(dim=1, keepdim=True).expand(-1, weights.shape[1], -1),
            lambda weights, h: h.sum(dim=1, keepdim=True).expand(-1, weights.shape[1], -1),
            numbers=rows,
        ),
        known(
            "last_state_alone",
            N_(
                "Every output step gets the last encoder state: the fixed context, the bottleneck that attention was "
                "made to avoid. Row {at} is {got}, and {want} is asked for."
            ),
            lambda weights, h: h[:, -1:].expand(-1, weights.shape[1], -1),
            numbers=rows,
        ),
        known(
            "heaviest_state_alone",
            N_(
                "Each step takes the one state with the largest weight. Attention takes all of them, each with its "
                "share, so that it can learn by gradients which share is right."
            ),
            lambda weights, h: h.gather(1, weights.argmax(dim=-1, keepdim=True).expand(-1, -1, h.shape[-1])),
        ),
        known(
            "divided_once_more",
            N_(
                "The weights add up to 1 already. Yours are normalised once more, by another softmax or a division by "
                "S."
            ),
            lambda weights, h: weights.softmax(dim=-1) @ h,
            lambda weights, h: weights @ h / h.shape[1],
        ),
        known(
            "weights_transposed",
            N_(
                "The weights are transposed, so that T is to be summed over, and h has no axis T. The sum runs over S: "
                "[B, T, S] @ [B, S, C]."
            ),
            lambda weights, h: weights.transpose(1, 2) @ h,
        ),
        known(
            "not_summed_up",
            N_("The states are weighted and not summed up yet: {shape}. The sum over S leaves {wanted}."),
            lambda weights, h: weights.unsqueeze(-1) * h.unsqueeze(1),
        ),
        known(
            "laid_on_its_side",
            N_("Rows and columns have changed places: this is [B, C, T] = {shape}. Asked for is [B, T, C] = {wanted}."),
            lambda weights, h: h.transpose(1, 2) @ weights.transpose(1, 2),
        ),
    ),
)


# ------------------------------------------------------------------ shape, choices

ATTENTION_MAP_SHAPE = Exercise(
    id="attention_map_shape",
    notebook="11",
    kind="shape",
    question=N_(
        "A batch of B sentences with S input tokens is translated into T output tokens, by an RNN with attention. The "
        "rows of weights of all steps are stacked to attention maps. Which shape have they, outputs as rows?"
    ),
    reference="B T S",
    why=N_("One row for each output step, over all inputs. There are no heads here: one distribution for each step."),
    hints=(
        N_("One step of the decoder has one weight for each input token. How many steps are there?"),
        N_("The batch stands first, then the rows, then the columns."),
    ),
    minutes=1,
    mistakes=(
        known(
            "inputs_as_rows",
            N_("Outputs are the rows, inputs the columns: each row is the look back of one step."),
            "B S T",
        ),
        known("batch_forgotten", N_("That is the map of one sentence. There are B of them."), "T S", "S T"),
        known(
            "heads_not_yet", N_("This attention has no heads; they came with the Transformer."), "B H T S", "B H T T"
        ),
        known(
            "square_map",
            N_("Input and output are two sentences of different lengths: the map is not square."),
            "B T T",
            "B S S",
        ),
        known(
            "contexts", N_("That is the shape of the context vectors, which the weights make of the states."), "B T C"
        ),
    ),
)

WITHOUT_TANH = Exercise(
    id="without_tanh",
    notebook="11",
    kind="choice",
    question=N_(
        "The tanh is left out: score i = v · (W s + U h_i), one linear layer on [s; h_i]. After the softmax over the "
        "input, what do the weights depend on?"
    ),
    choices={
        "a": N_("On both, as before; only training takes longer."),
        "b": N_("On the decoder state alone: all inputs get the same weight."),
        "c": N_("On the encoder states alone: the same weights for every state of the decoder."),
        "d": N_("On both, but the weights no longer add up to 1."),
    },
    reference="c",
    why=N_(
        "v · W s is one number that is added to all S scores, and a softmax does not change when the same number is "
        "added everywhere. The decoder's state cancels."
    ),
    hints=(
        N_("Which part of the score has no i in it?"),
        N_("Try softmax([1, 2, 3]) and softmax([11, 12, 13])."),
    ),
    minutes=3,
    mistakes=(
        known(
            "inputs_still_differ",
            N_("U h_i still differs from input to input, so the weights are not all the same."),
            "b",
        ),
        known(
            "the_state_cancels",
            N_("Multiply it out: v · W s is the same number for every i. What does a softmax do with it?"),
            "a",
        ),
        known("softmax_still_normalises", N_("The softmax is still there, and its shares always add up to 1."), "d"),
    ),
)

WHAT_GROWS = Exercise(
    id="what_grows_with_the_input",
    notebook="11",
    kind="choice",
    question=N_(
        "An RNN encoder-decoder WITHOUT attention reads 10 tokens, then 1,000. Its states have 1,024 numbers. What "
        "does the decoder get of the longer input?"
    ),
    choices={
        "a": N_("100 times as many numbers"),
        "b": N_("1,024 numbers for each output step, a different set each time"),
        "c": N_("all 1,000 states, but only the first 10 are used"),
        "d": N_("1,024 numbers, as before"),
    },
    reference="d",
    why=N_(
        "The last state is all that crosses over: 1,024 numbers for ten words and for a book. That is the bottleneck."
    ),
    hints=(
        N_("The context is the last state of the encoder."),
        N_("How long the input was does not change the size of a state."),
    ),
    minutes=1,
    mistakes=(
        known("state_keeps_its_size", N_("A state has 1,024 numbers, however many tokens have gone into it."), "a"),
        known(
            "one_state_crosses_over", N_("Without attention one state is handed over, the last one, and no other."), "c"
        ),
        known("that_is_attention", N_("A new context at each step is what attention adds. Here it is made once."), "b"),
    ),
)


EXERCISES = (ADDITIVE_SCORES, ALIGNMENT_WEIGHTS, CONTEXT_VECTORS, ATTENTION_MAP_SHAPE, WITHOUT_TANH, WHAT_GROWS)
