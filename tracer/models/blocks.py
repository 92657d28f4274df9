"""The parts of a Transformer block besides attention, and the block itself, in both orders of normalisation.

Axes: B batch, T positions, C model width, M hidden width of the MLP, E experts, K experts chosen for each token.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .axes import gather_axes
from .cache import KVCache
from .inputs import check_choice, check_chosen, check_positive, check_residual

__all__ = ["ACTIVATIONS", "MLP", "NORMS", "Activation", "Block", "LayerNorm", "MoE", "Norm", "RMSNorm", "SwiGLU"]

Activation = Literal["gelu_tanh", "gelu_erf", "relu"]
Norm = Literal["pre", "post"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),  # GPT-2, minGPT: up to 5e-4 away from the exact one
    "gelu_erf": nn.GELU,  # Hendrycks & Gimpel 2016
    "relu": nn.ReLU,  # Vaswani et al. 2017
}
NORMS = ("pre", "post")


class LayerNorm(nn.LayerNorm):
    """Each token's C features, shifted to mean 0 and scaled to variance 1, then scaled and shifted as learned.

    `(x - mean) / sqrt(variance + eps) * weight + bias`, over the last axis alone: tokens do not meet here.
    Ba et al. 2016. `[..., C]` in, `[..., C]` out. eps is 1e-5 in GPT-2, 1e-12 in BERT and ViT.
    """

    def __init__(self, n_embd: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        check_positive(n_embd=n_embd)
        super().__init__(n_embd, eps=eps, bias=bias)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the input and of every parameter."""
        return {"input": "B T C"} | {name: "C" for name, _ in self.named_parameters()}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.normalized_shape[0]}


class RMSNorm(nn.Module):
    """Each token's C features, divided by their root mean square and scaled as learned: nothing is shifted.

    `x / sqrt(mean(x^2) + eps) * weight`. Zhang & Sennrich 2019, equation 4. `[..., C]` in, `[..., C]` out.

    >>> [round(y, 4) for y in RMSNorm(2)(torch.tensor([3.0, 4.0])).tolist()]  # over sqrt((9 + 16) / 2) = 3.5355
    [0.8485, 1.1314]
    """

    axes: ClassVar[dict[str, str]] = {"x": "B T C", "weight": "C"}

    def __init__(self, n_embd: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        check_positive(n_embd=n_embd)
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.eps = eps

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.weight.shape[0]}

    def forward(self, x: Tensor) -> Tensor:
        """Return x `[..., C]` with a root mean square of `weight` in each token."""
        half = x.dtype in (torch.float16, torch.bfloat16)
        wide = x.float() if half else x  # 300 squared is more than float16 can hold
        power = wide.pow(2).mean(dim=-1, keepdim=True)  # [..., C] -> [..., 1]
        wide = wide * torch.rsqrt(power + self.eps)  # [..., C] * [..., 1] -> [..., C]
        return self.weight * (wide.to(x.dtype) if half else wide)


