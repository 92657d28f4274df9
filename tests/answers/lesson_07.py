"""Right answers to the exercises of notebook 07, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, reduce
from torch import Tensor, nn


def norm_by_loop(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            token = x[b, t]
            centred = token - token.mean()
            out[b, t] = centred / (centred.square().mean() + 1e-5).sqrt() * gain + shift
    return out


def norm_by_sums(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    C = x.shape[-1]
    mean = x.sum(dim=-1, keepdim=True) / C
    variance = ((x - mean) ** 2).sum(dim=-1, keepdim=True) / C
    return gain * (x - mean) * torch.rsqrt(variance + 1e-5) + shift


def norm_by_einops(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    centred = x - reduce(x, "b t c -> b t 1", "mean")
    return centred / torch.sqrt(reduce(centred**2, "b t c -> b t 1", "mean") + 1e-5) * gain + shift


class PreBlock(nn.Module):
    def forward(self, x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
        norm = nn.LayerNorm(x.shape[-1], elementwise_affine=False)
        x = x + torch.einsum("ts,bsc->btc", weights, norm(x))
        return x + F.linear(torch.relu(F.linear(norm(x), w_1.T)), w_2.T)


def pre_in_one(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    C = x.shape[-1]
    stream = x + weights @ F.layer_norm(x, (C,))
    return stream + (F.layer_norm(stream, (C,)) @ w_1).clamp(min=0) @ w_2


def post_in_one(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    C = x.shape[-1]
    stream = F.layer_norm(weights @ x + x, (C,))
    return F.layer_norm((stream @ w_1).clamp(min=0) @ w_2 + stream, (C,))


def pre_in_double(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    return pre_in_one(x.double(), weights.double(), w_1.double(), w_2.double())


def post_by_einops(x: Tensor, weights: Tensor, w_1: Tensor, w_2: Tensor) -> Tensor:
    x = F.layer_norm(x + einsum(weights, x, "t s, b s c -> b t c"), x.shape[-1:])
    hidden = F.relu(einsum(x, w_1, "b t c, c m -> b t m"))
    return F.layer_norm(x + einsum(hidden, w_2, "b t m, m c -> b t c"), x.shape[-1:])


RIGHT: dict[str, list[Any]] = {
    "layer_norm": [
        lambda x, gain, shift: F.layer_norm(x, x.shape[-1:], gain, shift),
        lambda x, gain, shift: F.layer_norm(x.double(), x.shape[-1:], gain.double(), shift.double()),
        *(norm_by_loop, norm_by_sums, norm_by_einops),
    ],
    "pre_ln_block": [pre_in_one, pre_in_double, PreBlock()],
    "post_ln_block": [
        post_in_one,
        post_by_einops,
        lambda x, weights, w_1, w_2: post_in_one(x.double(), weights.double(), w_1.double(), w_2.double()),
    ],
    "final_norm_parameters": [1536, 1536.0, torch.tensor(1536)],
    "why_a_final_norm": ["a", "A", "(a)"],
}
