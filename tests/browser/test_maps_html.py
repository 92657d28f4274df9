"""Attention maps as a page: at every width, light and dark, nothing overlaps; axe-core finds nothing serious."""

import pytest
import torch

import tracer
from tests.browser.axe import violations
from tracer.models import GPT, EncoderDecoder, GPTConfig

pytestmark = pytest.mark.timeout(60)

# Texts of one picture that lie on each other or reach out of it, and pictures that reach out of the page.
COLLISIONS = """() => {
  const bad = [];
  for (const picture of document.querySelectorAll('.shape-tracer svg')) {
    const around = picture.getBoundingClientRect();
    if (around.left < 0 || around.right > innerWidth + 1) bad.push('picture outside');
    const boxes = [...picture.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
    boxes.forEach(([word, a], i) => {
      const across = a.left < around.left - 1 || a.right > around.right + 1;
      if (across || a.top < around.top - 1 || a.bottom > around.bottom + 1) bad.push(`outside: ${word}`);
      boxes.slice(i + 1).forEach(([other, b]) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 3) bad.push(`overlap: ${word} | ${other}`);
      });
    });
  }
  return bad.slice(0, 9);
}"""


def gpt(T):
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=48, vocab_size=10, block_size=64)).eval()
    return model, torch.randint(0, 10, (2, T))


@pytest.fixture(scope="module")
def pages():
    """Few positions and many, wide letters and long words, two sequences, two models."""
    words = ["나는", "오늘", "맛있는", "사과를", "먹었다", "incomprehensible", "<b>", ""]
    small = tracer.attention_maps(*gpt(8), tokens=words)
    torch.manual_seed(0)
    translator = EncoderDecoder(n_layer=1, n_head=2, n_embd=24, vocab_size=11).eval()
    source, target = "I saw a black cat today .".split(), ["<s>", "나는", "오늘", "검은"]
    tokens = {"S": source, "T": target}
    cross = tracer.attention_maps(translator, torch.randint(0, 11, (1, 7)), torch.randint(0, 11, (1, 4)), tokens=tokens)
    return {
        "small": small.to_html(),
        "middle": tracer.attention_maps(*gpt(20)).to_html(),
        "large": tracer.attention_maps(*gpt(64)).pick(layers=0).to_html(),
        "cross": cross.to_html(),
        "beside": small.beside(small.pick(heads=[2, 1]), ("before", "after")).to_html(),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(360, 780), (1280, 800), (1920, 1080)], ids=str)
@pytest.mark.parametrize("name", ["small", "middle", "large", "cross", "beside"])
def test_maps_fit(page, pages, name, size, theme, artefacts):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=theme)
    page.set_content(pages[name])
    page.screenshot(path=artefacts / f"maps-{name}-{size[0]}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(COLLISIONS) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, pages, theme):
    page.emulate_media(color_scheme=theme)
    page.set_content(pages["small"])
    for fold in page.locator("summary").all():
        fold.click()
    assert violations(page) == []
    page.evaluate("document.querySelector('svg').removeAttribute('aria-label')")
    assert any("svg-img-alt" in found for found in violations(page)), "axe sees a picture without words"


def test_pictures_are_the_same_without_scripts(browser, pages, artefacts):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(pages["small"])
    assert page.get_by_role("img", name="transformer.h.0.attn, head 2").is_visible()
    page.locator("summary").first.click()
    assert page.locator("pre").first.is_visible()
    context.close()


def test_the_words_of_a_map_open_by_keyboard(page, pages):
    page.set_content(pages["small"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    first = page.locator("pre").first
    assert first.is_visible()
    assert "transformer.h.0.attn, head 0: T x T" in first.inner_text()
