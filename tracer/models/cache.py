"""The memory of generation: keys and values of the tokens that were read before, so that they are not made again."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["KVCache"]


@dataclass(eq=False)
class KVCache:
    """Keys and values of one attention layer, for the positions seen so far; a model has one for each block.

    They are kept as the layer makes them: after the rotary turn, and for the G key/value heads alone.

    >>> cache = KVCache()
    >>> k, v = cache.append(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 7))
    >>> k, v = cache.append(torch.zeros(2, 3, 1, 7), torch.zeros(2, 3, 1, 7))
    >>> k.shape, len(cache), cache.nbytes  # 2 * (2 * 3 * 6 * 7) numbers of 4 bytes
    (torch.Size([2, 3, 6, 7]), 6, 2016)
    """

    k: Tensor | None = None
    """`[B, G, S, D]`."""
    v: Tensor | None = None
    """`[B, G, S, D_v]`."""

    def __len__(self) -> int:
        """S, positions held."""
        return 0 if self.k is None else self.k.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes held: 2 * B * G * S * D numbers (D_v = D)."""
        return sum(t.numel() * t.element_size() for t in (self.k, self.v) if t is not None)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys `[B, G, T, D]` and values `[B, G, T, D_v]` of T more positions; return all `[B, G, S+T, ...]`."""
        if self.k is not None and self.v is not None:
            if self.k.shape[:2] != k.shape[:2] or self.k.shape[3] != k.shape[3]:
                raise ValueError(
                    f"the cache holds keys {list(self.k.shape)} and is given {list(k.shape)}: only the number of "
                    "positions may differ. Take a new cache for another batch or another model."
                )
            k = torch.cat([self.k, k], dim=2)  # [B, G, S, D], [B, G, T, D] -> [B, G, S+T, D]
            v = torch.cat([self.v, v], dim=2)  # [B, G, S, D_v], [B, G, T, D_v] -> [B, G, S+T, D_v]
        self.k, self.v = k, v
        return k, v
