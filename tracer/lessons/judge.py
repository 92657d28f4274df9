"""Compares an answer with an exercise and says what it is. Functions go to `trial`; nothing is stored here."""

from numbers import Real
from typing import Any

from torch import Tensor

from ..errors import AxesError
from ..speech import _, say_count
from .exercise import Draw, Exercise
from .feedback import Feedback
from .running import is_blank, is_hollow
from .shapes import Axis, read, write
from .trial import try_function

__all__ = ["judge"]


def judge(exercise: Exercise, answer: Any, seed: int | None = None) -> Feedback:
    """Return feedback on one answer; `seed` fixes the inputs of a function, which are fresh otherwise."""
    if is_blank(answer) or is_hollow(answer):
        return Feedback(exercise.id, "not attempted", "")
    if exercise.kind == "function":
        return try_function(exercise, answer, Draw(seed))
    plain = {"shape": _judge_shape, "number": _judge_number, "choice": _judge_choice}
    return plain[exercise.kind](exercise, answer)


def _right(exercise: Exercise) -> Feedback:
    return Feedback(exercise.id, "right", _(exercise.why))


def _unreadable(exercise: Exercise, answer: Any, wanted: str) -> Feedback:
    text = _("{wanted} This is of type {type}.").format(wanted=wanted, type=type(answer).__name__)
    return Feedback(exercise.id, "error", text)


# ------------------------------------------------------------------ shapes


def _judge_shape(exercise: Exercise, answer: Any) -> Feedback:
    if not isinstance(answer, str | tuple | list):
        return _unreadable(exercise, answer, _('Write the shape as text with a letter for each axis, such as "B T C".'))
    text = answer if isinstance(answer, str) else "[" + ", ".join(map(str, answer)) + "]"
    try:
        readings = read(text)
    except AxesError as error:
        return Feedback(exercise.id, "error", str(error))
    if any(read(accepted)[0] in readings for accepted in (exercise.reference, *exercise.also)):
        return _right(exercise)
    for mistake in exercise.mistakes:
        if any(read(wrong)[0] in readings for wrong in mistake.wrong):
            return Feedback(exercise.id, "wrong", _(mistake.says), mistake.id)
    return Feedback(exercise.id, "wrong", _first_wrong_axis(readings[0], read(exercise.reference)[0]))


def _first_wrong_axis(got: tuple[Axis, ...], want: tuple[Axis, ...]) -> str:
    """Say where a shape goes wrong without giving the answer away."""
    if len(got) != len(want):
        return say_count(
            "{got} has {n} axis; the tensor has {wanted}.",
            "{got} has {n} axes; the tensor has {wanted}.",
            len(got),
            got=write(got),
            wanted=len(want),
        )
    place = next(i for i, (one, other) in enumerate(zip(got, want, strict=True)) if one != other)
    text = _("{got} has the right number of axes. Counted from 0, the first that is not right is axis {place}, {axis}.")
    return text.format(got=write(got), place=place, axis=got[place])


# ------------------------------------------------------------------ numbers and choices


def _judge_number(exercise: Exercise, answer: Any) -> Feedback:
    value = answer.item() if isinstance(answer, Tensor) and answer.numel() == 1 and not answer.is_meta else answer
    if not isinstance(value, Real) or isinstance(value, bool):
        quoted = isinstance(answer, str)
        return _unreadable(
            exercise, answer, _("Hand in one number, without quotes.") if quoted else _("Hand in one number.")
        )
    if _close(exercise, value, exercise.reference):
        return _right(exercise)
    for mistake in exercise.mistakes:
        if any(_close(exercise, value, wrong) for wrong in mistake.wrong):
            return Feedback(exercise.id, "wrong", _(mistake.says), mistake.id)
    size = _("too small") if value < exercise.reference else _("too large") if value > exercise.reference else ""
    text = _("{value} is {size}.") if size else _("{value} is not a number that can be compared.")
    return Feedback(exercise.id, "wrong", text.format(value=value, size=size))


def _close(exercise: Exercise, value: Any, wanted: Any) -> bool:
    return bool(value == wanted or abs(value - wanted) <= (exercise.tolerance or 0))


def _judge_choice(exercise: Exercise, answer: Any) -> Feedback:
    letter = answer.strip().strip("().").lower() if isinstance(answer, str) else None
    if letter not in exercise.choices:
        letters = ", ".join(exercise.choices)
        return Feedback(exercise.id, "error", _("Answer with one of the letters {letters}.").format(letters=letters))
    if letter == exercise.reference:
        return _right(exercise)
    for mistake in exercise.mistakes:
        if letter in mistake.wrong:
            return Feedback(exercise.id, "wrong", _(mistake.says), mistake.id)
    return Feedback(exercise.id, "wrong", _("Not this one."))
