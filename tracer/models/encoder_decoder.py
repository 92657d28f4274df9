"""The Transformer of 2017: an encoder that reads the source, a decoder that writes the target and looks at both.

Axes: B batch, S source positions, T target positions, C model width, V vocabulary; H, D and M belong to the blocks.
`forward` takes the decoder's own input, the target shifted right: `[<s>, y_1, y_2]` predicts `[y_1, y_2, </s>]`.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .axes import gather_axes
from .blocks import Activation, Block, LayerNorm, Norm
from .generation import evaluating
from .inputs import check_batch, check_choice, check_pair, check_positive, check_source_ids
from .positions import LearnedPositions, SinusoidalPositions

__all__ = ["EncoderDecoder", "PositionKind"]

PositionKind = Literal["interleaved", "halves", "learned"]


class EncoderDecoder(nn.Module):
    """Encoder blocks of two parts, decoder blocks of three: self-attention, attention to the source, MLP.

    Vaswani et al. 2017, section 3. By default its base model but for the sizes; with other choices the numbers of
    transformers' MarianMTModel, of torch's nn.Transformer, and of the trained model in package annalog.

    Args:
        n_layer, n_head, n_embd, vocab_size, d_mlp: sizes, as in GPTConfig; L counts each of the two stacks.
        src_vocab_size: tokens that can be read; None: as many, with one table for both.
        block_size: largest S and T; None: any, with sinusoids.
        norm: "post" as in the paper, or "pre".
        final_norm: a norm at the end of both stacks; None: with "pre" alone.
        positions: sines and cosines "interleaved" as in the paper, in "halves" as in Marian, or "learned".
        activation: of the MLPs.
        attn_bias: biases in attention; the paper's count of parameters has none.
        d_head, d_value: D and D_v; None: C / H.
        tie_weights: reading and predicting use one table.
        head_bias: a bias for each predicted token.
        dropout: share set to zero while training.

    >>> model = EncoderDecoder(n_layer=2, n_head=3, n_embd=24, vocab_size=11).eval()
    >>> logits, loss = model(torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))
    >>> logits.shape
    torch.Size([2, 3, 11])
    """

    def __init__(
        self,
        *,
        n_layer: int,
        n_head: int,
        n_embd: int,
        vocab_size: int,
        src_vocab_size: int | None = None,
        block_size: int | None = None,
        d_mlp: int | None = None,
        norm: Norm = "post",
        final_norm: bool | None = None,
        positions: PositionKind = "interleaved",
        activation: Activation = "relu",
        attn_bias: bool = False,
        d_head: int | None = None,
        d_value: int | None = None,
        tie_weights: bool = True,
        head_bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(n_layer=n_layer, vocab_size=vocab_size)
        check_choice("positions", positions, ("interleaved", "halves", "learned"))
        C = n_embd
        self.n_embd, self.vocab_size, self.block_size = C, vocab_size, block_size
        self.src_vocab_size = vocab_size if src_vocab_size is None else src_vocab_size

        def attention(*, causal: bool = False, d_source: int | None = None) -> Attention:
            return Attention(
                C, n_head, d_head=d_head, d_value=d_value, d_source=d_source, causal=causal, bias=attn_bias,
                fused_qkv=False, dropout=dropout,
            )  # fmt: skip

        def block(attn: Attention, cross: Attention | None = None) -> Block:
            return Block(
                C, n_head, attn=attn, cross=cross, d_mlp=d_mlp, norm=norm, activation=activation, dropout=dropout
            )

        def position() -> nn.Module:
            if positions != "learned":
                return SinusoidalPositions(C, layout=positions)
            if block_size is None:
                raise ValueError("Learned positions are a table with block_size rows. Give block_size.")
            return LearnedPositions(block_size, C)

        self.embedding = nn.Embedding(vocab_size, C)
        self.src_embedding = self.embedding if src_vocab_size is None else nn.Embedding(src_vocab_size, C)
        self.src_positions, self.positions = position(), position()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(block(attention()) for _ in range(n_layer))
        self.decoder = nn.ModuleList(block(attention(causal=True), attention(d_source=C)) for _ in range(n_layer))
        final_norm = norm == "pre" if final_norm is None else final_norm
        self.ln_encoder = LayerNorm(C) if final_norm else nn.Identity()
        self.ln_decoder = LayerNorm(C) if final_norm else nn.Identity()
        self.head = nn.Linear(C, vocab_size, bias=head_bias)
        for table in (self.embedding, self.src_embedding):
            nn.init.normal_(table.weight, std=C**-0.5)  # times sqrt(C) in `_embed`: as large as the positions
        if tie_weights:
            self.head.weight = self.embedding.weight

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs and of every parameter."""
        own = {"src": "B S", "src_padding": "B S", "idx": "B T", "targets": "B T"}
        own |= {"embedding.weight": "V C", "head.weight": "V C"}
        own["src_embedding.weight"] = "V C" if self.src_embedding is self.embedding else "V_src C"
        if self.head.bias is not None:
            own["head.bias"] = "V"
        # The source has the model's own width: C_s is C.
        return {name: axes.replace("C_s", "C") for name, axes in gather_axes(self, own).items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        first = self.encoder[0]
        assert isinstance(first, Block)
        return first.sizes | {"V": self.vocab_size, "L": len(self.encoder)}

    def forward(
        self, src: Tensor, idx: Tensor, targets: Tensor | None = None, *, src_padding: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return `(logits, loss)`: scores `[B, T, V]`, and their mean cross-entropy in nats, or None without targets.

        Args:
            src: source ids `[B, S]`.
            idx: what the decoder is given, `[B, T]`: the start token, then the target without its last token.
            targets: the next token of each position `[B, T]`; -1 leaves a position out of the mean.
            src_padding: True at tokens, False at padding, `[B, S]`; None: no padding.
        """
        check_batch(idx, targets, self.vocab_size, self.block_size)
        memory = self.encode(src, src_padding)  # [B, S] -> [B, S, C]
        check_pair(src, idx)
        logits = self.decode(idx, memory, src_padding)  # [B, T], [B, S, C] -> [B, T, V]
        if targets is None:
            return logits, None
        # [B, T, V] -> [(B T), V]; [B, T] -> [(B T)]
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    def encode(self, src: Tensor, src_padding: Tensor | None = None) -> Tensor:
        """Return what the decoder looks at: a vector for each source token, `[B, S, C]`. Made once for all of idx."""
        check_source_ids(src, src_padding, self.src_vocab_size, self.block_size)
        x = self._embed(src, self.src_embedding, self.src_positions)  # [B, S] -> [B, S, C]
        for block in self.encoder:
            x = block(x, padding=src_padding)  # [B, S, C]
        memory: Tensor = self.ln_encoder(x)
        return memory

    def decode(self, idx: Tensor, memory: Tensor, src_padding: Tensor | None = None) -> Tensor:
        """Return logits `[B, T, V]` for the target so far, idx `[B, T]`, with memory `[B, S, C]` to look at."""
        check_batch(idx, None, self.vocab_size, self.block_size)
        x = self._embed(idx, self.embedding, self.positions)  # [B, T] -> [B, T, C]
        for block in self.decoder:
            x = block(x, memory, memory_padding=src_padding)  # [B, T, C]; queries from x, keys and values from memory
        logits: Tensor = self.head(self.ln_decoder(x))  # [B, T, C] @ [C, V] -> [B, T, V]
        return logits

    def _embed(self, ids: Tensor, table: nn.Module, positions: nn.Module) -> Tensor:
        """Return tokens and positions as vectors, `[B, T] -> [B, T, C]` (section 3.4)."""
        places = torch.arange(ids.shape[1], device=ids.device)  # [T]
        x = table(ids) * math.sqrt(self.n_embd)  # [B, T] -> [B, T, C]
        out: Tensor = self.drop(x + positions(places).to(x.dtype))  # [B, T, C] + [T, C] -> [B, T, C]
        return out

    @torch.no_grad()
    def generate(
        self, src: Tensor, max_new_tokens: int, *, start: int, stop: int | None = None,
        src_padding: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the likeliest token of each step `[B, T]`, without dropout; after `stop` a row repeats it.

        The source is read once.
        """
        check_positive(max_new_tokens=max_new_tokens)
        with evaluating(self):
            return self._generate(src, max_new_tokens, start, stop, src_padding)

    def _generate(self, src: Tensor, n: int, start: int, stop: int | None, src_padding: Tensor | None) -> Tensor:
        memory = self.encode(src, src_padding)
        idx = torch.full_like(src[:, :1], start)  # [B, 1]
        done = torch.zeros_like(idx, dtype=torch.bool)
        for _ in range(n):
            token = self.decode(idx, memory, src_padding)[:, -1:].argmax(-1)  # [B, T, V] -> [B, 1, V] -> [B, 1]
            if stop is not None:
                token = token.masked_fill(done, stop)
                done = done | (token == stop)
            idx = torch.cat([idx, token], dim=1)  # [B, T], [B, 1] -> [B, T+1]
            if done.all():
                break
        return idx[:, 1:]
