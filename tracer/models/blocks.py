"""The parts of a Transformer block besides attention, and the block itself, in both orders of normalisation.

Axes: B batch, T positions, C model width, M hidden width of the MLP.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor, nn

from .attention import Attention
from .axes import gather_axes
from .inputs import check_choice, check_positive

__all__ = ["ACTIVATIONS", "MLP", "NORMS", "Activation", "Block", "LayerNorm", "Norm"]

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
    Ba et al. 2016. `[..., C]` in, `[..., C]` out.
    """

    axes: ClassVar[dict[str, str]] = {"weight": "C", "bias": "C"}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.normalized_shape[0]}


class MLP(nn.Module):
    """The position-wise network: the same two layers at every position, so features mix and positions do not.

    Vaswani et al. 2017, section 3.3; module names as in minGPT. `[B, T, C]` in, `[B, T, C]` out.
    M is `d_mlp`, by default 4 C: the usual ratio, not a law. Raises ValueError for an unknown activation.

    >>> MLP(21, 84).sizes
    {'C': 21, 'M': 84}
    """

    axes: ClassVar[dict[str, str]] = {
        "x": "B T C",
        "c_fc.weight": "M C",  # nn.Linear stores [out, in]
        "c_fc.bias": "M",
        "c_proj.weight": "C M",
        "c_proj.bias": "C",
    }

    def __init__(
        self, n_embd: int, d_mlp: int | None = None, *, activation: Activation = "gelu_tanh", dropout: float = 0.0
    ) -> None:
        super().__init__()
        d_mlp = 4 * n_embd if d_mlp is None else d_mlp
        check_positive(n_embd=n_embd, d_mlp=d_mlp)
        check_choice("activation", activation, ACTIVATIONS)
        self.c_fc = nn.Linear(n_embd, d_mlp)
        self.c_proj = nn.Linear(d_mlp, n_embd)
        self.act = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

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


class Block(nn.Module):
    """One Transformer block: attention moves information between tokens, the MLP works on each token alone.

    `norm="pre"` normalises what each part reads (GPT-2; Xiong et al. 2020); `norm="post"` normalises the sum that
    each part leaves (Vaswani et al. 2017, section 3.1; GPT-1). Both have the same parameters.
    `[B, T, C]` in, `[B, T, C]` out: a part can only be added to a stream of its own shape.

    >>> from torch import zeros
    >>> Block(21, 3, block_size=5, norm="post")(zeros(2, 5, 21)).shape
    torch.Size([2, 5, 21])
    """

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        *,
        block_size: int,
        d_mlp: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "gelu_tanh",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        self.norm = norm
        self.ln_1 = LayerNorm(n_embd)
        self.attn = Attention(n_embd, n_head, block_size=block_size, dropout=dropout)
        self.ln_2 = LayerNorm(n_embd)
        self.mlp = MLP(n_embd, d_mlp, activation=activation, dropout=dropout)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the input, of every parameter and of the mask."""
        return gather_axes(self, {"x": "B T C"})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return self.attn.sizes | self.mlp.sizes

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream x `[B, T, C]` with what both parts add to it."""
        if self.norm == "pre":
            x = x + self.attn(self.ln_1(x))
            x = x + self.mlp(self.ln_2(x))
        else:
            x = self.ln_1(x + self.attn(x))
            x = self.ln_2(x + self.mlp(x))
        return x
