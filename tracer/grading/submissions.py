"""Finds what students handed in and reads it as text: notebooks in a folder, or in folders below it.

No link is followed, hidden folders and checkpoints are passed over. What cannot be read is told by a word of its own.
"""

import errno
import hashlib
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..speech import _

__all__ = ["Notebook", "Submission", "Unreadable", "find", "read", "student_of"]

LARGEST = 20 << 20  # bytes of a notebook
CODE = 4 << 20  # characters of its code
CELLS = 2_000
DEEPEST = 20
_COPY = re.compile(r"(\s*\(\d+\)|\s*[-–]\s*(copy|복사본|사본)(\s*\(?\d+\)?)?|-copy\d*)$", re.IGNORECASE)
_LMS = (
    re.compile(r"^(?P<name>.+?)_\d+_assignsubmission_\w+?_.*$"),  # Moodle
    re.compile(r"^(?P<name>.+?)(?:_late)?_\d{3,}_\d{3,}_.*$", re.IGNORECASE),  # Canvas
    re.compile(r"^.+_(?P<name>[^_]+)_attempt_\d{4}-.*$"),  # Blackboard
)
_CHECK = re.compile(r"""\bcheck\(\s*(?:id\s*=\s*)?["'](\w+)["']""")


class Unreadable(Exception):
    """A file that cannot be graded: `status` in a word for the table, `detail` in a sentence."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Submission:
    """One file that was handed in: where it lies, its path below the folder as text, whose it seems to be."""

    path: str
    file: str
    student: str
    problem: tuple[str, str] | None = None  # status and detail, where there is nothing to open


@dataclass(frozen=True)
class Notebook:
    """What is graded of a notebook: the sources of its code cells, the ids that they check, a digest of the file."""

    cells: tuple[str, ...]
    asked: tuple[str, ...]
    digest: str


def find(folder: Path, numbers: frozenset[str]) -> list[Submission]:
    """Return what was handed in below a folder, in order; `numbers` are those of the notebooks, as in `17`."""
    found = sorted(_below(os.fspath(folder), "", 0), key=lambda one: one[1])
    rows = [Submission(path, _shown(file), student_of(_shown(file), numbers), problem) for path, file, problem in found]
    with_files = {file.split(os.sep)[0] for _path, file, _problem in found}
    for entry in _entries(os.fspath(folder)):
        if entry.is_dir(follow_symlinks=False) and entry.name not in with_files:
            shown = _shown(entry.name)
            detail = _("There is no file named *.ipynb in this folder.")
            rows.append(Submission(entry.path, shown, student_of(shown + "/x", numbers), ("no notebook", detail)))
    return rows


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((one for one in entries if _looked_at(one.name)), key=lambda one: one.name)


def _looked_at(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"


def _below(folder: str, before: str, depth: int) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    try:
        entries = _entries(folder)
    except OSError as error:
        yield folder, before, ("unreadable", error.strerror or "")
        return
    for entry in entries:
        file = os.path.join(before, entry.name)
        if entry.is_symlink():
            if entry.name.lower().endswith(".ipynb") or os.path.isdir(entry.path):
                yield entry.path, file, ("link", _("This is a link to another place; it was not followed."))
        elif entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST:
                yield from _below(entry.path, file, depth + 1)
        elif entry.name.lower().endswith(".ipynb"):
            yield entry.path, file, None


def _shown(file: str) -> str:
    """Return a path as text: composed characters, as one system writes them and another does not; no broken bytes."""
    text = os.fsencode(file).decode("utf-8", "replace").replace(os.sep, "/")
    return unicodedata.normalize("NFC", text)


def student_of(file: str, numbers: frozenset[str]) -> str:
    """Return whose file this seems to be: the folder it lies in, or its name without what mail and systems add.

    Example:
        >>> student_of("hong_gildong_17 (1).ipynb", frozenset({"17"}))
        'hong_gildong'
        >>> student_of("홍길동/late/17_assignment.ipynb", frozenset({"17"}))
        '홍길동'
    """
    first, slash, _file = file.partition("/")
    name = first if slash else re.sub(r"\.ipynb$", "", first, flags=re.IGNORECASE)
    for pattern in _LMS:
        if (match := pattern.match(name + ("_" if slash else ""))) is not None:
            return match["name"].strip()
    shorter = _COPY.sub("", name)
    while shorter != name and shorter:
        name, shorter = shorter, _COPY.sub("", shorter)
    lesson = "|".join(sorted(map(re.escape, numbers))) or "(?!)"
    bare = re.sub(rf"^({lesson})(_assignment)?[_\-\s]+|[_\-\s]+({lesson})(_assignment)?$", "", name)
    return bare.strip(" _-") or name


# ------------------------------------------------------------------ one file


def read(submission: Submission) -> Notebook:
    """Read a notebook's code cells; raises Unreadable with a status for everything else."""
    if submission.problem is not None:
        raise Unreadable(*submission.problem)
    data = _bytes_of(submission.path)
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Unreadable("corrupt file", _("The file is not JSON, or only a part of it arrived.")) from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list) or len(cells) > CELLS:
        raise Unreadable("not a notebook", _("The file is JSON, but not a notebook of the present format (version 4)."))
    sources = tuple(_source(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code")
    if sum(map(len, sources)) > CODE:
        raise Unreadable("too large", _("The notebook's code is larger than is read."))
    asked = tuple(dict.fromkeys(id for source in sources for id in _CHECK.findall(source)))
    return Notebook(sources, asked, hashlib.sha256(data).hexdigest())


def _bytes_of(path: str) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        status = "link" if error.errno == errno.ELOOP else "unreadable"
        raise Unreadable(status, error.strerror or "") from None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Unreadable("not a notebook", _("This is not an ordinary file."))
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Unreadable("too large", _("The file is larger than is read."))
    return data


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    if isinstance(source, str):
        return source
    raise Unreadable("corrupt file", _("A code cell of the notebook has no text."))
