"""The reference Transformer, in plain PyTorch: shapes written beside each line, axes of every parameter declared."""

from .attention import Attention, scaled_dot_product_attention
from .blocks import MLP, Block, LayerNorm, MoE, RMSNorm, SwiGLU
from .cache import KVCache
from .config import GPTConfig
from .gpt import GPT
from .positions import LearnedPositions, Rotary, SinusoidalPositions, joined

__all__ = [
    "GPT",
    "MLP",
    "Attention",
    "Block",
    "GPTConfig",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "MoE",
    "RMSNorm",
    "Rotary",
    "SinusoidalPositions",
    "SwiGLU",
    "joined",
    "scaled_dot_product_attention",
]
