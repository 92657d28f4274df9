"""Right answers to the exercises of notebook 09, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum
from torch import Tensor

from tracer.models import scaled_dot_product_attention


def cross_by_einsum(x: Tensor, source: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    q = torch.einsum("btc,cd->btd", x, w_q)
    k = torch.einsum("bsc,cd->bsd", source, w_k)
    v = torch.einsum("bsc,cd->bsd", source, w_v)
    weights = torch.softmax(torch.einsum("btd,bsd->bts", q, k) / q.shape[2] ** 0.5, dim=2)
    return torch.einsum("bts,bsd->btd", weights, v)


def cross_by_kernel(x: Tensor, source: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x @ w_q, source @ w_k, source @ w_v)


def cross_by_loop(x: Tensor, source: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    out = torch.zeros(*x.shape[:2], w_v.shape[1])
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            scores = torch.stack([(x[b, t] @ w_q) @ (h @ w_k) for h in source[b]]) / w_q.shape[1] ** 0.5
            e = (scores - scores.max()).exp()
            out[b, t] = (e / e.sum()) @ (source[b] @ w_v)
    return out


RIGHT: dict[str, list[Any]] = {
    "source_scores_shape": ["B H T S", "[B, H, T, S]", "bhts", ("B", "H", "T", "S")],
    "cross_output_shape": ["B T C", "[B, T, C]", "B T (H D)"],
    "cross_attention": [
        *(cross_by_einsum, cross_by_kernel, cross_by_loop),
        lambda x, source, w_q, w_k, w_v: scaled_dot_product_attention(
            (x @ w_q)[:, None].double(), (source @ w_k)[:, None].double(), (source @ w_v)[:, None].double()
        )[0].squeeze(1),
        lambda x, source, w_q, w_k, w_v: einsum(
            (einsum(x @ w_q, source @ w_k, "b t d, b s d -> b t s") * w_q.shape[1] ** -0.5).softmax(-1),
            *(source @ w_v, "b t s, b s d -> b t d"),
        ),
    ],
    "cross_sources": ["c", "C", "(c)"],
    "gpt_leaves_out": ["b", "B", "b."],
}
