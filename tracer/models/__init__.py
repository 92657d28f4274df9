"""The reference Transformer, in plain PyTorch: shapes written beside each line, axes of every parameter declared."""

from .attention import Attention, scaled_dot_product_attention
from .blocks import MLP, Block, LayerNorm, MoE, RMSNorm, SwiGLU
from .cache import KVCache
from .config import GPTConfig
from .conv import CausalConv
from .encoder import Encoder, mean_of_tokens
from .encoder_decoder import EncoderDecoder
from .gpt import GPT
from .positions import LearnedPositions, Rotary, SinusoidalPositions, joined
from .rnn import AdditiveAttention, GRUCell, RNNSeq2Seq
from .vision import VisionTransformer

__all__ = [
    "GPT",
    "MLP",
    "AdditiveAttention",
    "Attention",
    "Block",
    "CausalConv",
    "Encoder",
    "EncoderDecoder",
    "GPTConfig",
    "GRUCell",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "MoE",
    "RMSNorm",
    "RNNSeq2Seq",
    "Rotary",
    "SinusoidalPositions",
    "SwiGLU",
    "VisionTransformer",
    "joined",
    "mean_of_tokens",
    "scaled_dot_product_attention",
]
