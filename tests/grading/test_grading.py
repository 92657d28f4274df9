"""Grading without a closed process: what is found, sent, marked, kept and written; and where it refuses."""

import csv
import inspect
import json
import os
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tracer.cli import main
from tracer.grading import closed
from tracer.grading.closed import Bounds, Heard, NotIsolated, Nursery, Unwalled
from tracer.grading.grader import GradingError, Settings, asked_for, grade
from tracer.grading.marking import Mark, Questions, of_notebook, seed_of
from tracer.grading.report import cell, student_page, table
from tracer.grading.state import Row, State, replace_file
from tracer.grading.submissions import Unreadable, find, read, student_of
from tracer.grading.wire import DTYPES, Frames, Limits, Reader, TooMuch, WireError, frame, travels, write_tree
from tracer.grading.worker import Desk, Sender, exercises_of
from tracer.lessons import Exercise, exercises
from tracer.lessons.judge import judge

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = {exercise.id: exercise for exercise in exercises()}
FUNCTIONS = [exercise for exercise in exercises() if exercise.kind == "function"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="walls are put up on Linux")


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# title"}, *made]})


# ------------------------------------------------------------------ values on their way


@pytest.mark.parametrize(
    "value",
    [
        *(None, ..., True, 7, -(10**200), 2.5, float("inf"), "B T C", "", "홍길동", [], (), {"a": [1, (2, None)]}),
        *(
            torch.float16,
            torch.zeros(()),
            torch.zeros(0, 3),
            torch.arange(6).reshape(2, 3).T,
            torch.tensor([True, False]),
        ),
        *(torch.ones(2, 3, dtype=dtype) for dtype in DTYPES.values()),
    ],
    ids=lambda value: f"{type(value).__name__} {value}"[:40],
)
def test_a_value_arrives_as_it_left(value: Any) -> None:
    buffers: list[bytes] = []
    tree = json.loads(json.dumps(write_tree(value, buffers)))
    back = Reader(b"".join(buffers)).value(tree)
    assert travels(value)
    if isinstance(value, torch.Tensor):
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert torch.equal(back, value)
    else:
        assert back == value
        assert type(back) is type(value)


@pytest.mark.parametrize(
    "value", [object(), print, lambda x: x, torch.nn.Linear(2, 2), [1, {"a": {1}}], torch.empty(2, device="meta")]
)
def test_what_does_not_travel_is_told_by_its_type(value: Any) -> None:
    tree = write_tree(value, [])
    assert not travels(value)
    assert "other" in json.dumps(tree)
    if tree[0] == "other":
        assert type(Reader(b"").value(tree)).__name__ == tree[1]


@pytest.mark.parametrize(
    "tree",
    [
        *(None, 5, [], "text", {}, ["nothing"], [["tensor"]], ["tensor"], ["tensor", "float32"], ["list"], ["list", 5]),
        *(
            ["tensor", "float32", [3]],
            ["tensor", "float33", [1]],
            ["tensor", "float32", [-1]],
            ["tensor", "bool", [True]],
        ),
        *(["tensor", "float32", [1 << 40]], ["tensor", "uint8", [0, 1 << 21, 1 << 21]], ["tensor", "uint8", [0] * 99]),
        *(["dict", [[1, ["none"]]]], ["dict", [["a"]]], ["int", "9" * 5000], ["int", 5], ["int", "x"], ["float", "x"]),
        *(["float", 1.0], ["bool", 1], ["text", 5], ["dtype", "object"], ["dtype", []], ["other", 5], ["none", 1]),
        ["list", [["list", [["list", [["list", [["list", [["list", [["none"]]]]]]]]]]]]],
        ["list", [["none"]] * 5000],
    ],
    ids=lambda tree: str(tree)[:40],
)
def test_a_value_that_lies_is_refused(tree: Any) -> None:
    with pytest.raises(WireError):
        Reader(b"1234567").value(tree)


def doubled(x: torch.Tensor) -> "Anything":  # noqa: F821
    return torch.add(x, x)


def test_a_function_arrives_in_the_closed_process_alone() -> None:
    layer = torch.nn.Identity()
    layer.rule = doubled
    tree = json.loads(json.dumps(write_tree((doubled, layer), [])))
    assert travels((doubled, layer))
    made, made_layer = Reader(b"", functions=True).value(tree)
    assert made(torch.ones(2)).tolist() == made_layer(torch.ones(2)).tolist() == [2, 2]
    assert isinstance(made_layer, torch.nn.Module)
    (nothing,) = Reader(b"").value(["tuple", [["function", "x", "open('HACKED', 'w')"]]])
    assert not callable(nothing) and not Path("HACKED").exists()


