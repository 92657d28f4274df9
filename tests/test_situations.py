"""Awkward but real code, on which tracers have broken: tracing changes nothing in it, and lists what it did.

Each case returns a module and its inputs. It runs plain and traced, on copies, from one seed: results, gradients,
buffers and random numbers must be equal to the last bit, and nothing may be left behind.
"""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, matmul, nn
from torch.nn.functional import softmax
from torch.nn.modules import module as torch_modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import tracer

B, T, C, H = 2, 5, 6, 3
CASES = {}


def case(*expected, **options):
    """Register a case: names of operations that its trace must have, in this order, and how to run it."""

    def register(build):
        CASES[build.__name__] = (build, expected, options)
        return build

    return register


class Body(nn.Module):
    """A module whose forward is a given function of itself and the inputs."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self._run(self, *args, **kwargs)


def x_btc():
    return torch.randn(B, T, C)


# ------------------------------------------------------------------ what writes in place, shares or hides memory


@case("clone", "add_", "setitem", "relu_", "mul_", "sub_", "rsub")
def writes_in_place():
    def forward(self, x):
        x = x.clone()
        x.add_(1)
        x[:, :2] = 0
        x.relu_()
        x *= 2
        x -= 1
        return 1 - x

    return Body(forward), (x_btc(),)


@case("mT", "matmul", "ones", "triu", "masked_fill_", "softmax")
def masked_in_place():
    def forward(self, x):
        scores = x @ x.mT
        scores.masked_fill_(torch.triu(torch.ones(T, T, dtype=torch.bool), 1), float("-inf"))
        return scores.softmax(-1)

    return Body(forward), (x_btc(),)


@case("transpose_", "unsqueeze_", "add", "squeeze")
def changes_shape_in_place():
    def forward(self, x):
        y = x.clone()
        y.transpose_(1, 2)
        y.unsqueeze_(0)
        return (y + 1).squeeze(0)

    return Body(forward), (x_btc(),)


@case("empty", "add", "detach")
def writes_to_out():
    def forward(self, x):
        y = torch.empty(B, T, C)
        torch.add(x, x, out=y)
        return y.detach()

    return Body(forward), (x_btc(),)


@case("sparse")
def sparse():
    return Body(lambda self, x: torch.sparse.mm(x.to_sparse(), x.T).to_dense()), (torch.randn(T, T).relu(),)


@case("sin")
def nested_jagged():
    def forward(self, x):
        return torch.nested.nested_tensor([x[0, :2], x[1]], layout=torch.jagged).sin().values()

    return Body(forward), (x_btc(),)


@case("softmax")
def nested_strided():
    def forward(self, x):
        return torch.nested.nested_tensor([x[0, :2], x[1]]).softmax(-1).to_padded_tensor(0.0)

    return Body(forward), (x_btc(),)


@case("view_as_complex", "polar", "mul", "setitem", "view_as_real", "flatten")
def complex_rotary():
    def forward(self, x):
        z = torch.view_as_complex(x.reshape(B, T, C // 2, 2))
        angles = torch.outer(torch.arange(T).float(), torch.ones(C // 2))
        z = z * torch.polar(torch.ones(T, C // 2), angles)
        z[0, 0, 0] = 1j
        return torch.view_as_real(z).flatten(2)

    return Body(forward), (x_btc(),)


@case("getitem", "sum", "mean", "add")
def empty_and_scalar():
    return Body(lambda self, x: x[:, :0].sum() + x.mean()), (x_btc(),)


# ------------------------------------------------------------------ how inputs and modules hang together


@case("linear", "sum", "add", "linear", "sum", "add")
def dicts_in_a_list():
    return Body(lambda self, batch: sum(self.l(b["x"]).sum() for b in batch), l=nn.Linear(C, C)), (
        [{"x": x_btc()}, {"x": x_btc()}],
    )


@case("embedding", "linear")
def tied_weights():
    model = Body(lambda self, idx: self.head(self.emb(idx)), emb=nn.Embedding(11, C), head=nn.Linear(C, 11, bias=False))
    model.head.weight = model.emb.weight
    return model, (torch.randint(0, 11, (B, T)),)


@case("linear", "relu")
def parts_in_a_plain_list():
    model = Body(lambda self, x: self.mods[1](self.mods[0](x)))
    model.mods = [nn.Linear(C, C), nn.ReLU()]
    return model, (x_btc(),)


@case("linear", "linear")
def one_module_twice():
    return Body(lambda self, x: self.l(self.l(x)), l=nn.Linear(C, C)), (x_btc(),)


@case("linear", "cat", "matmul")
def cache_of_keys():
    def forward(self, x):
        cache = []
        for t in range(T):
            cache.append(self.l(x[:, t : t + 1]))
            out = x[:, t : t + 1] @ torch.cat(cache, 1).mT
        return out

    return Body(forward, l=nn.Linear(C, C)), (x_btc(),)


@case("abs", "max", "item", "div", "sum", "gt", "bool", "gt", "getitem")
def branches_on_data():
    def forward(self, x):
        steps = 0
        while x.abs().max().item() > 0.5 and steps < 3:
            x = x / 2
            steps += 1
        return x[x > 0] if bool(x.sum() > -1e9) else x

    return Body(forward), (x_btc() + 2,)


@case("lstm")
def recurrent():
    return nn.LSTM(C, 4, batch_first=True), (x_btc(),)


@case("batch_norm", "dropout")
def buffers_and_random_numbers():
    model = nn.Sequential(nn.Linear(C, C), nn.BatchNorm1d(T), nn.Dropout(0.5))
    return model.train(), (x_btc(),)


@case("linear", "mul")
def user_hook_replaces_the_output():
    model = nn.Sequential(nn.Linear(C, C))
    model[0].register_forward_hook(lambda m, a, out: out * 2)
    return model, (x_btc(),)


@case("linear")
def parametrised_weight():
    return nn.utils.parametrizations.weight_norm(nn.Linear(C, C)), (x_btc(),)


@case("dropout", "randn", "add")
def draws_random_numbers():
    return Body(lambda self, x: F.dropout(x, 0.5) + torch.randn(C)), (x_btc(),)


# ------------------------------------------------------------------ fused, compiled and scripted code


@case("multi_head_attention_forward", train=True)
def attention_while_training():
    return Body(lambda self, x: self.a(x, x, x)[0], a=nn.MultiheadAttention(C, H, batch_first=True)), (x_btc(),)


@case("TransformerEncoderLayer", grad=False)
def encoder_layer_fused():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (torch.randn(B, T, 8),)


@case("TransformerEncoder", grad=False)
def encoder_fused_with_padding():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1, 3:] = True
    return Body(lambda self, x: self.enc(x, src_key_padding_mask=padding), enc=model), (torch.randn(B, T, 8),)


@case("MultiheadAttention", grad=False)
def attention_fused():
    model = Body(
        lambda self, x: self.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(8, 2, batch_first=True)
    )
    return model.eval(), (torch.randn(B, T, 8),)


@case("scaled_dot_product_attention")
def fused_product():
    return Body(lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)), (torch.randn(B, H, T, 4),)


@case("Linear", "add")
def compiled_part():
    return Body(lambda self, x: self.l(x) + 1, l=torch.compile(nn.Linear(C, C), backend="eager")), (x_btc(),)


@case("Body", "add")
def compiled_part_in_one_graph():
    inner = Body(lambda self, x: self.l(x).relu(), l=nn.Linear(C, C))
    return Body(lambda self, x: self.l(x) + 1, l=torch.compile(inner, backend="eager", fullgraph=True)), (x_btc(),)


@case("add")
def compiled_function_in_one_graph():
    norm = nn.LayerNorm(C)
    f = torch.compile(lambda x: norm(x).softmax(-1), backend="eager", fullgraph=True)
    return Body(lambda self, x: f(x) + 1, norm=norm), (x_btc(),)


@case("linear", "add")
def compiled_function_that_breaks():
    part = nn.Linear(C, C)

    def broken(x):
        y = part(x)
        print(end="")  # a graph break
        return y + 1

    f = torch.compile(broken, backend="eager")
    return Body(lambda self, x: f(x), part=part), (x_btc(),)


@case("Sequential", "add")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def scripted_part():
    part = torch.jit.script(nn.Sequential(nn.Linear(C, C), nn.ReLU()))
    return Body(lambda self, x: self.l(x) + 1, l=part), (x_btc(),)


# ------------------------------------------------------------------ transformed, replayed, in other threads


@case("T", "matmul")
def vmap_inside():
    return Body(lambda self, x: torch.vmap(lambda q: q @ q.T)(x)), (x_btc(),)


@case("mul", "sum")
def grad_transform_inside():
    return Body(lambda self, x: torch.func.grad(lambda y: (y * y).sum())(x)), (x_btc(),)


@case("linear", "relu", backward=True)
def checkpointed():
    return Body(lambda self, x: checkpoint(lambda y: self.l(y).relu(), x, use_reentrant=False), l=nn.Linear(C, C)), (
        x_btc(),
    )


@case("linear", "sum", "backward")
def backward_inside():
    def forward(self, x):
        self.l(x).sum().backward()
        return self.l.weight.grad.clone()

    return Body(forward, l=nn.Linear(C, C)), (x_btc(),)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


@case("mul", "add", backward=True)
def custom_gradient():
    return Body(lambda self, x: Doubled.apply(self.w * x) + 1, w=nn.Parameter(torch.ones(C))), (x_btc(),)


@case("add")
def threads_inside():
    def forward(self, x):
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.map(lambda y: (y @ y.mT).softmax(-1), [x, x + 1])
        return a + b

    return Body(forward), (x_btc(),)


@case("linear", meta=True)
def meta_device():
    return Body(lambda self, x: self.l(x).softmax(-1), l=nn.Linear(C, C, device="meta")), (
        torch.empty(B, T, C, device="meta"),
    )


@case("to", "matmul", "softmax")
def under_autocast():
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x.to(torch.float32) @ x.mT).softmax(-1)

    return Body(forward), (x_btc(),)


@case("reshape", "permute", "einsum", "softmax", "matmul", "permute", "reshape")
def written_with_einops():
    def forward(self, x):
        q = rearrange(x, "b t (h d) -> b h t d", h=H)
        y = torch.einsum("bhid,bhjd->bhij", q, q).softmax(-1) @ q
        return rearrange(y, "b h t d -> b t (h d)")

    return Body(forward), (x_btc(),)


@case("mT", "matmul", "softmax")
def references_taken_early():
    return Body(lambda self, x: softmax(matmul(x, x.mT), dim=-1)), (x_btc(),)


@case("view", "transpose", "view", "transpose", raises=RuntimeError)
def fails_midway():
    def forward(self, x):
        q = x.view(B, T, H, C // H).transpose(1, 2)
        k = x.view(B, T, H, C // H)
        return q @ k.transpose(-2, -1)

    return Body(forward), (x_btc(),)


# ------------------------------------------------------------------ the comparison


@dataclass
class Result:
    output: object
    error: type | None
    grads: list
    buffers: list
    random: Tensor


def leaves(value):
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in leaves(v)] if isinstance(value, tuple | list) else []


def run(model, inputs, call, grad, backward):
    torch.manual_seed(3)
    model.zero_grad(set_to_none=True)
    output, error = None, None
    with torch.set_grad_enabled(grad):
        try:
            output = call(model, inputs)
        except Exception as e:
            error = type(e)
    if backward and output is not None:
        output.sum().backward()
    grads = [p.grad for p in model.parameters()]
    return Result(output, error, grads, [b.clone() for b in model.buffers()], torch.random.get_rng_state())


def same(a, b):
    assert (a is None) == (b is None)
    if a is not None:
        assert a.shape == b.shape and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        if a.device.type != "meta":
            assert torch.equal(
                torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b
            )


def same_results(plain, traced):
    assert plain.error == traced.error
    assert torch.equal(plain.random, traced.random)
    for one, other in (
        (leaves(plain.output), leaves(traced.output)),
        (plain.grads, traced.grads),
        (plain.buffers, traced.buffers),
    ):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)


def in_order(expected, names):
    rest = iter(names)
    return all(any(e in n if e == "sparse" else e == n for n in rest) for e in expected)


@pytest.fixture(autouse=True)
def nothing_left():
    """Whatever a test does, no mode, no hook and no filter of warnings is there afterwards."""
    yield
    assert _get_current_function_mode_stack() == []
    assert not torch_modules._global_forward_pre_hooks
    assert not torch_modules._global_forward_hooks
    assert not torch_modules._global_forward_hooks_always_called
    assert not [f for f in warnings.filters if f[1] is not None and "global hooks" in f[1].pattern]


@pytest.mark.filterwarnings(
    "ignore:.*(nested tensors is in prototype|enable_nested_tensor|jit.script|beta state|.grad attribute)"
)
@pytest.mark.parametrize("name", CASES)
def test_tracing_changes_nothing(name):
    build, expected, options = CASES[name]
    torch.manual_seed(0)
    model, inputs = build()
    plain_model = model if "compiled" in name or "script" in name else copy.deepcopy(model)
    grad = options.get("grad", True)
    backward = options.get("backward", False) or (grad and options.get("train", False))
    plain = run(plain_model, copy.deepcopy(inputs), lambda m, i: m(*i), grad, backward)

    kept = []

    def traced_call(m, i):
        try:
            t = tracer.trace(m, *i)
        except Exception as e:
            kept.append(e.trace)
            raise
        kept.append(t)
        return t.output

    traced = run(model, copy.deepcopy(inputs), traced_call, grad, backward)
    same_results(plain, traced)
    assert traced.error is options.get("raises")
    (t,) = kept
    assert in_order(expected, [op.name for op in t]), [op.name for op in t]
    assert not [w for w in t.warnings if "could not be recorded" in w]
    again = run(model, copy.deepcopy(inputs), lambda m, i: m(*i), grad, backward)
    if not list(model.buffers()):
        same_results(plain, again)
    for op in t:
        for info in (*op.inputs, *op.outputs):
            assert len(info.axes) == len(info.shape)
    t.to_text()
    t.to_html()


@pytest.mark.filterwarnings("ignore:.*jit.script")
def test_a_script_is_traced_by_itself_too():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(12, 3), nn.ReLU()))
    x = torch.rand(2, 5, 12)
    t = tracer.trace(scripted, x, axes=["B T C"])
    assert torch.equal(t.output, scripted(x))
    assert [op.name for op in t] == ["Sequential"]


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
def test_a_ragged_axis_costs_nothing_negative_and_is_saved():
    rows = [torch.rand(3, 12), torch.rand(5, 12)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    t = tracer.trace(lambda x: nn.functional.linear(x * 2, torch.ones(3, 12)), x)
    assert t.flops == 0
    assert min(t.bytes_read, t.bytes_written, t.bytes_new) >= 0
    assert tracer.Trace.from_json(t.to_json()).to_json() == t.to_json()
