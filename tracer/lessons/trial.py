"""Tries a learner's function, stage by stage, and says what it is: right, a known mistake, or where it differs.

Attempted at all; callable as asked; every case run; known mistakes, each run on the same cases; exceptions; inputs
changed in place; properties; the first difference in kind, shape or numbers.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..speech import _
from .compare import all_numbers, describe_inputs, difference, facts
from .exercise import Case, Draw, Exercise, Mistake
from .feedback import Feedback, Status
from .parting import explained, parting
from .running import Outcome, has_placeholder, run
from .stages import with_stages

__all__ = ["arguments", "tell", "try_function"]


def arguments(exercise: Exercise) -> tuple[str, ...]:
    """Return the names of the arguments that a function exercise is called with."""
    return tuple(inspect.signature(exercise.reference).parameters)


@dataclass(frozen=True)
class Trial:
    """One function on all cases of one exercise."""

    exercise: Exercise
    cases: Sequence[Case]
    wants: Sequence[Any]
    outcomes: Sequence[Outcome]
    answer: Callable[..., Any] | None = None
    """The function itself; None where only what it gave is at hand."""

    @cached_property
    def wrong(self) -> int | None:
        """Number of the first case that came out wrong, or None."""
        pairs = zip(self.outcomes, self.wants, strict=True)
        return next((place for place, pair in enumerate(pairs) if not self._right(*pair)), None)

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """Names of the inputs that were changed in place."""
        return next((outcome.changed for outcome in self.outcomes if outcome.changed), ())

    def differs(self, outcome: Outcome, want: Any) -> str | None:
        """Return the first difference of an outcome without trouble."""
        return difference(outcome.value, want, self.exercise.axes, self.exercise.tolerance)

    def _right(self, outcome: Outcome, want: Any) -> bool:
        return outcome.trouble is None and self.differs(outcome, want) is None

    @property
    def mistake(self) -> Mistake | None:
        """The catalogued mistake that this function is: what it does in every case, else how it fails."""
        texts = [outcome.trouble.text for outcome in self.outcomes if outcome.trouble]
        same = (known for known in self.exercise.mistakes if any(map(self._same_as, known.wrong)))
        alike = (
            known for known in self.exercise.mistakes if known.raises and any(known.raises in t for t in texts[:1])
        )
        return next(same, None) or next(alike, None)

    def _same_as(self, form: Callable[..., Any]) -> bool:
        names = arguments(self.exercise)
        for case, outcome in zip(self.cases, self.outcomes, strict=True):
            other = run(form, case, names)
            if outcome.trouble or other.trouble:
                pair = outcome.trouble, other.trouble
                same = bool(pair[0] and pair[1] and (pair[0].type, pair[0].text) == (pair[1].type, pair[1].text))
            else:
                same = self.differs(outcome, other.value) is None
            if not same:
                return False
        return True


def try_function(exercise: Exercise, answer: Any, draw: Draw) -> Feedback:
    """Return feedback on a learner's function."""
    problem = _not_callable(exercise, answer)
    if problem:
        return Feedback(exercise.id, "error", problem)
    names, cases = arguments(exercise), exercise.inputs(draw) if exercise.inputs else ()
    outcomes = [run(answer, case, names) for case in cases]
    if _unfinished(answer, outcomes[0]):
        return Feedback(exercise.id, "not attempted", "")
    return tell(exercise, cases, outcomes, answer)


def tell(
    exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome], answer: Callable[..., Any] | None = None
) -> Feedback:
    """Return feedback on what a function gave for some cases, wherever it ran.

    With `answer`, the function itself, it may be run again: to find where it parts from the reference, and for
    gradients.
    """
    names, rights = arguments(exercise), (exercise.reference, *exercise.also)
    wants = [[run(right, case, names).value for case in cases] for right in rights]
    trials = [Trial(exercise, cases, values, outcomes, answer) for values in wants]
    trial = next((trial for trial in trials if trial.wrong is None), trials[0])
    feedback = _right(trial) if trial.wrong is None else _wrong(trial, trial.wrong)
    return with_stages(feedback, exercise, cases, trial.wants, outcomes)


def _not_callable(exercise: Exercise, answer: Any) -> str | None:
    names = arguments(exercise)
    call = f"{exercise.id}({', '.join(names)})"
    if not callable(answer):
        text = _("Hand in the function itself, which is called as {call}; this is of type {type}.")
        return text.format(call=call, type=type(answer).__name__)
    if inspect.isclass(answer):
        text = _("Hand in what is called as {call}. {name} is a class: hand in an object of it, made before the check.")
        return text.format(call=call, name=answer.__name__)
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):  # some built-in functions have none: call them and see
        return None
    try:
        signature.bind(*names)
    except TypeError:
        text = _("The function is called as {call}; yours takes {signature}.")
        return text.format(call=call, signature=signature)
    return None


def _unfinished(answer: Any, outcome: Outcome) -> bool:
    if outcome.trouble is not None:
        return outcome.trouble.unfinished
    return outcome.value is ... or (outcome.value is None and has_placeholder(answer))