class MLP(nn.Module):
    """The position-wise network: the same two layers at every position, so features mix and positions do not.

    Vaswani et al. 2017, section 3.3; module names as in minGPT. `[B, T, C]` in, `[B, T, C]` out.
    M is `d_mlp`, by default 4 C: the usual ratio, not a law. Raises ValueError for an unknown activation.

    >>> MLP(21, 84).sizes
    {'C': 21, 'M': 84}
    """

    def __init__(
        self,
        n_embd: int,
        d_mlp: int | None = None,
        *,
        activation: Activation = "gelu_tanh",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_mlp = 4 * n_embd if d_mlp is None else d_mlp
        check_positive(n_embd=n_embd, d_mlp=d_mlp)
        check_choice("activation", activation, ACTIVATIONS)
        self.c_fc = nn.Linear(n_embd, d_mlp, bias=bias)
        self.c_proj = nn.Linear(d_mlp, n_embd, bias=bias)
        self.act = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the input and of every parameter; nn.Linear stores [out, in]."""
        biases = {} if self.c_fc.bias is None else {"c_fc.bias": "M", "c_proj.bias": "C"}
        return {"x": "B T C", "c_fc.weight": "M C", "c_proj.weight": "C M"} | biases

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.c_fc.in_features, "M": self.c_fc.out_features}

    def forward(self, x: Tensor) -> Tensor:
        """Return what the MLP adds to the residual stream x `[B, T, C]`."""
        # [B, T, C] @ [C, M] -> [B, T, M]
        hidden = self.c_fc(x)
        # Without it the two layers would be one matrix, [C, M] @ [M, C].
        hidden = self.act(hidden)
        # [B, T, M] @ [M, C] -> [B, T, C]
        out: Tensor = self.c_proj(hidden)
        out = self.dropout(out)
        return out


class SwiGLU(nn.Module):
    """A position-wise network whose hidden features are opened or closed by a second map of the same input.

    `W_o (silu(W_g x) * W_i x)`, without biases. Shazeer 2020, equation 6. `[..., C]` in, `[..., C]` out.
    With three matrices instead of two, M is usually 8/3 C where an MLP has 4 C: the same number of parameters.

    >>> SwiGLU(21, 56).sizes
    {'C': 21, 'M': 56}
    """

    axes: ClassVar[dict[str, str]] = {
        "x": "B T C",
        "c_gate.weight": "M C",  # nn.Linear stores [out, in]
        "c_fc.weight": "M C",
        "c_proj.weight": "C M",
    }

    def __init__(self, n_embd: int, d_mlp: int | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(n_embd=n_embd)
        d_mlp = max(1, 8 * n_embd // 3) if d_mlp is None else d_mlp
        check_positive(d_mlp=d_mlp)
        self.c_gate = nn.Linear(n_embd, d_mlp, bias=False)
        self.c_fc = nn.Linear(n_embd, d_mlp, bias=False)
        self.c_proj = nn.Linear(d_mlp, n_embd, bias=False)
        self.dropout = nn.Dropout(dropout)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.c_fc.in_features, "M": self.c_fc.out_features}

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network adds to the residual stream x `[..., C]`."""
        # [..., C] @ [C, M] -> [..., M], twice; silu(z) = z * sigmoid(z)
        hidden = F.silu(self.c_gate(x)) * self.c_fc(x)
        # [..., M] @ [M, C] -> [..., C]
        out: Tensor = self.c_proj(hidden)
        out = self.dropout(out)
        return out


class MoE(nn.Module):
    """A mixture of experts: E SwiGLU networks, of which a router chooses K for each token.

    Shazeer et al. 2017; Jiang et al. 2024, section 2.1: the softmax runs over the scores of all E, and the K largest
    shares are kept and, with `renormalise`, divided by their sum. Parameters count E times, useful arithmetic K times.
    Here every expert reads every token and the shares of those not chosen are 0, so that all shapes are known
    beforehand; an implementation for speed sends each expert its own tokens only.
    `[B, T, C]` in, `[B, T, C]` out; `load` holds, after a call, the share of all choices that fell on each expert.

    >>> moe = MoE(6, 8, n_expert=3, n_chosen=2)
    >>> out = moe(torch.randn(2, 5, 6))
    >>> out.shape, moe.load.shape, round(moe.load.sum().item(), 4)
    (torch.Size([2, 5, 6]), torch.Size([3]), 1.0)
    """

    def __init__(
        self,
        n_embd: int,
        d_mlp: int | None = None,
        *,
        n_expert: int,
        n_chosen: int = 2,
        renormalise: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_chosen(n_expert, n_chosen)
        self.n_expert, self.n_chosen, self.renormalise = n_expert, n_chosen, renormalise
        self.router = nn.Linear(n_embd, n_expert, bias=False)
        self.experts = nn.ModuleList(SwiGLU(n_embd, d_mlp, dropout=dropout) for _ in range(n_expert))
        self.load: Tensor | None = None

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the input and of every parameter."""
        return gather_axes(self, {"x": "B T C", "router.weight": "E C"})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        first = self.experts[0]
        assert isinstance(first, SwiGLU)
        return first.sizes | {"E": self.n_expert, "K": self.n_chosen}

    def forward(self, x: Tensor) -> Tensor:
        """Return what the chosen experts add to the residual stream x `[B, T, C]`."""
        # [B, T, C] @ [C, E] -> [B, T, E]
        weights = F.softmax(self.router(x), dim=-1)
        top, chosen = weights.topk(self.n_chosen, dim=-1)  # [B, T, E] -> 2 x [B, T, K]
        if self.renormalise:
            top = top / top.sum(dim=-1, keepdim=True)  # [B, T, K] / [B, T, 1]
        shares = torch.zeros_like(weights).scatter(-1, chosen, top)  # [B, T, E], 0 where not chosen
        self.load = (shares.detach() > 0).to(x.dtype).mean(dim=(0, 1)) / self.n_chosen  # [B, T, E] -> [E]
        out = torch.zeros_like(x)
        for share, expert in zip(shares.unbind(dim=-1), self.experts, strict=True):
            out = out + share.unsqueeze(-1) * expert(x)  # [B, T, 1] * [B, T, C] -> [B, T, C]
        return out


class Block(nn.Module):
    """One Transformer block: attention moves information between tokens, the MLP works on each token alone.

    `norm="pre"` normalises what each part reads (GPT-2; Xiong et al. 2020); `norm="post"` normalises the sum that
    each part leaves (Vaswani et al. 2017, section 3.1; GPT-1). Both have the same parameters. With `cross` it has the
    three parts of the paper's decoder: self-attention, attention to the encoder's output, MLP.
    `[B, T, C]` in, `[B, T, C]` out: a part can only be added to a stream of its own shape.

    Args:
        n_embd: C.
        n_head: H.
        block_size: of the stored causal mask; None: see `Attention`.
        d_mlp: M; None: 4 C.
        norm: "pre" or "post".
        activation: of the MLP.
        dropout: in attention and MLP, while training.
        attn: the self-attention, where it is another than causal attention with H heads.
        cross: the cross-attention, `Attention(C, H, d_source=..., causal=False)`; None: the block has none.
        mlp: the position-wise network, where it is another than MLP: SwiGLU, MoE, or your own.
        make_norm: makes a normalisation for width C: LayerNorm, RMSNorm, or `partial(LayerNorm, eps=1e-12)`.

    >>> from torch import zeros
    >>> Block(21, 3, block_size=5, norm="post")(zeros(2, 5, 21)).shape
    torch.Size([2, 5, 21])
    """

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        *,
        block_size: int | None = None,
        d_mlp: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "gelu_tanh",
        dropout: float = 0.0,
        attn: Attention | None = None,
        cross: Attention | None = None,
        mlp: nn.Module | None = None,
        make_norm: Callable[[int], nn.Module] = LayerNorm,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        self.norm = norm
        self.ln_1 = make_norm(n_embd)
        self.attn = attn or Attention(n_embd, n_head, block_size=block_size, dropout=dropout)
        if cross is not None:
            self.ln_cross = make_norm(n_embd)
        self.cross = cross
        self.ln_2 = make_norm(n_embd)
        self.mlp = mlp or MLP(n_embd, d_mlp, activation=activation, dropout=dropout)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs, of every parameter and of the mask."""
        own = {"x": "B T C"}
        if self.cross is not None:
            own |= {"memory": "B S C_s"}
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        cross = {} if self.cross is None else self.cross.sizes
        return cross | self.attn.sizes | getattr(self.mlp, "sizes", {})

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        memory_padding: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Return the residual stream x `[B, T, C]` with what its parts add to it.

        `memory` `[B, S, C_s]` is what the cross-attention reads and `memory_padding` `[B, S]` is True where it has a
        token; the rest is as in `Attention`.
        """
        if memory is not None and self.cross is None:
            raise ValueError("memory is given, but this block has no cross-attention. Build it with cross=.")
        seen = {"mask": mask, "padding": padding, "positions": positions, "cache": cache}
        if self.norm == "pre":
            x = x + check_residual(self.attn(self.ln_1(x), **seen), x)
            if self.cross is not None:
                x = x + check_residual(self.cross(self.ln_cross(x), memory, padding=memory_padding), x)
            x = x + check_residual(self.mlp(self.ln_2(x)), x)
        else:
            x = self.ln_1(x + check_residual(self.attn(x, **seen), x))
            if self.cross is not None:
                x = self.ln_cross(x + check_residual(self.cross(x, memory, padding=memory_padding), x))
            x = self.ln_2(x + check_residual(self.mlp(x), x))
        return x
