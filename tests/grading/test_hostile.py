"""A class of hostile notebooks among honest ones: nobody gets points that weren't earned, nothing stays behind."""

import csv
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_notebooks import ATTACKS, CHECK, RIGHT, WRONG

from tracer.grading.closed import Bounds, NotIsolated, Nursery
from tracer.grading.grader import Settings, grade
from tracer.grading.state import Row
from tracer.grading.walls import WAYS
from tracer.lessons import exercises

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="walls are put up on Linux")

POINTS = {exercise.id: exercise.points for exercise in exercises()}
ASSIGNMENT = ("split_heads", "scores_shape", "parameter_or_activation")
ANSWERS = {exercise.id: exercise.reference for exercise in exercises()}
TOTAL = sum(POINTS[id] for id in ASSIGNMENT)
RAN = {"graded", "time-out", "crashed", "too much output", "garbled output"}
BOUNDS = Bounds(seconds=6, memory=1024, disk=16)
HONEST = (
    WRONG + RIGHT + 'lessons.check("split_heads", right)',
    f'lessons.check("scores_shape", {ANSWERS["scores_shape"]!r})',
    f'lessons.check("parameter_or_activation", {ANSWERS["parameter_or_activation"]!r})',
)


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@dataclass
class Graded:
    """One run over the class: its rows by the file's name without the ending, the folder around it, who called."""

    rows: dict[str, Row]
    outside: Path
    before: dict[str, Any]
    calls: list[Any]
    temporary: Path
    left: list[str]


def snapshot(folder: Path) -> dict[str, Any]:
    """Return what lies in a folder: names, contents, modes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def processes(home: Path) -> list[str]:
    """Return the processes whose environment names this folder, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if os.fsencode(home) in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def fill(folder: Path, outside: Path, port: int) -> None:
    """Write the class: honest notebooks first, in the middle and last, the attacks, and files that are none."""
    facts = {"{outside}": str(outside), "{port}": str(port), "{parent}": str(os.getpid())}
    for name, attack in ATTACKS.items():
        for key, value in facts.items():
            attack = attack.replace(key, value)
        (folder / f"{name}.ipynb").write_text(notebook(WRONG, attack, CHECK), encoding="utf-8")
    for name in ("0 honest", "honest", "홍길동", "zz honest"):
        (folder / f"{name}.ipynb").write_text(notebook(*HONEST), encoding="utf-8")
    first = notebook(HONEST[0], HONEST[1], "import os; os._exit(1)", HONEST[2])
    (folder / "earned before the crash.ipynb").write_text(first, encoding="utf-8")
    late = notebook(HONEST[0], ATTACKS["loops deaf to everything"], HONEST[2])
    (folder / "earned before the time-out.ipynb").write_text(late, encoding="utf-8")
    (folder / "no answer.ipynb").write_text(notebook("x = 1"), encoding="utf-8")
    (folder / "blank.ipynb").write_text(notebook(WRONG, 'lessons.check("split_heads", ...)'), encoding="utf-8")
    # files that are no notebooks
    (folder / "empty.ipynb").write_bytes(b"")
    (folder / "cut off.ipynb").write_text(notebook(*HONEST)[:-30], encoding="utf-8")
    (folder / "picture.ipynb").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (folder / "deep.ipynb").write_text("[" * 200_000, encoding="utf-8")
    (folder / "list.ipynb").write_text("[1, 2]", encoding="utf-8")
    (folder / "cells.ipynb").write_text('{"cells": 5}', encoding="utf-8")
    (folder / "source.ipynb").write_text('{"cells": [{"cell_type": "code", "source": {"a": 1}}]}', encoding="utf-8")
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "link.ipynb").symlink_to(outside / "secret")
    (folder / "link up.ipynb").symlink_to("../secret")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    (folder / "round").symlink_to(".", target_is_directory=True)
    (folder / "nothing in it").mkdir()


@pytest.fixture(scope="module", params=WAYS)
def graded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graded]:
    """Grade the class once behind each kind of wall."""
    outside = tmp_path_factory.mktemp("outside")
    temporary, home = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("home")
    (outside / "secret").write_text(notebook(*HONEST) + " HACKED", encoding="utf-8")
    (folder := outside / "class").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        server.settimeout(0.1)
        calls: list[Any] = []
        fill(folder, outside, server.getsockname()[1])
        before = snapshot(outside)
        patch.setenv("HOME", str(home))
        patch.setenv("SECRET_OF_THE_GRADER", "1")
        patch.setattr(tempfile, "tempdir", str(temporary))
        try:
            with Nursery([request.param]) as nursery:
                rows = grade(folder, outside / "grades.csv", Settings(ASSIGNMENT, "seed", 4, bounds=BOUNDS), nursery)
        except NotIsolated as error:
            assert request.param != WAYS[0] or _another_way(), f"no walls can be put up here: {error}"
            pytest.skip(str(error))
        left = processes(home)
        with pytest.raises(TimeoutError):
            calls.append(server.accept())
    yield Graded({row.file.removesuffix(".ipynb"): row for row in rows}, outside, before, calls, temporary, left)


