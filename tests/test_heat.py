"""Attention maps as SVG, text and figure: one scale that everybody can read, escaped labels, fonts that have them."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from eyes import BLIND, contrast, lab, linear
from matplotlib import font_manager

from tracer.render import heat, heatfigure
from tracer.render.heat import BOUNDS, DARK, LIGHT, Panel, fragment, level, short, svg, text


def panel(T: int = 4, labels: tuple[str, ...] = (), hidden: bool = True) -> Panel:
    """A causal map of T positions, each of which looks most at itself."""
    weights = [[0.0] * T for _ in range(T)]
    for i in range(T):
        for j in range(i + 1):
            weights[i][j] = (0.6 if i == j else 0.4 / i) if i else 1.0
    labels = labels or tuple(str(i) for i in range(T))
    closed = tuple(tuple(hidden and j > i for j in range(T)) for i in range(T))
    sums = tuple(sum(row) for row in weights)
    return Panel("h.0.attn", 1, "", ("T", "T"), labels, labels, tuple(map(tuple, weights)), closed, sums, 1.25)


def shapes(picture: str, tag: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(picture).iter() if e.tag == tag]


# ---------------------------------------------------------------- the scale


@pytest.mark.parametrize("eyes", BLIND)
@pytest.mark.parametrize(("steps", "way"), [(LIGHT, -1), (DARK, 1)], ids=["light", "dark"])
def test_more_weight_is_farther_from_the_page_for_everybody(steps: tuple[str, ...], way: int, eyes: str) -> None:
    seen = [lab(BLIND[eyes] @ linear(colour)) for colour in steps]
    assert all(way * (b[0] - a[0]) > 3 for a, b in pairwise(seen)), "lightness alone tells the steps apart"
    assert min(np.linalg.norm(a - b) for a, b in pairwise(seen)) >= 4


@pytest.mark.parametrize("colour", [*LIGHT, *DARK])
def test_numbers_can_be_read_on_every_step(colour: str) -> None:
    assert contrast(colour, heat.ink(colour)) >= 4.5


def test_every_weight_has_its_step() -> None:
    assert len(BOUNDS) == len(LIGHT) == len(DARK)
    assert [level(b) for b in BOUNDS] == list(range(len(BOUNDS)))
    assert level(0.0999) == 3
    assert level(1.00001) == 9
    assert level(float("nan")) == 0


def test_the_scale_has_its_numbers_and_themes() -> None:
    page = fragment([("h.0.attn", [[panel()]])])
    for bound in ("0", ".01", ".35", ".9"):
        assert f">{bound}</text>" in page
    for i, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)):
        assert f".st-w{i}{{fill:{light};fill:light-dark({light},{dark})}}" in page
    assert ">weight<" not in page
    assert "masked" in page
    assert "masked" not in fragment([("h.0.attn", [[panel(hidden=False)]])])


# ---------------------------------------------------------------- the picture


def test_masked_cells_are_hatched_and_a_weight_of_zero_is_filled() -> None:
    picture = svg(panel(3))
    (hatch,) = [e for e in shapes(picture, "path") if e.get("class") == "st-no"]
    assert hatch.get("d") == "M2 0l-1 1M3 0l-1 1M3 1l-1 1"
    (four,) = [e for e in shapes(svg(panel(4)), "path") if e.get("class") == "st-no"]
    assert "M4 0l-2 2" in (four.get("d") or ""), "the cells (0, 3) and (1, 2) share one line"
    zero = replace(panel(3, hidden=False))
    assert not [e for e in shapes(svg(zero), "path") if e.get("class") == "st-no"]
    (fill,) = [e for e in shapes(svg(zero), "path") if e.get("class") == "st-w0"]
    assert (fill.get("d") or "").count("M") == 2  # one run in each of the first two rows


def cells(picture: str) -> int:
    """Return how many cells the filled paths cover."""
    return sum(int(wide) for wide in re.findall(r"h(\d+)v1", picture))


@pytest.mark.parametrize("T", [1, 4, 10, 11, 40])
def test_each_cell_is_drawn_once(T: int) -> None:
    assert cells(svg(panel(T))) == T * (T + 1) // 2
    assert cells(svg(panel(T, hidden=False))) == T * T


def test_numbers_stand_in_small_maps_and_sums_beside_them() -> None:
    words = [e.text for e in shapes(svg(panel(4)), "text")]
    assert words.count("1.00") == 4
    assert ".60" in words
    assert "1" in words
    assert ".60" not in [e.text for e in shapes(svg(panel(11)), "text")]
    assert [e.text for e in shapes(svg(panel(11)), "text")].count("1.00") == 11


@pytest.mark.parametrize("T", [1, 3, 12, 64, 200])
def test_a_panel_fits_a_telephone(T: int) -> None:
    picture = ET.fromstring(svg(panel(T, tuple(f"incomprehensible{i}" for i in range(T)))))
    assert float(picture.get("width", "0")) <= 328
    assert len(svg(panel(T))) < 40 * T * T + 4000


def test_a_map_is_said_in_words_too() -> None:
    picture = ET.fromstring(svg(panel(3, ("the", "cat", "sat"))))
    assert picture.get("role") == "img"
    said = picture.get("aria-label") or ""
    assert "h.0.attn, head 1" in said
    assert "sat looks most at sat: 0.60" in said
    assert "each row sums to 1.00" in said
    assert "entropy 1.25 bits" in said


def test_labels_are_escaped_and_kept_short() -> None:
    labels = ("<script>", '"&', "ab" * 9, "사과를먹었다고", " the", "", "\n", "\x1b")
    page = fragment([("<layer>", [[panel(8, labels)]])], ["<note>"])
    assert "<script>" not in page
    assert "<layer>" not in page
    assert "<note>" not in page
    assert [short(label) for label in labels[2:]] == ["ababababa…", "사과를먹…", "␣the", "∅", "⏎", "\\x1b"]
    assert "<script" not in page.lower()
    ET.fromstring(svg(panel(8, labels)))


def test_text_lines_up_where_letters_are_wide() -> None:
    rows = text(panel(3, ("나는", "the", "사과를"))).splitlines()
    assert rows[0] == "h.0.attn, head 1: T x T"
    ends = {sum(2 if ord(c) > 0x1100 else 1 for c in row) for row in rows[1:5]}
    assert len(ends) == 1
    assert rows[2].split() == ["나는", "1.00", "-", "-", "1.00"]
    assert "  3 looks most at 3: 0.60" in text(panel(11)).splitlines()


def test_sums_that_are_not_one_are_told() -> None:
    odd = replace(panel(2), sums=(1.0, 0.0))
    assert "rows sum to 0.00 at least, 1.00 at most" in fragment([("h", [[odd]])])
    nothing = replace(panel(2), sums=(math.nan, 1.0), entropy=math.nan)
    assert "nan" in text(nothing)
    unknown = replace(panel(2, hidden=False), weights=((math.nan, math.nan), (0.5, 0.5)))
    assert [e.text for e in shapes(svg(unknown), "text")].count("nan") == 2


# ---------------------------------------------------------------- the figure


def test_a_figure_draws_every_panel_in_the_colours_of_the_scale(tmp_path: Path) -> None:
    made = heatfigure.figure([panel(4), replace(panel(12), note="after")], columns=4)
    first, second = made.axes
    assert first.get_title() == "h.0.attn\nhead 1"
    assert second.get_title() == "h.0.attn\nafter: head 1"
    image = first.images[0]
    assert image.get_array().mask.sum() == 6
    assert [tuple(c) for c in image.cmap(image.norm(np.array(BOUNDS)))] == [
        (*(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0) for c in LIGHT
    ]
    assert len(first.texts) == 10
    assert len(second.texts) == 0
    made.savefig(tmp_path / "maps.png", dpi=40)
    assert (tmp_path / "maps.png").stat().st_size > 1000


def test_a_font_that_has_the_letters_is_found_or_missed() -> None:
    plain = heatfigure.font_for("the cat")
    assert plain is not None
    assert Path(plain).name == "DejaVuSans.ttf"
    assert heatfigure.font_for("\U000f1234") is None


def test_korean_labels_are_drawn_with_a_font_that_has_them(tmp_path: Path) -> None:
    words = ("나는", "사과를", "먹었다")
    path = heatfigure.font_for("".join(words))
    made = heatfigure.figure([panel(3, words)], 1)
    made.savefig(tmp_path / "maps.png", dpi=40)  # a letter that a font lacks is a warning, and so an error here
    shown = [label.get_text() for label in made.axes[0].get_yticklabels()]
    if path is None:
        assert shown == ["0", "1", "2"]
        assert "fonts-noto-cjk" in made.get_supxlabel()
    else:
        assert shown == list(words)


def test_without_such_a_font_positions_are_numbered_and_a_font_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = [f for f in font_manager.fontManager.ttflist if f.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", small)
    made = heatfigure.figure([panel(3, ("나는", "사과를", "먹었다"))], 1)
    assert [label.get_text() for label in made.axes[0].get_yticklabels()] == ["0", "1", "2"]
    assert "Noto Sans CJK" in made.get_supxlabel()
    made.savefig(tmp_path / "maps.png", dpi=40)
