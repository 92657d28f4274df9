"""Generation: the cache against the full pass, padding, what may be drawn, streaming."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import TopPLogitsWarper

from tracer.models import GPT, GPTConfig
from tracer.models.generation import choose

PLAIN = GPTConfig(n_layer=2, n_head=3, n_embd=24, d_mlp=13, vocab_size=11, block_size=12)
LLAMA = replace(
    PLAIN, n_head=6, n_kv_head=2, positions="rotary", norm_type="rms", activation="swiglu", bias=False, d_head=8
)
CONFIGS = {
    "gpt": PLAIN,
    "post": replace(PLAIN, norm="post"),
    "sinusoidal": replace(PLAIN, positions="sinusoidal"),
    "none": replace(PLAIN, positions="none"),
    "llama": LLAMA,
    "mixtral": replace(LLAMA, n_expert=5),
    "fused": replace(LLAMA, how="fused"),
    "einops": replace(LLAMA, how="einops"),
}
B, T = 3, 9
by_config = pytest.mark.parametrize("name", CONFIGS)


def made(name: str) -> tuple[GPT, Tensor]:
    torch.manual_seed(0)
    model = GPT(CONFIGS[name]).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    return model, torch.randint(11, (B, T))


def far(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def padded(lengths: list[int], total: int = T) -> Tensor:
    """Return the mask of prompts that end together: True for the last n of each row."""
    return torch.stack([torch.arange(total) >= total - n for n in lengths])


# ------------------------------------------------------------------ the cache


@by_config
@pytest.mark.parametrize("cuts", [[1] * T, [4, 1, 4], [8, 1], [2, 3, 4]])
@torch.no_grad()
def test_cached_equals_the_full_pass(name, cuts):
    model, idx = made(name)
    wanted, _ = model(idx)
    cache = model.new_cache()
    parts = [model(part, cache=cache)[0] for part in idx.split(cuts, dim=1)]
    assert far(torch.cat(parts, dim=1), wanted) <= 1e-5
    assert len(cache) == 2 and all(len(layer) == T for layer in cache)


@pytest.mark.parametrize("name", ["gpt", "llama"])
@torch.no_grad()
def test_a_cache_that_is_left_out_or_mixed_up_is_told_apart(name):
    model, idx = made(name)
    wanted = model(idx)[0][:, 6:]
    assert far(model(idx[:, 6:])[0], wanted) > 1e-3
    cache = model.new_cache()
    model(idx[:, :6].flip(1), cache=cache)
    assert far(model(idx[:, 6:], cache=cache)[0], wanted) > 1e-3


@by_config
@pytest.mark.parametrize("cuts", [[T], [5, 1, 1, 2], [1] * T])
@torch.no_grad()
def test_padded_rows_equal_the_rows_alone(name, cuts):
    model, idx = made(name)
    lengths = [9, 6, 2]
    padding, cache = padded(lengths), model.new_cache()
    ends = itertools.accumulate(cuts)
    parts = [
        model(part, padding=padding[:, :end], cache=cache)[0]
        for part, end in zip(idx.split(cuts, dim=1), ends, strict=True)
    ]
    logits = torch.cat(parts, dim=1)
    assert logits.isfinite().all()
    for b, n in enumerate(lengths):
        assert far(logits[b, T - n :], model(idx[b : b + 1, T - n :])[0][0]) <= 1e-5
    other = idx.masked_fill(~padding, 3)  # what stands in place of a token does not matter
    assert far(model(other, padding=padding)[0][padding], logits[padding]) <= 1e-5
    assert far(model(idx)[0][padding], logits[padding]) > 1e-3  # without the mask it does


@by_config
def test_future_changes_nothing(name):
    model, idx = made(name)
    wanted = model(idx)[0]
    for t in (1, 5, 8):
        later = idx.clone()
        later[:, t:] = (later[:, t:] + 1) % 11
        assert far(model(later)[0][:, :t], wanted[:, :t]) <= 1e-5
        assert far(model(later)[0][:, t:], wanted[:, t:]) > 1e-3


@by_config
def test_gradients_reach_every_parameter(name):
    model, idx = made(name)
    model(idx, idx.roll(1))[1].backward()
    for parameter, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), parameter
        assert p.grad.abs().max() > 0 or ".experts." in parameter, parameter


def test_order_counts_by_positions_and_by_the_mask_alone():
    """The last token's logits: without positions they know the set before it, from the second block on its order."""
    order = torch.tensor([3, 1, 0, 2, 7, 5, 4, 6, 8])
    for name, moved in (("none", False), ("gpt", True), ("sinusoidal", True), ("llama", True)):
        model, idx = made(name)
        model.transformer.h = model.transformer.h[:1]
        assert (far(model(idx[:, order])[0][:, -1], model(idx)[0][:, -1]) > 1e-4) is moved, name


# ------------------------------------------------------------------ generation


