"""What is recorded, what is said about inputs, and that nothing is changed, kept alive or left behind."""

import asyncio
import contextlib
import gc
import inspect
import subprocess
import sys
import threading
import traceback
import weakref
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import tracer
from tracer import AxesError, TracerError

B, T, C, H = 2, 5, 6, 3


@pytest.fixture(autouse=True)
def nothing_left():
    """No mode and no hook is there after any test."""
    yield
    gc.collect()
    assert _get_current_function_mode_stack() == []
    assert not torch_modules._global_forward_pre_hooks
    assert not torch_modules._global_forward_hooks
    assert not torch_modules._global_forward_hooks_always_called


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(C, 3 * C)
        self.proj = nn.Linear(C, C)
        self.register_buffer("mask", torch.ones(T, T).tril().bool())

    def forward(self, x):
        q, k, v = self.qkv(x).split(C, dim=-1)
        scores = q @ k.mT
        n = x.shape[1]
        scores = scores.masked_fill(~self.mask[:n, :n], float("-inf"))
        out = scores.softmax(-1) @ v
        return self.proj(out)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(C, 4), nn.GELU(), nn.Linear(4, C))

    def forward(self, x):
        x = x + self.attn(x)
        h = self.mlp(x)
        return h


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, C)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(C, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, idx):
        x = self.emb(idx)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def names(t):
    return [op.name for op in t]


def x_btc():
    return torch.randn(B, T, C)


# ------------------------------------------------------------------ what is recorded


def test_names_are_those_that_the_user_wrote():
    def f(x):
        return [
            x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, x // 2, x % 2, x**2, 2**x, -x, abs(x), x @ x.mT,
            x > 0, x == x, ~(x > 0), (x > 0) & (x < 1), x[0], x.T if x.dim() == 2 else x.mT, x.real, x.data,
        ]  # fmt: skip

    assert names(tracer.trace(f, x_btc())) == [
        "add", "add", "sub", "rsub", "mul", "mul", "div", "rdiv", "floor_divide", "remainder", "pow", "rpow", "neg",
        "abs", "mT", "matmul", "gt", "eq", "gt", "bitwise_not", "gt", "lt", "bitwise_and", "getitem", "mT", "real",
        "data",
    ]  # fmt: skip


def test_questions_about_a_tensor_are_no_operations():
    def f(x):
        (
            x.shape,
            x.size(),
            x.size(0),
            x.dim(),
            x.ndim,
            x.stride(),
            x.numel(),
            x.dtype,
            x.device,
            len(x),
            repr(x),
            hash(x),
        )
        x.is_contiguous(), x.requires_grad, x.requires_grad_(False), x.grad, x.is_leaf, x.element_size(), f"{x.shape}"
        with torch.no_grad():
            return x.untyped_storage().nbytes(), torch.is_tensor(x), torch.numel(x)

    assert names(tracer.trace(f, x_btc())) == []


def test_numbers_that_leave_are_operations_without_outputs():
    def f(x):
        s = x.sum()
        return s.item(), s.tolist(), bool(s > 0), s.detach().numpy(), torch.equal(x, x), torch.allclose(x, x)

    t = tracer.trace(f, x_btc())
    assert names(t) == ["sum", "item", "tolist", "gt", "bool", "detach", "numpy", "equal", "allclose"]
    assert [op.name for op in t if not op.outputs] == ["item", "tolist", "bool", "numpy", "equal", "allclose"]
    assert t.unnamed == ()


@pytest.mark.parametrize("inplace", [False, True])
def test_memory_is_what_storage_says(inplace):
    def f(x):
        view = x.transpose(0, 1)
        same = x.contiguous()
        copied = view.contiguous()
        dropped = F.dropout(x, 0.5, False)
        relu = F.relu(x, inplace)
        sliced = view[1:, :2]
        x += 1
        x[0] = 0
        written = torch.add(x, 1, out=torch.empty(B, T, C))
        return view, same, copied, dropped, relu, sliced, written

    t = tracer.trace(f, x_btc())
    memory = [op.memory for op in t]
    relu = "in-place" if inplace else "new"
    assert memory == ["view", "same", "new", "same", relu, "view", "in-place", "in-place", "new", "in-place"]
    x, view, copied = t[0].inputs[0], t[0].outputs[0], t[2].outputs[0]
    assert x.storage == view.storage != copied.storage
    assert t[5].outputs[0].storage == x.storage and t[5].outputs[0].offset == C
    assert t[1].outputs[0].id == x.id == t[6].outputs[0].id == t[7].outputs[0].id
    assert view.stride == (C, T * C, 1) and view.contiguous is False


