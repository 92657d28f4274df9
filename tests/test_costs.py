"""Costs against torch's own counters where they count, and against arithmetic by hand where they give 0."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from handmade import gpt
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import tracer
from tracer import Trace
from tracer.costs import bytes_of, rule
from tracer.models import GPT, GPTConfig
from tracer.render.costs import CostTable, short

B, T, S, H, D = 2, 5, 6, 3, 7


def counted(f: Callable[..., Any], *inputs: Any) -> int:
    """Return what torch counts."""
    with FlopCounterMode(display=False) as mode:
        f(*inputs)
    return int(mode.get_total_flops())


def random(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape) for shape in shapes]


# ---------------------------------------------------------------- FLOPs, where torch counts

PRODUCTS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(5, 3), (3, 7)]),
    "bmm": (torch.bmm, [(2, 5, 3), (2, 3, 7)]),
    "matmul": (torch.matmul, [(2, 3, 5, 7), (2, 3, 7, 6)]),
    "matmul, broadcast": (torch.matmul, [(2, 1, 5, 7), (3, 7, 6)]),
    "vector @ matrices": (torch.matmul, [(3,), (4, 3, 2)]),
    "scores": (lambda q, k: q @ k.transpose(-2, -1) / 7, [(2, 3, 5, 7), (2, 3, 6, 7)]),
    "__rmatmul__": (lambda a, b: b.__rmatmul__(a), [(5, 3), (3, 7)]),
    "addmm": (torch.addmm, [(7,), (5, 3), (3, 7)]),
    "baddbmm": (torch.baddbmm, [(2, 5, 7), (2, 5, 3), (2, 3, 7)]),
    "linear": (F.linear, [(2, 5, 3), (7, 3), (7,)]),
    "linear without bias": (F.linear, [(2, 5, 3), (7, 3)]),
    "inner": (torch.inner, [(2, 3), (5, 3)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [(2, 3, 4), (3, 4, 5)]),
    "tensordot over one": (lambda a, b: torch.tensordot(a, b, dims=([1], [0])), [(2, 3), (3, 5)]),
    "tensordot, crossed": (lambda a, b: torch.tensordot(a, b, dims=([0, 2], [1, 0])), [(2, 3, 4), (4, 2, 5)]),
    "multi_dot": (lambda *x: torch.linalg.multi_dot(x), [(9, 4), (4, 3), (3, 8), (8, 2)]),
    "multi_dot of vectors": (lambda *x: torch.linalg.multi_dot(x), [(4,), (4, 3), (3, 5), (5,)]),
    "matrix_power 2": (lambda x: torch.matrix_power(x, 2), [(4, 4)]),
    "matrix_power 3": (lambda x: torch.matrix_power(x, 3), [(4, 4)]),
    "matrix_power 6": (lambda x: torch.matrix_power(x, 6), [(2, 4, 4)]),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), [(2, 4, 9), (6, 4, 3)]),
    "conv1d, same": (lambda x, w: F.conv1d(x, w, padding="same"), [(2, 4, 9), (6, 4, 3)]),
    "conv1d by groups": (lambda x, w: F.conv1d(x, w, groups=2), [(2, 4, 9), (6, 2, 3)]),
    "conv1d of each channel": (lambda x, w: F.conv1d(x, w, groups=4, dilation=2), [(2, 4, 9), (4, 1, 3)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2), [(2, 4, 9, 8), (6, 4, 3, 2), (6,)]),
    "conv2d of one image": (F.conv2d, [(4, 9, 8), (6, 4, 3, 2)]),
    "conv3d": (F.conv3d, [(2, 4, 5, 6, 7), (6, 4, 3, 2, 1)]),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2), [(2, 4, 5), (4, 3, 3)]),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), [(2, 4, 5, 6), (4, 3, 3, 3)]),
    "conv_transpose3d": (F.conv_transpose3d, [(1, 2, 3, 4, 5), (2, 3, 2, 2, 2)]),
    "attention, other value size": (F.scaled_dot_product_attention, [(B, H, T, D), (B, H, S, D), (B, H, S, 4)]),
    "nn.MultiheadAttention": (nn.MultiheadAttention(8, 2, batch_first=True), [(2, 5, 8), (2, 6, 8), (2, 6, 8)]),
    "nn.MultiheadAttention, time first": (nn.MultiheadAttention(8, 2), [(5, 2, 8)] * 3),
    "nn.MultiheadAttention, no batch": (nn.MultiheadAttention(8, 2), [(5, 8), (6, 8), (6, 8)]),
    "nn.MultiheadAttention, all options": (
        nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        [(2, 5, 8), (2, 7, 6), (2, 7, 4)],
    ),
    "nn.LSTM as torch spells it out": (nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), [(5, 2, 3)]),
}
for equation, *shapes in (
    ("bhid,bhjd->bhij", (B, H, T, D), (B, H, S, D)),
    ("b h i d, b h j d -> b h i j", (B, H, T, D), (B, H, S, D)),
    ("ij,jk", (2, 3), (3, 5)),
    ("ij,jk->k", (2, 3), (3, 5)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ii,ij->j", (3, 3), (3, 3)),
    ("bij,bjk->bik", (1, 2, 3), (4, 3, 3)),
    ("...id,...jd->...ij", (B, H, T, D), (B, H, S, D)),
    ("...id,jd->...ij", (B, H, T, D), (S, D)),
    ("btc,chd->bthd", (B, T, 21), (21, H, D)),
    ("ij,jk,kl->il", (2, 3), (3, 5), (5, 7)),
    ("bij,bjk,bk->bi", (B, 2, 3), (B, 3, 5), (B, 5)),
):
    PRODUCTS[f"einsum {equation}"] = (lambda *x, e=equation: torch.einsum(e, *x)), shapes


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", PRODUCTS)
def test_flops_equal_torchs_count(name: str) -> None:
    f, shapes = PRODUCTS[name]
    inputs = random(*shapes)
    expected = counted(f, *inputs)
    assert expected > 0
    assert tracer.trace(f, *inputs).flops == expected


class ConvNet(nn.Module):
    """Two residual blocks, as in ResNet, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2, bias=False)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x).relu(), 2)
        for i in (0, 2):
            y = F.relu(self.norms[i](self.convs[i](x)))
            x = F.relu(x + self.norms[i + 1](self.convs[i + 1](y)))
        return self.head(x.mean((2, 3)))


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    small = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "vocab_size": 50}
    eager = {"attn_implementation": "eager", "intermediate_size": 48}
    ids = torch.arange(22).view(2, 11)
    return {
        "GPT": (GPT(GPTConfig(n_layer=2, n_head=3, n_embd=21, vocab_size=50, block_size=11)), ids),
        "GPT2LMHeadModel": (
            GPT2LMHeadModel(
                GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=50, attn_implementation="eager", use_cache=False)
            ),
            ids,
        ),
        "BertModel": (BertModel(BertConfig(**small, **eager)), ids),
        "LlamaForCausalLM": (LlamaForCausalLM(LlamaConfig(**small, **eager, num_key_value_heads=2)), ids),
        "ConvNet": (ConvNet(), torch.randn(2, 3, 17, 19)),
    }


