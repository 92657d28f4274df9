"""Right answers to the exercises of notebook 00, in other styles than the reference's."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor


def split_by_loop(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    out = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                out[b, h, t] = x[b, t, h * D : (h + 1) * D]
    return out


def split_by_strides(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    return x.contiguous().as_strided((B, H, T, D), (T * C, D, C, 1))


def split_by_einsum(x: Tensor, H: int) -> Tensor:
    C = x.shape[-1]
    place = torch.eye(C, dtype=x.dtype).view(C, H, C // H)
    return torch.einsum("btc,chd->bhtd", x, place)


def split_with_gradient(x: Tensor, H: int) -> Tensor:
    scale = torch.nn.Parameter(torch.ones(()))
    return x.view(*x.shape[:2], H, -1).movedim(2, 1) * scale


class SplitModule(torch.nn.Module):
    def forward(self, x: Tensor, H: int) -> Tensor:
        return x.reshape(*x.shape[:2], H, -1).permute(0, 2, 1, 3).contiguous()


def merge_by_loop(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    x = torch.empty(B, T, H * D)
    for h in range(H):
        x[:, :, h * D : (h + 1) * D] = out[:, h]
    return x


def merge_in_place_of_its_own(out: Tensor) -> Tensor:
    mine = out.clone()
    return mine.transpose_(1, 2).flatten(2)


def merge_by_columns(out: Tensor) -> Tensor:
    _B, H, _T, D = out.shape
    rows = torch.eye(H * D, dtype=out.dtype).view(H, D, H * D)
    return torch.einsum("bhtd,hdc->btc", out, rows)


def split_spelled_out(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    heads = torch.zeros(B, H, T, D)
    for h in range(H):
        heads[:, h, :, :] = x[:, :, h * D : (h + 1) * D]
    return heads


def split_by_permute(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.reshape(B, T, H, C // H).permute(0, 2, 1, 3).contiguous()


def split_by_einops(x: Tensor, H: int) -> Tensor:
    return rearrange(x, "b t (h d) -> b h t d", h=H)


def merge_by_permute(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.permute(0, 2, 1, 3).contiguous().view(B, T, H * D)


def merge_by_cat(out: Tensor) -> Tensor:
    return torch.cat([out[:, h] for h in range(0, out.shape[1])], dim=2)


def merge_by_einops(out: Tensor) -> Tensor:
    return rearrange(out, "b h t d -> b t (h d)")


RIGHT: dict[str, list[Any]] = {
    "split_heads": [
        lambda x, H: rearrange(x, "b t (h d) -> b h t d", h=H),
        lambda x, H: torch.stack(x.chunk(H, dim=-1), dim=1),
        lambda x, H: x.view(*x.shape[:2], H, -1).transpose(-2, -3).to(torch.float64),
        lambda x, H: x.unflatten(2, (H, -1)).swapaxes(1, 2).bfloat16(),
        *(split_by_loop, split_by_strides, split_by_einsum, split_with_gradient, SplitModule()),
        *(split_spelled_out, split_by_permute, split_by_einops),
        torch.inference_mode()(lambda x, H: x.view(*x.shape[:2], H, -1).transpose(1, 2)),
    ],
    "merge_heads": [
        lambda out: rearrange(out, "b h t d -> b t (h d)"),
        lambda out: torch.cat(out.unbind(1), dim=-1),
        lambda out: out.transpose(1, 2).contiguous().view(out.shape[0], out.shape[2], -1),
        lambda out: out.permute(0, 2, 1, 3).flatten(-2).double(),
        lambda out: torch.from_numpy(out.numpy().transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)),
        *(merge_by_loop, merge_in_place_of_its_own, merge_by_columns),
        *(merge_by_permute, merge_by_cat, merge_by_einops),
    ],
    "shape_of_embedding": ["B T C", "[B, T, C]", "b,t,(h d)", ("B", "T", "C"), "torch.Size([B, T, H*D])"],
    "scores_shape": ["B H T T", "[B, H, T, S]", "(B, H, T, T)", ["B", "H", "T", "T"]],
    "parameter_or_activation": ["b", "B", " (b) "],
}
