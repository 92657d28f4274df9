"""The flow figure in a browser: with the fonts that are really there no words touch, in light, dark and in print."""

import pytest
import torch

import tracer
from tracer import Trace
from tracer.samples import SAMPLES

pytestmark = pytest.mark.timeout(120)

# Words that touch other words or the edge of a box, or leave the picture.
COLLISIONS = """() => {
  const svg = document.querySelector('svg'), edge = svg.getBoundingClientRect(), bad = [];
  const boxes = e => [...svg.querySelectorAll(e)].map(e => [e, e.getBoundingClientRect()]);
  const meet = (a, b, by) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > by
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
  const words = boxes('text').filter(([e]) => e.textContent.trim());
  words.forEach(([e, a], i) => {
    if (a.left < edge.left || a.right > edge.right || a.top < edge.top || a.bottom > edge.bottom)
      bad.push(`outside: ${e.textContent}`);
    words.slice(i + 1).forEach(([f, b]) => { if (meet(a, b, 3)) bad.push(`${e.textContent} | ${f.textContent}`); });
    boxes('rect:not(.bg)').forEach(([f, b]) => {
      const inside = e.parentNode === f.parentNode && f.parentNode.querySelector('rect');
      if (!inside && meet(a, b, 3)) bad.push(`${e.textContent} on a box`);
      if (inside && (a.left < b.left || a.right > b.right)) bad.push(`${e.textContent} is wider than its box`);
    });
  });
  return bad;
}"""

# The lowest contrast of any word with the picture's or its box's ground.
LOWEST_CONTRAST = """() => {
  const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const fill = e => light(getComputedStyle(e).fill);
  const ground = fill(document.querySelector('.bg'));
  return Math.min(...[...document.querySelectorAll('text, tspan')].map(e => {
    const box = e.closest('g')?.querySelector(':scope > rect.box, :scope > rect.step');
    const [a, b] = [fill(e), box ? fill(box) : ground].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }));
}"""


def run(name: str, **choices: object) -> Trace:
    torch.manual_seed(0)
    model, inputs = SAMPLES[name](**choices)
    return tracer.trace(model.eval(), *inputs)


def show(page, svg: str) -> None:
    page.set_content(f"<!doctype html><meta charset=utf-8><body style='margin:0'>{svg}")


@pytest.mark.parametrize("name", SAMPLES)
def test_no_words_touch(page, name, artefacts) -> None:
    t = run(name)
    for number, module in enumerate(
        ["", *[m for m in ("transformer.h.0", "transformer.h.0.attn") if t.find(module=m)]]
    ):
        page.set_viewport_size({"width": 820, "height": 600})
        show(page, t.to_svg(module))
        assert page.evaluate(COLLISIONS) == []
        page.screenshot(path=artefacts / f"flow_{name}_{number}.png", full_page=True)


def test_words_that_touch_are_found(page) -> None:
    svg = run("Block").to_svg()
    show(page, svg.replace('font-size="11"', 'font-size="31"'))
    assert page.evaluate(COLLISIONS) != []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_in_light_and_dark(page, scheme, artefacts) -> None:
    page.emulate_media(color_scheme=scheme)
    show(page, run("Block", norm="post").to_svg())
    assert page.evaluate(LOWEST_CONTRAST) >= 4.5
    page.screenshot(path=artefacts / f"flow_{scheme}.png")


def test_it_is_printed_on_white(page) -> None:
    page.emulate_media(color_scheme="dark", media="print")
    show(page, run("Block").to_svg())
    assert page.evaluate("getComputedStyle(document.querySelector('.bg')).fill") == "rgb(255, 255, 255)"
    assert page.evaluate(LOWEST_CONTRAST) >= 4.5


def test_a_narrow_page_shows_it_whole(page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    show(page, run("GPT").to_svg())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