def test_an_in_place_change_of_shape_leaves_earlier_rows_alone():
    def f(x):
        y = x.clone()
        y.transpose_(0, 1)
        y.unsqueeze_(-1)
        return y

    t = tracer.trace(f, x_btc(), axes=["B T C"])
    assert [op.outputs[0].shape for op in t] == [(B, T, C), (T, B, C), (T, B, C, 1)]
    assert t[1].inputs[0].shape == (B, T, C)
    assert t[0].outputs[0].id == t[1].outputs[0].id == t[2].outputs[0].id


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_views_are_seen_on_any_device(device):
    t = tracer.trace(lambda x: x.view(T, B, C).clone(), torch.empty(B, T, C, device=device))
    assert [op.memory for op in t] == ["view", "new"]
    assert t[0].inputs[0].storage == t[0].outputs[0].storage
    assert t.device == device


def test_outside_tensors_that_share_memory_share_a_number():
    base = torch.randn(4, 6)
    left, other = base[:2], torch.randn(2, 6)
    t = tracer.trace(lambda a, b, c: (a + b[:2], c + 1), left, base, other)
    a, b, c = t[1].inputs[0], t[0].inputs[0], t[2].inputs[0]
    assert a.storage == b.storage != c.storage


def test_a_tensor_that_takes_over_memory():
    def f(x, y):
        x.data = y
        return x.view(-1), y.view(-1)

    t = tracer.trace(f, torch.ones(4), torch.ones(4))
    assert names(t) == ["data", "view", "view"] and t[0].memory == "in-place"
    assert t[1].outputs[0].storage == t[2].outputs[0].storage
    assert t[1].memory == "view"


def test_memory_is_none_where_storage_cannot_be_asked():
    t = tracer.trace(torch.vmap(lambda row: row.T @ row), x_btc())
    assert {op.memory for op in t if op.name in ("T", "matmul")} == {None}
    assert {op.outputs[0].storage for op in t if op.name == "matmul"} == {None}
    assert tracer.trace(lambda x: x.to_sparse(), x_btc())[0].memory is None


def test_several_outputs():
    def f(x):
        a, b = x.split(3, dim=1)
        values, where = x.max(-1)
        top = x.topk(2)
        return a, b, values, where, top

    t = tracer.trace(f, x_btc())
    assert [len(op.outputs) for op in t] == [2, 2, 2]
    assert [o.variable for o in t[0].outputs] == ["a", "b"]
    assert [o.variable for o in t[1].outputs] == ["values", "where"]
    assert [o.variable for o in t[2].outputs] == ["top", "top"]


def test_arguments_are_plain_data():
    def f(x):
        y = x[:, None, 1:4, ..., ::2]
        return F.softmax(torch.cat([y, y], dim=-1), dim=-1, dtype=torch.float64)

    t = tracer.trace(f, torch.randn(2, 5, 4))
    getitem, cat, soft = t._log.events
    assert getitem[1][1] == ((None, None, None), None, (1, 4, None), Ellipsis, (None, None, 2))
    assert [type(a).__name__ for a in cat[1][0]] == ["Ref", "Ref"]
    assert ("dtype", torch.float64) in soft[2]
    assert not any(isinstance(o, Tensor) for e in t._log.events for o in gc.get_referents(*e[1:4]))


def test_long_data_is_not_copied():
    t = tracer.trace(lambda: torch.tensor([0.5] * 5000) + torch.stack([torch.zeros(5000)] * 100).sum(0))
    assert t._log.events[0][1] == ("list of 5000",)
    assert len(t.find("stack")[0].inputs) == 100


# ------------------------------------------------------------------ modules, parameters, lines, variables


def test_module_paths():
    t = tracer.trace(Model(), torch.randint(0, 11, (B, T)))
    assert t[0].module == "emb" and t[-1].module == "head"
    assert {op.module for op in t.find("softmax")} == {"blocks.0.attn", "blocks.1.attn"}
    assert t.find("gelu")[1].module == "blocks.1.mlp.1"
    assert t.find("add")[0].module == "blocks.0"


def test_paths_in_a_recorded_block_begin_at_the_outermost_module():
    model = Model()
    with tracer.record() as t:
        loss = model(torch.randint(0, 11, (B, T))).sum() * 2
        model.blocks[1].mlp(torch.randn(B, T, C))
    assert loss.dim() == 0
    assert t.find("softmax")[1].module == "blocks.1.attn"
    assert t.find("mul")[0].module == ""
    assert t[-1].module == "blocks.1.mlp.2"


def test_modules_in_plain_containers_and_made_on_the_way():
    spare, loose = nn.Linear(C, C), nn.Linear(C, C)

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.mods = [nn.Linear(C, C), {"deep": nn.Linear(C, C)}]

        def forward(self, x):
            x = self.mods[1]["deep"](self.mods[0](x))
            self.late = spare
            return loose(self.late(x))

    t = tracer.trace(Holder(), x_btc())
    linear = t.find("linear")
    assert [op.module for op in linear] == ["mods.0", "mods.1.deep", "late", ""]
    sources = t._log.sources.values()
    assert ("parameter", "mods.1.deep.weight") in sources and ("parameter", "late.bias") in sources


