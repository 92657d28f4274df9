"""Right answers to the exercises of notebook 18, in other styles than the reference's."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from tracer.models import Attention


def layer_by_kernel(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    q, k, v = rearrange(x @ w_qkv, "b t (n h d) -> n b h t d", n=3, h=H)
    return rearrange(F.scaled_dot_product_attention(q, k, v, is_causal=True), "b h t d -> b t (h d)") @ w_o


def layer_by_head(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    C, T = x.shape[2], x.shape[1]
    D = C // H
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    out = torch.zeros_like(x)
    for h in range(H):
        q, k, v = (x @ w_qkv[:, n * C + h * D : n * C + (h + 1) * D] for n in range(3))
        scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(future, float("-inf"))
        out = out + scores.softmax(dim=2) @ v @ w_o[h * D : (h + 1) * D]
    return out


def layer_of_the_models(x: Tensor, w_qkv: Tensor, w_o: Tensor, H: int) -> Tensor:
    layer = Attention(x.shape[-1], H, bias=False).double()
    layer.load_state_dict({"c_attn.weight": w_qkv.T.double(), "c_proj.weight": w_o.T.double()})
    return layer(x.double())  # type: ignore[no-any-return]


RIGHT: dict[str, list[Any]] = {
    "repaired_attention": [layer_by_kernel, layer_by_head, layer_of_the_models],
    "name_the_step": ["c", "C", " (c)."],
    "read_the_step": ["B H T D_v", "[B, H, T, D_v]", "b h t d_v"],
    "count_llama": [8030261248, 8030261248.0, torch.tensor(8030261248)],
}
