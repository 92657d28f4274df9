"""What a learner calls: `exercises`, `check`, `hint`, `solution`, `progress`. Others judge and store."""

import difflib
import inspect
import os
import textwrap
from dataclasses import replace
from typing import Any

from ..errors import TracerError
from ..speech import N_, _
from . import (
    lesson_00,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
    lesson_08,
    lesson_09,
    lesson_10,
    lesson_11,
    lesson_12,
    lesson_13,
    lesson_14,
    lesson_15,
    lesson_16,
    lesson_17,
    lesson_18,
    store,
)
from .clock import in_time
from .exercise import Exercise
from .feedback import Feedback, Note, Stage
from .frames import Place
from .judge import judge
from .report import Report
from .running import reads_inputs, words_of
from .stages import plain_stages
from .surroundings import kept

__all__ = ["Report", "Stopped", "UnknownExercise", "check", "exercises", "hint", "progress", "solution"]


class UnknownExercise(TracerError, LookupError):
    """There is no exercise of this id."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the sentence, without lines of this package."""
        return [f"{type(self).__name__}: {self}"]


class Stopped(KeyboardInterrupt):
    """The learner pressed stop while a check was running."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the sentence, without lines of this package."""
        return [str(self)]


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
    lesson_07.EXERCISES,
    lesson_08.EXERCISES,
    lesson_09.EXERCISES,
    lesson_10.EXERCISES,
    lesson_11.EXERCISES,
    lesson_12.EXERCISES,
    lesson_13.EXERCISES,
    lesson_14.EXERCISES,
    lesson_15.EXERCISES,
    lesson_16.EXERCISES,
    lesson_17.EXERCISES,
    lesson_18.EXERCISES,
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

    Nothing that an answer does raises here, changes torch's settings or hangs the notebook: after the time that
    `tracer_class.json` allows (10 seconds without it) it is stopped. A placeholder (`...`, None, a body left empty) is
    "not attempted" and stays quiet. Under nbgrader the plain text of the result is the number of points.

    Raises:
        UnknownExercise: for an id that does not exist.
        Stopped: the learner pressed stop.
    """
    exercise, rules = _find(id), store.rules()

    def late(line: Place | None) -> Feedback:
        return _late(exercise, rules, line)

    def count(entry: store.Entry) -> None:
        entry.status, entry.tries = feedback.status, entry.tries + 1
        entry.solved = entry.solved or feedback.status == "right"
        entry.honest = entry.honest or _is_honest(exercise, feedback, answer)

    try:
        with kept():
            feedback = in_time(rules.seconds, lambda: judge(exercise, answer), late)
    except KeyboardInterrupt:
        raise Stopped(_("Stopped: {id} was not judged.").format(id=id)) from None
    except Exception as error:  # a result whose own methods fail, or code that has changed this package
        feedback = _not_judged(exercise, error)
    notes = rules.notes
    if feedback.status != "not attempted":
        notes += tuple(store.update(id, count).notes)
    graded = os.environ.get("NBGRADER_EXECUTION")
    points = float(exercise.points * (feedback.status == "right")) if graded else None
    return replace(plain_stages(feedback), notes=notes, points=points)


def _not_judged(exercise: Exercise, error: Exception) -> Feedback:
    text = _(
        "This answer cannot be judged: {type}: {text}. If you did not expect that, restart the kernel and run the "
        "cells again."
    )
    message = text.format(type=type(error).__name__, text=words_of(error).rstrip("."))
    return Feedback(exercise.id, "error", message, "not_judged")


def _is_honest(exercise: Exercise, feedback: Feedback, answer: Any) -> bool:
    """Whether an attempt is an answer, right or wrong, and no filler."""
    return reads_inputs(answer) if exercise.kind == "function" else feedback.status != "error"


def _late(exercise: Exercise, rules: store.Rules, line: Place | None) -> Feedback:
    """Return the feedback on an answer that was still running when the time was over."""
    if line is None:
        text = _("After {seconds:g} s the check was not through and was stopped. Run the cell once more.")
        return Feedback(exercise.id, "error", text.format(seconds=rules.seconds), "time_limit")
    text = _(
        "After {seconds:g} s your code was still running and was stopped. It was at {line}\n"
        "A loop that never ends? Such inputs take well under a second."
    )
    stages = (Stage(N_("written"), True), Stage(N_("runs"), False))
    message = text.format(seconds=rules.seconds, line=line)
    return Feedback(exercise.id, "error", message, "time_limit", stages=stages)


def hint(id: str) -> Note:
    """Return the next hint of an exercise; when all have been given, all of them again."""
    hints, found = _find(id).hints, store.load()
    seen, notes = min(found.entry(id).hints, len(hints)), found.notes

    def count(entry: store.Entry) -> None:
        entry.hints = seen + 1

    if seen == len(hints):
        lines = [f"{number}. {_(text)}" for number, text in enumerate(hints, 1)]
        return Note(_("{id}: all hints").format(id=id), "\n".join([*lines, *notes]))
    notes += store.update(id, count).notes
    title = _("{id}: hint {number} of {count}").format(id=id, number=seen + 1, count=len(hints))
    return Note(title, "\n".join([_(hints[seen]), *notes]))


def solution(id: str) -> Note:
    """Return the solution of an exercise, or a sentence that says when it is shown.

    It is shown after an answer of one's own: right or wrong, but one that can be judged and, for a function, that does
    something with its arguments. A teacher changes that for a class by a file `tracer_class.json` beside the notebook:
    `{"solutions": "always"}`, or `"never"`, or `"after a try"`.
    """
    exercise, rules, kept_so_far = _find(id), store.rules(), store.load()
    notes = [*rules.notes, *kept_so_far.notes]
    if rules.solutions == "never":
        return Note(id, "\n".join([_("Solutions are not shown in this class."), *notes]))
    if rules.solutions != "always" and not kept_so_far.entry(id).honest:
        text = _(
            "The solution is shown after you have checked an answer of your own. A wrong one counts, one that does "
            "nothing with its inputs does not. Stuck? {call}"
        )
        return Note(id, "\n".join([text.format(call=f'lessons.hint("{id}")'), *notes]))
    title, why = _("{id}: solution").format(id=id), "\n".join([_(exercise.why), *notes])
    if exercise.kind == "function":
        return Note(title, why, textwrap.dedent(inspect.getsource(exercise.reference)).strip())
    answer = str(exercise.reference)
    return Note(title, why, f"{answer}: {_(exercise.choices[answer])}" if exercise.choices else answer)


def progress() -> Report:
    """Return the state of every exercise, as kept in `.tracer-progress.json` next to the notebook."""
    found = store.load()
    rows = tuple((exercise, found.entries.get(exercise.id, store.Entry())) for exercise in exercises())
    return Report(rows, tuple(found.notes))