def test_methods_of_a_model_are_traced_from_its_root():
    model = Model()

    def generate(self, idx, steps):
        for _ in range(steps):
            idx = torch.cat([idx, self(idx)[:, -1:].argmax(-1)], 1)
        return idx

    Model.generate = generate
    try:
        t = tracer.trace(model.generate, torch.randint(0, 11, (B, T)).clone()[:, :2], 3)
    finally:
        del Model.generate
    assert t.output.shape == (B, 5)
    assert {op.module for op in t.find("gelu")} == {"blocks.0.mlp.1", "blocks.1.mlp.1"}
    assert given(t) == {"idx": "B T"} and t.find("cat")[0].module == ""


def test_sources_of_tensors_that_the_run_did_not_make():
    constant = torch.ones(C)

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(C))
            self.inner = Attention()

        def forward(self, x, *rest, batch):
            return self.inner(x * self.w + constant) + rest[0] + batch["y"][0]

    t = tracer.trace(M(), x_btc(), torch.ones(1), batch={"y": [torch.ones(1)]})
    found = set(t._log.sources.values())
    assert {("input", "x"), ("input", "rest[0]"), ("input", "batch.y[0]"), ("constant", "")} < found
    assert {("parameter", "w"), ("parameter", "inner.qkv.weight"), ("buffer", "inner.mask")} < found


def test_variables_of_calls_that_run_several_operations():
    mha = nn.MultiheadAttention(C, H, batch_first=True)
    seq = nn.Sequential(nn.Linear(C, C), Block())
    lstm = nn.LSTM(C, 4, batch_first=True)

    def f(x):
        y, weights = mha(x, x, x)
        first = mha(x, x, x)[0]
        z = seq(y)
        out, (h, c) = lstm(z)
        heads = rearrange(first, "b t (h d) -> b h t d", h=H)
        return heads, weights, out, h, c

    t = tracer.trace(f, x_btc())
    where = {o.variable: (op.name, i) for op in t for i, o in enumerate(op.outputs) if o.variable}
    assert where["y"] == ("transpose", 0) and where["first"] == ("transpose", 0)
    assert where["weights"] == ("multi_head_attention_forward", 1)
    assert where["out"] == ("lstm", 0) and where["h"] == ("lstm", 1) and where["c"] == ("lstm", 2)
    assert where["heads"] == ("permute", 0)
    assert t["z"].id == t.find("linear")[-1].outputs[0].id
    assert t.find("gelu")[0].variable is None


def test_a_decorated_forward_is_the_users_own():
    class Quiet(nn.Module):
        def __init__(self):
            super().__init__()
            self.seq = nn.Sequential(nn.Linear(C, 4), nn.ReLU())

        @torch.no_grad()
        def forward(self, x):
            hidden = self.seq(x)
            return hidden

    t = tracer.trace(Quiet(), x_btc())
    assert [op.variable for op in t] == [None, "hidden"]


def test_a_loop_over_modules_gives_the_variable_each_time():
    layers = [nn.Linear(C, C) for _ in range(3)]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    assert [op.variable for op in tracer.trace(f, x_btc())] == ["x", "x", "x"]


def test_what_a_function_returns_is_found_under_the_callers_name():
    def attention(q, k, v):
        weights = F.softmax(q @ k.mT, dim=-1)
        return weights @ v, weights

    def twice(x):
        return helper(x)

    def helper(x):
        return x.tanh()

    def f(x):
        out, w = attention(x, x, x)
        deep = twice(out)
        return deep, w

    t = tracer.trace(f, x_btc())
    assert t["out"].shape == (B, T, C) and t["out"].variable is None
    assert t["w"].shape == (B, T, T)
    assert t["deep"].id == t.find("tanh")[0].outputs[0].id


def test_the_name_of_the_trace_is_no_variable_of_it():
    t = tracer.trace(lambda x: x.tanh(), x_btc())
    assert "t" not in t
    assert tracer.trace(torch.tanh, x_btc())[0].source is None


# ------------------------------------------------------------------ axes and sizes


def given(t):
    return {t._log.sources.get(fact, ("", "made"))[1]: text for fact, text in t._log.given.items()}