def test_bytes_that_are_no_truth_values_become_some() -> None:
    assert Reader(b"\x00\x01\x07\xff").value(["tensor", "bool", [4]]).tolist() == [False, True, True, True]


def test_messages_arrive_whole_whatever_the_pieces() -> None:
    data = frame({"a": 1}, [b"xy", b"z"]) + frame({"b": "é"}, [])
    for size in (1, 3, 1000):
        frames = Frames()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [one for piece in pieces for one in frames.feed(piece)] == [({"a": 1}, b"xyz"), ({"b": "é"}, b"")]


@pytest.mark.parametrize("data", [frame({}, [])[:8] + b"[]", b"\x02\0\0\0\0\0\0\0{x", b"\x02\0\0\0\0\0\0\0\xff\xff"])
def test_a_header_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        list(Frames().feed(data))


@pytest.mark.parametrize("limits", [Limits(header=3), Limits(body=1), Limits(total=10), Limits(count=1)])
def test_too_much_is_refused_before_it_is_kept(limits: Limits) -> None:
    message = frame({"a": 1}, [b"xyz"])
    with pytest.raises(TooMuch):
        list(Frames(limits).feed(message * 2))


# ------------------------------------------------------------------ marks: as in class


def handed(questions: Questions, ids: Sequence[str], *answers: tuple[str, Any]) -> Heard:
    """Hand answers in as a notebook does, in this process, and return what the grader hears."""
    request, buffers = questions.request(ids)
    sent = bytearray()
    sender = Sender(0, lambda handle, data: sent.extend(data) or len(data))
    desk = Desk(sender, exercises_of(json.loads(json.dumps(request))["exercises"], b"".join(buffers)), 60)
    for id, answer in answers:
        desk.check(id, answer)
    return Heard("ran", "", list(Frames().feed(bytes(sent))))


def variants(exercise: Exercise) -> list[Any]:
    """Return answers of an exercise: right ones, and two mistakes that are known."""
    return [exercise.reference, *exercise.also[:1], *(mistake.wrong[0] for mistake in exercise.mistakes[:2])]


@pytest.mark.parametrize("id", EXERCISES)
def test_marks_are_what_check_says(id: str) -> None:
    exercise = EXERCISES[id]
    questions = Questions([exercise], "seed")
    for answer in variants(exercise):
        (mark,) = questions.mark([id], handed(questions, [id], (id, answer)))
        said = judge(exercise, answer, seed_of(id, "seed"))
        assert (mark.status, mark.mistake) == (said.status, said.mistake), f"{answer}: {mark.message}"
        assert mark.points == (exercise.points if said.status == "right" else 0)


@pytest.mark.parametrize("answer", [None, ..., "", NotImplementedError], ids=str)
def test_placeholders_are_not_attempted(answer: Any) -> None:
    questions = Questions(exercises(), "seed")
    for id in EXERCISES:
        (mark,) = questions.mark([id], handed(questions, [id], (id, answer)))
        assert mark.status == "not attempted", id


def test_the_last_answer_counts_and_a_placeholder_takes_none_back() -> None:
    questions = Questions(exercises(), "seed")
    right, wrong = ("scores_shape", "B H T T"), ("scores_shape", "B T C")

    def points(*answers: tuple[str, Any]) -> int:
        return questions.mark(["scores_shape"], handed(questions, ["scores_shape"], *answers))[0].points

    assert points(wrong, right) == points(right, ("scores_shape", ...)) == EXERCISES["scores_shape"].points
    assert points(right, wrong) == 0


def unfinished(x: Any, H: int) -> Any:
    """Split."""
    ...


def half_done(x: Any, H: int) -> Any:
    x = x.view(*x.shape)
    ...


def raised(x: Any, H: int) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize("answer", [unfinished, half_done])
def test_an_unfinished_function_is_not_attempted(answer: Callable[..., Any]) -> None:
    questions = Questions(exercises(), "seed")
    (mark,) = questions.mark(["split_heads"], handed(questions, ["split_heads"], ("split_heads", answer)))
    assert mark.status == "not attempted"


