"""Marks what came out of a closed process, with references, mistakes and properties that never were in it.

The inputs are drawn here, once for a run, so that all students have the same. An answer counts as it stood at its last
`check`; what arrives is read as data, and whatever goes wrong with it is a mark of its own, never an exception.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ..lessons.exercise import Case, Draw, Exercise
from ..lessons.feedback import Feedback
from ..lessons.frames import Place
from ..lessons.judge import judge
from ..lessons.running import Outcome, Trouble
from ..lessons.trial import arguments, tell
from ..speech import N_, _
from .closed import Ending, Heard
from .wire import Reader, WireError, clean, travels, write_tree

__all__ = ["Mark", "MarkStatus", "Questions", "of_notebook", "seed_of"]

MarkStatus = Literal["right", "wrong", "error", "not attempted", "missing", "lost"]
TRIES = 5  # answers to one exercise that are looked at, from the last on

_LOST: Mapping[Ending, str] = {
    "time-out": N_("Not reached: the notebook took longer than it may."),
    "crashed": N_("Not reached: the notebook's process ended before."),
    "too much output": N_("Not reached: the notebook gave more output than is taken."),
    "garbled output": N_("Not reached: what the notebook's process sent could not be read."),
    "not started": N_("The notebook could not be started."),
}


@dataclass(frozen=True)
class Mark:
    """What one exercise of one notebook came to. `missing` has no check, `lost` was not reached."""

    exercise: str
    status: MarkStatus
    points: int
    out_of: int
    message: str = ""
    mistake: str | None = None


@dataclass(frozen=True)
class _Question:
    """One exercise with the inputs of this run."""

    exercise: Exercise
    cases: Sequence[Case]


def of_notebook(exercises: Sequence[Exercise], asked: Sequence[str]) -> tuple[Exercise, ...]:
    """Return all exercises of the lesson that most of the ids checked by a notebook belong to."""
    lessons = Counter(exercise.notebook for exercise in exercises if exercise.id in asked)
    if not lessons:
        return ()
    (lesson, _count), *_rest = lessons.most_common(1)
    return tuple(exercise for exercise in exercises if exercise.notebook == lesson)


def _listed(exercise: Exercise) -> dict[str, Any]:
    facts = {name: getattr(exercise, name) for name in ("id", "notebook", "kind", "question", "minutes", "points")}
    return facts | {"choices": dict(exercise.choices), "text": str(exercise)}


class Questions:
    """The exercises of one run, with inputs drawn from one seed; `request` sends them, `mark` judges what came back."""

    def __init__(self, exercises: Sequence[Exercise], seed: str) -> None:
        self.questions = {exercise.id: _question(exercise, seed) for exercise in exercises}
        self.catalogue = [_listed(exercise) for exercise in exercises]

    def request(self, ids: Sequence[str]) -> tuple[dict[str, Any], list[bytes]]:
        """Return what the closed process gets: what is asked, the inputs for these, and their raw numbers."""
        told, buffers = {}, []
        for id in ids:
            question, cases = self.questions[id], []
            for case in question.cases:
                mine: list[bytes] = []
                tree = write_tree(case.args, mine)
                cases.append([tree, sum(map(len, mine))])
                buffers += mine
            names = arguments(question.exercise) if question.exercise.kind == "function" else ()
            facts = {"kind": question.exercise.kind, "gradients": question.exercise.gradients}
            told[id] = facts | {"names": names, "cases": cases}
        return {"exercises": told, "catalogue": self.catalogue}, buffers

    def mark(self, ids: Sequence[str], heard: Heard) -> list[Mark]:
        """Return a mark for each of these exercises."""
        return [self._mark(self.questions[id], heard) for id in ids]

    def _mark(self, question: _Question, heard: Heard) -> Mark:
        exercise = question.exercise
        answers = [one for one in heard.messages if one[0].get("event") == "answer" and one[0].get("id") == exercise.id]
        if not answers:
            status: MarkStatus = "missing" if heard.ending == "ran" else "lost"
            text = _("No answer was checked.") if heard.ending == "ran" else _(_LOST[heard.ending])
            return Mark(exercise.id, status, 0, exercise.points, text)
        for answer in reversed(answers[-TRIES:]):
            feedback = _feedback(question, *answer)
            if feedback.status != "not attempted":
                break
        points = exercise.points if feedback.status == "right" else 0
        return Mark(exercise.id, feedback.status, points, exercise.points, feedback.message, feedback.mistake)


def seed_of(id: str, seed: str) -> int:
    """Return the number that draws one exercise's inputs in a run of this seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {id}".encode()).digest()[:7], "big")