def test_axes_by_position_and_by_name():
    def f(x, y, scale=None, *, batch=None):
        return x @ y.mT

    x, y = x_btc(), torch.randn(B, 7, C)
    assert given(tracer.trace(f, x, y, axes=["B T C", "B S C"])) == {"x": "B T C", "y": "B S C"}
    assert given(tracer.trace(f, x, y, axes=["B T C"])) == {"x": "B T C"}
    assert given(tracer.trace(f, x, y, axes=[None, "B S C"])) == {"y": "B S C"}
    assert given(tracer.trace(f, x, y, axes="B T C")) == {"x": "B T C"}
    assert given(tracer.trace(f, x, y=y, axes={"y": "B S C"})) == {"y": "B S C"}
    assert given(tracer.trace(f, x, y, batch=[{"m": x[0]}], axes={"batch[0].m": "T C"})) == {"batch[0].m": "T C"}
    linear = nn.Linear(C, 4)
    assert given(tracer.trace(linear, x, axes={"input": "B T C", "weight": "M C"})) == {
        "input": "B T C",
        "weight": "M C",
    }


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (["B T"], ["x", '"B T" names 2 axes', "[2, 5, 6]", "Give 3 names"]),
        (["B T C", "B"], ["2 texts", "1 positional tensor", "x [2, 5, 6]"]),
        ({"z": "B T C"}, ["'z'", "Tensors of this call: x"]),
        ({"x": 3}, ["x", "3 is not a text"]),
        (["B T (H"], ["x", "bracket"]),
        (7, ["axes= is 7"]),
    ],
)
def test_axes_that_do_not_fit_are_told_before_anything_runs(axes, words):
    ran = []
    with pytest.raises(AxesError) as e:
        tracer.trace(lambda x: ran.append(1), x_btc(), axes=axes)
    assert ran == []
    for word in words:
        assert word in str(e.value)


@pytest.mark.parametrize("sizes", [{"C": 4.0}, {"C": 0}, {1: 2}, ["C"], {"C": True}])
def test_sizes_must_be_whole_numbers_by_symbol(sizes):
    with pytest.raises(AxesError, match="sizes="):
        tracer.trace(lambda: None, sizes=sizes)
    with pytest.raises(AxesError, match="sizes="):
        tracer.record(sizes=sizes)


def test_ids_are_named_without_a_word():
    ids, mask = torch.randint(0, 9, (B, T)), torch.ones(B, T, dtype=torch.bool)
    assert given(tracer.trace(lambda mask, a, b: a + b, mask, ids, ids + 1)) == {"a": "B T"}
    assert given(tracer.trace(lambda x, idx: x + idx, ids + 1, idx=ids)) == {"x": "B T", "idx": "B T"}
    both = tracer.trace(lambda input_ids, decoder_input_ids: input_ids + decoder_input_ids, ids, ids.clone())
    assert given(both) == {"input_ids": "B S", "decoder_input_ids": "B T"}
    assert given(tracer.trace(lambda x: x + 1, ids.float())) == {}
    assert given(tracer.trace(lambda x: x + 1, ids[0])) == {}


class Declared(nn.Module):
    sizes = MappingProxyType({"C": C, "H": H})

    def __init__(self):
        super().__init__()
        self.axes = {"x": "B T C", "w": "C", "nothing": "B"}
        self.w = nn.Parameter(torch.ones(C))
        self.part = Part()

    def forward(self, x):
        return self.part(x * self.w, torch.ones(T))


class Part(nn.Module):
    axes = MappingProxyType({"v": "C", "positions": "T", "x": "B T C"})

    def __init__(self):
        super().__init__()
        self.register_buffer("v", torch.ones(C))

    def forward(self, x, positions):
        return x + self.v


def test_models_declare_axes_and_sizes():
    t = tracer.trace(Declared(), x_btc())
    assert given(t) == {"x": "B T C", "w": "C", "part.v": "C"}
    assert (t._log.sizes["C"], t._log.sizes["H"]) == (C, H)
    t = tracer.trace(Declared(), x_btc(), axes=["B S C"], sizes={"H": 2, "D": 3})
    assert given(t)["x"] == "B S C"
    assert (t._log.sizes["H"], t._log.sizes["D"], t._log.sizes["C"]) == (2, 3, C)
    model, x = Declared(), x_btc()
    with tracer.record() as t:
        model(x)
    assert given(t) == {"x": "B T C", "w": "C", "part.v": "C"} and t._log.sizes["C"] == C
    positions = torch.arange(T)
    with tracer.record() as t:
        model.part(x, positions)
    assert given(t) == {"x": "B T C", "v": "C", "positions": "T"}


def test_inner_modules_declare_inputs_that_come_from_outside():
    outside = torch.ones(T)

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()

        def forward(self, x):
            return self.part(x, outside) + outside[:, None]

    t = tracer.trace(M(), x_btc())
    assert given(t)["positions"] == "T"


def test_a_declaration_that_does_not_fit_is_a_warning():
    model = Declared()
    model.axes = {"x": "B T", "w": "C ("}
    t = tracer.trace(model, x_btc())
    assert len(t.warnings) >= 2
    assert any("Declared.axes['x']" in w for w in t.warnings) and any(w.startswith("axes for w") for w in t.warnings)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"n_embd": 48, "n_head": 3, "n_layer": 2, "vocab_size": 9, "n_inner": None}, "C48 D16 H3 L2 V9"),
        ({"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}, "C64 D16 G2 H8"),
        ({"d_model": 8, "d_ff": 32, "num_local_experts": 4, "num_experts_per_tok": 2}, "C8 E4 K2 M32"),
        ({"hidden_size": "big", "num_hidden_layers": 3, "vocab_size": True}, "L3"),
    ],
)
def test_sizes_from_a_config(config, expected):
    model = nn.Linear(2, 2)
    model.config = SimpleNamespace(**config)
    sizes = tracer.trace(model, torch.ones(1, 2))._log.sizes
    assert " ".join(f"{k}{v}" for k, v in sorted(sizes.items())) == expected


