"""GPT as minGPT builds it: embeddings, a stack of blocks, and a score for every token of the vocabulary.

Axes: B batch, T positions, C model width, V vocabulary, L layers; H, D and M belong to the blocks.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .axes import gather_axes
from .blocks import ACTIVATIONS, NORMS, Activation, Block, LayerNorm, Norm
from .inputs import check_batch, check_choice, check_heads, check_positive, check_tokens

__all__ = ["GPT", "PRESETS", "GPTConfig"]

_GPT2 = {"vocab_size": 50257, "block_size": 1024}
_GPT1 = {"vocab_size": 40478, "block_size": 512, "norm": "post"}
_TIED = _GPT2 | {"tie_weights": True}
PRESETS: dict[str, dict[str, Any]] = {
    # minGPT's sizes for learning; it leaves vocabulary and block size open, so GPT-2's stand here.
    "gpt-nano": _GPT2 | {"n_layer": 3, "n_head": 3, "n_embd": 48},
    "gpt-micro": _GPT2 | {"n_layer": 4, "n_head": 4, "n_embd": 128},
    "gpt-mini": _GPT2 | {"n_layer": 6, "n_head": 6, "n_embd": 192},
    # Radford et al. 2018: GPT-1 normalises after each part. 117 million parameters.
    "openai-gpt": _TIED | _GPT1 | {"n_layer": 12, "n_head": 12, "n_embd": 768},
    # Radford et al. 2019, table 2. 124, 355, 774 and 1,558 million.
    "gpt2": _TIED | {"n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-medium": _TIED | {"n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-large": _TIED | {"n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-xl": _TIED | {"n_layer": 48, "n_head": 25, "n_embd": 1600},
    # Brown et al. 2020, table 2.1, with dense attention in every layer. 175 billion.
    "gpt3": _TIED | {"n_layer": 96, "n_head": 96, "n_embd": 12288, "block_size": 2048},
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and choices that make a GPT; the names are those of the GPT-2 code.

    To keep C and move D, change `n_head` alone; to keep D and move C, give `n_embd=H * D`.
    Raises ValueError for sizes that make no model.

    >>> GPTConfig.named("gpt-nano", vocab_size=10, block_size=8).sizes
    {'C': 48, 'H': 3, 'D': 16, 'M': 192, 'V': 10, 'L': 3}
    """

    n_layer: int
    """L, blocks in the stack."""
    n_head: int
    """H, heads in each attention."""
    n_embd: int
    """C, width of the residual stream."""
    vocab_size: int
    """V, tokens that can be read and predicted."""
    block_size: int
    """Largest T."""
    d_mlp: int | None = None
    """M, hidden width of the MLP; None: 4 C."""
    norm: Norm = "pre"
    """"pre" as in GPT-2, "post" as in the paper of 2017 and GPT-1."""
    activation: Activation = "gelu_tanh"
    """"gelu_tanh" as in GPT-2 and minGPT, "gelu_erf", "relu"."""
    dropout: float = 0.1
    """Share set to zero while training: in embeddings, attention weights and what each part adds."""
    tie_weights: bool = False
    """True: reading and predicting use one table (Press & Wolf 2017), as GPT-2 does and minGPT does not."""

    def __post_init__(self) -> None:
        check_heads(self.n_embd, self.n_head)
        check_positive(n_layer=self.n_layer, vocab_size=self.vocab_size, block_size=self.block_size)
        check_positive(d_mlp=self.sizes["M"])
        check_choice("norm", self.norm, NORMS)
        check_choice("activation", self.activation, ACTIVATIONS)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is no share to leave out. Give a number from 0 to below 1.")

    @classmethod
    def named(cls, name: str, **changes: Any) -> Self:
        """Return the preset `name`, such as "gpt-nano" or "gpt2", with `changes` to its fields."""
        check_choice("name", name, PRESETS)
        return cls(**(PRESETS[name] | changes))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the config fixes; B and T belong to the input."""
        C, H = self.n_embd, self.n_head
        M = 4 * C if self.d_mlp is None else self.d_mlp
        return {"C": C, "H": H, "D": C // H, "M": M, "V": self.vocab_size, "L": self.n_layer}


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
