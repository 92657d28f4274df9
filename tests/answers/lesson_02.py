"""Right answers to the exercises of notebook 02, in other styles than the reference's."""

import math
from typing import Any

import numpy as np
import torch
from einops import einsum
from torch import Tensor


def score_by_loop(q: Tensor, k: Tensor, b: int, h: int, t: int, s: int) -> Any:
    total = 0.0
    for d in range(q.shape[-1]):
        total += float(q[b, h, t, d] * k[b, h, s, d])
    return total


def score_out_of_all(q: Tensor, k: Tensor, b: int, h: int, t: int, s: int) -> Tensor:
    return (q @ k.transpose(-2, -1))[b, h, t, s]


def scores_by_loops(q: Tensor, k: Tensor) -> Tensor:
    B, H, T, _D = q.shape
    S = k.shape[2]
    scores = torch.zeros(B, H, T, S)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                for s in range(S):
                    scores[b, h, t, s] = torch.dot(q[b, h, t], k[b, h, s])
    return scores


def scores_by_broadcast(q: Tensor, k: Tensor) -> Tensor:
    return (q[:, :, :, None] * k[:, :, None]).sum(-1)


def scores_by_bmm(q: Tensor, k: Tensor) -> Tensor:
    return torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).unflatten(0, q.shape[:2])


def scores_by_numpy(q: Tensor, k: Tensor) -> Tensor:
    return torch.from_numpy(np.einsum("bhtd,bhsd->bhts", q.numpy(), k.numpy()))


RIGHT: dict[str, list[Any]] = {
    "cross_scores_shape": ["B H T S", "[B, H, T, S]", "(b, h, t, s)", ["B", "H", "T", "S"]],
    "one_score": [
        *(score_by_loop, score_out_of_all),
        lambda q, k, b, h, t, s: torch.dot(q[b, h, t], k[b, h, s]).double(),
        lambda q, k, b, h, t, s: (q[b, h, t] @ k[b, h, s]).item(),
    ],
    "all_scores": [
        *(scores_by_loops, scores_by_broadcast, scores_by_bmm, scores_by_numpy),
        lambda q, k: torch.einsum("bhtd,bhsd->bhts", q, k),
        lambda q, k: einsum(q.double(), k.double(), "b h t d, b h s d -> b h t s"),
        lambda q, k: (k @ q.mT).mT,
        lambda q, k: torch.matmul(q, k.permute(0, 1, 3, 2)),
    ],
    "worked_score": [0.71, 0.707, 1 / math.sqrt(2), torch.tensor(2.0) ** -0.5],
    "longer_key_wins": ["b", "B", "(b)"],
}
