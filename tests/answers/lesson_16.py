"""Right answers to the exercises of notebook 16, in other styles and in both conventions of a mask."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def pairs_by_narrow(ids: Tensor) -> tuple[Tensor, Tensor]:
    T = ids.shape[1]
    return ids.narrow(1, 0, T - 1), ids.narrow(1, 1, T - 1)


def pairs_by_loop(ids: Tensor) -> list[Tensor]:
    inputs = [ids[:, t] for t in range(ids.shape[1] - 1)]
    targets = [ids[:, t + 1] for t in range(ids.shape[1] - 1)]
    return [torch.stack(inputs, dim=1), torch.stack(targets, dim=1)]


def pairs_by_roll(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1], ids.roll(-1, dims=1)[:, :-1]


def loss_by_gather(logits: Tensor, ids: Tensor) -> Tensor:
    shares = logits.log_softmax(dim=-1)[:, :-1]
    return -shares.gather(2, ids[:, 1:].unsqueeze(2)).mean()


def loss_by_transpose(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:])


def loss_by_ignoring(logits: Tensor, ids: Tensor) -> Tensor:
    targets = torch.full_like(ids, -100)
    targets[:, :-1] = ids[:, 1:]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def loss_by_loop(logits: Tensor, ids: Tensor) -> float:
    total, count = 0.0, 0
    for b in range(ids.shape[0]):
        for t in range(ids.shape[1] - 1):
            total -= logits[b, t].double().log_softmax(dim=0)[ids[b, t + 1]].item()
            count += 1
    return total / count


def mask_by_tril(T: int, S: int) -> Tensor:
    return torch.ones(T, S).tril(S - T).bool()


def mask_by_rows(T: int, S: int) -> Tensor:
    return torch.ones(S, S, dtype=torch.bool).tril()[S - T :]


def mask_by_loop(T: int, S: int) -> Tensor:
    return torch.tensor([[s <= S - T + t for s in range(S)] for t in range(T)])


def mask_to_add(T: int, S: int) -> Tensor:
    return torch.full((T, S), float("-inf")).triu(S - T + 1)


def shares_by_scatter(logits: Tensor, K: int, temperature: float) -> Tensor:
    top, where = (logits / temperature).topk(K, dim=-1)
    return torch.zeros_like(logits).scatter(-1, where, top.softmax(dim=-1))


def shares_divided(logits: Tensor, K: int, temperature: float) -> Tensor:
    p = (logits / temperature).softmax(dim=-1)
    p = torch.where(p < p.topk(K, dim=-1).values[:, -1:], 0.0, p)
    return p / p.sum(dim=-1, keepdim=True)


def shares_by_loop(logits: Tensor, K: int, temperature: float) -> Tensor:
    out = torch.full_like(logits, float("-inf"))
    for b, row in enumerate(logits):
        for i in row.argsort(descending=True)[:K]:
            out[b, i] = row[i] / temperature
    return out.softmax(dim=-1)


RIGHT: dict[str, list[Any]] = {
    "inputs_and_targets": [*(pairs_by_narrow, pairs_by_loop, pairs_by_roll), lambda ids: (ids[..., :-1], ids[..., 1:])],
    "next_token_loss": [
        *(loss_by_gather, loss_by_transpose, loss_by_ignoring, loss_by_loop),
        lambda logits, ids: F.nll_loss(logits.double()[:, :-1].log_softmax(-1).flatten(0, 1), ids[:, 1:].flatten()),
    ],
    "cache_mask": [
        *(mask_by_tril, mask_by_rows, mask_by_loop, mask_to_add),
        lambda T, S: mask_by_tril(T, S).int(),
        lambda T, S: torch.arange(S) <= torch.arange(S - T, S).unsqueeze(1),
    ],
    "next_token_shares": [
        *(shares_by_scatter, shares_divided, shares_by_loop),
        lambda logits, K, temperature: shares_by_scatter(logits.double(), K, temperature),
    ],
    "passes": ["d", "D", " (d)."],
}
