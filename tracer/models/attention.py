"""Attention, every step written out: the operation alone, and the causal self-attention of GPT.

Axes: B batch, T query positions, S key positions, C model width, H heads, D head size, C = H * D.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .inputs import check_heads, check_length, check_positive

__all__ = ["Attention", "scaled_dot_product_attention"]


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return `(heads, weights)`: for each query a mixture of the values, and the shares it was mixed with.

    Vaswani et al. 2017, section 3.2.1, equation 1, without projections. `Attention` writes the same lines out
    between its own, so that its four products stand in one place.

    Args:
        q: `[..., T, D]`, what each position looks for.
        k: `[..., S, D]`, what each position is found by.
        v: `[..., S, D_v]`, what each position hands over.
        mask: True where a query may look; broadcasts to `[..., T, S]`. A row without any True gives NaN.

    Returns:
        heads `[..., T, D_v]` and weights `[..., T, S]`, whose rows sum to 1.

    >>> q, k, v = torch.zeros(2, 4), torch.zeros(3, 4), torch.eye(3)
    >>> heads, weights = scaled_dot_product_attention(q, k, v)
    >>> heads.shape, weights[0].tolist()
    (torch.Size([2, 3]), [0.3333333432674408, 0.3333333432674408, 0.3333333432674408])
    """
    D = q.shape[-1]
    # [..., T, D] @ [..., D, S] -> [..., T, S]
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    # [..., T, S] @ [..., S, D_v] -> [..., T, D_v]
    heads = weights @ v
    return heads, weights


class Attention(nn.Module):
    """Multi-head causal self-attention: each position mixes the values of itself and the positions before it.

    Vaswani et al. 2017, section 3.2.2; module names as in minGPT. `[B, T, C]` in, `[B, T, C]` out.
    Raises ValueError if C does not divide into H heads, or T exceeds `block_size`.

    >>> attn = Attention(n_embd=21, n_head=3, block_size=5)
    >>> attn(torch.zeros(2, 5, 21)).shape
    torch.Size([2, 5, 21])
    """

    axes: ClassVar[dict[str, str]] = {
        "x": "B T C",
        "c_attn.weight": "3C C",  # nn.Linear stores [out, in]
        "c_attn.bias": "3C",
        "c_proj.weight": "C C",
        "c_proj.bias": "C",
        "bias": "1 1 block_size block_size",
    }
    bias: Tensor

    def __init__(self, n_embd: int, n_head: int, *, block_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(n_embd, n_head)
        check_positive(block_size=block_size)
        self.n_embd, self.n_head, self.block_size = n_embd, n_head, block_size
        # W_q, W_k and W_v as one matrix: one large product is faster than three small ones.
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        # The causal mask, under minGPT's name for it: row i is True up to column i.
        keep = torch.ones(block_size, block_size, dtype=torch.bool).tril()
        self.register_buffer("bias", keep.view(1, 1, block_size, block_size))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.n_embd, "H": self.n_head, "D": self.n_embd // self.n_head}

    def forward(self, x: Tensor) -> Tensor:
        """Return what attention adds to the residual stream x `[B, T, C]`."""
        B, T, C = x.shape
        H, D = self.n_head, C // self.n_head
        check_length(T, self.block_size)

        # 1. [B, T, C] @ [C, 3C] -> [B, T, 3C]
        q, k, v = self.c_attn(x).split(C, dim=2)  # [B, T, 3C] -> 3 x [B, T, C]
        # view cuts the features of each token into H pieces; the transpose makes [T, D] the last two axes, which are
        # the ones that @ multiplies, so that every head is on its own.
        q = q.view(B, T, H, D).transpose(1, 2)  # [B, T, C] -> [B, T, H, D] -> [B, H, T, D]
        k = k.view(B, T, H, D).transpose(1, 2)  # [B, T, C] -> [B, T, H, D] -> [B, H, T, D]
        v = v.view(B, T, H, D).transpose(1, 2)  # [B, T, C] -> [B, T, H, D] -> [B, H, T, D]

        # 2. [B, H, T, D] @ [B, H, D, T] -> [B, H, T, T]
        # A sum of D products varies D times as much as one; sqrt(D) keeps the softmax from saturating.
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)
        mask = self.bias[:, :, :T, :T]  # [1, 1, T, T]
        # exp(-inf) is 0: the future is gone before the softmax divides, so what may be seen sums to 1.
        scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        weights = self.attn_dropout(weights)

        # 3. [B, H, T, T] @ [B, H, T, D] -> [B, H, T, D]
        heads = weights @ v
        # transpose only changed strides; view needs H and D side by side in memory, hence the copy.
        out: Tensor = heads.transpose(1, 2).contiguous().view(B, T, C)  # [B, H, T, D] -> [B, T, H, D] -> [B, T, C]

        # 4. [B, T, C] @ [C, C] -> [B, T, C]
        # So far head h owns features h*D .. h*D+D-1; W_o lets it write to all of them.
        out = self.c_proj(out)
        out = self.resid_dropout(out)
        return out
