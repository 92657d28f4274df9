"""The flow figure: what is joined to what, where everything stands, SVG and matplotlib. No label lies on another."""

import inspect
import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import fuzz_names
import hf_models
import pytest
import torch
import torch.nn.functional as F
from handmade import SIZES, Maker, attention, gpt
from matplotlib import rc_context
from matplotlib.text import Text
from torch import nn

import tracer
from tracer import Trace
from tracer.models import GPT, Attention, Block, GPTConfig
from tracer.render.colours import AXIS_COLOURS
from tracer.render.flow import Flow, flow_of
from tracer.render.layout import Sheet, header_sizes
from tracer.render.plan import Picture, Row, picture, text_width
from tracer.samples import SAMPLES

HF = ("gpt2", "gpt_neox", "gptj", "llama", "mixtral", "bert", "t5", "vit", "whisper", "swin", "deberta relative")


def run(name: str, **choices: Any) -> Trace:
    torch.manual_seed(0)
    model, inputs = SAMPLES[name](**choices)
    return tracer.trace(model.eval(), *inputs)


def flow(t: Trace, module: str = "", depth: int | None = None) -> Flow:
    return flow_of(t._data, module, depth)


def edges(f: Flow, rail: bool | None = None) -> list[tuple[str, str]]:
    """Return what leads to what, by title; `rail`: only the stream, or only all else."""
    titles = {n.key: n.title for n in f.nodes}
    return [(titles[n.source], titles[s]) for n in f.nets for s in n.sinks if rail in (None, n.rail)]


def titles(f: Flow, kind: str) -> list[str]:
    return [n.title for n in f.nodes if n.kind == kind]


# ------------------------------------------------------------------ the residual stream


def test_pre_norm_the_stream_passes_by_the_norms() -> None:
    f = flow(run("Block"))
    assert titles(f, "box") == ["ln_1", "attn", "ln_2", "mlp"]
    assert edges(f) == [
        ("x", "ln_1"), ("x", "+"), ("ln_1", "attn"), ("attn", "+"),
        ("+", "ln_2"), ("+", "+"), ("ln_2", "mlp"), ("mlp", "+"), ("+", "out"),
    ]  # fmt: skip
    assert ("attn", "+") in edges(f, rail=False) and ("x", "+") in edges(f, rail=True)
    on_rail = [n.title for n in f.nodes if n.key in f.spine]
    assert on_rail == ["x", "+", "+", "out"]


def test_post_norm_the_norms_stand_on_the_stream() -> None:
    f = flow(run("Block", norm="post"))
    assert [n.title for n in f.nodes if n.key in f.spine] == ["x", "+", "ln_1", "+", "ln_2", "out"]
    assert ("+", "ln_1") in edges(f, rail=True) and ("ln_1", "+") in edges(f, rail=True)


def test_parallel_branches_are_added_first_and_then_to_the_stream() -> None:
    f = flow(hf_models.run("gpt_neox", hf_models.DISTINCT), "gpt_neox.layers.0")
    assert len(titles(f, "add")) == 1
    assert {("attention", "add"), ("mlp", "add"), ("add", "+")} <= {*edges(f, rail=False)}
    assert ("hidden_states", "+") in edges(f, rail=True) or ("inputs_embeds", "+") in edges(f, rail=True)


@pytest.mark.parametrize(("name", "adds"), [("gpt2", 2), ("bert", 2), ("llama", 2), ("gptj", 1), ("mixtral", 2)])
def test_a_block_of_other_peoples_code_has_its_additions(name: str, adds: int) -> None:
    f = flow(hf_models.run(name, hf_models.DISTINCT))
    assert len(titles(f, "add")) == adds
    assert any("and the same again" in note for note in f.notes.values())


def test_an_encoder_and_a_decoder_are_two_streams_joined_by_the_memory() -> None:
    f = flow(run("EncoderDecoder"))
    assert len(f.starts) == 1 and len(titles(f, "add")) == 5
    nodes = {n.key: n for n in f.nodes}
    second = {*[*nodes][[*nodes].index(f.starts[0]) :]}
    crossing = {
        (n.info.label, nodes[s].title) for n in f.nets for s in n.sinks if n.source not in second and s in second
    }
    assert ("[B, S, C]", "cross") in crossing


