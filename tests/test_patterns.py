"""einops: one step with the pattern as written, and beneath it what torch did."""

import pytest
import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

import tracer
from tracer.render.layout import chains

B, T, H, D = 2, 5, 3, 7
C = H * D
SIZES = {"C": C, "H": H, "D": D}


def run(function, *inputs, axes=("B T C",)):
    return tracer.trace(function, *inputs, axes=list(axes), sizes=SIZES)


def steps(trace):
    """The whole calls: name, arguments, variable, labels of what comes out."""
    return [(op.name, op.args, op.variable, [o.label for o in op.outputs]) for op in trace if op.parent is None]


def test_rearrange_is_one_step_with_its_pattern():
    def split(x):
        q = rearrange(x, "b t (h d) -> b h t d", h=H)
        return q

    t = run(split, torch.randn(B, T, C))
    assert steps(t) == [("rearrange", ("b t (h d) -> b h t d", "h=H"), "q", ["[B, H, T, D]"])]
    whole, *inner = t
    assert [(op.name, op.parent) for op in inner] == [("reshape", 0), ("permute", 0)]
    assert whole.memory == "view"
    assert whole.outputs[0].id == inner[-1].outputs[0].id
    assert t["q"].label == "[B, H, T, D]"
    assert 'rearrange(x, "b t (h d) -> b h t d", h=H)' in str(t)


def test_each_function_is_one_step():
    def f(x):
        q = rearrange(x, "b t (h d) -> b h t d", h=H)
        k = rearrange(x, "b t (h d) -> b h t d", h=H)
        scores = einsum(q, k, "b h t d, b h s d -> b h t s")
        mean = reduce(q, "b h t d -> b h t", "mean")
        row = repeat(mean, "b h t -> b h t e", e=4)
        both, shapes = pack([q, k], "b * t d")
        one, other = unpack(both, shapes, "b * t d")
        return scores, row, one, other

    t = run(f, torch.randn(B, T, C))
    assert steps(t)[2:] == [
        ("einsum", ("b h t d, b h s d -> b h t s",), "scores", ["[B, H, T, T]"]),
        ("reduce", ("b h t d -> b h t", "mean"), "mean", ["[B, H, T]"]),
        ("repeat", ("b h t -> b h t e", "e=4"), "row", ["[B, H, T, ?=4]"]),
        ("pack", ("b * t d",), "both", ["[B, 2H, T, D]"]),
        ("unpack", ("b * t d",), "one", ["[B, H, T, D]", "[B, H, T, D]"]),
    ]
    assert t["scores"].origins == (None, None, "T of q", "T of k")
    assert t["other"].label == "[B, H, T, D]"
    assert t.warnings == ()
    assert t.unnamed == ()


def test_two_calls_on_one_line_and_calls_in_a_loop_stay_apart():
    def f(x):
        a, b = [rearrange(y, "b t c -> b c t") for y in (x, x)]
        return rearrange(rearrange(a, "b c t -> c t b"), "c t b -> b t c") + b.mT

    t = run(f, torch.randn(B, T, C))
    assert [op.name for op in t if op.parent is None].count("rearrange") == 4


def test_what_a_function_returns_is_named_by_its_caller():
    def split(x):
        return rearrange(x, "b t (h d) -> b h t d", h=H)

    def f(x):
        q = split(x)
        return q

    assert run(f, torch.randn(B, T, C))["q"].label == "[B, H, T, D]"


def test_layers_say_their_pattern():
    model = nn.Sequential(
        Rearrange("b t (h d) -> b h t d", h=H),
        Reduce("b h t d -> b h d", "max"),
        EinMix("b h d -> b h e", "d e", d=D, e=4),
    )
    t = run(model, torch.randn(B, T, C))
    assert [(op.name, op.args) for op in t if op.parent is None] == [
        ("Rearrange", ("b t (h d) -> b h t d", "h=3")),
        ("Reduce", ("b h t d -> b h d", "max")),
        ("EinMix", ("b h d -> b h e", "d=7", "e=4")),
    ]
    assert [op.module for op in t if op.parent is None] == ["0", "1", "2"]