def _question(exercise: Exercise, seed: str) -> _Question:
    if exercise.kind != "function" or exercise.inputs is None:
        return _Question(exercise, ())
    cases = exercise.inputs(Draw(seed_of(exercise.id, seed)))
    for case in cases:
        assert travels(case.args), f"{exercise.id}: an input that cannot be sent to a closed process"
    return _Question(exercise, cases)


# ------------------------------------------------------------------ one answer


def _feedback(question: _Question, header: dict[str, Any], body: bytes) -> Feedback:
    """Judge one message. Everything in it may be a lie: what can't be read or compared is an error of the answer."""
    try:
        return _judged(question, header, Reader(body))
    except WireError as error:
        reason = str(error)
    except Exception as error:  # a number beyond all bounds, say; the class goes on
        reason = type(error).__name__
    text = _("This answer cannot be compared ({reason}).").format(reason=reason)
    return Feedback(question.exercise.id, "error", text)


def _judged(question: _Question, header: dict[str, Any], reader: Reader) -> Feedback:
    exercise = question.exercise
    if "signature" in header:
        call = f"{exercise.id}({', '.join(arguments(exercise))})"
        text = _("The function is called as {call}; yours takes {signature}.")
        return Feedback(exercise.id, "error", text.format(call=call, signature=_text(header["signature"])))
    if "calls" not in header or exercise.kind != "function":
        return judge(exercise, reader.value(header.get("value")))
    calls = header["calls"]
    if not isinstance(calls, list) or len(calls) != len(question.cases):
        raise WireError("not one result for each input")
    names = arguments(exercise)
    outcomes = [_outcome(call, case, names, reader) for call, case in zip(calls, question.cases, strict=True)]
    if _unfinished(outcomes, header):
        return Feedback(exercise.id, "not attempted", "")
    return tell(exercise, question.cases, outcomes)


def _outcome(call: Any, case: Case, names: Sequence[str], reader: Reader) -> Outcome:
    if not isinstance(call, dict):
        raise WireError("not a result")
    if "trouble" in call:
        return Outcome(trouble=_trouble(call["trouble"]))
    value, after = reader.value(call.get("value")), reader.value(call.get("args"))
    if not isinstance(after, tuple) or len(after) != len(case.args):
        raise WireError("not the arguments")
    kept = zip(names, case.args, after, strict=True)
    changed = tuple(name for name, before, now in kept if not _kept(before, now))
    return Outcome(value, changed=changed, finite=_finite(reader.value(call.get("gradients", ["list", []]))))


def _finite(gradients: Any) -> bool:
    if not isinstance(gradients, list):
        raise WireError("not gradients")
    return all(bool(one.isfinite().all()) for one in gradients if isinstance(one, Tensor))


def _kept(before: Any, now: Any) -> bool:
    """Whether a tensor is after the call what it was before; other arguments are not looked at."""
    if not isinstance(before, Tensor):
        return True
    if not isinstance(now, Tensor) or (now.shape, now.dtype) != (before.shape, before.dtype):
        return False
    return bool(((before == now) | ((before != before) & (now != now))).all())  # NaN counts as itself


def _unfinished(outcomes: Sequence[Outcome], header: dict[str, Any]) -> bool:
    first = outcomes[0]
    if first.trouble is not None:
        return first.trouble.unfinished
    placeholder = header.get("hollow") is True or header.get("placeholder") is True
    return first.value is ... or (first.value is None and placeholder)


def _trouble(told: Any) -> Trouble:
    if not isinstance(told, dict):
        raise WireError("not an exception")
    notes = told.get("notes")
    texts = tuple(_text(note) for note in notes[:3]) if isinstance(notes, list) else ()
    type, text, name, code = (_text(told.get(key)) for key in ("type", "text", "name", "code"))
    line = told["line"] if isinstance(told.get("line"), int) else 0
    where = Place(name, line, code) if name else None
    return Trouble(type, text, where, None, told.get("unfinished") is True, texts)


def _text(value: Any) -> str:
    try:
        return clean(value)
    except TypeError:
        raise WireError("not a text") from None
