"""Exercises of notebook 16: shifted targets and their loss, the mask beside a cache, the next token's probabilities."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases
from .quote import rows, sums

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ inputs_and_targets


def inputs_and_targets(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Cut token ids into what is read and what is to be predicted: [B, T] -> twice [B, T-1]."""
    return ids[:, :-1], ids[:, 1:]


def _target_is_not_next(case: Case, got: tuple[Tensor, Tensor]) -> Numbers | None:
    ids = case.args[0].double()
    wrong = (got[1] != ids[:, 1:]).nonzero()
    if not len(wrong):
        return None
    b, t = wrong[0].tolist()
    found = {"got": got[1][b, t], "want": ids[b, t + 1], "input": ids[b, t]}
    return {"b": b, "t": t} | {name: int(number) for name, number in found.items()}


INPUTS_AND_TARGETS = Exercise(
    id="inputs_and_targets",
    notebook="16",
    kind="function",
    question=N_(
        "Write inputs_and_targets(ids): from token ids [B, T] make the inputs and the targets of next-token "
        "prediction, so that target t is the token after input t. No token is made up. Return two tensors [B, T-1]."
    ),
    reference=inputs_and_targets,
    why=N_(
        "The last token has no next one and the first is nobody's next: T - 1 pairs. With the causal mask all T - 1 "
        "predictions are trained at once."
    ),
    hints=(
        N_("Write a sentence of five tokens, and under each token the one that comes next. What has nothing under it?"),
        N_("Inputs: all but the last. Targets: all but the first. Which axis holds the tokens?"),
    ),
    minutes=3,
    points=2,
    given=("B T",),
    axes=("B T-1", "B T-1"),
    inputs=lambda draw: usual_cases(
        draw, "B T", lambda n, fill: (draw.ids(1000, n["B"], n["T"]),), derive=lambda n: {"T": n["T"] + (n["T"] == 1)}
    ),
    properties=(
        Property(
            id="target_t_is_the_next_token",
            says=N_("In sentence {b}, target {t} is {got}. The token after input {t} ({input}) is {want}."),
            fails=_target_is_not_next,
        ),
    ),
    mistakes=(
        known(
            "targets_not_shifted",
            N_(
                "Inputs and targets are the same tokens: input t already holds target t, and the model need only copy. "
                "A tiny model with nearly no loss is then a leak, not a success. Targets begin one token later."
            ),
            lambda ids: (ids, ids),
            lambda ids: (ids[:, :-1], ids[:, :-1]),
            lambda ids: (ids[:, 1:], ids[:, 1:]),
        ),
        known(
            "shifted_the_wrong_way",
            N_(
                "The shift goes the other way: each target is the token BEFORE its input, which the model has just "
                "read. Inputs are all but the last, targets all but the first."
            ),
            lambda ids: (ids[:, 1:], ids[:, :-1]),
        ),
        known(
            "wrapped_round",
            N_(
                "The targets wrap round: behind the last token the first one is asked for, which nobody can know. The "
                "last token has no target: both are [B, T-1]."
            ),
            lambda ids: (ids, ids.roll(-1, dims=1)),
            lambda ids: (ids, ids.roll(1, dims=1)),
        ),
        known(
            "batch_shifted",
            N_(
                "The shift runs along axis 0: a sentence is lost, and each is to predict another sentence. The tokens "
                "are axis 1: ids[:, :-1] and ids[:, 1:]."
            ),
            lambda ids: (ids[:-1], ids[1:]),
        ),
        known(
            "targets_alone_cut",
            N_("One of the two is cut, the other is not, so T inputs stand beside T - 1 targets. Cut both."),
            lambda ids: (ids, ids[:, 1:]),
            lambda ids: (ids[:, :-1], ids),
        ),
        known(
            "shifted_by_two",
            N_("The shift is two tokens long: each input is to predict the token after the next."),
            lambda ids: (ids[:, :-2], ids[:, 2:]),
        ),
    ),
)


