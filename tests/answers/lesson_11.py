"""Right answers to the exercises of notebook 11, in other styles than the reference's."""

from typing import Any

import torch
from einops import einsum, rearrange
from torch import Tensor


def joined_scores(s: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    S = h.shape[1]
    both = torch.cat([s.unsqueeze(1).expand(-1, S, -1), h], dim=-1)  # [s; h_i]
    return torch.tanh(both @ torch.cat([w, u])) @ v


def scores_by_loop(s: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    columns = [torch.tanh(s @ w + h[:, i] @ u) @ v for i in range(h.shape[1])]
    return torch.stack(columns, dim=1)


def scores_by_einsum(s: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    query = torch.einsum("bc,cm->bm", s, w)
    keys = torch.einsum("bsc,cm->bsm", h, u)
    return torch.einsum("bsm,m->bs", torch.tanh(query[:, None, :] + keys), v)


def weights_by_hand(scores: Tensor) -> Tensor:
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def context_by_loop(weights: Tensor, h: Tensor) -> Tensor:
    out = torch.zeros(*weights.shape[:2], h.shape[2])
    for i in range(h.shape[1]):
        out += weights[:, :, i : i + 1] * h[:, i : i + 1]
    return out


def context_by_einsum(weights: Tensor, h: Tensor) -> Tensor:
    return torch.einsum("bts,bsc->btc", weights, h)


RIGHT: dict[str, list[Any]] = {
    "additive_scores": [
        *(joined_scores, scores_by_loop, scores_by_einsum),
        lambda s, h, w, u, v: (torch.tanh((s @ w)[:, None].double() + (h @ u).double()) * v.double()).sum(-1),
    ],
    "alignment_weights": [
        weights_by_hand,
        lambda scores: torch.nn.functional.softmax(scores.double(), dim=2),
        lambda scores: scores.log_softmax(dim=-1).exp(),
        lambda scores: torch.stack([torch.stack([row.softmax(0) for row in rows]) for rows in scores]),
    ],
    "context_vectors": [
        *(context_by_loop, context_by_einsum),
        lambda weights, h: einsum(weights, h, "b t s, b s c -> b t c"),
        torch.bmm,
        lambda weights, h: (rearrange(weights, "b t s -> b t s 1") * h.unsqueeze(1)).sum(dim=2),
    ],
    "attention_map_shape": ["B T S", "[B, T, S]", "bts"],
    "without_tanh": ["c", "C", " (c)."],
    "what_grows_with_the_input": ["d", "D", " (d)."],
}
