"""Two traces compared, as a page: two columns, one on a telephone, and in black and white. That it fits: with traces."""

import pytest
from handmade import SIZES, gpt

from tracer.result import Trace

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def diff():
    """Three blocks against four: a step gone from each, one changed, a block more."""
    ops = [op for op in gpt(4) if not (op.name == "transpose" and op.variable == "k")]
    mine, theirs = (Trace.from_ops(found, sizes=SIZES, device="cpu") for found in (gpt(3), ops))
    return mine.diff(theirs, mine="yours", theirs="the reference")


def test_both_columns_stand_side_by_side(page, diff):
    page.set_content(diff.to_html())
    row = page.locator("tr", has_text="stays at").first
    yours, reference = (row.locator("td").nth(i).bounding_box() for i in (0, 1))
    assert yours["y"] == reference["y"] and yours["x"] + yours["width"] <= reference["x"] + 1


def test_narrow_pages_name_the_side_in_each_row(page, diff):
    page.set_viewport_size({"width": 360, "height": 780})
    page.set_content(diff.to_html())
    cell = page.locator("tr", has_text="stays at").first.locator("td").nth(1)
    said = cell.evaluate("e => getComputedStyle(e, '::before').content")
    assert said.replace('" "', "") == '"the reference: "'


def test_kinds_are_told_without_colour(page, diff):
    page.emulate_media(forced_colors="active")
    page.set_content(diff.to_html())
    text = page.locator("main").inner_text()
    assert "- gone transpose" in text and "+ added layer_norm" in text


def test_repeated_blocks_open_by_keyboard(page, diff):
    page.set_content(diff.to_html())
    rows = page.locator("details table", has_text="transformer.h.2.attn")
    assert not rows.first.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert rows.first.is_visible()
