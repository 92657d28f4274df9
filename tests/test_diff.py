"""Two traces compared: which steps are added, gone, changed, moved, and where the runs part first."""

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from handmade import SIZES, Maker, gpt
from torch import Tensor

import tracer
from tracer import matching
from tracer.diff import Diff
from tracer.matching import Change
from tracer.models import GPT, GPTConfig
from tracer.result import Trace

B, T, C, H, D = 2, 5, 24, 4, 6


def run(*, batch: int = B, length: int = T, heads: int = H, blocks: int = 2, **config: Any) -> Trace:
    model = GPT(GPTConfig(n_layer=blocks, n_head=heads, n_embd=C, vocab_size=11, block_size=7, **config)).eval()
    return tracer.trace(model, torch.zeros(batch, length, dtype=torch.long))


@pytest.fixture(scope="module")
def base() -> Trace:
    return run()


def kinds(diff: Diff) -> dict[str, int]:
    return {kind: n for kind in ("added", "gone", "changed", "moved") if (n := sum(c.kind == kind for c in diff))}


def labels(change: Change | None) -> tuple[str | None, ...]:
    assert change is not None
    return tuple(info and info.label for info in change.tensors)


# ---------------------------------------------------------------- the same code


def test_equal_runs_are_equal(base: Trace) -> None:
    diff = base.diff(run())
    assert (len(diff), bool(diff), diff.first) == (0, False, None)
    assert str(diff) == diff.sentence == "Equal, step by step. mine: 68 operations, theirs: 68 operations."


def test_another_number_of_heads_changes_sizes_alone(base: Trace) -> None:
    diff = base.diff(run(heads=8))
    assert kinds(diff) == {"changed": 30}  # in each of two blocks the steps whose result has H or D
    changed = {op.index for op in base if any({"H", "D"} & set(out.axes) for out in op.outputs)}
    assert {c.mine.index for c in diff if c.mine} == changed
    assert {c.differs for c in diff} == {("sizes",)}
    assert diff.sentence == "They part at view: mine [B, T, H, D], 2·5·4·6; theirs [B, T, H, D], 2·5·8·3. (other sizes)"
    assert str(diff).endswith("transformer.h.1: as transformer.h.0 (15 changes)")


@pytest.mark.parametrize("change", [{"batch": 3}, {"length": 6}, {"batch": 3, "length": 7}])
def test_other_batches_and_lengths_keep_every_step(base: Trace, change: dict[str, int]) -> None:
    diff = base.diff(run(**change))
    assert set(kinds(diff)) == {"changed"}
    assert {c.differs for c in diff} == {("sizes",)}
    assert all(c.mine and c.theirs and c.mine.source == c.theirs.source for c in diff)


def test_one_block_more_is_added_and_nothing_else(base: Trace) -> None:
    diff = base.diff(run(blocks=3))
    assert kinds(diff) == {"added": 30}
    assert {c.module.split(".")[2] for c in diff} == {"2"}
    assert kinds(run(blocks=3).diff(base)) == {"gone": 30}


def test_post_norm_moves_the_norms(base: Trace) -> None:
    diff = base.diff(run(norm="post"))
    moved = [(c.module, c.differs) for c in diff if c.kind == "moved"]
    assert moved == [(f"transformer.h.{i}.ln_{n}", ("operands",)) for i in (0, 1) for n in (1, 2)]
    assert [c.module for c in diff if c.kind == "gone"] == ["transformer.ln_f"]
    assert diff.first is not None and diff.first.operands == ("x", "the result of add")
    assert "This layer_norm stands at another place." in diff.sentence


def test_another_activation_is_another_operation(base: Trace) -> None:
    diff = base.diff(run(activation="relu"))
    assert [(c.kind, c.differs) for c in diff] == [("changed", ("operation",))] * 2
    assert diff.sentence == "They part at hidden: mine gelu [B, T, M]; theirs relu [B, T, M]. (another operation)"


def test_dtype_is_compared(base: Trace) -> None:
    model = GPT(GPTConfig(n_layer=2, n_head=H, n_embd=C, vocab_size=11, block_size=7)).eval().double()
    diff = base.diff(tracer.trace(model, torch.zeros(B, T, dtype=torch.long)))
    assert {c.differs for c in diff} == {("dtype",)}


def test_devices_are_not_compared(base: Trace) -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig(n_layer=2, n_head=H, n_embd=C, vocab_size=11, block_size=7)).eval()
    assert not base.diff(tracer.trace(model, torch.zeros(B, T, dtype=torch.long, device="meta")))


# ---------------------------------------------------------------- a student's function against the reference


