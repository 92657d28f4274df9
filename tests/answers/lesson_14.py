"""Right answers to the exercises of notebook 14, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor


def patches_by_loop(images: Tensor, P: int) -> Tensor:
    _B, _R, Y, X = images.shape
    rows = []
    for y in range(0, Y, P):
        for x in range(0, X, P):
            rows.append(images[:, :, y : y + P, x : x + P].flatten(1))
    return torch.stack(rows, dim=1)


def patches_by_unfold(images: Tensor, P: int) -> Tensor:
    return F.unfold(images, kernel_size=P, stride=P).transpose(1, 2)


def patches_by_convolution(images: Tensor, P: int) -> Tensor:
    R = images.shape[1]
    each = torch.eye(R * P * P).view(R * P * P, R, P, P)
    return F.conv2d(images, each, stride=P).flatten(2).transpose(1, 2)


def token_written_in(x: Tensor, cls: Tensor) -> Tensor:
    B, N, C = x.shape
    out = torch.empty(B, N + 1, C)
    out[:, 0] = cls[0, 0]
    out[:, 1:] = x
    return out


def token_padded(x: Tensor, cls: Tensor) -> Tensor:
    first = torch.zeros(1, x.shape[1] + 1, 1)
    first[:, 0] = 1
    return F.pad(x, (0, 0, 1, 0)) + first * cls


RIGHT: dict[str, list[Any]] = {
    "patches": [
        lambda images, P: rearrange(images, "b r (y p) (x q) -> b (y x) (r p q)", p=P, q=P),
        lambda images, P: images.unfold(2, P, P).unfold(3, P, P).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2),
        lambda images, P: patches_by_unfold(images.double(), P),
        *(patches_by_loop, patches_by_unfold, patches_by_convolution),
    ],
    "add_class_token": [
        lambda x, cls: torch.cat([repeat(cls, "1 1 c -> b 1 c", b=len(x)), x], dim=1),
        lambda x, cls: torch.stack([torch.cat([cls[0], image]) for image in x]),
        *(token_written_in, token_padded),
    ],
    "number_of_patches": [60, 60.0, torch.tensor(60)],
    "patch_rows_shape": ["B N (R P P)", "[B, N, R*P*P]", "B N (P P R)", "B, N, (P R P)", "B N PPR"],
    "class_token_or_mean": ["d", "D", " (d)."],
}
