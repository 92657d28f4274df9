"""How far a learner's function came: it runs; its shapes, numbers and properties are right; nothing else moved.

Each stage counts the inputs that passed it and all before it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..speech import N_, _, say_count
from .compare import all_numbers, difference, label
from .exercise import Case, Exercise
from .feedback import Feedback, Stage
from .running import Outcome

__all__ = ["plain_stages", "with_stages"]


def with_stages(
    feedback: Feedback, exercise: Exercise, cases: Sequence[Case], wants: Sequence[Any], outcomes: Sequence[Outcome]
) -> Feedback:
    """Return the feedback with its stages, what was changed besides, and what was printed."""
    pairs = list(zip(outcomes, wants, strict=True))
    runs = [outcome.trouble is None for outcome in outcomes]
    shapes = [ran and _same_shape(outcome.value, want) for ran, (outcome, want) in zip(runs, pairs, strict=True)]
    numbers = [
        fits and difference(outcome.value, want, exercise.axes, exercise.tolerance) is None
        for fits, (outcome, want) in zip(shapes, pairs, strict=True)
    ]
    found = [Stage(N_("written"), True), _counted(N_("runs"), runs, True)]
    found.append(_counted(N_("shape"), shapes, any(runs), ", ".join(label(axes) for axes in exercise.axes)))
    found.append(_counted(N_("numbers"), numbers, any(shapes)))
    found += _properties(exercise, cases, pairs, shapes)
    found.append(_side_effects(outcomes, runs))
    first = next((outcome for right, outcome in zip(numbers, outcomes, strict=True) if not right), outcomes[0])
    return replace(feedback, stages=tuple(found), printed=first.printed)


def plain_stages(feedback: Feedback) -> Feedback:
    """Return the feedback with the stages of an answer that is no function, or that never came to be called."""
    if feedback.status == "not attempted" or feedback.stages:
        return feedback
    readable = feedback.status != "error"
    right = Stage(N_("right"), feedback.status == "right" if readable else None)
    return replace(feedback, stages=(Stage(N_("written"), True), Stage(N_("can be judged"), readable), right))


def _counted(name: str, passed: Sequence[bool], reached: bool, detail: str = "") -> Stage:
    if all(passed):
        return Stage(name, True, detail)
    if not reached:
        return Stage(name, None, detail)
    counts = _("{right} of {all} inputs").format(right=sum(passed), all=len(passed))
    return Stage(name, False, f"{detail}, {counts}" if detail else counts)


def _same_shape(got: Any, want: Any) -> bool:
    if isinstance(want, tuple):
        return isinstance(got, tuple | list) and len(got) == len(want) and all(map(_same_shape, got, want))
    if isinstance(want, Tensor):
        plain = isinstance(got, bool | int | float) and not want.dim()
        return plain or (isinstance(got, Tensor) and got.shape == want.shape)
    return type(got) is type(want)


def _properties(
    exercise: Exercise, cases: Sequence[Case], pairs: Sequence[tuple[Outcome, Any]], shapes: Sequence[bool]
) -> list[Stage]:
    """Return one stage for all properties, none for an exercise without."""
    if not exercise.properties:
        return []
    if not any(shapes):
        return [Stage(N_("properties"), None)]
    results = [
        (case, all_numbers(outcome.value))
        for case, (outcome, _want), fits in zip(cases, pairs, shapes, strict=True)
        if fits
    ]
    hold = sum(all(_holds(rule.fails, case, got) for case, got in results) for rule in exercise.properties)
    count = len(exercise.properties)
    detail = say_count("{hold} of {n} holds", "{hold} of {n} hold", count, hold=hold)
    if hold < count:
        return [Stage(N_("properties"), False, detail)]
    return [Stage(N_("properties"), True if all(shapes) else None)]


def _holds(fails: Any, case: Case, got: Any) -> bool:
    parts = got if isinstance(got, tuple) else (got,)
    if any(part is None or bool(part.isnan().any()) for part in parts):
        return False
    return fails(case, got) is None


def _side_effects(outcomes: Sequence[Outcome], runs: Sequence[bool]) -> Stage:
    changed = dict.fromkeys(name for outcome in outcomes for name in outcome.changed)
    left = dict.fromkeys(name for outcome in outcomes for name in outcome.left)
    name = N_("leaves the rest alone")
    if not changed and not left:
        return Stage(name, True if all(runs) else None)
    texts = [_("changed in place: {names}").format(names=", ".join(changed))] if changed else []
    texts += [_("changed and put back: {names}").format(names=", ".join(left))] if left else []
    return Stage(name, False, "; ".join(texts))