def reference(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)
    weights = F.softmax(scores, dim=-1)
    heads = weights @ v
    return heads.transpose(1, 2).reshape(B, T, C) @ wo


def no_transpose(inp: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    queries = (inp @ wq).view(B, T, H, D)
    keys = (inp @ wk).view(B, T, H, D)
    values = (inp @ wv).view(B, T, H, D)
    att = torch.softmax(queries @ keys.transpose(-2, -1) / D**0.5, -1)
    return (att @ values).reshape(B, T, C) @ wo


def scrambled(inp: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    queries, keys, values = ((inp @ w).view(B, H, T, D) for w in (wq, wk, wv))
    att = torch.softmax(queries @ keys.transpose(-2, -1) / D**0.5, -1)
    return (att @ values).transpose(1, 2).reshape(B, T, C) @ wo


def not_scaled(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ wo


def wrong_softmax(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    weights = (q @ k.transpose(-2, -1) / D**0.5).softmax(-2)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ wo


def keys_for_values(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)  # noqa: F841  (the mistake: it is not used)
    weights = (q @ k.transpose(-2, -1) / D**0.5).softmax(-1)
    return (weights @ k).transpose(1, 2).reshape(B, T, C) @ wo


def wrong_scale(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    weights = (q @ k.transpose(-2, -1) / D).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ wo


def other_order(inp: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    vv = (inp @ wv).view(B, T, H, D).transpose(1, 2)
    kk = (inp @ wk).view(B, T, H, D).transpose(1, 2)
    qq = (inp @ wq).view(B, T, H, D).transpose(-3, -2)
    att = (qq @ kk.transpose(3, 2) / D**0.5).softmax(3)
    return (att @ vv).transpose(2, 1).reshape(B, T, C) @ wo


def twins(inp: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    kk, qq, vv = (torch.matmul(inp, w).reshape(B, T, H, D).permute(0, 2, 1, 3) for w in (wk, wq, wv))
    att = torch.softmax(torch.matmul(qq, kk.mT) / D**0.5, -1)
    return torch.matmul(torch.matmul(att, vv).permute(0, 2, 1, 3).contiguous().view(B, T, C), wo)


def attend(function: Any) -> Trace:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, C, generator=generator)
    w = [torch.randn(C, C, generator=generator) for _ in range(4)]
    return tracer.trace(function, x, *w, axes=["B T C", "C C", "C C", "C C", "C C"], sizes={"C": C, "H": H, "D": D})


def against(student: Any) -> Diff:
    return attend(student).diff(attend(reference), names=("yours", "reference"))


def test_the_forgotten_transpose_is_where_they_part() -> None:
    diff = against(no_transpose)
    assert diff.first is not None and diff.first.kind == "added"
    assert labels(diff.first) == ("[B, T, H, D]", "[B, H, T, D]")
    assert diff.sentence.startswith("They part at queries / q: yours [B, T, H, D]; reference [B, H, T, D]. ")
    assert "Only reference has this transpose (test_diff.py:" in diff.sentence
    paired = [(c.mine.name, c.theirs.name) for c in diff if c.mine and c.theirs]
    assert paired == [("transpose", "transpose"), ("matmul", "matmul"), ("div", "div"), ("softmax", "softmax"),
                      ("matmul", "matmul"), ("reshape", "reshape")]  # fmt: skip


def test_scrambled_heads_part_at_the_view() -> None:
    first = against(scrambled).first
    assert first is not None and first.mine is not None and first.mine.name == "view"
    assert first.differs == ("names", "sizes")
    assert labels(first)[1] == "[B, T, H, D]"


def test_a_missing_division_is_found() -> None:
    diff = against(not_scaled)
    assert [(c.kind, c.theirs and c.theirs.name) for c in diff if not c.slight] == [("added", "div")]


@pytest.mark.parametrize(
    ("student", "step", "differs"),
    [
        (wrong_softmax, "softmax", "arguments"),
        (wrong_scale, "div", "arguments"),
        (keys_for_values, "matmul", "operands"),
    ],
)
def test_mistakes_that_keep_every_shape_are_found(student: Any, step: str, differs: str) -> None:
    real = [c for c in against(student) if not c.slight]
    assert [(c.kind, c.mine and c.mine.name, c.differs) for c in real] == [("changed", step, (differs,))]


def test_which_operands_differ_is_said() -> None:
    first = against(keys_for_values).first
    assert first is not None and first.operands == ("k", "v")
    assert "yours [B, H, T, D], works on k; reference [B, H, T, D], works on v" in against(keys_for_values).sentence


def test_other_names_lines_order_and_counting_from_the_back_are_no_difference() -> None:
    assert not against(other_order)


def test_twins_of_operations_are_slight() -> None:
    diff = against(twins)
    assert len(diff) > 0
    assert all(c.slight for c in diff)
    assert diff.first is diff[0]


def with_einsum(inp: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    vv, kk, qq = ((inp @ w).reshape(B, T, H, D).permute(0, 2, 1, 3) for w in (wv, wk, wq))
    att = (torch.einsum("bhtd,bhsd->bhts", qq, kk) * D**-0.5).softmax(-1)
    return (att @ vv).transpose(1, 2).reshape(B, T, C) @ wo


def multiplied(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    weights = (q @ k.transpose(-2, -1) * math.sqrt(D)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ wo


def keys_as_they_are(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, H, D).transpose(1, 2)
    v = (x @ wv).view(B, T, H, D).transpose(1, 2)
    return ((q @ k / math.sqrt(D)) @ v).transpose(1, 2).reshape(B, T, C) @ wo


def test_einsum_needs_no_transpose() -> None:
    diff = against(with_einsum)
    assert [(c.kind, c.theirs.name) for c in diff if c.for_twin and c.theirs] == [("added", "transpose")]
    assert [c for c in diff if not c.slight] == []


def test_a_factor_that_does_not_agree_is_no_twin() -> None:
    real = [c for c in against(multiplied) if not c.slight]
    assert [(c.mine and c.mine.name, c.theirs and c.theirs.name, c.differs) for c in real] == [
        ("mul", "div", ("operation", "arguments"))
    ]


def test_the_step_that_raised_is_compared_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        attend(keys_as_they_are)
    diff = caught.value.trace.diff(attend(reference), names=("yours", "reference"))  # type: ignore[attr-defined]
    assert labels(diff.first) == ("[B, H, T, D]", "[B, H, D, T]")
    (raised,) = (c for c in diff if "error" in c.differs)
    assert (raised.mine and raised.mine.name, labels(raised)) == ("matmul", (None, "[B, H, T, T]"))
    for shown in (str(diff), diff.to_html()):
        assert shown.count("~ changed (an error)") == shown.count("raised an error") == 1


def test_what_is_inserted_into_a_numbered_list() -> None:
    layers = [torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 7)]
    more = torch.nn.Sequential(layers[0], torch.nn.Dropout(0.5), *layers[1:])
    x = torch.zeros(2, 3)
    diff = tracer.trace(torch.nn.Sequential(*layers), x).diff(tracer.trace(more, x))
    assert [(c.kind, c.theirs and c.theirs.name) for c in diff] == [("added", "dropout")]


def grouped(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    q = (x @ wq).view(B, T, H, D).transpose(1, 2)
    k = (x @ wk).view(B, T, 2, D).transpose(1, 2)
    v = (x @ wv).view(B, T, 2, D).transpose(1, 2)
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ wo


def test_grouped_heads_differ_in_keys_and_values() -> None:
    x, square, narrow = torch.ones(B, T, C), torch.ones(C, C), torch.ones(C, 2 * D)
    sizes = {"C": C, "H": H, "D": D, "G": 2}
    axes = ["B T C", "C C", "C (G D)", "C (G D)", "C C"]
    diff = attend(reference).diff(tracer.trace(grouped, x, square, narrow, narrow, square, axes=axes, sizes=sizes))
    assert [c.theirs.name for c in diff if c.kind == "added" and c.theirs] == ["repeat_interleave"] * 2
    assert not any(c.kind == "gone" for c in diff)
    first = diff.first
    assert first is not None and first.mine is not None and first.mine.name == "matmul"
    assert labels(first) == ("[B, T, C]", "[B, T, (G D)]")


# ---------------------------------------------------------------- the result


def test_a_diff_is_a_sequence_of_frozen_data(base: Trace) -> None:
    diff = base.diff(run(heads=8))
    assert diff[0] is next(iter(diff)) is diff.first
    assert diff[1:3] == (diff[1], diff[2])
    assert diff[0] in diff
    with pytest.raises(FrozenInstanceError):
        diff[0].kind = "gone"  # type: ignore[misc]


def test_a_diff_the_other_way_round_mirrors(base: Trace) -> None:
    other = run(norm="post", heads=8)
    one, two = base.diff(other), other.diff(base)
    assert [c.mine for c in one if c.kind == "gone"] == [c.theirs for c in two if c.kind == "added"]
    assert {(c.mine, c.theirs) for c in one if c.kind == "changed"} == {
        (c.theirs, c.mine) for c in two if c.kind == "changed"
    }


def test_saved_traces_are_compared(base: Trace) -> None:
    saved = Trace.from_json(base.to_json())
    assert not saved.diff(base)
    assert str(saved.diff(run(norm="post"))) == str(base.diff(run(norm="post")))


def test_empty_traces() -> None:
    empty, other = Trace.from_ops([]), Trace.from_ops(gpt(1))
    assert not empty.diff(Trace.from_ops([]))
    assert kinds(empty.diff(other)) == {"added": len(other)}
    assert kinds(other.diff(empty)) == {"gone": len(other)}
    assert "no such step" in empty.diff(other).to_html()


def test_an_unknown_name_disagrees_with_nothing() -> None:
    m, n = Maker(), Maker()
    for maker, axes in ((m, "B T C"), (n, "B ? C")):
        maker.op("relu", [maker.tensor("B T C")], maker.tensor(axes, "y", shape=(2, 5, 21)), (1, "y = x.relu()"))
    assert not Trace.from_ops(m.ops).diff(Trace.from_ops(n.ops))


def test_every_step_is_paired_or_told(base: Trace) -> None:
    """No step of either run is hidden: it is in a change, or has a partner that is equal."""
    other = run(norm="post", blocks=3)
    diff = base.diff(other)
    mine, theirs = [c.mine for c in diff if c.mine], [c.theirs for c in diff if c.theirs]
    assert len(set(mine)) == len(mine)
    assert len(set(theirs)) == len(theirs)
    assert len(base) - len(mine) == len(other) - len(theirs)


def test_long_traces_are_not_compared_step_by_step_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """96 blocks of other code: 2,600 steps on either side, and a comparison for about each of them."""
    asked: list[tuple[int, int]] = []
    likeness = matching._likeness

    def counted(a: Any, b: Any, i: int, j: int) -> int:
        asked.append((i, j))
        return likeness(a, b, i, j)

    monkeypatch.setattr(matching, "_likeness", counted)
    ops = gpt(96)
    other = tuple(replace(op, source=op.source and replace(op.source, file="/other.py", line=7)) for op in gpt(97))
    diff = Trace.from_ops(ops).diff(Trace.from_ops(other))
    assert kinds(diff) == {"added": 27}
    assert len(asked) < 10 * len(other)


# ---------------------------------------------------------------- text and HTML


def test_text_has_one_line_for_a_step_that_one_run_lacks() -> None:
    text = str(against(no_transpose))
    assert text.splitlines()[0] == "yours: 13 operations, reference: 17 operations. 4 added, 6 changed."
    row = next(line for line in text.splitlines() if line.startswith("+ added"))
    assert row.endswith("q: [B, T, H, D] -> transpose [B, H, T, D]   (yours: stays [B, T, H, D])")


def test_html_marks_by_sign_and_word_and_folds(base: Trace) -> None:
    page = base.diff(run(norm="post", heads=8)).to_html()
    for word in ("&gt; moved", "- gone", "~ changed"):
        assert word in page
    assert page.startswith("<!doctype html>")
    assert "<script" not in page and "http" not in page
    folded = base.diff(run(heads=8)).to_html()
    assert "<details><summary>transformer.h.1: as transformer.h.0 (15 changes)</summary>" in folded
    assert "<details>" not in base.diff(run(heads=8)).to_html(fold=False)


def test_hostile_text_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    m = Maker()
    m.op(
        evil, [m.tensor("B T C", evil)], m.tensor("B T C", evil), (1, f"x = '{evil}\x1b[2J'"), module=evil, args=(evil,)
    )
    one = Trace.from_ops(m.ops)
    for diff in (one.diff(Trace.from_ops([]), names=(evil, "b")), Trace.from_ops([]).diff(one)):
        assert "<img" not in diff.to_html()
        assert "<img" not in diff._repr_html_()
        assert "\x1b" not in str(diff) + diff.to_html()


def test_sizes_declared_do_not_matter() -> None:
    assert not Trace.from_ops(gpt(2), sizes=SIZES).diff(Trace.from_ops(gpt(2)))


def test_gpt3_prints_on_two_screens_and_its_page_stays_small() -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig.named("gpt3")).eval()
    trace = tracer.trace(model, torch.zeros(1, 64, dtype=torch.long, device="meta"))
    assert len(trace) > 2500
    text = str(trace)
    assert len(text.splitlines()) < 80
    assert "transformer.h.1-95: as transformer.h.0 (2850 operations)" in text
    page = trace.to_html()
    assert len(page.encode()) <= 2_000_000
    assert page.count("<details>") == 1
    assert page.count('class="st-mod">transformer.h.95.attn<') == trace.to_html(fold=False).count(
        'class="st-mod">transformer.h.95.attn<'
    )


def test_what_is_no_trace_is_refused(base: Trace) -> None:
    with pytest.raises(TypeError, match=r"t\.diff\(u\); this is of type str"):
        base.diff("reference")  # type: ignore[arg-type]
