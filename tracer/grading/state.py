"""What a run has graded so far, in a file beside the result, so that one that was ended half-way goes on from there.

One line for each notebook. A line that was cut off is forgotten, and its notebook graded again.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .marking import Mark

__all__ = ["Row", "State", "replace_file"]

VERSION = 1


@dataclass(frozen=True)
class Row:
    """One notebook's result. `marks` is empty and points are None where nothing was run."""

    student: str
    file: str
    status: str
    detail: str = ""
    marks: tuple[Mark, ...] = ()
    failed: tuple[str, ...] = ()  # cells that raised, in words

    @property
    def points(self) -> int | None:
        """Points that were earned; None where the notebook could not be run."""
        return sum(mark.points for mark in self.marks) if self.marks else None

    @property
    def out_of(self) -> int | None:
        """Points that could be earned; None where the notebook could not be run."""
        return sum(mark.out_of for mark in self.marks) if self.marks else None


def replace_file(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file in one step: whoever reads it sees the old text or the new one, whole."""
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding=encoding, newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would keep it from a colleague
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class State:
    """Rows by file and digest, kept on disk as they come. `settings` are what must be equal for a run to go on."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, {"version": VERSION, **settings}
        self.seed: str | None = None
        self.rows: dict[tuple[str, str], Row] = {}

    def load(self) -> bool:
        """Read what an earlier run left; return whether there was something of the same settings."""
        with contextlib.suppress(OSError, ValueError):
            first, *lines = self.path.read_text(encoding="utf-8").split("\n")
            head = json.loads(first)
            if head.get("settings") == self.settings and isinstance(head.get("seed"), str):
                self.seed = head["seed"]
                for line in lines:
                    self._take(line)
        return self.seed is not None

    def _take(self, line: str) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError):  # the line that was being written
            told = json.loads(line)
            row = told["row"]
            marks, failed = tuple(Mark(**mark) for mark in row.pop("marks")), tuple(row.pop("failed"))
            self.rows[told["file"], told["digest"]] = Row(**row, marks=marks, failed=failed)

    def begin(self, seed: str) -> None:
        """Write the head, and the rows that are known, anew."""
        self.seed = seed
        lines = [json.dumps({"settings": self.settings, "seed": seed})]
        lines += [self._line(file, digest, row) for (file, digest), row in self.rows.items()]
        replace_file(self.path, "\n".join(lines) + "\n")

    def add(self, file: str, digest: str, row: Row) -> None:
        """Keep one more row, on disk when this returns."""
        self.rows[file, digest] = row
        with self.path.open("a", encoding="utf-8") as out:
            out.write(self._line(file, digest, row) + "\n")
            out.flush()
            os.fsync(out.fileno())

    @staticmethod
    def _line(file: str, digest: str, row: Row) -> str:
        return json.dumps({"file": file, "digest": digest, "row": asdict(row)})

    def done(self) -> None:
        """Remove the file: the results are written."""
        self.path.unlink(missing_ok=True)
