"""The Transformer of 2017 against transformers' Marian, torch's nn.Transformer, and the paper's table of parameters."""

import copy
import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

import tracer
from tracer.models import EncoderDecoder

SIZES = {"primes": (2, 3, 21, 11, 13), "small": (1, 5, 20, 17, 7), "equal": (4, 4, 16, 16, 16)}
"""L, H, C, V, M; Marian wants an even C."""
all_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
both_norms = pytest.mark.parametrize("norm", ["pre", "post"])


def made(sizes=SIZES["primes"], **choices) -> EncoderDecoder:
    L, H, C, V, M = sizes
    torch.manual_seed(0)
    choices = {"n_layer": L, "n_head": H, "n_embd": C + C % 2 * H, "vocab_size": V, "d_mlp": M, **choices}
    return shaken(EncoderDecoder(**choices))


def shaken(model: nn.Module) -> nn.Module:
    """Random numbers everywhere, so that no bias of 0 and no norm of 1 can hide a mistake."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model.eval()


def inputs(V: int, B: int = 2, S: int = 7, T: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    padding = torch.ones(B, S, dtype=torch.bool)
    padding[0, S - 2 :] = False
    return torch.randint(V, (B, S), generator=g), torch.randint(V, (B, T), generator=g), padding


# ------------------------------------------------------------------ Marian


OURS = {
    "self_attn.": "attn.", "encoder_attn.": "cross.", "q_proj": "c_q", "k_proj": "c_k", "v_proj": "c_v",
    "out_proj": "c_proj", "self_attn_layer_norm": "ln_1", "encoder_attn_layer_norm": "ln_cross",
    "final_layer_norm": "ln_2", "fc1": "mlp.c_fc", "fc2": "mlp.c_proj",
}  # fmt: skip


def marian(sizes) -> MarianMTModel:
    L, H, C, V, M = sizes
    C += C % 2 * H
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=V, d_model=C, encoder_layers=L, decoder_layers=L, encoder_attention_heads=H,
        decoder_attention_heads=H, encoder_ffn_dim=M, decoder_ffn_dim=M, activation_function="relu",
        scale_embedding=True, max_position_embeddings=32, dropout=0.0, pad_token_id=V - 1, eos_token_id=0,
        decoder_start_token_id=V - 1, attn_implementation="eager",
    )  # fmt: skip
    theirs = shaken(MarianMTModel(config))
    for stack in (theirs.model.encoder, theirs.model.decoder):  # sinusoids are parameters there
        fresh = type(stack.embed_positions)(32, C)
        fresh.weight.data = fresh.create_weight() if hasattr(fresh, "create_weight") else fresh.weight.data
        stack.embed_positions.load_state_dict(fresh.state_dict())
    return theirs


def from_marian(theirs: MarianMTModel, sizes, **choices) -> EncoderDecoder:
    model = made(sizes, positions="halves", attn_bias=True, head_bias=True, **choices)
    state = {"embedding.weight": theirs.model.shared.weight, "src_embedding.weight": theirs.model.shared.weight}
    state |= {"head.weight": theirs.model.shared.weight, "head.bias": theirs.final_logits_bias[0]}
    for name, p in theirs.model.named_parameters():
        found = re.match(r"(encoder|decoder)\.layers\.(\d+)\.(.*)\.(weight|bias)", name)
        if found:
            stack, layer, part, kind = found.groups()
            for their, our in sorted(OURS.items(), key=lambda pair: -len(pair[0])):
                if part.startswith(their):
                    part = our + (OURS[part[len(their) :]] if their.endswith("attn.") else "")
                    break
            state[f"{stack}.{layer}.{part}.{kind}"] = p
    model.load_state_dict(state, strict=True)
    return model


@torch.no_grad()
def marian_gap(theirs: MarianMTModel, ours: EncoderDecoder, V: int) -> float:
    src, idx, padding = inputs(V - 1)
    want = theirs(input_ids=src, attention_mask=padding.long(), decoder_input_ids=idx).logits
    logits, _ = ours(src, idx, src_padding=padding)
    return (logits - want).abs().max().item()


@all_sizes
def test_marian(sizes):
    theirs = marian(sizes)
    assert marian_gap(theirs, from_marian(theirs, sizes), sizes[3]) <= 1e-5


@pytest.mark.parametrize("wrong", [{"norm": "pre", "final_norm": False}, {"activation": "gelu_erf"}])
def test_another_model_is_not_marian(wrong):
    sizes = SIZES["primes"]
    theirs = marian(sizes)
    assert marian_gap(theirs, from_marian(theirs, sizes, **wrong), sizes[3]) > 1e-4


def test_the_papers_order_of_sines_is_not_marians():
    sizes = SIZES["primes"]
    theirs = marian(sizes)
    ours = from_marian(theirs, sizes)
    for part in (ours.positions, ours.src_positions):
        part.layout = "interleaved"
    assert marian_gap(theirs, ours, sizes[3]) > 1e-4


# ------------------------------------------------------------------ torch.nn.Transformer


def from_torch(theirs: nn.Transformer, ours: EncoderDecoder) -> None:
    def attention(part: nn.MultiheadAttention) -> dict[str, Tensor]:
        weights, biases = part.in_proj_weight.chunk(3), part.in_proj_bias.chunk(3)
        maps = zip(("c_q", "c_k", "c_v"), weights, biases, strict=True)
        state = {f"{name}.{kind}": p for name, w, b in maps for kind, p in (("weight", w), ("bias", b))}
        return state | {"c_proj.weight": part.out_proj.weight, "c_proj.bias": part.out_proj.bias}

    for stack, blocks in ((theirs.encoder, ours.encoder), (theirs.decoder, ours.decoder)):
        for layer, block in zip(stack.layers, blocks, strict=True):
            block.attn.load_state_dict(attention(layer.self_attn))
            last = layer.norm2
            if block.cross is not None:
                block.cross.load_state_dict(attention(layer.multihead_attn))
                block.ln_cross.load_state_dict(layer.norm2.state_dict())
                last = layer.norm3
            block.ln_1.load_state_dict(layer.norm1.state_dict())
            block.ln_2.load_state_dict(last.state_dict())
            block.mlp.c_fc.load_state_dict(layer.linear1.state_dict())
            block.mlp.c_proj.load_state_dict(layer.linear2.state_dict())
    ours.ln_encoder.load_state_dict(theirs.encoder.norm.state_dict())
    ours.ln_decoder.load_state_dict(theirs.decoder.norm.state_dict())


@torch.no_grad()
def torch_gap(sizes, norm: str, ours_norm: str) -> float:
    L, H, C, V, M = sizes
    ours = made(sizes, norm=ours_norm, final_norm=True, attn_bias=True)
    C = ours.n_embd
    first = {"batch_first": True, "norm_first": norm == "pre", "dropout": 0.0, "activation": "relu"}
    layer = nn.TransformerEncoderLayer(C, H, M, **first)
    encoder = nn.TransformerEncoder(layer, L, nn.LayerNorm(C), enable_nested_tensor=False)  # nested ones warn
    theirs = shaken(nn.Transformer(C, H, L, L, M, custom_encoder=encoder, **first))
    from_torch(theirs, ours)
    src, idx, padding = inputs(V)
    seen = {}
    hooks = [
        ours.drop.register_forward_hook(lambda *call: seen.setdefault("src" if "src" not in seen else "tgt", call[2])),
        ours.ln_decoder.register_forward_hook(lambda *call: seen.__setitem__("out", call[2])),
    ]
    ours(src, idx, src_padding=padding)
    for hook in hooks:
        hook.remove()
    mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1]).isinf()
    drop = {"src_key_padding_mask": ~padding, "memory_key_padding_mask": ~padding, "tgt_mask": mask}
    want = theirs.train()(seen["src"], seen["tgt"], **drop)  # train: without the fast path; there is no dropout
    return (seen["out"] - want).abs().max().item()


@all_sizes
@both_norms
def test_torch_transformer(sizes, norm):
    assert torch_gap(sizes, norm, norm) <= 1e-5


@both_norms
def test_the_other_order_of_norms_is_not_torchs(norm):
    assert torch_gap(SIZES["primes"], norm, "pre" if norm == "post" else "post") > 1e-4


# ------------------------------------------------------------------ the paper's table 3


BASE = {"n_layer": 6, "n_head": 8, "n_embd": 512, "d_mlp": 2048, "vocab_size": 37000}
COUNTS = json.loads((Path(__file__).parents[1] / "data" / "parameter_counts.json").read_text())
ROWS = {
    "base": ({}, 65),
    "dk16": ({"d_head": 16, "d_value": 64}, 58),
    "dk32": ({"d_head": 32, "d_value": 64}, 60),
    "N2": ({"n_layer": 2}, 36),
    "ff1024": ({"d_mlp": 1024}, 53),
}
"""changes to the base model, and the paper's count in millions"""


