"""RNNSeq2Seq against torch's GRU, and what its two kinds of attention must do."""

import re

import pytest
import torch
from torch import Tensor, nn

import tracer
from tracer.models import AdditiveAttention, GRUCell, RNNSeq2Seq

KINDS = {
    "fixed": {},
    "fixed, both ways": {"bidirectional": True},
    "previous": {"attention": True},
    "previous, both ways": {"attention": True, "bidirectional": True},
    "current": {"attention": True, "query": "current"},
    "current, both ways": {"attention": True, "query": "current", "bidirectional": True},
}
all_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
SIZES = {"primes": (7, 11, 2, 5, 3), "wide": (13, 5, 3, 2, 7), "equal": (4, 4, 4, 4, 4)}
"""C, V, B, S, T"""
all_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def made(sizes=SIZES["primes"], **kind) -> RNNSeq2Seq:
    torch.manual_seed(0)
    return RNNSeq2Seq(sizes[0], sizes[1], src_vocab_size=sizes[1] + 2, **kind).eval()


def inputs(sizes=SIZES["primes"]) -> tuple[Tensor, Tensor, Tensor]:
    _, V, B, S, T = sizes
    g = torch.Generator().manual_seed(1)
    padding = torch.ones(B, S, dtype=torch.bool)
    padding[0, S // 2 :] = False
    return torch.randint(V, (B, S), generator=g), torch.randint(V, (B, T), generator=g), padding


# ------------------------------------------------------------------ torch's GRU


def torchs(cell: GRUCell) -> nn.GRU:
    gru = nn.GRU(cell.n_input, cell.n_embd, batch_first=True)
    gru.load_state_dict({f"{name}_l0": p for name, p in cell.state_dict().items()})
    return gru


@all_sizes
@torch.no_grad()
def test_encoder_and_decoder_are_torchs_gru(sizes):
    model = made(sizes)
    src, idx, _ = inputs(sizes)
    memory, state, _ = model.encode(src)
    want, last = torchs(model.encoder)(model.src_embedding(src))
    assert (memory - want).abs().max() <= 1e-5
    assert (state - last[0]).abs().max() <= 1e-5
    out, _ = torchs(model.decoder)(model.embedding(idx), last)
    assert (model(src, idx)[0] - model.head(out)).abs().max() <= 1e-5


@all_sizes
@torch.no_grad()
def test_both_directions_with_padding_are_torchs_packed_gru(sizes):
    model = made(sizes, bidirectional=True)
    src, _, padding = inputs(sizes)
    gru = nn.GRU(sizes[0], sizes[0], batch_first=True, bidirectional=True)
    state = {f"{name}_l0": p for name, p in model.encoder.state_dict().items()}
    gru.load_state_dict(state | {f"{n}_l0_reverse": p for n, p in model.backward_encoder.state_dict().items()})
    lengths = padding.sum(1)
    packed = nn.utils.rnn.pack_padded_sequence(
        model.src_embedding(src), lengths, batch_first=True, enforce_sorted=False
    )
    out, last = gru(packed)
    want, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    memory, first, _ = model.encode(src, padding)
    assert (memory - want)[padding].abs().max() <= 1e-5
    assert (first - torch.tanh(model.bridge(torch.cat([last[0], last[1]], -1)))).abs().max() <= 1e-5
    unmasked, _, _ = model.encode(src)
    assert (unmasked - want)[padding].abs().max() > 1e-4  # padding read as tokens


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_gates_in_another_order_are_not_torchs(order):
    cell = GRUCell(7, 7)
    x, state = torch.randn(2, 7), torch.randn(2, 7)
    want = torchs(cell)(x.unsqueeze(1), state.unsqueeze(0))[0][:, 0]
    assert (cell(x, state) - want).abs().max() <= 1e-5
    with torch.no_grad():
        for p in cell.parameters():
            p.copy_(torch.cat([p.chunk(3)[i] for i in order]))
    assert (cell(x, state) - want).abs().max() > 1e-3


def test_the_reset_gate_acts_after_the_product():
    cell = GRUCell(7, 7)
    x, state = torch.randn(2, 7), torch.randn(2, 7)
    x_r, x_z, x_n = nn.functional.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, -1)
    (w_r, w_z, w_n), (b_r, b_z, b_n) = cell.weight_hh.chunk(3), cell.bias_hh.chunk(3)
    reset, keep = torch.sigmoid(x_r + state @ w_r.T + b_r), torch.sigmoid(x_z + state @ w_z.T + b_z)
    after, before = ((reset * (state @ w_n.T + b_n)), (reset * state) @ w_n.T + b_n)
    mixed = [(1 - keep) * torch.tanh(x_n + inner) + keep * state for inner in (after, before)]
    assert (cell(x, state) - mixed[0]).abs().max() <= 1e-5
    assert (cell(x, state) - mixed[1]).abs().max() > 1e-3


