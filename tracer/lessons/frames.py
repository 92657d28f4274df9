"""Which lines are the learner's: neither this package's nor a library's."""

import linecache
import os
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType

import torch

from ..speech import _

__all__ = ["Place", "is_theirs", "place", "places"]

DEEPEST = 200  # frames that are looked at on each side of a long traceback
_PATHS = sysconfig.get_paths()
_LIBRARIES = (_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"], Path(torch.__file__).parent)
_OURS = Path(__file__).resolve().parent.parent
_NOT_THEIRS = (*(f"{folder}{os.sep}" for folder in (_OURS, *_LIBRARIES)), "<frozen")


@dataclass(frozen=True)
class Place:
    """One line of a learner's code."""

    name: str
    line: int
    code: str

    def __str__(self) -> str:
        where = _("line {line} of {name}").format(line=self.line, name=self.name)
        return f"{where}: {self.code}" if self.code else where


def is_theirs(filename: str) -> bool:
    """Whether code of this file is a learner's."""
    return not filename.startswith(_NOT_THEIRS)


def place(code: CodeType, line: int | None) -> Place:
    """Return a line as it is shown; a lambda has no name."""
    name = code.co_name if code.co_name.isidentifier() else _("your code")
    return Place(name, line or 0, linecache.getline(code.co_filename, line or 0).strip())


def places(found: TracebackType | None) -> list[Place]:
    """Return the learner's lines of a traceback, outermost first; of a very deep one the first and the last."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(found) if is_theirs(frame.f_code.co_filename)]
    return [place(code, line) for code, line in (frames if len(frames) < DEEPEST else (frames[0], frames[-1]))]
