"""`python -m tracer grade FOLDER --out grades.csv`: arguments in, files and a summary out."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from ..errors import TracerError
from ..speech import _
from .closed import Apart, Bounds, NotIsolated, Nursery, Unwalled
from .grader import Settings, asked_for, grade, workers
from .state import Row

__all__ = ["add_command"]


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `grade` to the commands; its `run` takes the parsed arguments and returns the exit status."""
    parser = subparsers.add_parser(
        "grade",
        help=_("run handed-in notebooks apart and mark their answers"),
        description=_(
            "Runs each notebook in a folder as hostile code, walled off from this machine, and marks what its answers "
            "gave. Writes a table, a page of the class and a page for each student."
        ),
    )
    parser.add_argument("folder", type=Path, help=_("notebooks, or a folder for each student"))
    parser.add_argument("--out", type=Path, required=True, help=_("the table to write, such as grades.csv"))
    parser.add_argument(
        "--assignment", default="", help=_("a notebook's number or ids of exercises, with commas; else each one's own")
    )
    parser.add_argument("--jobs", type=_positive, default=workers(), help=_("notebooks at a time (default: the cores)"))
    parser.add_argument("--seconds", type=_positive, default=120, help=_("for one notebook (default: 120)"))
    parser.add_argument("--memory", type=_positive, default=2048, help=_("MiB for one notebook (default: 2048)"))
    parser.add_argument("--seed", help=_("draws the inputs; fresh for each run if not given"))
    parser.add_argument("--anew", action="store_true", help=_("forget a run that was ended half-way"))
    parser.add_argument(
        "--unsafe", action="store_true", help=_("run notebooks without walls: they can do what you can do")
    )
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(_("must be 1 or more"))
    return number


def run(arguments: argparse.Namespace) -> int:
    """Grade, tell how far it is, and say in the end what was found; 0, or 2 where it could not begin."""
    try:
        assignment = asked_for(arguments.assignment) if arguments.assignment else ()
        bounds = Bounds(arguments.seconds, arguments.memory)
        settings = Settings(assignment, arguments.seed, arguments.jobs, arguments.anew, bounds)
        opened: Apart = Unwalled() if arguments.unsafe else Nursery()
        with opened as apart, tqdm(unit=" notebooks", file=sys.stderr) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            rows = grade(arguments.folder, arguments.out, settings, apart, progress)
    except TracerError as error:
        print(error, file=sys.stderr)
        if not arguments.unsafe and isinstance(error, NotIsolated):
            print(_("With --unsafe they run all the same, as if you had started them yourself."), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(_("Ended. The same command goes on from here."), file=sys.stderr)
        return 130
    print(_summary(rows, arguments.out))
    return 0


def _summary(rows: Sequence[Row], out: Path) -> str:
    counted = Counter(row.status for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in counted.most_common())
    return _("{count} files: {words}. Written: {out}").format(count=len(rows), words=words, out=out)
