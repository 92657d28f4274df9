"""The memory picture and the table of shared memory: places, strides, notes, escaping, and that nothing overlaps."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise, product

import pytest
import torch
from hypothesis import given
from test_explain import info, strided

import tracer
from tracer.records import Op
from tracer.render.colours import AXIS_COLOURS
from tracer.render.memory import _CHAR, _SHADES, WIDTH, entry_at, memory_svg, memory_text, place, sharing

SVG = "{http://www.w3.org/2000/svg}"


def heads(x):
    B, T, C = x.shape
    q = x.view(B, T, 3, 2)
    q = q.transpose(1, 2)
    back = q.transpose(1, 2)
    k = q.contiguous()
    y = k.transpose(1, 2).contiguous().view(B, T, C)
    return y, back, q.transpose(1, 2).expand(2, T, 3, 2), q.reshape(B, -1)


@pytest.fixture(scope="module")
def trace():
    return tracer.trace(heads, torch.randn(1, 4, 6), axes=["B T C"], sizes={"C": 6, "H": 3, "D": 2})


def op(call, *shapes, **more):
    return tracer.trace(call, *(torch.randn(s) for s in shapes), **more)[-1]


ALL = {
    "view": lambda: op(lambda x: x.view(2, 5, 3, 7), (2, 5, 21), axes=["B T C"], sizes={"H": 3, "D": 7}),
    "transpose": lambda: op(lambda x: x.transpose(0, 1), (3, 4), axes=["T C"]),
    "copy": lambda: op(lambda x: x.T.contiguous(), (3, 4), axes=["T C"]),
    "reshape": lambda: op(lambda x: x.transpose(1, 2).reshape(2, 5, 21), (2, 3, 5, 7), axes=["B H T D"]),
    "split": lambda: op(lambda x: x.split(4, -1)[1], (2, 3, 12), axes=["B T C"]),
    "slice": lambda: op(lambda x: x[:, 1::2], (2, 6, 3), axes=["B T C"]),
    "expand": lambda: op(lambda x: x.expand(5, 4, 3), (4, 3), axes=["T C"]),
    "new": lambda: op(lambda x: x @ x.mT, (2, 3, 4), axes=["B T C"]),
    "in-place": lambda: op(lambda x: x.add_(1), (2, 3), axes=["B T"]),
    "same": lambda: op(lambda x: x.contiguous(), (2, 3), axes=["B T"]),
    "one number": lambda: op(lambda x: x.sum(), (3,), axes=["T"]),
    "cat": lambda: op(lambda x: torch.cat([x, x], 1), (2, 3), axes=["B T"]),
    "nothing in it": lambda: op(lambda x: x[:0].view(0, 3), (2, 3), axes=["B T"]),
    "large": lambda: op(lambda x: x.transpose(1, 2).contiguous(), (8, 64, 12, 64), axes=["B T H D"]),
    "many blocks": lambda: op(lambda x: x.permute(4, 0, 3, 1, 2), (3, 2, 4, 3, 2), axes=["B T H C D"]),
    "gather": lambda: op(lambda x: x[torch.tensor([2, 0])], (3, 4), axes=["T C"]),
    "meta": lambda: tracer.trace(lambda x: x.T, torch.randn(3, 4, device="meta"), axes=["T C"])[-1],
    "sparse": lambda: op(lambda x: (x > 0).float().to_sparse(), (3, 4), axes=["T C"]),
    "no tensor": lambda: op(lambda x: x.sum().item(), (3,), axes=["T"]),
}


# ---------------------------------------------------------------- what is drawn


def drawn(one, note=""):
    return ET.fromstring(memory_svg(one, note))


def cells(root):
    """Return (x, y, width, height, text) of each cell; what is drawn on it counts with it."""
    found = {}
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        found[x, y] = (x, y, w, h)
    return list(found.values())


@pytest.mark.parametrize("name", ALL)
def test_nothing_overlaps_or_is_cut_off(name):
    root = drawn(ALL[name]())
    _, _, wide, high = map(float, root.get("viewBox").split())
    boxes = cells(root)
    for x, y, w, h in boxes:
        assert 0 <= x and x + w <= wide and 0 <= y and y + h <= high
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert x1 + w1 <= x2 + 0.01 or x2 + w2 <= x1 + 0.01 or y1 + h1 <= y2 + 0.01 or y2 + h2 <= y1 + 0.01
    lines = []
    for text in root.iter(f"{SVG}text"):
        x, y, n = float(text.get("x")), float(text.get("y")), len(text.text) * _CHAR
        left = {"sm-n": x - n / 2, "sm-e": x - n}.get(text.get("class"), x)
        assert left >= 0 and left + n <= wide + 0.01 and 8 <= y <= high - 2, text.text
        lines.append((left, y, n, text.text))
        inside = [b for b in boxes if b[0] <= x <= b[0] + b[2] and b[1] <= y <= b[1] + b[3]]
        assert all(n <= b[2] for b in inside if text.get("class") == "sm-n"), text.text
    for (x1, y1, n1, t1), (x2, y2, n2, t2) in combinations(lines, 2):
        assert abs(y1 - y2) > 8 or x1 + n1 <= x2 + 0.01 or x2 + n2 <= x1 + 0.01, (t1, t2)
    assert high < 1100


@pytest.mark.parametrize("name", ALL)
def test_a_picture_has_a_name_and_a_text_form(name):
    one = ALL[name]()
    root = drawn(one)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == f"memory of operation {one.index}, {one.name}"
    assert root.find(f"{SVG}desc").text == " ".join(memory_text(one).splitlines())
    assert "http" not in memory_svg(one).replace("http://www.w3.org/2000/svg", "")


def test_each_cell_of_a_small_tensor_is_drawn_with_its_place():
    one = ALL["transpose"]()
    numbers = [t.text for t in drawn(one).iter(f"{SVG}text") if t.get("class") == "sm-n"]
    legend, before, memory, after = numbers[:3], numbers[3:15], numbers[15:27], numbers[27:]
    assert legend == ["0", "1", "2"]  # T
    assert before == memory == [str(n) for n in range(12)]
    assert after == [str(4 * row + column) for column in range(4) for row in range(3)]
    assert memory_text(one).splitlines()[1:] == [
        "before, [T=3, C=4]: places 0 1 2 3 4 5 6 7 8 9 10 11",
        "after, [C=4, T=3]: places 0 4 8 1 5 9 2 6 10 3 7 11",
    ]


def test_shades_stay_with_the_entries():
    """An entry has one shade wherever it is drawn: before, in memory, after; also where it was copied."""
    for name in ("transpose", "copy", "reshape", "view"):
        one = ALL[name]()
        root = drawn(one)
        shades = {}
        rects = [r for r in root.iter(f"{SVG}rect")]
        for plain, shade in pairwise(rects):
            if shade.get("fill-opacity") and (plain.get("x"), plain.get("y")) == (shade.get("x"), shade.get("y")):
                shades[float(plain.get("x")), float(plain.get("y"))] = float(shade.get("fill-opacity"))
        assert set(shades.values()) <= set(_SHADES) and len(set(shades.values())) > 1
        if name == "transpose":  # in the grid after, T runs across: one shade for each column
            last = [(x, y) for x, y in shades if y > max(y for _, y in shades) - 4 * 20]
            for (x1, y1), (x2, y2) in product(last, last):
                assert (shades[x1, y1] == shades[x2, y2]) == (x1 == x2)


def test_large_tensors_are_drawn_from_their_ends():
    texts = [t.text for t in drawn(ALL["large"]()).iter(f"{SVG}text")]
    assert texts.count("…") > 4
    assert "… and 94 more blocks" in texts
    assert str(8 * 64 * 12 * 64 - 1) in texts  # the last cell of the memory
    assert len(memory_svg(ALL["large"]())) < 60_000


def test_the_text_and_the_picture_of_a_transpose_and_its_copy(golden):
    golden("memory.svg", memory_svg(ALL["copy"]()))
    golden("memory.txt", "\n\n".join(f"{name}\n{memory_text(ALL[name]())}" for name in ALL if name != "sparse"))


def test_names_and_variables_show_as_text():
    x = torch.randn(2, 3)
    one = tracer.trace(lambda x: x.T, x, axes=["B T"])[-1]
    evil = '<script>alert("1")</script>&'
    hostile = Op(**{f: getattr(one, f) for f in Op.__dataclass_fields__} | {"name": evil})
    svg = memory_svg(hostile, note="</svg><img src=x onerror=alert(1)>")
    assert "<script" not in svg and "<img" not in svg
    assert ET.fromstring(svg).find(f"{SVG}title").text == f"memory of operation 0, {evil}"


def luminance(colour):
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def rgb(text):
    return tuple(int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", AXIS_COLOURS)
def test_numbers_can_be_read_on_every_shade(name, theme):
    ink, paper = ("#1c1c1c", "#ffffff") if theme == 0 else ("#f2f2f2", "#111111")
    for shade in _SHADES:
        under = tuple(
            c * shade + p * (1 - shade) for c, p in zip(rgb(AXIS_COLOURS[name][theme]), rgb(paper), strict=True)
        )
        light, dark = sorted((luminance(rgb(ink)), luminance(under)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


@given(strided())
def test_the_entry_at_a_place_is_the_one_that_stands_there(drawn):
    x, _ = drawn
    tensor = info(x)
    for index in product(*map(range, x.shape)):
        where = place(tensor, index)
        assert where == sum(i * s for i, s in zip(index, x.stride(), strict=True))
        assert entry_at(tensor, where) == index
    places = {place(tensor, index) for index in product(*map(range, x.shape))}
    assert all(entry_at(tensor, n) is None for n in range(-2, max(places) + 3) if n not in places)


# ---------------------------------------------------------------- from a trace


def test_a_trace_gives_pictures_by_place_or_operation(trace):
    at = [op.name for op in trace].index("transpose")
    assert trace.memory(at).svg == memory_svg(trace[at])
    assert trace.memory(trace.find(name="reshape")[0]).op is trace[-1] is trace.memory(-1).op
    assert trace.find(name="transpose").memory(0).op is trace[at]
    shown = trace.memory(at)
    assert str(shown) == f"operation {at}, transpose:\n{memory_text(trace[at])}"
    assert shown.svg in shown._repr_html_()
    with pytest.raises(IndexError):
        trace.memory(99)


def test_a_picture_says_what_a_copy_is_needed_for(trace):
    first, second = trace.find(name="contiguous")
    assert "Without it" not in str(trace.memory(first))  # what follows is no view
    note = (
        f"Without it operation {second.index + 1}, view, would fail: joining H=3 with D=2 needs the stride of H=3 to "
        "be 2 x 1 = 2, the size times the stride of what follows, and it is 8."
    )
    assert second.inputs[0].stride == (24, 2, 8, 1)
    assert str(trace.memory(second)).splitlines()[2] == note
    assert note in drawn(second, trace.memory(second).note).find(f"{SVG}desc").text


def test_tensors_that_share_memory_stand_in_one_row(trace):
    rows = trace.memory().rows
    shared = {(row.storage, one.id) for row in rows for one, _ in row.tensors}
    seen = {(i.storage, i.id) for op in trace for i in (*op.inputs, *op.outputs)}
    alone = {s for s, _ in seen if sum(other == s for other, _ in seen) == 1}
    assert shared == {(s, i) for s, i in seen if s not in alone}
    assert len(rows) == 3  # x and its views; k and its transpose; the copy and y
    text = str(trace.memory())
    assert re.search(r"^memory 0, 96 bytes, 6 tensors$", text, re.M)
    assert "    x [B, T, C] from outside, strides (24, 6, 1)" in text.splitlines()
    assert any(line.startswith("    q [B, H, T, D] by transpose, operation 1 (") for line in text.splitlines())


def test_the_table_of_shared_memory_as_html(trace):
    html = trace.memory()._repr_html_()
    assert html.count("<tr>") == 1 + len(trace.memory().rows)
    assert '<th scope="row">memory 0, 96 bytes, 6 tensors</th>' in html
    assert str(sharing([])) == "No two tensors share memory."
    assert "No two tensors share memory." in sharing([])._repr_html_()


def test_a_saved_trace_gives_the_same_pictures(trace):
    saved = tracer.Trace.from_json(trace.to_json())
    assert [saved.memory(i).svg for i in range(len(trace))] == [trace.memory(i).svg for i in range(len(trace))]
    assert str(saved.memory()) == str(trace.memory())


def test_the_width_is_that_of_the_view_box():
    assert drawn(ALL["view"]()).get("viewBox").startswith(f"0 0 {WIDTH} ")
