"""Exercises of notebook 18: repair an attention layer, read traces, count the parameters of a published model."""

import math
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, known, usual_cases

__all__ = ["EXERCISES", "broken_attention", "llama_parameters"]


# ------------------------------------------------------------------ repaired_attention


def broken_attention(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    """Causal attention that runs, has the right shape, and is wrong in four lines: [B, T, C] -> [B, T, C]."""
    B, T, C = x.shape
    q, k, v = (x @ w_qkv).chunk(3, dim=-1)
    q, k, v = (z.reshape(B, H, T, C // H) for z in (q, k, v))
    scores: Tensor = q @ k.transpose(-2, -1) / C**0.5
    weights = scores.softmax(dim=-1)
    weights = weights * torch.ones(T, T).tril()
    heads = weights @ v
    return heads.reshape(B, T, C) @ w_o


def repaired_attention(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    """Causal multi-head self-attention: [B, T, C], [C, 3C], [C, C] -> [B, T, C]."""
    B, T, C = x.shape
    q, k, v = (x @ w_qkv).chunk(3, dim=-1)  # [B, T, 3C] -> 3 x [B, T, C]
    q, k, v = (z.view(B, T, H, C // H).transpose(1, 2) for z in (q, k, v))  # 3 x [B, H, T, D]
    scores: Tensor = q @ k.transpose(-2, -1) / (C // H) ** 0.5  # [B, H, T, T]
    scores = scores.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
    heads = scores.softmax(dim=-1) @ v  # [B, H, T, D]
    return heads.transpose(1, 2).reshape(B, T, C) @ w_o


FAULTS = ("split", "scale", "mask", "merge")


def _with(*faults: str) -> Any:
    """Return the layer with these of the four faults left in it."""

    def attention(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
        B, T, C = x.shape
        parts = (x @ w_qkv).chunk(3, dim=-1)
        if "split" in faults:
            q, k, v = (z.reshape(B, H, T, C // H) for z in parts)
        else:
            q, k, v = (z.view(B, T, H, C // H).transpose(1, 2) for z in parts)
        scores = q @ k.mT / math.sqrt(C if "scale" in faults else C // H)
        keep = torch.ones(T, T, dtype=torch.bool).tril()
        if "mask" in faults:
            weights = scores.softmax(dim=-1) * keep
        else:
            weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)
        heads = weights @ v
        return (heads if "merge" in faults else heads.transpose(1, 2)).reshape(B, T, C) @ w_o

    return attention


def _unmasked(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    q, k, v = (torch.unflatten(z, -1, (H, -1)).transpose(1, 2) for z in (x @ w_qkv).chunk(3, dim=-1))
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2) @ w_o


def _layer_cases(draw: Draw) -> list[Case]:
    return usual_cases(
        draw,
        "B T H D",
        lambda n, fill: (
            draw.normal(n["B"], n["T"], n["C"]),
            draw.normal(n["C"], 3 * n["C"]) / n["C"] ** 0.5,
            draw.normal(n["C"], n["C"]),
            n["H"],
        ),
        derive=lambda n: {"T": n["T"] + 2 * (n["T"] == 1)},
    )


REPAIRED_ATTENTION = Exercise(
    id="repaired_attention",
    notebook="18",
    kind="function",
    question=N_(
        "broken_attention in tracer.lessons.lesson_18 runs, and its result has the right shape. Four of its lines are "
        "wrong. Trace it, read the warnings and the shapes, and hand in repaired_attention(x, w_qkv, w_o, H): causal "
        "self-attention with H heads for x [B, T, C], w_qkv [C, 3C], w_o [C, C]."
    ),
    reference=repaired_attention,
    why=N_(
        "Split with a transpose, scale by the head's size, mask before the softmax, merge with a transpose. None of "
        "the four faults shows in a shape: names and numbers show them."
    ),
    hints=(
        N_("Trace it with axes: the warnings name the lines where an axis is cut across or merged with a stranger."),
        N_("Two lines are about the order of axes, one about a size, one about the order of two operations."),
        N_(
            "Split: view(B, T, H, D), then transpose. Scale: D, not C. Mask: -inf, before. Merge: transpose, then "
            "reshape."
        ),
    ),
    minutes=12,
    points=4,
    review=5,
    given=("B T C", "C 3C", "C C", None),
    axes=("B T C",),
    inputs=_layer_cases,
    mistakes=(
        known(
            "heads_still_cut_across",
            N_(
                "Three of the four are repaired. The split is still a reshape straight to [B, H, T, D]: it cuts across "
                "tokens and features. Cut C alone, [B, T, H, D], then bring H before T."
            ),
            _with("split"),
        ),
        known(
            "scale_still_of_the_width",
            N_(
                "Three of the four are repaired. The scores are still divided by √C = √{C}; a score of one head is a "
                "sum of D = {D} products."
            ),
            _with("scale"),
        ),
        known(
            "mask_still_after_the_softmax",
            N_(
                "Three of the four are repaired. The mask still comes after the softmax: the future has taken its "
                "share before, and rows add up to less than 1."
            ),
            _with("mask"),
        ),
        known(
            "merge_still_without_transpose",
            N_(
                "Three of the four are repaired. The heads are still merged without the transpose back: a row holds "
                "several tokens of one head."
            ),
            _with("merge"),
        ),
        known(
            "several_faults_left",
            N_(
                "Some of the four are still there: the split, the scale, the mask, the merge. Trace your function: its "
                "warnings name what shapes do not show."
            ),
            broken_attention,
            *(_with(*left) for count in (2, 3) for left in combinations(FAULTS, count)),
        ),
        known(
            "mask_removed",
            N_(
                "All else is right, but nothing is masked now. It is causal attention: a token sees itself and what "
                "comes before it."
            ),
            _unmasked,
        ),
        known(
            "projection_lost",
            N_("All else is right, but W_O is gone: the merged heads are to be projected with w_o."),
            lambda x, w_qkv, w_o, H: repaired_attention(x, w_qkv, torch.eye(x.shape[-1]), H),
        ),
    ),
)


# ------------------------------------------------------------------ reading traces

NAME_THE_STEP = Exercise(
    id="name_the_step",
    notebook="18",
    kind="choice",
    question=N_(
        "A trace shows [B, T, H, D] -> [B, H, T, D] with the memory kind 'view', no bytes written, and strides in "
        "another order. Which step was it?"
    ),
    choices={
        "a": N_("reshape(B, H, T, D)"),
        "b": N_("contiguous()"),
        "c": N_("transpose(1, 2)"),
        "d": N_("view(B, H, T, D)"),
    },
    reference="c",
    why=N_("Axes that change places by name are a transpose: it moves no number and changes only the strides."),
    hints=(
        N_("Which of them can bring H before T without copying anything?"),
        N_("view and reshape never change the order in which numbers are read."),
    ),
    minutes=1,
    review=1,
    mistakes=(
        known(
            "reshape_keeps_the_order",
            N_(
                "reshape reads the numbers in their old order and draws new borders: the names would be cut across, or "
                "`?`."
            ),
            "a",
        ),
        known(
            "contiguous_copies",
            N_("contiguous() leaves the axes where they are, and writes a copy of the numbers."),
            "b",
        ),
        known(
            "view_cuts_across",
            N_("view draws new borders in the old order. T and H would not change places but be cut across."),
            "d",
        ),
    ),
)

READ_THE_STEP = Exercise(
    id="read_the_step",
    notebook="18",
    kind="shape",
    question=N_(
        "A trace shows matmul with the inputs [B, H, T, S] and [B, H, S, D_v]. Which output label stands beside it?"
    ),
    reference="B H T D_v",
    why=N_("S is the axis that both share, last of the one and second to last of the other: it is summed away."),
    hints=(
        N_("The inner two letters are the same. They vanish."),
        N_("B and H stand in both and stay where they are."),
    ),
    minutes=1,
    review=4,
    mistakes=(
        known(
            "summed_axis_kept",
            N_("S is summed away: it is the axis that both inputs share."),
            "B H T S",
            "B H S D_v",
            "B H T S D_v",
        ),
        known("queries_lost", N_("T stays: there is a row for each query."), "B H D_v", "B H D_v D_v"),
        known(
            "outer_axes_lost", N_("B and H are not touched by the product, and stay."), "T D_v", "H T D_v", "B T D_v"
        ),
        known(
            "turned_round", N_("The rows are those of the first input, the columns those of the second."), "B H D_v T"
        ),
        known(
            "heads_merged_already", N_("The heads are merged by a later step, not by this one."), "B T (H D_v)", "B T C"
        ),
    ),
)


# ------------------------------------------------------------------ llama_parameters


def llama_parameters(
    *, n_layer: int, n_embd: int, n_head: int, n_kv_head: int, d_mlp: int, vocab_size: int, tied: bool = False
) -> int:
    """Return how many numbers a Llama learns: no biases, no position table, RMSNorms with a gain alone.

    Touvron et al. 2023; each block: q [C, C], k and v [(G D), C], o [C, C], three matrices of SwiGLU, two norms.
    """
    C, GD = n_embd, n_embd // n_head * n_kv_head
    block = 2 * C * C + 2 * GD * C + 3 * C * d_mlp + 2 * C
    return vocab_size * C * (1 if tied else 2) + n_layer * block + C


_LLAMA: dict[str, Any] = {
    "n_layer": 32,
    "n_embd": 4096,
    "n_head": 32,
    "n_kv_head": 8,
    "d_mlp": 14336,
    "vocab_size": 128256,
}
_C, _L, _M = 4096, 32, 14336
_TOTAL = llama_parameters(**_LLAMA)

COUNT_LLAMA = Exercise(
    id="count_llama",
    notebook="18",
    kind="number",
    question=N_(
        "Llama 3 8B: 32 layers, C = 4096, 32 query heads and 8 key/value heads, SwiGLU with M = 14336, V = 128256, "
        "RMSNorm (two in each block, one at the end), rotary positions, no biases, a head of its own. How many "
        "parameters?"
    ),
    reference=_TOTAL,
    why=N_("8,030,261,248, as published. Seven in ten of them are in the MLPs; the positions cost nothing."),
    hints=(
        N_("Token table and head: V·C each. One norm at the end: C. The rest is 32 times one block."),
        N_("q and the output projection are C·C. k and v have 8 heads of D = 128: 1024·C each."),
        N_("SwiGLU has three matrices of C·M; each of the two norms has C numbers."),
    ),
    minutes=8,
    points=3,
    mistakes=(
        known(
            "query_heads_for_keys_too",
            N_("Keys and values are counted with 32 heads. They have 8: [1024, C] each."),
            llama_parameters(**(_LLAMA | {"n_kv_head": 32})),
        ),
        known(
            "head_forgotten",
            N_("The head, or the token table, is missing: V·C each."),
            llama_parameters(**_LLAMA, tied=True),
        ),
        known(
            "two_matrices_in_the_mlp",
            N_("The MLP is counted with two matrices. SwiGLU has three: gate, up and down."),
            _TOTAL - _L * _C * _M,
        ),
        known("last_norm_forgotten", N_("The norm after the last block is missing: C numbers."), _TOTAL - _C),
        known(
            "norms_forgotten",
            N_("The norms are missing: two in each block and one at the end, C numbers each."),
            _TOTAL - 65 * _C,
        ),
        known(
            "norms_with_shift",
            N_("The norms are counted with a shift. RMSNorm has a gain alone."),
            _TOTAL + 65 * _C,
        ),
        known(
            "output_projection_forgotten",
            N_("One C·C matrix is missing in each block: that of the queries, or the output projection."),
            _TOTAL - _L * _C * _C,
        ),
        known(
            "values_forgotten",
            N_("Keys or values are missing: one [1024, C] matrix in each block."),
            _TOTAL - _L * _C * 1024,
        ),
        known(
            "one_block_alone",
            N_("Only one block is counted. There are 32."),
            llama_parameters(**(_LLAMA | {"n_layer": 1})),
        ),
        known(
            "rounded", N_("That is rounded. Asked for is the number itself."), 8_000_000_000, 8_030_000_000, 8.03e9, 8
        ),
    ),
)


EXERCISES = (REPAIRED_ATTENTION, NAME_THE_STEP, READ_THE_STEP, COUNT_LLAMA)
