"""The memory picture in a real browser: with its real letters nothing overlaps or is cut off, wide and narrow."""

import pytest
import torch

import tracer
from tracer.render.html import whole_page

# Words that lie on each other, reach outside of the picture, or do not fit into their cell.
MEASURE = """() => [...document.querySelectorAll('svg.shape-memory')].map(svg => {
  const frame = svg.viewBox.baseVal;
  const boxes = [...svg.querySelectorAll('rect')].map(r => r.getBBox());
  const texts = [...svg.querySelectorAll('text')]
    .map(t => ({box: t.getBBox(), words: t.textContent, kind: t.className.baseVal}));
  const outside = texts.filter(({box: b}) =>
    b.x < 0 || b.x + b.width > frame.width || b.y < 0 || b.y + b.height > frame.height);
  const within = (a, b) => a.x >= b.x - 0.5 && a.x + a.width <= b.x + b.width + 0.5;
  const over = (a, b) => a.x < b.x + b.width - 0.5 && b.x < a.x + a.width - 0.5
    && a.y < b.y + b.height - 3 && b.y < a.y + a.height - 3;
  const wide = texts.filter(({box, kind}) => kind === 'sm-n' && boxes.some(b => over(box, b) && !within(box, b)));
  const crossed = texts.filter((a, i) => texts.some((b, j) => i < j && over(a.box, b.box)));
  return [...outside, ...wide, ...crossed].map(({words}) => words);
})"""


def pictures():
    """Return pictures of every kind: views, a copy that is needed, a part, one number, a large tensor."""

    def small(x):
        B = len(x)
        q, k = x.split(6, dim=2)
        q = q.view(B, 4, 2, 3).transpose(1, 2)
        y = q.transpose(1, 2)[:, ::2].contiguous().view(B, 2, 6)
        y = y.expand(3, B, 2, 6).reshape(-1)
        return y.sum() + q.reshape(B, -1).sum() + k.add_(1).sum()

    def large(x):
        return x.view(8, 64, 12, 64).transpose(1, 2).contiguous().view(96, 64, 64)

    first = tracer.trace(small, torch.randn(2, 4, 12), axes=["B T 2C"], sizes={"C": 6, "H": 2, "D": 3})
    second = tracer.trace(large, torch.randn(8, 64, 768), axes=["B T C"], sizes={"C": 768, "H": 12, "D": 64})
    shown = [t.memory(i)._repr_html_() for t in (first, second) for i in range(len(t))]
    return "".join([*shown, first.memory()._repr_html_()]), len(shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overlaps_is_cut_off_or_scrolls_sideways(page, artefacts, width, scheme):
    body, count = pictures()
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.set_content(whole_page("memory", body))
    page.screenshot(path=artefacts / f"memory-{scheme}-{width}.png", full_page=True)
    assert page.evaluate(MEASURE) == [[]] * count
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_letters_follow_the_theme(page):
    page.set_content(whole_page("memory", pictures()[0]))
    seen = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        seen.append(
            page.evaluate(
                "() => ['text', 'rect'].map(n => getComputedStyle(document.querySelector(`.shape-memory ${n}`)).fill)"
            )
        )
    assert seen == [["rgb(28, 28, 28)", "rgb(255, 255, 255)"], ["rgb(242, 242, 242)", "rgb(17, 17, 17)"]]