def test_a_right_result_with_a_gradient_that_is_not_finite_is_told() -> None:
    """In float32 the root at 0 has an endless gradient; the result is right all the same."""
    asked = next((one for one in FUNCTIONS if one.gradients), None)
    assert asked is not None
    questions = Questions(exercises(), "seed")

    def spoiled(*args: Any) -> Any:
        first = next(arg for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point())
        nothing = torch.nan_to_num(first.mul(0).abs().sqrt()).sum()  # 0, and NaN on the way back
        return asked.reference(*args) + nothing

    given = spoiled
    given.__signature__ = inspect.signature(asked.reference)  # type: ignore[attr-defined]
    (mark,) = questions.mark([asked.id], handed(questions, [asked.id], (asked.id, given)))
    assert (mark.status, mark.mistake) == ("wrong", "gradient_not_finite"), mark.message


def test_a_function_of_other_arguments_is_told_how_it_is_called() -> None:
    questions = Questions(exercises(), "seed")
    (mark,) = questions.mark(["split_heads"], handed(questions, ["split_heads"], ("split_heads", lambda x: x)))
    assert mark.status == "error"
    assert "split_heads(x, H)" in mark.message and "(x)" in mark.message


def test_all_students_of_a_run_get_the_same_inputs_and_another_run_others() -> None:
    def sent(seed: str) -> bytes:
        return b"".join(Questions(FUNCTIONS, seed).request([one.id for one in FUNCTIONS])[1])

    assert sent("a") == sent("a")
    assert sent("a") != sent("b")


def test_a_notebook_is_graded_on_the_lesson_that_most_of_its_checks_belong_to() -> None:
    first = [exercise.id for exercise in exercises() if exercise.notebook == "00"]
    assert [one.id for one in of_notebook(exercises(), [first[0], first[1], "flat_logits", "none"])] == first
    assert of_notebook(exercises(), ["none"]) == ()


def test_nothing_that_answers_is_in_the_request() -> None:
    request, _buffers = Questions(exercises(), "seed").request(list(EXERCISES))
    for exercise in exercises():
        listed = next(one for one in request["catalogue"] if one["id"] == exercise.id)
        assert not {"reference", "mistakes", "hints", "why", "also"} & listed.keys()
    assert all(entry.keys() == {"kind", "gradients", "names", "cases"} for entry in request["exercises"].values())


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("file", "student"),
    [
        ("hong_gildong_17 (1).ipynb", "hong_gildong"),
        ("hong_gildong_17(2) (1).ipynb", "hong_gildong"),
        ("17_assignment_hong.ipynb", "hong"),
        ("홍길동_17 - 복사본.ipynb", "홍길동"),
        ("홍길동 - Copy (2).ipynb", "홍길동"),
        ("Анна-17-Copy1.IPYNB", "Анна"),
        ("hong gildong/17_assignment.ipynb", "hong gildong"),
        ("홍길동/제출/17.ipynb", "홍길동"),
        ("Hong Gildong_4711_assignsubmission_file_/17_assignment.ipynb", "Hong Gildong"),
        ("Hong Gildong_4711_assignsubmission_file_17.ipynb", "Hong Gildong"),
        ("honggildong_LATE_12345_678910_17_assignment-1.ipynb", "honggildong"),
        ("honggildong_12345_678910_17_assignment.ipynb", "honggildong"),
        ("HW 1_hgd_attempt_2026-03-01-12-00-00_17.ipynb", "hgd"),
        ("17.ipynb", "17"),
        ("=cmd|calc!A0.ipynb", "=cmd|calc!A0"),
    ],
)
def test_a_student_is_known_by_folder_or_name(file: str, student: str) -> None:
    assert student_of(file, frozenset({"00", "17"})) == student


