"""Right answers to the exercises of notebook 05, in other styles than the reference's."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def project_head_by_head(out: Tensor, w_o: Tensor) -> Tensor:
    B, H, T, D = out.shape
    total = torch.zeros(B, T, H * D)
    for h in range(H):
        total = total + out[:, h] @ w_o[:, h * D : (h + 1) * D].T
    return total


def project_by_einsum(out: Tensor, w_o: Tensor) -> Tensor:
    _B, H, _T, D = out.shape
    return torch.einsum("bhtd,chd->btc", out, w_o.view(-1, H, D))


def project_after_cat(out: Tensor, w_o: Tensor) -> Tensor:
    joined = torch.cat(list(out.unbind(dim=1)), dim=-1)
    return F.linear(joined, w_o)


def attend_by_einsum(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    C = x.shape[-1]
    w = w_qkv.view(3, H, C // H, C)
    q, k, v = torch.einsum("btc,nhdc->nbhtd", x, w)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(C // H)
    out = torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v)
    return torch.einsum("bhtd,chd->btc", out, w_o.view(C, H, C // H))


def attend_head_by_head(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    C = x.shape[-1]
    D = C // H
    heads = []
    for h in range(H):
        rows = slice(h * D, (h + 1) * D)
        q, k, v = (x @ w[rows].T for w in w_qkv.chunk(3))
        heads.append((q @ k.mT / math.sqrt(D)).softmax(-1) @ v)
    return torch.cat(heads, dim=-1) @ w_o.T


def attend_by_kernel(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    q, k, v = F.linear(x, w_qkv).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
    return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, C), w_o)


def attend_by_einops(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    q, k, v = rearrange(x @ w_qkv.T, "b t (n h d) -> n b h t d", n=3, h=H)
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
    return rearrange(weights @ v, "b h t d -> b t (h d)") @ w_o.T


def attend_by_module(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    layer = torch.nn.MultiheadAttention(x.shape[-1], H, bias=False, batch_first=True).eval()
    layer.in_proj_weight.data, layer.out_proj.weight.data = w_qkv, w_o
    return layer(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


RIGHT: dict[str, list[Any]] = {
    "join_and_project": [
        *(project_head_by_head, project_by_einsum, project_after_cat),
        lambda out, w_o: rearrange(out.double(), "b h t d -> b t (h d)") @ w_o.double().mT,
        lambda out, w_o: out.transpose(1, 2).contiguous().view(out.shape[0], out.shape[2], -1) @ w_o.T,
    ],
    "multi_head_attention": [
        *(attend_by_einsum, attend_head_by_head, attend_by_kernel, attend_by_einops, attend_by_module),
        lambda x, w_qkv, w_o, H: attend_by_kernel(x.double(), w_qkv.double(), w_o.double(), H),
    ],
    "count_products": [4, 4.0, torch.tensor(4)],
    "wide_output_projection": [2880, 2880.0, torch.nn.Linear(60, 48, bias=False).weight.numel()],
    "more_heads_same_width": [16384, 2**14, torch.tensor(16384)],
    "more_heads_same_size": [32768, 2**15, torch.tensor([32768.0])],
    "why_w_o": ["d", "D", " (d)."],
}
