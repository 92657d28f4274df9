"""The sizes and choices that make a GPT, checked together, and the models known by name."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from .attention import HOWS, How
from .blocks import ACTIVATIONS, NORMS, Activation, Norm
from .inputs import check_choice, check_chosen, check_even, check_groups, check_heads, check_positive

__all__ = ["PRESETS", "GPTConfig"]

POSITIONS = ("learned", "sinusoidal", "rotary", "none")
NORM_TYPES = ("layer", "rms")
MLPS = (*ACTIVATIONS, "swiglu")

_GPT2 = {"vocab_size": 50257, "block_size": 1024}
_GPT1 = {"vocab_size": 40478, "block_size": 512, "norm": "post"}
_TIED = _GPT2 | {"tie_weights": True}
_LLAMA: dict[str, Any] = {
    **{"positions": "rotary", "norm_type": "rms", "activation": "swiglu", "bias": False, "dropout": 0.0},
    **{"tie_weights": False},
}
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
    # Touvron et al. 2023, Llama Team 2024: rotary positions, RMSNorm, SwiGLU, no biases; grouped heads from 3 on.
    # The 3.1 models also stretch the rotary frequencies for long texts; that is not done here.
    "llama-2-7b": _LLAMA
    | {"n_layer": 32, "n_head": 32, "n_embd": 4096, "d_mlp": 11008, "vocab_size": 32000, "block_size": 4096}
    | {"norm_eps": 1e-5},
    "llama-3-8b": _LLAMA
    | {"n_layer": 32, "n_head": 32, "n_kv_head": 8, "n_embd": 4096, "d_mlp": 14336, "vocab_size": 128256}
    | {"block_size": 8192, "rotary_base": 500000.0, "norm_eps": 1e-5},
    "llama-3.1-405b": _LLAMA
    | {"n_layer": 126, "n_head": 128, "n_kv_head": 8, "n_embd": 16384, "d_mlp": 53248, "vocab_size": 128256}
    | {"block_size": 131072, "rotary_base": 500000.0, "norm_eps": 1e-5},
    # Jiang et al. 2024, table 1: 47 billion parameters, of which a token uses 13.
    "mixtral-8x7b": _LLAMA
    | {"n_layer": 32, "n_head": 32, "n_kv_head": 8, "n_embd": 4096, "d_mlp": 14336, "vocab_size": 32000}
    | {"block_size": 32768, "rotary_base": 1e6, "norm_eps": 1e-5, "n_expert": 8, "n_chosen": 2},
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
    """M, hidden width of the MLP; None: 4 C, or 8/3 C for "swiglu"."""
    norm: Norm = "pre"
    """"pre" as in GPT-2, "post" as in the paper of 2017 and GPT-1."""
    activation: Activation | Literal["swiglu"] = "gelu_tanh"
    """"gelu_tanh" as in GPT-2 and minGPT, "gelu_erf", "relu"; "swiglu" is a network of its own (Llama)."""
    dropout: float = 0.1
    """Share set to zero while training: in embeddings, attention weights and what each part adds."""
    tie_weights: bool = False
    """True: reading and predicting use one table (Press & Wolf 2017), as GPT-2 does and minGPT does not."""
    n_kv_head: int | None = None
    """G, key/value heads; None: H. Fewer share them (Llama 2 and 3)."""
    d_head: int | None = None
    """D, head size; None: C / H."""
    positions: Literal["learned", "sinusoidal", "rotary", "none"] = "learned"
    """A table of block_size rows (GPT), the sinusoids of 2017, turns of q and k (Llama), or nothing."""
    rotary_base: float = 10000.0
    """The slowest pair of a rotary head turns once in about 2 pi times this many positions."""
    norm_type: Literal["layer", "rms"] = "layer"
    """LayerNorm, or RMSNorm (Llama)."""
    norm_eps: float = 1e-5
    """Added to the variance before the root."""
    bias: bool = True
    """Biases in attention, MLP and LayerNorm."""
    qkv_bias: bool | None = None
    """Biases in the maps to q, k and v; None: as `bias`. Qwen2 has these alone."""
    n_expert: int | None = None
    """E, SwiGLU networks in each block, of which n_chosen serve a token (Mixtral); None: one."""
    n_chosen: int = 2
    """K."""
    renormalise: bool = True
    """Whether the shares of the chosen experts are divided by their sum."""
    how: How = "steps"
    """Attention written out ("steps", "einops"), or in one kernel ("fused")."""

    def __post_init__(self) -> None:
        if self.d_head is None:
            check_heads(self.n_embd, self.n_head)
        check_positive(n_embd=self.n_embd, n_head=self.n_head, d_head=self.sizes["D"])
        check_groups(self.n_head, self.n_head if self.n_kv_head is None else self.n_kv_head)
        check_positive(n_layer=self.n_layer, vocab_size=self.vocab_size, block_size=self.block_size)
        check_positive(d_mlp=self.sizes["M"])
        check_choice("norm", self.norm, NORMS)
        check_choice("activation", self.activation, MLPS)
        check_choice("positions", self.positions, POSITIONS)
        check_choice("norm_type", self.norm_type, NORM_TYPES)
        check_choice("how", self.how, HOWS)
        if self.positions == "rotary":
            check_even("d_head", self.sizes["D"])
        if self.positions == "sinusoidal":
            check_even("n_embd", self.n_embd)
        if self.n_expert is not None:
            check_chosen(self.n_expert, self.n_chosen)
        for name in ("norm_eps", "rotary_base"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name}={value!r} has to be a number above 0.")
        if self.n_expert is not None and self.activation != "swiglu":
            raise ValueError(
                f"n_expert={self.n_expert} with activation={self.activation!r}: the experts here are SwiGLU networks. "
                'Give activation="swiglu".'
            )
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
        usual = max(1, 8 * C // 3) if self.activation == "swiglu" else 4 * C
        M = usual if self.d_mlp is None else self.d_mlp
        D = C // H if self.d_head is None else self.d_head
        found = {"C": C, "H": H, "D": D, "M": M, "V": self.vocab_size, "L": self.n_layer}
        if self.n_kv_head not in (None, H):
            found["G"] = self.n_kv_head
        return found | ({} if self.n_expert is None else {"E": self.n_expert, "K": self.n_chosen})
