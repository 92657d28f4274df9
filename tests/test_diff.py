"""Two traces compared: which steps answer to each other, what differs, where they part, and how that is shown."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from handmade import SIZES, Maker, gpt
from torch import Tensor, nn

import tracer
from tracer import alignment
from tracer.diff import Diff
from tracer.models import GPT, GPTConfig
from tracer.pairs import WHAT, Pair
from tracer.result import Trace

B, T, H, D = 2, 5, 3, 7
C = H * D


def told(diff: Diff) -> list[str]:
    """Return each difference in short: `gone layer_norm`, `changed div: arguments`."""
    return [f"{p.kind} {p.name}" + (f": {', '.join(p.what)}" if p.what else "") for p in diff]


def first(diff: Diff) -> tuple[str, str, tuple[str, str]]:
    """Return where two traces part: kind, name, and the shapes of both."""
    assert diff.first is not None
    return diff.first.kind, diff.first.name, diff.first.labels


def code(pair: Pair | None) -> str:
    """Return the line of code of a difference, that of theirs where there is only one."""
    op = pair and (pair.mine or pair.theirs)
    assert op is not None and op.source is not None
    return op.source.code


# ---------------------------------------------------------------- attention, by a learner and by the reference


class Parts(nn.Module):
    """The learned maps of one attention, and a function that uses them."""

    axes: ClassVar[dict[str, str]] = {"x": "B T C", "qkv.weight": "3C C", "o.weight": "C C"}
    sizes: ClassVar[dict[str, int]] = {"C": C, "H": H, "D": D}

    def __init__(self, run: Callable[["Parts", Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run
        self.qkv, self.o = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def run(f: Callable[[Any, Tensor], Tensor], batch: int = B, length: int = T) -> Trace:
    """Trace one way to write attention; where it fails, what it did until then."""
    try:
        return tracer.trace(Parts(f), torch.zeros(batch, length, C))
    except RuntimeError as error:
        return error.trace  # type: ignore[attr-defined,no-any-return]


def reference(s: Parts, x: Tensor) -> Tensor:
    B, T, C = x.shape
    q, k, v = s.qkv(x).split(C, dim=2)
    q = q.view(B, T, H, D).transpose(1, 2)
    k = k.view(B, T, H, D).transpose(1, 2)
    v = v.view(B, T, H, D).transpose(1, 2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)
    mask = torch.ones(T, T).tril()
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    heads = weights @ v
    out = heads.transpose(1, 2).contiguous().view(B, T, C)
    return s.o(out)


def masked(att: Tensor) -> Tensor:
    n = att.shape[-1]
    return att.masked_fill(torch.ones(n, n).tril() == 0, float("-inf"))


def no_transpose(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    qq, kk, vv = s.qkv(x).split(c, dim=2)
    qq = qq.view(b, t, H, D)
    kk = kk.view(b, t, H, D)
    vv = vv.view(b, t, H, D)
    att = qq @ kk.transpose(-2, -1) / math.sqrt(D)
    return s.o((F.softmax(masked(att), dim=-1) @ vv).reshape(b, t, c))


def not_transposed_back(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = F.softmax(masked(q @ k.transpose(-2, -1) / math.sqrt(D)), dim=-1)
    return s.o((att @ v).reshape(b, t, c))


def scaled_by_width(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = F.softmax(masked(q @ k.transpose(-2, -1) / math.sqrt(c)), dim=-1)
    return s.o((att @ v).transpose(1, 2).reshape(b, t, c))


def wrong_softmax(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = masked(q @ k.transpose(-2, -1) / math.sqrt(D)).softmax(-2)
    return s.o((att @ v).transpose(1, 2).reshape(b, t, c))


def keys_for_values(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, _ = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = F.softmax(masked(q @ k.transpose(-2, -1) / math.sqrt(D)), dim=-1)
    return s.o((att @ k).transpose(1, 2).reshape(b, t, c))


def no_mask(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1)
    return s.o((att @ v).transpose(1, 2).reshape(b, t, c))


def keys_as_they_are(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (part.view(b, t, H, D).transpose(1, 2) for part in s.qkv(x).split(c, dim=2))
    att = q @ k
    return s.o((att.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


def another_order(s: Parts, x: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = s.qkv(x).split(c, dim=2)
    v, k, q = (part.reshape(b, t, H, D).permute(0, 2, 1, 3) for part in (v, k, q))
    att = masked(torch.einsum("bhtd,bhsd->bhts", q, k) * D**-0.5).softmax(-1)
    return s.o(torch.matmul(att, v).permute(0, 2, 1, 3).reshape(b, t, c))


@pytest.mark.parametrize(
    ("mistake", "parted", "line"),
    [
        (no_transpose, ("added", "transpose", ("[B, T, H, D]", "[B, H, T, D]")), "q = q.view(B, T, H, D).transpose("),
        (not_transposed_back, ("added", "transpose", ("[B, H, T, D]", "[B, T, H, D]")), "out = heads.transpose(1, 2)"),
        (scaled_by_width, ("changed", "div", ("[B, H, T, T]", "[B, H, T, T]")), "att = F.softmax(masked(q @"),
        (wrong_softmax, ("changed", "softmax", ("[B, H, T, T]", "[B, H, T, T]")), "att = masked(q @"),
        (keys_for_values, ("changed", "matmul", ("[B, H, T, D]", "[B, H, T, D]")), "return s.o((att @ k)"),
        (no_mask, ("added", "ones", ("", "[T, T]")), "mask = torch.ones(T, T).tril()"),
        (keys_as_they_are, ("added", "transpose", ("[B, H, T, D]", "[B, H, D, T]")), "scores = q @ k.transpose("),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)  # fmt: skip
def test_where_a_learner_parts_from_the_reference(mistake: Any, parted: Any, line: str) -> None:
    diff = run(mistake).diff(run(reference))
    assert first(diff) == parted
    assert code(diff.first).startswith(line)


@pytest.mark.parametrize("style", [another_order])
def test_another_style_parts_nowhere_that_matters(style: Any) -> None:
    diff = run(style).diff(run(reference))
    assert [p for p in told(diff) if "inputs" in p or "names" in p or "sizes" in p] == []
    assert all(pair.minor for pair in diff)


def test_what_differs_is_said() -> None:
    of = {f.__name__: run(f).diff(run(reference)).first for f in (scaled_by_width, wrong_softmax, keys_for_values)}
    assert {name: pair and pair.what for name, pair in of.items()} == {
        "scaled_by_width": ("arguments",),
        "wrong_softmax": ("arguments",),
        "keys_for_values": ("inputs",),
    }


def test_a_run_that_stopped_is_compared_up_to_there() -> None:
    diff = run(keys_as_they_are).diff(run(reference), mine="yours", theirs="the reference")
    assert diff[1].what == ("error",)
    assert "~ matmul: raised an error in yours" in str(diff).replace("[B, H, T, T]; ", "")


# ---------------------------------------------------------------- models


def model(batch: int = B, length: int = T, **changes: Any) -> Trace:
    """Trace a small GPT."""
    config = GPTConfig(**({"n_layer": 3, "n_head": 4, "n_embd": 24, "vocab_size": 11, "block_size": 8} | changes))
    return tracer.trace(GPT(config).eval(), torch.zeros(batch, length, dtype=torch.long))


@pytest.fixture(scope="module")
def base() -> Trace:
    return model()


def test_equal_traces(base: Trace) -> None:
    diff = base.diff(model())
    assert not diff and len(diff) == 0 and diff.first is None and diff.sizes == {}
    assert str(diff) == "The two traces are equal: 98 operations."
    assert len(diff.pairs) == 98
    assert "The two traces are equal" in diff.to_html()


def test_more_heads_change_sizes_alone(base: Trace) -> None:
    diff = base.diff(model(n_head=8))
    assert {pair.what for pair in diff} == {("sizes",), ("sizes", "arguments")}
    assert diff.sizes == {"H": ("4", "8"), "D": ("6", "3")}
    assert first(diff) == ("changed", "view", ("[B, T, H, D]", "[B, T, H, D]"))
    changed = {op.index for op in base if any({"H", "D"} & set(out.axes) for out in op.outputs)}
    assert {pair.mine.index for pair in diff if pair.mine} == changed


def test_another_batch_and_length_change_every_step(base: Trace) -> None:
    diff = base.diff(model(batch=3, length=7))
    assert (len(diff), {pair.what for pair in diff}) == (98, {("sizes",)})
    assert diff.sizes == {"B": ("2", "3"), "T": ("5", "7")}


def test_post_norm_moves_the_norms_alone(base: Trace) -> None:
    diff = base.diff(model(norm="post"))
    assert told(diff).count("gone layer_norm") == 6  # two in each of three blocks
    assert set(told(diff)) == {"gone layer_norm", "added layer_norm"}
    assert code(diff.first) == "x = x + self.attn(self.ln_1(x))"


def test_a_block_more(base: Trace) -> None:
    diff = base.diff(model(n_layer=4))
    assert {pair.kind for pair in diff} == {"added"}
    assert {pair.theirs.module.split(".")[2] for pair in diff if pair.theirs} == {"3"}
    assert len(diff) == 30
    assert {pair.kind for pair in model(n_layer=4).diff(base)} == {"gone"}


def test_what_is_inserted_into_a_numbered_stack() -> None:
    x = torch.zeros(2, 3)
    one = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7))
    two = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 7))
    assert told(tracer.trace(one, x).diff(tracer.trace(two, x))) == ["added dropout"]


class Grouped(nn.Module):
    """Attention whose keys and values have G heads."""

    axes: ClassVar[dict[str, str]] = {"x": "B T C"}

    def __init__(self, G: int) -> None:
        super().__init__()
        self.G, self.sizes = G, {"C": C, "H": H, "D": D, "G": G}
        self.wq, self.wk, self.wv = nn.Linear(C, C), nn.Linear(C, G * D), nn.Linear(C, G * D)

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        q = self.wq(x).view(B, T, H, D).transpose(1, 2)
        k = self.wk(x).view(B, T, self.G, D).transpose(1, 2)
        v = self.wv(x).view(B, T, self.G, D).transpose(1, 2)
        if self.G < H:
            k = k.repeat_interleave(H // self.G, dim=1)
            v = v.repeat_interleave(H // self.G, dim=1)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v


def test_grouped_heads() -> None:
    x = torch.zeros(B, T, C)
    diff = tracer.trace(Grouped(H), x).diff(tracer.trace(Grouped(1), x))
    assert told(diff).count("added repeat_interleave") == 2
    assert not any(pair.kind == "gone" for pair in diff)
    assert first(diff)[:2] == ("changed", "linear") and code(diff.first).startswith("k = self.wk(x)")


class Maps(nn.Module):
    """Three maps, used in one of two orders."""

    def __init__(self, first: str) -> None:
        super().__init__()
        self.first = first
        self.wq, self.wk = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        if self.first == "q":
            q = self.wq(x)
            k = self.wk(x)
        else:
            k = self.wk(x)
            q = self.wq(x)
        return q @ k.mT


def test_the_order_of_independent_steps_does_not_count() -> None:
    x = torch.zeros(T, C)
    diff = tracer.trace(Maps("q"), x).diff(tracer.trace(Maps("k"), x))
    assert not diff
    assert [(p.mine.module, p.theirs.module) for p in diff.pairs if p.mine and p.theirs][:2] == [
        ("wq", "wq"),
        ("wk", "wk"),
    ]


def loop(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = torch.tanh(x + 1)
    return x


@pytest.mark.parametrize(("n", "m", "kinds"), [(3, 5, ["added"] * 4), (5, 3, ["gone"] * 4), (4, 4, [])])
def test_a_loop_that_runs_longer(n: int, m: int, kinds: list[str]) -> None:
    one, two = (tracer.trace(loop, torch.zeros(3), n=k) for k in (n, m))
    assert [pair.kind for pair in one.diff(two)] == kinds


# ---------------------------------------------------------------- one step at a time, by hand


def step(name: str = "softmax", axes: str = "B T C", **more: Any) -> Trace:
    """Return a trace of one step."""
    m = Maker()
    x = m.tensor("B T C", "x")
    tensor = {k: more.pop(k) for k in ("shape", "memory", "dtype") if k in more}
    m.op(
        name, [x, *more.pop("others", [])], m.tensor(axes, "y", **({"memory": "new"} | tensor)), (1, "y = f(x)"), **more
    )
    return Trace.from_ops(m.ops)


@pytest.mark.parametrize(
    ("mine", "theirs", "what", "minor"),
    [
        ({}, {}, (), False),
        ({"axes": "B C T"}, {}, ("names",), False),
        ({"axes": "B T"}, {}, ("names",), False),
        ({"shape": (2, 6, 21)}, {}, ("sizes",), True),
        ({"axes": "B ? C", "shape": (2, 5, 21)}, {}, (), False),
        ({"axes": "B ? C", "shape": (2, 6, 21)}, {}, ("sizes",), False),
        ({"dtype": "torch.int64"}, {}, ("dtype",), False),
        ({"memory": "view"}, {}, ("memory",), True),
        ({"args": ("dim=-1",)}, {"args": (2,)}, (), False),
        ({"args": ("dim=-1", "dtype=None")}, {"args": (-1,)}, (), False),
        ({"args": ("dim=-1",)}, {"args": ("dim=1",)}, ("arguments",), False),
        ({"args": (1,), "shape": (2, 6, 21)}, {"args": (2,)}, ("sizes", "arguments"), False),
        ({"name": "div", "args": (2.0,)}, {"name": "div", "args": (2.0000000001,)}, (), False),
        ({"name": "div", "args": (2.0,)}, {"name": "mul", "args": (0.5,)}, ("operation",), True),
        ({"name": "div", "args": (2.0,)}, {"name": "mul", "args": (2.0,)}, ("operation",), False),
        ({"name": "view"}, {"name": "reshape"}, ("operation",), True),
        ({"name": "view", "axes": "B C T"}, {"name": "reshape"}, ("operation", "names"), False),
        ({"name": "view", "args": (2, -1, 21)}, {"name": "view", "args": (2, 5, 21)}, (), False),
        ({"name": "mul", "args": (-1,)}, {"name": "mul", "args": (2,)}, ("arguments",), False),
        ({"args": ("is_causal=True",)}, {}, ("arguments",), False),
        ({"args": ("is_causal=False",)}, {}, (), False),
    ],
)  # fmt: skip
def test_what_differs_between_two_steps(mine: Any, theirs: Any, what: Any, minor: bool) -> None:
    if mine.get("name") == "view":
        mine, theirs = {"memory": "view"} | mine, {"memory": "view"} | theirs
    (pair,) = step(**mine).diff(step(**theirs)).pairs
    assert (pair.kind, pair.what) == ("changed" if what else "equal", what)
    assert not what or pair.minor == minor
    assert set(pair.what) <= set(WHAT)


def test_a_parameter_more_is_minor() -> None:
    m = Maker()
    (pair,) = step(others=[m.tensor("C", "bias")]).diff(step())
    assert (pair.what, pair.minor) == (("parameters",), True)


def test_an_empty_trace() -> None:
    assert told(Trace.from_ops(()).diff(step())) == ["added softmax"]
    assert told(step().diff(Trace.from_ops(()))) == ["gone softmax"]
    assert str(Trace.from_ops(()).diff(Trace.from_ops(()))) == "The two traces are equal: 0 operations."


def test_a_diff_is_a_sequence_that_is_true_if_there_is_a_difference(base: Trace) -> None:
    diff = base.diff(model(n_layer=4))
    assert diff and diff[0] is diff.first and diff[-1] in list(diff) and len(diff[1:3]) == 2
    with pytest.raises(AttributeError):
        diff[0].kind = "equal"  # type: ignore[misc]
    assert repr(diff) == "<Diff: this trace: 98 operations, the other: 128 operations; 30 added, 98 equal>"


# ---------------------------------------------------------------- long traces


def test_long_traces_are_cut_where_they_agree(monkeypatch: pytest.MonkeyPatch, base: Trace) -> None:
    other = model(norm="post", n_layer=4)
    whole = told(base.diff(other))
    monkeypatch.setattr(alignment, "_MOST_CELLS", 400)
    assert told(base.diff(other)) == whole


def test_long_traces_that_agree_nowhere_still_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "_MOST_CELLS", 50)
    one, two = Maker(file="a.py"), Maker(file="b.py")
    for m, n in ((one, 40), (two, 60)):
        x = m.tensor("B T C", "x")
        for i in range(n):
            x = m.op("tanh", [x], m.tensor("B T C", "x", memory="new"), (i + 1, "x = x.tanh()"))
    diff = Trace.from_ops(one.ops).diff(Trace.from_ops(two.ops))
    mine = [pair.mine.index for pair in diff.pairs if pair.mine]
    theirs = [pair.theirs.index for pair in diff.pairs if pair.theirs]
    assert (mine, theirs) == (list(range(40)), list(range(60)))


def test_every_step_stands_once() -> None:
    for a, b in ((model(norm="post"), model(n_layer=2)), (run(another_order), run(no_mask)), (run(no_mask), model())):
        pairs = a.diff(b).pairs
        assert sorted(p.mine.index for p in pairs if p.mine) == list(range(len(a)))
        assert sorted(p.theirs.index for p in pairs if p.theirs) == list(range(len(b)))


# ---------------------------------------------------------------- shown


def test_as_text(golden: Callable[[str, str], None]) -> None:
    one, two = gpt(3), tuple(replace(op, args=(0.5,)) if op.name == "div" else op for op in gpt(4))
    two = tuple(op for op in two if not (op.name == "transpose" and op.variable == "k"))
    mine, theirs = (Trace.from_ops(ops, sizes=SIZES, device="cpu") for ops in (one, two))
    golden("diff.txt", str(mine.diff(theirs)))


def test_the_lines_and_shapes_where_they_part() -> None:
    diff = run(no_transpose).diff(run(reference), mine="yours", theirs="the reference")
    summary = re.sub(r"test_diff.py:\d+", "line", diff.summary)
    assert summary.splitlines()[-4:] == [
        "They part here:",
        "  yours: line   qq = qq.view(b, t, H, D)",
        "  the reference: line   q = q.view(B, T, H, D).transpose(1, 2)",
        "  transpose: the reference has [B, H, T, D], yours stays at [B, T, H, D]",
    ]
    assert str(diff).startswith(diff.summary)


def test_repeated_blocks_are_shown_once(base: Trace) -> None:
    diff = base.diff(model(n_head=8))
    assert str(diff).count("~ masked_fill") == 1
    assert "transformer.h.1-2: as transformer.h.0 (34 steps)" in str(diff)
    page = diff.to_html()
    assert page.count('</b> <span class="st-op">masked_fill') == 3 and "<details><summary>transformer.h.1-2" in page


def test_the_page_says_what_the_text_says() -> None:
    diff = run(no_transpose).diff(run(reference), mine="yours", theirs="the reference")
    page = re.sub(r"<style>.*?</style>|<[^>]*>", "", diff.to_html())
    for words in [
        "They part here:",
        "+ added transpose",
        "~ changed matmul",
        "yours",
        "the reference",
        "stays at",
        "[B, H, T, T]",
    ]:
        assert words in page
    assert diff.to_html().startswith("<!doctype html>") and diff._repr_html_() in diff.to_html()
    assert not re.search(r"<script|https?:|url\(|@import", diff.to_html())


@pytest.mark.parametrize(
    "nasty", ['<script>alert("1")</script>', "</style><img src=x onerror=alert(1)>", "\x1b[2J\r\n\u202e"]
)
def test_any_text_shows_as_text(nasty: str) -> None:
    m = Maker(file=nasty)
    x = replace(m.tensor("B T", nasty), label=nasty, dtype=nasty, axes=(nasty, "T"), variable=nasty)
    m.op(nasty, [x], replace(x, id=77), (1, nasty), module=nasty, args=(nasty,))
    one = Trace.from_ops(m.ops)
    for other in (Trace.from_ops(()), Trace.from_ops([replace(m.ops[0], args=(1,))])):
        diff = one.diff(other, mine=nasty, theirs=nasty)
        assert not re.search(r"<(script|img)", diff.to_html())
        assert all(c.isprintable() or c == "\n" for c in str(diff))


def test_saved_traces_compare_as_the_traces_themselves(base: Trace) -> None:
    other = model(norm="post")
    saved = Trace.from_json(base.to_json()).diff(Trace.from_json(json.loads(json.dumps(other.to_json()))))
    assert str(saved) == str(base.diff(other))
    assert saved.to_html() == base.diff(other).to_html()
