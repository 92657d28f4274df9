"""The reference Transformer, in plain PyTorch: shapes written beside each line, axes of every parameter declared."""

from .attention import Attention, scaled_dot_product_attention
from .blocks import MLP, Block, LayerNorm
from .config import GPTConfig
from .gpt import GPT

__all__ = ["GPT", "MLP", "Attention", "Block", "GPTConfig", "LayerNorm", "scaled_dot_product_attention"]
