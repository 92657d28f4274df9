"""The reference models with inputs, built from the letters of the glossary: what the command line traces by name."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .models import (
    GPT,
    Attention,
    Block,
    CausalConv,
    Encoder,
    EncoderDecoder,
    GPTConfig,
    RNNSeq2Seq,
    VisionTransformer,
)

__all__ = ["SAMPLES"]

Made = tuple[nn.Module, tuple[Tensor, ...]]
Norm = Literal["pre", "post"]
How = Literal["steps", "fused", "einops"]


def _ids(*shape: int, below: int) -> Tensor:
    return torch.randint(below, shape)


def gpt(
    B: int = 2, T: int = 8, H: int = 3, D: int = 16, L: int = 2, V: int = 10, norm: Norm = "pre", how: How = "steps"
) -> Made:
    """The reference GPT, in minGPT's architecture."""
    config = GPTConfig(n_layer=L, n_head=H, n_embd=H * D, vocab_size=V, block_size=T, norm=norm, how=how)
    return GPT(config), (_ids(B, T, below=V),)


def llama(
    B: int = 2, T: int = 8, H: int = 6, G: int = 3, D: int = 8, L: int = 2, V: int = 10, how: How = "steps"
) -> Made:
    """GPT in the shape of Llama: rotary positions, RMSNorm, SwiGLU, grouped heads."""
    return _modern(B, T, H, G, D, L, V, how)


def mixtral(
    B: int = 2, T: int = 8, H: int = 6, G: int = 3, D: int = 8, L: int = 2, V: int = 10, E: int = 4, K: int = 2
) -> Made:
    """GPT in the shape of Mixtral: as Llama, with E experts of which K serve a token."""
    return _modern(B, T, H, G, D, L, V, "steps", n_expert=E, n_chosen=K)


def _modern(B: int, T: int, H: int, G: int, D: int, L: int, V: int, how: How, **more: Any) -> Made:
    config = GPTConfig(
        n_layer=L, n_head=H, n_kv_head=G, n_embd=H * D, vocab_size=V, block_size=T, positions="rotary",
        norm_type="rms", activation="swiglu", bias=False, how=how, **more,
    )  # fmt: skip
    return GPT(config), (_ids(B, T, below=V),)


def block(B: int = 2, T: int = 8, H: int = 3, D: int = 16, norm: Norm = "pre") -> Made:
    """One decoder block on vectors."""
    return Block(H * D, H, norm=norm), (torch.randn(B, T, H * D),)


def attention(
    B: int = 2, T: int = 8, H: int = 3, D: int = 16, G: int | None = None, causal: bool = True, how: How = "steps"
) -> Made:
    """One self-attention on vectors."""
    return Attention(H * D, H, n_kv_head=G, causal=causal, how=how), (torch.randn(B, T, H * D),)


def encoder(B: int = 2, T: int = 8, H: int = 3, D: int = 16, L: int = 2, V: int = 10, norm: Norm = "post") -> Made:
    """The reference encoder, BERT's architecture."""
    model = Encoder(n_layer=L, n_head=H, n_embd=H * D, vocab_size=V, block_size=T, norm=norm)
    return model, (_ids(B, T, below=V),)


def encoder_decoder(
    B: int = 2, T: int = 8, S: int = 11, H: int = 3, D: int = 16, L: int = 2, V: int = 10, norm: Norm = "post"
) -> Made:
    """The Transformer of 2017."""
    model = EncoderDecoder(n_layer=L, n_head=H, n_embd=H * D, vocab_size=V, block_size=max(S, T), norm=norm)
    return model, (_ids(B, S, below=V), _ids(B, T, below=V))


def vision(
    B: int = 2, Y: int = 6, X: int = 9, P: int = 3, R: int = 1, H: int = 3, D: int = 16, L: int = 2, V: int = 10
) -> Made:
    """The reference vision transformer: images of Y x X pixels, V classes."""
    model = VisionTransformer((Y, X), P, n_class=V, n_layer=L, n_head=H, n_embd=H * D, channels=R)
    return model, (torch.rand(B, R, Y, X),)


def rnn(B: int = 2, T: int = 5, S: int = 7, C: int = 16, V: int = 10, attention: bool = True) -> Made:
    """The recurrent encoder-decoder, with or without additive attention."""
    return RNNSeq2Seq(C, V, attention=attention), (_ids(B, S, below=V), _ids(B, T, below=V))


def conv(B: int = 2, T: int = 8, C: int = 16, V: int = 10, L: int = 2, window: int = 3) -> Made:
    """The causal convolution."""
    return CausalConv(C, V, n_layer=L, window=window), (_ids(B, T, below=V),)


SAMPLES: dict[str, Callable[..., Any]] = {
    "GPT": gpt,
    "Llama": llama,
    "Mixtral": mixtral,
    "Block": block,
    "Attention": attention,
    "Encoder": encoder,
    "EncoderDecoder": encoder_decoder,
    "VisionTransformer": vision,
    "RNNSeq2Seq": rnn,
    "CausalConv": conv,
}
"""Name -> a function of sizes and choices that returns a model and its inputs."""
