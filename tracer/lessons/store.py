"""Two small JSON files beside the notebook: a learner's progress, and what the teacher allows. Nothing here raises.

Each change of the progress locks the folder, reads the file, changes one entry and replaces the file in one step, so
two notebooks in one folder share it and a crash leaves the old file or the new one. A file that cannot be read is moved
aside, not overwritten. What went wrong comes back as sentences for the learner.
"""

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..speech import _
from .feedback import Status
from .surroundings import shell

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["FILE", "RULES", "Entry", "Progress", "Rules", "folder", "load", "rules", "update"]

FILE = ".tracer-progress.json"
RULES = "tracer_class.json"
VERSION = 1
PATIENCE = 2.0  # seconds to wait for another notebook; then go on without the lock
_STATUSES = get_args(Status)

Solutions = Literal["after a try", "always", "never"]


@dataclass
class Entry:
    """What is kept about one exercise: the last status, whether it was ever right, attempts, hints seen.

    `honest` tells whether one of the attempts was an answer, right or wrong, and no filler.
    """

    status: Status = "not attempted"
    solved: bool = False
    tries: int = 0
    hints: int = 0
    honest: bool = False


@dataclass
class Progress:
    """All entries by exercise id, and sentences about the file itself."""

    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def entry(self, id: str) -> Entry:
        """Return the entry of an exercise, made on first use."""
        return self.entries.setdefault(id, Entry())


@dataclass(frozen=True)
class Rules:
    """What the teacher set for a class: when solutions are shown, and the seconds that a check may take."""

    solutions: Solutions = "after a try"
    seconds: float = 10.0
    notes: tuple[str, ...] = ()


def folder() -> Path:
    """Return the folder of the notebook, also after its code has changed the working folder."""
    ipython = shell()
    if ipython is None:
        return Path()
    notebook = ipython.user_ns.get("__vsc_ipynb_file__")  # VS Code starts kernels elsewhere
    return Path(notebook).parent if isinstance(notebook, str) else Path(ipython.starting_dir)


# ------------------------------------------------------------------ the teacher's file


def rules() -> Rules:
    """Read the teacher's file: `{"solutions": "always", "seconds": 30}`. Without it, or where it is wrong: as usual."""
    try:
        content = json.loads((folder() / RULES).read_text(encoding="utf-8"))
        found = Rules(**content)
        if found.solutions not in get_args(Solutions) or type(found.seconds) not in (int, float) or found.notes:
            raise ValueError("not what such a file holds")
        return Rules(found.solutions, min(max(found.seconds, 0.1), 3600.0))
    except OSError:
        return Rules()
    except (ValueError, TypeError, RecursionError):
        text = _('{file} cannot be used: it holds "solutions" ({choices}) and "seconds" (a number), as JSON.')
        choices = ", ".join(f'"{choice}"' for choice in get_args(Solutions))
        return Rules(notes=(text.format(file=RULES, choices=choices),))


# ------------------------------------------------------------------ the progress file


def load() -> Progress:
    """Read the progress file."""
    progress = Progress()
    try:
        progress.entries = _parse((folder() / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except OSError as error:
        progress.notes.append(_("Progress cannot be read here: {reason}.").format(reason=error.strerror))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or JSON of another kind
        progress.notes.append(_put_aside())
    return progress


def update(id: str, change: Callable[[Entry], None]) -> Progress:
    """Change one exercise's entry in the file and return all; what could not be kept is said in `notes`."""
    with _locked():
        progress = load()
        change(progress.entry(id))
        _save(progress)
    return progress


def _save(progress: Progress) -> None:
    content = {"version": VERSION, "exercises": {id: asdict(entry) for id, entry in progress.entries.items()}}
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=FILE, suffix=".new", dir=folder())
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder() / FILE)
    except OSError as error:
        progress.notes.append(_("Progress cannot be kept here: {reason}.").format(reason=error.strerror))
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _parse(text: str) -> dict[str, Entry]:
    content = json.loads(text)
    exercises = content.get("exercises") if isinstance(content, dict) and content.get("version") == VERSION else None
    if not isinstance(exercises, dict):
        raise ValueError("not a progress file of this version")
    return {id: _entry(values) for id, values in exercises.items()}


def _entry(values: Any) -> Entry:
    entry = Entry(**values) if isinstance(values, dict) and values.keys() <= asdict(Entry()).keys() else None
    counts = (entry.tries, entry.hints) if entry else ()
    if entry is None or entry.status not in _STATUSES or not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("not an entry of a progress file")
    return Entry(entry.status, entry.solved is True, entry.tries, entry.hints, entry.honest is True)


def _put_aside() -> str:
    number = 1
    while os.path.lexists(folder() / (name := f"{FILE.removesuffix('.json')}.broken-{number}.json")):
        number += 1
    try:
        os.replace(folder() / FILE, folder() / name)
    except OSError as error:
        text = _("The progress file {file} cannot be read, nor moved: {reason}.")
        return text.format(file=FILE, reason=error.strerror)
    return _("The progress file could not be read. It is kept as {name}, and a new one was begun.").format(name=name)


# ------------------------------------------------------------------ one at a time


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other notebooks of this folder waiting. The system frees the lock of a process that dies.

    Where there is no locking (some network drives) the block runs all the same: files stay whole, a count may be lost.
    """
    handle = None
    try:
        handle = _open_lock()
        _wait_for(handle)
    except OSError:
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _open_lock() -> int:
    if sys.platform != "win32":
        return os.open(folder(), os.O_RDONLY)  # the folder itself: no file is left behind
    name = hashlib.sha256(str(folder().resolve()).encode()).hexdigest()[:16]
    return os.open(Path(tempfile.gettempdir()) / f"shape-tracer-{name}.lock", os.O_RDWR | os.O_CREAT)


def _wait_for(handle: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if sys.platform == "win32":
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() > end:
                return
            time.sleep(0.01)
