"""Parameter counts as published, on the meta device, where no number is stored."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from tracer.models import GPT, GPTConfig, SwiGLU

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "parameter_counts.json").read_text())


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("published", "preset"),
    [
        ("gpt2-gpt2", "gpt2"),
        ("gpt2-xl", "gpt2-xl"),
        ("llama-2-7b", "llama-2-7b"),
        ("llama-3-8b", "llama-3-8b"),
        ("llama-3.1-405b", "llama-3.1-405b"),
        ("mixtral-8x7b total", "mixtral-8x7b"),
    ],
)
def test_published_counts(published, preset):
    with torch.device("meta"):
        model = GPT(GPTConfig.named(preset))
    assert count(model) == PUBLISHED[published]


def test_a_token_uses_two_experts_of_eight():
    config = GPTConfig.named("mixtral-8x7b")
    with torch.device("meta"):
        expert = count(SwiGLU(config.n_embd, config.d_mlp))
        total = count(GPT(config))
    unused = config.n_layer * (config.n_expert - config.n_chosen) * expert
    assert total - unused == PUBLISHED["mixtral-8x7b active"]


@pytest.mark.parametrize("preset", ["llama-3.1-405b", "mixtral-8x7b"])
def test_runs_on_the_meta_device(preset):
    with torch.device("meta"):
        logits, _ = GPT(GPTConfig.named(preset))(torch.zeros(2, 64, dtype=torch.long))
    assert logits.shape == (2, 64, GPTConfig.named(preset).vocab_size)


def test_without_biases_and_with_fewer_key_value_heads_there_are_fewer():
    base = GPTConfig(n_layer=2, n_head=4, n_embd=24, d_mlp=13, vocab_size=11, block_size=5)
    grouped = GPTConfig(n_layer=2, n_head=4, n_kv_head=1, n_embd=24, d_mlp=13, vocab_size=11, block_size=5)
    plain = GPTConfig(n_layer=2, n_head=4, n_embd=24, d_mlp=13, vocab_size=11, block_size=5, bias=False)
    # k and v: 24 + 1 numbers for each of the 2 * 18 features that are gone
    assert count(GPT(base)) - count(GPT(grouped)) == 2 * 2 * 18 * 25
    # 3C + C in attention, M + C in the MLP, 2 C in the norms; C in the last norm
    assert count(GPT(base)) - count(GPT(plain)) == 2 * (4 * 24 + 13 + 24 + 2 * 24) + 24