def count(changes) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in EncoderDecoder(**{**BASE, **changes}).parameters())


@pytest.mark.parametrize("row", ROWS)
def test_parameters_of_the_papers_table(row):
    """Its vocabulary is 'about 37,000', so totals are near; what one row has less than another does not need it."""
    changes, millions = ROWS[row]
    assert count(changes) == COUNTS[f"vaswani {row}"]
    assert abs(count(changes) / 1e6 - millions) < 3
    assert abs((count({}) - count(changes)) / 1e6 - (65 - millions)) <= 1


def test_biases_in_attention_are_not_in_the_papers_count():
    assert count({"attn_bias": True}) - count({}) == 18 * 4 * 512


# ------------------------------------------------------------------ behaviour


def test_padding_and_future_change_nothing():
    model = made()
    src, idx, padding = inputs(11)
    logits, _ = model(src, idx, src_padding=padding)
    other = src.clone()
    other[0, 5:] = (src[0, 5:] + 1) % 11
    assert torch.allclose(model(other, idx, src_padding=padding)[0], logits, atol=1e-6)
    assert not torch.allclose(model(other, idx)[0], model(src, idx)[0], atol=1e-4)
    later = idx.clone()
    later[:, 3:] = (idx[:, 3:] + 1) % 11
    changed = model(src, later, src_padding=padding)[0]
    assert torch.allclose(changed[:, :3], logits[:, :3], atol=1e-6)
    assert not torch.allclose(changed[:, 3:], logits[:, 3:], atol=1e-4)