def test_folders_are_searched_in_order_and_hidden_ones_passed_over(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "홍길동")
    for name in ("b/x/17.ipynb", "a.ipynb", f"{decomposed}/17.ipynb", ".ipynb_checkpoints/a.ipynb", "b/.x/c.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(notebook("1"), encoding="utf-8")
    for name in ("__MACOSX/c.ipynb", "._a.ipynb", "notes.txt", "folder.ipynb/inside.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    found = find(tmp_path, frozenset())
    assert [one.file for one in found] == ["a.ipynb", "b/x/17.ipynb", "홍길동/17.ipynb", "folder.ipynb"]
    assert [one.student for one in found] == ["a", "b", "홍길동", "folder.ipynb"]
    with pytest.raises(Unreadable) as info:
        read(found[-1])
    assert info.value.status == "no notebook"


def test_code_cells_are_read_with_the_checks_in_them(tmp_path: Path) -> None:
    cells = (
        'lessons.check("a", 1)',
        "tracer.lessons.check(\n    'b', f)",
        'check(id="c", answer=2)',
        "lessons.hint('d')",
    )
    (tmp_path / "a.ipynb").write_text("\ufeff" + notebook(*cells), encoding="utf-8")
    found = read(find(tmp_path, frozenset())[0])
    assert (found.cells, found.asked) == (cells, ("a", "b", "c"))


def test_a_link_that_takes_a_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(notebook("1"), encoding="utf-8")
    (submission,) = find(tmp_path, frozenset())
    (tmp_path / "b").write_text(notebook("2"), encoding="utf-8")
    (tmp_path / "a.ipynb").unlink()
    (tmp_path / "a.ipynb").symlink_to(tmp_path / "b")
    with pytest.raises(Unreadable) as info:
        read(submission)
    assert info.value.status == "link"


def test_a_file_beyond_all_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.ipynb").open("wb") as file:
        file.truncate(30 << 20)
    with pytest.raises(Unreadable) as info:
        read(find(tmp_path, frozenset())[0])
    assert info.value.status == "too large"


# ------------------------------------------------------------------ a run, and one that goes on


class Pretended:
    """Runs nothing: hears a right answer from each notebook, and can be ended half-way."""

    way = "pretended"

    def __init__(self, ends_after: int = 99) -> None:
        self.ran: list[str] = []
        self.ends_after = ends_after

    def run(self, request: Mapping[str, Any], buffers: Sequence[bytes], bounds: Bounds) -> Heard:
        if len(self.ran) == self.ends_after:
            raise KeyboardInterrupt
        self.ran.append(request["cells"][0])
        told = {"event": "answer", "id": "scores_shape", "value": ["text", "B H T T"]}
        return Heard("ran", "", [({"event": "begun"}, b""), (told, b""), ({"event": "end"}, b"")])

    def stop(self) -> None:
        self.ran.append("stopped")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "class").mkdir()
    for name in "abcde":
        (folder / f"{name}.ipynb").write_text(notebook(f"x = '{name}'", 'check("scores_shape", x)'), encoding="utf-8")
    return folder


def run(folder: Path, apart: Any, **settings: Any) -> list[Row]:
    return grade(folder, folder.parent / "grades.csv", Settings(("scores_shape",), **settings), apart)


def test_a_run_that_was_ended_goes_on(folder: Path) -> None:
    first, second, third = Pretended(3), Pretended(), Pretended()
    with pytest.raises(KeyboardInterrupt):
        run(folder, first)
    part = folder.parent / "grades.csv.part"
    done = len(part.read_text().splitlines()) - 1
    assert "stopped" in first.ran and 0 < done <= 3 and not (folder.parent / "grades.csv").exists()
    seed = json.loads(part.read_text().splitlines()[0])["seed"]
    part.write_text(part.read_text() + '{"file": "e.ipynb", "dig')  # the line that was being written
    state = State(part, json.loads(part.read_text().splitlines()[0])["settings"] | {})
    assert state.load() and state.seed == seed
    rows = run(folder, second)
    assert (len(second.ran), [row.points for row in rows]) == (5 - done, [EXERCISES["scores_shape"].points] * 5)
    assert not part.exists()
    run(folder, third)  # nothing is left to go on with: a new run
    assert len(third.ran) == 5


@pytest.mark.parametrize(
    ("settings", "again"), [({}, 2), ({"anew": True}, 5), ({"seed": "x"}, 5), ({"bounds": Bounds(9)}, 5)], ids=str
)
def test_what_was_graded_otherwise_is_graded_again(folder: Path, settings: dict[str, Any], again: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder, Pretended(3))
    second = Pretended()
    run(folder, second, **settings)
    assert len(second.ran) == again


def test_a_notebook_that_changed_is_graded_again(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder, Pretended(4))
    (folder / "a.ipynb").write_text(notebook("x = 'new'"), encoding="utf-8")
    second = Pretended()
    run(folder, second)
    assert second.ran[0] == "x = 'new'" and len(second.ran) == 2


def test_a_run_that_could_not_start_is_not_kept(folder: Path) -> None:
    class Failing(Pretended):
        def run(self, request: Mapping[str, Any], buffers: Sequence[bytes], bounds: Bounds) -> Heard:
            return Heard("not started", "no room")

    rows = run(folder, Failing())
    assert {(row.status, row.points, row.detail) for row in rows} == {("not started", None, "no room")}


def test_progress_counts_every_file(folder: Path) -> None:
    (folder / "f.ipynb").write_text("broken", encoding="utf-8")
    told: list[tuple[int, int]] = []
    grade(folder, folder.parent / "g.csv", Settings(("scores_shape",)), Pretended(), lambda n, of: told.append((n, of)))
    assert told[-1] == (6, 6) and [n for n, _of in told] == sorted(n for n, _of in told)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_without_notebooks_there_is_nothing_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(GradingError):
        run(tmp_path / name, Pretended())


def test_exercises_are_asked_for_by_id_or_notebook() -> None:
    assert asked_for("split_heads, flat_logits,split_heads") == ("split_heads", "flat_logits")
    assert asked_for("00") == tuple(one.id for one in exercises() if one.notebook == "00")
    with pytest.raises(GradingError, match="“99”"):
        asked_for("split_heads,99")


# ------------------------------------------------------------------ tables and pages


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\n+1", "\uff1d1", "=cmd|' /C calc'!A0"]
)
def test_nothing_in_the_table_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")
    assert "\n" not in cell(text)


