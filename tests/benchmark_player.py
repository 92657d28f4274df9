"""What the player costs at the size of GPT-3: `python tests/benchmark_player.py` (run it by hand).

A trace of GPT-3 is saved as a page and opened in a real browser: bytes of the page and of its parts, seconds to make,
to open and to unfold it, and the frames of a second while an arrow key is pressed again and again, each step with its
movement (the goal is 30). Figures are printed, never asserted: a busy machine draws less.
"""

import argparse
import gzip
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "browser"))

from conftest import QUIET, find_browser, is_root
from playwright.sync_api import Page, sync_playwright

import tracer
from tracer.models import GPT, GPTConfig
from tracer.render import player

FRAMES = """async seconds => {
  let frames = 0, longest = 0, last = performance.now();
  const begin = last;
  await new Promise(done => {
    const tick = now => {
      frames += 1;
      longest = Math.max(longest, now - last);
      last = now;
      if (now - begin < 1000 * seconds) requestAnimationFrame(tick); else done();
    };
    requestAnimationFrame(tick);
  });
  return [frames / ((last - begin) / 1000), longest];
}"""


def gpt3() -> tracer.Trace:
    """Return a trace of GPT-3 175B, run without storage."""
    with torch.device("meta"):
        model = GPT(GPTConfig.named("gpt3")).eval()
        ids = torch.zeros(1, 2048, dtype=torch.long)
    return tracer.trace(model, ids)


def small() -> tracer.Trace:
    """Return a trace of a GPT of class size."""
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=48, vocab_size=65, block_size=16)).eval()
    return tracer.trace(model, torch.ones(2, 8, dtype=torch.long))


def stepping(page: Page, seconds: float, pause: int) -> tuple[float, float, int]:
    """Return frames of a second, the longest frame in milliseconds, and steps, while the arrow key is pressed."""
    page.evaluate(f"window.measured = ({FRAMES})({seconds})")
    end, steps = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(pause)
        steps += 1
    rate, longest = page.evaluate("window.measured")
    return rate, longest, steps


def measure(name: str, trace: tracer.Trace, page: Page, folder: Path) -> None:
    """Print the figures of one trace."""
    len(trace[:])  # the names are worked out
    begin = time.perf_counter()
    text = trace.to_html()
    made = time.perf_counter() - begin
    path = folder / f"{name}.html"
    path.write_text(text, encoding="utf-8")
    data = len(player.json_html(player.pack(trace._data, trace._code())).encode())
    size = len(text.encode())
    zipped = len(gzip.compress(text.encode()))
    print(
        f"{name:6} {len(trace):5} operations  page {size / 1e6:.2f} MB ({zipped / 1e6:.2f} zipped): "
        f"trace {data / 1e6:.2f}, scripts {len(player.script()) / 1e6:.2f}  made in {made:.2f} s"
    )
    begin = time.perf_counter()
    page.goto(path.as_uri())
    page.locator(".tp-where", has_text="/").wait_for()
    opened = time.perf_counter() - begin
    begin = time.perf_counter()
    if page.get_by_role("button", name="Unfold all").count():
        page.get_by_role("button", name="Unfold all").click()
    unfolded = time.perf_counter() - begin
    print(f"       opens in {opened:.2f} s, unfolds in {unfolded:.2f} s")
    idle = page.evaluate(FRAMES, 2)
    print(f"       standing: {idle[0]:.0f} frames a second")
    for pause in (900, 200, 30):
        page.keyboard.press("Home")
        rate, longest, steps = stepping(page, 6, pause)
        where = page.locator(".tp-where").inner_text()
        figures = f"{rate:3.0f} frames a second, the longest {longest:.0f} ms"
        print(f"       {steps / 6:4.1f} steps a second, to {where}: {figures}")


def main() -> None:
    """Measure both sizes in one browser."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    path = find_browser()
    if path is None:
        sys.exit("no chromium, Chrome or Edge was found")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        arguments = [*QUIET, *(["--no-sandbox"] if is_root() else [])]
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        measure("small", small(), page, Path(folder))
        measure("gpt3", gpt3(), page, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
