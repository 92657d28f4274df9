"""The notebooks and the exercises belong together: each check cell names an exercise of its notebook, untouched."""

import ast
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tracer.lessons import exercises

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def _cells(path: Path, kind: str) -> list[str]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def _checked(path: Path) -> list[str]:
    return re.findall(r"lessons\.check\(\s*\"(\w+)\"", "\n".join(_cells(path, "code")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_checks_the_exercises_that_belong_to_it(path: Path) -> None:
    own = [exercise.id for exercise in exercises() if exercise.notebook == path.stem[:2]]
    assert sorted(_checked(path)) == sorted(own)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_check_cells_hold_no_answer(path: Path) -> None:
    cells = _cells(path, "code")
    for answer, check in itertools.pairwise(cells):
        if found := re.fullmatch(r"lessons\.check\(\"(\w+)\", (\w+)\)", check):
            exercise = next(exercise for exercise in exercises() if exercise.id == found[1])
            wanted = "return ..." if exercise.kind == "function" else f"{found[2]} = ..."
            assert ast.unparse(ast.parse(answer)).count(wanted) == 1
        else:
            assert "lessons.check(" not in check, "a check stands in a cell of its own: python tests/check_cells.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_hints_and_solutions_are_asked_for_by_the_reader_not_by_run_all(path: Path) -> None:
    for source in _cells(path, "code"):
        assert not re.search(r"^[^#\n]*lessons\.(hint|solution)\(", source, re.MULTILINE)


def test_the_teachers_page_lists_each_check_of_its_notebook() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        for exercise in exercises():
            if exercise.notebook == path.stem[:2] and f"## {exercise.notebook} " in page:
                row = f"| `{exercise.id}` | {exercise.minutes} | {exercise.points} |"
                assert row in page