def test_the_table_has_points_or_a_reason_and_no_silent_zero() -> None:
    right, wrong = Mark("a", "right", 2, 2), Mark("b", "wrong", 0, 1)
    rows = [
        Row("x", "x.ipynb", "graded", "", (right, wrong)),
        Row("=y", "y.ipynb", "crashed", "code 1", (Mark("a", "lost", 0, 2), Mark("b", "missing", 0, 1))),
        Row("z", "z.ipynb", "corrupt file", "half"),
    ]
    lines = list(csv.reader(table(rows, ["1.html", "2.html", "3.html"]).splitlines()))
    assert lines == [
        ["student", "file", "status", "points", "out of", "a", "b", "detail", "feedback"],
        ["x", "x.ipynb", "graded", "2", "3", "2", "0", "", "1.html"],
        ["'=y", "y.ipynb", "crashed", "0", "3", "lost", "missing", "code 1", "2.html"],
        ["z", "z.ipynb", "corrupt file", "", "", "", "", "half", "3.html"],
    ]


def test_a_page_escapes_whatever_a_student_wrote() -> None:
    evil = "<script>alert(1)</script>\x00"
    row = Row(evil, evil, "graded", evil, (Mark("a", "wrong", 0, 1, f"{evil}\nline 2"),), (evil,))
    page = student_page(row)
    assert "<script" not in page and "\x00" not in page
    assert "line 2" in page and "\\nline" not in page


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    replace_file(path, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "new \ud800")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------ where there are no walls


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (folder := tmp_path / "class").mkdir()
    cells = ("from tracer import lessons", 'lessons.check("scores_shape", "B H T T")')
    (folder / "a.ipynb").write_text(notebook(*cells), encoding="utf-8")
    return folder


