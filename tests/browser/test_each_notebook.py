"""Each notebook in JupyterLab, as a student uses it: Run All, one control moved, one exercise answered."""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from tracer.lessons import exercises

pytestmark = pytest.mark.timeout(180)

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("[0-9][0-9]_*.ipynb"))
PANEL = ".tracer-explore"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_run_all_move_a_control_answer_a_check(lab_at, page, name: str) -> None:
    lab = lab_at(FOLDER)
    lab.set_theme("JupyterLab Light")
    copy = lab.folder / f"{name}.ipynb"
    source = copy.read_text(encoding="utf-8")
    copy.write_text(re.sub(r"\bsteps = \d+", "steps = 5", source), encoding="utf-8")
    page.set_default_timeout(90_000)
    lab.open(page, copy.name, alone=True)
    lab.run_all(page)
    assert "Traceback" not in page.locator(".jp-Notebook").inner_text()

    panel = page.locator(PANEL).filter(has=page.get_by_role("slider", name=re.compile(r"^H\b"))).first
    slider = panel.get_by_role("slider", name=re.compile(r"^H\b"))
    heads = int(slider.input_value())
    slider.focus()
    page.keyboard.press("ArrowRight")
    panel.locator(".te-status").filter(has_text=f"C = H x D = {heads + 1} x").wait_for()
    lab.screenshot(page, f"notebook-{name}-moved", PANEL)

    place, answer = first_plain_check(copy)
    cells = page.locator(".jp-Notebook-cell")
    cells.nth(place).locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(f"answer = {answer!r}")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    cells.nth(place + 1).get_by_text("Right").first.wait_for()
    lab.screenshot(page, f"notebook-{name}-answered", f".jp-Notebook-cell:nth-child({place + 1})")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def first_plain_check(path: Path) -> tuple[int, object]:
    """Return where the answer to the first exercise stands that asks for no function, and the right answer."""
    known = {exercise.id: exercise for exercise in exercises()}
    cells = nbformat.read(path, as_version=4).cells
    for place, (before, cell) in enumerate(pairwise(cells)):
        found = re.match(r'lessons\.check\("(\w+)", answer\)', cell.source)
        if found and before.source.startswith("answer = ..."):
            return place, known[found[1]].reference
    raise AssertionError(f"{path.stem} has no check of a plain answer")
