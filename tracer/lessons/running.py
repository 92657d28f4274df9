"""Runs a learner's function on one case, and says what happened: a value, an exception, inputs that were changed.

Nothing a learner's function does may leave as a traceback of this package; how good the value is, `judge` decides.
"""

import ast
import copy
import dis
import inspect
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..speech import _
from .clock import OutOfTime
from .exercise import Case
from .frames import Place, places
from .surroundings import kept

__all__ = [
    "Outcome",
    "Trouble",
    "has_placeholder",
    "is_blank",
    "is_hollow",
    "reads_inputs",
    "run",
    "runs_on",
    "words_of",
]

MOST = 10_000_000  # elements of a result that is copied
LONGEST = 300  # characters of an exception's text that are shown


@dataclass(frozen=True)
class Trouble:
    """An exception in a learner's code: its type's name, its text, the line of theirs it came from, who called that."""

    type: str
    text: str
    where: Place | None
    caller: Place | None
    unfinished: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = [] if self.where is None else [str(self.where)]
        if self.caller is not None:
            at.append(_("called from {place}").format(place=self.caller))
        what = f"{self.type}: {self.text}" if self.text else self.type
        return "\n".join(part for part in (*at, what, *self.notes) if part)


@dataclass(frozen=True)
class Outcome:
    """What one call gave: `value` or `trouble`, and the names of the inputs it changed in place.

    `left` names what else it changed for good (it was put back), `printed` is what it printed. `finite` is false where
    it ran elsewhere, and its gradients came back with NaN or infinity.
    """

    value: Any = None
    trouble: Trouble | None = None
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    printed: str = ""
    finite: bool = True


def run(function: Callable[..., Any], case: Case, names: tuple[str, ...]) -> Outcome:
    """Call `function` on fresh copies of the case's arguments; `names` are the arguments' names.

    Raises KeyboardInterrupt when the learner presses stop, and `clock.OutOfTime`; nothing else.
    """
    args = tuple(_copy(arg) for arg in case.args)
    value = trouble = None
    with kept() as around:
        try:
            value = function(*args)
        except BaseException as error:
            if runs_on(error):
                raise
            trouble = _trouble(error)
    value = _own(value)  # not above: their code may have replaced `clone`
    pairs = zip(names, case.args, args, strict=True)
    changed = tuple(name for name, before, after in pairs if not _untouched(before, after))
    return Outcome(value, trouble, changed, tuple(around.changed), around.printed)


def runs_on(error: BaseException) -> bool:
    """Whether an exception ends the check: the time is over, or the learner pressed stop; not a `raise` of theirs."""
    pressed = isinstance(error, KeyboardInterrupt) and not _raised_by_hand(error, KeyboardInterrupt)
    return pressed or isinstance(error, OutOfTime)


def _own(value: Any) -> Any:
    """Return a result that the function's next call cannot change, as it would one that is kept and used again."""
    if inspect.iscoroutine(value):
        value.close()  # else Python complains later, in some other cell, that nobody awaited it
    if type(value) is Tensor and value.layout is torch.strided and not value.is_meta and value.numel() <= MOST:
        return value.clone()
    return value


def _copy(arg: Any) -> Any:
    return arg.clone() if isinstance(arg, Tensor) else copy.deepcopy(arg)


def _untouched(before: Any, after: Any) -> bool:
    if not isinstance(before, Tensor):
        return True
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    same = (before == after) | ((before != before) & (after != after))  # NaN counts as itself
    return bool(same.all())


# ------------------------------------------------------------------ not attempted yet


def is_blank(answer: Any) -> bool:
    """Whether an answer is a placeholder: None, `...`, NotImplementedError, or text that says nothing."""
    if isinstance(answer, str):
        return answer.strip() in {"", "...", "…", "?", "___"}
    return answer is None or answer is ... or answer is NotImplementedError or isinstance(answer, NotImplementedError)


def is_hollow(function: Any) -> bool:
    """Whether a function's body does nothing at all: `...`, `pass`, or a docstring alone."""
    code = getattr(function, "__code__", None) if callable(function) else None
    if not isinstance(code, types.CodeType):
        return False
    steps = list(dis.get_instructions(code))
    constants = {step.argval for step in steps if step.opname in {"LOAD_CONST", "RETURN_CONST"}}
    idle = {"RESUME", "NOP", "COPY_FREE_VARS", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    return {step.opname for step in steps} <= idle and constants <= {None, ...}


def reads_inputs(function: Any) -> bool:
    """Whether a function does something with its arguments; where there is no Python code to look at, it may."""
    if not callable(function):
        return False
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return True
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    arguments = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars])
    used = (step.argval for step in dis.get_instructions(code) if not step.opname.startswith("STORE"))
    return any(arguments.intersection(name if isinstance(name, tuple) else (name,)) for name in used if _is_name(name))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(part, str) for part in value))


def has_placeholder(function: Any) -> bool:
    """Whether the source of a function still holds a bare `...` statement."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
        for node in ast.walk(tree)
    )


# ------------------------------------------------------------------ exceptions in their code


def _trouble(error: BaseException) -> Trouble:
    theirs = places(error.__traceback__)
    first = words_of(error).strip().split("\n")[0]
    text = first if len(first) <= LONGEST else first[:LONGEST] + "…"
    notes = tuple(str(note) for note in getattr(error, "__notes__", ()))
    where = theirs[-1] if theirs else None
    caller = next((place for place in theirs[:1] if where and place.line != where.line), None)
    return Trouble(type(error).__name__, text, where, caller, _raised_by_hand(error, NotImplementedError), notes)


def words_of(error: BaseException) -> str:
    """Return the text of an exception, also of one whose class cannot say it."""
    try:
        return str(error)
    except Exception:  # an exception class of the learner's own with a broken __str__
        return ""


def _raised_by_hand(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether this is a `raise` in Python of that very kind: not torch's for a missing kernel, not a pressed key."""
    last = error.__traceback__
    if type(error) is not kind or last is None:
        return False
    while last.tb_next is not None:
        last = last.tb_next
    steps = {step.offset: step.opname for step in dis.get_instructions(last.tb_frame.f_code)}
    return steps.get(last.tb_lasti) == "RAISE_VARARGS"
