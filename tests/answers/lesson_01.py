"""Right answers to the exercises of notebook 01, in other styles than the reference's."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor


def qkv_by_permute(qkv: Tensor, H: int) -> Any:
    B, T, _C = qkv.shape
    return tuple(qkv.reshape(B, T, 3, H, -1).permute(2, 0, 3, 1, 4))


def qkv_by_slices(qkv: Tensor, H: int) -> Any:
    C = qkv.shape[-1] // 3
    parts = [qkv[..., :C], qkv[..., C : 2 * C], qkv[..., 2 * C :]]
    return [torch.stack(part.chunk(H, dim=-1), dim=1) for part in parts]


def qkv_by_loop(qkv: Tensor, H: int) -> Any:
    B, T, width = qkv.shape
    D = width // (3 * H)
    out = torch.zeros(3, B, H, T, D)
    for part in range(3):
        for h in range(H):
            start = part * H * D + h * D
            out[part, :, h] = qkv[:, :, start : start + D]
    return out[0], out[1], out[2]


def weight_by_view(w: Tensor, h: int, H: int) -> Tensor:
    return w.view(H, w.shape[0] // H, w.shape[1])[h]


def weight_by_loop(w: Tensor, h: int, H: int) -> Tensor:
    D = w.shape[0] // H
    return torch.stack([w[h * D + i] for i in range(D)])


RIGHT: dict[str, list[Any]] = {
    "fused_shape": ["[B, T, 3C]", "B T 3*C", "(B, T, 3 * C)", ["B", "T", "3C"], "b t 3(H D)"],
    "view_alone_sees": ["c", "C", "(c)"],
    "qkv_heads": [
        *(qkv_by_permute, qkv_by_slices, qkv_by_loop),
        lambda qkv, H: tuple(rearrange(qkv, "b t (n h d) -> n b h t d", n=3, h=H)),
        lambda qkv, H: [x.double().unflatten(-1, (H, -1)).swapaxes(1, 2) for x in qkv.split(qkv.shape[-1] // 3, -1)],
    ],
    "turned_key_shape": ["B H D T", "[B, H, C//H, T]", "(b, h, d, t)", ("B", "H", "D", "T")],
    "head_weight": [
        *(weight_by_view, weight_by_loop),
        lambda w, h, H: w.chunk(H)[h],
        lambda w, h, H: torch.split(w, len(w) // H, dim=0)[h].double(),
        lambda w, h, H: rearrange(w, "(h d) c -> h d c", h=H)[h],
    ],
    "stride_of_heads": [4, 4.0, torch.tensor(4), torch.zeros(2, 5, 3, 4).transpose(1, 2).stride(1)],
    "contiguous_needed": ["a", "A", " (a)."],
}
