"""Right answers to the exercises of notebook 17, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor

from tracer.models import scaled_dot_product_attention


def steps_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[3] ** 0.5
    weights = torch.softmax(scores, dim=3)
    return scores, weights, torch.einsum("bhts,bhsd->bhtd", weights, v)


def steps_by_head(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    found: list[list[Tensor]] = [[], [], []]
    for h in range(q.shape[1]):
        scores = torch.bmm(q[:, h], k[:, h].transpose(1, 2)) / q.shape[3] ** 0.5
        weights = scores.softmax(dim=2)
        for parts, part in zip(found, (scores, weights, torch.bmm(weights, v[:, h])), strict=True):
            parts.append(part)
    return [torch.stack(parts, dim=1) for parts in found]


def softmax_by_loop(scores: Tensor) -> Tensor:
    out = torch.zeros_like(scores)
    for row, kept in zip(scores.flatten(0, 2), out.flatten(0, 2), strict=True):
        e = torch.exp(row - row.max())
        kept.copy_(e / e.sum())
    return out


def softmax_by_logsumexp(scores: Tensor) -> Tensor:
    return torch.exp(scores - torch.logsumexp(scores, dim=-1, keepdim=True))


def mask_added(scores: Tensor, keep: Tensor, D_k: int) -> Tensor:
    mask = torch.zeros(keep.shape).masked_fill(keep.logical_not(), float("-inf"))
    return F.softmax(scores / D_k**0.5 + mask, dim=3)


def mask_by_where(scores: Tensor, keep: Tensor, D_k: int) -> Tensor:
    scores = torch.where(keep, scores, float("-inf"))  # masked first, scaled afterwards: the same with -inf
    return (scores / D_k**0.5).softmax(dim=-1)


def mask_of_exponentials(scores: Tensor, keep: Tensor, D_k: int) -> Tensor:
    e = (scores / D_k**0.5).exp() * keep
    return e / e.sum(dim=-1, keepdim=True)


def heads_by_view(q: Tensor, k: Tensor, v: Tensor, H: int) -> Tensor:
    B, T, _ = q.shape
    S = k.shape[1]
    q = q.view(B, T, H, -1).transpose(1, 2)
    k = k.view(B, S, H, -1).transpose(1, 2)
    v = v.view(B, S, H, -1).transpose(1, 2)
    heads = F.scaled_dot_product_attention(q, k, v)
    return heads.transpose(1, 2).contiguous().view(B, T, -1)


def heads_by_einops(q: Tensor, k: Tensor, v: Tensor, H: int) -> Tensor:
    q, k, v = (rearrange(z, "b t (h d) -> b h t d", h=H) for z in (q, k, v))
    weights = (einsum(q, k, "b h t d, b h s d -> b h t s") / q.shape[-1] ** 0.5).softmax(-1)
    return rearrange(einsum(weights, v, "b h t s, b h s d -> b h t d"), "b h t d -> b t (h d)")


def heads_by_chunks(q: Tensor, k: Tensor, v: Tensor, H: int) -> Tensor:
    heads = []
    for a, b, c in zip(q.chunk(H, dim=2), k.chunk(H, dim=2), v.chunk(H, dim=2), strict=True):
        heads.append((a @ b.transpose(1, 2) / a.shape[2] ** 0.5).softmax(dim=2) @ c)
    return torch.cat(heads, dim=2)


def attention_of(x: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=causal)


def differences_by_kernel(x: Tensor, perm: Tensor) -> tuple[float, float]:
    x = x.double()
    free = attention_of(x[:, perm], False) - attention_of(x, False)[:, perm]
    masked = attention_of(x[:, perm], True) - attention_of(x, True)[:, perm]
    return free.abs().max().item(), masked.abs().max().item()


def differences_by_matrix(x: Tensor, perm: Tensor) -> list[Tensor]:
    P = torch.eye(x.shape[1])[perm]
    return [(attention_of(P @ x, c) - P @ attention_of(x, c)).abs().max() for c in (False, True)]


def differences_by_select(x: Tensor, perm: Tensor) -> tuple[Tensor, ...]:
    found = []
    for causal in (False, True):
        one = attention_of(x.index_select(1, perm), causal)
        other = attention_of(x, causal).index_select(1, perm)
        found.append(torch.dist(one, other, p=float("inf")))
    return tuple(found)


def added_by_einsum(x: Tensor, heads: Tensor, w_o: Tensor) -> Tensor:
    H, D = heads.shape[1], heads.shape[3]
    return torch.einsum("bhtd,hdc->btc", heads, w_o.view(H, D, -1)) + x


def added_by_head(x: Tensor, heads: Tensor, w_o: Tensor) -> Tensor:
    D = heads.shape[3]
    for h in range(heads.shape[1]):
        x = x + heads[:, h] @ w_o[h * D : (h + 1) * D]
    return x


def map_by_mask(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    T = weights.shape[-1]
    future = torch.arange(T) > torch.arange(T).unsqueeze(1)
    return weights.sum(dim=3), weights[..., future].max(), weights.max(dim=3).indices


def map_by_loop(weights: Tensor) -> list[Any]:
    T = weights.shape[-1]
    leak = 0.0
    for t in range(T):
        for s in range(t + 1, T):
            leak = max(leak, weights[:, :, t, s].max().item())
    return [torch.einsum("bhts->bht", weights), leak, weights.topk(1, dim=-1).indices.squeeze(-1)]


RIGHT: dict[str, list[Any]] = {
    "attention_steps": [
        *(steps_by_einsum, steps_by_head),
        lambda q, k, v: (
            (q @ k.mT) / q.shape[-1] ** 0.5,
            *reversed(scaled_dot_product_attention(q.double(), k.double(), v.double())),
        ),
    ],
    "softmax_over_keys": [
        *(softmax_by_loop, softmax_by_logsumexp),
        lambda scores: scores.softmax(dim=-1),
        lambda scores: scores.double().log_softmax(3).exp(),
    ],
    "scale_then_mask": [
        *(mask_added, mask_by_where, mask_of_exponentials),
        lambda scores, keep, D_k: (scores / D_k**0.5).masked_fill(~keep, -1e9).softmax(dim=-1),
        lambda scores, keep, D_k: mask_added(scores.double(), keep, D_k),
    ],
    "multi_head": [
        *(heads_by_view, heads_by_einops, heads_by_chunks),
        lambda q, k, v, H: heads_by_view(q.double(), k.double(), v.double(), H),
    ],
    "permutation_differences": [differences_by_kernel, differences_by_matrix, differences_by_select],
    "add_heads": [
        *(added_by_einsum, added_by_head),
        lambda x, heads, w_o: x + F.linear(rearrange(heads, "b h t d -> b t (h d)"), w_o.T),
        lambda x, heads, w_o: torch.cat(heads.double().unbind(1), dim=-1) @ w_o.double() + x,
    ],
    "read_the_map": [
        *(map_by_mask, map_by_loop),
        lambda weights: (weights.sum(-1), weights.double().triu(1).max().item(), weights.argmax(-1).to(torch.int32)),
    ],
}
