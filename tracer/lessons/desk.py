"""What a learner calls: `exercises`, `check`, `hint`, `solution`, `progress`. Others judge and store."""

import difflib
import inspect
import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any

from ..errors import TracerError
from ..speech import _
from . import (
    lesson_00,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_10,
    store,
)
from .exercise import Exercise
from .feedback import Feedback, Note, Status, badge
from .judge import judge

__all__ = ["Report", "UnknownExercise", "check", "exercises", "hint", "progress", "solution"]


class UnknownExercise(TracerError, LookupError):
    """There is no exercise of this id."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the sentence, without lines of this package."""
        return [f"{type(self).__name__}: {self}"]


def _collect(*lessons: tuple[Exercise, ...]) -> dict[str, Exercise]:
    found: dict[str, Exercise] = {}
    for exercise in (exercise for lesson in lessons for exercise in lesson):
        assert exercise.id not in found, f"two exercises are called {exercise.id}"
        found[exercise.id] = exercise
    return found


_EXERCISES = _collect(
    lesson_00.EXERCISES,
    lesson_01.EXERCISES,
    lesson_02.EXERCISES,
    lesson_03.EXERCISES,
    lesson_04.EXERCISES,
    lesson_05.EXERCISES,
    lesson_06.EXERCISES,
    lesson_10.EXERCISES,
)


def exercises() -> tuple[Exercise, ...]:
    """Return all exercises, in the order of the notebooks."""
    return tuple(_EXERCISES.values())


def _find(id: str) -> Exercise:
    if id in _EXERCISES:
        return _EXERCISES[id]
    near = difflib.get_close_matches(str(id), _EXERCISES, n=1, cutoff=0.5)
    text = _("There is no exercise “{id}”. Did you mean “{near}”?") if near else _("There is no exercise “{id}”.")
    raise UnknownExercise(text.format(id=id, near=near[0] if near else ""))


def check(id: str, answer: Any) -> Feedback:
    """Return feedback on an answer: what it is, not only whether it is right.

    Nothing that an answer does raises here. A placeholder (`...`, None, a body left empty) is "not attempted" and
    stays quiet. Raises UnknownExercise for an id that does not exist.
    """
    exercise = _find(id)
    feedback = judge(exercise, answer)
    if feedback.status == "not attempted":
        return feedback
    kept = store.load()
    entry = kept.entry(id)
    entry.status, entry.tries = feedback.status, entry.tries + 1
    entry.solved = entry.solved or feedback.status == "right"
    store.save(kept)
    return Feedback(feedback.exercise, feedback.status, feedback.message, feedback.mistake, tuple(kept.notes))


def hint(id: str) -> Note:
    """Return the next hint of an exercise; when all have been given, all of them again."""
    hints = _find(id).hints
    kept = store.load()
    entry = kept.entry(id)
    seen = min(entry.hints, len(hints))
    if seen == len(hints):
        lines = [f"{number}. {_(text)}" for number, text in enumerate(hints, 1)]
        return Note(_("{id}: all hints").format(id=id), "\n".join([*lines, *kept.notes]))
    entry.hints = seen + 1
    store.save(kept)
    title = _("{id}: hint {number} of {count}").format(id=id, number=seen + 1, count=len(hints))
    return Note(title, "\n".join([_(hints[seen]), *kept.notes]))


def solution(id: str) -> Note:
    """Return the solution of an exercise once an answer to it has been checked; before that, a sentence saying so."""
    exercise, kept = _find(id), store.load()
    if not kept.entry(id).tries:
        text = _(
            "The solution is shown after you have checked an answer of your own. A wrong one counts. Stuck? {call}"
        )
        return Note(id, "\n".join([text.format(call=f'tracer.lessons.hint("{id}")'), *kept.notes]))
    title = _("{id}: solution").format(id=id)
    if exercise.kind == "function":
        return Note(title, _(exercise.why), textwrap.dedent(inspect.getsource(exercise.reference)).strip())
    answer = str(exercise.reference)
    if exercise.choices:
        answer = f"{answer}: {_(exercise.choices[answer])}"
    return Note(title, _(exercise.why), answer)


# ------------------------------------------------------------------ progress


@dataclass(frozen=True)
class Report:
    """How far a learner has come: one row for each exercise, as text and as a table."""

    rows: tuple[tuple[Exercise, store.Entry], ...]
    notes: tuple[str, ...] = ()

    @property
    def solved(self) -> int:
        """Number of exercises that were right at least once."""
        return sum(entry.solved for _exercise, entry in self.rows)

    def _summary(self) -> str:
        points = sum(exercise.points for exercise, entry in self.rows if entry.solved)
        total = sum(exercise.points for exercise, _entry in self.rows)
        text = _("{solved} of {count} exercises solved, {points} of {total} points.")
        return text.format(solved=self.solved, count=len(self.rows), points=points, total=total)

    def __str__(self) -> str:
        lines = [self._summary()]
        for exercise, entry in self.rows:
            lines.append(f"{exercise.notebook}  {exercise.id:<24} {badge(_status(entry))[0]} ({entry.tries})")
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        heads = "".join(f"<th scope='col'>{escape(head)}</th>" for head in _heads())
        rows = "".join(_row(exercise, entry) for exercise, entry in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{escape(self._summary())}</caption>"
        table = f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<div style='overflow-x: auto'>{table}</div>{notes}"


def _heads() -> tuple[str, ...]:
    return _("notebook"), _("exercise"), _("status"), _("attempts"), _("points"), _("minutes")


def _row(exercise: Exercise, entry: store.Entry) -> str:
    cells = [escape(exercise.notebook), f"<code>{escape(exercise.id)}</code>", badge(_status(entry))[1]]
    cells += [str(entry.tries), str(exercise.points), str(exercise.minutes)]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _status(entry: store.Entry) -> Status:
    return "right" if entry.solved else entry.status


def progress() -> Report:
    """Return the state of every exercise, as kept in `.tracer-progress.json` next to the notebook."""
    kept = store.load()
    rows = tuple((exercise, kept.entries.get(exercise.id, store.Entry())) for exercise in exercises())
    return Report(rows, tuple(kept.notes))
