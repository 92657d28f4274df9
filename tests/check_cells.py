"""Gives each check of the notebooks its question and a cell with nbgrader's metadata: `python tests/check_cells.py`.

The question, as the exercise has it, stands above the cell in which the learner answers, and the check below. A
check's cell is what nbgrader calls an autograder test: it has the points of the exercise, and nbgrader puts it back if
a learner edits it. Run it after a check was added to a notebook, or an exercise got another question or other points;
`tests/lessons/test_nbgrader.py` fails until then.
"""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tracer.lessons import exercises  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
CHECK = re.compile(r"^lessons\.check\(\"(\w+)\", \w+\)$", re.MULTILINE)


def metadata(id: str) -> dict[str, Any]:
    """Return nbgrader's metadata (schema 3) for the check of one exercise."""
    points = {exercise.id: exercise.points for exercise in exercises()}[id]
    kind = {"grade": True, "locked": True, "solution": False, "task": False}
    return {**kind, "grade_id": id, "points": points, "schema_version": 3}


ASKS = "**Exercise** `"
"""How the cell of a question begins; no other cell may."""


def question(id: str) -> dict[str, Any]:
    """Return the cell that asks what an exercise asks."""
    exercise = {exercise.id: exercise for exercise in exercises()}[id]
    counts = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((exercise.minutes, "minute"), (exercise.points, "point"))]
    lines = [f"{ASKS}{id}` · {' · '.join(counts)}", "", exercise.question]
    if exercise.choices:
        lines += ["", *(f"- **{letter}**: {text}" for letter, text in exercise.choices.items())]
    text = "\n".join(lines)
    return {"cell_type": "markdown", "id": "", "metadata": {}, "source": text.splitlines(keepends=True)}


def marked(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with each check in a cell of its own, its question above, and no other cell marked."""
    notebook = copy.deepcopy(notebook)
    cells: list[dict[str, Any]] = []
    for cell in notebook["cells"]:
        cell["metadata"].pop("nbgrader", None)
        source = "".join(cell["source"])
        if source.startswith(ASKS):
            continue
        found = CHECK.search(source) if cell["cell_type"] == "code" else None
        if found is None:
            cells.append(cell)
            continue
        before = source[: found.start()].rstrip()
        if before:
            cells.append({**copy.deepcopy(cell), "source": before.splitlines(keepends=True)})
        check = source[found.start() :].strip()
        marks = {**cell["metadata"], "nbgrader": metadata(found[1])}
        cells.insert(len(cells) - 1, question(found[1]))
        cells.append({**cell, "source": check.splitlines(keepends=True), "metadata": marks})
    return {**notebook, "cells": [{**cell, "id": str(number)} for number, cell in enumerate(cells)]}


def main() -> None:
    """Write the notebooks anew where they change."""
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        new = json.dumps(marked(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
        if new != text:
            path.write_text(new, encoding="utf-8")
            print("written:", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