def test_a_pattern_held_in_a_variable_is_shown_as_the_code_has_it():
    pattern = "b t c -> b c t"
    t = run(lambda x: rearrange(x, pattern), torch.randn(B, T, C))
    assert steps(t)[0][1] == ("pattern",)


@pytest.mark.parametrize("sizes", [(2, 5, 3, 7), (4, 4, 4, 4)], ids=str)
def test_attention_in_einops_has_the_names_of_any_other(sizes):
    b, n, h, d = sizes

    def attention(x):
        q, k, v = (rearrange(x, "b t (h d) -> b h t d", h=h) for _ in range(3))
        weights = (einsum(q, k, "b h t d, b h s d -> b h t s") * d**-0.5).softmax(-1)
        heads = einsum(weights, v, "b h t s, b h s d -> b h t d")
        joined = rearrange(heads, "b h t d -> b t (h d)")
        return joined

    t = tracer.trace(attention, torch.randn(b, n, h * d), axes=["B T C"], sizes={"C": h * d, "H": h, "D": d})
    assert t["weights"].axes == ("B", "H", "T", "T")
    assert t["joined"].axes == ("B", "T", "C")
    assert t.warnings == ()


def test_inside_an_open_block_and_after_it():
    x = torch.randn(B, T, C)
    with tracer.record(axes={"x": "B T C"}, sizes=SIZES) as t:
        q = rearrange(x, "b t (h d) -> b h t d", h=H)
        t.name(q, "B H T D")
    assert t["q"].label == "[B, H, T, D]"
    assert steps(t)[0][0] == "rearrange"


def test_calls_with_patterns_of_their_own_on_one_line_stay_apart():
    patterns = ("b t c -> t b c", "b t c -> (b t) c")  # the first ends before the instruction where the second begins

    def f(x):
        found = []
        for pattern in patterns:
            y = rearrange(x, pattern)
            found.append(y)
        return found

    t = run(f, torch.randn(B, T, C))
    assert steps(t) == [
        ("rearrange", ("pattern",), "y", ["[T, B, C]"]),
        ("rearrange", ("pattern",), "y", ["[(B T), C]"]),
    ]
    assert [op.parent for op in t] == [None, 0, None, 2]


def test_steps_stand_below_their_own_call():
    def f(x):
        return repeat(reduce(x, "b t c -> b c", "mean"), "b c -> b e c", e=4)

    (line,) = run(f, torch.randn(B, T, C)).lines()
    whole, first, second = chains(line)
    assert [step.op.name for step in whole.steps] == ["reduce", "repeat"]
    assert not whole.inner
    assert [step.op.name for step in first.steps] == ["permute", "mean"]
    assert [step.op.name for step in second.steps] == ["unsqueeze", "expand"]
    assert first.inner
    assert second.inner


def test_parents_come_back_from_json():
    t = run(lambda x: rearrange(x, "b t (h d) -> b h t d", h=H), torch.randn(B, T, C))
    again = tracer.Trace.from_json(t.to_json())
    assert [op.parent for op in again] == [None, 0, 0]
    assert str(again) == str(t)


def test_a_call_costs_what_its_steps_cost_and_work_stays_with_its_operation():
    q = torch.randn(B, H, T, D)
    encoder = nn.TransformerEncoderLayer(C, H, batch_first=True).eval()

    def f(q):
        scores = einsum(q, q, "b h t d, b h s d -> b h t s")
        with torch.no_grad():
            return reduce(scores, "b h t s -> b h t", "mean"), encoder(rearrange(q, "b h t d -> b t (h d)"))

    t = tracer.trace(f, q, axes=["B H T D"])
    ops = {op.name: op for op in t if op.parent is None}
    assert ops["einsum"].flops == 2 * B * H * T * T * D
    assert ops["einsum"].bytes_new == 4 * B * H * T * T
    assert ops["rearrange"].flops == ops["reduce"].flops == 0
    assert ops["TransformerEncoderLayer"].flops > ops["einsum"].flops
    assert t.flops == ops["einsum"].flops + ops["TransformerEncoderLayer"].flops
