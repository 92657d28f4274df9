"""nbgrader and the notebooks: the check cells are its tests, and its four commands give each learner what they earned.

The commands run where nbgrader is installed (in CI they must), on notebook 00 in a course of its own.
"""

import csv
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import check_cells
import nbformat
import pytest

from tracer.lessons import check, exercises

ROOT = Path(__file__).resolve().parents[2]
BY_ID = {exercise.id: exercise for exercise in exercises()}
NAME = "00_start_here"

RIGHT = {
    "shape_of_embedding": 'answer = "B T C"',
    "split_heads": "def split_heads(x, H):\n    return x.unflatten(-1, (H, -1)).transpose(1, 2)",
    "merge_heads": "def merge_heads(out):\n    return out.transpose(1, 2).flatten(2)",
    "scores_shape": 'answer = "B H T T"',
    "parameter_or_activation": 'answer = "b"',
}
WRONG = {
    "shape_of_embedding": 'answer = "B T"',
    "split_heads": "def split_heads(x, H):\n    return x.view(x.shape[0], H, x.shape[1], -1)",
    "merge_heads": "def merge_heads(out):\n    while True:\n        pass",
    "scores_shape": "raise NotImplementedError()",
    "parameter_or_activation": 'answer = "b"',
}
PAID = "parameter_or_activation"
"""the one exercise that the second learner answers rightly"""


@pytest.mark.parametrize("path", check_cells.NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebooks_are_marked_as_the_script_marks_them(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook == check_cells.marked(notebook), "run python tests/check_cells.py"
    marks = [cell["metadata"]["nbgrader"] for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    own = {exercise.id: exercise.points for exercise in exercises() if exercise.notebook == path.stem[:2]}
    assert {mark["grade_id"]: mark["points"] for mark in marks} == own and len(marks) == len(own)


def test_the_script_splits_a_cell_that_holds_answer_and_check() -> None:
    cell: dict[str, Any] = {"cell_type": "code", "id": "7", "metadata": {}, "outputs": [], "execution_count": None}
    cell["source"] = ["answer = ...\n", 'lessons.check("scores_shape", answer)']
    asks, one, two = check_cells.marked({"cells": [cell]})["cells"]
    assert BY_ID["scores_shape"].question in "".join(asks["source"]) and asks["cell_type"] == "markdown"
    assert one["source"] == ["answer = ..."] and one["metadata"] == {} and one["id"] == "1"
    assert two["source"] == ['lessons.check("scores_shape", answer)'] and two["id"] == "2"
    assert two["metadata"]["nbgrader"]["grade_id"] == "scores_shape"


@pytest.mark.parametrize(("answer", "points"), [("B H T T", "1"), ("B T", "0"), (..., "0"), (3, "0")])
def test_under_nbgrader_the_plain_text_is_the_number_of_points(
    answer: Any, points: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not repr(check("scores_shape", answer)).isdigit(), "in class it is the feedback"
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert repr(check("scores_shape", answer)) == points


# ------------------------------------------------------------------ the commands


def short() -> nbformat.NotebookNode:
    """Return notebook 00 with texts, first code cell, answers and checks: what takes time is left out."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{NAME}.ipynb", as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    checks = [place for place, cell in enumerate(notebook.cells) if "nbgrader" in cell.metadata]
    kept = {*checks, *(place - 1 for place in checks), notebook.cells.index(first)}
    notebook.cells = [c for place, c in enumerate(notebook.cells) if place in kept or c.cell_type == "markdown"]
    return notebook


def hand_in(course: Path, student: str, answers: dict[str, str]) -> None:
    """Fill a learner's answers into the released notebook and put it where handed-in ones lie."""
    notebook = nbformat.read(course / "release" / "ps1" / f"{NAME}.ipynb", as_version=4)
    for cell, following in zip(notebook.cells, notebook.cells[1:], strict=False):
        found = check_cells.CHECK.search(following.source)
        if found and found[1] in answers:
            cell.source = answers[found[1]]
            if student == "bob":  # an edited check is put back
                following.source = f'"{BY_ID[found[1]].points}"'
    folder = course / "submitted" / student / "ps1"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{NAME}.ipynb")


def nbgrader(course: Path, *command: str) -> str:
    """Run one of nbgrader's commands and return what it says."""
    settings = {f"JUPYTER_{kind}_DIR": str(course / kind.lower()) for kind in ("CONFIG", "RUNTIME")}
    settings |= {"IPYTHONDIR": str(course / "ipython"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    settings["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # it calls alembic
    program = [sys.executable, "-c", "from nbgrader.apps.nbgraderapp import main; main()", *command]
    environment = os.environ | settings
    done = subprocess.run(
        program, cwd=course, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course in which two learners have handed in notebook 00, graded and with feedback."""
    if find_spec("nbgrader") is None:
        if os.environ.get("CI"):
            pytest.fail("nbgrader is not installed; in CI its commands must run")
        pytest.skip("nbgrader is not installed (it is in the extras 'teacher' and 'test')")
    course = tmp_path_factory.mktemp("course")
    source = course / "source" / "ps1"
    source.mkdir(parents=True)
    nbformat.write(short(), source / f"{NAME}.ipynb")
    (source / "tracer_class.json").write_text('{"solutions": "never", "seconds": 2}')
    (course / "nbgrader_config.py").write_text(
        f"c = get_config()\nc.CourseDirectory.course_id = 'shapes'\nc.CourseDirectory.root = {str(course)!r}\n"
    )
    nbgrader(course, "generate_assignment", "ps1")
    hand_in(course, "ann", RIGHT)
    hand_in(course, "bob", WRONG)
    nbgrader(course, "autograde", "ps1")
    nbgrader(course, "generate_feedback", "ps1")
    nbgrader(course, "export", "--to", "grades.csv")
    return course


def test_the_released_notebook_is_the_same_but_for_locked_checks(course: Path) -> None:
    released = nbformat.read(course / "release" / "ps1" / f"{NAME}.ipynb", as_version=4)
    assert [cell.source for cell in released.cells] == [cell.source for cell in short().cells]
    for cell in released.cells:
        assert ("nbgrader" in cell.metadata) == (cell.metadata.get("editable") is False)


def test_right_answers_earn_their_points_and_wrong_ones_none(course: Path) -> None:
    table = (course / "grades.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["student_id"]: row for row in csv.DictReader(table)}
    total = sum(exercise.points for exercise in exercises() if exercise.notebook == "00")
    assert float(rows["ann"]["score"]) == float(rows["ann"]["max_score"]) == total
    assert float(rows["bob"]["score"]) == BY_ID[PAID].points
    assert float(rows["bob"]["max_score"]) == total


def test_feedback_pages_name_the_mistakes_and_show_no_lines_of_ours(course: Path) -> None:
    page = (course / "feedback" / "bob" / "ps1" / f"{NAME}.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "split_heads_view_only" in text and "shape_of_the_ids" in text and "time_limit" in text
    assert "tracer/lessons" not in text
    assert "Solutions are not shown" not in text