@pytest.mark.parametrize("name", models())
def test_flops_of_whole_models_equal_torchs_count(name: str) -> None:
    torch.manual_seed(0)
    model, x = models()[name]
    model.eval()
    t = tracer.trace(model, x)
    assert t.flops == counted(model, x) > 0
    for by in ("operation", "module", "line"):
        assert sum(cost.flops for cost in t.costs(by).rows) == t.flops


# ---------------------------------------------------------------- FLOPs, where torch gives 0

BY_HAND: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "attention": (F.scaled_dot_product_attention, [(B, H, T, D), (B, H, S, D), (B, H, S, D)],
                  2 * B * H * T * S * D + 2 * B * H * T * S * D),  # q @ k.T, weights @ v
    "attention, causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [(B, H, T, D)],
                          4 * B * H * T * T * D),  # both halves of the scores
    "attention, grouped": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
                           [(B, 6, T, D), (B, 3, S, D)], 4 * B * 6 * T * S * D),  # all 6 query heads
    "attention by name": (lambda k, q: F.scaled_dot_product_attention(key=k, query=q, value=k),
                          [(B, H, S, D), (B, H, T, D)], 4 * B * H * T * S * D),
    "outer": (torch.outer, [(3,), (4,)], 2 * 3 * 4 * 1),
    "einsum as outer": (lambda a, b: torch.einsum("i,j->ij", a, b), [(3,), (4,)], 2 * 3 * 4 * 1),
    "einsum entry by entry": (lambda a, b: torch.einsum("ij,ij->ij", a, b), [(3, 4), (3, 4)], 0),
    "einsum of one": (lambda a: torch.einsum("ij->j", a), [(3, 4)], 0),
    "bilinear": (F.bilinear, [(2, 3), (2, 4), (5, 3, 4)], 2 * 2 * 5 * 3 * 4 + 2 * 2 * 5 * 4),  # x1 W, then with x2
    "mv": (torch.mv, [(3, 4), (4,)], 2 * 3 * 4),
    "matrices @ vector": (torch.matmul, [(2, 3, 4), (4,)], 2 * 2 * 3 * 4),
    "dot": (torch.dot, [(4,), (4,)], 2 * 4),
    "vecdot": (torch.linalg.vecdot, [(3, 4), (3, 4)], 2 * 3 * 4),
    "experts": (  # rows 0-1 to the first expert, rows 2-3 to the second
        lambda x, w: torch._grouped_mm(x.bfloat16(), w.bfloat16(), torch.tensor([2, 4], dtype=torch.int32)),
        [(4, 16), (2, 16, 8)], 2 * 4 * 16 * 8),
    "addmv": (torch.addmv, [(3,), (3, 4), (4,)], 2 * 3 * 4),
    "addmm in place": (lambda c, a, b: c.addmm_(a, b), [(5, 7), (5, 3), (3, 7)], 2 * 5 * 3 * 7),
    "addr": (torch.addr, [(3, 4), (3,), (4,)], 2 * 3 * 4 * 1),
    "addbmm": (torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 2 * 2 * 3 * 4 * 5),
    # input and recurrent matrix of each gate, for each of T·B positions; the second layer takes the first's output
    "nn.LSTM": (nn.LSTM(3, 4, 2), [(T, B, 3)], 2 * T * B * (4 * 4 * 3 + 4 * 4 * 4 + 4 * 4 * 4 + 4 * 4 * 4)),
    "nn.GRU": (nn.GRU(3, 4, batch_first=True), [(B, T, 3)], 2 * T * B * (3 * 4 * 3 + 3 * 4 * 4)),
    "nn.GRU, both ways": (nn.GRU(3, 4, bidirectional=True), [(T, B, 3)], 2 * 2 * T * B * (3 * 4 * 3 + 3 * 4 * 4)),
    "nn.RNN": (nn.RNN(3, 4), [(T, B, 3)], 2 * T * B * (4 * 3 + 4 * 4)),
    "relu": (torch.relu, [(3, 4)], 0),
    "softmax": (lambda x: x.softmax(-1), [(3, 4)], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_flops_by_hand_where_torch_gives_none(name: str) -> None:
    f, shapes, expected = BY_HAND[name]
    inputs = random(*shapes)
    assert counted(f, *inputs) in (0, expected)  # torch spells nn.GRU and nn.RNN out on this machine, and counts them
    assert tracer.trace(f, *inputs).flops == expected


def test_a_packed_sequence_costs_its_own_steps() -> None:
    x, lengths = torch.randn(T, B, 3), torch.tensor([5, 3])
    layer = nn.GRU(3, 4)
    t = tracer.trace(lambda x: layer(nn.utils.rnn.pack_padded_sequence(x, lengths)), x)
    assert t.flops == 2 * (5 + 3) * (3 * 4 * 3 + 3 * 4 * 4)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_one_step_of_a_recurrent_cell(name: str) -> None:
    gates = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}[name]
    t = tracer.trace(getattr(nn, name)(3, 5), torch.randn(B, 3))
    assert t.flops == 2 * B * (gates * 5 * 3 + gates * 5 * 5)


