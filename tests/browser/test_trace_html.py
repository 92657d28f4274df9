"""A trace as a page, on a telephone and on a projector, light and dark: nothing overlaps or runs off the side."""

from dataclasses import replace

import pytest
from handmade import SIZES, gpt

from tracer.result import Trace

pytestmark = pytest.mark.timeout(60)

WARNING = "model.py:21: view cuts across axes: [B, T, C] -> [B, H, T, D] (in transformer.h.0.attn)"

# Boxes of words that lie on each other, or reach outside of the page. (Narrow pages keep the table's head for readers
# of the screen alone.)
COLLISIONS = """() => {
  const hidden = e => e.closest('thead') && getComputedStyle(e.closest('thead')).clipPath !== 'none';
  const words = ':is(.st-x, .st-op, .st-at, code, th[scope=col], .st-head span, dt, dd, li)';
  const boxes = [...document.querySelectorAll(`.shape-tracer ${words}`)]
    .filter(e => e.checkVisibility() && !hidden(e)).map(e => [e, e.getBoundingClientRect()]);
  const bad = boxes.filter(([, r]) => r.left < -1 || r.right > innerWidth + 1).map(([e]) => `outside: ${e.innerText}`);
  boxes.forEach(([e, a], i) => boxes.slice(i + 1, i + 40).forEach(([f, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1 && !e.contains(f) && !f.contains(e)) bad.push(`overlap: ${e.innerText} | ${f.innerText}`);
  }));
  return bad;
}"""

# The contrast of every piece of text with what lies behind it, at its lowest.
LOWEST_CONTRAST = """() => {
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => rgb(c).slice(0, 3).reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
  const ground = e => getComputedStyle(e).backgroundColor;
  const behind = e => rgb(ground(e))[3] === 0 ? behind(e.parentElement) : ground(e);
  const walker = document.createTreeWalker(document.querySelector('.shape-tracer'), NodeFilter.SHOW_TEXT);
  let lowest = [99, ''];
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.textContent.trim() || e.tagName === 'STYLE') continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => x - y);
    if ((b + .05) / (a + .05) < lowest[0]) lowest = [(b + .05) / (a + .05), e.outerHTML.slice(0, 80)];
  }
  return lowest;
}"""


@pytest.fixture(scope="module")
def trace():
    """Three blocks, with a warning, and a line of code as long as lines get."""
    return Trace.from_ops(gpt(3), sizes=SIZES, device="cpu", warnings=[WARNING], unnamed=["roll"])


def pages(trace):
    rows = {"q, k, v": ["q", "k", "v"], "score": "scores", "the loss of this run": "loss"}
    table = trace.table(rows, caption="minGPT")._repr_html_()
    return {"trace": trace.to_html(), "table": f"<!doctype html><body>{table}"}


def open_table(page):
    """Open the table under the player, and wait until the player has come to life."""
    page.locator(".tp-where").wait_for()
    page.locator("#tracer-table > summary").click()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(360, 780), (1280, 800), (1920, 1080)], ids=str)
@pytest.mark.parametrize("name", ["trace", "table"])
def test_a_page_fits(page, trace, name, size, theme, artefacts):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=theme)
    page.set_content(pages(trace)[name])
    if name == "trace":
        open_table(page)
    page.screenshot(path=artefacts / f"{name}-{size[0]}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(COLLISIONS) == []
    contrast, where = page.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, where


@pytest.fixture(scope="module")
def differences(trace):
    """All four kinds of change, long names for the two runs, and a fold."""
    more = Trace.from_ops(gpt(3, {**SIZES, "H": 7, "D": 3}))
    norm, activation, lost = (
        next(op for op in trace if op.module == f"transformer.h.{path}") for path in ("1.ln_2", "2.mlp.act", "0.ln_1")
    )
    steps = [op if op is not activation else replace(op, name="gelu_new") for op in trace if op not in (norm, lost)]
    other = Trace.from_ops([*steps[:4], norm, *steps[4:]])
    names = ("your run of Monday", "the reference of the course")
    return {
        "kinds": other.diff(trace, names=names),
        "back": trace.diff(other, names=names),
        "sizes": trace.diff(more),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["kinds", "back", "sizes"])
def test_a_page_of_differences_fits(page, differences, name, width, theme, artefacts):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    page.set_content(differences[name].to_html())
    for fold in page.locator("summary").all():
        fold.click()
    page.screenshot(path=artefacts / f"diff-{name}-{width}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(COLLISIONS) == []
    contrast, where = page.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, where


@pytest.mark.parametrize("width", [360, 1280])
def test_a_change_is_told_by_words_in_one_piece(page, differences, width):
    """In black and white too: each row says what it is, and no word of it is broken in two."""
    page.set_viewport_size({"width": width, "height": 800})
    page.set_content(differences["kinds"].to_html())
    rows = page.locator(".st-diff th[scope=row]")
    shown = {text.split(" (")[0] for text in rows.all_inner_texts()}
    assert shown == {"+ added", "~ changed", "> moved"}
    assert min(box["width"] for row in rows.all() if (box := row.bounding_box())) > 90
    before = "e => getComputedStyle(e, '::before').content"
    names = {page.locator(".st-diff td").nth(i).evaluate(before) for i in range(2)}
    expected = {'"your run of Monday"', '"the reference of the course"'} if width == 360 else {"none"}
    assert names == expected


def test_repeated_blocks_open_by_keyboard(page, trace):
    page.set_content(trace.to_html())
    open_table(page)
    rows = page.locator("table", has_text="transformer.h.2.attn")
    assert not rows.first.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert rows.first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
