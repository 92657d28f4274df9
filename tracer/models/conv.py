"""A causal convolution over tokens: the third way to let positions meet, beside recurrence and attention.

Axes: B batch, T positions, C model width, V vocabulary.
`window` is the width of a kernel in positions, `before` one less.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .axes import gather_axes
from .blocks import LayerNorm
from .inputs import check_batch, check_positive

__all__ = ["CausalConv"]


class CausalConv(nn.Module):
    """From each token and those shortly before it, scores for the next one; no positions, no attention.

    Each of L layers lets a position see itself and the `window - 1` before it, so L layers reach
    `1 + L (window - 1)` positions: what lies further back cannot matter, however long one trains. A layer costs
    `window T C²` products (Vaswani et al. 2017, table 1), against `T² C` for attention and `T C²` for a GRU's T steps.

    >>> model = CausalConv(7, vocab_size=11, n_layer=2, window=3)
    >>> logits, loss = model(torch.zeros(2, 5, dtype=torch.long))
    >>> logits.shape, model.reach
    (torch.Size([2, 5, 11]), 5)
    """

    before: Tensor

    def __init__(self, n_embd: int, vocab_size: int, *, n_layer: int = 2, window: int = 3) -> None:
        super().__init__()
        check_positive(n_embd=n_embd, vocab_size=vocab_size, n_layer=n_layer, window=window)
        if window < 2:
            raise ValueError(
                f"window={window}: a window of one position sees no other, so tokens never meet. Give 2 or more."
            )
        self.n_embd, self.vocab_size, self.window = n_embd, vocab_size, window
        self.embedding = nn.Embedding(vocab_size, n_embd)
        self.norms = nn.ModuleList(LayerNorm(n_embd) for _ in range(n_layer))
        self.convs = nn.ModuleList(nn.Conv1d(n_embd, n_embd, window) for _ in range(n_layer))
        self.register_buffer("before", torch.zeros(1, window - 1, n_embd), persistent=False)
        self.ln_f = LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size)

    @property
    def reach(self) -> int:
        """How many positions, itself included, an output can depend on."""
        return 1 + len(self.convs) * (self.window - 1)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of both inputs and of every parameter."""
        own = {"idx": "B T", "targets": "B T", "embedding.weight": "V C", "head.weight": "V C", "head.bias": "V"}
        own["before"] = "1 before C"
        for layer in range(len(self.convs)):
            own |= {f"convs.{layer}.weight": "C C window", f"convs.{layer}.bias": "C"}  # [out, in, positions]
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return {"C": self.n_embd, "V": self.vocab_size, "L": len(self.convs)}

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, T, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            idx: token ids `[B, T]`, of any length.
            targets: the next token of each position `[B, T]`; -1 leaves a position out of the mean.
        """
        check_batch(idx, targets, self.vocab_size)
        x = self.embedding(idx)  # [B, T] -> [B, T, C]
        before = self.before.expand(len(idx), -1, -1)  # [1, before, C] -> [B, before, C]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            # Zeros on the left alone: the window of position t ends at t, and T outputs come of T inputs.
            past = torch.cat([before, norm(x)], dim=1)  # [B, before, C], [B, T, C] -> [B, before+T, C]
            past = past.transpose(1, 2)  # [B, C, before+T]: a convolution moves along the last axis
            # for each position: a window [C, window] @ [C, C, window] -> [C]
            seen = conv(past).transpose(1, 2)  # [B, C, before+T] -> [B, C, T] -> [B, T, C]
            x = x + F.relu(seen)  # [B, T, C]
        logits = self.head(self.ln_f(x))  # [B, T, C] @ [C, V] -> [B, T, V]
        if targets is None:
            return logits, None
        # [B, T, V] -> [(B T), V]; [B, T] -> [(B T)]
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
