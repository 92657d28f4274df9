"""The progress file: one small JSON file in the folder the notebook runs in. Written atomically; never raises.

Each change reads the file, changes one entry and replaces the file, so two notebooks in one folder share it. A file
that cannot be read is moved aside, not overwritten. What went wrong comes back as sentences for the learner.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..speech import _
from .feedback import Status

__all__ = ["FILE", "Entry", "Progress", "load", "save"]

FILE = ".tracer-progress.json"
VERSION = 1
_STATUSES = ("right", "wrong", "error", "not attempted")


@dataclass
class Entry:
    """What is kept about one exercise: the last status, whether it was ever right, attempts, hints seen."""

    status: Status = "not attempted"
    solved: bool = False
    tries: int = 0
    hints: int = 0


@dataclass
class Progress:
    """All entries by exercise id, and sentences about the file itself."""

    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def entry(self, id: str) -> Entry:
        """Return the entry of an exercise, made on first use."""
        return self.entries.setdefault(id, Entry())


def load() -> Progress:
    """Read the progress file of the current folder."""
    progress = Progress()
    try:
        progress.entries = _parse(Path(FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except OSError as error:
        progress.notes.append(_("Progress cannot be read here: {reason}.").format(reason=error.strerror))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or JSON of another kind
        progress.notes.append(_put_aside())
    return progress


def save(progress: Progress) -> None:
    """Replace the progress file in one step; on failure leave a sentence in `progress.notes`."""
    content = {"version": VERSION, "exercises": {id: asdict(entry) for id, entry in progress.entries.items()}}
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=FILE, suffix=".new", dir=".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, FILE)
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
    return Entry(entry.status, entry.solved is True, entry.tries, entry.hints)


def _put_aside() -> str:
    number = 1
    while os.path.lexists(name := f"{FILE.removesuffix('.json')}.broken-{number}.json"):
        number += 1
    try:
        os.replace(FILE, name)
    except OSError as error:
        text = _("The progress file {file} cannot be read, nor moved: {reason}.")
        return text.format(file=FILE, reason=error.strerror)
    return _("The progress file could not be read. It is kept as {name}, and a new one was begun.").format(name=name)