# ------------------------------------------------------------------ additive attention


def test_additive_score_is_v_tanh_of_w_on_both():
    torch.manual_seed(0)
    attention = AdditiveAttention(7, 14)
    state, memory, mask = torch.randn(2, 7), torch.randn(2, 5, 14), torch.ones(2, 5, dtype=torch.bool)
    _, weights = attention(state, memory, attention.key(memory), mask)
    joined = torch.cat([state.unsqueeze(1).expand(-1, 5, -1), memory], -1)  # [s; h]
    matrix = torch.cat([attention.query.weight, attention.key.weight], 1)  # [W U]
    scores = torch.tanh(joined @ matrix.T + attention.key.bias) @ attention.score.weight[0]
    assert (weights - scores.softmax(-1)).abs().max() <= 1e-6
    linear = (joined @ matrix.T + attention.key.bias) @ attention.score.weight[0]  # without the tanh
    other = (
        torch.cat([torch.randn(2, 1, 7).expand(-1, 5, -1), memory], -1) @ matrix.T + attention.key.bias
    ) @ attention.score.weight[0]
    assert (linear.softmax(-1) - other.softmax(-1)).abs().max() <= 1e-6  # the state has cancelled
    assert (weights - linear.softmax(-1)).abs().max() > 1e-3
    _, moved = attention(torch.randn(2, 7), memory, attention.key(memory), mask)
    assert (weights - moved).abs().max() > 1e-3


@pytest.mark.parametrize("query", ["previous", "current"])
def test_the_query_is_the_state_that_was_asked_for(query):
    model = made(attention=True, query=query)
    src, idx, padding = inputs()
    weights = model.attention_map(src, idx, src_padding=padding)
    assert weights.shape == (2, 3, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3))
    assert (weights[0, :, 2:] == 0).all()
    first = idx.clone()
    first[:, 0] = (idx[:, 0] + 1) % 11
    moved = (model.attention_map(src, first, src_padding=padding) - weights).abs().amax((0, 2)) > 1e-7
    # s[t-1] has not read token t when it asks; s[t] has.
    assert moved.tolist() == [query == "current", True, True]
    last = idx.clone()
    last[:, 2] = (idx[:, 2] + 1) % 11
    moved = (model.attention_map(src, last, src_padding=padding) - weights).abs().amax((0, 2)) > 1e-7
    assert moved.tolist() == [False, False, query == "current"]


def test_both_queries_change_what_is_predicted_from_a_token_on():
    src, idx, _ = inputs()
    later = idx.clone()
    later[:, 1] = (idx[:, 1] + 1) % 11
    for kind in KINDS.values():
        model = made(**kind)
        moved = (model(src, later)[0] - model(src, idx)[0]).abs().amax((0, 2)) > 1e-7
        assert moved.tolist() == [False, True, True]


def test_one_vector_is_all_that_a_decoder_without_attention_gets():
    model = made()
    src, idx, _ = inputs()
    memory, state, mask = model.encode(src)
    out, _, _ = model.step(model.embedding(idx[:, 0]), state, torch.zeros_like(memory), memory, mask)
    assert torch.allclose(model.head(out), model(src, idx)[0][:, 0], atol=1e-6)
    with pytest.raises(ValueError, match="attention=True"):
        model.attention_map(src, idx)


