"""The encoder alone, as in BERT: every token sees every other, and each comes out as a vector that knows its context.

Axes: B batch, T positions, C model width, V vocabulary; H, D and M belong to the blocks. `n_segment` is BERT's 2: first
or second sentence.
"""

from collections.abc import Mapping
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from .attention import Attention
from .axes import gather_axes
from .blocks import Activation, Block, LayerNorm, Norm
from .inputs import check_batch, check_mask, check_positive, check_segments
from .positions import LearnedPositions

__all__ = ["Encoder", "mean_of_tokens"]

_BERT = {
    "wte": "embeddings.word_embeddings", "wpe": "embeddings.position_embeddings",
    "wse": "embeddings.token_type_embeddings", "ln_e": "embeddings.LayerNorm", "pooler": "pooler.dense",
}  # fmt: skip
_BERT_BLOCK = {
    "attn.c_q": "attention.self.query", "attn.c_k": "attention.self.key", "attn.c_v": "attention.self.value",
    "attn.c_proj": "attention.output.dense", "ln_1": "attention.output.LayerNorm",
    "mlp.c_fc": "intermediate.dense", "mlp.c_proj": "output.dense", "ln_2": "output.LayerNorm",
}  # fmt: skip


def mean_of_tokens(x: Tensor, padding: Tensor | None = None) -> Tensor:
    """Return the mean `[B, C]` of the vectors x `[B, T, C]`; with `padding` `[B, T]`, of the tokens alone."""
    if padding is None:
        return x.mean(dim=1)  # [B, T, C] -> [B, C]
    check_mask("padding", padding, [tuple(x.shape[:2])])
    real = padding.unsqueeze(-1).to(x.dtype)  # [B, T] -> [B, T, 1]
    total = (x * real).sum(dim=1)  # [B, T, C] * [B, T, 1] -> [B, T, C] -> [B, C]
    return total / real.sum(dim=1).clamp(min=1)  # [B, C] / [B, 1]


