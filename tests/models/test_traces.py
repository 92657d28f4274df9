"""Traces of the models: every axis has a name, nothing is warned of, and sizes that coincide change no name."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import tracer
from tracer.models import GPT, MLP, Attention, Block, GPTConfig, KVCache, LayerNorm, MoE, RMSNorm, Rotary, SwiGLU

HOWS = ("steps", "fused", "einops")
PRIMES = {"B": 2, "T": 5, "H": 6, "G": 3, "D": 14, "M": 13, "V": 11, "E": 5, "block": 23}
EQUAL = {"B": 4, "T": 4, "H": 4, "G": 2, "D": 4, "M": 16, "V": 16, "E": 4, "block": 8}


def config(s: dict[str, int], kind: str, how: str) -> GPTConfig:
    base = GPTConfig(
        n_layer=2,
        n_head=s["H"],
        n_embd=s["H"] * s["D"],
        d_mlp=s["M"],
        vocab_size=s["V"],
        block_size=s["block"],
        how=how,
    )
    llama = replace(base, n_kv_head=s["G"], positions="rotary", norm_type="rms", activation="swiglu", bias=False)
    return {
        "gpt": base,
        "post": replace(base, norm="post"),
        "none": replace(base, positions="none"),
        "sinusoidal": replace(base, positions="sinusoidal"),
        "llama": llama,
        "qwen": replace(llama, qkv_bias=True),
        "wide heads": replace(llama, d_head=2 * s["D"]),
        "mixtral": replace(llama, n_expert=s["E"]),
    }[kind]


KINDS = ("gpt", "post", "none", "sinusoidal", "llama", "qwen", "wide heads", "mixtral")


def complaints(trace: tracer.Trace) -> list[str]:
    unnamed = [f"{op.index} {op.name} {t.label}" for op in trace for t in (*op.inputs, *op.outputs) if "?" in t.label]
    return [*unnamed, *map(str, trace.warnings), *map(str, trace.unnamed)]


def labels(trace: tracer.Trace) -> list[str]:
    return [t.label for op in trace for t in op.outputs]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_axis_has_its_name(kind, how):
    seen = []
    for s in (PRIMES, EQUAL):
        torch.manual_seed(0)
        model = GPT(config(s, kind, how)).eval()
        idx = torch.randint(s["V"], (s["B"], s["T"]))
        trace = tracer.trace(model, idx)
        assert complaints(trace) == []
        assert trace[-1].outputs[0].label == "[B, T, V]"
        seen.append(labels(trace))
    if kind != "mixtral":  # there the number of operations depends on E
        assert seen[0] == seen[1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["gpt", "llama", "mixtral"])
def test_a_cached_step_and_a_padded_batch(kind, how):
    s = PRIMES
    model = GPT(config(s, kind, how)).eval()
    idx = torch.randint(s["V"], (s["B"], s["T"]))
    padding = torch.arange(s["T"]) >= torch.tensor([[0], [2]])
    assert complaints(tracer.trace(model, idx, padding=padding)) == []
    cache = model.new_cache()
    model(idx[:, :3], cache=cache)
    trace = tracer.trace(model, idx[:, 3:], cache=cache)
    assert complaints(trace) == []
    if how == "steps":
        assert trace["scores"].label == "[B, H, T, S+T]"


@pytest.mark.parametrize("how", HOWS)
def test_uses_of_attention(how):
    x, source = torch.randn(2, 5, 24), torch.randn(2, 7, 13)
    seen: dict[str, Any] = {"padding": torch.ones(2, 7, dtype=torch.bool)}
    cross = Attention(24, 3, causal=False, d_source=13, how=how)
    trace = tracer.trace(cross, x, source, **seen)
    assert complaints(trace) == []
    if how == "steps":
        assert trace["scores"].label == "[B, H, T, S]"
    other = Attention(24, 6, n_kv_head=2, d_head=5, d_value=7, how=how, rotary=None)
    assert complaints(tracer.trace(other, x)) == []
    cache = KVCache()
    assert complaints(tracer.trace(Attention(24, 3, rotary=Rotary(8, layout="interleaved"), how=how), x)) == []
    turned = Attention(24, 3, rotary=Rotary(8), how=how)
    turned(x, cache=cache)
    assert complaints(tracer.trace(turned, x[:, :1], cache=cache)) == []


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_blocks_and_parts(norm):
    x, memory = torch.randn(2, 5, 24), torch.randn(2, 7, 13)
    block = Block(24, 3, norm=norm, cross=Attention(24, 3, d_source=13, causal=False))
    assert complaints(tracer.trace(block, x, memory)) == []
    for part in (MLP(24), SwiGLU(24), RMSNorm(24), MoE(24, 7, n_expert=5)):
        assert complaints(tracer.trace(part, x)) == []
    assert complaints(tracer.trace(LayerNorm(24), x)) == []


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_one_key_head_serves_them_all(how, positions):
    model = GPT(replace(config(PRIMES, "gpt", how), n_kv_head=1, positions=positions)).eval()
    idx = torch.randint(PRIMES["V"], (PRIMES["B"], PRIMES["T"]))
    cache = model.new_cache()
    assert complaints(tracer.trace(model, idx, cache=cache)) == []
    trace = tracer.trace(model, idx[:, :1], cache=cache)
    assert complaints(trace) == []
    assert next(op for op in trace if op.name == "repeat_interleave").outputs[0].label == "[B, H, S+T, D]"


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("positions", [torch.arange(5), torch.arange(10).view(2, 5)])
def test_rotary_by_itself(layout, positions):
    assert complaints(tracer.trace(Rotary(8, layout=layout), torch.randn(2, 3, 5, 8), positions)) == []
