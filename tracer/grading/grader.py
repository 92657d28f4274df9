"""Grades a folder: finds what was handed in, runs each notebook apart, several at a time, marks it, keeps the results.

One bad notebook never stops the class: whatever happens with it is its status.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import TracerError
from ..lessons import exercises
from ..lessons.exercise import Exercise
from ..speech import _
from .closed import Apart, Bounds, Heard
from .marking import Questions, of_notebook
from .report import write_all
from .state import Row, State
from .submissions import Notebook, Submission, Unreadable, find, read

__all__ = ["GradingError", "Settings", "asked_for", "grade", "workers"]

FAILED = 20  # cells with an error that are told
_TOLD = ("line", "type", "text")


class GradingError(TracerError, ValueError):
    """What was asked for cannot be graded: no such folder, exercise or place for the results."""


@dataclass(frozen=True)
class Settings:
    """How a class is graded: ids of exercises (none: each notebook's own), the inputs' seed, notebooks at a time."""

    assignment: tuple[str, ...] = ()
    seed: str | None = None
    jobs: int = 1
    anew: bool = False
    bounds: Bounds = field(default_factory=Bounds)


def workers() -> int:
    """Return how many notebooks to run at a time: one for each core that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def asked_for(text: str) -> tuple[str, ...]:
    """Return the ids of the exercises named by a text: ids, or numbers of notebooks, with commas between."""
    known, found = exercises(), []
    for word in (word.strip() for word in text.split(",")):
        ids = [exercise.id for exercise in known if word in (exercise.id, exercise.notebook)]
        if not ids:
            raise GradingError(_("There is no exercise and no notebook “{name}”.").format(name=word))
        found += ids
    return tuple(dict.fromkeys(found))


def grade(
    folder: Path, out: Path, settings: Settings, apart: Apart, progress: Callable[[int, int], None] = lambda n, of: None
) -> list[Row]:
    """Grade everything in `folder` and write `out` and the pages beside it; return the rows, in order of the files.

    `apart` runs notebooks; `progress` is told how many are done, of how many. Raises GradingError where there is
    nothing to do. After an end half-way, the same call goes on.
    """
    # 1. What there is.
    if not folder.is_dir():
        raise GradingError(_("There is no folder {folder}.").format(folder=folder))
    if not out.parent.is_dir():
        raise GradingError(_("There is no folder {folder} for the results.").format(folder=out.parent))
    known = exercises()
    handed = find(folder, frozenset(exercise.notebook for exercise in known))
    if not handed:
        raise GradingError(_("There is no notebook in {folder}.").format(folder=folder))
    # 2. What is known from a run that was ended half-way.
    state = State(out.with_name(out.name + ".part"), _fixed(settings, known))
    if not settings.anew:
        state.load()
    seed = settings.seed or state.seed or secrets.token_hex(8)
    if state.seed != seed:
        state.rows.clear()
    state.begin(seed)
    # 3. The rest, several at a time; marked here, where nothing that was handed in runs.
    class_ = _Class(settings, known, Questions(known, seed), state, apart)
    rows = class_.run(handed, progress)
    # 4. Results, and nothing left to go on with.
    write_all(rows, out)
    state.done()
    return rows


def _fixed(settings: Settings, known: Iterable[Exercise]) -> dict[str, Any]:
    """Return the settings that must be the same for a run to go on where another ended."""
    ids = [f"{exercise.id} {exercise.points}" for exercise in known]
    bounds = [settings.bounds.seconds, settings.bounds.memory, settings.bounds.disk]
    return {"assignment": list(settings.assignment), "exercises": ids, "bounds": bounds}


@dataclass
class _Class:
    settings: Settings
    known: Sequence[Exercise]
    questions: Questions
    state: State
    apart: Apart

    def run(self, handed: Sequence[Submission], progress: Callable[[int, int], None]) -> list[Row]:
        """Return a row for each submission, in their order."""
        rows: dict[int, Row] = {}
        waiting: dict[Future[Heard], tuple[int, Notebook, tuple[str, ...]]] = {}
        progress(0, len(handed))
        with ThreadPoolExecutor(self.settings.jobs) as pool:
            try:
                for place, submission in enumerate(handed):
                    done = self._begin(submission, pool)
                    if isinstance(done, Row):
                        rows[place] = done
                        progress(len(rows), len(handed))
                    else:
                        future, notebook, ids = done
                        waiting[future] = (place, notebook, ids)
                    while len(waiting) >= 2 * self.settings.jobs or (waiting and place == len(handed) - 1):
                        ready, _rest = wait(waiting, return_when=FIRST_COMPLETED)
                        for one in ready:
                            number, notebook, ids = waiting.pop(one)
                            rows[number] = self._row(handed[number], notebook, ids, one.result())
                            progress(len(rows), len(handed))
            except BaseException:
                self.apart.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [rows[place] for place in range(len(handed))]

    def _begin(
        self, submission: Submission, pool: ThreadPoolExecutor
    ) -> Row | tuple[Future[Heard], Notebook, tuple[str, ...]]:
        """Return the row of what need not be run, else start it."""
        try:
            notebook = read(submission)
        except Unreadable as error:
            return Row(submission.student, submission.file, error.status, error.detail)
        kept = self.state.rows.get((submission.file, notebook.digest))
        if kept is not None:
            return kept
        ids = self.settings.assignment or tuple(one.id for one in of_notebook(self.known, notebook.asked))
        if not ids:
            detail = _("No cell checks an exercise that is known here.")
            return Row(submission.student, submission.file, "no checks", detail)
        told, buffers = self.questions.request(ids)
        request = told | {"cells": notebook.cells, "seconds": self.settings.bounds.one}
        return pool.submit(self.apart.run, request, buffers, self.settings.bounds), notebook, ids

    def _row(self, submission: Submission, notebook: Notebook, ids: tuple[str, ...], heard: Heard) -> Row:
        if heard.ending == "not started":  # ours, not the student's: not kept, so that the next run tries again
            return Row(submission.student, submission.file, heard.ending, heard.detail)
        status = "graded" if heard.ending == "ran" else heard.ending
        marks = tuple(self.questions.mark(ids, heard))
        row = Row(submission.student, submission.file, status, heard.detail, marks, _failed(heard))
        self.state.add(submission.file, notebook.digest, row)
        return row


def _failed(heard: Heard) -> tuple[str, ...]:
    """Return a line for each cell that ended with an exception; what it says comes from the notebook."""
    lines = []
    for header, _body in heard.messages:
        trouble = header.get("trouble")
        if header.get("event") == "failed" and isinstance(trouble, dict):
            cell, line, *words = (str(one)[:300] for one in (header.get("cell"), *map(trouble.get, _TOLD)))
            place = _("cell {cell}, line {line}").format(cell=cell, line=line)
            lines.append(": ".join([place, *words]).encode("utf-8", "replace").decode())
    return tuple(lines[:FAILED])