def gelu_by_hand(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))


def gated(h: torch.Tensor, n: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid(h @ w)
    return n + z * (h - n)


def two_embeddings(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w) + (x.relu() @ w)


@pytest.mark.parametrize("function", [gelu_by_hand, gated, two_embeddings])
def test_an_addition_is_residual_only_where_a_product_of_the_stream_is_added(function: Callable[..., Any]) -> None:
    x, w = torch.randn(2, 5, 7), torch.randn(7, 7)
    inputs = {gelu_by_hand: (x,), gated: (x, x.clone(), w), two_embeddings: (x, w)}[function]
    f = flow(tracer.trace(function, *inputs, axes=["B T C"]))
    assert titles(f, "add") == [] and not f.residual and not any(n.rail for n in f.nets)


def in_place(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x * 1.0
    x += x @ w
    return x.relu()


def test_an_addition_in_place_is_one_too() -> None:
    f = flow(tracer.trace(in_place, torch.randn(2, 5, 7), torch.randn(7, 7), axes=["B T C"]))
    assert len(titles(f, "add")) == 1 and ("+", "relu") in edges(f, rail=True)


def written_through_a_view(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:, 0].copy_((x @ w)[:, 0])
    return out.relu()


def test_what_is_written_through_a_view_is_read_later() -> None:
    f = flow(tracer.trace(written_through_a_view, torch.randn(2, 5, 7), torch.randn(7, 7), axes=["B T C"]))
    assert edges(f)[-2:] == [("copy_", "relu"), ("relu", "out")]


# ------------------------------------------------------------------ boxes, blocks, loops


def test_a_long_model_is_drawn_once_and_leads_on() -> None:
    f = flow(run("GPT", L=5))
    assert f.notes == {"transformer.h.0": "transformer.h.0, and the same again: transformer.h.1-4"}
    assert [*edges(f)[-2:]] == [("transformer.ln_f", "lm_head"), ("lm_head", "out")]
    assert ("+", "transformer.ln_f") in edges(f)


def test_a_loop_is_drawn_once() -> None:
    cell = nn.Linear(7, 7)

    def recur(x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, 7)
        for t in range(6):
            h = torch.tanh(cell(h) + x[:, t])
        return h

    f = flow(tracer.trace(recur, torch.randn(2, 6, 7), axes=["B T C"]))
    assert len(f.nodes) < 9
    assert [note for note in f.notes.values() if "6 times, each going on with what the one before gave" in note]


def test_depth_opens_modules() -> None:
    t = run("GPT")
    parts = ["transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.ln_f", "lm_head"]
    assert titles(flow(t, depth=1), "box") == parts  # `transformer` only holds them
    deep = titles(flow(t, "transformer.h.0", depth=2), "box")
    assert deep == ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.act", "mlp.c_proj"]


def test_inside_an_attention_each_line_is_a_step() -> None:
    f = flow(run("Attention"))
    assert {("q, k, v", "q"), ("q, k, v", "k"), ("q, k, v", "v"), ("q", "scores"), ("k", "scores")} <= {*edges(f)}
    assert ("v", "heads") in edges(f) and ("weights", "heads") in edges(f)
    rows = {n.title: n.rows for n in f.nodes}
    assert rows["q"] == (("view", "[B, T, H, D]"), ("transpose", "[B, H, T, D]"))


def test_a_name_that_stands_twice_is_told_apart() -> None:
    t = run("Attention")
    assert flow(t).twice == ("scores [B, H, T of q, T of k]",)
    foot = [words.text for words in shown(t).foot]
    assert "Where a name stands twice: scores [B, H, T of q, T of k]." in foot
    assert flow(run("CausalConv")).twice == ()


def test_the_flow_in_words() -> None:
    assert flow(run("Block")).text()[:2] == [
        "ln_1 (layer_norm [B, T, C]): x [B, T, C] from x, the residual stream -> [B, T, C]",
        "attn (linear [B, T, 3C], matmul [B, H, T, T], masked_fill [B, H, T, T], softmax [B, H, T, T], "
        "matmul [B, H, T, D], linear [B, T, C], and 16 more): [B, T, C] from ln_1 -> out [B, T, C]",
    ]


def test_every_line_that_a_box_hides_is_counted() -> None:
    t = run("Block")
    box = next(n for n in flow(t).nodes if n.title == "attn")
    counted = sum(int(m[1]) if (m := re.match(r"(?:and )?(\d+) (?:x|more)", name)) else 1 for name, _ in box.rows)
    assert counted == sum(op.memory != "same" for op in t.find(module="attn"))


def missing(t: Trace, f: Flow) -> list[str]:
    """Return where the figure and the trace part: a tensor that a box reads without a line, or a line without one.

    Told anew from numbers of tensors alone; operations that the figure leaves out (repeats) are not asked about.
    """
    box_of = {op.index: node.key for node in f.nodes for op in node.ops if node.kind != "stopped"}
    lines_ = {(net.source, sink) for net in f.nets for sink in net.sinks}
    needed = set()
    last: dict[int, int] = {}
    for op in (op for op in t if op.parent is None):
        if op.index in box_of:
            needed |= {
                (box_of[last[info.id]], box_of[op.index])
                for info in op.inputs
                if last.get(info.id, -1) in box_of and box_of[last[info.id]] != box_of[op.index]
            }
        last.update({out.id: op.index for out in op.outputs if out.memory != "same"})
    inner = {node.key for node in f.nodes if node.kind in ("box", "step", "add")}
    named = {node.key: node.title for node in f.nodes}
    extra = {pair for pair in lines_ - needed if pair[0] in inner and pair[1] in inner}
    return [f"{why}: {named[a]} -> {named[b]}" for why, pairs in (("no line", needed - lines_), ("line", extra))
            for a, b in sorted(pairs)]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_lines_are_the_tensors_that_boxes_read(name: str) -> None:
    t = run(name, **({"L": 1} if "L" in inspect.signature(SAMPLES[name]).parameters else {}))
    for module in modules(t, 12):
        if name != "RNNSeq2Seq":  # its loop is drawn once, and it writes into its memory in place
            assert missing(t, flow(t, module)) == [], module


def test_lines_of_random_programs() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        program, sizes = fuzz_names.Writer(draw.choice).program(), fuzz_names.collisions(draw.choice)
        try:
            t = fuzz_names.traced(fuzz_names.compiled(program), sizes)
        except Exception as error:  # programs that do not run at these sizes end in a failed trace
            t = error.trace  # type: ignore[attr-defined]
        assert missing(t, flow(t)) == [], program.source
        assert problems(shown(t)) == [], program.source


def test_branches_that_are_added_one_after_another() -> None:
    ln, attn, mlp = nn.LayerNorm(7), nn.Linear(7, 7), nn.Linear(7, 7)

    def parallel(x: torch.Tensor) -> torch.Tensor:
        y = ln(x)
        return x + attn(y) + mlp(y)

    f = flow(tracer.trace(parallel, torch.randn(2, 5, 7), axes=["B T C"]))
    assert edges(f, rail=True) == [("x", "y"), ("x", "+"), ("+", "+"), ("+", "out")]


def test_three_calls_of_one_helper_are_no_loop() -> None:
    def heads(x: torch.Tensor) -> torch.Tensor:
        x = x.view(2, 5, 3, 7)
        return x.transpose(1, 2)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = heads(q), heads(k), heads(v)
        return (q @ k.mT) @ v

    f = flow(tracer.trace(attend, *torch.randn(3, 2, 5, 21), axes=["B T C"] * 3, sizes={"C": 21, "H": 3}))
    assert f.notes == {} and len(titles(f, "step")) > 6


# ------------------------------------------------------------------ odd traces


def test_nothing_ran() -> None:
    with tracer.record() as t:
        pass
    assert flow(t).empty and "No operation ran." in t.to_svg()
    assert flow(tracer.trace(nn.Dropout().eval(), torch.randn(2, 3))).empty


def test_a_failed_run_ends_where_it_stopped() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        scores = q.relu()
        return scores @ k

    with pytest.raises(RuntimeError) as caught:
        tracer.trace(attend, torch.randn(2, 5, 7), torch.randn(2, 5, 7), axes=["B T D", "B S D"])
    t = caught.value.trace  # type: ignore[attr-defined]
    f = flow(t)
    assert titles(f, "stopped") == ["matmul: stopped here"]
    assert {("scores", "matmul: stopped here"), ("k", "matmul: stopped here")} == {*edges(f)} - {("q", "scores")}
    assert "stopped here" in t.to_svg() and problems(shown(t)) == []


def test_a_failure_at_the_first_operation() -> None:
    with pytest.raises(RuntimeError) as caught:
        tracer.trace(lambda a, b: a @ b, torch.randn(2, 5), torch.randn(2, 5))
    assert titles(flow(caught.value.trace), "stopped") == ["matmul: stopped here"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", [{"depth": 0}, {"depth": True}, {"width": 100}, {"module": "transformer.h.9"}])
def test_a_question_that_cannot_be_meant(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"depth|width|transformer\.h\."):
        run("GPT").to_svg(**bad)


def test_steps_inside_a_call_are_no_boxes() -> None:
    model = Attention(21, 3, how="fused")
    x = torch.randn(2, 5, 21)
    plain, opened = (flow(tracer.trace(model, x, expand=e)) for e in (False, True))
    assert edges(plain) == edges(opened)


def test_a_saved_trace_has_the_same_figure() -> None:
    t = run("Block")
    again = Trace.from_json(t.to_json())
    assert again.to_svg() == t.to_svg()


# ------------------------------------------------------------------ where everything stands


Bounds = tuple[float, float, float, float]


def shown(t: Trace, module: str = "", width: float = 760.0) -> Picture:
    return picture(flow(t, module), header_sizes(t._data), width)


def meet(a: Bounds, b: Bounds, by: float = 0.01) -> bool:
    return a[0] < b[2] - by and b[0] < a[2] - by and a[1] < b[3] - by and b[1] < a[3] - by


def within(a: Bounds, b: Bounds) -> bool:
    return b[0] - 0.01 <= a[0] and b[1] - 0.01 <= a[1] and a[2] <= b[2] + 0.01 and a[3] <= b[3] + 0.01


def things(row: Row) -> Iterator[tuple[str, Bounds]]:
    """Yield what takes room in a row: boxes and labels."""
    for box in row.boxes:
        if box.style != "dot":
            name = box.words[0].text if box.words else box.style
            yield f"box {name}", (box.x, box.y, box.x + box.width, box.y + box.height)
    yield from ((f"label {words.text}", words.bounds) for words in row.words)


def problems(p: Picture) -> list[str]:
    """Return what lies on something else, or outside."""
    found = [f"head: {a.text} | {b.text}" for a, b in combinations(p.head, 2) if meet(a.bounds, b.bounds)]
    found += [f"head outside: {w.text}" for w in p.head if not within(w.bounds, (0, 0, p.width, p.top))]
    found += [f"foot outside: {w.text}" for w in p.foot if w.bounds[2] > p.width]
    for row in p.rows:
        placed = [*things(row)]
        found += [f"{a} | {b}" for (a, one), (b, two) in combinations(placed, 2) if meet(one, two)]
        found += [f"outside: {a}" for a, one in placed if not within(one, (0, 0, p.width, row.height))]
        for box in row.boxes:
            inside = (box.x, box.y, box.x + box.width, box.y + box.height)
            found += [f"out of its box: {w.text}" for w in box.words if not within(w.bounds, inside)]
            found += [f"in a box: {a.text}" for a, b in combinations(box.words, 2) if meet(a.bounds, b.bounds)]
        for path in row.paths:
            for (x1, y1), (x2, y2) in pairwise(path.points):
                line = (min(x1, x2), min(y1, y2) - 0.1, max(x1, x2), max(y1, y2) + 0.1)
                found += [f"a line through {a}" for a, one in placed if meet(line, one, 0.6)]
    return found


def collinear(row: Row) -> list[tuple[float, ...]]:
    """Return stretches where two level lines run on each other: they would read as one."""
    level = [
        (*p.points[0], p.points[1][0]) for p in row.paths if p.style != "frame" and p.points[0][1] == p.points[1][1]
    ]
    return [a for a, b in combinations(level, 2) if a[1] == b[1] and min(a[2], b[2]) - max(a[0], b[0]) > 0.5]


def modules(t: Trace, most: int) -> list[str]:
    paths = {".".join(op.module.split(".")[:n]) for op in t for n in range(1, op.module.count(".") + 2) if op.module}
    return ["", *sorted(paths)[:most]]


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_lies_on_another_in_the_reference_models(name: str) -> None:
    t = run(name)
    for module in modules(t, 12):
        p = shown(t, module)
        assert problems(p) == [], module
        assert [collinear(row) for row in p.rows] == [[]] * len(p.rows), module


@pytest.mark.parametrize("name", HF)
def test_nothing_lies_on_another_in_other_peoples_models(name: str) -> None:
    t = hf_models.run(name, hf_models.DISTINCT)
    for module in modules(t, 5):
        p = shown(t, module)
        assert problems(p) == [], module
        assert [collinear(row) for row in p.rows] == [[]] * len(p.rows), module


def test_the_test_of_overlaps_finds_them() -> None:
    p = shown(run("Block"))
    row = p.rows[0]
    word = row.words[0]
    for wrong in (
        Row(row.width, row.height, row.boxes, row.paths, (word, word)),
        Row(row.width, row.height - 30, row.boxes, row.paths, row.words),
        Row(row.width, row.height, row.boxes + row.boxes[1:2], row.paths, row.words),
    ):
        assert problems(Picture(p.title, p.width, (wrong,), p.head, p.foot, p.text, p.top))
    assert collinear(Row(9, 9, (), row.paths + row.paths, ()))


@pytest.mark.parametrize("width", [240, 420, 760, 3000])
def test_rows_follow_the_width(width: float) -> None:
    p = shown(run("GPT"), width=width)
    assert problems(p) == []
    widest = max(box.width for row in p.rows for box in row.boxes)
    assert p.width <= max(width, 3.2 * widest)
    if width == 3000:
        assert len(p.rows) == 1


def test_what_goes_on_in_another_row_comes_from_one() -> None:
    p = shown(run("EncoderDecoder"))
    texts = [w.text for row in p.rows for w in (*row.words, *(v for b in row.boxes for v in b.words))]
    comes = {m[1] for text in texts if (m := re.match(r"(\w+) → ", text))}
    goes = {m[1] for text in texts if (m := re.search(r"→ ([a-z]+)$", text))}
    assert comes and comes == goes


# ------------------------------------------------------------------ SVG


HOSTILE = '<script>alert("1")</script> & 나는 👩'


def hostile() -> Sheet:
    m = Maker()
    x = m.tensor("B T C", HOSTILE)
    at = (1, f"y = f({HOSTILE})")
    y = m.op("linear", [x, m.tensor("C C")], m.tensor("B T C", HOSTILE, memory="new"), at, module=f"a.{HOSTILE}")
    m.op("relu", [y], m.tensor("B T C", "z", memory="new"), (2, "z = y.relu()"), module="")
    return Sheet(tuple(m.ops), SIZES, "cpu")


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


NS = "{http://www.w3.org/2000/svg}"


def test_svg_of_a_gpt(golden: Callable[[str, str], None]) -> None:
    golden("flow.svg", Trace.from_ops(gpt(3), sizes=SIZES).to_svg())


def test_svg_of_an_attention(golden: Callable[[str, str], None]) -> None:
    m = Maker()
    attention(m, m.tensor("B T C", "x"), "attn")
    golden("flow_attention.svg", Trace.from_ops(m.ops, sizes=SIZES).to_svg("attn"))


def test_svg_says_what_it_is_to_those_who_cannot_see_it() -> None:
    t = run("Block")
    root = tree(t.to_svg())
    assert root.get("role") == "img"
    assert root[0].tag == f"{NS}title" and root[0].text == "the whole run"
    assert root[1].tag == f"{NS}desc" and root[1].text == "\n".join(flow(t).text())


def test_svg_shows_hostile_names_as_text() -> None:
    t = Trace._of(hostile())
    svg = t.to_svg()
    assert "<script" not in svg
    assert any("script" in "".join(node.itertext()) for node in tree(svg).iter(f"{NS}text"))
    assert problems(shown(t)) == []


def test_svg_loads_nothing_and_stays_small() -> None:
    svg = run("GPT", L=12).to_svg()
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert len(svg) < 40_000


def test_svg_is_the_same_each_time() -> None:
    assert run("GPT").to_svg() == run("GPT").to_svg()


def test_each_axis_has_its_colours_and_its_name() -> None:
    svg = run("Block").to_svg()
    for symbol in ("B", "T", "C", "H", "D", "M"):
        light, dark = AXIS_COLOURS[symbol]
        assert light in svg and dark in svg
        assert re.search(rf'<tspan class="a[0-9a-f]+">{symbol}</tspan>', svg)


def test_figures_on_one_page_agree_on_their_colours() -> None:
    colours: dict[str, set[str]] = {}
    for svg in (run("Block").to_svg(), run("VisionTransformer").to_svg(), run("Mixtral").to_svg()):
        for name, colour in re.findall(r"--(a[0-9a-f]+):(#\w+);", svg.partition("@media")[0]):
            colours.setdefault(name, set()).add(colour)
    assert len(colours) > 8 and all(len(found) == 1 for found in colours.values())


def test_kinds_differ_by_more_than_colour() -> None:
    rules = tree(run("GPT").to_svg()).find(f"{NS}style").text  # type: ignore[union-attr]
    assert re.search(r"\.step\{[^}]*stroke-dasharray", rules) and re.search(r"\.rail\{[^}]*stroke-width:3\.5", rules)


def test_a_notebook_shows_the_figure() -> None:
    svg = run("Block").to_svg()
    assert svg._repr_svg_() == svg and isinstance(svg, str)


# ------------------------------------------------------------------ matplotlib


@pytest.mark.parametrize("name", ["GPT", "Attention", "EncoderDecoder"])
def test_the_figure_keeps_within_the_measured_room(name: str) -> None:
    figure = run(name).figure()
    size = figure.get_size_inches() * 72
    unit = 0.75 * figure.dpi / 72
    boxes = []
    figure.canvas.draw()
    for text in figure.findobj(Text):
        if text.get_text().strip():
            with rc_context({"text.hinting": "none"}):
                box = text.get_window_extent()
            boxes.append((text.get_text(), (box.x0, box.y0, box.x1, box.y1)))
            bound = text_width(text.get_text(), text.get_fontsize() / 0.75) * unit
            assert box.width <= bound + 0.5
    page = (0.0, 0.0, size[0] * figure.dpi / 72, size[1] * figure.dpi / 72)
    assert [text for text, box in boxes if not within(box, page)] == []
    assert [f"{a} | {b}" for (a, one), (b, two) in combinations(boxes, 2) if meet(one, two, 1.0)] == []


def test_the_figure_has_every_word_of_the_svg() -> None:
    t = run("Block")
    figure = t.figure()
    drawn = "".join(text.get_text() for text in figure.findobj(Text))
    words = "".join("".join(node.itertext()) for node in tree(t.to_svg()).iter(f"{NS}text"))
    assert sorted(drawn) == sorted(words)
    assert figure._repr_svg_() == t.to_svg()


def test_dollars_are_no_formulas() -> None:
    m = Maker()
    x = m.tensor("B T", "x")
    m.op("relu", [x], m.tensor("B T", "$a_b$", memory="new"), (1, "y"))
    drawn = [text.get_text() for text in Trace.from_ops(m.ops, sizes=SIZES).figure().findobj(Text)]
    assert "$a_b$" in drawn


def test_functions_of_torch_stand_under_their_names() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x).sum(-1)

    t = tracer.trace(f, torch.randn(2, 5, 7), axes=["B T C"])
    assert [n.rows for n in flow(t).nodes if n.kind == "step"] == [(("gelu", "[B, T, C]"), ("sum", "[B, T]"))]


def test_two_blocks_of_one_kind_in_the_models_of_config() -> None:
    config = GPTConfig(n_layer=1, n_head=3, n_embd=21, vocab_size=11, block_size=8, norm="post")
    t = tracer.trace(GPT(config).eval(), torch.randint(0, 11, (2, 5)))
    assert flow(t).notes == {} and len(titles(flow(t), "add")) == 2
    assert titles(flow(tracer.trace(Block(21, 3), torch.randn(2, 5, 21))), "add") == ["+", "+"]