def test_another_system_is_refused_in_one_sentence(
    one: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(closed.sys, "platform", "darwin")
    out = one.parent / "grades.csv"
    assert main(["grade", str(one), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "Notebooks can be walled off on Linux only, and this system is darwin." in said and "--unsafe" in said
    assert not out.exists()


def test_without_walls_it_grades_where_the_teacher_says_so(
    one: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(closed.sys, "platform", "darwin")
    wrong = "import tracer.lessons as lessons, os\nlessons.check('scores_shape', 'B T C')\nos._exit(3)"
    (one / "b.ipynb").write_text(notebook(wrong), encoding="utf-8")
    deaf = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"
    (one / "c.ipynb").write_text(notebook(deaf), encoding="utf-8")
    out = one.parent / "grades.csv"
    asked = ["--assignment", "scores_shape", "--seconds", "2", "--jobs", "3"]
    assert main(["grade", str(one), "--out", str(out), "--unsafe", *asked]) == 0
    lines = list(csv.DictReader(out.read_text(encoding="utf-8-sig").splitlines()))
    assert [(line["status"], line["points"]) for line in lines][1:] == [("crashed", "0"), ("time-out", "0")]
    assert "3 files" in capsys.readouterr().out


@linux
def test_walls_that_do_not_hold_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nursery, "holds", lambda self: f"a socket can be opened by {self.way}")
    with pytest.raises(NotIsolated) as info, Nursery():
        pass
    assert str(info.value) == (
        "This system cannot wall off what students hand in (namespaces: a socket can be opened by namespaces; "
        "landlock: a socket can be opened by landlock)."
    )


@linux
def test_a_wall_that_is_missing_is_found() -> None:
    """Inside a PID namespace number 1 is the notebook's own process: signals reach it, and the trial must say so."""
    with Nursery() as nursery:
        assert nursery.holds() == ""
        if nursery.way == "namespaces":
            request = {"probe": True, "outside": 1, "cells": [], "exercises": {}}
            heard = nursery.run(request, [], Bounds(30))
            assert heard.messages[0][0] == {"event": "tried", "open": "another process can be signalled"}


@linux
def test_a_notebook_as_it_is_given_out_runs_apart() -> None:
    cells = read(find(ROOT / "notebooks", frozenset())[0]).cells
    request, buffers = Questions(exercises(), "seed").request(["split_heads"])
    with Nursery() as nursery:
        heard = nursery.run(request | {"cells": cells, "seconds": 60}, buffers, Bounds())
    assert [header for header, _body in heard.messages if header["event"] == "failed"] == []
    assert (heard.ending, heard.messages[-1][0]) == ("ran", {"event": "end"})


@pytest.mark.skipif(os.name == "nt", reason="modes")
def test_a_scratch_folder_goes_whatever_is_in_it(tmp_path: Path) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    here = os.getcwd()
    os.chdir(scratch)
    try:
        for _n in range(1100):  # deeper than Python recurses, and longer than a path may be
            os.mkdir("folder")
            os.chdir("folder")
        Path("file").touch()
    finally:
        os.chdir(here)
    (scratch / "unlisted").mkdir()
    (scratch / "unlisted" / "inner").mkdir()
    (scratch / "unlisted" / "inner").chmod(0)
    (scratch / "unlisted").chmod(0o300)
    (scratch / "link").symlink_to("/")
    closed._remove(str(scratch))
    assert list(tmp_path.iterdir()) == []


@linux
def test_without_the_process_that_forks_the_class_goes_on_untouched() -> None:
    with Nursery() as nursery:
        nursery._process.kill()
        nursery._process.wait()
        heard = nursery.run({"cells": [], "exercises": {}, "catalogue": [], "seconds": 1}, [], Bounds(5))
    assert heard.ending == "not started"


# ------------------------------------------------------------------ killed


@linux
def test_killed_half_way_it_leaves_nothing_running_and_goes_on(tmp_path: Path) -> None:
    (folder := tmp_path / "class").mkdir()
    right = ("from tracer import lessons", 'lessons.check("scores_shape", "B H T T")')
    (folder / "a.ipynb").write_text(notebook(*right), encoding="utf-8")
    (folder / "b.ipynb").write_text(notebook(*right, "import os, time\nif not os.path.exists('x'): time.sleep(60)"))
    out, part = tmp_path / "grades.csv", tmp_path / "grades.csv.part"
    command = [sys.executable, "-m", "tracer", "grade", str(folder), "--out", str(out), "--jobs", "1"]
    environment = os.environ | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not (part.exists() and len(part.read_text().splitlines()) > 1):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while running := [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and _runs_in(pid, tmp_path)]:
        assert time.monotonic() < until, running
        time.sleep(0.05)
    assert list(tmp_path.glob("shape-tracer-*")) == []
    rows = grade(folder, out, Settings(bounds=Bounds()), Pretended())
    assert [row.status for row in rows] == ["graded", "graded"] and not part.exists()


def _runs_in(process: Path, home: Path) -> bool:
    try:
        return f"HOME={home}\0".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_without_walls_the_answers_can_be_read(tmp_path: Path) -> None:
    """What the walls are for: the hostile notebooks' way to the reference is a real one."""
    code = "import pathlib, tracer\npath = pathlib.Path(tracer.__file__).parent / 'lessons' / 'lesson_00.py'\n"
    code += "from tracer import lessons\nfound = {}\ntext = path.read_text().replace('from .', 'from tracer.')\n"
    code += "lessons.check('scores_shape', 'B H T T' if 'B H T T' in text else None)"
    questions = Questions(exercises(), "seed")
    request, buffers = questions.request(["scores_shape"])
    with Unwalled() as apart:
        heard = apart.run(request | {"cells": [code], "seconds": 9}, buffers, Bounds(20))
    assert questions.mark(["scores_shape"], heard)[0].status == "right"
