"""Trace: a sequence, look-ups by name, tables, naming while the run goes on, by-hand names."""

from typing import Any

import pytest
from handmade import SIZES, gpt

from tracer.errors import TracerError
from tracer.records import Call, Line, Log, Op, Ref, Site, Source
from tracer.result import Trace


@pytest.fixture(scope="module")
def t() -> Trace:
    return Trace.from_ops(gpt(3), sizes=SIZES, device="cpu", warnings=["careful"], names={37: ("returned",)})


# ---------------------------------------------------------------- a sequence


def test_sequence(t: Trace) -> None:
    assert len(t) == len(gpt(3)) == 92
    assert t[0].name == "arange"
    assert t[-1].variable == "loss"
    assert [op.index for op in t] == list(range(92))
    assert t[5] in t
    with pytest.raises(IndexError):
        t[92]


def test_a_slice_is_a_trace(t: Trace) -> None:
    part = t[6:9]
    assert isinstance(part, Trace)
    assert [op.name for op in part] == ["layer_norm", "linear", "split"]
    assert (part.sizes, part.device, part.warnings) == (t.sizes, "cpu", ("careful",))


def test_an_empty_trace() -> None:
    empty = Trace()
    assert (len(empty), list(empty), empty.output, empty.warnings, empty.unnamed, empty.sizes) == (
        0,
        [],
        None,
        (),
        (),
        {},
    )
    assert empty.failed is None


# ---------------------------------------------------------------- looking things up


def test_find_by_name(t: Trace) -> None:
    assert [op.name for op in t.find(name="matmul")] == ["matmul"] * 6


def test_find_by_module_takes_all_below_and_no_neighbour(t: Trace) -> None:
    inside = t.find(module="transformer.h.1")
    assert {op.module.split(".attn")[0].split(".mlp")[0].split(".ln")[0] for op in inside} == {"transformer.h.1"}
    assert len(inside) == 27
    assert len(t.find(module="transformer.h")) == 81
    assert len(t.find(module="transformer.h.1.at")) == 0
    assert len(t.find(module="")) == len(t)


def test_find_by_variable_and_all_together(t: Trace) -> None:
    assert [op.name for op in t.find(variable="scores", module="transformer.h.0")] == ["div", "masked_fill"]
    assert [op.name for op in t.find("split", variable="k")] == ["split"] * 3
    assert [op.index for op in t.find(variable="returned")] == [37]


def test_find_nothing_says_what_is_near(t: Trace) -> None:
    nothing = t.find(module="transformer.h.7", name="matmull")
    assert len(nothing) == 0
    assert str(nothing) == (
        "No operation has name='matmull', module='transformer.h.7'. "
        "Near to it: name='matmul', module='transformer.h.2'."
    )
    assert nothing._repr_html_().startswith("<p>No operation has name=&#x27;matmull&#x27;")


def test_the_last_tensor_of_a_variable(t: Trace) -> None:
    assert t["scores"].label == "[B, H, T, T]"
    assert t["scores"] is t.find(name="masked_fill")[-1].outputs[0]
    assert t["k"] is t.find(name="transpose", variable="k")[-1].outputs[0]
    assert t.find(module="transformer.h.0")["x"] is t.find(name="add", module="transformer.h.0")[-1].outputs[0]


def test_variables_of_inputs_and_of_the_caller(t: Trace) -> None:
    assert t["idx"].label == "[B, T]"
    assert t["returned"] is t[37].outputs[0]
    assert "returned" in t
    assert "nobody" not in t


def test_an_unknown_variable_lists_those_there_are(t: Trace) -> None:
    with pytest.raises(KeyError) as caught:
        t["score"]
    (message,) = caught.value.args
    assert message == (
        "no tensor was given to a variable 'score'. Did you mean 'scores'? Variables of this trace: pos, idx, tok_emb, "
        "pos_emb, x, q, k, v, scores, bias, weights, heads, out, returned, logits, targets, loss"
    )


def test_parameters_are_no_variables() -> None:
    ops = list(gpt(1))
    assert "self.weight" not in Trace.from_ops(ops)
    assert not any("." in name for name in Trace.from_ops(ops)._variables)


def test_lines(t: Trace) -> None:
    found = t.lines()
    assert all(isinstance(line, Line) for line in found)
    assert [op for line in found for op in line.ops] == list(t)
    assert [(line.module, len(line.ops)) for line in found[4:7]] == [
        ("transformer.h.0", 1),
        ("transformer.h.0.attn", 2),
        ("transformer.h.0.attn", 2),
    ]


# ---------------------------------------------------------------- tables