# ------------------------------------------------------------------ next_token_loss


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Return the mean cross-entropy, in nats, of each token given those before it: [B, T, V] and [B, T] -> []."""
    logits, targets = logits[:, :-1], ids[:, 1:]  # [B, T-1, V], [B, T-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())  # [(B T-1), V], [(B T-1)] -> []


def _loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def _loss_cases(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B T V",
        lambda n, fill: (2 * draw.normal(n["B"], n["T"], n["V"]), draw.ids(n["V"], n["B"], n["T"])),
        derive=lambda n: {"T": max(n["T"], 2), "V": max(n["V"], 2)},
    )


NEXT_TOKEN_LOSS = Exercise(
    id="next_token_loss",
    notebook="16",
    kind="function",
    question=N_(
        "A model has read ids [B, T] and returned logits [B, T, V]: row t is about the token after t. Write "
        "next_token_loss(logits, ids): the mean of -ln p over all tokens that have a row about them. Return one number."
    ),
    reference=next_token_loss,
    why=N_("Row t is judged by token t + 1. The last row has no token to be judged by, and the first token no row."),
    hints=(
        N_("Which row of logits speaks about token 1? Which about token 0?"),
        N_("Cut the last row of the logits and the first of the ids, then all rows are in step."),
        N_("F.cross_entropy takes [n, V] and [n]: flatten B and T in both. It takes the logits as they are."),
    ),
    minutes=6,
    points=2,
    given=("B T V", "B T"),
    axes=("",),
    inputs=_loss_cases,
    mistakes=(
        known(
            "targets_not_shifted",
            N_(
                "Row t is judged by token t, which the model has read already. It speaks about token t + 1: the loss "
                "is {want}, yours is {got}."
            ),
            _loss,
            lambda logits, ids: _loss(logits[:, :-1], ids[:, :-1]),
        ),
        known(
            "shifted_the_wrong_way",
            N_("Row t + 1 is judged by token t. It is the other way round: row t speaks about token t + 1."),
            lambda logits, ids: _loss(logits[:, 1:], ids[:, :-1]),
        ),
        known(
            "wrapped_round",
            N_("The last row is judged too, by the first token. It has no token to be judged by: leave it out."),
            lambda logits, ids: _loss(logits, ids.roll(-1, dims=1)),
        ),
        known(
            "summed_not_averaged",
            N_(
                "The terms are added up, or divided by something other than their number, B·(T-1). Yours is {got}, the "
                "mean is {want}."
            ),
            lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:], "sum"),
            lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:], "sum") / len(ids),
            lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:], "sum") / ids.numel(),
            lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:], "sum") / ids.shape[1],
            lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:], "sum") / (ids.shape[1] - 1),
        ),
        known(
            "softmax_twice",
            N_(
                "cross_entropy takes logits and makes the softmax itself. Yours gets probabilities, so the softmax is "
                "taken twice: {got} instead of {want}."
            ),
            lambda logits, ids: _loss(logits[:, :-1].softmax(dim=-1), ids[:, 1:]),
        ),
        known(
            "sign_forgotten",
            N_("The sign is missing: ln p is negative, and the loss is minus that, {want}."),
            lambda logits, ids: -next_token_loss(logits, ids),
        ),
        known(
            "probability_not_its_logarithm",
            N_("The probabilities are averaged, not their logarithms. The loss is the mean of -ln p, {want}."),
            lambda logits, ids: logits[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None]).mean(),
            lambda logits, ids: -logits[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None]).mean(),
            lambda logits, ids: -logits[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None]).mean().log(),
        ),
        known(
            "last_position_alone",
            N_("Only the last prediction is judged. In training every position predicts its next token, all at once."),
            lambda logits, ids: F.cross_entropy(logits[:, -2], ids[:, -1]),
        ),
        known(
            "in_bits",
            N_("That is the loss in bits, with log₂. Asked for is ln: {want}."),
            lambda logits, ids: next_token_loss(logits, ids) / torch.tensor(2.0).log(),
        ),
    ),
)


# ------------------------------------------------------------------ cache_mask


def cache_mask(T: int, S: int) -> Tensor:
    """True where the last T of S tokens may look: [T, S]."""
    t = torch.arange(T).unsqueeze(1) + S - T  # [T, 1]: query t is token S - T + t
    return torch.arange(S) <= t  # [S] against [T, 1] -> [T, S]


def _additive(T: int, S: int) -> Tensor:
    """Another convention: 0 where a query may look, -inf elsewhere, to be added to the scores."""
    return torch.zeros(T, S).masked_fill(~cache_mask(T, S), float("-inf"))


def _band(T: int, S: int, diagonal: int) -> Tensor:
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal)


def _either(mask: Callable[[int, int], Tensor]) -> tuple[Callable[[int, int], Tensor], ...]:
    """Return a mask in both conventions."""
    return mask, lambda T, S: torch.zeros(T, S).masked_fill(~mask(T, S), float("-inf"))


def _mask_cases(draw: Draw) -> list[Case]:
    pairs = [sorted(draw.sizes("T S").values()) for _n in range(3)] + [[4, 4], [1, 6]]
    return [Case((T, S), {"T": T, "S": S}) for T, S in pairs]


def _last_query(case: Case, got: Tensor) -> Numbers | None:
    """The last query is the newest token: it may look at everything."""
    seen = int((got[-1] == got[-1, -1]).sum())
    return None if seen == case.sizes["S"] else {"seen": seen}


CACHE_MASK = Exercise(
    id="cache_mask",
    notebook="16",
    kind="function",
    question=N_(
        "A cache holds the keys of S - T earlier tokens; T new tokens come in, and there are S keys now. Write "
        "cache_mask(T, S): [T, S], True where a query may look. Each new token sees all earlier ones, and itself. (A "
        "mask to be added, 0 and -inf, is accepted too.)"
    ),
    reference=cache_mask,
    also=(_additive,),
    why=N_(
        "Query t is token S - T + t, so the triangle is aligned with the bottom right corner: tril(S - T). With one "
        "new token the whole row is True, and no mask is needed."
    ),
    hints=(
        N_("Which number has the first new token, counted from the beginning of the text?"),
        N_("For T = 2, S = 5: query 0 is token 3. How many keys may it see? And query 1?"),
        N_("A lower triangle whose diagonal is moved S - T to the right."),
    ),
    minutes=5,
    points=2,
    given=(None, None),
    axes=("T S",),
    inputs=_mask_cases,
    properties=(
        Property(
            id="the_newest_token_sees_everything",
            says=N_(
                "The last query is the newest token and may see all S = {S} keys. In yours it sees {seen} of them."
            ),
            fails=_last_query,
        ),
    ),
    mistakes=(
        known(
            "aligned_top_left",
            N_(
                "The triangle is aligned with the top left corner: query 0 sees key 0 alone, as if the new tokens "
                "stood at the beginning. They stand at the end: query 0 is token {first} and sees itself and every "
                "token before it. (is_causal=True of torch's kernel begins at the top left too.)"
            ),
            *_either(lambda T, S: _band(T, S, 0)),
            numbers=lambda case, got, want: {"first": case.sizes["S"] - case.sizes["T"]},
        ),
        known(
            "turned_round",
            N_(
                "The mask is turned round: True where a query may NOT look. Some functions want it so "
                "(nn.MultiheadAttention); here True means: may look."
            ),
            lambda T, S: ~cache_mask(T, S),
        ),
        known(
            "itself_hidden",
            N_("A token does not see itself: the diagonal is one too far to the left. Its own key is among the S."),
            *_either(lambda T, S: _band(T, S, S - T - 1)),
        ),
        known(
            "one_of_the_future",
            N_("Each query sees one token of the future: the diagonal is one too far to the right."),
            *_either(lambda T, S: _band(T, S, S - T + 1)),
        ),
        known(
            "everything_seen",
            N_(
                "Every query sees every key. That is right for one new token; of several, the earlier ones would see "
                "those after them."
            ),
            *_either(lambda T, S: torch.ones(T, S, dtype=torch.bool)),
        ),
        known(
            "future_instead_of_past",
            N_(
                "The upper triangle is kept: each query sees itself and what comes after it. The lower one is asked "
                "for."
            ),
            *_either(lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(S - T)),
        ),
        known(
            "rows_and_columns_exchanged",
            N_("This is [S, T] = {shape}. Queries are the rows, keys the columns: {wanted}."),
            lambda T, S: cache_mask(T, S).T,
        ),
        known(
            "square_mask",
            N_("The mask is square, {shape}. There are T queries and S keys: {wanted}."),
            lambda T, S: _band(T, T, 0),
            lambda T, S: _band(S, S, 0),
        ),
    ),
)


# ------------------------------------------------------------------ next_token_shares


def next_token_shares(logits: Tensor, K: int, temperature: float) -> Tensor:
    """Return the probabilities from which the next token is drawn: [B, V] -> [B, V]."""
    logits = logits / temperature
    least = logits.topk(K, dim=-1).values[:, -1:]  # [B, V] -> [B, K] -> [B, 1]
    return logits.masked_fill(logits < least, float("-inf")).softmax(dim=-1)  # [B, V]


def _top(logits: Tensor, K: int) -> Tensor:
    return logits >= logits.topk(K, dim=-1).values[:, -1:]


def _shares(logits: Tensor, K: int, temperature: float) -> Tensor:
    return logits.masked_fill(~_top(logits, K), float("-inf")).div(temperature).softmax(dim=-1)


def _sampling_cases(draw: Draw) -> list[Case]:
    temperatures = iter((0.5, 2.0, 0.7, 1.5, 0.6))
    return usual_cases(
        draw,
        "B V K",
        lambda n, fill: (2 * draw.normal(n["B"], n["V"]), n["K"], next(temperatures)),
        derive=lambda n: (
            {"V": max(n["V"], n["K"]) + (n["K"] == 1) * 2, "K": min(n["V"], n["K"])}
            if len(set(n.values())) > 1 or n["V"] == 1
            else {}
        ),
    )


def _not_k_shares(case: Case, got: Tensor) -> Numbers | None:
    K = case.args[1]
    wrong = ((got.sum(dim=-1) - 1).abs() > 0.02) | ((got > 1e-6).sum(dim=-1) > K) | (got < 0).any(dim=-1)
    if not bool(wrong.any()):
        return None
    b = int(wrong.nonzero()[0])
    return {"b": b, "left": int((got[b] > 1e-6).sum()), "sum": f"{got[b].sum().item():.3g}"}


NEXT_TOKEN_SHARES = Exercise(
    id="next_token_shares",
    notebook="16",
    kind="function",
    question=N_(
        "Write next_token_shares(logits, K, temperature): the logits [B, V] of the last position are divided by the "
        "temperature, all but the K largest of each sentence are ruled out, and what is left is turned into "
        "probabilities. Return [B, V], from which the next token would be drawn."
    ),
    reference=next_token_shares,
    why=N_(
        "What is ruled out gets -inf BEFORE the softmax, so the K that are left add up to 1. A temperature below 1 "
        "makes the favourite likelier still, above 1 less so."
    ),
    hints=(
        N_("The order: divide, rule out, softmax. As with the causal mask, what must not be drawn gets -inf."),
        N_("topk gives the K largest, in order. What is smaller than the last of them is ruled out."),
    ),
    minutes=6,
    points=2,
    given=("B V", None, None),
    axes=("B V",),
    inputs=_sampling_cases,
    properties=(
        Property(
            id="k_shares_add_up_to_1",
            says=N_(
                "In sentence {b}, {left} tokens can be drawn and the probabilities add up to {sum}. At most K = {K} "
                "may be left, and the sum is 1."
            ),
            fails=_not_k_shares,
        ),
    ),
    mistakes=(
        known(
            "temperature_multiplied",
            N_(
                "The logits are multiplied with the temperature. Divide: a high temperature makes the shares more "
                "equal."
            ),
            lambda logits, K, temperature: _shares(logits, K, 1 / temperature),
        ),
        known(
            "temperature_forgotten",
            N_("The temperature is not used: the shares are those of temperature 1."),
            lambda logits, K, temperature: _shares(logits, K, 1.0),
        ),
        known(
            "temperature_after_the_softmax",
            N_("The probabilities are divided, not the logits: they no longer add up to 1. Row {at} adds up to {sum}."),
            lambda logits, K, temperature: _shares(logits, K, 1.0) / temperature,
            numbers=sums,
        ),
        known(
            "ruled_out_after_the_softmax",
            N_(
                "What is ruled out is set to 0 after the softmax: row {at} adds up to {sum}. Its share has to go to "
                "those that are left. -inf before the softmax does that, or a division by the sum."
            ),
            lambda logits, K, temperature: (logits / temperature).softmax(dim=-1) * _top(logits, K),
            numbers=sums,
        ),
        known(
            "filled_with_zero",
            N_(
                "What is ruled out gets the logit 0, and exp(0) = 1 is a share like others. Fill with -inf. Row {at} "
                "is {got}, and {want} is asked for."
            ),
            lambda logits, K, temperature: (logits / temperature * _top(logits, K)).softmax(dim=-1),
            numbers=rows,
        ),
        known(
            "nothing_ruled_out",
            N_("All V tokens can still be drawn. Only the K largest of each sentence stay."),
            lambda logits, K, temperature: (logits / temperature).softmax(dim=-1),
        ),
        known(
            "smallest_kept",
            N_("The K smallest are kept, or the K largest are ruled out. The K largest stay."),
            lambda logits, K, temperature: _shares(logits, K, -temperature),
            lambda logits, K, temperature: (
                logits.masked_fill(~_top(-logits, K), float("-inf")).div(temperature).softmax(dim=-1)
            ),
        ),
        known(
            "equal_shares",
            N_("The tokens that are left are all equally likely. The logits say how likely each is."),
            lambda logits, K, temperature: _top(logits, K) / K,
        ),
        known(
            "shares_without_places",
            N_(
                "These are K shares, {shape}, largest first. Which tokens they belong to is lost: {wanted} is asked "
                "for."
            ),
            lambda logits, K, temperature: (logits / temperature).topk(K, dim=-1).values.softmax(dim=-1),
        ),
        known(
            "softmax_over_the_batch",
            N_(
                "The softmax runs over the batch: sentences compete for a token. In each sentence the tokens compete: "
                "dim=-1."
            ),
            lambda logits, K, temperature: logits.masked_fill(~_top(logits, K), -1e9).div(temperature).softmax(dim=0),
        ),
    ),
)


# ------------------------------------------------------------------ passes

PASSES = Exercise(
    id="passes",
    notebook="16",
    kind="choice",
    question=N_(
        "A text of 100 tokens is there to train on; later 100 tokens are to be generated. How many passes through the "
        "model, one after the other, does each take?"
    ),
    choices={
        "a": N_("1 for training, 1 for generating"),
        "b": N_("100 for training, 1 for generating with a cache"),
        "c": N_("100 for training, 100 for generating"),
        "d": N_("1 for training, 100 for generating"),
    },
    reference="d",
    why=N_(
        "In training all targets are known, and the mask keeps each position from seeing its own: one pass. In "
        "generation a token has to be drawn before it can be read."
    ),
    hints=(
        N_("What must be known before position 50 can be computed, and is it known in training?"),
        N_("A cache saves work within a pass. Does it save a pass?"),
    ),
    minutes=2,
    mistakes=(
        known(
            "a_token_must_be_drawn_first",
            N_("Before the next token can be made, the one before it must have been drawn and read."),
            "a",
        ),
        known(
            "targets_are_known", N_("In training the whole text is known: all positions are computed in one pass."), "c"
        ),
        known(
            "a_cache_saves_no_pass",
            N_(
                "It is the other way round; a cache makes a pass cheaper, one new token instead of all, and saves none."
            ),
            "b",
        ),
    ),
)


EXERCISES = (INPUTS_AND_TARGETS, NEXT_TOKEN_LOSS, CACHE_MASK, NEXT_TOKEN_SHARES, PASSES)
