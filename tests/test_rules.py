"""One operation at a time: names in, names out, with distinct sizes and with all sizes equal."""

import pytest
import torch
import torch.nn.functional as F

import tracer
from tracer.naming import parse_axes
from tracer.rules import RULES, rule

DISTINCT = {"B": 2, "T": 5, "S": 11, "H": 3, "D": 8, "C": 24, "M": 13, "V": 17, "E": 6, "K": 2}
EQUAL = {"B": 4, "T": 4, "S": 4, "H": 4, "D": 4, "C": 16, "M": 16, "V": 4, "E": 4, "K": 4}
CASES = []


def case(expected, *inputs, **sizes):
    """Register one program: the names of its inputs and of its last operation's outputs."""

    def register(f):
        CASES.append(pytest.param(f, inputs, expected, sizes, id=f.__name__ if f.__name__ != "<lambda>" else expected))
        return f

    return register


def program(expected, f, *inputs):
    """Register a one-line program."""
    CASES.append(pytest.param(f, inputs, expected, {}, id=f"{len(CASES)}: {expected}"))


# views
program("B T H D", lambda x, n: x.view(n["B"], n["T"], n["H"], n["D"]), "B T C")
program("B T H D", lambda x, n: x.reshape(*x.shape[:-1], n["H"], -1), "B T C")
program("B T C", lambda x, n: x.view(n["B"], n["T"], n["C"]), "B T H D")
program("(B T) V", lambda x, n: x.view(-1, n["V"]), "B T V")
program("(B T V)", lambda x, n: x.reshape(-1), "B T V")
program("B T H D", lambda x, n: x.view(n["B"] * n["T"], -1).view(n["B"], n["T"], n["H"], n["D"]), "B T C")
program("B T C", lambda x, n: x.flatten(2), "B T H D")
program("(B T) C", lambda x, n: x.flatten(0, 1), "B T C")
program("B T H D", lambda x, n: x.unflatten(-1, (n["H"], n["D"])), "B T C")
program("B T 1 C", lambda x, n: x.view(n["B"], n["T"], 1, n["C"]), "B T C")
program("B T H D/2 2", lambda x, n: x.view(n["B"], n["T"], n["H"], n["D"] // 2, 2), "B T H D")
program("B T 2 D/2", lambda x, n: x.reshape(n["B"], n["T"], 2, -1), "B T D")
program("B H T D", lambda x, n: x.transpose(1, 2), "B T H D")
program("B H T D", lambda x, n: x.swapaxes(1, 2), "B T H D")
program("B H T D", lambda x, n: x.permute(0, 2, 1, 3), "B T H D")
program("B H T D", lambda x, n: torch.permute(x, (0, 2, 1, 3)), "B T H D")
program("B H T D", lambda x, n: x.movedim(2, 1), "B T H D")
program("B D T", lambda x, n: x.mT, "B T D")
program("D T", lambda x, n: x.T, "T D")
program("D T", lambda x, n: x.t(), "T D")
program("B 1 T", lambda x, n: x.unsqueeze(1), "B T")
program("B T 1", lambda x, n: x[..., None], "B T")
program("B T", lambda x, n: x.unsqueeze(1).squeeze(1), "B T")
program("? T C", lambda x, n: x.unsqueeze(0).expand(n["B"], -1, -1), "T C")
program("B T C", lambda x, y, n: x.expand_as(y), "T C", "B T C")
program("B T C", lambda x, n: x.contiguous(), "B T C")

# joins and cuts
program("B S+T D", lambda x, y, n: torch.cat([x, y], dim=1), "B S D", "B T D")
program("B T+1 D", lambda x, n: torch.cat([x, torch.zeros(n["B"], 1, n["D"])], 1), "B T D")
program("B T 2C", lambda x, y, n: torch.cat((x, y), -1), "B T C", "B T C")
program("B T D", lambda x, n: torch.cat((-x[..., n["D"] // 2 :], x[..., : n["D"] // 2]), -1), "B T D")
program("B T C", lambda x, n: x.split(n["C"], dim=-1), "B T 3C")
program("B T C", lambda x, n: x.chunk(3, dim=2), "B T 3C")
program("B T D/2", lambda x, n: x.chunk(2, dim=-1), "B T D")
program("B T C", lambda x, n: x.unbind(0), "3 B T C")
program("B C", lambda x, n: x.select(1, 0), "B T C")
program("B T C", lambda x, n: x.roll(1, dims=1), "B T C")
program("T T", lambda x, n: x.tril(), "T T")

# indexing
program("B C", lambda x, n: x[:, -1], "B T C")
program("B 1 C", lambda x, n: x[:, -1:], "B T C")
program("B 1 1 T", lambda x, n: x[:, None, None, :], "B T")
program("B T C", lambda x, n: x[:, : n["T"]], "B T C")
program("C B T", lambda x, n: x[..., 0].permute(2, 0, 1), "B T C H")
program("B T D/2", lambda x, n: x[..., 0::2], "B T D")
program("B T C", lambda x, i, n: x[i.long() % n["V"]], "V C", "B T")
program(
    "B T", lambda x, n: x.gather(-1, torch.zeros(n["B"], n["T"], 1, dtype=torch.long)).squeeze(-1) + x[..., 0], "B T V"
)
program("T C", lambda x, i, n: x.index_select(0, i.long() % n["V"]), "V C", "T")

# products
program("B H T S", lambda q, k, n: q @ k.transpose(-2, -1), "B H T D", "B H S D")
program("B H T D", lambda w, v, n: torch.matmul(w, v), "B H T S", "B H S D")
program("B T S", lambda q, k, n: torch.bmm(q, k.mT), "B T D", "B S D")
program("B T", lambda x, w, n: x @ w, "B T C", "C")
program("B T M", lambda x, w, n: F.linear(x, w), "B T C", "M C")
program(
    "B T M", lambda x, w, b, n: torch.addmm(b, x.view(-1, n["C"]), w).view(n["B"], n["T"], n["M"]), "B T C", "C M", "M"
)
program("B H T S", lambda q, k, n: torch.einsum("bhtd,bhsd->bhts", q, k), "B H T D", "B H S D")
program("B T H D", lambda x, w, n: torch.einsum("btc,chd->bthd", x, w), "B T C", "C H D")
program("B H T S", lambda q, k, n: torch.einsum("...td,...sd->...ts", q, k), "B H T D", "B H S D")
program("T D", lambda a, b, n: torch.outer(a, b), "T", "D")
program("B T C", lambda i, w, n: F.embedding(i.long() % n["V"], w), "B T", "V C")
program("B H T D", lambda q, k, v, n: F.scaled_dot_product_attention(q, k, v), "B H T D", "B H S D", "B H S D")

# entry by entry, along an axis, away an axis
program("B T C", lambda x, y, n: x + y, "B T C", "T C")
program("B T C", lambda x, y, n: 1 - x * y, "B T C", "C")
program("B T C", lambda x, n: F.gelu(x).clamp(min=0), "B T C")
program("B H T S", lambda s, m, n: s.masked_fill(m == 0, float("-inf")), "B H T S", "T S")
program("B T S", lambda m, a, n: torch.where(m > 0, a, torch.zeros(1)), "T S", "B T S")
program("B H T S", lambda s, n: s.softmax(dim=-1), "B H T S")
program("B T 1", lambda x, n: x.mean(-1, keepdim=True), "B T C")
program("B C", lambda x, n: x.sum(dim=1), "B T C")
program("", lambda x, n: x.mean(), "B T C")
program("T", lambda x, n: x.amax((0, 2)), "B T C")
program("B T", lambda x, n: x.max(dim=-1), "B T V")
program("B T", lambda x, n: x.argmax(-1), "B T V")
program("B T K", lambda x, n: x.topk(n["K"], dim=-1), "B T E")
program("B T C", lambda x, w, n: F.layer_norm(x, (n["C"],), w), "B T C", "C")
program("B T C", lambda x, n: x.cumsum(1), "B T C")
program("", lambda x, i, n: F.cross_entropy(x.view(-1, n["V"]), i.long().view(-1) % n["V"]), "B T V", "B T")
program("B T", lambda x, i, n: F.cross_entropy(x.transpose(1, 2), i.long() % n["V"], reduction="none"), "B T V", "B T")

# windows
program("B M ?", lambda x, w, n: F.conv1d(x, w, padding=1), "B C T", "M C 3")
program("B C ?", lambda x, n: F.max_pool1d(x, 1), "B C T")

# axes that get their name from what they are lined up with
program("B T C", lambda x, n: x + torch.arange(n["T"])[:, None], "B T C")
program("B H T S", lambda s, n: s + torch.full((n["T"], n["S"]), 0.0).triu(1), "B H T S")


def make(axes, sizes):
    shape = []
    for name in parse_axes(axes):
        shape.append(sizes[name] if name in sizes else 3 * sizes["C"] if name == "3C" else int(name))
    return torch.rand(shape)


@pytest.mark.parametrize("sizes", [DISTINCT, EQUAL], ids=["distinct", "equal"])
@pytest.mark.parametrize(("f", "inputs", "expected", "more"), CASES)
def test_names_of_one_operation(f, inputs, expected, more, sizes):
    sizes = {**sizes, **more}
    declared = {k: v for k, v in sizes.items() if k not in "BTS"}
    tensors = [make(i, sizes) for i in inputs]
    t = tracer.trace(lambda *xs: f(*xs, sizes), *tensors, axes=list(inputs), sizes=declared)
    wanted = parse_axes(expected)
    for out in t[-1].outputs:
        assert out.axes == wanted, str(t)
    assert t.unnamed == ()


def test_names_reach_back_to_where_an_axis_was_made():
    x = torch.rand(2, 5, 7)
    t = tracer.trace(lambda x: x + torch.arange(5)[:, None], x, axes=["B T C"])
    assert t.find("arange")[0].outputs[0].axes == ("T",)


def test_an_operation_without_a_rule_is_listed_and_shows_sizes():
    t = tracer.trace(torch.linalg.svdvals, torch.rand(2, 5, 7), axes=["B T C"])
    assert t.unnamed == ("linalg_svdvals",)
    assert t[0].outputs[0].label == "[?=2, ?=5]"


def test_two_rules_for_one_name_are_refused():
    with pytest.raises(ValueError, match="two rules for view"):
        rule("view")(lambda step: None)
    assert "view" in RULES


def test_a_slice_of_a_constant_is_a_new_axis_even_where_it_is_full():
    mask = torch.ones(5, 5)
    t = tracer.trace(lambda x, n: x + mask[:n, :n], torch.rand(2, 5, 5), 5, axes=["B T S"])
    assert t.find("getitem")[0].outputs[0].axes == ("T", "S")


# ---------------------------------------------------------------- sizes that tell nothing


def last(f, *tensors, axes, sizes=None):
    """Trace one program and return the labels of its last operation, and the warnings."""
    t = tracer.trace(f, *tensors, axes=axes, sizes=sizes)
    return [o.axes for o in t[-1].outputs], t.warnings


class Holder(torch.nn.Module):
    """One parameter and what is done with it."""

    def __init__(self, f, *shape):
        super().__init__()
        self.f, self.p = f, torch.nn.Parameter(torch.rand(shape))

    def forward(self, x):
        return self.f(x, self.p)


def test_a_small_parameter_is_not_named_by_its_size_alone():
    x = torch.rand(2, 5, 6, 6)
    colours = torch.nn.Conv2d(5, 24, 3)
    t = tracer.trace(colours, x, axes=["B R Y X"], sizes={"C": 24, "H": 3, "D": 8})
    assert t[0].inputs[1].axes == ("C", "R", "?", "?")  # a kernel of 3 is no head
    assert t[0].outputs[0].axes == ("B", "C", "?", "?")
    table = Holder(lambda x, p: p.expand(2, -1, -1) * 2, 1, 3, 24)
    axes, _ = last(table, x, axes=["B R Y X"], sizes={"C": 24, "H": 3, "D": 8})
    assert axes == [("?", "?", "C")]
    classes = torch.nn.Linear(24, 3)
    axes, _ = last(classes, torch.rand(2, 24), axes=["B C"], sizes={"C": 24, "H": 3, "D": 8})
    assert axes == [("B", "?")]
    assert last(torch.nn.Linear(24, 8), torch.rand(2, 24), axes=["B C"], sizes={"C": 24, "H": 3})[0] == [("B", "D")]


def test_a_parameter_axis_of_one_takes_no_name_from_what_it_is_lined_up_with():
    gain = Holder(lambda x, p: x * p, 1, 1)
    t = tracer.trace(gain, torch.rand(1, 1), axes=["T C"], sizes={"C": 1, "H": 1})
    assert t[0].inputs[1].axes == ("?", "?")
    assert t[0].outputs[0].axes == ("T", "C")


def test_sizes_of_two_wholes_are_a_tie_until_the_code_cuts_them():
    maps = torch.nn.Linear(8, 24)
    x, sizes = torch.rand(2, 5, 8), {"C": 8, "M": 24}
    assert last(maps, x, axes=["B T C"], sizes=sizes)[0] == [("B", "T", "?")]
    assert last(lambda x: maps(x).chunk(3, -1), x, axes=["B T C"], sizes=sizes)[0] == [("B", "T", "C")] * 3
    gates = torch.nn.Linear(8, 24)
    halves, _ = last(lambda x: gates(x).chunk(2, -1), x, axes=["B T C"], sizes={"C": 8, "M": 12})
    assert halves == [("B", "T", "M")] * 2


def test_a_parameter_of_an_operation_without_a_rule_has_no_name_by_size():
    cell = torch.nn.GRUCell(8, 8)
    t = tracer.trace(cell, torch.rand(2, 8), axes=["B C"], sizes={"C": 8, "M": 24})
    assert all(x.axes == ("?",) * len(x.axes) for x in t.find(name="gru_cell")[0].inputs[2:])


def test_three_times_a_width_is_read_as_the_code_writes_it():
    H, D = 3, 14
    axes, _ = last(lambda x: x.view(2, 5, H, 3 * D), torch.rand(2, 5, 126), axes=["B T 3C"], sizes={"H": H, "D": D})
    assert axes == [("B", "T", "H", "3D")]
    axes, _ = last(lambda x: x.view(2, 5, 3, H * D), torch.rand(2, 5, 126), axes=["B T 3C"], sizes={"H": H, "D": D})
    assert axes == [("B", "T", "3", "C")]


def test_a_size_written_by_another_name_is_believed():
    G, H, D = 2, 4, 8  # 2GD is as wide as C
    kv = torch.nn.Linear(H * D, 2 * G * D)
    sizes = {"C": H * D, "H": H, "G": G, "D": D}
    axes, warnings = last(
        lambda x: kv(x).view(3, 5, 2, G, D).sum(3) * 2, torch.rand(3, 5, H * D), axes=["B T C"], sizes=sizes
    )
    assert axes == [("B", "T", "?", "?")]
    assert warnings == ()


@pytest.mark.parametrize("sizes", [(2, 5, 3, 7), (2, 1, 6, 1), (1, 1, 6, 1), (2, 1, 2, 1)], ids=str)
def test_joined_heads_take_no_position_of_size_one(sizes):
    B, T, H, D = sizes
    x = torch.rand(B, T, H, D)
    for f in (lambda x: x.view(x.size(0), -1, H * D), lambda x: x.reshape(B, T, H * D)):
        axes, warnings = last(f, x, axes=["B T H D"], sizes={"H": H, "D": D})
        assert axes == [("B", "T", "C")]
        assert warnings == ()


def test_heads_beside_the_batch_are_no_cut_across_axes():
    B, T, H, D = 2, 5, 3, 7
    maps = torch.nn.Linear(21, 21)
    _, warnings = last(lambda x: maps(x).view(T, B * H, D), torch.rand(T, B, 21), axes=["T B C"])
    assert warnings == ()
    H, D = 1, 7
    axes, _ = last(lambda x: x.view(T, B * H, D), torch.rand(T, B, 7), axes=["T B C"], sizes={"H": H, "D": D})
    assert axes == [("T", "?", "?")]


def test_an_axis_added_with_a_size_that_happens_to_be_one_is_no_bare_one():
    n = 1
    table = Holder(lambda x, p: p.expand(n, -1, -1) * x, 1, 4, 8)
    assert last(table, torch.rand(1), axes=["?"], sizes={"C": 8})[0] == [("?", "?", "C")]
    assert last(lambda x: x.repeat(n, 1, 1), torch.rand(4, 8), axes=["T C"])[0] == [("?", "T", "C")]


def test_mixing_positions_by_a_learned_map_gives_positions_back():
    up, down = torch.nn.Linear(5, 13), torch.nn.Linear(13, 5)
    axes, warnings = last(
        lambda x: x + down(up(x.mT).relu()).mT, torch.rand(2, 5, 8), axes=["B T C"], sizes={"C": 8, "M": 13}
    )
    assert axes == [("B", "T", "C")]
    assert warnings == ()


def test_the_last_of_one_position_may_be_all_of_them():
    assert last(lambda x: x[:, -1:], torch.rand(2, 5, 8), axes=["B T C"])[0] == [("B", "1", "C")]
    for f in (lambda x: x[:, -1:], lambda x: x[:, -x.size(1) :]):
        assert last(f, torch.rand(2, 1, 8), axes=["B T C"])[0] == [("B", "?", "C")]


@pytest.mark.parametrize("T", [1, 5])
def test_a_position_of_size_one_stays_with_the_batch(T):
    axes, warnings = last(
        lambda x: (y := x.reshape(2, T, -1)).view(-1, y.size(-1)),
        torch.rand(2, T, 3, 16),
        axes=["B T H D"],
        sizes={"H": 3, "D": 16},
    )
    assert axes == [("(B T)", "C")]
    assert warnings == ()


def test_the_shift_of_relative_positions_is_no_merge_with_heads():
    def shift(x):
        n = x.shape
        return torch.cat([torch.zeros(*n[:3], 1), x], -1).view(n[0], n[1], n[3] + 1, n[2])

    t = tracer.trace(shift, torch.rand(2, 3, 1, 1), axes=["B H T T"])
    assert t[-1].outputs[0].axes[1] in ("H", "?")


@pytest.mark.parametrize(("G", "width"), [(2, 80), (3, 96), (1, 64)])
def test_fused_grouped_maps_have_the_name_of_their_sum_once_they_are_cut_so(G, width):
    maps, x = torch.nn.Linear(48, width), torch.rand(2, 48)
    sizes = {"C": 48, "H": 6, "G": G, "D": 8}
    assert last(maps, x, axes=["B C"], sizes=sizes)[0] == [("B", "?")]  # each group's own may stand together
    keys = "(G D)" if G > 1 else "D"
    t = tracer.trace(lambda x: maps(x).split([48, 8 * G, 8 * G], -1), x, axes=["B C"], sizes=sizes)
    assert [o.axes for o in t[-1].outputs] == [("B", "C"), ("B", keys), ("B", keys)]
    assert t[0].outputs[0].axes == ("B", "C+(2 G D)" if G > 1 else "C+2D")
    t = tracer.trace(lambda x: maps(x)[:, 48 : 48 + 8 * G], x, axes=["B C"], sizes=sizes)
    assert t[-1].outputs[0].axes == ("B", keys)
    assert last(maps, x, axes=["B C"], sizes={**sizes, "M": width})[0] == [("B", "?")]


def test_one_text_cannot_give_one_name_two_sizes():
    _, warnings = last(lambda x: x + 1, torch.rand(2, 5, 3), axes=["B T B"])
    assert any("B" in w and "2" in w and "3" in w for w in warnings)


def test_where_of_a_condition_gives_indices():
    t = tracer.trace(lambda x: torch.where(x > 0), torch.rand(2, 5), axes=["B T"])
    assert t.unnamed == ()
    assert [o.axes for o in t[-1].outputs] == [("?",), ("?",)]


def test_what_a_parameter_is_added_to_has_its_name_too():
    p = Holder(lambda x, p: x + p, 24)
    assert last(p, torch.rand(2, 5, 24), axes=["B T ?"], sizes={"C": 24, "H": 3})[0] == [("B", "T", "C")]


@pytest.mark.parametrize(
    "f",
    [
        lambda s: s.softmax(-1).sum(-1),
        lambda s: s.softmax(-1).sum(),
        lambda s: s.softmax(-1).sum(1) / 3,  # averaged over heads
        lambda s: s.softmax(-1).mean(-2),
        lambda s: s.softmax(-1).amax(-2),
    ],
)
def test_sums_of_weights_that_are_meant(f):
    t = tracer.trace(f, torch.rand(2, 3, 5, 7), axes=["B H T S"])
    assert t.warnings == ()


def test_classes_of_one_hot_are_not_named_by_their_number():
    t = tracer.trace(lambda i: F.one_hot(i % 6, 6), torch.arange(10).view(2, 5), sizes={"E": 6})
    assert t[-1].outputs[0].axes == ("B", "T", "?")


def test_slopes_of_prelu_belong_to_the_channels_not_to_the_last_axis():
    slopes = torch.rand(5)
    t = tracer.trace(F.prelu, torch.rand(2, 5, 5), slopes, axes=["B C T", "C"])
    assert (t[-1].outputs[0].axes, t.warnings) == (("B", "C", "T"), ())


def test_a_padded_axis_is_another_axis_also_where_its_size_stays():
    t = tracer.trace(lambda x: F.pad(x, (0, 0, 1, -1)), torch.rand(2, 5, 7), axes=["B T C"])
    assert t[-1].outputs[0].axes == ("B", "?", "C")
