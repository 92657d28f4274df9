"""Right answers to the exercises of notebook 06, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def mlp_token_by_token(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    out = torch.zeros(x.shape)
    for t in range(x.shape[1]):
        hidden = (w1 @ x[:, t].T).T + b1
        out[:, t] = hidden.clamp(min=0) @ w2.T + b2
    return out


def mlp_by_einsum(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    hidden = torch.einsum("btc,mc->btm", x, w1) + b1
    hidden = hidden * (hidden > 0)
    return torch.einsum("btm,cm->btc", hidden, w2) + b2


def mlp_by_convolution(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    hidden = F.conv1d(x.mT, w1[..., None], b1).relu()
    return F.conv1d(hidden, w2[..., None], b2).mT


def changed_by_loop(f: torch.nn.Module, x: Tensor, t: int) -> Tensor:
    other = torch.cat([x[:, :t], x[:, t : t + 1] + 5, x[:, t + 1 :]], dim=1)
    before, after = f(x), f(other)
    return torch.tensor([not torch.equal(before[:, i], after[:, i]) for i in range(x.shape[1])])


def changed_by_size(f: torch.nn.Module, x: Tensor, t: int) -> Tensor:
    moved = x + F.one_hot(torch.tensor(t), x.shape[1])[:, None]
    return (f(moved) - f(x)).abs().amax(dim=(0, 2)) > 1e-6


RIGHT: dict[str, list[Any]] = {
    "feed_forward": [
        *(mlp_token_by_token, mlp_by_einsum, mlp_by_convolution),
        lambda x, w1, b1, w2, b2: F.linear(F.relu(F.linear(x, w1, b1)), w2, b2),
        lambda *args: F.linear(F.linear(*(a.double() for a in args[:3])).relu(), args[3].double(), args[4].double()),
    ],
    "changed_tokens": [
        *(changed_by_loop, changed_by_size),
        lambda f, x, t: (f(x) != f(x.index_fill(1, torch.tensor([t]), -9.0))).flatten(2).any(-1).any(0).int(),
        lambda f, x, t: (f(x) != f(x + (torch.arange(x.shape[1]) == t)[:, None])).transpose(0, 1).flatten(1).any(1),
    ],
    "mlp_parameters": [18672, 18672.0, torch.tensor(18672)],
    "equal_cost_length": [3072, 3072.0, 4 * 768],
    "twice_as_long": ["d", "D", " (d)."],
}
