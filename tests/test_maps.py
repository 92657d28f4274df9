"""Attention maps: the weights are those that the model used, in every way of computing attention."""

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5Model,
)

import tracer
from tracer.errors import TracerError
from tracer.maps import MOST_SHOWN, AttentionMaps
from tracer.models import GPT, Attention, EncoderDecoder, GPTConfig, RNNSeq2Seq, VisionTransformer
from tracer.models import scaled_dot_product_attention as attend

B, T, S, C, H, D = 2, 5, 7, 24, 3, 8
HOWS = ("steps", "fused", "einops")


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


def ids(length: int = T, vocabulary: int = 11) -> Tensor:
    seeded()
    return torch.randint(0, vocabulary, (B, length))


def by_hand(layer: Attention, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the weights of a layer, computed from its own matrices."""
    data = x if source is None else source
    if layer.fused_qkv:
        q, k, _ = layer.c_attn(x).split(C, dim=-1)
    else:
        q, k = layer.c_q(x), layer.c_k(data)
    heads = [t.unflatten(-1, (-1, D)).transpose(1, 2) for t in (q, k)]
    heads[1] = heads[1].repeat_interleave(H // heads[1].shape[1], dim=1)
    return attend(heads[0], heads[1], heads[1], mask)[1]


def only(maps: AttentionMaps) -> Tensor:
    (weights,) = maps.weights.values()
    return weights


# ---------------------------------------------------------------- the reference models


@pytest.mark.parametrize("how", HOWS)
def test_the_weights_of_every_implementation(how: Any) -> None:
    seeded()
    layer, x = Attention(C, H, how=how).eval(), torch.randn(B, T, C)
    maps = tracer.attention_maps(layer, x)
    triangle = torch.ones(T, T, dtype=torch.bool).tril()
    assert torch.allclose(only(maps), by_hand(layer, x, mask=triangle), atol=1e-6)
    assert torch.equal(maps.masked["attention"], ~triangle.expand(B, H, T, T))
    assert maps.layers[0].axes == ("B", "H", "T", "T")


@pytest.mark.parametrize("how", HOWS)
def test_names_are_the_same_where_all_sizes_are(how: Any) -> None:
    model = GPT(GPTConfig(n_layer=1, n_head=4, n_embd=16, vocab_size=16, block_size=4, how=how)).eval()
    maps = tracer.attention_maps(model, torch.zeros(4, 4, dtype=torch.long))
    assert maps.layers[0].axes == ("B", "H", "T", "T")
    cross = Attention(16, 4, d_source=16, causal=False, how=how)
    assert tracer.attention_maps(cross, torch.randn(4, 4, 16), torch.randn(4, 4, 16)).layers[0].axes[2:] == ("T", "S")


@pytest.mark.parametrize("how", HOWS)
def test_grouped_heads_and_padding(how: Any) -> None:
    seeded()
    layer, x = Attention(C, H, n_kv_head=1, causal=False, how=how).eval(), torch.randn(B, T, C)
    padding = torch.tensor([[True] * T, [True] * 2 + [False] * (T - 2)])
    maps = tracer.attention_maps(layer, x, padding=padding)
    mask = padding[:, None, None, :].expand(B, H, T, T)
    assert torch.allclose(only(maps), by_hand(layer, x, mask=mask), atol=1e-6)
    assert torch.equal(maps.masked["attention"], ~mask)


@pytest.mark.parametrize("how", HOWS)
def test_cross_attention(how: Any) -> None:
    seeded()
    layer = Attention(C, H, d_source=13, causal=False, how=how).eval()
    x, source = torch.randn(B, T, C), torch.randn(B, S, 13)
    maps = tracer.attention_maps(layer, x, source)
    assert torch.allclose(only(maps), by_hand(layer, x, source), atol=1e-6)
    assert maps.layers[0].axes == ("B", "H", "T", "S")
    assert not maps.masked["attention"].any()


@pytest.mark.parametrize("how", HOWS)
def test_a_query_that_sees_nothing_has_a_row_of_zeros(how: Any) -> None:
    layer, x = Attention(C, H, causal=False, how=how).eval(), torch.randn(B, T, C)
    maps = tracer.attention_maps(layer, x, padding=torch.tensor([[True] * T, [False] * T]))
    assert torch.equal(only(maps)[1], torch.zeros(H, T, T))
    assert maps.row_sums["attention"][1].sum() == 0
    assert maps.entropy["attention"][1].sum() == 0
    assert maps.masked["attention"][1].all()


def test_each_layer_has_its_own_map() -> None:
    maps = tracer.attention_maps(GPT(GPTConfig(n_layer=3, n_head=H, n_embd=C, vocab_size=11, block_size=T)), ids())
    assert list(maps.weights) == [f"transformer.h.{i}.attn" for i in range(3)]
    assert all(w.shape == (B, H, T, T) for w in maps.weights.values())


def test_a_recurrent_decoder_has_one_map_with_a_row_for_each_step() -> None:
    seeded()
    for query in ("previous", "current"):
        model = RNNSeq2Seq(C, 11, attention=True, query=query, bidirectional=True)
        for p in model.parameters():
            nn.init.normal_(p)
        src, idx = ids(S), ids(T)
        padding = torch.ones(B, S, dtype=torch.bool)
        padding[0, -2:] = False
        maps = tracer.attention_maps(model, src, idx, src_padding=padding)
        expected = model.attention_map(src, idx, src_padding=padding)
        assert torch.allclose(only(maps)[:, 0], expected, atol=1e-6)
        assert maps.layers[0].axes == ("B", "1", "T", "S")
        assert torch.equal(maps.masked["attention"][:, 0], ~padding[:, None, :].expand(B, T, S))


def test_generation_with_a_cache_gives_the_triangle_of_the_whole() -> None:
    seeded()
    model = GPT(GPTConfig(n_layer=2, n_head=H, n_embd=C, vocab_size=11, block_size=16)).eval()
    prompt = ids(3)
    maps = tracer.attention_maps(model.generate, prompt, 4, top_k=1)
    whole = tracer.attention_maps(model, model.generate(prompt, 4, top_k=1)[:, :-1])
    for name, weights in whole.weights.items():
        assert torch.allclose(maps.weights[name], weights, atol=1e-5)
        assert torch.equal(maps.masked[name], whole.masked[name])


def test_encoder_and_decoder_and_what_is_between() -> None:
    seeded()
    model = EncoderDecoder(n_layer=1, n_head=H, n_embd=C, vocab_size=11).eval()
    maps = tracer.attention_maps(model, ids(S), ids(T), tokens={"S": "abcdefg", "T": "vwxyz"})
    assert [layer.axes[2:] for layer in maps.layers] == [("S", "S"), ("T", "T"), ("T", "S")]
    assert "w looks most at" in str(maps) or "  w " in str(maps)


def test_an_image_model_is_found_and_its_mixture_of_experts_is_not() -> None:
    seeded()
    vision = VisionTransformer((8, 8), 4, n_class=3, n_layer=1, n_head=H, n_embd=C)
    assert len(tracer.attention_maps(vision, torch.randn(B, 1, 8, 8)).layers) == 1
    config = GPTConfig(n_layer=1, n_head=H, n_embd=C, vocab_size=11, block_size=T, n_expert=4, n_chosen=2,
                       activation="swiglu")  # fmt: skip
    assert len(tracer.attention_maps(GPT(config), ids()).layers) == 1


# ---------------------------------------------------------------- other people's models

SMALL = {"vocab_size": 31, "hidden_size": C, "num_hidden_layers": 2, "num_attention_heads": H}
DECODERS: dict[str, Callable[..., nn.Module]] = {
    "gpt2": lambda **k: GPT2LMHeadModel(GPT2Config(vocab_size=31, n_embd=C, n_layer=2, n_head=H, n_positions=16, **k)),
    "llama": lambda **k: LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=1, intermediate_size=32, **k)),
    "neox": lambda **k: GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, intermediate_size=32, **k)),
    "bert": lambda **k: BertModel(BertConfig(**SMALL, intermediate_size=32, **k)),
}


@pytest.mark.parametrize("name", DECODERS)
def test_hugging_face_models_of_both_kinds_give_what_output_attentions_gives(name: str) -> None:
    seeded()
    eager = DECODERS[name](attn_implementation="eager").eval()
    seeded()
    sdpa = DECODERS[name](attn_implementation="sdpa").eval()
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, :2] = 0
    expected = eager(ids(), attention_mask=mask, output_attentions=True).attentions
    for model in (eager, sdpa):
        maps = tracer.attention_maps(model, ids(), attention_mask=mask)
        assert len(maps.layers) == len(expected) == 2
        for weights, closed, theirs in zip(maps.weights.values(), maps.masked.values(), expected, strict=True):
            seen = ~closed.all(-1)  # a query that sees nothing: eager models spread it evenly, the kernel gives zeros
            assert torch.allclose(weights[seen], theirs[seen], atol=1e-6)
            assert closed[1, :, 2:, :2].all()
            assert not closed[0, :, -1].any()


def test_hugging_face_encoder_decoders() -> None:
    bart = BartConfig(vocab_size=31, d_model=C, encoder_layers=1, decoder_layers=1, encoder_attention_heads=H,
                      decoder_attention_heads=H, encoder_ffn_dim=32, decoder_ffn_dim=32)  # fmt: skip
    t5 = T5Config(vocab_size=31, d_model=C, d_kv=D, d_ff=32, num_layers=1, num_heads=H)
    for make, config in ((BartModel, bart), (T5Model, t5)):
        config._attn_implementation = "eager"
        seeded()
        model = make(config).eval()
        said = {"input_ids": ids(S), "decoder_input_ids": ids(T)}
        theirs = model(**said, output_attentions=True)
        maps = tracer.attention_maps(model, **said)
        expected = [*theirs.encoder_attentions, *theirs.decoder_attentions, *theirs.cross_attentions]
        assert sorted(tuple(w.shape) for w in maps.weights.values()) == sorted(tuple(w.shape) for w in expected)
        for weights in maps.weights.values():
            assert any(w.shape == weights.shape and torch.allclose(w, weights, atol=1e-6) for w in expected)


@pytest.mark.parametrize("training", [True, False])
def test_multi_head_attention_of_torch(training: bool) -> None:
    seeded()
    layer = nn.MultiheadAttention(C, H, batch_first=True).train(training)
    x, memory = torch.randn(B, T, C), torch.randn(B, S, C)
    closed = torch.ones(T, S, dtype=torch.bool).triu(3)
    expected = layer(x, memory, memory, attn_mask=closed, average_attn_weights=False)[1]
    maps = tracer.attention_maps(layer, x, memory, memory, attn_mask=closed, need_weights=False)
    assert torch.allclose(only(maps), expected, atol=1e-6)
    assert torch.equal(next(iter(maps.masked.values()))[0, 0], closed)


def test_the_encoder_layer_of_torch_is_opened_where_it_takes_its_fast_path() -> None:
    seeded()
    layer, x = nn.TransformerEncoderLayer(C, H, 32, batch_first=True).eval(), torch.randn(B, T, C)
    with torch.no_grad():
        maps = tracer.attention_maps(layer, x)
        expected = layer.self_attn(x, x, x, average_attn_weights=False)[1]
    assert list(maps.weights) == ["self_attn"]
    assert torch.allclose(only(maps), expected, atol=1e-6)


# ---------------------------------------------------------------- other ways to write it


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = torch.exp(q @ k.transpose(-2, -1) - 1)
    return (e / e.sum(-1, keepdim=True)) @ v


def flat_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(torch.bmm(q, k.mT).softmax(2), v)


def summed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bhtd,bhsd->bhts", q, k), dim=-1)
    return (weights[..., None] * v[:, :, None]).sum(-2)


def in_half(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(q @ k.mT, dim=-1, dtype=torch.float64).to(q.dtype).contiguous() @ v


@pytest.mark.parametrize("way", [written_out, flat_heads, summed, in_half])
def test_other_ways_to_write_attention(way: Callable[..., Tensor]) -> None:
    seeded()
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, H, S, D), torch.randn(B, H, S, D)
    maps = tracer.attention_maps(way, q, k, v, axes=["B H T D", "B H S D", "B H S D"])
    assert torch.allclose(only(maps), (q @ k.mT).softmax(-1), atol=1e-6)
    assert maps.layers[0].axes == ("B", "H", "T", "S")


def test_weights_are_those_before_dropout() -> None:
    seeded()
    layer, x = Attention(C, H, dropout=0.5), torch.randn(B, T, C)
    for how in HOWS:
        layer.how = how
        maps = tracer.attention_maps(layer.train(), x)
        assert torch.allclose(maps.row_sums["attention"], torch.ones(B, H, T))


def test_what_is_no_attention_is_not_shown() -> None:
    def router(x: Tensor) -> Tensor:
        return F.linear(x, torch.randn(4, C)).softmax(-1) * 2

    with pytest.raises(TracerError, match="No attention was found"):
        tracer.attention_maps(router, torch.randn(B, T, C))
    with pytest.raises(TracerError, match="No attention was found"):
        tracer.attention_maps(nn.Linear(C, 2), torch.randn(B, C))


class SoftEmbedding(nn.Module):
    """Chooses a mixture of the vocabulary's vectors: a softmax and a product, and no attention."""

    axes: ClassVar = {"x": "B T C", "table.weight": "V C"}
    sizes: ClassVar = {"C": C, "V": 11}

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, C)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.table.weight.T).softmax(-1) @ self.table.weight