class Encoder(nn.Module):
    """A stack of blocks without a causal mask: vectors for the tokens of a text, not predictions of the next.

    Devlin et al. 2019; the numbers are those of transformers' BertModel.

    Args:
        n_layer, n_head, n_embd, vocab_size, block_size, d_mlp: sizes, as in GPTConfig.
        norm: "post" as in BERT, with a norm after the embeddings; "pre" with one at the end instead.
        activation: of the MLP.
        n_segment: kinds of sentence; 0: the model does not tell them apart.
        pooler: keep BERT's map for a vector of the whole text, `pooled`.
        eps: of every LayerNorm.
        dropout: share set to zero while training.

    >>> model = Encoder(n_layer=2, n_head=3, n_embd=21, vocab_size=11, block_size=7).eval()
    >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 21])
    """

    def __init__(
        self,
        *,
        n_layer: int,
        n_head: int,
        n_embd: int,
        vocab_size: int,
        block_size: int,
        d_mlp: int | None = None,
        norm: Norm = "post",
        activation: Activation = "gelu_erf",
        n_segment: int = 2,
        pooler: bool = False,
        eps: float = 1e-12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(n_layer=n_layer, vocab_size=vocab_size, block_size=block_size)
        self.vocab_size, self.block_size = vocab_size, block_size
        make_norm = partial(LayerNorm, eps=eps)
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = LearnedPositions(block_size, n_embd)
        self.wse = nn.Embedding(n_segment, n_embd) if n_segment else None
        self.ln_e = make_norm(n_embd) if norm == "post" else None
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(
            Block(
                n_embd, n_head, d_mlp=d_mlp, norm=norm, activation=activation, dropout=dropout, make_norm=make_norm,
                attn=Attention(n_embd, n_head, causal=False, fused_qkv=False, dropout=dropout),
            )
            for _ in range(n_layer)
        )  # fmt: skip
        self.ln_f = make_norm(n_embd) if norm == "pre" else None
        self.pooler = nn.Linear(n_embd, n_embd) if pooler else None

    @property
    def axes(self) -> dict[str, str]:
        """Axes of the inputs and of every parameter."""
        own = {"idx": "B T", "padding": "B T", "segments": "B T", "wte.weight": "V C"}
        if self.wse is not None:
            own["wse.weight"] = "n_segment C"
        if self.pooler is not None:
            own |= {"pooler.weight": "C C", "pooler.bias": "C"}
        return gather_axes(self, own)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes that the model fixes."""
        first = self.h[0]
        assert isinstance(first, Block)
        return first.sizes | {"V": self.vocab_size, "L": len(self.h)}

    def forward(self, idx: Tensor, *, padding: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return a vector for each token, `[B, T, C]`.

        Args:
            idx: token ids `[B, T]`, T at most `block_size`.
            padding: True at tokens, False at padding, `[B, T]`; None: no padding.
            segments: which sentence each token belongs to, `[B, T]`; None: all to the first.
        """
        check_batch(idx, None, self.vocab_size, self.block_size)
        if padding is not None:
            check_mask("padding", padding, [tuple(idx.shape)])
        if segments is not None:
            check_segments(segments, idx, 0 if self.wse is None else self.wse.num_embeddings)
        _, T = idx.shape
        x = self.wte(idx) + self.wpe(torch.arange(T, device=idx.device))  # [B, T, C] + [T, C] -> [B, T, C]
        if self.wse is not None:
            x = x + self.wse(torch.zeros_like(idx) if segments is None else segments)  # [B, T] -> [B, T, C]
        if self.ln_e is not None:
            x = self.ln_e(x)
        x = self.drop(x)
        for block in self.h:
            x = block(x, padding=padding)  # [B, T, C]
        out: Tensor = x if self.ln_f is None else self.ln_f(x)
        return out

    def pooled(self, x: Tensor) -> Tensor:
        """Return BERT's vector of the whole text `[B, C]`, made from the first token's vector in x `[B, T, C]`."""
        if self.pooler is None:
            raise ValueError("This model has no pooler. Build it with pooler=True, or take mean_of_tokens(x, padding).")
        return torch.tanh(self.pooler(x[:, 0]))  # [B, T, C] -> [B, C] @ [C, C] -> [B, C]

    @classmethod
    def from_bert(cls, state: Mapping[str, Tensor], *, n_head: int, eps: float = 1e-12) -> Self:
        """Return an encoder with the weights of a BertModel; every size but H can be read off them.

        Raises ValueError for parameters that a BertModel does not have, or that are missing.
        """
        state = {name.removeprefix("bert."): p for name, p in state.items() if not name.endswith("position_ids")}
        n_layer = len([name for name in state if name.endswith("intermediate.dense.weight")])
        names = dict(_BERT) if "pooler.dense.weight" in state else {k: v for k, v in _BERT.items() if k != "pooler"}
        for i in range(n_layer):
            names |= {f"h.{i}.{ours}": f"encoder.layer.{i}.{theirs}" for ours, theirs in _BERT_BLOCK.items()}
        tables = ("wte", "wpe", "wse")
        kinds = {ours: ("weight",) if ours in tables else ("weight", "bias") for ours in names}
        known = {f"{ours}.{kind}": f"{names[ours]}.{kind}" for ours in names for kind in kinds[ours]}
        if odd := sorted(set(state) ^ set(known.values())):
            raise ValueError(f"These are not the weights of a BertModel: {odd[0]} and {len(odd) - 1} more do not fit.")
        (V, C), block_size = state[f"{_BERT['wte']}.weight"].shape, len(state[f"{_BERT['wpe']}.weight"])
        model = cls(
            n_layer=n_layer, n_head=n_head, n_embd=C, vocab_size=V, block_size=block_size, eps=eps,
            d_mlp=len(state["encoder.layer.0.intermediate.dense.weight"]),
            n_segment=len(state[f"{_BERT['wse']}.weight"]), pooler="pooler" in names,
        )  # fmt: skip
        model.load_state_dict({ours: state[theirs] for ours, theirs in known.items()})
        return model.eval()
