"""Attention, every step written out: the operation alone, and one class for all its uses in a Transformer.

Axes: B batch, T query positions, S key positions, C model width, H heads, G key/value heads, D head size (of queries
and keys), D_v head size of values where it is another. Masks are True where a query may look.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from .cache import KVCache
from .inputs import (
    check_choice,
    check_groups,
    check_heads,
    check_inputs,
    check_length,
    check_mask,
    check_positive,
    check_source,
)
from .positions import Rotary

__all__ = ["HOWS", "Attention", "How", "scaled_dot_product_attention"]

How = Literal["steps", "fused", "einops"]
HOWS = ("steps", "fused", "einops")


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return `(heads, weights)`: for each query a mixture of the values, and the shares it was mixed with.

    Vaswani et al. 2017, section 3.2.1, equation 1, without projections. `Attention` writes the same lines out
    between its own, so that its four products stand in one place. One query over data vectors is
    `scaled_dot_product_attention(query, data, data)` with `query` `[1, D]` and `data` `[S, D]`.

    Args:
        q: `[..., T, D]`, what each position looks for.
        k: `[..., S, D]`, what each position is found by.
        v: `[..., S, D_v]`, what each position hands over.
        mask: True where a query may look; broadcasts to `[..., T, S]`. A row without any True gives zeros: that is
            a choice, since the softmax alone would give NaN (0 / 0).

    Returns:
        heads `[..., T, D_v]` and weights `[..., T, S]`, whose rows sum to 1, or to 0 where nothing may be seen.

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
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    # [..., T, S] @ [..., S, D_v] -> [..., T, D_v]
    heads = weights @ v
    return heads, weights


class Attention(nn.Module):
    """Multi-head attention: each position of x mixes the values of the positions that it may see.

    Vaswani et al. 2017, section 3.2.2; grouped heads: Ainslie et al. 2023. By default the causal self-attention of
    GPT, with minGPT's module names. `[B, T, C]` in, `[B, T, C]` out.

    Args:
        n_embd: C.
        n_head: H, query heads.
        n_kv_head: G, key/value heads, each shared by H / G query heads; None: H. 1 is multi-query attention.
        d_head: D, features of a query and of a key; None: C / H. H * D may differ from C.
        d_value: D_v, features of a value; None: D.
        d_source: width of another sequence that keys and values come from: cross-attention. None: they come from x.
        causal: True: position t sees positions up to t. For self-attention alone.
        block_size: with it the causal mask is stored for that many positions, as minGPT does, and a longer x is
            refused; None: the mask is made in each call, for any T.
        bias: biases in the maps to q, k and v.
        out_bias: a bias in the map back to C; None: as `bias`.
        fused_qkv: True: W_q, W_k and W_v are one matrix `c_attn`, as in GPT-2; False: three, `c_q`, `c_k`, `c_v`,
            with the same numbers out; None: one for self-attention with H = G and C = H * D, else three.
        rotary: turns q and k by their positions; None: positions are not this layer's business.
        dropout: share of weights and of outputs set to zero while training.
        how: "steps" spells the operation out, "fused" leaves it to one kernel of torch, "einops" writes it with axis
            names. The numbers are the same up to rounding.

    Raises ValueError for sizes that make no attention.

    >>> attn = Attention(n_embd=21, n_head=3, block_size=5)
    >>> attn(torch.zeros(2, 5, 21)).shape
    torch.Size([2, 5, 21])
    >>> cross = Attention(21, 3, d_source=13, causal=False)
    >>> cross(torch.zeros(2, 5, 21), torch.zeros(2, 7, 13)).shape
    torch.Size([2, 5, 21])
    """

    bias: Tensor

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        *,
        n_kv_head: int | None = None,
        d_head: int | None = None,
        d_value: int | None = None,
        d_source: int | None = None,
        causal: bool = True,
        block_size: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        fused_qkv: bool | None = None,
        rotary: Rotary | None = None,
        dropout: float = 0.0,
        how: How = "steps",
    ) -> None:
        super().__init__()
        if d_head is None:
            check_heads(n_embd, n_head)
            d_head = n_embd // n_head
        self.n_embd, self.n_head, self.n_kv_head = n_embd, n_head, n_head if n_kv_head is None else n_kv_head
        self.d_head, self.d_value = d_head, d_head if d_value is None else d_value
        self.d_source, self.causal, self.block_size, self.how = d_source, causal, block_size, how
        check_positive(n_embd=n_embd, n_head=n_head, d_head=d_head, d_value=self.d_value)
        check_groups(n_head, self.n_kv_head)
        check_choice("how", how, HOWS)
        check_source(d_source, causal, block_size)
        H, G, D, D_v = self.n_head, self.n_kv_head, self.d_head, self.d_value
        self.widths = [H * D, G * D, G * D_v]  # features of q, k and v, all heads side by side
        alike = self.widths == [n_embd] * 3 and d_source is None
        self.fused_qkv = alike if fused_qkv is None else fused_qkv
        if self.fused_qkv and not alike:
            raise ValueError(
                f"fused_qkv=True, but q, k and v have {self.widths} features with n_embd={n_embd} and "
                f"d_source={d_source}. One matrix [3C, C] makes all three for self-attention with H = G and "
                "C = H * D. Leave fused_qkv out."
            )
        if self.fused_qkv:
            # W_q, W_k and W_v as one matrix: one large product is faster than three small ones.
            self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        else:
            self.c_q = nn.Linear(n_embd, H * D, bias=bias)
            self.c_k = nn.Linear(n_embd if d_source is None else d_source, G * D, bias=bias)
            self.c_v = nn.Linear(n_embd if d_source is None else d_source, G * D_v, bias=bias)
        self.c_proj = nn.Linear(H * D_v, n_embd, bias=bias if out_bias is None else out_bias)
        self.rotary = rotary
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        if block_size is not None:
            check_positive(block_size=block_size)
            # The causal mask, under minGPT's name for it: row i is True up to column i.
            keep = torch.ones(block_size, block_size, dtype=torch.bool).tril()
            self.register_buffer("bias", keep.view(1, 1, block_size, block_size))

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs, of every parameter and of the stored mask; nn.Linear stores [out, in]."""
        D_v = "D" if self.d_value == self.d_head else "D_v"
        G = "H" if self.n_kv_head == self.n_head else "G"
        source = "C" if self.d_source is None else "C_s"

        def joined(heads: str, size: str) -> str:
            whole = heads == "H" and size == "D" and self.n_head * self.d_head == self.n_embd
            return "C" if whole else f"({heads} {size})"

        maps = {"c_q": (joined("H", "D"), "C"), "c_k": (joined(G, "D"), source), "c_v": (joined(G, D_v), source)}
        if self.fused_qkv:
            maps = {"c_attn": ("3C", "C")}
        maps["c_proj"] = ("C", joined("H", D_v))
        found = {"x": "B T C"} | ({} if self.d_source is None else {"source": "B S C_s"})
        found |= {"cache.k": f"B {G} S D", "cache.v": f"B {G} S {D_v}"}
        for name, (out, into) in maps.items():
            found[f"{name}.weight"] = f"{out} {into}"
            if getattr(self, name).bias is not None:
                found[f"{name}.bias"] = out
        return found | ({} if self.block_size is None else {"bias": "1 1 block_size block_size"})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes; G, D_v and C_s where they are sizes of their own."""
        found = {"C": self.n_embd, "H": self.n_head, "D": self.d_head}
        others = {"G": (self.n_kv_head, self.n_head), "D_v": (self.d_value, self.d_head)}
        found |= {name: size for name, (size, usual) in others.items() if size != usual}
        return found | ({} if self.d_source is None else {"C_s": self.d_source})

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Return what attention adds to the residual stream x `[B, T, C]`.

        Args:
            x: where queries come from, and keys and values too unless there is a `source`.
            source: `[B, S, C_s]`, for a layer built with `d_source`.
            mask: True where a query may look: `[T, S]`, or anything of four axes that broadcasts to `[B, H, T, S]`.
            padding: `[B, S]`, True where there is a token; with a cache S counts the tokens in it too.
                A query that may see nothing at all gets zeros.
            positions: `[T]` or `[B, T]`, for the rotary turn; None: counted from what the cache holds.
            cache: keys and values of earlier calls, to which those of x are added.
        """
        check_inputs(x, source, C_in=self.n_embd, C_source=self.d_source)
        B, T, C = x.shape
        H, G, D, D_v = self.n_head, self.n_kv_head, self.d_head, self.d_value
        past = 0 if cache is None else len(cache)
        check_length(past + T, self.block_size)

        # 1. [B, T, C] @ [C, 3C] -> [B, T, 3C]
        if self.fused_qkv:
            q, k, v = self.c_attn(x).split(C, dim=2)  # [B, T, 3C] -> 3 x [B, T, C]
        else:
            data = x if source is None else source
            q, k, v = self.c_q(x), self.c_k(data), self.c_v(data)  # [B, T, (H D)], [B, S, (G D)], [B, S, (G D_v)]
        if self.how == "einops":
            q = rearrange(q, "B T (H D) -> B H T D", H=H)
            k = rearrange(k, "B S (G D) -> B G S D", G=G)
            v = rearrange(v, "B S (G D_v) -> B G S D_v", G=G)
        else:
            S = k.shape[1]  # T, unless there is a source
            # view cuts the features of each token into H pieces; the transpose makes [T, D] the last two axes, which
            # are the ones that @ multiplies, so that every head is on its own.
            q = q.view(B, T, H, D).transpose(1, 2)  # [B, T, (H D)] -> [B, T, H, D] -> [B, H, T, D]
            k = k.view(B, S, G, D).transpose(1, 2)  # [B, S, (G D)] -> [B, S, G, D] -> [B, G, S, D]
            v = v.view(B, S, G, D_v).transpose(1, 2)  # [B, S, (G D_v)] -> [B, S, G, D_v] -> [B, G, S, D_v]
        if self.rotary is not None:
            if positions is None:
                positions = torch.arange(past, past + T, device=x.device)  # [T]
            q, k = self.rotary(q, positions), self.rotary(k, positions)  # [B, H, T, D], [B, G, T, D]
        if cache is not None:
            k, v = cache.append(k, v)  # [B, G, past, D], [B, G, T, D] -> [B, G, past+T, D]
        if G < H:
            # Each key/value head serves H / G query heads that stand side by side.
            k = k.repeat_interleave(H // G, dim=1)  # [B, G, S, D] -> [B, H, S, D]
            v = v.repeat_interleave(H // G, dim=1)  # [B, G, S, D_v] -> [B, H, S, D_v]

        if self.how == "fused":
            heads = self._fused(q, k, v, mask, padding)  # [B, H, T, D_v]
            out: Tensor = heads.transpose(1, 2).reshape(B, T, H * D_v)  # -> [B, T, H, D_v] -> [B, T, (H D_v)]
        elif self.how == "einops":
            out = self._einops(q, k, v, mask, padding)  # [B, T, (H D_v)]
        else:
            # 2. [B, H, T, D] @ [B, H, D, S] -> [B, H, T, S]
            # A sum of D products varies D times as much as one; sqrt(D) keeps the softmax from saturating.
            scores = q @ k.transpose(-2, -1) / math.sqrt(D)
            hidden = self._hidden(q, k, mask, padding)  # [1 or B, 1 or H, T, S]
            if hidden is not None:
                # exp(-inf) is 0: it is gone before the softmax divides, so what may be seen sums to 1.
                scores = scores.masked_fill(hidden, float("-inf"))
            weights = F.softmax(scores, dim=-1)
            if hidden is not None and (mask is not None or padding is not None):
                # A row of -inf alone has become NaN, 0 / 0. Zeros are our choice: nothing seen, nothing added.
                weights = weights.masked_fill(hidden, 0.0)
            weights = self.attn_dropout(weights)

            # 3. [B, H, T, S] @ [B, H, S, D_v] -> [B, H, T, D_v]
            heads = weights @ v
            # transpose only changed strides; view needs H and D_v side by side in memory, hence the copy.
            out = heads.transpose(1, 2).contiguous().view(B, T, H * D_v)  # -> [B, T, H, D_v] -> [B, T, (H D_v)]

        # 4. [B, T, (H D_v)] @ [(H D_v), C] -> [B, T, C]
        # So far head h owns features h*D_v .. h*D_v+D_v-1; W_o lets it write to all of the C features.
        out = self.c_proj(out)
        out = self.resid_dropout(out)
        return out

    def _hidden(self, q: Tensor, k: Tensor, asked: Tensor | None, padding: Tensor | None) -> Tensor | None:
        """Return what may not be seen, True there, `[1 or B, 1 or H, T, S]`; None where everything may."""
        (B, H, T, _), S = q.shape, k.shape[2]
        hidden = None
        if self.causal and (T > 1 or S == 1):  # one token after a cache sees all that is there
            # The last T of S positions ask: query t is position S - T + t.
            if self.block_size is not None:
                mask = self.bias[:, :, S - T : S, :S]  # [1, 1, T, S]
            else:
                mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)  # [T, S]
                mask = mask.view(1, 1, T, S)  # [T, S] -> [1, 1, T, S]
            hidden = mask == 0
        if asked is not None:
            check_mask("mask", asked, [(T, S), (1, 1, T, S), (B, 1, T, S), (1, H, T, S), (B, H, T, S)])
            hidden = ~asked if hidden is None else hidden | ~asked
        if padding is not None:
            check_mask("padding", padding, [(B, S)])
            absent = ~padding[:, None, None, :]  # [B, S] -> [B, 1, 1, S]
            hidden = absent if hidden is None else hidden | absent
        return hidden

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        """Return heads `[B, H, T, D_v]` from torch's kernel, which need not store `[B, H, T, S]`."""
        T, S = q.shape[2], k.shape[2]
        dropout = self.attn_dropout.p if self.training else 0.0
        if mask is None and padding is None and T in (1, S):
            # is_causal counts from the first key on, which is right only where T = S; a last position sees all.
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal and T > 1)
        hidden = self._hidden(q, k, mask, padding)
        keep = None if hidden is None else ~hidden
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, dropout_p=dropout)

    def _einops(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        """Return joined heads `[B, T, (H D_v)]`, every axis written by name."""
        scores = einsum(q, k, "B H T D, B H S D -> B H T S") / math.sqrt(q.shape[-1])
        hidden = self._hidden(q, k, mask, padding)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        if hidden is not None and (mask is not None or padding is not None):
            weights = weights.masked_fill(hidden, 0.0)
        heads = einsum(self.attn_dropout(weights), v, "B H T S, B H S D_v -> B H T D_v")
        out: Tensor = rearrange(heads, "B H T D_v -> B T (H D_v)")
        return out
