"""GPT in every shape against the models of transformers, through files: float32 logits at most 1e-5 apart.

Each family is saved by transformers from a random config and read back by `GPT.from_pretrained`. Each wrong variant is
one choice away from the right one and must be told apart.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tracer.models import GPT, Rotary, attention

CLOSE = 1e-5


@dataclass
class Sizes:
    B: int
    T: int
    H: int
    G: int
    D: int
    M: int
    V: int
    L: int = 2
    block: int = 32

    @property
    def C(self) -> int:
        return self.H * self.D


SIZES = [
    Sizes(B=2, T=5, H=3, G=1, D=14, M=13, V=11),
    Sizes(B=3, T=17, H=6, G=2, D=10, M=97, V=101, L=3),
    Sizes(B=4, T=4, H=4, G=4, D=4, M=16, V=16),
    Sizes(B=1, T=32, H=4, G=2, D=16, M=128, V=64),
]
by_size = pytest.mark.parametrize("sizes", SIZES, ids=["primes", "deeper", "equal", "full block"])


def common(s: Sizes, **more: Any) -> dict[str, Any]:
    return {
        **{"hidden_size": s.C, "num_attention_heads": s.H, "num_key_value_heads": s.G, "num_hidden_layers": s.L},
        **{"intermediate_size": s.M, "vocab_size": s.V, "max_position_embeddings": s.block, "initializer_range": 0.1},
        **{"pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
        **more,
    }


def gpt2(s: Sizes, **more: Any) -> PreTrainedModel:
    sizes = {"n_embd": s.C, "n_head": s.H, "n_layer": s.L, "n_inner": s.M, "vocab_size": s.V, "n_positions": s.block}
    ends = {"bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ends, initializer_range=0.1, **more))


def llama(s: Sizes, **more: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**common(s, **more)))


def llama_wide(s: Sizes) -> PreTrainedModel:
    """Heads wider than C / H, other frequencies, biases, tied."""
    rope = {"rope_type": "default", "rope_theta": 500.0}
    return llama(s, head_dim=2 * s.D, rope_parameters=rope, attention_bias=True, tie_word_embeddings=True)


def mistral(s: Sizes) -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**common(s, sliding_window=s.T)))


def qwen2(s: Sizes) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**common(s)))


def mixtral(s: Sizes) -> PreTrainedModel:
    config = MixtralConfig(**common(s, num_local_experts=5, num_experts_per_tok=2))
    config._experts_implementation = "eager"  # the grouped kernel takes sizes in multiples of 4 only
    return MixtralForCausalLM(config)


def saved(make: Any, sizes: Sizes, folder: Path) -> tuple[Tensor, PreTrainedModel]:
    """Save a random model of transformers; return ids for it and the model."""
    torch.manual_seed(0)
    judge = make(sizes).eval()
    with torch.no_grad():
        for name, p in judge.named_parameters():  # norms away from 1, biases away from 0: leaving one out shows
            if p.dim() == 1:
                p.uniform_(0.5, 1.5) if name.endswith("weight") else p.uniform_(-0.5, 0.5)
    judge.save_pretrained(folder)
    return torch.randint(sizes.V, (sizes.B, sizes.T)), judge


def judged(make: Any, sizes: Sizes, folder: Path) -> tuple[Tensor, Tensor]:
    """Save a random model of transformers; return ids and its logits for them."""
    idx, judge = saved(make, sizes, folder)
    with torch.no_grad():
        return idx, judge(idx).logits


@torch.no_grad()
def apart(model: GPT, idx: Tensor, logits: Tensor) -> float:
    ours = model(idx)[0]
    assert ours.shape == logits.shape and ours.dtype == torch.float32
    return (ours - logits).abs().max().item()


FAMILIES = [gpt2, llama, llama_wide, mistral, qwen2, mixtral]


@by_size
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_logits_equal(make, sizes, tmp_path):
    idx, logits = judged(make, sizes, tmp_path)
    model = GPT.from_pretrained(tmp_path)
    assert not model.training
    assert apart(model, idx, logits) <= CLOSE
    assert logits.abs().max() > 0.3  # weights large enough that equality says something


@pytest.mark.parametrize("how", ["fused", "einops"])
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_other_ways_to_compute_it(make, how, tmp_path):
    idx, logits = judged(make, SIZES[1], tmp_path)
    assert apart(GPT.from_pretrained(tmp_path, how=how), idx, logits) <= CLOSE


@pytest.mark.parametrize(("theirs", "ours"), [("gelu_new", "gelu_tanh"), ("gelu", "gelu_erf"), ("relu", "relu")])
def test_activations_of_gpt2(theirs, ours, tmp_path):
    idx, logits = judged(lambda s: gpt2(s, activation_function=theirs), SIZES[1], tmp_path)
    model = GPT.from_pretrained(tmp_path)
    assert model.config.activation == ours and apart(model, idx, logits) <= CLOSE


def groups_in_turn(model: GPT) -> None:
    """Head h served by key/value head h % G, where h // (H / G) is right."""
    for block in model.transformer.h:
        for part in (block.attn.c_q, block.attn.c_proj):
            H, D = block.attn.n_head, block.attn.d_head
            order = torch.arange(H * D).view(2, H // 2, D).transpose(0, 1).reshape(-1)
            part.weight.data = part.weight.data[order] if part is block.attn.c_q else part.weight.data[:, order]


def other_pairs(model: GPT) -> None:
    for block in model.transformer.h:
        block.attn.rotary = Rotary(block.attn.d_head, layout="interleaved")


def positions_off(model: GPT) -> None:
    """Keys counted from 1 while queries count from 0 would shift every distance."""
    for block in model.transformer.h:
        rotary, calls = block.attn.rotary, []
        forward = rotary.forward

        def shifted(x: Tensor, positions: Tensor, forward=forward, calls=calls) -> Tensor:
            calls.append(x)
            return forward(x, positions + len(calls) % 2)

        rotary.forward = shifted


@dataclass
class Wrong:
    make: Any
    changes: dict[str, Any] = field(default_factory=dict)
    spoil: Any = None


WRONG = {
    "erf for tanh": Wrong(gpt2, {"activation": "gelu_erf"}),
    "another epsilon": Wrong(gpt2, {"norm_eps": 1e-2}),
    "rotary base": Wrong(llama, {"rotary_base": 5000.0}),
    "rotary pairs": Wrong(llama, spoil=other_pairs),
    "rotary of q and k from different positions": Wrong(llama, spoil=positions_off),
    "epsilon of RMSNorm": Wrong(llama, {"norm_eps": 1e-2}),
    "order of the groups": Wrong(llama, spoil=groups_in_turn),
    "order of the groups, wide heads": Wrong(llama_wide, spoil=groups_in_turn),
    "rotary base, Mistral": Wrong(mistral, {"rotary_base": 5000.0}),
    "rotary pairs, Qwen2": Wrong(qwen2, spoil=other_pairs),
    "one expert of two": Wrong(mixtral, {"n_chosen": 1}),
    "shares not renormalised": Wrong(mixtral, {"renormalise": False}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_variants_are_told_apart(name, tmp_path):
    wrong = WRONG[name]
    idx, logits = judged(wrong.make, SIZES[1], tmp_path)
    model = GPT.from_pretrained(tmp_path, **wrong.changes)
    if wrong.spoil is not None:
        wrong.spoil(model)
    assert apart(model, idx, logits) > 10 * CLOSE


def test_qwen2_without_its_biases_is_told_apart(tmp_path):
    idx, logits = judged(qwen2, SIZES[1], tmp_path)
    model = GPT.from_pretrained(tmp_path)
    for block in model.transformer.h:
        block.attn.c_k.bias.data.zero_()  # a bias of k would cancel in the softmax, were it not turned
    assert apart(model, idx, logits) > 10 * CLOSE


def test_without_the_scale_is_told_apart(tmp_path, monkeypatch):
    idx, logits = judged(gpt2, SIZES[1], tmp_path)
    model = GPT.from_pretrained(tmp_path)
    monkeypatch.setattr(attention.math, "sqrt", lambda D: 1.0)
    assert apart(model, idx, logits) > 10 * CLOSE


@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_padding_on_the_left_equals(make, tmp_path):
    """Both count positions from the first token; what stands in place of the missing tokens does not matter."""
    sizes = SIZES[1]
    idx, judge = saved(make, sizes, tmp_path)
    padding = torch.ones(sizes.B, sizes.T, dtype=torch.bool)
    padding[0, :3] = padding[2, :7] = False
    places = (padding.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = judge(idx, attention_mask=padding.long(), position_ids=places).logits
        ours = GPT.from_pretrained(tmp_path)(idx, padding=padding)[0]
    assert (ours - logits)[padding].abs().max() <= CLOSE
    assert ours.isfinite().all()
