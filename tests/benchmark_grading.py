"""Seconds that grading takes for classes of several sizes: `python tests/benchmark_grading.py 10 100`.

Each notebook is that of lesson 00 with its checks answered: rightly in one half, with a known mistake in the other.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from tracer.grading.closed import Nursery
from tracer.grading.grader import Settings, grade, workers

ROOT = Path(__file__).resolve().parent.parent
RIGHT = "lambda x, H: x.view(*x.shape[:2], H, -1).transpose(1, 2)"
WRONG = "lambda x, H: x.reshape(x.shape[0], H, x.shape[1], -1)"


def submission(number: int) -> str:
    """Return the lesson's notebook with one answer at its end."""
    notebook = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text(encoding="utf-8"))
    code = f'lessons.check("split_heads", {RIGHT if number % 2 else WRONG})'
    cell = {"cell_type": "code", "id": "last", "metadata": {}, "outputs": [], "execution_count": None, "source": code}
    notebook["cells"].append(cell)
    return json.dumps(notebook)


def measure(count: int, nursery: Nursery) -> float:
    """Return the seconds for a class of `count` notebooks, the start of the closed process left out."""
    with tempfile.TemporaryDirectory() as folder:
        (handed := Path(folder, "class")).mkdir()
        for number in range(count):
            (handed / f"student {number:03}.ipynb").write_text(submission(number), encoding="utf-8")
        start = time.perf_counter()
        rows = grade(handed, Path(folder, "grades.csv"), Settings(jobs=workers()), nursery)
        took = time.perf_counter() - start
    assert [row.points for row in rows] == [2 if number % 2 else 0 for number in range(count)]
    return took


def main() -> None:
    """Print a line for each size given."""
    counts = [int(text) for text in sys.argv[1:]] or [10, 100]
    start = time.perf_counter()
    with Nursery() as nursery:
        print(f"walls: {nursery.way}; {workers()} at a time; started in {time.perf_counter() - start:.1f} s")
        for count in counts:
            took = measure(count, nursery)
            print(f"{count:4} notebooks: {took:6.1f} s, {took / count:.2f} s each")


if __name__ == "__main__":
    main()
