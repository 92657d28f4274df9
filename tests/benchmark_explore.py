"""How long a slider move takes, from the key to the picture: `python tests/benchmark_explore.py` (needs a browser).

A notebook with the class-size GPT under `tracer.explore` runs in JupyterLab. Reported is the median over moves of H:
the plain forward, what Python does, and the whole as the reader sees it, until the browser has painted. Ends with 1
where the whole takes longer than twice the plain forward and 100 ms.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import torch
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import ARTEFACTS, QUIET, Lab, find_browser, is_root  # noqa: E402
from tracer.explorer import Explorer  # noqa: E402

BUILDER = """import torch
import tracer
from tracer.models import GPT, GPTConfig

def build(H=3, D=16, L=3, T=16, B=4):
    config = GPTConfig(n_layer=L, n_head=H, n_embd=H * D, vocab_size=10, block_size=64)
    return GPT(config).eval(), torch.zeros(B, T, dtype=torch.long)
"""
SHOW = "tracer.explore(build, H=(1, 8), D=(4, 64), L=(1, 6), T=(1, 64))"
MOVES = 16

# Press a key in the slider and wait until the picture has its new text and the browser has painted it.
MOVE = """([key, value]) => new Promise(done => {
  const slider = document.querySelector('.tracer-explore input[type=range]');
  const picture = document.querySelector('.te-picture');
  const start = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
  });
  watch.observe(picture, {subtree: true, childList: true, characterData: true});
  slider.value = value;
  slider.dispatchEvent(new Event('input', {bubbles: true}));
})"""


def median(values: list[float]) -> float:
    return statistics.median(values)


def in_python() -> tuple[float, float]:
    """Return milliseconds of the plain forward and of a move without a browser."""
    names: dict[str, object] = {}
    exec(BUILDER, names)
    build = names["build"]
    model, inputs = build()  # type: ignore[operator]
    explorer = Explorer(build, {"H": (1, 8), "D": (4, 64)})  # type: ignore[arg-type]
    plain, moves = [], []
    for i in range(MOVES):
        start = time.perf_counter()
        model(inputs)
        plain.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
        explorer.set(H=3 + i % 2)
        moves.append(1e3 * (time.perf_counter() - start))
    return median(plain), median(moves)


def in_the_browser() -> list[float]:
    """Return milliseconds from an input event to the painted picture, for each move."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        notebooks = Path(folder) / "folder"
        notebooks.mkdir()
        cells = [nbformat.v4.new_code_cell(text) for text in (BUILDER, SHOW)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
        text = json.dumps(nbformat.v4.new_notebook(cells=cells, metadata=kernel))
        (notebooks / "bench.ipynb").write_text(text, encoding="utf-8")
        ARTEFACTS.mkdir(exist_ok=True)
        (Path(folder) / "home").mkdir()
        lab = Lab(notebooks, Path(folder) / "home")
        browser = play.chromium.launch(
            executable_path=find_browser(), args=[*QUIET, *(["--no-sandbox"] if is_root() else [])]
        )
        try:
            lab.wait()
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            lab.open(page, "bench.ipynb", alone=True)
            lab.run_all(page)
            page.locator(".te-picture table").first.wait_for()
            times = []
            for i in range(MOVES):
                times.append(page.evaluate(MOVE, ["H", 3 + (i + 1) % 2]))
                page.wait_for_timeout(150)
            return times
        finally:
            browser.close()
            lab.stop()


def main() -> int:
    """Report, and compare with the limit."""
    torch.set_num_threads(1)
    plain, python = in_python()
    whole = in_the_browser()
    limit = 2 * plain + 100
    print("class size: L=3, H=3 or 4, D=16, B=4, T=16; medians in ms")
    print(f"plain forward               {plain:6.1f}")
    print(f"build, run, draw in Python  {python:6.1f}")
    print(f"move to painted picture     {median(whole):6.1f}   (least {min(whole):.1f}, most {max(whole):.1f})")
    print(f"limit: 2 x plain + 100      {limit:6.1f}")
    return int(median(whole) > limit)


if __name__ == "__main__":
    sys.exit(main())
