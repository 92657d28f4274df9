"""What the inside of a fused operation computes, as plain torch code: the steps that `expand=True` shows.

Each function takes the arguments of the operation whose name it bears and gives its numbers, with these exceptions: a
row that a mask closes wholly is NaN here and zeros in PyTorch's attention kernel, and dropout draws other numbers. The
recorder runs them on stand-ins without numbers, so that nothing is computed twice and no random number is drawn.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .speech import say

__all__ = ["BOXES", "MOST_STEPS"]

MOST_STEPS = 3
"""Time steps of a recurrent layer that are shown; the others are like them."""


# ------------------------------------------------------------------ attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention over the last two axes; a mask is True, or 0, where a position may be read.

    Shapes: query [..., H, T, D]; key and value [..., H or G, S, D]; attn_mask broadcastable to [..., H, T, S].
    Returns [..., H, T, D].
    """
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)  # [..., H, S, D]
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
    k = key.transpose(-2, -1)  # [..., H, D, S]
    # [..., H, T, D] @ [..., H, D, S] -> [..., H, T, S]
    scores = query @ k
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:  # the first query reads the first key, also where there are more keys than queries
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~causal, float("-inf"))
    scores = _masked(scores, attn_mask)
    weights = scores.softmax(dim=-1)
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    # [..., H, T, S] @ [..., H, S, D] -> [..., H, T, D]
    out = weights @ value
    return out


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Close what a mask closes: where it is False, or by the number it adds."""
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    else:
        scores = scores + mask
    return scores


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention as in nn.MultiheadAttention; its masks are True, or -inf, where nothing may be read.

    Shapes: query [T, B, C]; key and value [S, B, C]; without B for one sequence alone. Returns the result [T, B, C] and
    the weights [B, T, S], or [B, H, T, S] where they are not averaged over the heads.
    """
    if bias_k is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise NotImplementedError("positions added to the keys")
    alone = query.dim() == 2
    if alone:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    T, B, C = query.shape
    S, H, D = key.shape[0], num_heads, C // num_heads
    # 1. three projections
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        w_q, w_k, w_v = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        assert in_proj_weight is not None
        w_q, w_k, w_v = in_proj_weight.reshape(3, C, C).unbind(0)  # three of [C, C]
    b_q, b_k, b_v = in_proj_bias.reshape(3, C).unbind(0) if in_proj_bias is not None else (None, None, None)
    q = F.linear(query, w_q, b_q)  # [T, B, C]
    k = F.linear(key, w_k, b_k)  # [S, B, C]
    v = F.linear(value, w_v, b_v)
    # 2. heads
    q = q.view(T, B, H, D).permute(1, 2, 0, 3)  # [B, H, T, D]
    k = k.view(S, B, H, D).permute(1, 2, 0, 3)  # [B, H, S, D]
    v = v.view(S, B, H, D).permute(1, 2, 0, 3)
    # 3. scores; [B, H, T, D] @ [B, H, D, S] -> [B, H, T, S]
    q = q * D**-0.5
    scores = q @ k.transpose(-2, -1)
    if attn_mask is not None:
        per_head = attn_mask.view(B, H, T, S) if attn_mask.dim() == 3 else attn_mask
        scores = _closed(scores, per_head)
    if key_padding_mask is not None:
        padding = key_padding_mask.view(B, 1, 1, S)
        scores = _closed(scores, padding)
    weights = scores.softmax(dim=-1)
    if training and dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    # 4. values, joined and projected; [B, H, T, S] @ [B, H, S, D] -> [B, H, T, D]
    heads = weights @ v
    joined = heads.permute(2, 0, 1, 3).reshape(T, B, C)  # [T, B, C]
    out = F.linear(joined, out_proj_weight, out_proj_bias)
    if alone:
        out = out.squeeze(1)
    if not need_weights:
        return out, None
    if average_attn_weights:
        weights = weights.mean(dim=1)  # [B, T, S]
    return out, weights.squeeze(0) if alone else weights


def _closed(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(mask, float("-inf"))
    else:
        scores = scores + mask
    return scores


# ------------------------------------------------------------------ recurrent layers


def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of a GRU (Cho et al. 2014, with PyTorch's reset after the product). Shapes: x [B, C], h [B, C]."""
    from_x = F.linear(x, w_ih, b_ih)  # [B, 3C]
    from_h = F.linear(h, w_hh, b_hh)
    r_x, z_x, n_x = from_x.chunk(3, dim=-1)  # three of [B, C]
    r_h, z_h, n_h = from_h.chunk(3, dim=-1)
    reset = torch.sigmoid(r_x + r_h)
    update = torch.sigmoid(z_x + z_h)
    new = torch.tanh(n_x + reset * n_h)
    h = (1 - update) * new + update * h
    return h


def lstm_cell(
    x: Tensor, state: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM (Hochreiter and Schmidhuber 1997). Shapes: x [B, C]; state: h [B, C] and c [B, C]."""
    h, c = state
    gates = F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)  # [B, 4C]
    i, f, g, o = gates.chunk(4, dim=-1)  # four of [B, C]
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def rnn_tanh_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of an Elman network. Shapes: x [B, C], h [B, C]."""
    h = torch.tanh(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh))
    return h


def rnn_relu_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of an Elman network with ReLU. Shapes: x [B, C], h [B, C]."""
    h = torch.relu(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh))
    return h


def _recurrent(name: str, cell: Callable[..., Any]) -> Callable[..., str]:
    """Return the layer that runs a cell along the positions: the first steps of its first layer."""

    def layer(
        x: Tensor,
        state: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> str:
        """Run the cell and say how far; x is [T, B, C], or [B, T, C] with batch_first."""
        if isinstance(state, Tensor) and not state.is_floating_point():
            raise NotImplementedError("a packed sequence")
        weights = params[: 4 if has_biases else 2]
        axis = x.dim() - 2 if batch_first else 0
        T, layers = x.shape[axis], num_layers * (2 if bidirectional else 1)
        h = tuple(s[0] for s in state) if isinstance(state, list | tuple) else state[0]
        if isinstance(h, tuple) and h[0].shape != h[1].shape:
            raise NotImplementedError("a projection of the hidden state")
        for x_t in x.unbind(axis)[:MOST_STEPS]:
            h = cell(x_t, h, *weights)
        if T <= MOST_STEPS and layers == 1:
            return ""
        return say(
            "{name} is opened for {shown} of its {T} positions, in the first of its layers and directions ({layers}): "
            "the others run the same steps.",
            name=name, shown=min(T, MOST_STEPS), T=T, layers=layers,
        )  # fmt: skip

    return layer


BOXES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        scaled_dot_product_attention,
        multi_head_attention_forward,
        gru_cell,
        lstm_cell,
        rnn_tanh_cell,
        rnn_relu_cell,
    )
} | {
    "gru": _recurrent("gru", gru_cell),
    "lstm": _recurrent("lstm", lstm_cell),
    "rnn_tanh": _recurrent("rnn_tanh", rnn_tanh_cell),
    "rnn_relu": _recurrent("rnn_relu", rnn_relu_cell),
}
"""Name of an operation -> the function that tells its steps; a text that it returns is a notice."""