def _right(trial: Trial) -> Feedback:
    if not trial.changed:
        place = _without_gradient(trial) if trial.exercise.gradients else None
        return (
            Feedback(trial.exercise.id, "right", _(trial.exercise.why)) if place is None else _no_gradient(trial, place)
        )
    text = _(
        "The result is right, but your function changed its input {names} in place. Whoever called it still needs it."
    )
    message = text.format(names=", ".join(trial.changed))
    return Feedback(trial.exercise.id, "wrong", message, "input_changed_in_place")


def _without_gradient(trial: Trial) -> int | None:
    """Return the number of the first case in which a gradient is not finite; answers outside autograd have none."""
    if trial.answer is None:
        return next((place for place, outcome in enumerate(trial.outcomes) if not outcome.finite), None)
    names = arguments(trial.exercise)
    for place, case in enumerate(trial.cases):
        args = tuple(arg.clone().requires_grad_() if _is_float(arg) else arg for arg in case.args)
        floats = [arg for arg in args if _is_float(arg)]
        with torch.enable_grad():
            value = run(trial.answer, Case(args, case.sizes), names).value
            if isinstance(value, Tensor) and value.requires_grad:
                found = torch.autograd.grad(value.square().sum(), floats, allow_unused=True)
                if any(gradient is not None and not bool(gradient.isfinite().all()) for gradient in found):
                    return place
    return None


def _is_float(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.is_floating_point()


def _no_gradient(trial: Trial, place: int) -> Feedback:
    text = _(
        "The result is right, and its gradient is not: on the way back there is NaN, which would spoil every weight it "
        "reaches. A NaN that is only covered up afterwards, with nan_to_num or where, still takes part there."
    )
    inputs = describe_inputs(arguments(trial.exercise), trial.exercise.given, trial.cases[place])
    called = _("Called with {inputs}.").format(inputs=inputs)
    return Feedback(trial.exercise.id, "wrong", f"{text}\n{called}", "gradient_not_finite")


def _wrong(trial: Trial, place: int) -> Feedback:
    exercise, outcome, case = trial.exercise, trial.outcomes[place], trial.cases[place]
    mistake = trial.mistake
    called = _("Called with {inputs}.").format(inputs=describe_inputs(arguments(exercise), exercise.given, case))
    status: Status = "error" if outcome.trouble else "wrong"
    # 1. A mistake that is known by name.
    if mistake is not None:
        lines = [_explain(mistake, trial, place), *([str(outcome.trouble)] if outcome.trouble else []), called]
        return Feedback(exercise.id, status, "\n".join(lines), mistake.id)
    # 2. An exception, with the named shapes of the operation that failed; or nothing that came back.
    if outcome.trouble is not None:
        note = explained(exercise, trial.answer, case, outcome.trouble) if trial.answer else []
        return Feedback(exercise.id, status, "\n".join([str(outcome.trouble), *note, called]))
    if outcome.value is None:
        text = _("Your function gives back None. Is a `return` missing?")
        return Feedback(exercise.id, status, text, "nothing_returned")
    if inspect.isgenerator(outcome.value) or inspect.iscoroutine(outcome.value):
        text = _("Your function gives back a {type}, and its code has not run yet. Write `def` and `return`.")
        text = text.format(type=type(outcome.value).__name__)
        return Feedback(exercise.id, status, text, "nothing_run")
    # 3. A property that fails, else the first difference; where the run parts from the reference's; inputs changed.
    lines = [_failed_property(trial, place) or trial.differs(outcome, trial.wants[place]) or ""]
    lines += [*(parting(exercise, trial.answer, case) if trial.answer else []), called]
    if trial.changed:
        lines.append(_("It also changes {names} in place.").format(names=", ".join(trial.changed)))
    return Feedback(exercise.id, status, "\n".join(lines))


def _explain(mistake: Mistake, trial: Trial, place: int) -> str:
    case, got, want = trial.cases[place], trial.outcomes[place].value, trial.wants[place]
    numbers = facts(got, want, trial.exercise.axes, trial.exercise.tolerance)
    numbers |= mistake.numbers(case, all_numbers(got), all_numbers(want))
    return _(mistake.says).format(**(dict(case.sizes) | numbers))


def _failed_property(trial: Trial, place: int) -> str | None:
    """Return the property that fails in one case: the case whose inputs the feedback quotes."""
    case, got, want = trial.cases[place], all_numbers(trial.outcomes[place].value), all_numbers(trial.wants[place])
    if not _comparable(got, want):
        return None
    for rule in trial.exercise.properties:
        numbers = rule.fails(case, got)
        if numbers is not None:
            return _(rule.says).format(**(dict(case.sizes) | numbers))
    return None


def _comparable(got: Any, want: Any) -> bool:
    if isinstance(want, tuple):
        return isinstance(got, tuple) and len(got) == len(want) and all(map(_comparable, got, want))
    if not isinstance(got, Tensor) or not isinstance(want, Tensor):
        return False
    return got.shape == want.shape and not bool(got.isnan().any())