@pytest.mark.parametrize("time_first", [False, True])
@torch.no_grad()
def test_the_fast_path_of_an_encoder(time_first: bool) -> None:
    C, M = 8, 16
    layer = nn.TransformerEncoderLayer(C, 2, M, batch_first=not time_first).eval()
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    x = torch.randn((T, B, C) if time_first else (B, T, C))
    t = tracer.trace(model, x)
    one = 2 * B * T * C * 3 * C + 4 * B * T * T * C + 2 * B * T * C * C + 2 * 2 * B * T * C * M
    assert t.flops == 3 * one  # q, k, v; both products; out; up and down
    assert t.bytes_read == 4 * (x.numel() + sum(p.numel() for p in model.parameters()))


def test_a_compiled_module_reads_its_parameters_and_tells_no_flops() -> None:
    layer = torch.compile(nn.Linear(3, 4), backend="eager")
    (op,) = tracer.trace(layer, torch.randn(2, 3))
    assert (op.flops, op.bytes_read) == (0, 4 * (2 * 3 + 4 * 3 + 4))


def test_an_einops_pattern_in_words() -> None:
    einops = pytest.importorskip("einops")
    q, k = random((B, H, T, D), (B, H, S, D))
    t = tracer.trace(lambda q, k: einops.einsum(q, k, "b head i d, b head j d -> b head i j"), q, k)
    assert t.flops == 2 * B * H * T * S * D