def test_a_soft_choice_among_the_vocabulary_is_no_attention() -> None:
    with pytest.raises(TracerError, match="No attention was found"):
        tracer.attention_maps(SoftEmbedding(), torch.randn(B, T, C))


# ---------------------------------------------------------------- what tracing must not do


@pytest.mark.parametrize("how", HOWS)
def test_running_changes_nothing_and_holds_nothing(how: Any) -> None:
    seeded()
    layer, x = Attention(C, H, dropout=0.5, how=how), torch.randn(B, T, C)
    seeded(3)
    plain = layer(x)
    state = torch.get_rng_state()
    outputs: list[Any] = []
    layer.register_forward_hook(lambda m, args, out: outputs.append((out.detach().clone(), weakref.ref(out))))
    seeded(3)
    maps = tracer.attention_maps(layer, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(outputs[0][0], plain)
    gc.collect()
    assert outputs[0][1]() is None
    assert not only(maps).requires_grad


def test_weights_that_wait_are_let_go_at_their_product() -> None:
    alive: list[int] = []
    seen: list[weakref.ref[Tensor]] = []

    def many(x: Tensor) -> Tensor:
        for _ in range(4):
            weights = (x @ x.mT).softmax(-1)
            seen.append(weakref.ref(weights.untyped_storage()))
            x = weights @ x
            del weights
            alive.append(sum(s() is not None for s in seen))
        return x

    maps = tracer.attention_maps(many, torch.randn(T, D), axes=["T D"])
    assert len(maps.layers) == 4
    gc.collect()
    assert max(alive) <= 2


# ---------------------------------------------------------------- from a trace


def test_a_trace_that_kept_small_numbers_gives_the_same_maps() -> None:
    seeded()
    layer, x = Attention(C, H).eval(), torch.randn(1, 4, C)
    kept = tracer.attention_maps(tracer.trace(layer, x, keep_values=True))
    assert torch.allclose(only(kept), only(tracer.attention_maps(layer, x)), atol=1e-6)
    assert torch.equal(kept.masked["attention"][0, 0], torch.ones(4, 4, dtype=torch.bool).triu(1))
    with pytest.raises(TracerError, match="Give the model and its inputs"):
        tracer.attention_maps(tracer.trace(layer, x))
    with pytest.raises(TypeError, match="takes no inputs"):
        tracer.attention_maps(tracer.trace(layer, x), x)


# ---------------------------------------------------------------- picking and comparing


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    seeded()
    model = GPT(GPTConfig(n_layer=2, n_head=H, n_embd=C, vocab_size=11, block_size=T)).eval()
    return tracer.attention_maps(model, ids(), tokens=["나는", "사과를", "먹는다", "<script>", ""])


def test_entropy_and_sums(maps: AttentionMaps) -> None:
    name, weights = next(iter(maps.weights.items()))
    row = weights[1, 2, 3, :4]
    expected = -sum(float(w) * math.log2(float(w)) for w in row)
    assert maps.entropy[name][1, 2, 3] == pytest.approx(expected, abs=1e-5)
    assert torch.allclose(maps.row_sums[name], torch.ones(B, H, T))
    assert maps.entropy[name][:, :, 0].abs().max() == 0


def test_layers_and_heads_are_picked(maps: AttentionMaps) -> None:
    one = maps.pick(layers=-1, heads=[2, 0], item=1)
    assert list(one.weights) == ["transformer.h.1.attn"]
    assert torch.equal(only(one)[:, 0], maps.weights["transformer.h.1.attn"][:, 2])
    assert [panel.head for row in one.panels() for panel in row] == [2, 0]
    assert list(maps.pick("transformer.h.0.attn").weights) == ["transformer.h.0.attn"]
    with pytest.raises(ValueError, match=r"There is no layer 7\. The layers, from 0 to 1: transformer\.h\.0\.attn"):
        maps.pick(7)
    with pytest.raises(ValueError, match="has heads 0, 1, 2; 3 is not among them"):
        maps.pick(heads=3)
    with pytest.raises(ValueError, match="item is from 0 to 1; 2 is outside"):
        maps.pick(item=2)


def test_tokens_that_do_not_fit_are_refused() -> None:
    layer, x = Attention(C, H, d_source=C, causal=False), torch.randn(B, T, C)
    source = torch.randn(B, S, C)
    with pytest.raises(ValueError, match=r'has 7 positions along S, and 5 tokens .* tokens=\{"T": .*, "S": '):
        tracer.attention_maps(layer, x, source, tokens=list("abcde"))
    with pytest.raises(ValueError, match="this is one text"):
        tracer.attention_maps(layer, x, source, tokens="abcde")


def test_text_has_all_numbers_and_tells_masked_from_zero(maps: AttentionMaps) -> None:
    text = str(maps.pick(0, 0))
    assert "transformer.h.0.attn, head 0: T x T" in text
    first = next(line for line in text.splitlines() if "나는" in line and "1.00" in line)
    assert first.split() == ["나는", "1.00", "-", "-", "-", "-", "1.00"]
    assert "- : masked" in text


def test_two_models_stand_side_by_side(maps: AttentionMaps) -> None:
    both = maps.beside(maps.pick(heads=[2, 1]), names=("before", "after"))
    name, row = both.pairs()[0]
    assert name == "transformer.h.0.attn"
    assert [[panel.title for panel in pair] for pair in row] == [
        ["before: head 0"], ["before: head 1", "after: head 1"], ["before: head 2", "after: head 2"],
    ]  # fmt: skip
    assert row[1][0].weights == row[1][1].weights
    page = both._repr_html_()
    assert page.count('<div class="st-group">') == 6
    assert str(both).count("after: head 1") == 2
    assert sum(bool(ax.images) for ax in both.figure().axes) == 10
    shorter = maps.beside(maps.pick(0)).pairs()
    assert [len(pair) for pair in shorter[1][1]] == [1, 1, 1]


def test_not_all_heads_of_a_large_model_are_drawn() -> None:
    model = GPT(GPTConfig(n_layer=5, n_head=6, n_embd=C, vocab_size=11, block_size=T))
    many = tracer.attention_maps(model, ids())
    page = many._repr_html_()
    assert page.count("<figure>") == MOST_SHOWN == 24
    assert "The first 24 of 30 heads are shown." in page
    assert many.pick([4])._repr_html_().count("<figure>") == 6
