"""Runs a learner's function on one case, and says what happened: a value, an exception, inputs that were changed.

Nothing a learner's function does may leave as a traceback of this package; how good the value is, `judge` decides.
"""

import ast
import copy
import dis
import inspect
import linecache
import os
import sysconfig
import textwrap
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..speech import _
from .exercise import Case

__all__ = ["Outcome", "Trouble", "has_placeholder", "is_blank", "is_hollow", "run"]

LONGEST = 300  # characters of an exception's text that are shown
_PATHS = sysconfig.get_paths()
_LIBRARIES = (_PATHS["stdlib"], _PATHS["purelib"], _PATHS["platlib"], Path(torch.__file__).parent)
_OURS = Path(__file__).resolve().parent.parent
_NOT_THEIRS = tuple(f"{folder}{os.sep}" for folder in (_OURS, *_LIBRARIES))


@dataclass(frozen=True)
class Trouble:
    """An exception in a learner's code: its type's name, its text, and the line of theirs it came from."""

    type: str
    text: str
    where: str
    code: str
    unfinished: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = f"{self.where}: {self.code}" if self.code else self.where
        return "\n".join(part for part in (at, f"{self.type}: {self.text}", *self.notes) if part)


@dataclass(frozen=True)
class Outcome:
    """What one call gave: `value` or `trouble`, and the names of the inputs it changed in place.

    `finite` is false where it ran elsewhere, and its gradients came back with NaN or infinity.
    """

    value: Any = None
    trouble: Trouble | None = None
    changed: tuple[str, ...] = ()
    finite: bool = True


def run(function: Callable[..., Any], case: Case, names: tuple[str, ...]) -> Outcome:
    """Call `function` on fresh copies of the case's arguments; `names` are the arguments' names."""
    args = tuple(_copy(arg) for arg in case.args)
    try:
        value = function(*args)
    except (Exception, SystemExit) as error:  # KeyboardInterrupt goes through: the learner pressed stop
        return Outcome(trouble=_trouble(error))
    pairs = zip(names, case.args, args, strict=True)
    return Outcome(value, changed=tuple(name for name, before, after in pairs if not _untouched(before, after)))


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
    frame = _their_frame(error)
    where = code = ""
    if frame is not None:
        name = frame.name if frame.name.isidentifier() else _("your code")
        where = _("line {line} of {name}").format(line=frame.lineno, name=name)
        code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    first = _words_of(error).strip().split("\n")[0]
    text = first if len(first) <= LONGEST else first[:LONGEST] + "…"
    notes = tuple(str(note) for note in getattr(error, "__notes__", ()))
    return Trouble(type(error).__name__, text, where, code, _raised_by_hand(error), notes)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception class of the learner's own with a broken __str__
        return ""


def _their_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame that is neither ours nor a library's."""
    theirs = None
    for frame in traceback.extract_tb(error.__traceback__, limit=-200):
        if not frame.filename.startswith((*_NOT_THEIRS, "<frozen")):
            theirs = frame
    return theirs


def _raised_by_hand(error: BaseException) -> bool:
    """Whether this is a `raise NotImplementedError` in Python, not one that torch raises for a missing kernel."""
    last = error.__traceback__
    if type(error) is not NotImplementedError or last is None:
        return False
    while last.tb_next is not None:
        last = last.tb_next
    steps = {step.offset: step.opname for step in dis.get_instructions(last.tb_frame.f_code)}
    return steps.get(last.tb_lasti) == "RAISE_VARARGS"