def _another_way() -> bool:
    try:
        with Nursery(WAYS[1:]):
            return True
    except NotIsolated:
        return False


def test_honest_notebooks_get_their_points(graded: Graded) -> None:
    for name in ("0 honest", "honest", "홍길동", "zz honest"):
        row = graded.rows[name]
        assert (row.status, row.points, row.out_of, row.failed) == ("graded", TOTAL, TOTAL, ()), row


def test_no_hostile_notebook_gets_a_point(graded: Graded) -> None:
    assert len(ATTACKS) >= 30
    assert {name: graded.rows[name].points for name in ATTACKS if graded.rows[name].points} == {}
    assert {graded.rows[name].status for name in ATTACKS} <= RAN


def test_what_was_earned_before_the_end_is_kept(graded: Graded) -> None:
    crashed, late = graded.rows["earned before the crash"], graded.rows["earned before the time-out"]
    assert (crashed.status, crashed.points) == ("crashed", POINTS["split_heads"] + POINTS["scores_shape"])
    assert [mark.status for mark in crashed.marks] == ["right", "right", "lost"]
    assert (late.status, late.points) == ("time-out", POINTS["split_heads"])
    assert [mark.status for mark in late.marks] == ["right", "lost", "lost"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("leaves at once", "crashed"),
        ("leaves with a code", "crashed"),
        ("crashes", "crashed"),
        ("loops deaf to everything", "time-out"),
        ("lengths that lie", "too much output"),
        ("headers that are no records", "garbled output"),
        ("endless messages", "too much output"),
        ("exits politely", "graded"),
        ("loops for ever", "graded"),
        ("sleeps", "graded"),
        ("endless output", "graded"),
        ("ten gigabytes", "graded"),
        ("empty", "corrupt file"),
        ("cut off", "corrupt file"),
        ("picture", "corrupt file"),
        ("deep", "corrupt file"),
        ("source", "corrupt file"),
        ("list", "not a notebook"),
        ("cells", "not a notebook"),
        ("pipe", "not a notebook"),
        ("link", "link"),
        ("link up", "link"),
        ("linked", "link"),
        ("round", "link"),
        ("nothing in it", "no notebook"),
    ],
)
def test_each_end_has_its_own_status(graded: Graded, name: str, status: str) -> None:
    row = graded.rows[name]
    assert row.status == status, row
    if status not in RAN:
        assert row.points is None and row.out_of is None


def test_what_is_missing_is_told_from_what_is_blank(graded: Graded) -> None:
    assert {mark.status for mark in graded.rows["no answer"].marks} == {"missing"}
    assert [mark.status for mark in graded.rows["blank"].marks] == ["not attempted", "missing", "missing"]
    assert graded.rows["leaves at once"].marks[0].status == "lost"


def test_a_mistake_is_named_as_in_class(graded: Graded) -> None:
    mark = graded.rows["patched torch"].marks[0]
    assert (mark.status, mark.mistake) == ("wrong", "split_heads_view_only")
    assert graded.rows["changes its input"].marks[0].mistake == "input_changed_in_place"


def test_nothing_outside_is_touched(graded: Graded) -> None:
    after = snapshot(graded.outside)
    made = {name for name in after if name not in graded.before}
    pages = {name for name in made if name.startswith("grades_feedback")}
    assert made - pages == {"grades.csv", "grades.html"}
    changed = {name for name, was in graded.before.items() if name in after and after[name] != was}
    assert (changed, set(graded.before) - set(after)) == (set(), set())
    assert not any("HACKED" in name for name in after)


def test_no_process_and_no_file_stays(graded: Graded) -> None:
    assert graded.left == []
    assert list(graded.temporary.iterdir()) == []
    assert threading.active_count() < 10
    for folder in ("/tmp", "/var/tmp", "/dev/shm", sys.prefix, str(Path(__file__).parents[2] / "tracer")):
        assert not (Path(folder) / "HACKED").exists()


def test_nobody_called(graded: Graded) -> None:
    assert graded.calls == []


def test_the_pages_are_escaped_and_the_table_has_no_formula(graded: Graded) -> None:
    pages = [path.read_text(encoding="utf-8") for path in graded.outside.rglob("*.html")]
    assert len(pages) == len(graded.rows) + 1
    assert not [page for page in pages if "<script" in page or "<img" in page]
    data = (graded.outside / "grades.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    table = list(csv.DictReader(data.decode("utf-8-sig").splitlines()))
    assert "홍길동" in {line["student"] for line in table}
    assert not [text for line in table for text in line.values() if text.startswith(tuple("=+-@"))]
