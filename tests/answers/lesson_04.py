"""Right answers to the exercises of notebook 04, in other styles than the reference's."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum
from torch import Tensor


def mix_by_loops(weights: Tensor, v: Tensor) -> Tensor:
    B, H, T, S = weights.shape
    out = torch.zeros(B, H, T, v.shape[-1])
    for t in range(T):
        for s in range(S):
            out[:, :, t] += weights[:, :, t, s, None] * v[:, :, s]
    return out


def mix_by_broadcast(weights: Tensor, v: Tensor) -> Tensor:
    return (weights[..., None] * v[:, :, None]).sum(dim=3)


def mix_by_bmm(weights: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(*weights.shape[:3], v.shape[-1])


def head_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhtd,bhsd->bhts", q / math.sqrt(q.shape[-1]), k)
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v)


def head_by_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    D = q.shape[-1]
    scores = (q @ k.mT) * D**-0.5
    parts = (scores - scores.amax(-1, keepdim=True)).exp()
    return (parts @ v) / parts.sum(-1, keepdim=True)


def head_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    B, H, T, D = q.shape
    out = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                scores = k[b, h] @ q[b, h, t] / math.sqrt(D)
                out[b, h, t] = scores.softmax(0) @ v[b, h]
    return out


def head_by_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


RIGHT: dict[str, list[Any]] = {
    "summed_axis": ["b", "B", "(b)"],
    "mix_values": [
        *(mix_by_loops, mix_by_broadcast, mix_by_bmm),
        lambda weights, v: torch.einsum("bhts,bhsd->bhtd", weights, v),
        lambda weights, v: einsum(weights.double(), v.double(), "b h t s, b h s d -> b h t d"),
        lambda weights, v: (v.mT @ weights.mT).mT,
    ],
    "one_head_output": [
        *(head_by_einsum, head_by_parts, head_by_loops, head_by_kernel),
        lambda q, k, v: F.softmax(q.double() @ k.double().mT / q.shape[-1] ** 0.5, dim=-1) @ v.double(),
    ],
    "worked_output": [0.8, 0.802, torch.tensor(0.8022)],
    "weight_or_contribution": [0.83, 0.8333, 5 / 6, torch.tensor(5 / 6)],
}
