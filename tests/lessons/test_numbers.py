"""The numbers and sentences that the exercises hold are those of the models: counted, measured, or written out."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import tracer
from tracer.lessons import exercises
from tracer.lessons.exercise import Draw
from tracer.lessons.lesson_18 import FAULTS, broken_attention, llama_parameters
from tracer.models import GPT, CausalConv, GPTConfig, KVCache, VisionTransformer, scaled_dot_product_attention

BY_ID = {exercise.id: exercise for exercise in exercises()}


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_pre_and_post_norm_differ_by_one_norm_in_the_whole_model() -> None:
    sizes: dict[str, Any] = {"n_layer": 3, "n_head": 2, "n_embd": 14, "vocab_size": 5, "block_size": 4}
    pre, post = (GPT(GPTConfig(**sizes, norm=order)) for order in ("pre", "post"))
    assert _count(pre) - _count(post) == 14 + 14
    assert BY_ID["final_norm_parameters"].reference == 768 + 768


def test_learned_positions_are_a_table() -> None:
    model = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=6, vocab_size=5, block_size=7))
    assert _count(model.transformer.wpe) == 7 * 6  # type: ignore[union-attr, arg-type]
    assert BY_ID["learned_positions"].reference == 1024 * 768 == 786_432


def test_the_same_distance_gives_the_same_score() -> None:
    rotary, (q, k) = tracer.models.Rotary(8), torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(m: int, n: int) -> float:
        return (rotary(q, torch.tensor([m])) * rotary(k, torch.tensor([n]))).sum().item()

    assert abs(score(7, 3) - score(12, BY_ID["same_distance"].reference)) < 1e-9
    assert abs(score(7, 3) - score(12, 16)) > 1e-6 < abs(score(7, 3) - score(12, 3))


def test_without_tanh_the_decoders_state_cancels() -> None:
    h, w, u, v = torch.randn(5, 3), torch.randn(3, 4), torch.randn(3, 4), torch.randn(4)
    one, other = (((s @ w + h @ u) @ v).softmax(0) for s in torch.randn(2, 3))
    assert torch.allclose(one, other, atol=1e-6)
    one, other = ((torch.tanh(s @ w + h @ u) @ v).softmax(0) for s in torch.randn(2, 3))
    assert not torch.allclose(one, other, atol=1e-3)


def test_the_variance_of_a_dot_product_is_d() -> None:
    q, k = torch.randn(2, 40_000, 64, generator=torch.Generator().manual_seed(3))
    assert abs((q * k).sum(dim=1).var().item() - BY_ID["score_variance"].reference) < 3  # 4 standard errors are 1.8


def test_layers_of_a_convolution_until_both_ends_meet() -> None:
    layers = BY_ID["path_length"].reference
    reach = [CausalConv(2, vocab_size=3, n_layer=n, window=3).reach for n in (layers - 1, layers)]
    assert reach == [29, 31], "position 30 sees 31 positions back to 0"


def test_flops_of_attention_are_those_that_torch_counts() -> None:
    q, k, v = torch.zeros(1, 1, 1000, 64), torch.zeros(1, 1, 1000, 64), torch.zeros(1, 1, 1000, 32)
    with FlopCounterMode(display=False) as counter:
        _ = q @ k.mT @ v
    assert counter.get_total_flops() == BY_ID["attention_flops"].reference == 192_000_000


def test_bytes_of_scores_and_of_a_cache() -> None:
    assert torch.zeros(100, 100).nbytes * 1000**2 == BY_ID["score_bytes"].reference
    cache = KVCache()
    cache.append(torch.zeros(1, 8, 4096, 128), torch.zeros(1, 8, 4096, 128))
    assert 32 * cache.nbytes == BY_ID["cache_bytes"].reference == 2**30


def test_number_of_patches() -> None:
    model = VisionTransformer((96, 160), 16, n_class=2, n_layer=1, n_head=1, n_embd=4, channels=3)
    assert model.n_patch == BY_ID["number_of_patches"].reference == 60


@pytest.mark.parametrize(
    ("published", "sizes"),
    [
        (8_030_261_248, {"n_layer": 32, "n_embd": 4096, "n_kv_head": 8, "d_mlp": 14336, "vocab_size": 128256}),
        (6_738_415_616, {"n_layer": 32, "n_embd": 4096, "n_kv_head": 32, "d_mlp": 11008, "vocab_size": 32000}),
    ],
)
def test_parameters_of_llama_as_published(published: int, sizes: dict[str, int]) -> None:
    assert llama_parameters(n_head=32, **sizes) == published
    block = 4096 * 4096 * 2 + 1024 * 4096 * 2 + 3 * 4096 * 14336 + 2 * 4096
    assert BY_ID["count_llama"].reference == 2 * 128256 * 4096 + 32 * block + 4096 == 8_030_261_248


def test_a_token_pushed_out_by_the_mask_of_the_cache_is_seen_by_none() -> None:
    reference: Callable[..., torch.Tensor] = BY_ID["cache_mask"].reference
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    whole = scaled_dot_product_attention(q, k, v, torch.ones(5, 5, dtype=torch.bool).tril())[0]
    late = scaled_dot_product_attention(q[:, :, -2:], k, v, reference(2, 5))[0]
    assert torch.allclose(late, whole[:, :, -2:], atol=1e-6)


def test_the_broken_layer_runs_and_its_faults_show_in_a_trace() -> None:
    case = BY_ID["repaired_attention"].inputs(Draw(1))[0]  # type: ignore[misc]
    H, C = case.sizes["H"], case.sizes["C"]
    x, w_qkv, w_o, _H = case.args
    assert broken_attention(*case.args).shape == x.shape and len(FAULTS) == 4
    t = tracer.trace(lambda x: broken_attention(x, w_qkv, w_o, H), x, axes=["B T C"], sizes={"C": C, "H": H})
    assert t.warnings, "the exercise tells the learner to read them"
    assert json.dumps(t.warnings)
