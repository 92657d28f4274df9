"""Opened operations: what is told of their inside is what they compute, and telling it changes nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import tracer
from tracer.opened import BOXES, MOST_STEPS, _recurrent

B, T, S, H, G, D = 2, 5, 11, 6, 3, 7
C = H * D


def inside(trace, box):
    """The steps inside the one operation of this name."""
    (op,) = trace.find(name=box)
    return [step for step in trace if step.parent == op.index]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


# ------------------------------------------------------------------ the functions give the kernels' numbers

ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "closed": {"attn_mask": torch.ones(T, S).tril(4).bool()},
    "added": {"attn_mask": torch.linspace(-2, 2, T * S).view(T, S)},
    "by head": {"attn_mask": torch.ones(H, T, S).tril(3).bool()},
    "grouped": {"enable_gqa": True},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_told_as_it_is_computed(name):
    torch.manual_seed(0)
    groups = G if name == "grouped" else H
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, groups, S, D), torch.randn(B, groups, S, D)
    told = BOXES["scaled_dot_product_attention"](q, k, v, **ATTENTION[name])
    close(told, F.scaled_dot_product_attention(q, k, v, **ATTENTION[name]))


@pytest.mark.parametrize("options", [{}, {"kdim": 9, "vdim": 4}, {"bias": False}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_multi_head_attention_is_told_as_it_is_computed(options, masked, average, monkeypatch):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(C, H, **options)
    q, k = torch.randn(T, B, C), torch.randn(S, B, options.get("kdim", C))
    v = torch.randn(S, B, options.get("vdim", C))
    masks = {
        "attn_mask": torch.ones(T, S).triu(6).bool(),
        "key_padding_mask": torch.arange(S) > torch.tensor([[8], [9]]),
    }
    calls = {"average_attn_weights": average, **(masks if masked else {})}
    expected = layer(q, k, v, **calls)
    monkeypatch.setattr(F, "multi_head_attention_forward", BOXES["multi_head_attention_forward"])
    for told, real in zip(layer(q, k, v, **calls), expected, strict=True):
        close(told, real)


MASKS = {
    "by sequence and head": {"attn_mask": torch.arange(S) > torch.arange(B * H * T).view(B * H, T, 1) % S},
    "added": {"attn_mask": torch.linspace(-2, 2, T * S).view(T, S)},
    "padding, added": {"key_padding_mask": torch.zeros(B, S).index_fill(1, torch.tensor([9, 10]), float("-inf"))},
    "causal": {"attn_mask": torch.ones(T, S).triu(1).bool(), "is_causal": True, "need_weights": False},
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_multi_head_attention_are_told_as_they_are_computed(name, monkeypatch):
    torch.manual_seed(0)
    layer, q, k = nn.MultiheadAttention(C, H), torch.randn(T, B, C), torch.randn(S, B, C)
    expected = layer(q, k, k, **MASKS[name])
    monkeypatch.setattr(F, "multi_head_attention_forward", BOXES["multi_head_attention_forward"])
    for told, real in zip(layer(q, k, k, **MASKS[name]), expected, strict=True):
        assert (told is None) == (real is None)
        if told is not None:
            close(told, real)


def test_masks_of_true_and_false_close_what_is_true():
    """The layer makes numbers of such masks before its call: here the function has them as they are."""
    torch.manual_seed(0)
    layer, q, k = nn.MultiheadAttention(C, H), torch.randn(T, B, C), torch.randn(S, B, C)
    parameters = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0)
    args = (q, k, k, C, H, *parameters, layer.out_proj.weight, layer.out_proj.bias)
    masks = {
        "attn_mask": torch.ones(T, S).triu(6).bool(),
        "key_padding_mask": torch.arange(S) > torch.tensor([[8], [9]]),
    }
    told = BOXES["multi_head_attention_forward"](*args, **masks)
    for mine, real in zip(told, F.multi_head_attention_forward(*args, **masks), strict=True):
        close(mine, real)


def test_one_sequence_alone_is_told_as_it_is_computed(monkeypatch):
    torch.manual_seed(0)
    layer, q, k = nn.MultiheadAttention(C, H), torch.randn(T, C), torch.randn(S, C)
    expected = layer(q, k, k)
    monkeypatch.setattr(F, "multi_head_attention_forward", BOXES["multi_head_attention_forward"])
    for told, real in zip(layer(q, k, k), expected, strict=True):
        close(told, real)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm", "rnn_tanh", "rnn_relu"])
def test_the_first_steps_of_a_layer_are_told_as_they_are_computed(name, bias, batch_first):
    torch.manual_seed(0)
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}.get(name, nn.RNN)
    options = {"nonlinearity": name[4:]} if name.startswith("rnn") else {}
    layer = kind(4, 3, bias=bias, batch_first=batch_first, **options)
    x, state = torch.randn(T, B, 4), torch.randn(1, B, 3)
    state = (state, torch.randn(1, B, 3)) if name == "lstm" else state
    if batch_first:
        x = x.transpose(0, 1)
    told = []

    def cell(*args):
        h = BOXES[f"{name}_cell"](*args)
        told.append(h[0] if name == "lstm" else h)
        return h

    _recurrent(name, cell)(x, state, list(layer.parameters()), bias, 1, 0.0, False, False, batch_first)
    real = layer(x, state)[0].unbind(1 if batch_first else 0)
    assert len(told) == MOST_STEPS
    for mine, theirs in zip(told, real[:MOST_STEPS], strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("name", ["gru", "lstm", "rnn_tanh", "rnn_relu"])
def test_a_step_of_a_recurrent_layer_is_told_as_it_is_computed(name):
    torch.manual_seed(0)
    kind = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}.get(name, nn.RNNCell)
    cell = kind(4, 3, **({"nonlinearity": name[4:]} if name.startswith("rnn") else {}))
    x, h = torch.randn(B, 4), torch.randn(B, 3)
    state = (h, torch.randn(B, 3)) if name == "lstm" else h
    told = BOXES[f"{name}_cell"](x, state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    for mine, real in zip(
        told if name == "lstm" else [told], cell(x, state) if name == "lstm" else [cell(x, state)], strict=True
    ):
        close(mine, real)


# ------------------------------------------------------------------ what is shown


def test_attention_opens_into_its_named_steps():
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    axes = ["B H T D", "B H S D", "B H S D"]
    t = tracer.trace(F.scaled_dot_product_attention, q, k, k.clone(), axes=axes, expand=True)
    steps = [(op.name, op.variable, op.outputs[0].label) for op in inside(t, "scaled_dot_product_attention")]
    assert steps == [
        ("transpose", "k", "[B, H, D, S]"),
        ("matmul", "scores", "[B, H, T, S]"),
        ("mul", "scores", "[B, H, T, S]"),
        ("softmax", "weights", "[B, H, T, S]"),
        ("matmul", "out", "[B, H, T, D]"),
    ]
    assert t["weights"].label == "[B, H, T, S]"
    assert t.warnings == ()
    assert {op.memory for op in t if op.parent is not None} == {None}
    assert "inside" in t.to_text()


def test_a_name_that_stands_twice_says_whose_it_is():
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    t = tracer.trace(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), q, k, axes=["B H T D"] * 2, expand=True
    )
    assert t["scores"].axes == ("B", "H", "T", "T")
    assert t["scores"].origins == (None, None, "T of q", "T of k")
    assert t["weights"].origins[2:] == ("T of q", "T of k")
    assert t["causal"].axes == ("T", "T")


def test_variables_of_the_steps_inside_do_not_hide_those_of_the_code():
    def f(q, k):
        scores = q @ k.mT
        out = F.scaled_dot_product_attention(q, k, k)
        return scores, out

    q, k = torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    t = tracer.trace(f, q, k, axes=["B H T D", "B H S D"], expand=True)
    (box,) = t.find(name="scaled_dot_product_attention")
    assert t["out"] == box.outputs[0]
    assert t["scores"] == t[1].outputs[0]
    assert t[1].parent is None
    assert t["k"].label == "[B, H, S, D]"
    assert t["weights"].memory is None


def test_groups_of_keys_are_repeated_for_the_heads():
    q, k = torch.randn(B, H, T, D), torch.randn(B, G, T, D)
    t = tracer.trace(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        q, k, axes=["B H T D", "B G T D"], expand=True,
    )  # fmt: skip
    assert t["key"].label == "[B, H, T, D]"


def test_without_expand_a_box_is_one_operation():
    q = torch.randn(B, H, T, D)
    assert len(tracer.trace(lambda q: F.scaled_dot_product_attention(q, q, q), q, axes=["B H T D"])) == 1


@pytest.mark.parametrize("batch_first", [False, True])
def test_multi_head_attention_opens(batch_first):
    layer = nn.MultiheadAttention(C, H, batch_first=batch_first)
    x = torch.randn(B, T, C) if batch_first else torch.randn(T, B, C)
    axes = ["B T C" if batch_first else "T B C"]
    t = tracer.trace(lambda x: layer(x, x, x), x, axes=axes, sizes={"C": C, "H": H, "D": D}, expand=True)
    names = [op.name for op in inside(t, "multi_head_attention_forward")]
    assert [n for n in names if n in ("linear", "matmul", "softmax")] == [
        *["linear"] * 3,
        "matmul",
        "softmax",
        "matmul",
        "linear",
    ]
    assert t["scores"].axes[2:] == ("T", "T")
    assert t["scores"].origins[2:] == ("T of q", "T of k")
    assert t["joined"].axes[:2] == ("T", "B")
    assert t.warnings == ()


@pytest.mark.parametrize("sizes", [(2, 5, 11, 6, 7), (4, 4, 4, 4, 4)], ids=str)
def test_names_inside_multi_head_attention_do_not_hang_on_sizes(sizes):
    b, n, s, h, d = sizes
    layer = nn.MultiheadAttention(h * d, h, batch_first=True)
    x, memory = torch.randn(b, n, h * d), torch.randn(b, s, h * d)
    t = tracer.trace(
        lambda x, memory: layer(x, memory, memory),
        x, memory, axes=["B T C", "B S C"], sizes={"C": h * d, "H": h}, expand=True,
    )  # fmt: skip
    shown = {name: t[name].label for name in ("w_q", "q", "k", "v", "scores", "heads", "joined", "out")}
    assert shown == {
        **{"w_q": "[C, C]", "q": "[B, H, T, D]", "k": "[B, H, S, D]", "v": "[B, H, S, D]"},
        **{"scores": "[B, H, T, S]", "heads": "[B, H, T, D]", "joined": "[T, B, C]", "out": "[T, B, C]"},
    }
    assert t.warnings == ()


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_layers_of_torch_open_their_attentions(kind):
    layer = kind(C, H, 64, dropout=0.0, batch_first=True)
    x = [torch.randn(B, T, C), torch.randn(B, S, C)][: 2 if kind is nn.TransformerDecoderLayer else 1]
    t = tracer.trace(layer, *x, axes=["B T C", "B S C"][: len(x)], sizes={"C": C, "H": H}, expand=True)
    assert torch.equal(t.output, layer(*x))
    boxes = t.find(name="multi_head_attention_forward")
    assert [op.module for op in boxes] == ["self_attn", "multihead_attn"][: len(x)]
    keys = {"self_attn": "T", "multihead_attn": "S"}
    for box in boxes:
        steps = [op for op in t if op.parent == box.index]
        assert {op.module for op in steps} == {box.module}
        (scores,) = [op.outputs[0] for op in steps if op.name == "matmul" and op.variable == "scores"]
        assert scores.axes == ("B", "H", "T", keys[box.module])


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_a_fast_path_that_is_opened_says_so(kind):
    layer = kind(C, H, 64, batch_first=True).eval()
    x = [torch.randn(B, T, C)] * (2 if kind is nn.TransformerDecoderLayer else 1)
    with torch.no_grad():
        t = tracer.trace(layer, *x, expand=True)
        close(t.output, layer(*x))
    assert any("opened MultiheadAttention" in text for text in t.warnings)
    assert len([op for op in t if op.parent is not None]) > 0


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_layer_opens_by_step_and_says_how_far(kind):
    layer = kind(4, 3, num_layers=2)
    t = tracer.trace(layer, torch.randn(T, B, 4), axes=["T B C"], expand=True)
    steps = inside(t, {nn.GRU: "gru", nn.LSTM: "lstm", nn.RNN: "rnn_tanh"}[kind])
    assert sum(op.name == "linear" for op in steps) == 2 * MOST_STEPS
    assert all(op.outputs[0].axes[0] == "B" for op in steps if op.name == "linear")
    assert f"{MOST_STEPS} of its {T} positions" in t.warnings[0]


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own word on speed
def test_what_cannot_be_opened_stays_one_operation_and_says_so():
    layer = nn.GRU(4, 3)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(T, B, 4), torch.tensor([5, 3]))
    t = tracer.trace(lambda: layer(packed), expand=True)
    assert [op for op in t if op.parent is not None] == []
    assert "gru could not be opened: a packed sequence" in t.warnings
    projected = nn.LSTM(4, 3, proj_size=2)
    assert (
        "lstm could not be opened: a projection of the hidden state"
        in tracer.trace(projected, torch.randn(T, B, 4), expand=True).warnings
    )
    with_bias = nn.MultiheadAttention(C, H, add_bias_kv=True)
    x = torch.randn(T, B, C)
    t = tracer.trace(with_bias, x, x, x, expand=True)
    assert any("could not be opened" in text for text in t.warnings)


# ------------------------------------------------------------------ nothing changes


@pytest.mark.parametrize("grad", [False, True])
def test_numbers_gradients_and_random_state_are_those_of_the_untraced_run(grad):
    layer = nn.MultiheadAttention(C, H, dropout=0.2, batch_first=True).train()
    x = torch.randn(B, T, C, requires_grad=grad)

    def run(call):
        torch.manual_seed(3)
        out = call(x)
        grads = torch.autograd.grad(out.sum(), layer.parameters()) if grad else ()
        return out, *grads, torch.get_rng_state()

    def attend(x):
        q = layer(x, x, x, need_weights=False)[0]
        return F.scaled_dot_product_attention(q, x, x, dropout_p=0.3)

    with torch.set_grad_enabled(grad):
        plain = run(attend)
        traced = run(lambda x: tracer.trace(attend, x, expand=True).output)
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))


KINDS = {
    "MultiheadAttention": (lambda: nn.MultiheadAttention(C, H, batch_first=True), 3),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(C, H, 64, batch_first=True), 1),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(C, H, 64, batch_first=True), 2),
    "GRU": (lambda: nn.GRU(C, 3, num_layers=2, dropout=0.3, batch_first=True), 1),
    "LSTM": (lambda: nn.LSTM(C, 3, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True), 1),
    "RNN": (lambda: nn.RNN(C, 3, batch_first=True), 1),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_without_expand_a_layer_runs_as_it_does_untraced(name, train):
    make, count = KINDS[name]
    layer = make().train(train)
    x = torch.randn(B, T, C)

    def run(call):
        torch.manual_seed(3)
        out = call(*[x] * count)
        first = out[0] if isinstance(out, tuple) else out
        return first, torch.get_rng_state()

    with torch.set_grad_enabled(train):
        plain = run(layer)
        traces = []

        def traced(*inputs):
            traces.append(tracer.trace(layer, *inputs))
            return traces[0].output

        again = run(traced)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert all(op.parent is None for op in traces[0])


def test_modes_of_others_do_not_see_the_steps_inside():
    seen = []

    class Other(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    q = torch.randn(B, H, T, D)
    with Other():
        t = tracer.trace(lambda q: F.scaled_dot_product_attention(q, q, q), q, axes=["B H T D"], expand=True)
        assert len(t) == 6
        q.neg()
    assert seen == [F.scaled_dot_product_attention, torch.Tensor.neg]


def test_an_opened_trace_keeps_its_parents_in_json():
    q = torch.randn(B, H, T, D)
    t = tracer.trace(lambda q: F.scaled_dot_product_attention(q, q, q), q, axes=["B H T D"], expand=True)
    again = tracer.Trace.from_json(t.to_json())
    assert [op.parent for op in again] == [None, 0, 0, 0, 0, 0]
    assert str(again) == str(t)


def test_steps_inside_are_marked_in_html():
    q = torch.randn(B, H, T, D)
    call = lambda q: F.scaled_dot_product_attention(q, q, q)  # noqa: E731
    assert 'class="st-code st-inside"' in tracer.trace(call, q, axes=["B H T D"], expand=True).to_html()
    assert 'class="st-code st-inside"' not in tracer.trace(call, q, axes=["B H T D"]).to_html()
