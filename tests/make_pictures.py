"""Makes the pictures of README and notebooks/README: `python tests/make_pictures.py` (needs a browser; by hand).

Each is what a notebook shows of a live run. The maps are those of a small GPT that has learned to sort digits (30 s).
"""

import sys
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tracer  # noqa: E402
from tests.browser.conftest import find_browser  # noqa: E402
from tracer.classroom.tasks import Sort  # noqa: E402
from tracer.classroom.training import train  # noqa: E402
from tracer.models import GPT, GPTConfig  # noqa: E402

PICTURES = ROOT / "notebooks" / "pictures"
PAGE = "<!doctype html><meta charset=utf-8><body style='margin:12px;font-family:sans-serif;background:#fff'>{}"


def attention() -> str:
    """Trace one forward pass of the reference GPT; show its first attention."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=1, n_head=3, n_embd=48, vocab_size=10, block_size=8)).eval()
    t = tracer.trace(model, torch.randint(0, 10, (2, 8)))
    (PICTURES / "flow.svg").write_text(t.to_svg("transformer.h.0"), encoding="utf-8")
    return t.find(module="transformer.h.0.attn")._repr_html_()


def maps() -> str:
    """Show where a GPT that has learned to sort looks while it writes 1 3 5 8 after 3 8 1 5."""
    torch.manual_seed(0)
    task = Sort(length=4, vocab_size=10)
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 48, "vocab_size": 10, "block_size": task.block_size}
    model = GPT(GPTConfig(**sizes))
    train(model, task.batch, steps=500, lr=3e-3, device="cpu")
    digits = [3, 8, 1, 5, 1, 3, 5]
    logits, _ = model(torch.tensor([digits]))
    assert logits[0, 3:].argmax(-1).tolist() == [1, 3, 5, 8], "it has not learned to sort"
    found = tracer.attention_maps(model, torch.tensor([digits]), tokens=[str(d) for d in digits])
    return found.pick(layers=1)._repr_html_()


def main() -> None:
    """Photograph all of them, `name.png` each; with names on the command line only those."""
    torch.set_num_threads(1)
    makers = {"attention": attention, "maps": maps}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for name in sys.argv[1:] or makers:
            page = browser.new_page(viewport={"width": 1100, "height": 300})
            page.set_content(PAGE.format(makers[name]()))
            page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
