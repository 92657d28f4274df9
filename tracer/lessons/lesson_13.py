"""Exercises of notebook 13: the distance of two positions, what attention costs, a convolution that sees no future."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ causal_convolution


def causal_convolution(x: Tensor, w: Tensor) -> Tensor:
    """Mix each token with those before it in a window: x [B, T, C], w [window, C, C] -> [B, T, C]."""
    T, window = x.shape[1], w.shape[0]
    padded = torch.nn.functional.pad(x, (0, 0, window - 1, 0))  # [B, window-1+T, C]
    out = torch.zeros_like(x)
    for j in range(window):
        out = out + padded[:, j : j + T] @ w[j]  # [B, T, C] @ [C, C] -> [B, T, C]
    return out


def _convolved(x: Tensor, w: Tensor, left: int, right: int) -> Tensor:
    padded, window = F.pad(x, (0, 0, left, right)), w.shape[0]
    T = padded.shape[1] - window + 1
    return torch.stack([padded[:, j : j + T] @ w[j] for j in range(window)]).sum(dim=0)


def _convolution_cases(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B T window C",
        lambda n, fill: (draw.normal(n["B"], n["T"], n["C"]), draw.normal(n["window"], n["C"], n["C"])),
        derive=lambda n: {"T": max(n["T"], n["window"]), "window": min(n["T"], n["window"])},
    )


def _first_token_sees_more(case: Case, got: Tensor) -> Numbers | None:
    x, w = (arg.double() for arg in case.args)
    alone = x[:, 0] @ w[-1]
    wrong = ((got[:, 0] - alone).abs() > 0.02 * (1 + alone.abs())).nonzero()
    if not len(wrong):
        return None
    b, c = wrong[0].tolist()
    return {"b": b, "c": c, "got": f"{got[b, 0, c].item():.4g}", "want": f"{alone[b, c].item():.4g}"}


CAUSAL_CONVOLUTION = Exercise(
    id="causal_convolution",
    notebook="13",
    kind="function",
    question=N_(
        "Write causal_convolution(x, w) for x [B, T, C] and w [window, C, C]: out[t] is the sum over j of "
        "x[t - (window-1) + j] @ w[j]. So w[window-1] belongs to the token itself, w[window-2] to the one before it. "
        "What lies before the first token counts as 0. Return [B, T, C]."
    ),
    reference=causal_convolution,
    why=N_(
        "window - 1 rows of zeros on the left alone: then T outputs come of T inputs, and the window of position t "
        "ends at t."
    ),
    hints=(
        N_("A window moves over the tokens. Where must the first window end?"),
        N_("The first output needs window - 1 tokens that do not exist: zeros in front, and none behind."),
        N_("F.pad(x, (0, 0, window - 1, 0)) pads axis T on the left: its pairs begin with the LAST axis."),
    ),
    minutes=8,
    points=2,
    given=("B T C", "window C C"),
    axes=("B T C",),
    inputs=_convolution_cases,
    properties=(
        Property(
            id="the_first_token_sees_itself",
            says=N_(
                "Feature {c} of the first output of sentence {b} is {got}. The first token sees itself alone, which "
                "makes x[0] @ w[window-1] = {want}."
            ),
            fails=_first_token_sees_more,
        ),
    ),
    mistakes=(
        known(
            "padded_on_the_right",
            N_(
                "The zeros stand on the right: each output sees itself and what comes AFTER it. At {place} yours is "
                "{got}, and {want} is asked for."
            ),
            lambda x, w: _convolved(x, w, 0, w.shape[0] - 1),
        ),
        known(
            "padded_on_both_sides",
            N_(
                "The zeros are shared between both sides, as padding='same' does it: each output sees tokens after it. "
                "At {place} yours is {got}, and {want} is asked for."
            ),
            lambda x, w: _convolved(x, w, (w.shape[0] - 1) // 2, w.shape[0] - 1 - (w.shape[0] - 1) // 2),
            lambda x, w: _convolved(x, w, w.shape[0] - 1 - (w.shape[0] - 1) // 2, (w.shape[0] - 1) // 2),
        ),
        known(
            "padded_on_both_sides_in_full",
            N_(
                "window - 1 zeros stand on each side, so the result is too long, {shape}. conv1d's padding argument "
                "does that; cut the end off, or pad on the left alone: {wanted}."
            ),
            lambda x, w: _convolved(x, w, w.shape[0] - 1, w.shape[0] - 1),
        ),
        known(
            "not_padded",
            N_(
                "Nothing is padded, so the result is too short, {shape}: window - 1 outputs are missing at the front. "
                "{wanted}."
            ),
            lambda x, w: _convolved(x, w, 0, 0),
        ),
        known(
            "window_shifted_by_one",
            N_("The window ends one token too early: out[t] sees the tokens before t and not t itself."),
            lambda x, w: _convolved(x, w, w.shape[0], 0)[:, :-1],
        ),
        known(
            "window_turned_round",
            N_(
                "The window is turned round: w[0] meets the token itself and w[window-1] the oldest. It is the other "
                "way round. At {place} yours is {got}, and {want} is asked for."
            ),
            lambda x, w: causal_convolution(x, w.flip(0)),
        ),
        known(
            "matrices_transposed",
            N_(
                "Each w[j] is used transposed, as conv1d stores it, [out, in]. Here w[j] stands to the right of a row: "
                "x @ w[j]."
            ),
            lambda x, w: causal_convolution(x, w.transpose(1, 2)),
            lambda x, w: causal_convolution(x, w.flip(0).transpose(1, 2)),
        ),
        known(
            "token_alone",
            N_(
                "Only the token itself is used, with w[window-1]. The tokens before it, as far as the window reaches, "
                "count too."
            ),
            lambda x, w: x @ w[-1],
        ),
    ),
)


# ------------------------------------------------------------------ numbers and choices

PATH_LENGTH = Exercise(
    id="path_length",
    notebook="13",
    kind="number",
    question=N_(
        "Causal convolutions with a window of 3 are stacked. How many layers does it take until the output at position "
        "30 can depend on the input at position 0?"
    ),
    reference=15,
    why=N_("A window of 3 reaches 2 positions back, so 30 steps take 15 layers. Attention takes one, an RNN 30 steps."),
    hints=(
        N_("How far back does one layer reach? The window counts the token itself."),
        N_("Each further layer reaches as far again."),
    ),
    minutes=2,
    mistakes=(
        known("window_reaches_two_back", N_("The window holds 3 tokens, itself among them: it reaches 2 back."), 10),
        known(
            "steps_of_an_rnn", N_("That is one position for each step, as in an RNN. A window of 3 reaches 2 back."), 30
        ),
        known(
            "attention", N_("That is attention, where every position sees every one. A window of 3 reaches 2 back."), 1
        ),
        known("one_too_few", N_("14 layers reach 28 back, to position 2."), 14),
        known("one_too_many", N_("16 layers reach 32 back, further than needed."), 16),
    ),
)

SCORE_BYTES = Exercise(
    id="score_bytes",
    notebook="13",
    kind="number",
    question=N_(
        "N = 100,000 tokens, one head, one sentence, float32. How many bytes does the table of scores [N, N] take?"
    ),
    reference=4 * 100_000**2,
    why=N_(
        "10¹⁰ scores of 4 bytes: 40 GB, for one head of one layer. For N = 1,000,000 it is 100 times as much. Fused "
        "kernels compute the same without ever storing the table."
    ),
    hints=(
        N_("How many scores are there? One for each pair of a query and a key."),
        N_("A float32 takes 4 bytes."),
    ),
    minutes=2,
    mistakes=(
        known("numbers_not_bytes", N_("That is the number of scores. Each takes 4 bytes."), 100_000**2),
        known("one_row", N_("That is one row. Every one of the N queries has one."), 4 * 100_000),
        known(
            "half_precision", N_("That is 2 bytes for each score, as in float16. A float32 takes 4."), 2 * 100_000**2
        ),
        known(
            "double_precision", N_("That is 8 bytes for each score, as in float64. A float32 takes 4."), 8 * 100_000**2
        ),
        known("bits", N_("That is in bits: 32 for each score. In bytes it is 4."), 32 * 100_000**2),
        known("gigabytes", N_("That is in gigabytes. Asked for are bytes."), 40),
    ),
)

_N, _D_K, _D_V = 1000, 64, 32

ATTENTION_FLOPS = Exercise(
    id="attention_flops",
    notebook="13",
    kind="number",
    question=N_(
        "One head, N = 1000 queries and as many keys, d_k = 64, d_v = 32. How many FLOPs do the two products q kᵀ and "
        "weights @ v take together? Count a multiplication and an addition as 2."
    ),
    reference=2 * _N * _N * (_D_K + _D_V),
    why=N_(
        "2 N² d_k for the scores and 2 N² d_v for the mixing: 192 million. With N twice as long it is four times as "
        "much, while the projections only double."
    ),
    hints=(
        N_("A product of [n, m] and [m, p] makes n·p sums of m products each."),
        N_("q kᵀ: N·N sums of d_k products. weights @ v: N·d_v sums of N products."),
    ),
    minutes=4,
    points=2,
    mistakes=(
        known(
            "one_for_both",
            N_("A multiplication and an addition are counted as one. Here they are 2."),
            _N * _N * (_D_K + _D_V),
        ),
        known("scores_alone", N_("That is q kᵀ alone. weights @ v takes 2 N² d_v more."), 2 * _N * _N * _D_K),
        known("mixing_alone", N_("That is weights @ v alone. q kᵀ takes 2 N² d_k more."), 2 * _N * _N * _D_V),
        known(
            "linear_in_n", N_("N enters once only. Each of N queries meets each of N keys: N²."), 2 * _N * (_D_K + _D_V)
        ),
        known(
            "d_k_twice",
            N_("d_k is taken for both products. weights @ v makes rows of d_v numbers."),
            4 * _N * _N * _D_K,
        ),
        known(
            "widths_multiplied",
            N_("d_k and d_v are multiplied. The products come one after the other: add."),
            2 * _N * _N * _D_K * _D_V,
        ),
    ),
)

WHICH_IS_ATTENTION = Exercise(
    id="which_is_attention",
    notebook="13",
    kind="choice",
    question=N_(
        "For N positions of width d: how many steps must be taken one after the other, how many layers or steps lie "
        "between the two ends, what does a layer cost? Which row is self-attention's?"
    ),
    choices={
        "a": N_("N steps, N between the ends, N·d²"),
        "b": N_("1 step, N / window between the ends, window·N·d²"),
        "c": N_("1 step, 1 between the ends, N²·d"),
        "d": N_("N steps, 1 between the ends, N²·d"),
    },
    reference="c",
    why=N_("All pairs meet in one product: one step, one layer apart. The price is N²: every one meets every one."),
    hints=(
        N_("Can the score of one pair be computed before that of another?"),
        N_("In how many layers can the last token have seen the first?"),
    ),
    minutes=2,
    mistakes=(
        known("that_is_an_rnn", N_("That is an RNN: each state waits for the one before it."), "a"),
        known(
            "that_is_a_convolution",
            N_("That is a convolution: parallel, but a layer reaches no further than its window."),
            "b",
        ),
        known(
            "attention_need_not_wait",
            N_(
                "The cost and the distance are right. But no position waits for another, while a text is read or "
                "trained on."
            ),
            "d",
        ),
    ),
)


EXERCISES = (CAUSAL_CONVOLUTION, PATH_LENGTH, SCORE_BYTES, ATTENTION_FLOPS, WHICH_IS_ATTENTION)
