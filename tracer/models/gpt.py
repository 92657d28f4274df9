"""GPT as minGPT builds it: embeddings, a stack of blocks, and a score for every token of the vocabulary.

Axes: B batch, T positions, C model width, V vocabulary, L layers; H, D and M belong to the blocks.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .axes import gather_axes
from .blocks import Block, LayerNorm
from .config import GPTConfig
from .inputs import check_batch, check_positive, check_tokens

__all__ = ["GPT"]


class GPT(nn.Module):
    """A decoder without cross-attention: from each token and those before it, scores for the next one.

    Radford et al. 2019, section 2.3; architecture, initialisation and state-dict names of minGPT.

    >>> model = GPT(GPTConfig.named("gpt-nano", vocab_size=11, block_size=5)).eval()
    >>> logits, loss = model(torch.zeros(2, 5, dtype=torch.long))
    >>> logits.shape, loss
    (torch.Size([2, 5, 11]), None)
    """

    transformer: Any  # a ModuleDict whose parts are read as attributes, which its type does not tell

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        C, V, L = config.n_embd, config.vocab_size, config.n_layer
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(V, C),  # word token embedding: a row for each token
                "wpe": nn.Embedding(config.block_size, C),  # word position embedding: a row for each position
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(self._block() for _ in range(L)),
                # Post-norm blocks end in a norm of their own.
                "ln_f": LayerNorm(C) if config.norm == "pre" else nn.Identity(),
            }
        )
        self.lm_head = nn.Linear(C, V, bias=False)
        self.apply(_init)
        for block in self.transformer.h:
            # 2L parts add to the residual stream; this keeps its variance from growing with L (GPT-2, section 2.3).
            for part in (block.attn, block.mlp):
                nn.init.normal_(part.c_proj.weight, mean=0.0, std=0.02 / math.sqrt(2 * L))
        if config.tie_weights:
            self.lm_head.weight = self.transformer.wte.weight

    def _block(self) -> Block:
        config = self.config
        return Block(
            config.n_embd,
            config.n_head,
            block_size=config.block_size,
            d_mlp=config.d_mlp,
            norm=config.norm,
            activation=config.activation,
            dropout=config.dropout,
        )

    @property
    def axes(self) -> dict[str, str]:
        """Axes of both inputs, of every parameter and of every mask."""
        own = {
            "idx": "B T",
            "targets": "B T",
            "transformer.wte.weight": "V C",
            "transformer.wpe.weight": "block_size C",
            "lm_head.weight": "V C",
        }
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return self.config.sizes

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, T, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            idx: token ids `[B, T]`, T at most `block_size`.
            targets: the next token of each position `[B, T]`; -1 leaves a position out of the mean.

        Raises:
            TypeError, ValueError, IndexError: ids of another type, shape or range.
        """
        V, block_size = self.config.vocab_size, self.config.block_size
        check_batch(idx, targets, V, block_size)
        B, T = idx.shape

        pos = torch.arange(T, device=idx.device).unsqueeze(0)  # [T] -> [1, T]
        tok_emb = self.transformer.wte(idx)  # [B, T] -> [B, T, C]
        pos_emb = self.transformer.wpe(pos)  # [1, T] -> [1, T, C]
        x = self.transformer.drop(tok_emb + pos_emb)  # [B, T, C] + [1, T, C] -> [B, T, C]
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        # [B, T, C] @ [C, V] -> [B, T, V]
        logits = self.lm_head(x)

        loss = None
        if targets is not None:
            # Every position is one case of the same classification, so B and T become one axis.
            # [(B T), V], [(B T)] -> []
            loss = F.cross_entropy(logits.view(B * T, V), targets.reshape(B * T), ignore_index=-1)
        return logits, loss

    @torch.no_grad()
    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Return `idx` `[B, T]` with `max_new_tokens` tokens appended, one forward pass each, without dropout.

        Beyond `block_size` the model sees the last `block_size` tokens alone.

        Args:
            idx: the prompt `[B, T]`.
            max_new_tokens: how many tokens to append.
            temperature: logits are divided by it: below 1 bolder, above 1 more even; 0 takes the likeliest token.
            top_k: draw from the k likeliest tokens only.
            seed: makes the draw repeatable and leaves torch's own generator untouched.
        """
        check_tokens(idx)
        for name, value in (("max_new_tokens", max_new_tokens), ("temperature", temperature)):
            if not value >= 0:
                raise ValueError(f"{name}={value} is below 0. Give 0 or more.")
        if top_k is not None:
            check_positive(top_k=top_k)
        generator = None if seed is None else torch.Generator(idx.device).manual_seed(seed)
        with _evaluating(self):
            for _ in range(max_new_tokens):
                logits, _ = self(idx[:, -self.config.block_size :])  # [B, T] -> [B, T, V]
                last = logits[:, -1]  # [B, T, V] -> [B, V]
                token = _choose(last, temperature, top_k, generator)  # [B, V] -> [B, 1]
                idx = torch.cat([idx, token], dim=1)  # [B, T], [B, 1] -> [B, T+1]
        return idx


def _init(module: nn.Module) -> None:
    """Normal weights with deviation 0.02 and biases at zero; a LayerNorm already starts at ones and zeros."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, mean=0.0, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _choose(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """Return one token id `[B, 1]` for each row of logits `[B, V]`."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]  # [B, V] -> [B, k] -> [B, 1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial(F.softmax(logits / temperature, dim=-1), 1, generator=generator)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, and afterwards for each module the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
