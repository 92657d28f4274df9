"""GPT as minGPT builds it: embeddings, a stack of blocks, and a score for every token of the vocabulary.

Axes: B batch, T positions, C model width, V vocabulary, L layers; H, D and M belong to the blocks.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from .attention import Attention
from .axes import gather_axes
from .blocks import MLP, Block, LayerNorm, MoE, RMSNorm, SwiGLU
from .cache import KVCache
from .checkpoints import load, read_checkpoint
from .config import GPTConfig
from .generation import check_draw, choose, evaluating
from .inputs import check_batch, check_cache, check_mask, check_tokens
from .positions import LearnedPositions, Rotary, SinusoidalPositions

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
        parts: dict[str, nn.Module] = {"wte": nn.Embedding(V, C)}  # word token embedding: a row for each token
        if config.positions == "learned":
            parts["wpe"] = LearnedPositions(config.block_size, C)  # word position embedding: a row for each position
        elif config.positions == "sinusoidal":
            parts["wpe"] = SinusoidalPositions(C)
        parts["drop"] = nn.Dropout(config.dropout)
        parts["h"] = nn.ModuleList(self._block() for _ in range(L))
        # Post-norm blocks end in a norm of their own.
        parts["ln_f"] = self._norm(C) if config.norm == "pre" else nn.Identity()
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(C, V, bias=False)
        self.apply(_init)
        for name, weight in self.transformer.h.named_parameters():
            # 2L parts add to the residual stream; this keeps its variance from growing with L (GPT-2, section 2.3).
            if name.endswith("c_proj.weight"):
                nn.init.normal_(weight, mean=0.0, std=0.02 / math.sqrt(2 * L))
        if config.tie_weights:
            self.lm_head.weight = self.transformer.wte.weight

    def _norm(self, width: int) -> nn.Module:
        config = self.config
        if config.norm_type == "rms":
            return RMSNorm(width, eps=config.norm_eps)
        return LayerNorm(width, eps=config.norm_eps, bias=config.bias)

    def _block(self) -> Block:
        config = self.config
        C, H, D, M = (config.sizes[axis] for axis in "CHDM")
        rotary = Rotary(D, base=config.rotary_base) if config.positions == "rotary" else None
        attn = Attention(
            C,
            H,
            n_kv_head=config.n_kv_head,
            d_head=D,
            block_size=config.block_size if config.positions == "learned" else None,
            bias=config.bias if config.qkv_bias is None else config.qkv_bias,
            out_bias=config.bias,
            rotary=rotary,
            dropout=config.dropout,
            how=config.how,
        )
        mlp: nn.Module
        if config.n_expert is not None:
            mlp = MoE(
                C,
                M,
                n_expert=config.n_expert,
                n_chosen=config.n_chosen,
                renormalise=config.renormalise,
                dropout=config.dropout,
            )
        elif config.activation == "swiglu":
            mlp = SwiGLU(C, M, dropout=config.dropout)
        else:
            mlp = MLP(C, M, activation=config.activation, bias=config.bias, dropout=config.dropout)
        return Block(C, H, norm=config.norm, attn=attn, mlp=mlp, make_norm=self._norm)

    @property
    def axes(self) -> dict[str, str]:
        """Axes of both inputs, of every parameter and of every mask."""
        own = {
            "idx": "B T",
            "targets": "B T",
            "transformer.wte.weight": "V C",
            "lm_head.weight": "V C",
        }
        for i, block in enumerate(self.transformer.h):
            own |= {f"cache[{i}].{name}": block.attn.axes[f"cache.{name}"] for name in ("k", "v")}
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        return self.config.sizes

    def forward(
        self,
        idx: Tensor,
        targets: Tensor | None = None,
        *,
        padding: Tensor | None = None,
        cache: list[KVCache] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, T, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            idx: token ids `[B, T]`, T at most `block_size`.
            targets: the next token of each position `[B, T]`; -1 leaves a position out of the mean.
            padding: `[B, T]`, True where there is a token; positions are counted from the first one. With a cache
                `[B, S+T]`, also for the S tokens in it.
            cache: from `new_cache`; idx are then the tokens after those in it, and are added to it.

        Raises:
            TypeError, ValueError, IndexError: ids of another type, shape or range.
        """
        V, block_size = self.config.vocab_size, self.config.block_size
        if cache is not None:
            check_cache(cache, self.config.n_layer)
        past = 0 if cache is None else len(cache[0])
        check_batch(idx, targets, V, block_size, past)
        B, T = idx.shape

        pos = None
        if padding is not None:
            check_mask("padding", padding, [(B, past + T)])
        if self.config.positions == "none":
            pass
        elif padding is None:
            pos = torch.arange(past, past + T, device=idx.device).unsqueeze(0)  # [T] -> [1, T]
        else:
            pos = (padding.cumsum(dim=1) - 1).clamp(min=0)[:, past:]  # [B, S+T] -> [B, T]
        tok_emb = self.transformer.wte(idx)  # [B, T] -> [B, T, C]
        x = tok_emb
        if "wpe" in self.transformer:
            pos_emb = self.transformer.wpe(pos)  # [1, T] -> [1, T, C]
            if pos_emb.dtype != tok_emb.dtype:
                pos_emb = pos_emb.to(tok_emb.dtype)  # sinusoids are float32, whatever the weights are
            x = tok_emb + pos_emb  # [B, T, C] + [1, T, C] -> [B, T, C]
        x = self.transformer.drop(x)
        for i, block in enumerate(self.transformer.h):
            x = block(x, padding=padding, positions=pos, cache=None if cache is None else cache[i])
        x = self.transformer.ln_f(x)
        # [B, T, C] @ [C, V] -> [B, T, V]
        logits = self.lm_head(x)

        loss = None
        if targets is not None:
            # Every position is one case of the same classification, so B and T become one axis.
            # [(B T), V], [(B T)] -> []
            loss = F.cross_entropy(logits.view(B * T, V), targets.reshape(B * T), ignore_index=-1)
        return logits, loss

    def new_cache(self) -> list[KVCache]:
        """Return an empty cache for each block."""
        return [KVCache() for _ in self.transformer.h]

    @torch.no_grad()
    def generate(self, idx: Tensor, max_new_tokens: int, *, progress: bool = False, **choices: Any) -> Tensor:
        """Return `idx` `[B, T]` with `max_new_tokens` tokens appended, without dropout.

        Args:
            idx: the prompt `[B, T]`.
            max_new_tokens: how many tokens to append.
            progress: show a bar, one step for each token.
            choices: `temperature`, `top_k`, `top_p`, `seed`, `padding`, `use_cache`, as in `stream`.
        """
        tokens = self.stream(idx, max_new_tokens, **choices)
        shown = tqdm(tokens, total=max_new_tokens, desc="tokens", unit="", disable=not progress)
        return torch.cat([idx, *shown], dim=1)  # [B, T], n x [B, 1] -> [B, T+n]

    def stream(
        self,
        idx: Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        padding: Tensor | None = None,
        use_cache: bool = True,
    ) -> Iterator[Tensor]:
        """Yield one token id `[B, 1]` after the other, each as soon as it is drawn.

        Beyond `block_size` the model sees the last `block_size` tokens alone: then every position moves, so what the
        cache holds is no longer true, and each token costs a pass over all of them.

        Args:
            idx: the prompt `[B, T]`; shorter ones are padded on the left.
            max_new_tokens: how many tokens to yield.
            temperature: logits are divided by it: below 1 bolder, above 1 more even; 0 takes the likeliest token.
            top_k: draw from the k likeliest tokens only.
            top_p: draw from the likeliest tokens that together have at least this probability (Holtzman et al. 2020).
            seed: makes the draw repeatable and leaves torch's own generator untouched.
            padding: `[B, T]`, True where the prompt has a token.
            use_cache: False: every token costs a pass over all that came before it; the same tokens come out.
        """
        check_tokens(idx)
        check_draw(max_new_tokens, temperature, top_k, top_p)
        if padding is not None:
            check_mask("padding", padding, [tuple(idx.shape)])
        generator = None if seed is None else torch.Generator(idx.device).manual_seed(seed)
        return self._stream(
            idx, max_new_tokens, padding, use_cache, partial(choose, temperature, top_k, top_p, generator)
        )

    def _stream(
        self, idx: Tensor, n: int, padding: Tensor | None, use_cache: bool, draw: Callable[[Tensor], Tensor]
    ) -> Iterator[Tensor]:
        block_size, cache, unread = self.config.block_size, None, idx
        for _ in range(n):
            T = idx.shape[1]
            if T > block_size or cache is None:
                cache = self.new_cache() if use_cache and T <= block_size else None
                unread = idx[:, -block_size:]  # [B, T] -> [B, min(T, block_size)]
            seen = None if padding is None else padding[:, -block_size:]
            with torch.no_grad(), evaluating(self):
                logits, _ = self(unread, padding=seen, cache=cache)  # [B, T] -> [B, T, V]; later T = 1
                token = draw(logits[:, -1])  # [B, V] -> [B, 1]
            yield token
            idx, unread = torch.cat([idx, token], dim=1), token  # [B, T], [B, 1] -> [B, T+1]
            if padding is not None:
                padding = torch.cat([padding, padding.new_ones(token.shape)], dim=1)  # [B, T] -> [B, T+1]

    @classmethod
    def from_pretrained(cls, source: str | Path, **changes: Any) -> Self:
        """Return a model with the weights of a checkpoint, in evaluation mode.

        Reads safetensors files and torch's own (numbers only, never code) in the layouts of GPT-2, minGPT, nanoGPT and
        of Hugging Face's GPT-2, Llama, Mistral, Qwen2 and Mixtral.

        Args:
            source: a folder with `config.json` and weights, a file of weights, or the name of a model on the
                Hugging Face hub, such as "openai-community/gpt2", which is fetched into torch's cache.
            changes: fields of `GPTConfig` that the file does not say (minGPT's does not say `n_head`), or other
                choices, such as `how="fused"`.

        Raises:
            FileNotFoundError: there is no such file, and no such model can be fetched.
            ValueError: the file is cut short, holds code, or has a layout that is not known.
        """
        config, state = read_checkpoint(source, changes)
        with torch.device("meta"):
            model = cls(config)
        return load(model, state)


def _init(module: nn.Module) -> None:
    """Normal weights with deviation 0.02 and biases at zero; a norm already starts at ones and zeros."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, mean=0.0, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
