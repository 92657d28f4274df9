"""Right answers to the exercises of notebook 13, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def conv_by_torch(x: Tensor, w: Tensor) -> Tensor:
    x = F.pad(x.transpose(1, 2), (w.shape[0] - 1, 0))
    return F.conv1d(x, w.permute(2, 1, 0)).transpose(1, 2)


def conv_cut_off(x: Tensor, w: Tensor) -> Tensor:
    T, window = x.shape[1], w.shape[0]
    out = F.conv1d(x.transpose(1, 2), w.permute(2, 1, 0), padding=window - 1)
    return out[:, :, :T].transpose(1, 2)


def conv_by_loop(x: Tensor, w: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for j in range(w.shape[0]):
            source = t - (w.shape[0] - 1) + j
            if source >= 0:
                out[:, t] += x[:, source] @ w[j]
    return out


def conv_by_unfold(x: Tensor, w: Tensor) -> Tensor:
    before = torch.zeros(x.shape[0], w.shape[0] - 1, x.shape[2])
    windows = torch.cat([before, x], dim=1).unfold(1, w.shape[0], 1)  # [B, T, C, window]
    return torch.einsum("btcj,jcd->btd", windows, w)


RIGHT: dict[str, list[Any]] = {
    "causal_convolution": [
        *(conv_by_torch, conv_cut_off, conv_by_loop, conv_by_unfold),
        lambda x, w: conv_by_torch(x.double(), w.double()),
    ],
    "path_length": [15, 15.0, torch.tensor(15)],
    "score_bytes": [40_000_000_000, 4e10, torch.tensor(4e10, dtype=torch.float64)],
    "attention_flops": [192_000_000, 192e6, torch.tensor(192e6)],
    "which_is_attention": ["c", "C", " (c)."],
}
