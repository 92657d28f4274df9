"""The sizes and choices that make a GPT, checked together, and the models known by name."""

from dataclasses import dataclass
from typing import Any, Self

from .blocks import ACTIVATIONS, NORMS, Activation, Norm
from .inputs import check_choice, check_heads, check_positive

__all__ = ["PRESETS", "GPTConfig"]

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
    # Radford et al. 2019, table 2: 124, 355, 774 and 1,558 million as released (the table itself counts fewer).
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