def test_attributes_that_raise_declare_nothing():
    class Trap(nn.Module):
        @property
        def config(self):
            raise ValueError("not now")

        axes = sizes = config

        def forward(self, x):
            return x + 1

    t = tracer.trace(Trap(), x_btc())
    assert len(t) == 1 and t.warnings == ()


def test_axes_of_variables_in_a_block():
    with tracer.record(axes={"x": "B T C", "scores": "B T S"}) as t:
        x = torch.randn(B, T, C)
        scores = x @ x.mT
        x = scores + 1
    assert [t._log.given.get(e[3][0].fact) for e in t._log.events] == ["B T C", None, "B T S", None]
    assert t.warnings == ()


def test_axes_of_variables_from_before_a_block_in_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, tracer\n"
        "x = torch.randn(2, 5, 6)\n"
        "with tracer.record(axes={'x': 'B T C'}) as t:\n"
        "    y = x * 2\n"
        "assert y.shape == (2, 5, 6)\n"
        "print(t[0].inputs[0].label, t[0].inputs[0].variable)\n"
        "with tracer.record() as t:\n"
        "    z = torch.nn.Linear(6, 4)(y)\n"
        "print(t[-1].inputs[0].variable)\n"
    )
    root = inspect.getfile(tracer).rpartition("tracer")[0]
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": root}, check=False
    )
    assert run.stdout == "[B, T, C] x\ny\n", run.stderr


def test_axes_of_variables_that_do_not_fit_are_warnings():
    with tracer.record(axes={"x": "B T", "y": "B"}) as t:
        x = torch.randn(B, T, C)
    assert x.dim() == 3
    assert any('"B T"' in w and "[2, 5, 6]" in w for w in t.warnings)
    assert any(w.startswith("axes for y: no operation") and 't.name(y, "B")' in w for w in t.warnings)
    with pytest.raises(AxesError):
        tracer.record(axes={"x": "B ("})
    with pytest.raises(AxesError):
        tracer.record(axes=["B T C"])
    with pytest.raises(AxesError):
        tracer.record(axes={"x": 3})


def test_naming_by_hand():
    x = x_btc()
    with tracer.record() as t:
        t.name(x, "B T C")
        y = x.mT
        t.name(y, "B C S")
        assert t[0].outputs[0].label == "[B, C, S]"
        with pytest.raises(AxesError, match="Give 3 names"):
            t.name(y, "B C")
        with pytest.raises(AxesError):
            t.name(3, "B")
    assert names(t) == ["mT"]
    with pytest.raises(TracerError):
        t.name(x, "B T C")


# ------------------------------------------------------------------ nothing is kept alive, nothing is changed


def test_no_tensor_is_kept_alive_but_the_output():
    seen = []

    def f(x):
        for _ in range(3):
            x = x.clone() + 1
            seen.append(weakref.ref(x))
            assert [r() is not None for r in seen] == [False] * (len(seen) - 1) + [True]
        return x

    t = tracer.trace(f, torch.randn(B, T))
    assert [r() is not None for r in seen] == [False, False, True] and t.output is seen[-1]()
    model, x = Model(), torch.randint(0, 11, (B, T))
    refs = [weakref.ref(v) for v in (model, x, *model.parameters())]
    with tracer.record(keep_values=True) as t:
        model(x)
    del model, x
    gc.collect()
    assert [r() for r in refs] == [None] * len(refs)
    assert len(t) > 10


def test_a_trace_needs_no_garbage_collector():
    model, x = Model(), torch.randint(0, 11, (B, T))
    tracer.trace(model, x)
    gc.collect()
    gc.disable()
    try:
        t = tracer.trace(model, x)
        log = weakref.ref(t._log)
        del t
        assert log() is None
    finally:
        gc.enable()


def test_ids_that_are_used_again_are_new_tensors():
    def f(x):
        for _ in range(50):
            x = (x * 1.5).view(T, B).clone().view(B, T)
        return x

    t = tracer.trace(f, torch.randn(B, T))
    made = [op.outputs[0].id for op in t]
    assert len(set(made)) == len(made) == 200
    assert [op.memory for op in t] == ["new", "view", "new", "view"] * 50


