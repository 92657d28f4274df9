"""How long a check takes at class size, exercise by exercise: `python tests/benchmark_checks.py` (run by hand).

Each exercise is checked with its reference, and with the first form of each known mistake; the slowest of the mistakes
is shown. A class waits for one check at a time, each in a kernel of its own, so the figures are those of one check:
feedback within one second is the goal. The first check of a process, which also warms torch up, is shown apart.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tracer import lessons

GOAL = 1.0  # seconds


def seconds(id: str, answer: object) -> float:
    """Return how long one check takes, the progress file included."""
    began = time.perf_counter()
    lessons.check(id, answer)
    return time.perf_counter() - began


def row(exercise: lessons.Exercise, rounds: int) -> float:
    """Print one exercise's times and return the worst."""
    right = statistics.median(seconds(exercise.id, exercise.reference) for _n in range(rounds))
    wrong = [
        (statistics.median(seconds(exercise.id, m.wrong[0]) for _n in range(rounds)), m.id) for m in exercise.mistakes
    ]
    unknown = seconds(exercise.id, (lambda *args: args[0] * 2) if exercise.kind == "function" else "(B T) (C E)")
    worst, name = max(wrong)
    late = "   over the goal" if max(right, worst, unknown) > GOAL else ""
    print(f"{exercise.notebook}  {exercise.id:32}{right:9.3f}{worst:9.3f}{unknown:9.3f}  {name}{late}", flush=True)
    return max(right, worst, unknown)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    rounds = arguments.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        first = lessons.exercises()[1]
        print(f"first check of a process: {seconds(first.id, first.reference):.3f} s")
        print(f"{'':4}{'exercise':32}{'right':>9}{'mistake':>9}{'unknown':>9}  slowest mistake, seconds")
        times = [row(exercise, rounds) for exercise in lessons.exercises()]
        os.chdir("/")
    print(f"{len(times)} exercises; median {statistics.median(times):.3f} s, slowest {max(times):.3f} s")


if __name__ == "__main__":
    main()
