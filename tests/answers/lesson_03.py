"""Right answers to the exercises of notebook 03, in other styles than the reference's."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def scaled_before(q: Tensor, k: Tensor) -> Tensor:
    q = q * q.shape[-1] ** -0.5
    return torch.einsum("bhtd,bhsd->bhts", q, k)


def scaled_on_both_sides(q: Tensor, k: Tensor) -> Tensor:
    root = math.sqrt(math.sqrt(q.shape[-1]))
    return (q / root) @ (k / root).mT


def weights_by_hand(scores: Tensor) -> Tensor:
    parts = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return parts / parts.sum(dim=-1, keepdim=True)


def weights_by_loop(scores: Tensor) -> Tensor:
    out = torch.zeros(scores.shape)
    B, H, T, S = scores.shape
    for b in range(B):
        for h in range(H):
            for t in range(T):
                total = sum(math.exp(scores[b, h, t, s]) for s in range(S))
                for s in range(S):
                    out[b, h, t, s] = math.exp(scores[b, h, t, s]) / total
    return out


def causal_by_where(scores: Tensor) -> Tensor:
    t = torch.arange(scores.shape[-1])
    seen = t[:, None] >= t[None, :]
    return F.softmax(torch.where(seen, scores, float("-inf")), dim=-1)


def causal_by_addition(scores: Tensor) -> Tensor:
    T = scores.shape[-1]
    mask = torch.full((T, T), float("-inf")).triu(1)
    return (scores + mask).softmax(-1)


def causal_by_rows(scores: Tensor) -> Tensor:
    out = torch.zeros(scores.shape)
    for t in range(scores.shape[-1]):
        out[:, :, t, : t + 1] = scores[:, :, t, : t + 1].softmax(-1)
    return out


def causal_by_parts(scores: Tensor) -> Tensor:
    parts = scores.exp().tril()
    return parts / parts.sum(-1, keepdim=True)


def padded_by_where(scores: Tensor, keep: Tensor) -> Tensor:
    seen = keep.view(keep.shape[0], 1, 1, -1).expand_as(scores)
    return torch.where(seen, scores, torch.tensor(-1e9)).softmax(-1)


def padded_by_addition(scores: Tensor, keep: Tensor) -> Tensor:
    mask = torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))
    return (scores + mask[:, None, None, :]).softmax(-1)


def padded_by_lengths(scores: Tensor, keep: Tensor) -> Tensor:
    out = torch.zeros(scores.shape)
    for b in range(len(scores)):
        n = int(keep[b].sum())
        out[b, :, :, :n] = scores[b, :, :, :n].softmax(-1)
    return out


def keyless_by_nan(scores: Tensor, keep: Tensor) -> Tensor:
    weights = scores.masked_fill(~keep, float("-inf")).softmax(-1)
    return torch.where(weights.isnan(), 0.0, weights)


def keyless_by_parts(scores: Tensor, keep: Tensor) -> Tensor:
    parts = scores.exp() * keep
    return parts / parts.sum(-1, keepdim=True).clamp(min=1e-20)


def keyless_by_mask(scores: Tensor, keep: Tensor) -> Tensor:
    weights = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1)
    return weights * keep


def targets_by_loop(ids: Tensor) -> Any:
    T = ids.shape[1]
    inputs = torch.stack([ids[:, t] for t in range(T)], dim=1)[:, : T - 1]
    return inputs, ids.roll(-1, 1)[:, : T - 1]


def targets_by_narrow(ids: Tensor) -> Any:
    T = ids.size(1)
    return [ids.narrow(1, 0, T - 1), ids.narrow(1, 1, T - 1)]


RIGHT: dict[str, list[Any]] = {
    "scaled_scores": [
        *(scaled_before, scaled_on_both_sides),
        lambda q, k: torch.matmul(q.double(), k.double().mT) / math.sqrt(k.size(-1)),
        lambda q, k: torch.baddbmm(
            torch.zeros(()), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=q.shape[-1] ** -0.5
        ).unflatten(0, q.shape[:2]),
    ],
    "attention_weights": [
        *(weights_by_hand, weights_by_loop),
        lambda scores: F.softmax(scores, dim=3),
        lambda scores: torch.nn.Softmax(-1)(scores.double()),
        lambda scores: scores.log_softmax(-1).exp().bfloat16(),
        lambda scores: scores.mT.softmax(-2).mT,
    ],
    "causal_weights": [
        *(causal_by_where, causal_by_addition, causal_by_rows, causal_by_parts),
        lambda scores: scores.masked_fill(torch.ones_like(scores).triu(1) == 1, -1e9).softmax(-1),
        lambda scores: scores.double().masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf).softmax(-1),
        lambda scores: F.scaled_dot_product_attention(
            scores,
            torch.eye(scores.shape[-1]).expand_as(scores),
            torch.eye(scores.shape[-1]).expand_as(scores),
            is_causal=True,
            scale=1.0,
        ),
    ],
    "padding_mask_shape": ["B 1 1 S", "[B, 1, 1, S]", "(b, 1, 1, s)", ["B", 1, 1, "S"]],
    "padded_weights": [
        *(padded_by_where, padded_by_addition, padded_by_lengths),
        lambda scores, keep: scores.masked_fill(rearrange(~keep, "b s -> b 1 1 s"), -1e9).softmax(-1),
        lambda scores, keep: scores.double().masked_fill(keep[:, None, None].logical_not(), -math.inf).softmax(-1),
    ],
    "fill_value": ["a", "A", " (a)."],
    "rows_without_keys": [
        *(keyless_by_nan, keyless_by_parts, keyless_by_mask),
        lambda scores, keep: scores.masked_fill(~keep, float("-inf")).softmax(-1).nan_to_num(0.0),
        lambda scores, keep: scores.double().masked_fill(~keep, -1e9).softmax(-1) * keep.any(-1, keepdim=True),
    ],
    "scale_and_mask_order": ["d", "D", " (d)."],
    "shifted_targets": [
        *(targets_by_loop, targets_by_narrow),
        lambda ids: (ids[:, :-1].clone(), ids[:, 1:].float()),
        lambda ids: tuple(ids.unfold(1, ids.shape[1] - 1, 1).unbind(1)) if ids.shape[1] > 1 else (ids[:, 1:],) * 2,
    ],
}
