"""Right answers to the exercises of notebook 15, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, repeat
from torch import Tensor


def rms_by_loop(x: Tensor, gain: Tensor) -> Tensor:
    C = x.shape[-1]
    tokens = [token / ((token @ token) / C + 1e-6).sqrt() * gain for token in x.flatten(0, 1)]
    return torch.stack(tokens).view_as(x)


def rms_by_power(x: Tensor, gain: Tensor) -> Tensor:
    return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def swiglu_by_hand(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    z = x @ w_gate
    return (z * torch.sigmoid(z) * (x @ w_up)) @ w_down


def swiglu_fused(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    gate, up = (x @ torch.cat([w_gate, w_up], dim=1)).chunk(2, dim=-1)
    return (F.silu(gate) * up) @ w_down


def swiglu_by_einsum(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    gate = F.silu(torch.einsum("btc,cm->btm", x, w_gate))
    return torch.einsum("btm,btm,mc->btc", gate, torch.einsum("btc,cm->btm", x, w_up), w_down)


def repeated_by_expand(k: Tensor, H: int) -> Tensor:
    B, G, S, D = k.shape
    return k.unsqueeze(2).expand(B, G, H // G, S, D).reshape(B, H, S, D)


def repeated_by_index(k: Tensor, H: int) -> Tensor:
    return k[:, torch.arange(H) // (H // k.shape[1])]


def shares_by_mask(logits: Tensor, K: int) -> Tensor:
    least = logits.sort(dim=-1, descending=True).values[..., K - 1 : K]
    return logits.masked_fill(logits < least, float("-inf")).softmax(dim=-1)


def shares_by_loop(logits: Tensor, K: int) -> Tensor:
    out = torch.zeros_like(logits)
    for b in range(logits.shape[0]):
        for t in range(logits.shape[1]):
            best = logits[b, t].argsort(descending=True)[:K]
            out[b, t, best] = logits[b, t, best].softmax(dim=0)
    return out


def shares_by_division(logits: Tensor, K: int) -> Tensor:
    p = logits.softmax(dim=-1)
    kept = p * F.one_hot(p.topk(K, dim=-1).indices, p.shape[-1]).sum(dim=-2)
    return kept / kept.sum(dim=-1, keepdim=True)


RIGHT: dict[str, list[Any]] = {
    "rms_norm": [
        *(rms_by_loop, rms_by_power),
        lambda x, gain: F.rms_norm(x, x.shape[-1:], gain, eps=1e-6),
        lambda x, gain: rms_by_power(x.double(), gain.double()),
    ],
    "swiglu": [
        *(swiglu_by_hand, swiglu_fused, swiglu_by_einsum),
        lambda x, w_gate, w_up, w_down: F.linear(F.silu(F.linear(x, w_gate.T)) * F.linear(x, w_up.T), w_down.T),
    ],
    "repeat_heads": [
        *(repeated_by_expand, repeated_by_index),
        lambda k, H: repeat(k, "b g s d -> b (g n) s d", n=H // k.shape[1]),
        lambda k, H: torch.cat([head.repeat(1, H // k.shape[1], 1, 1) for head in k.split(1, dim=1)], dim=1).double(),
        lambda k, H: einsum(k, torch.eye(k.shape[1]).repeat_interleave(H // k.shape[1], 0), "b g s d, h g -> b h s d"),
    ],
    "expert_shares": [
        *(shares_by_mask, shares_by_loop, shares_by_division),
        lambda x, K: shares_by_mask(x.double(), K),
    ],
    "cache_bytes": [1_073_741_824, 2**30, float(2**30)],
}
