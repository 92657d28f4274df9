"""The Vision Transformer: an image cut into patches, and each patch read as a token.

Axes: B batch, R colour channels, Y and X rows and columns of an image, P edge of a patch, N patches, C model width,
V classes; H, D and M belong to the blocks.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .axes import gather_axes
from .blocks import Activation, Block, LayerNorm
from .inputs import check_choice, check_image_targets, check_images, check_positive
from .positions import LearnedPositions

__all__ = ["Pool", "VisionTransformer"]

Pool = Literal["mean", "class"]


class VisionTransformer(nn.Module):
    """Pre-norm blocks without a mask over the patches of an image, and a score for each class.

    Dosovitskiy et al. 2021, section 3.1; with pool="class" the numbers of transformers' ViTForImageClassification.

    Args:
        image: Y and X, rows and columns in pixels.
        patch: P, edge of a patch in pixels; divides Y and X.
        n_class: V.
        n_layer, n_head, n_embd, d_mlp: sizes, as in GPTConfig.
        channels: R.
        pool: what the classes are read from: the "mean" of all patches, or a "class" token that stands before them.
        positions: learned position vectors; False: the patches are a set.
        activation: of the MLPs.
        eps: of every LayerNorm.
        dropout: share set to zero while training.

    >>> model = VisionTransformer((8, 8), 2, n_class=10, n_layer=2, n_head=3, n_embd=48).eval()
    >>> logits, loss = model(torch.zeros(5, 1, 8, 8))
    >>> logits.shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        image: tuple[int, int],
        patch: int,
        *,
        n_class: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        d_mlp: int | None = None,
        channels: int = 1,
        pool: Pool = "mean",
        positions: bool = True,
        activation: Activation = "gelu_erf",
        eps: float = 1e-12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        Y, X = image
        check_positive(rows=Y, columns=X, patch=patch, n_class=n_class, n_layer=n_layer, channels=channels)
        check_choice("pool", pool, ("mean", "class"))
        if Y % patch or X % patch:
            raise ValueError(f"patch={patch} does not divide an image of {Y} x {X} pixels: no pixel may be left over.")
        self.image, self.patch, self.channels, self.n_class, self.pool = (Y, X), patch, channels, n_class, pool
        self.n_patch = (Y // patch) * (X // patch)
        make_norm = partial(LayerNorm, eps=eps)
        self.projection = nn.Linear(channels * patch * patch, n_embd)
        self.cls = nn.Parameter(torch.zeros(1, 1, n_embd)) if pool == "class" else None
        self.wpe = LearnedPositions(self.n_patch + (pool == "class"), n_embd) if positions else None
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(
            Block(
                n_embd, n_head, d_mlp=d_mlp, activation=activation, dropout=dropout, make_norm=make_norm,
                attn=Attention(n_embd, n_head, causal=False, fused_qkv=False, dropout=dropout),
            )
            for _ in range(n_layer)
        )  # fmt: skip
        self.ln_f = make_norm(n_embd)
        self.head = nn.Linear(n_embd, n_class)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs and of every parameter."""
        own = {"images": "B R Y X", "targets": "B", "projection.weight": "C (R P P)", "projection.bias": "C"}
        own |= {"head.weight": "V C", "head.bias": "V"}
        if self.cls is not None:
            own["cls"] = "1 1 C"
        gathered = gather_axes(self, own)
        if self.wpe is not None:
            gathered["wpe.weight"] = "N C" if self.cls is None else "1+N C"
        return gathered

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        first, (Y, X) = self.h[0], self.image
        assert isinstance(first, Block)
        own = {"V": self.n_class, "L": len(self.h), "R": self.channels, "Y": Y, "X": X, "P": self.patch}
        return first.sizes | own | {"N": self.n_patch}

    def forward(self, images: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            images: `[B, R, Y, X]`.
            targets: the class of each image, `[B]`.
        """
        check_images(images, (self.channels, *self.image))
        x = self.projection(self.patches(images))  # [B, N, (R P P)] @ [(R P P), C] -> [B, N, C]
        if self.cls is not None:
            cls = self.cls.expand(len(x), -1, -1)  # [1, 1, C] -> [B, 1, C]
            x = torch.cat([cls, x], dim=1)  # [B, 1, C], [B, N, C] -> [B, 1+N, C]
        if self.wpe is not None:
            x = x + self.wpe.weight  # [B, N, C] + [N, C] -> [B, N, C]; every image has all positions
        x = self.drop(x)
        for block in self.h:
            x = block(x)  # [B, N, C]
        x = self.ln_f(x)
        out = x.mean(dim=1) if self.pool == "mean" else x[:, 0]  # [B, N, C] -> [B, C]
        logits = self.head(out)  # [B, C] @ [C, V] -> [B, V]
        if targets is None:
            return logits, None
        check_image_targets(targets, len(images), self.n_class)
        return logits, F.cross_entropy(logits, targets)

    def patches(self, images: Tensor) -> Tensor:
        """Return images `[B, R, Y, X]` as a row of patches, each with its R P P numbers: `[B, N, (R P P)]`."""
        P = self.patch
        x = torch.unflatten(images, 2, (-1, P))  # [B, R, Y, X] -> [B, R, Y/P, P, X]
        x = torch.unflatten(x, 4, (-1, P))  # -> [B, R, Y/P, P, X/P, P]
        x = x.permute(0, 2, 4, 1, 3, 5)  # -> [B, Y/P, X/P, R, P, P]: what belongs to one patch stands together
        return x.flatten(3).flatten(1, 2)  # -> [B, Y/P, X/P, (R P P)] -> [B, N, (R P P)]

    def convolve(self, images: Tensor) -> Tensor:
        """Return what `projection(patches(images))` returns, by a convolution of stride P with the same weights.

        A window that moves by its own width reads each patch once: `[B, R, Y, X] -> [B, C, Y/P, X/P] -> [B, N, C]`.
        """
        P, weight = self.patch, self.projection.weight  # [C, (R P P)]
        kernel = weight.view(-1, self.channels, P, P)  # [C, (R P P)] -> [C, R, P, P]
        x = F.conv2d(images, kernel, self.projection.bias, stride=P)  # [B, R, Y, X] -> [B, C, Y/P, X/P]
        return x.flatten(2).transpose(1, 2)  # [B, C, Y/P, X/P] -> [B, C, N] -> [B, N, C]
