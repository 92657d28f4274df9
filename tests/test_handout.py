"""The printable sheet: every line of the run is on it, on the page, the same bytes each time; letters have a font."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from handmade import SIZES, Maker
from matplotlib.figure import Figure
from matplotlib.text import Text

import tracer
from tracer import Trace, drawing, handout
from tracer.drawing import Fonts, cells
from tracer.handout import HEIGHT, MARGIN, WIDTH, wrapped
from tracer.render.layout import Repeat, chains, fold, lines
from tracer.render.text import chain_text
from tracer.samples import SAMPLES

KOREAN = "나는 사과를"


def run(name: str, **choices: Any) -> Trace:
    torch.manual_seed(0)
    model, inputs = SAMPLES[name](**choices)
    return tracer.trace(model.eval(), *inputs)


def made(t: Trace, title: str = "sheet") -> list[Figure]:
    return handout.pages(t._data, t._picture("", None, 760.0), title)


def rows(page: Figure) -> list[str]:
    """Return what stands on a page, line by line: texts of one height from left to right."""
    found: dict[float, list[tuple[float, str]]] = {}
    for text in page.findobj(Text):
        x, y = text.get_position()
        if text.get_text():
            found.setdefault(round(y, 1), []).append((x, text.get_text()))
    return ["".join(t for _, t in sorted(found[y])) for y in sorted(found)]


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def shown_lines(items: Any) -> Iterator[Any]:
    for item in items:
        yield from shown_lines(item.first) if isinstance(item, Repeat) else (item,)


@pytest.mark.parametrize("name", ["GPT", "EncoderDecoder", "Attention"])
def test_every_line_of_code_and_every_chain_is_there(name: str) -> None:
    t = run(name)
    pages = made(t)
    columns: list[str] = []
    for left in (True, False):
        for page in pages:
            cut = MARGIN + 44 * 7.5 * drawing.ADVANCE - 1
            texts = [
                (x.get_position(), x.get_text()) for x in page.findobj(Text) if (x.get_position()[0] < cut) == left
            ]
            columns += [text for (_, _), text in sorted(texts, key=lambda one: (round(one[0][1], 1), one[0][0]))]
    everything = squeezed("".join(columns))
    found = list(shown_lines(fold(lines(t._data.ops))))
    assert len(found) > 5
    for line in found:
        assert squeezed(line.source.code) in everything
        for chain in chains(line):
            assert squeezed(chain_text(chain)) in everything


@pytest.mark.parametrize("name", ["GPT", "EncoderDecoder"])
def test_nothing_leaves_the_page_and_no_line_lies_on_another(name: str) -> None:
    for page in made(run(name), "A title that is long " * 8):
        boxes = []
        page.canvas.draw()
        for text in page.findobj(Text):
            if text.get_text().strip():
                x, y = text.get_position()
                wide = cells(text.get_text().rstrip()) * drawing.ADVANCE * text.get_fontsize()
                boxes.append(
                    (x, y - 0.75 * text.get_fontsize(), x + wide, y + 0.2 * text.get_fontsize(), text.get_text())
                )
        for x0, y0, x1, y1, text_ in boxes:
            assert x0 >= MARGIN - 0.1 and x1 <= WIDTH - MARGIN + 0.6, text_
            assert y0 >= MARGIN - 0.1 and y1 <= HEIGHT - MARGIN + 12, text_
        for a, b in combinations(boxes, 2):
            assert not (min(a[2], b[2]) - max(a[0], b[0]) > 0.5 and min(a[3], b[3]) - max(a[1], b[1]) > 0.5), (a, b)


def test_title_sizes_letters_and_numbers_of_pages() -> None:
    pages = made(run("GPT"), "My GPT")
    text = rows(pages[0])
    assert text[0] == "My GPT" and text[1] == "Shape sheet of one run: 68 operations, cpu"
    assert any(re.search(r"H = 3 +query heads", row) for row in text)
    assert [rows(page)[-1] for page in pages] == [f"My GPTpage {n} of {len(pages)}" for n in range(1, len(pages) + 1)]


def test_no_heading_stands_last_on_a_page() -> None:
    pages = [page for name in ("GPT", "EncoderDecoder", "Llama") for page in made(run(name))]
    headings = {"Flow", "Letters and sizes", "Line by line: code, named shapes, sizes"}
    assert len(pages) > 8
    assert [rows(page)[-2] for page in pages if rows(page)[-2] in headings] == []


def test_the_flow_is_on_the_sheet() -> None:
    t = run("Block")
    everything = "".join("".join(rows(page)) for page in made(t))
    for word in ("ln_1", "attn", "mlp", "Thick line: the residual stream."):
        assert word in everything


def test_warnings_and_a_failure_are_told() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q @ k

    with pytest.raises(RuntimeError) as caught:
        tracer.trace(attend, torch.randn(2, 5, 7), torch.randn(2, 5, 7), axes=["B T D", "B S D"])
    everything = " ".join(row for page in made(caught.value.trace) for row in rows(page))  # type: ignore[attr-defined]
    assert "Stopped here: matmul raised an error." in everything and "matmul([B, T, D], [B, S, D])" in everything

    def scrambled(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 3, 5, 7)

    t = tracer.trace(scrambled, torch.randn(2, 5, 21), axes=["B T C"], sizes={"C": 21, "H": 3})
    assert t.warnings and squeezed(t.warnings[0])[:60] in squeezed("".join(rows(made(t)[0])))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for n in (1, 2):
        t = run("Attention")
        count = handout.save(t._data, t._picture("", None, 760.0), tmp_path / f"{n}.pdf", "sheet")
        assert count == len(made(t))
    one, two = ((tmp_path / f"{n}.pdf").read_bytes() for n in (1, 2))
    assert one == two and one.startswith(b"%PDF") and one.count(b"/Type /Page\n") + one.count(b"/Type /Page ") == count
    assert b"/MediaBox [ 0 0 595.2" in one.replace(b"595.28", b"595.2 ")


def korean() -> Trace:
    m = Maker()
    x = m.tensor("B T C", "x")
    m.op("relu", [x], m.tensor("B T C", "y", memory="new"), (1, f'y = f(x, "{KOREAN}")'))
    return Trace.from_ops(m.ops, sizes=SIZES)


def without_korean(monkeypatch: pytest.MonkeyPatch) -> None:
    real = drawing._letters
    monkeypatch.setattr(drawing, "_letters", lambda path: frozenset(c for c in real(path) if c < 0xAC00))


def test_letters_that_no_font_has_are_numbers_and_the_sheet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without_korean(monkeypatch)
    text = [row for page in made(korean()) for row in rows(page)]
    assert any("No installed font has these letters" in row for row in text)
    assert not any("\uac00" <= c <= "\ud7a3" for row in text for c in row)
    assert r"\ub098\ub294" in squeezed("".join(text))


def test_letters_of_other_scripts_get_a_font_that_has_them() -> None:
    fonts = Fonts([KOREAN])
    if fonts.missing:
        pytest.skip("no font with Korean letters is installed")
    assert len(fonts.families) > 1 and fonts.shown(KOREAN) == KOREAN and not fonts.bold(KOREAN)
    page = made(korean())[0]
    assert any(KOREAN in row for row in rows(page))
    page.canvas.draw()  # a letter without a font would warn, and a warning is an error here


@pytest.mark.parametrize(
    ("text", "most", "lines_"),
    [
        ("short", 10, ["short"]),
        ("", 10, [""]),
        ("a, b, c, d", 5, ["a, b, ", "  c, ", "  d"]),
        ("x" * 12, 5, ["xxx", "  xxx", "  xxx", "  xxx"]),
        (KOREAN, 6, ["나는 ", "  사과", "  를"]),
    ],
)
def test_wrapping(text: str, most: int, lines_: list[str]) -> None:
    found = wrapped(text, most, "  ")
    assert found == lines_
    assert all(cells(line.rstrip()) <= most for line in found)


def test_an_empty_trace_has_a_sheet() -> None:
    with tracer.record() as t:
        pass
    assert any("No operation ran." in row for row in rows(made(t)[0]))
