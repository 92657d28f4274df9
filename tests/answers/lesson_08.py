"""Right answers to the exercises of notebook 08, in other styles and in both conventions."""

import math
from typing import Any

import torch
from torch import Tensor

from tracer.models import Rotary, SinusoidalPositions


def waves_by_loop(T: int, C: int) -> Tensor:
    table = torch.zeros(T, C)
    for t in range(T):
        for i in range(0, C, 2):
            table[t, i] = math.sin(t / 10000 ** (i / C))
            table[t, i + 1] = math.cos(t / 10000 ** (i / C))
    return table


def waves_in_halves(T: int, C: int) -> Tensor:
    speeds = torch.exp(-math.log(10000.0) * torch.arange(C // 2) * 2 / C)
    angles = torch.arange(T)[:, None] * speeds[None, :]
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)


def waves_by_slices(T: int, C: int) -> Tensor:
    table = torch.zeros(T, C, dtype=torch.float64)
    angles = torch.outer(torch.arange(T).double(), 10000.0 ** (-torch.arange(0, C, 2).double() / C))
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return table


def turned_as_complex(x: Tensor) -> Tensor:
    T, D = x.shape[-2:]
    angles = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, D, 2).float() / D))
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def turned_by_halves(x: Tensor) -> Tensor:
    T, D = x.shape[-2:]
    angles = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, D, 2).float() / D)).repeat(1, 2)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


def turned_by_matrices(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for t in range(x.shape[2]):
        for i in range(x.shape[3] // 2):
            angle = t / 10000 ** (2 * i / x.shape[3])
            turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            out[:, :, t, 2 * i : 2 * i + 2] = x[:, :, t, 2 * i : 2 * i + 2] @ turn.T
    return out


RIGHT: dict[str, list[Any]] = {
    "sinusoids": [
        lambda T, C: SinusoidalPositions(C)(torch.arange(T)),
        lambda T, C: SinusoidalPositions(C, layout="halves")(torch.arange(T)),
        *(waves_by_loop, waves_in_halves, waves_by_slices),
    ],
    "rotary": [
        lambda x: Rotary(x.shape[-1])(x, torch.arange(x.shape[2])),
        lambda x: Rotary(x.shape[-1], layout="interleaved")(x.double(), torch.arange(x.shape[2])),
        *(turned_as_complex, turned_by_halves, turned_by_matrices),
    ],
    "learned_positions": [786432, 1024 * 768, torch.tensor(786432.0)],
    "where_rotary_acts": ["b", "B", "b)"],
    "same_distance": [8, 8.0, torch.tensor(8)],
    "order_without_positions": ["b", "B", " (b)."],
}