@all_kinds
def test_padding_changes_nothing(kind):
    model = made(**kind)
    src, idx, padding = inputs()
    logits, _ = model(src, idx, src_padding=padding)
    other = src.clone()
    other[0, 2:] = (src[0, 2:] + 1) % 11
    assert torch.allclose(model(other, idx, src_padding=padding)[0], logits, atol=1e-6)
    assert torch.allclose(model(src[:1, :2], idx[:1])[0], logits[:1], atol=1e-6)


@all_kinds
def test_a_source_of_padding_alone_gives_numbers_and_gradients(kind):
    model = made(**kind)
    src, idx, padding = inputs()
    padding[0] = False
    logits, loss = model(src, idx, idx, src_padding=padding)
    loss.backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    if model.attention is not None:
        assert (model.attention_map(src, idx, src_padding=padding)[0] == 0).all()


@all_kinds
def test_generate_takes_the_likeliest_of_the_full_pass_and_stops(kind):
    model = made(**kind)
    src, _, padding = inputs()
    out = model.generate(src, 6, start=1, src_padding=padding)
    idx = torch.cat([torch.ones(2, 1, dtype=torch.long), out[:, :-1]], dim=1)
    assert torch.equal(out, model(src, idx, src_padding=padding)[0].argmax(-1))
    stop = int(out[0, 1])
    short = model.generate(src, 6, start=1, stop=stop, src_padding=padding)
    first = out[0].tolist().index(stop)
    assert (short[0, first:] == stop).all()
    assert torch.equal(short[0, : first + 1], out[0, : first + 1])


# ------------------------------------------------------------------ trace, errors


@all_kinds
@all_sizes
def test_trace_names_every_axis(kind, sizes):
    model = made(sizes, **kind)
    src, idx, padding = inputs(sizes)
    t = tracer.trace(model, src, idx, idx, src_padding=padding)
    assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
    assert (t.warnings, t.unnamed) == ((), ())
    assert t.find(name="linear", module="head")[0].outputs[0].label == "[B, T, V]"
    if model.attention is not None:
        assert t.find(name="softmax")[0].outputs[0].label == "[B, S]"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"src": torch.full((2, 5), 13)}, IndexError, "src[0, 0] is 13, but V=13"),
        ({"idx": torch.full((2, 3), 11)}, IndexError, "idx[0, 0] is 11, but V=11"),
        ({"src": torch.zeros(2, 5)}, TypeError, "src holds torch.float32"),
        ({"src": torch.zeros(2, 0, dtype=torch.long)}, ValueError, "S=0"),
        ({"src": torch.zeros(3, 5, dtype=torch.long)}, ValueError, "src has 3 rows and idx 2"),
        ({"src_padding": torch.ones(2, 4).bool()}, ValueError, "src_padding is [2, 4]"),
        ({"targets": torch.zeros(2, 4, dtype=torch.long)}, ValueError, "targets is [2, 4]"),
    ],
)
def test_bad_input_gets_one_clear_error(changes, error, words):
    src, idx, _ = inputs()
    with pytest.raises(error, match=re.escape(words)):
        made()(**{"src": src, "idx": idx, **changes})


def test_unknown_query():
    with pytest.raises(ValueError, match="query='next' is not known"):
        RNNSeq2Seq(7, 11, attention=True, query="next")


def test_a_start_that_is_no_token():
    with pytest.raises(IndexError, match="is 99, but V=11"):
        RNNSeq2Seq(7, 11).generate(torch.zeros(2, 3, dtype=torch.long), 3, start=99)


@pytest.mark.parametrize(("n_memory", "axis"), [(7, "C"), (14, "2C"), (10, "n_memory"), (3, "n_memory")])
def test_axes_of_a_memory_of_any_width(n_memory, axis):
    part = AdditiveAttention(7, n_memory)
    assert part.axes["memory"] == f"B S {axis}" and part.axes["key.weight"] == f"C {axis}"
    memory = torch.randn(2, 5, n_memory)
    with torch.no_grad():
        keys = part.key(memory)
    trace = tracer.trace(part, torch.randn(2, 7), memory, keys, torch.ones(2, 5, dtype=torch.bool))
    assert not trace.warnings and not trace.unnamed
    assert trace[-1].outputs[0].label == f"[B, {axis}]"