def test_values_are_kept_on_request():
    def f(x):
        y = x * 2
        y[0] = 0
        return y.sum(), torch.ones(9, 9) + 1

    x = torch.arange(4.0).requires_grad_()
    with torch.no_grad():
        t = tracer.trace(f, x, keep_values=True)
    assert t[0].inputs[0].values == [0, 1, 2, 3] and t[0].outputs[0].values == [0, 2, 4, 6]
    assert t[1].outputs[0].values == [0, 2, 4, 6]
    assert t.find("sum")[0].outputs[0].values == 12
    assert t.find("add")[0].outputs[0].values is None
    assert tracer.trace(lambda x: x + 1, torch.ones(2, device="meta"), keep_values=True)[0].outputs[0].values is None
    assert tracer.trace(f, x.detach())[0].outputs[0].values is None


def test_a_users_own_mode_sees_the_same_calls():
    class Counting(TorchFunctionMode):
        def __init__(self):
            self.calls = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model, x = Model(), torch.randint(0, 11, (B, T))
    with Counting() as plain:
        model(x)
    with Counting() as outside:
        t = tracer.trace(model, x)
    assert outside.calls == plain.calls
    inside = Counting()

    def f(x):
        with inside:
            return model(x)

    assert names(tracer.trace(f, x)) == names(t)
    assert inside.calls == plain.calls


def test_subclasses_see_the_same_calls():
    calls = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.randn(B, T).as_subclass(Noted)
    (x + 1).sum()
    plain = calls.copy()
    calls.clear()
    with tracer.record() as t:
        (x + 1).sum()
    assert calls == plain
    assert names(t) == ["add", "sum"] and t[0].outputs[0].shape == (B, T)


def test_nested_traces():
    inner = []

    def f(x):
        y = x + 1
        inner.append(tracer.trace(lambda z: z * 2, y))
        return inner[0].output.tanh()

    t = tracer.trace(f, x_btc())
    assert names(t) == ["add", "mul", "tanh"] and names(inner[0]) == ["mul"]
    model, ids = Model(), torch.randint(0, 11, (B, T))
    with tracer.record() as outer, tracer.record() as nested:
        model(ids)
    assert names(outer) == names(nested)
    assert [op.module for op in outer] == [op.module for op in nested]


def test_other_threads_are_not_recorded_but_told_of():
    model, ids = Model(), torch.randint(0, 11, (B, T))
    with tracer.record() as t:
        worker = threading.Thread(target=model, args=(ids,))
        worker.start()
        worker.join()
        ids + 1
    assert names(t) == ["add"]
    assert any("another thread" in w for w in t.warnings)


