"""Self-checks in JupyterLab: stages, an exception, a loop that is ended, hints, progress; wide, narrow, light, dark."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

CELLS = [
    """import pathlib
from tracer import lessons
pathlib.Path("tracer_class.json").write_text('{"seconds": 1}');""",
    """def split_heads(x, H):
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)
lessons.check("split_heads", split_heads)""",
    """def split_heads(x, H):
    print(x.shape)
    return x.view(x.shape[0], H, x.shape[1], -1)
lessons.check("split_heads", split_heads)""",
    """def merge_heads(out):
    B, H, T, D = out.shape
    return out.transpose(1, 2).view(B, T, H * D)
lessons.check("merge_heads", merge_heads)""",
    """def merge_heads(out):
    while True:
        try:
            out.sum()
        except:
            pass
lessons.check("merge_heads", merge_heads)""",
    'lessons.check("scores_shape", "B H T D")',
    'lessons.hint("scores_shape")',
    'lessons.solution("split_heads")',
    "lessons.progress()",
]


@pytest.fixture(scope="module")
def lab(lab_at, tmp_path_factory):
    """A JupyterLab on one notebook of checks."""
    folder = tmp_path_factory.mktemp("checks")
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(notebook, folder / "checks.ipynb")
    return lab_at(folder)


def outputs(page) -> list[str]:
    """Return the text of each cell's output, hidden words included."""
    cells = page.locator(".jp-CodeCell")
    return [cells.nth(place).locator(".jp-Cell-outputArea").text_content() for place in range(cells.count())]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_feedback_as_a_student_sees_it(lab, page, theme: str) -> None:
    lab.set_theme(f"JupyterLab {theme}")
    lab.open(page, "checks.ipynb", alone=True)
    lab.run_all(page)
    _start, right, wrong, error, late, shape, hint, solution, progress = outputs(page)
    assert "\\n" not in "".join(outputs(page)), "a line break is one"
    assert "✓ Right" in right and "✓passed:  numbers" in right
    assert "split_heads_view_only" in wrong and "Your function printed:" in wrong
    assert "✗failed:  numbers (1 of 5 inputs)" in wrong
    assert "! Stopped" in error and "view" in error and "line 3 of merge_heads" in error
    assert "After 1 s your code was still running" in late and "of merge_heads" in late
    assert "✗ Not yet" in shape and "scores_shape: hint" in hint and "def split_heads" in solution
    assert "points" in progress and "question 1" in progress
    assert "Traceback" not in "".join(outputs(page))
    for place, name in ((2, "wrong"), (8, "progress")):
        lab.screenshot(page, f"lessons-{theme.lower()}-{name}", f".jp-CodeCell >> nth={place}")


def test_feedback_on_a_narrow_screen(lab, page) -> None:
    lab.set_theme("JupyterLab Light")
    page.set_viewport_size({"width": 360, "height": 800})
    lab.open(page, "checks.ipynb", alone=True)
    lab.run_all(page)
    for place, name in ((1, "right"), (2, "wrong"), (4, "late"), (8, "progress")):
        lab.screenshot(page, f"lessons-narrow-{name}", f".jp-CodeCell >> nth={place}")
    wide = page.evaluate(
        """() => [...document.querySelectorAll('.jp-RenderedHTMLCommon [role=status]')]
            .filter(node => node.scrollWidth > node.clientWidth + 1).length"""
    )
    assert page.locator("[role=status]").count() >= 7 and wide == 0