def test_flops_need_no_data() -> None:
    q = torch.empty(1, 96, 2048, 128, device="meta")
    assert tracer.trace(lambda q: q @ q.mT, q).flops == 2 * 96 * 2048 * 2048 * 128


def test_a_call_that_failed_costs_no_flops() -> None:
    with pytest.raises(RuntimeError) as caught:
        tracer.trace(torch.matmul, *random((2, 3), (2, 3)))
    found: Trace = caught.value.trace  # type: ignore[attr-defined]
    assert found.failed is not None
    assert (found.failed.flops, found.flops, found.peak.bytes) == (0, 0, 0)


def test_two_rules_for_one_operation_raise() -> None:
    with pytest.raises(ValueError, match="two rules count matmul"):
        rule("matmul")(lambda p: 0)


# ---------------------------------------------------------------- bytes


def moved(f: Callable[..., Any], *inputs: Tensor, op: int = -1) -> tuple[int, int, int]:
    """Return the bytes that an operation read, wrote, and took anew."""
    found = tracer.trace(f, *inputs)[op]
    return found.bytes_read, found.bytes_written, found.bytes_new


X, Y = torch.zeros(4, 5), torch.zeros(5)  # 80 bytes, 20 bytes
IDS = torch.tensor([1, 2])  # 16 bytes
BYTES: dict[str, tuple[Callable[..., Any], list[Tensor], tuple[int, int, int]]] = {
    "add": (lambda x: x + 1, [X], (80, 80, 80)),
    "broadcast": (lambda x, y: x + y, [X, Y], (80 + 20, 80, 80)),
    "twice the same": (lambda x: x * x, [X], (80, 80, 80)),
    "with its own transpose": (lambda x: x @ x.T, [X], (80, 64, 64)),
    "half precision": (lambda x: x + 1, [X.half()], (40, 40, 40)),
    "to another type": (lambda x: x.double(), [X], (80, 160, 160)),
    "comparison": (lambda x: x > 0, [X], (80, 20, 20)),
    "view": (lambda x: x.view(20), [X], (0, 0, 0)),
    "transpose": (lambda x: x.T, [X], (0, 0, 0)),
    "slice": (lambda x: x[1:], [X], (0, 0, 0)),
    "expand": (lambda y: y.expand(4, 5), [Y], (0, 0, 0)),
    "reshape without a copy": (lambda x: x.reshape(20), [X], (0, 0, 0)),
    "reshape with a copy": (lambda x: x.T.reshape(20), [X], (80, 80, 80)),
    "contiguous of a transpose": (lambda x: x.T.contiguous(), [X], (80, 80, 80)),
    "contiguous already": (lambda x: x.contiguous(), [X], (0, 0, 0)),
    "dropout in eval": (lambda x: F.dropout(x, training=False), [X], (0, 0, 0)),
    "expanded operand": (lambda x, y: x + y.expand(4, 5), [X, Y], (80 + 20, 80, 80)),
    "expanded, written out": (lambda y: y.expand(4, 5).contiguous(), [Y], (20, 80, 80)),
    "overlapping windows": (lambda y: y.unfold(0, 3, 1) * 1, [Y], (20, 36, 36)),
    "in place": (lambda x: x.add_(1), [X.clone()], (80, 80, 0)),
    "in place from another": (lambda x, y: x.add_(y), [X.clone(), Y], (100, 80, 0)),
    "into a given tensor": (lambda x, y: torch.add(x, 1, out=y), [X, X.clone()], (160, 80, 0)),
    "fill": (lambda x: x.fill_(1), [X.clone()], (0, 80, 0)),
    "copy": (lambda x, y: x.copy_(y), [X.clone(), Y], (20, 80, 0)),
    "assign a column": (lambda x: x.__setitem__((slice(None), 1), 0.0), [X.clone()], (0, 16, 0)),
    "assign rows": (lambda x, y: x.__setitem__(slice(0, 2), y), [X.clone(), Y], (20, 40, 0)),
    "assign chosen rows": (lambda x, i: x.__setitem__(i, 1.0), [X.clone(), IDS], (16, 40, 0)),
    "assign by a mask": (lambda x, m: x.__setitem__(m, 1.0), [X.clone(), X > 0], (20, 80, 0)),
    "assign behind an ellipsis": (lambda x: x.__setitem__((..., None, 1), 0.0), [X.clone()], (0, 16, 0)),
    "index_copy": (lambda x, i, y: x.index_copy_(0, i, y), [X.clone(), IDS, torch.ones(2, 5)], (56, 40, 0)),
    "index_add": (lambda x, i, y: x.index_add_(0, i, y), [X.clone(), IDS, torch.ones(2, 5)], (96, 40, 0)),
    "embedding": (F.embedding, [IDS, torch.zeros(1000, 5)], (16 + 40, 40, 40)),
    "rows by ids": (lambda w, i: w[i], [torch.zeros(1000, 5), IDS], (16 + 40, 40, 40)),
    "index_select": (lambda w, i: w.index_select(0, i), [torch.zeros(1000, 5), IDS], (16 + 40, 40, 40)),
    "factory": (lambda: torch.zeros(4, 5), [], (0, 80, 80)),
    "empty": (lambda: torch.empty(4, 5), [], (0, 0, 80)),
    "item": (lambda y: y[0].item(), [Y], (4, 0, 0)),
    "max with places": (lambda x: x.max(-1), [X], (80, 16 + 32, 16 + 32)),
    "split": (lambda x: x.split(2), [X], (0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_bytes_by_hand(name: str) -> None:
    f, inputs, expected = BYTES[name]
    assert moved(f, *(x.clone() for x in inputs)) == expected


def test_stride_zero_is_one_entry_of_memory() -> None:
    infos = tracer.trace(lambda y: (y.expand(4, 5), y[:0], y.sum(), y.flip(0)), Y)
    assert [bytes_of(out) for op in infos for out in op.outputs] == [20, 0, 4, 20]


def test_totals_are_sums() -> None:
    t = tracer.trace(lambda x, y: (x + y).T.contiguous(), X, Y)
    assert (t.bytes_read, t.bytes_written, t.bytes_new) == (100 + 80, 80 + 80, 80 + 80)


# ---------------------------------------------------------------- the peak


def chain(x: Tensor) -> Tensor:
    x = x * 2
    x = torch.cat([x, x], -1)
    x = x.relu()
    return x.sum(-1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.transpose(-2, -1)
    s = s.softmax(-1)
    s = F.gelu(s)
    return s @ v


def in_place(x: Tensor) -> Tensor:
    x = x * 2
    x += 1
    x.relu_()
    return x


def both(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    y = x * 2
    z = y.relu()
    return z, [y]


def through_a_view(x: Tensor) -> Tensor:
    y = (x * 2).view(-1)[1:]
    x = x.exp()
    x = x.exp()
    return y.sum() + x.sum()


PEAKS: dict[str, tuple[Callable[..., Any], list[Tensor], int]] = {
    "chain": (chain, [torch.zeros(10, 100)], 8000 + 8000),  # what relu reads and what it makes
    "attention": (attention, random((2, 3, 50, 8), (2, 3, 50, 8), (2, 3, 50, 8)), 2 * 4 * 2 * 3 * 50 * 50),
    "in place": (in_place, [torch.zeros(10, 100)], 4000),
    "both returned": (both, [torch.zeros(10, 100)], 4000 + 4000),
    "a view keeps its memory": (through_a_view, [torch.zeros(10, 100)], 4000 + 4000 + 4000),
    "nothing made": (lambda x: x.view(-1), [torch.zeros(10, 100)], 0),
}


@pytest.mark.parametrize("name", PEAKS)
def test_peak_by_hand(name: str) -> None:
    f, inputs, expected = PEAKS[name]
    with torch.no_grad():
        assert tracer.trace(f, *inputs).peak.bytes == expected


def allocated(f: Callable[..., Any], *inputs: Tensor) -> int:
    """Return the peak of what torch allocated meanwhile, from its own profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        f(*inputs)
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = best = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        best = max(best, now)
    return best


@pytest.mark.parametrize("name", PEAKS)
def test_peak_is_what_torch_allocates_where_variables_let_go_at_once(name: str) -> None:
    f, inputs, expected = PEAKS[name]
    with torch.no_grad():
        assert 0 <= allocated(f, *inputs) - expected <= 64  # numbers such as the 2 of `x * 2` become tensors inside


@torch.no_grad()
def test_peak_of_a_model_is_at_most_what_torch_allocates() -> None:
    model, idx = GPT(GPTConfig(n_layer=3, n_head=4, n_embd=64, vocab_size=100, block_size=16)).eval(), torch.ones(2, 16)
    t = tracer.trace(model, idx.long())
    assert 0.5 * allocated(model, idx.long()) < t.peak.bytes <= allocated(model, idx.long())
    assert t.peak.op is not None
    assert t.peak.op.name == "gelu"  # [B, T, M] twice beside the residual stream


def test_what_is_not_returned_goes_and_what_a_block_makes_stays() -> None:
    x = torch.zeros(10, 100)

    def dropped(x: Tensor) -> Tensor:
        x.exp()  # nobody reads it
        return x * 2

    assert tracer.trace(dropped, x).peak.bytes == 4000
    with tracer.record() as t:
        dropped(x)
    assert t.peak.bytes == 8000


class Cache:
    """A result with its tensors in attributes, as in transformers."""

    def __init__(self, k: Tensor) -> None:
        self.layers = [{"k": k}]
        self.owner = self


class Lazy:
    """A result whose attributes are made when asked for: tracing must not ask."""

    __slots__ = ("y",)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_looking_for_tensors_in_a_result_runs_no_code_of_it() -> None:
    def f(x: Tensor) -> Any:
        return Lazy(), [torch, x * 2, {"a": (x + 1,)}]

    t = tracer.trace(f, torch.zeros(10, 100))
    assert (t.peak.bytes, t.warnings) == (2 * 4000, ())


def test_a_returned_cache_stays_to_the_end() -> None:
    def f(x: Tensor) -> tuple[Tensor, Cache]:
        k = x * 2
        y = k + 1
        y = y + 1
        return y, Cache(k)

    assert tracer.trace(f, torch.zeros(10, 100)).peak.bytes == 3 * 4000


# ---------------------------------------------------------------- sums and tables


def trace_of_gpt() -> Trace:
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=3, n_head=4, n_embd=64, vocab_size=100, block_size=16)).eval()
    with torch.no_grad():
        return tracer.trace(model, torch.zeros(2, 16, dtype=torch.long))


def test_costs_add_up_however_they_are_grouped() -> None:
    t = trace_of_gpt()
    for by in ("operation", "module", "line"):
        rows = t.costs(by).rows
        assert sum(c.count for c in rows) == len(t)
        assert sum(c.flops for c in rows) == t.flops
        assert sum(c.bytes_moved for c in rows) == t.bytes_read + t.bytes_written
        assert sum(c.bytes_new for c in rows) == t.bytes_new
        assert sum(c.share for c in rows) == pytest.approx(1)
        assert sum(c.share_bytes for c in rows) == pytest.approx(1)
        assert [c.flops for c in rows] == sorted((c.flops for c in rows), reverse=True)


def test_costs_by_module_are_those_of_its_operations() -> None:
    t = trace_of_gpt()
    found = {c.name: c for c in t.costs("module").rows}["transformer.h.1.mlp.c_fc"]
    assert (found.count, found.flops) == (1, 2 * 2 * 16 * 64 * 256)
    assert found.bytes_read == 4 * (2 * 16 * 64 + 64 * 256 + 256)


def test_steps_inside_an_opened_operation_count_once() -> None:
    ops = list(gpt(1))
    last = ops[-1]
    inner = type(last)(
        **{f: getattr(last, f) for f in last.__slots__} | {"index": last.index + 1, "parent": last.index}
    )
    assert Trace.from_ops([*ops, inner]).bytes_read == Trace.from_ops(ops).bytes_read
    alone = Trace.from_ops([inner])  # its parent is not among them
    assert alone.bytes_read == inner.bytes_read > 0


@pytest.mark.parametrize("name", ["attention", "nn.GRU, both ways", "nn.LSTM"])
def test_opening_an_operation_costs_nothing(name: str) -> None:
    f, shapes, expected = BY_HAND[name]
    inputs = random(*shapes)
    t, u = tracer.trace(f, *inputs), tracer.trace(f, *inputs, expand=True)
    assert len(u) > len(t)
    assert t.flops == u.flops == expected
    assert (t.bytes_read, t.bytes_written, t.bytes_new) == (u.bytes_read, u.bytes_written, u.bytes_new)
    assert t.peak.bytes == u.peak.bytes


def test_an_einops_call_costs_what_its_steps_do() -> None:
    einops = pytest.importorskip("einops")
    t = tracer.trace(lambda x: einops.rearrange(x, "b h t d -> b t (h d)"), torch.zeros(2, 3, 5, 7))
    assert [(op.name, op.parent) for op in t] == [("rearrange", None), ("permute", 0), ("reshape", 0)]
    assert (t.bytes_read, t.bytes_written, t.bytes_new) == (840, 840, 840)


def test_costs_survive_json() -> None:
    t = trace_of_gpt()
    again = Trace.from_json(t.to_json())
    assert (again.flops, again.bytes_read, again.peak) == (t.flops, t.bytes_read, t.peak)
    assert str(again.costs("line")) == str(t.costs("line"))


def test_the_table_as_text(golden: Callable[[str, str], None]) -> None:
    t = trace_of_gpt()
    golden("costs.txt", f"{t.costs()}\n\n{t.costs(by='module')}")


def test_a_long_line_of_code_is_cut_in_text_alone() -> None:
    table = trace_of_gpt().costs("line")
    assert max(len(line.split("  ")[0]) for line in str(table).splitlines()[1:]) <= 72
    assert any(len(cost.name) > 72 for cost in table.shown)


def test_the_table_as_html() -> None:
    html = trace_of_gpt().costs("module")._repr_html_()
    assert html.count("<tr>") == 1 + len(trace_of_gpt().costs("module").shown)
    assert "transformer.h.*.mlp.c_fc" in html
    assert 'class="st-bar"><span><i style="width:30.7%">' in html
    evil = CostTable((trace_of_gpt().costs().rows[0].__class__("<b>", 1, 1, 1, 1, 1, 1.0, 1.0),), "line",
                     trace_of_gpt().costs().total, trace_of_gpt().peak)  # fmt: skip
    assert "<b>" not in evil._repr_html_()


def test_an_empty_trace_has_a_table() -> None:
    table = Trace().costs()
    assert table.rows == ()
    assert "0 FLOPs" in str(table)


def test_other_groupings_are_refused() -> None:
    with pytest.raises(ValueError, match='by "operation", by "module" or by "line"'):
        Trace().costs("colour")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (9994, "9.99 k"), (9996, "10.0 k"), (99960, "100 k"), (999499, "999 k"),
     (999500, "1.00 M"), (12288, "12.3 k"), (350 * 10**18, "350000 P")],
)  # fmt: skip
def test_numbers_in_three_digits(n: int, text: str) -> None:
    assert short(n) == text


def test_a_bar_is_as_long_as_its_part() -> None:
    t = trace_of_gpt()
    bars = {c.name: (round(c.share * 10), round(c.share_bytes * 10)) for c in t.costs().rows}
    assert bars["linear"] == (10, 5)
    lines = {line.split()[0]: line for line in str(t.costs()).splitlines()}
    assert [lines[name].count("█") for name in ("linear", "gelu", "embedding")] == [15, 1, 0]
    assert "▏" in lines["embedding"]


def test_a_peak_reads_as_a_sentence() -> None:
    t = tracer.trace(lambda x: (x + 1).sum(), torch.zeros(2, 5))
    assert str(t.peak) == "44 bytes at operation 1, sum"
    assert str(tracer.trace(lambda x: x, torch.zeros(2)).peak) == "0 bytes"