def test_two_threads_trace_at_once():
    model, ids = Model(), torch.randint(0, 11, (B, T))
    expected = [(op.name, op.module) for op in tracer.trace(model, ids)]
    found = []

    def work():
        for _ in range(5):
            t = tracer.trace(model, ids)
            found.append([(op.name, op.module) for op in t] == expected and t.warnings == ())

    workers = [threading.Thread(target=work) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert found == [True] * 15


def test_generators_may_close_in_any_order():
    def recording():
        with tracer.record() as t:
            yield t

    one, two = recording(), recording()
    t1, t2 = next(one), next(two)
    torch.ones(2) + 1
    one.close()
    torch.ones(2) * 2
    two.close()
    torch.ones(2) - 3
    assert names(t1) == ["ones", "add"] and names(t2) == ["ones", "add", "ones", "mul"]


def test_a_block_that_another_thread_closes_records_no_more():
    block = tracer.record()
    t = block.__enter__()
    closer = threading.Thread(target=block.__exit__, args=(None, None, None))
    closer.start()
    closer.join()
    torch.ones(2) + 1
    assert names(t) == []
    (left,) = _get_current_function_mode_stack()
    assert left.closed  # no thread can reach the stack of another; it does nothing any more
    torch._C._pop_torch_function_stack()


def test_what_runs_later_is_told():
    def generator(x):
        yield x + 1

    async def coroutine(x):
        return x + 1

    t = tracer.trace(generator, x_btc())
    assert next(t.output).shape == (B, T, C) and names(t) == []
    assert any("runs later" in w for w in t.warnings)
    t = tracer.trace(coroutine, x_btc())
    assert any("runs later" in w for w in t.warnings)
    assert asyncio.run(t.output).shape == (B, T, C)


def test_async_code_is_recorded():
    async def work(x):
        await asyncio.sleep(0)
        y = x.tanh()
        return y

    async def main():
        with tracer.record() as t:
            z = await work(torch.ones(2))
        assert z.shape == (2,)
        return t

    t = asyncio.run(main())
    assert t.find("tanh")[0].variable == "y" and t["z"].shape == (2,)


# ------------------------------------------------------------------ exceptions


def fails(x):
    y = x.mT
    return x @ x + y


def test_a_failed_operation_explains_itself():
    with pytest.raises(RuntimeError) as e:
        tracer.trace(fails, x_btc(), axes=["B T C"])
    assert type(e.value) is RuntimeError
    assert names(e.value.trace) == ["mT"]
    assert e.value.trace.failed.name == "matmul"
    (note,) = e.value.__notes__
    assert "matmul" in note and "[B, T, C]" in note and "test_engine.py" in note
    with pytest.raises(RuntimeError) as e, tracer.record() as t:
        fails(x_btc())
    assert e.value.trace is t and len(e.value.__notes__) == 1
    with pytest.raises(RuntimeError) as e, tracer.record() as t:
        tracer.trace(fails, x_btc())
    assert e.value.trace is t and len(e.value.__notes__) == 1
    assert t.failed.name == "matmul"
    assert [f.name for f in traceback.extract_tb(e.value.__traceback__)][-1] == "fails"


def test_exceptions_that_the_code_handles_leave_nothing():
    def f(x):
        with contextlib.suppress(RuntimeError):
            x @ x
        return x + 1

    t = tracer.trace(f, x_btc())
    assert names(t) == ["add"] and t.failed is None and t._log.failure is None

    def g(x):
        with contextlib.suppress(RuntimeError):
            x @ x
        raise KeyError("other")

    with pytest.raises(KeyError) as e:
        tracer.trace(g, x_btc())
    assert e.value.trace.failed is None and not hasattr(e.value, "__notes__")


def test_other_exceptions_bring_the_trace_so_far():
    class Closed(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    for kind in (ZeroDivisionError, Closed):

        def f(x, kind=kind):
            x + 1
            raise kind

        with pytest.raises(kind) as e:
            tracer.trace(f, x_btc())
        assert kind is Closed or names(e.value.trace) == ["add"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_untouched(kind):
    class M(nn.Module):
        def forward(self, x):
            raise kind

    outer = nn.Sequential(nn.Linear(C, C), M())
    with pytest.raises(kind) as e:
        tracer.trace(outer, x_btc())
    assert not hasattr(e.value, "trace")

    def f(x):
        with contextlib.suppress(kind):
            outer(x)
        return outer[0](x)

    t = tracer.trace(f, x_btc())
    assert [op.module for op in t] == ["0", "0"]


def test_an_exception_holds_no_more_tensors_than_without_tracing():
    def f():
        big = torch.randn(100)
        refs.append(weakref.ref(big))
        (big * 2).view(7, 7)

    refs = []
    with pytest.raises(RuntimeError) as e:
        tracer.trace(f)
    traceback.clear_frames(e.value.__traceback__)
    e.value.__traceback__ = None
    gc.collect()
    assert refs[0]() is None and len(e.value.trace) == 2


# ------------------------------------------------------------------ stepping aside


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


def padding():
    mask = torch.zeros(B, T, dtype=torch.bool)
    mask[1, 3:] = True
    return mask


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
def test_a_fused_encoder_runs_untouched_and_can_be_opened():
    model, x, mask = encoder(), torch.randn(B, T, 8), padding()
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=mask)
        t = tracer.trace(model, x, src_key_padding_mask=mask)
        opened = tracer.trace(model, x, src_key_padding_mask=mask, expand=True)
        again = model(x, src_key_padding_mask=mask)
    assert torch.equal(t.output, plain) and torch.equal(plain, again)
    assert names(t) == ["TransformerEncoder"] and t[0].outputs[0].shape == (B, T, 8)
    assert (opened.output - plain).abs().max() > 0.1  # the padded positions: what the notice is about
    assert len(opened) > 10 and any("expand=True" in w for w in opened.warnings)


def test_an_encoder_that_learns_is_open():
    model, x = encoder(), torch.randn(B, T, 8)
    plain = model(x)
    t = tracer.trace(model, x)
    assert torch.equal(plain, t.output)
    assert t.find("multi_head_attention_forward")[1].module == "layers.1.self_attn"


def test_several_fused_modules_and_what_is_between():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def f(x, other):
        y = layer(x)
        z, _ = attention(y + 1, y, y)  # three different tensors: no fused path
        w, _ = attention(z, z, z)
        return w * 2

    x = torch.randn(B, T, 8)
    with torch.no_grad():
        plain = f(x, x)
        t = tracer.trace(f, x, x)
    assert torch.equal(plain, t.output)
    kinds = [n for n in names(t) if n != "transpose"]
    assert kinds == [
        "TransformerEncoderLayer", "add", "multi_head_attention_forward", "MultiheadAttention", "mul",
    ]  # fmt: skip
    assert t[0].variable == "y" and t["w"].shape == (B, T, 8) and t["z"].shape == (B, T, 8)


def test_a_fused_module_that_fails_leaves_recording_in_place():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def f(x):
        with contextlib.suppress(RuntimeError, AssertionError):
            layer(x[..., :7])
        return x.tanh()

    with torch.no_grad():
        assert names(tracer.trace(f, torch.randn(B, T, 8))) == ["getitem", "tanh"]
        with pytest.raises((RuntimeError, AssertionError)) as e:
            tracer.trace(lambda x: layer(x[..., :7]), torch.randn(B, T, 8))
        assert names(e.value.trace) == ["getitem"]


def test_an_interrupt_inside_an_untouched_module_leaves_nothing():
    class Stops(nn.MultiheadAttention):
        def forward(self, *args, **kwargs):
            raise KeyboardInterrupt

    m = Stops(8, 2, batch_first=True).eval()
    x = torch.randn(B, T, 8)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        tracer.trace(lambda x: m(x, x, x), x)
    assert names(tracer.trace(lambda x: x + 1, x)) == ["add"]


class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.inner = torch.compile(nn.Sequential(nn.Linear(C, C), nn.ReLU()), backend=self.backend, fullgraph=True)

    def backend(self, graph, example):
        self.count += 1
        return graph

    def forward(self, x):
        x = self.inner(x)
        return x * 2


def test_a_compiled_part_is_compiled_once_and_stays_as_it_was():
    model, x = Compiled(), x_btc()
    plain = model(x)
    for _ in range(12):  # torch.compile gives up after eight versions of one function
        t = tracer.trace(model, x)
        assert torch.equal(t.output, plain)
    assert names(t) == ["Sequential", "mul"] and t[0].variable == "x"
    assert model.count == 1
    assert not model.inner._forward_hooks
    with tracer.record() as outer, tracer.record() as inner:
        model(x)
    assert names(outer) == names(inner) == ["Sequential", "mul"]
    assert model.count == 1 and not model.inner._forward_hooks


def test_a_compiled_part_that_fails():
    model = Compiled()

    def f(x):
        with contextlib.suppress(Exception):
            model(x[..., :4])
        return model(x)

    assert names(tracer.trace(f, x_btc())) == ["getitem", "Sequential", "mul"]
    assert not model.inner._forward_hooks


def test_a_compiled_model_or_function_is_one_operation():
    x = x_btc()
    linear = nn.Linear(C, 4)
    for target in (torch.compile(linear, backend="eager"), torch.compile(linear.forward, backend="eager")):
        t = tracer.trace(target, x)
        assert torch.equal(t.output, linear(x))
        assert len(t) == 1 and t[0].outputs[0].shape == (B, T, 4)
        assert any("compiled" in w for w in t.warnings)
    in_place = Block()
    plain = in_place(x)
    in_place.compile(backend="eager")
    t = tracer.trace(in_place, x)
    assert len(t) == 1 and torch.equal(t.output, plain) and torch.equal(plain, in_place(x))


def test_compiled_functions_inside_are_compiled_once_more_at_most():
    count = 0
    norm = nn.LayerNorm(C)

    def backend(graph, example):
        nonlocal count
        count += 1
        return graph

    f = torch.compile(lambda x: norm(x).softmax(-1), backend=backend, fullgraph=True)
    x = x_btc()
    plain = f(x)
    for _ in range(12):
        assert torch.equal(tracer.trace(lambda x: f(x) + 1, x).output, plain + 1)
    f(x)
    assert count == 2


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_function():
    x = torch.randn(3, 3)
    f = torch.jit.trace(lambda x: x @ x, x, check_trace=False)
    t = tracer.trace(f, x)
    assert torch.equal(t.output, x @ x) and len(t) == 1


def test_a_block_is_opened_once():
    x = x_btc()
    block = tracer.record()
    with block as t:
        x + 1
    assert names(t) == ["add"]
    with pytest.raises(TracerError, match="over"), block:
        pass


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"trace\(model, x\); the first is of type Tensor"):
        tracer.trace(torch.zeros(2, 3), nn.Linear(3, 3))


def test_memory_is_not_told_where_an_input_cannot_be_asked_for_its_storage():
    sparse = torch.eye(3).to_sparse()
    t = tracer.trace(lambda: sparse.to_dense() + 1)
    assert [op.memory for op in t] == [None, "new"]


def test_the_bytes_of_a_module_that_gives_no_tensor_go_to_no_other_operation():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = nn.Linear(30, 30)

        def forward(self, x):
            return int(x.shape[0])

    first = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    with torch.no_grad():
        traced = tracer.trace(nn.Sequential(first, torch.compile(Counts(), backend="eager")), x)
        (alone,) = tracer.trace(first, x)
    (op,) = traced
    assert (op.name, op.flops, op.bytes_read) == ("linear", alone.flops, alone.bytes_read)


@pytest.mark.parametrize("held", [False, True], ids=["free", "locals() is held"])
def test_explaining_a_failure_keeps_no_variable_of_a_function_that_goes_on(held):
    def goes_on():
        x = torch.randn(2, 5)
        alive = weakref.ref(x)
        seen = locals() if held else None
        with pytest.raises(ValueError, match="unpack") as caught, tracer.record():
            _B, _T, _C = x.shape
        assert "Shape Tracer" in caught.value.__notes__[0]
        if seen is not None:
            assert seen["x"] is x
            del seen
        del x, caught
        return alive() is None or held

    assert goes_on()
