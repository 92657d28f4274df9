"""Encoder against transformers' BERT."""

import re

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import tracer
from tracer.models import Encoder, mean_of_tokens

SIZES = {"primes": (2, 3, 21, 11, 13), "small": (1, 5, 35, 17, 7), "equal": (4, 4, 16, 16, 16)}
"""L, H, C, V, M"""
all_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def bert(sizes, **choices) -> BertModel:
    L, H, C, V, M = sizes
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=M,
        max_position_embeddings=9, attn_implementation="eager", **choices,
    )  # fmt: skip
    theirs = BertModel(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return theirs


def inputs(V: int, B: int = 2, T: int = 7) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    padding = torch.ones(B, T, dtype=torch.bool)
    padding[0, T - 2 :] = False
    return {
        "idx": torch.randint(V, (B, T), generator=g),
        "padding": padding,
        "segments": torch.randint(2, (B, T), generator=g),
    }


@torch.no_grad()
def gaps(theirs: BertModel, ours: Encoder, V: int) -> tuple[float, float]:
    """Return how far the tokens' vectors and the pooled ones are from BERT's."""
    x = inputs(V)
    want = theirs(input_ids=x["idx"], attention_mask=x["padding"].long(), token_type_ids=x["segments"])
    out = ours(**x)
    apart = (out - want.last_hidden_state)[x["padding"]].abs().max().item()
    return apart, (ours.pooled(out) - want.pooler_output).abs().max().item()


@all_sizes
def test_bert(sizes):
    theirs = bert(sizes)
    ours = Encoder.from_bert(theirs.state_dict(), n_head=sizes[1])
    assert max(gaps(theirs, ours, sizes[3])) <= 1e-5
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_other_choices_are_not_bert():
    sizes = SIZES["primes"]
    for choices in ({"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}):
        theirs = bert(sizes, **choices)
        assert gaps(theirs, Encoder.from_bert(theirs.state_dict(), n_head=3), sizes[3])[0] > 1e-5
    theirs = bert(sizes)
    assert gaps(theirs, Encoder.from_bert(theirs.state_dict(), n_head=7), sizes[3])[0] > 1e-4
    swapped = theirs.state_dict()
    query, key = (f"encoder.layer.0.attention.self.{name}.weight" for name in ("query", "value"))
    swapped[query], swapped[key] = swapped[key], swapped[query]
    assert gaps(theirs, Encoder.from_bert(swapped, n_head=3), sizes[3])[0] > 1e-4


def test_parameters_of_bert_base():
    with torch.device("meta"):
        model = Encoder(
            n_layer=12, n_head=12, n_embd=768, vocab_size=30522, block_size=512, pooler=True
        )  # Devlin et al. 2019: 110 million
    assert sum(p.numel() for p in model.parameters()) == 109482240


def test_other_weights_are_refused():
    state = bert(SIZES["primes"]).state_dict()
    for change in ({"extra.weight": torch.zeros(1)}, {"encoder.layer.1.output.dense.bias": None}):
        wrong = {name: p for name, p in {**state, **change}.items() if p is not None}
        with pytest.raises(ValueError, match=f"not the weights of a BertModel: {re.escape(next(iter(change)))}"):
            Encoder.from_bert(wrong, n_head=3)


def made(sizes=SIZES["primes"], **choices) -> Encoder:
    L, H, C, V, M = sizes
    torch.manual_seed(0)
    choices = {"n_layer": L, "n_head": H, "n_embd": C, "vocab_size": V, "d_mlp": M, "block_size": 9, **choices}
    return Encoder(**choices).eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_changes_nothing_and_all_tokens_see_all(norm):
    model, x = made(norm=norm), inputs(11)
    out = model(**x)
    x["idx"] = x["idx"].clone()
    x["idx"][0, 5:] = (x["idx"][0, 5:] + 1) % 11
    assert torch.allclose(model(**x)[0, :5], out[0, :5], atol=1e-6)
    x["idx"][0, 4] = (x["idx"][0, 4] + 1) % 11
    assert ((model(**x) - out)[0, :5].abs().amax(-1) > 1e-5).all()


def test_mean_of_tokens_leaves_padding_out():
    x = torch.tensor([[[1.0], [3.0], [100.0]], [[5.0], [6.0], [7.0]]])
    padding = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_tokens(x, padding).tolist() == [[2.0], [0.0]]
    assert mean_of_tokens(x[1:]).tolist() == [[6.0]]


@all_sizes
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("pooler", [True, False])
def test_trace_names_every_axis(sizes, norm, pooler):
    model = made(sizes, norm=norm, pooler=pooler, n_segment=2 * pooler)
    x = inputs(sizes[3], *((4, 4) if sizes == SIZES["equal"] else (2, 7)))
    if not pooler:
        del x["segments"]
    t = tracer.trace(model, x.pop("idx"), **x)
    assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
    assert (t.warnings, t.unnamed) == ((), ())
    assert t.find(name="softmax")[0].outputs[0].label == "[B, H, T, T]"
    assert t[-1].outputs[0].label == "[B, T, C]"
    if pooler:
        with tracer.record(axes={"x": "B T C"} | model.axes, sizes=model.sizes) as r:
            x = t.output
            r.name(x, "B T C")
            out = model.pooled(x)
        assert out.shape == (len(x), sizes[2])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"idx": torch.full((2, 7), 11)}, IndexError, "idx[0, 0] is 11, but V=11"),
        ({"idx": torch.zeros(2, 10, dtype=torch.long), "padding": None}, ValueError, "block_size=9"),
        ({"padding": torch.ones(2, 6).bool()}, ValueError, "padding is [2, 6]"),
        ({"padding": torch.ones(2, 7)}, TypeError, "padding holds torch.float32"),
        ({"segments": torch.full((2, 7), 2)}, IndexError, "segments[0, 0] is 2"),
        ({"segments": torch.zeros(2, 6, dtype=torch.long)}, ValueError, "segments is [2, 6]"),
    ],
)
def test_bad_input_gets_one_clear_error(changes, error, words):
    with pytest.raises(error, match=re.escape(words)):
        made()(**{**inputs(11), **changes})


def test_a_pooler_that_is_not_there():
    with pytest.raises(ValueError, match="pooler=True"):
        made().pooled(torch.zeros(2, 7, 21))


def test_segments_for_a_model_without_them():
    model, idx = (
        Encoder(n_layer=1, n_head=3, n_embd=24, vocab_size=11, block_size=9, n_segment=0),
        torch.ones(2, 5).long(),
    )
    with pytest.raises(ValueError, match="segments are given, but the model was built with n_segment=0"):
        model(idx, segments=idx)


def test_padding_that_does_not_fit_the_vectors():
    with pytest.raises(ValueError, match=r"padding is \[1, 2, 5\], but here it has to be \[2, 5\]"):
        mean_of_tokens(torch.ones(2, 5, 7), torch.ones(1, 2, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="padding is a list, but a mask is a tensor"):
        mean_of_tokens(torch.ones(1, 2, 7), [[True, False]])