@by_config
@pytest.mark.parametrize("choices", [{"temperature": 0}, {"seed": 5}, {"seed": 5, "top_k": 4, "top_p": 0.9}])
def test_the_cache_changes_no_token(name, choices):
    """Also beyond block_size, where every position moves at each step."""
    model, idx = made(name)
    for prompt, n in ((idx[:, :4], 12), (idx, 1), (torch.cat([idx, idx], dim=1), 3)):
        with_cache = model.generate(prompt, n, **choices)
        assert torch.equal(with_cache, model.generate(prompt, n, use_cache=False, **choices))
        assert with_cache.shape == (B, prompt.shape[1] + n) and torch.equal(with_cache[:, : prompt.shape[1]], prompt)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_the_cache_is_used(name):
    model, idx = made(name)
    seen = []
    model.register_forward_pre_hook(lambda _module, args: seen.append(args[0].shape[1]))
    model.generate(idx[:, :4], 11)
    assert seen == [4, *[1] * 8, 12, 12]  # 4 .. 12 positions fit, then the window moves
    seen.clear()
    model.generate(idx[:, :4], 3, use_cache=False)
    assert seen == [4, 5, 6]


@by_config
def test_prompts_of_several_lengths(name):
    model, idx = made(name)
    lengths = [9, 6, 2]
    together = model.generate(idx, 3, temperature=0, padding=padded(lengths))
    for b, n in enumerate(lengths):
        alone = model.generate(idx[b : b + 1, T - n :], 3, temperature=0)
        assert torch.equal(together[b, T - n :], alone[0])


def test_streaming_gives_each_token_as_it_is_drawn():
    model, idx = made("gpt")
    model.train()
    stream = model.stream(idx, 5, seed=1)
    first = next(stream)
    assert first.shape == (B, 1) and model.training and torch.is_grad_enabled()
    tokens = [first, *stream]
    model.eval()
    assert torch.equal(torch.cat([idx, *tokens], dim=1), model.generate(idx, 5, seed=1))


def test_a_stream_that_is_not_read_to_its_end():
    model, idx = made("gpt")
    for _ in model.stream(idx, 10**9):
        break
    assert torch.is_grad_enabled()


def test_progress_is_shown_when_asked_for(capsys):
    model, idx = made("gpt")
    model.generate(idx, 3)
    assert capsys.readouterr().err == ""
    model.generate(idx, 3, progress=True)
    assert "3/3" in capsys.readouterr().err


def test_bad_requests_are_told_before_the_first_token():
    model, idx = made("gpt")
    with pytest.raises(ValueError, match=r"top_p=0 is no share of the probability. Give a number above 0, up to 1\."):
        model.stream(idx, 3, top_p=0)
    with pytest.raises(ValueError, match=r"padding is \[3, 4\], but here it has to be \[3, 9\]\."):
        model.stream(idx, 3, padding=padded([1, 2, 3], 4))
    with pytest.raises(ValueError, match=r"T=13 positions, but block_size=12"):
        cache = model.new_cache()
        model(torch.zeros(1, 12, dtype=torch.long), cache=cache)
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)


# ------------------------------------------------------------------ what may be drawn

SHARES = torch.tensor([[0.4, 0.3, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.3, 0.4]])


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (None, 1.0, 5),
        (None, 0.69, 2),  # .4 is not enough, .4 + .3 is
        (None, 0.39, 1),
        (None, 1e-9, 1),  # the likeliest always stays
        (None, 0.71, 3),
        (3, 0.9, 3),  # after top-k the shares are .471, .353, .176
        (3, 0.8, 2),
        (2, None, 2),
    ],
)
def test_tokens_that_may_be_drawn(top_k, top_p, kept):
    logits = SHARES.log().repeat(2000, 1)
    drawn = choose(1.0, top_k, top_p, torch.Generator().manual_seed(0), logits).view(2000, 2)
    for row, order in ((0, [0, 1, 2, 3, 4]), (1, [4, 3, 2, 1, 0])):
        counts = torch.bincount(drawn[:, row], minlength=5)[order] / 2000
        wanted = SHARES[0, :kept] / SHARES[0, :kept].sum()
        assert not counts[kept:].any() and far(counts[:kept], wanted) < 0.04


def test_top_p_equals_transformers():
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0)) * 2
    for top_p in (0.1, 0.5, 0.9, 0.99):
        kept = TopPLogitsWarper(top_p)(None, logits).isfinite()
        seen = torch.zeros_like(kept)
        generator = torch.Generator().manual_seed(1)
        for _ in range(3000):
            seen.scatter_(1, choose(1.0, None, top_p, generator, logits), True)
        assert not (seen & ~kept).any()
        rare = logits.softmax(-1).masked_fill(~kept, 1.0) < 0.005  # may not come up in 3000 draws
        assert (seen | ~kept | rare).all()


def test_a_cache_of_another_batch_or_model():
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=24, vocab_size=11, block_size=9)).eval()
    other = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=24, vocab_size=11, block_size=9)).eval()
    idx, cache = torch.zeros(2, 3, dtype=torch.long), model.new_cache()
    model(idx, cache=cache)
    for wrong, ids in ((model, idx[:1]), (other, idx)):
        with pytest.raises(ValueError, match=r"the cache holds keys \[2, 3, 3, 8\] and is given"):
            wrong(ids, cache=cache)
        assert [len(layer) for layer in cache] == [3, 3]  # as it was
    for short in ([], cache[:1]):
        with pytest.raises(ValueError, match=f"cache is a list of {len(short)}, but the model has 2 blocks"):
            model(idx, cache=short)