def test_a_source_of_padding_alone_gives_numbers_and_gradients():
    model = made()
    src, idx, padding = inputs(11)
    padding[0] = False
    logits, loss = model(src, idx, idx, src_padding=padding)
    loss.backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_generate_takes_the_likeliest_of_the_full_pass_and_stops():
    model = made()
    src, _, padding = inputs(11)
    out = model.generate(src, 6, start=1, src_padding=padding)
    idx = torch.cat([torch.ones(2, 1, dtype=torch.long), out[:, :-1]], dim=1)
    assert torch.equal(out, model(src, idx, src_padding=padding)[0].argmax(-1))
    stop = int(out[0, 1])
    short = model.generate(src, 6, start=1, stop=stop, src_padding=padding)
    first = out[0].tolist().index(stop)
    assert (short[0, first:] == stop).all()


@both_norms
@pytest.mark.parametrize("sizes", [SIZES["primes"], (2, 4, 32, 4, 16)], ids=["primes", "equal"])
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"positions": "halves", "attn_bias": True, "d_head": 3, "d_value": 5},
        {"positions": "learned", "block_size": 9, "src_vocab_size": 13, "tie_weights": False, "head_bias": True},
    ],
    ids=["paper", "marian", "annalog"],
)
def test_trace_names_every_axis(norm, sizes, choices):
    model = made(sizes, norm=norm, **choices)
    B, S, T = (2, 7, 5) if sizes == SIZES["primes"] else (4, 4, 4)
    src, idx, padding = inputs(sizes[3], B, S, T)
    t = tracer.trace(model, src, idx, idx, src_padding=padding)
    assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
    assert (t.warnings, t.unnamed) == ((), ())
    cross = t.find(name="softmax", module="decoder.0.cross")[0].outputs[0]
    assert cross.label == "[B, H, T, S]"
    assert t.output[0].shape == (B, T, sizes[3])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"src": torch.full((2, 7), 11)}, IndexError, "src[0, 0] is 11, but V=11"),
        ({"idx": torch.full((2, 5), -1)}, IndexError, "idx[0, 0] is -1"),
        ({"src": torch.zeros(2, 7)}, TypeError, "src holds torch.float32"),
        ({"src": torch.zeros(7, dtype=torch.long)}, ValueError, "without a batch axis"),
        ({"src": torch.zeros(2, 10, dtype=torch.long)}, ValueError, "T=10 positions, but block_size=9"),
        ({"src_padding": torch.ones(2, 6).bool()}, ValueError, "src_padding is [2, 6]"),
        ({"src_padding": torch.ones(2, 7)}, TypeError, "src_padding holds torch.float32"),
        ({"src": torch.zeros(3, 7, dtype=torch.long)}, ValueError, "src has 3 rows and idx 2"),
    ],
)
def test_bad_input_gets_one_clear_error(changes, error, words):
    model = made(positions="learned", block_size=9)
    src, idx, _ = inputs(11)
    with pytest.raises(error, match=re.escape(words)):
        model(**{"src": src, "idx": idx, **changes})


def test_learned_positions_need_a_block_size():
    with pytest.raises(ValueError, match="Give block_size"):
        EncoderDecoder(n_layer=1, n_head=1, n_embd=4, vocab_size=5, positions="learned")


def test_a_copy_is_tied_as_well():
    model = copy.deepcopy(made())
    assert model.head.weight is model.embedding.weight is model.src_embedding.weight


def test_generate_leaves_dropout_out_and_the_mode_as_it_was():
    torch.manual_seed(0)
    model = EncoderDecoder(n_layer=1, n_head=3, n_embd=24, vocab_size=11, dropout=0.9).train()
    src = torch.randint(11, (4, 5))
    drawn = [model.generate(src, 6, start=1) for _ in range(3)]
    assert model.training and all(torch.equal(drawn[0], other) for other in drawn)
    assert torch.equal(drawn[0], model.eval().generate(src, 6, start=1))


def test_decode_looks_at_its_ids():
    model = EncoderDecoder(n_layer=1, n_head=3, n_embd=24, vocab_size=11)
    with pytest.raises(IndexError, match="is 11, but V=11"):
        model.decode(torch.full((2, 3), 11), torch.zeros(2, 5, 24))