ROWS = {
    "x": "idx",
    "q, k, v": ["q", "k", "v"],
    "score": "scores",
    "weight": "weights",
    "head output": "heads",
    "joined": "out",
    "logits": "logits",
    "loss": "loss",
}


def test_table_as_text(t: Trace, golden: Any) -> None:
    golden("table.txt", str(t.table(ROWS, module="transformer.h.0.attn", caption="minGPT 기록")))


def test_table_as_html(t: Trace) -> None:
    page = t.table({"q & k": ["q", "k"]}, caption="<b>")._repr_html_()
    assert '<th scope="row">q &amp; k</th>' in page
    assert "<caption>&lt;b&gt;</caption>" in page
    assert '<td data-h="elements">2 x 210</td>' in page
    assert page.count('<th scope="col">') == 9


def test_table_looks_in_the_module_first(t: Trace) -> None:
    (row,) = t.table({"x": "x"}, module="transformer.h.0.mlp").rows
    assert row.tensors == (t.find(module="transformer.h.0.mlp")["x"],)
    assert row.ops == (None,)


def test_table_splits_what_is_not_alike(t: Trace) -> None:
    rows = t.table({"both": ["q", "scores"]}).rows
    assert [(row.what, row.variables) for row in rows] == [("both", ("q",)), ("both", ("scores",))]


def test_table_of_an_unknown_variable(t: Trace) -> None:
    with pytest.raises(KeyError, match="Did you mean 'weights'"):
        t.table({"w": "weight"})


# ---------------------------------------------------------------- showing and keeping


def test_repr_is_one_line(t: Trace) -> None:
    assert repr(t) == "<Trace: 92 operations, cpu, B=2 T=5 C=21 H=3 D=7 M=84 V=11, 1 warning>"
    assert repr(Trace()) == "<Trace: 0 operations>"


def test_str_is_the_text_and_the_notebook_gets_html(t: Trace) -> None:
    assert str(t) == t.to_text() != t.to_text(fold=False)
    assert t._repr_html_().startswith('<div class="shape-tracer">')
    assert t.to_html().startswith("<!doctype html>")


def test_saved_and_read(t: Trace) -> None:
    again = Trace.from_json(t.to_json())
    assert list(again) == list(t)
    assert (again.sizes, again.device, again.warnings, again.output) == (t.sizes, "cpu", ("careful",), None)
    assert again["returned"] == t["returned"]
    assert str(again) == str(t)


# ---------------------------------------------------------------- a run that goes on


def added(log: Log, name: str) -> None:
    """Let the run go on by one addition to the last tensor."""
    fact = len(log.facts)
    log.facts.append((fact, (2, 5), (5, 1), 0, fact, "float32", "cpu"))
    site = Site(Source("cell.py", fact, f"{name} = x + 1"), (name,))
    log.events.append((Call("add"), (Ref.at(fact - 1), 1), (), (Ref.at(fact),), ("new",), site, "", None))


def started() -> Log:
    log = Log(facts=[(0, (2, 5), (5, 1), 0, 0, "float32", "cpu")], sources={0: ("input", "x")}, given={0: "B T"})
    added(log, "y")
    return log


def test_names_follow_a_run_that_goes_on() -> None:
    log = started()
    t = Trace(log, device="cpu")
    assert [op.variable for op in t] == ["y"]
    assert t["y"].label == "[B, T]"
    added(log, "z")
    assert [op.variable for op in t] == ["y", "z"]
    assert t["z"].label == "[B, T]"
    assert t.sizes == {"B": 2, "T": 5}


def test_names_given_later_reach_what_was_read_before() -> None:
    log = started()
    log.given.clear()
    t = Trace(log)
    assert t["y"].label == "[?=2, ?=5]"
    log.given[1] = "B T"
    assert t["y"].label == "[B, T]"
    assert t["x"].label == "[B, T]"


def test_names_of_the_caller() -> None:
    log = started()
    log.caller_names[0] = ("out",)
    assert Trace(log)["out"] == Trace(log)["y"]


def test_nothing_is_named_anew_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Trace(started())
    first: list[Op] = list(t)
    monkeypatch.setattr("tracer.result.name_log", None)
    assert list(t) == first


class Named:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, str]] = []

    def name(self, x: Any, axes: str) -> None:
        self.calls.append((x, axes))


def test_naming_by_hand_goes_to_the_open_recording() -> None:
    t = Trace(Log())
    t._recorder = recorder = Named()
    t.name("a tensor", "B T C")
    assert recorder.calls == [("a tensor", "B T C")]


def test_naming_by_hand_after_the_block() -> None:
    with pytest.raises(TracerError, match="inside an open `with"):
        Trace(Log()).name("a tensor", "B T C")
