"""Makes the README's pictures from a live trace: `python tests/make_pictures.py` (needs a browser; run it by hand)."""

import sys
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tracer  # noqa: E402
from tests.browser.conftest import find_browser  # noqa: E402
from tracer.models import GPT, GPTConfig  # noqa: E402

PAGE = "<!doctype html><meta charset=utf-8><body style='margin:12px;font-family:sans-serif;background:#fff'>{}"


def main() -> None:
    """Trace one forward pass of the reference GPT and photograph its first attention."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=1, n_head=3, n_embd=48, vocab_size=10, block_size=8)).eval()
    t = tracer.trace(model, torch.randint(0, 10, (2, 8)))
    (ROOT / "notebooks" / "pictures" / "flow.svg").write_text(t.to_svg("transformer.h.0"), encoding="utf-8")
    html = t.find(module="transformer.h.0.attn")._repr_html_()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.set_content(PAGE.format(html))
        page.screenshot(path=ROOT / "notebooks" / "pictures" / "attention.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
