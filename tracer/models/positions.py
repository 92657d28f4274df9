"""Where a token stands: vectors that are added to the stream or set beside it, and the rotary turn of q and k.

Attention alone does not know the order of its inputs. `SinusoidalPositions` and `LearnedPositions` map position numbers
to vectors, `joined` puts those and the tokens' vectors together; `Rotary` acts inside attention. A model with none of
them treats its tokens as a set, but for the causal mask.

Axes: B batch, T positions, C model width, D head size.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from .inputs import check_choice, check_even, check_positions, check_positive

__all__ = ["LAYOUTS", "Layout", "LearnedPositions", "Rotary", "SinusoidalPositions", "joined"]

Layout = Literal["interleaved", "halves"]
LAYOUTS = ("interleaved", "halves")


def _angles(positions: Tensor, n: int, base: float, dtype: torch.dtype) -> Tensor:
    """Return `[..., n/2]`: each position number times the frequencies 1, ..., base^(-(n-2)/n), in radians."""
    dtype = torch.promote_types(dtype, torch.float32)  # bfloat16 cannot tell position 256 from 257
    frequencies = base ** (-torch.arange(0, n, 2, device=positions.device, dtype=dtype) / n)  # [n/2]
    return positions.to(dtype).unsqueeze(-1) * frequencies  # [..., 1] * [n/2] -> [..., n/2]


class SinusoidalPositions(nn.Module):
    """A vector of C sines and cosines for each position; nothing is learned, and any position can be computed.

    Vaswani et al. 2017, section 3.5: feature 2i is `sin(t / 10000^(2i/C))`, feature 2i+1 the cosine of the same
    angle ("interleaved"). Marian and BART put all sines first ("halves"): the same features in another order.

    >>> SinusoidalPositions(4)(torch.arange(2)).round(decimals=2).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]]
    """

    def __init__(self, n_embd: int, *, layout: Layout = "interleaved", base: float = 10000.0) -> None:
        super().__init__()
        check_even("n_embd", n_embd)
        check_choice("layout", layout, LAYOUTS)
        self.n_embd, self.layout, self.base = n_embd, layout, base

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.n_embd}

    def forward(self, positions: Tensor) -> Tensor:
        """Return vectors `[..., C]`, float32, for position numbers `[...]`."""
        angles = _angles(positions, self.n_embd, self.base, torch.float32)  # [...] -> [..., C/2]
        sines, cosines = angles.sin(), angles.cos()
        if self.layout == "halves":
            return torch.cat([sines, cosines], dim=-1)  # 2 x [..., C/2] -> [..., C]
        return torch.stack([sines, cosines], dim=-1).flatten(-2)  # 2 x [..., C/2] -> [..., C/2, 2] -> [..., C]


class LearnedPositions(nn.Embedding):
    """A table with one learned row of C features for each position up to `block_size` (GPT, BERT, ViT).

    >>> LearnedPositions(5, 4)(torch.arange(3)).shape
    torch.Size([3, 4])
    """

    axes: ClassVar[dict[str, str]] = {"weight": "block_size C"}

    def __init__(self, block_size: int, n_embd: int) -> None:
        check_positive(block_size=block_size, n_embd=n_embd)
        super().__init__(block_size, n_embd)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.embedding_dim}


class Rotary(nn.Module):
    """Turns each pair of features of q or k by its position times the pair's own frequency.

    Su et al. 2021, section 3.2. Turned by m and n, a query and a key meet in `q^T R(n-m) k`: only the distance
    counts. Values are not turned, and nothing is learned. "halves" pairs feature i with i + D/2 (Llama), "interleaved"
    2i with 2i+1 (the paper): weights made for one are wrong for the other until their rows are put in order.

    >>> Rotary(2)(torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]]), torch.arange(2)).round(decimals=2).tolist()
    [[[[1.0, 0.0], [0.5400000214576721, 0.8399999737739563]]]]
    """

    axes: ClassVar[dict[str, str]] = {"x": "B H T D"}

    def __init__(self, d_head: int, *, layout: Layout = "halves", base: float = 10000.0) -> None:
        super().__init__()
        check_even("d_head", d_head)
        check_choice("layout", layout, LAYOUTS)
        self.d_head, self.layout, self.base = d_head, layout, base

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"D": self.d_head}

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x `[B, H, T, D]` turned by positions `[T]` or `[B, T]`."""
        check_positions(positions, x, self.d_head)
        if positions.dim() == 2:
            positions = positions.unsqueeze(1)  # [B, T] -> [B, 1, T], the same for every head
        angles = _angles(positions, self.d_head, self.base, x.dtype)  # [T, D/2] or [B, 1, T, D/2]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.layout == "halves":
            a, b = x.chunk(2, dim=-1)  # [B, H, T, D] -> 2 x [B, H, T, D/2]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)  # 2 x [B, H, T, D/2] -> [B, H, T, D]
        a, b = x[..., 0::2], x[..., 1::2]  # [B, H, T, D] -> 2 x [B, H, T, D/2]
        # 2 x [B, H, T, D/2] -> [B, H, T, D/2, 2] -> [B, H, T, D]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)


def joined(x: Tensor, vectors: Tensor, how: Literal["add", "concat"] = "add") -> Tensor:
    """Return tokens x `[B, T, C]` together with position vectors `[T, P]` or `[B, T, P]`.

    "add" keeps the width and needs P = C; "concat" sets them beside each other, `[B, T, C+P]`: what follows has to be
    as wide as that. Addition is concatenation followed by a linear map that reads both with the same weights.

    >>> joined(torch.zeros(2, 5, 4), torch.ones(5, 3), "concat").shape
    torch.Size([2, 5, 7])
    """
    check_choice("how", how, ("add", "concat"))
    if how == "add":
        if vectors.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"position vectors have {vectors.shape[-1]} features and tokens {x.shape[-1]}: to be added they need "
                'the same number. Give how="concat" to set them beside each other.'
            )
        return x + vectors.to(x.dtype)  # [B, T, C] + [T, C] -> [B, T, C]
    vectors = vectors.to(x.dtype).expand(*x.shape[:-1], -1)  # [T, P] -> [B, T, P]
    return torch.cat([x, vectors], dim=-1)  # [B, T, C], [B, T, P] -> [B, T, C+P]
