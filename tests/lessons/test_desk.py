"""What a learner calls: check, hint, solution, progress, and the progress file behind them."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tracer import lessons
from tracer.errors import TracerError
from tracer.lessons import store
from tracer.lessons.feedback import Feedback, Note, Stage

FILE = Path(".tracer-progress.json")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def view_only(x: Tensor, H: int) -> Tensor:
    return x.view(x.shape[0], H, x.shape[1], -1)


def right(x: Tensor, H: int) -> Tensor:
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)


# ------------------------------------------------------------------ check and progress


def test_public_names() -> None:
    assert lessons.__all__ == sorted(lessons.__all__)
    assert all(hasattr(lessons, name) for name in lessons.__all__)


def test_a_fresh_notebook_leaves_no_file_and_stays_quiet(folder: Path) -> None:
    for exercise in lessons.exercises():
        feedback = lessons.check(exercise.id, ...)
        assert feedback.status == "not attempted" and feedback.message == ""
    assert list(folder.iterdir()) == []


def test_progress_is_kept_beside_the_notebook() -> None:
    assert lessons.check("split_heads", view_only).mistake == "split_heads_view_only"
    assert lessons.check("split_heads", right).status == "right"
    assert lessons.check("split_heads", view_only).status == "wrong"
    lessons.check("scores_shape", "B H T D")
    kept = json.loads(FILE.read_text())["exercises"]
    assert kept["split_heads"] == {"status": "wrong", "solved": True, "tries": 3, "hints": 0, "honest": True}
    assert kept["scores_shape"] == {"status": "wrong", "solved": False, "tries": 1, "hints": 0, "honest": True}
    report = lessons.progress()
    assert report.solved == 1 and len(report.rows) == len(lessons.exercises())
    text = str(report)
    assert "✓ Right (3)" in text and "✗ Not yet (1)" in text and "○ Not attempted yet (0)" in text
    assert f"1 of {len(report.rows)} exercises solved, 2 of " in text
    html = report._repr_html_()
    assert "✓ Right" in html and 'scope="col"' in html


def test_an_unknown_id_says_which_is_near() -> None:
    for ask in (lambda: lessons.check("split_head", 1), lambda: lessons.hint("split_head")):
        with pytest.raises(lessons.UnknownExercise, match="Did you mean “split_heads”"):
            ask()
    with pytest.raises(TracerError, match="no exercise “zzz”"):
        lessons.solution("zzz")


def test_nothing_is_left_beside_the_file(folder: Path) -> None:
    lessons.check("scores_shape", "B H T T")
    assert [path.name for path in folder.iterdir()] == [FILE.name]


# ------------------------------------------------------------------ hints and solutions


def test_hints_come_one_after_another_and_are_remembered() -> None:
    texts = [str(lessons.hint("split_heads")) for _n in range(4)]
    assert [f"hint {n} of 3" in text for n, text in enumerate(texts[:3], 1)] == [True] * 3
    assert "all hints" in texts[3] and all(f"{n}. " in texts[3] for n in (1, 2, 3))
    assert json.loads(FILE.read_text())["exercises"]["split_heads"]["hints"] == 3
    assert lessons.progress().rows[1][1].tries == 0, "a hint is no attempt"


@pytest.mark.parametrize("exercise", lessons.exercises(), ids=lambda e: e.id)
def test_a_solution_is_shown_after_an_attempt_of_ones_own(exercise: lessons.Exercise) -> None:
    wrong: Any = {"function": lambda *args: len(args), "choice": "a", "shape": "B", "number": 1}[exercise.kind]
    before = lessons.solution(exercise.id)
    lessons.check(exercise.id, ...)
    assert str(lessons.solution(exercise.id)) == str(before) and "answer of your own" in str(before)
    assert before.code == ""
    lessons.check(exercise.id, wrong)
    after = lessons.solution(exercise.id)
    assert after.text == exercise.why and after.code
    if exercise.kind == "function":
        space: dict[str, Any] = {"Tensor": Tensor, "torch": torch}
        exec(after.code, space)
        assert lessons.check(exercise.id, space[exercise.id]).status == "right"
    elif exercise.kind != "number":
        assert lessons.check(exercise.id, after.code.split(":")[0]).status == "right"


# ------------------------------------------------------------------ a file that is broken, or cannot be written

BROKEN = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"version": 2, "exercises": {}}',
    b'{"version": 1, "exercises": []}',
    b'{"version": 1, "exercises": {"split_heads": 3}}',
    b'{"version": 1, "exercises": {"split_heads": {"tries": "many"}}}',
    b'{"version": 1, "exercises": {"split_heads": {"tries": -1}}}',
    b'{"version": 1, "exercises": {"split_heads": {"status": "great"}}}',
    b'{"version": 1, "exercises": {"split_heads": {"unknown": 1}}}',
    b'{"version": 1, "exercises": {"split_heads": {"status": []}}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: content[:60].decode(errors="replace"))
def test_a_broken_file_is_put_aside_with_a_sentence(content: bytes) -> None:
    for number in (1, 2):
        FILE.write_bytes(content)
        feedback = lessons.check("scores_shape", "B H T T")
        aside = Path(f".tracer-progress.broken-{number}.json")
        assert feedback.status == "right" and aside.name in feedback.notes[0] and aside.name in str(feedback)
        assert aside.read_bytes() == content
        assert json.loads(FILE.read_text())["exercises"]["scores_shape"]["tries"] == 1
    assert lessons.progress().notes == ()


def test_progress_and_hints_survive_a_broken_file_too() -> None:
    FILE.write_text("{")
    assert "broken-1" in str(lessons.progress())
    FILE.write_text("{")
    assert "broken-2" in str(lessons.hint("split_heads"))
    FILE.write_text("{")
    assert "broken-3" in str(lessons.solution("split_heads"))


def test_a_folder_in_place_of_the_file() -> None:
    FILE.mkdir()
    feedback = lessons.check("scores_shape", "B H T T")
    assert feedback.status == "right" and feedback.notes and FILE.is_dir()


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    feedback = lessons.check("scores_shape", "B H T T")
    assert feedback.status == "right" and feedback.notes == ("Progress cannot be kept here: No space left on device.",)


def test_a_failed_write_keeps_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons.check("scores_shape", "B H T T")
    before = FILE.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    assert lessons.check("scores_shape", "B H T T").notes
    assert FILE.read_bytes() == before and [path.name for path in folder.iterdir()] == [FILE.name]


def test_the_folder_is_gone(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert lessons.check("scores_shape", "B H T T").status == "right"
    assert str(lessons.progress())


def _check_many(id: str) -> None:
    for _n in range(20):
        lessons.check(id, "B")
        lessons.hint("scores_shape")


def test_two_notebooks_in_one_folder_never_break_the_file() -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_check_many, args=(id,)) for id in ("scores_shape", "flat_logits")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    report = lessons.progress()
    tries = {exercise.id: entry.tries for exercise, entry in report.rows}
    assert report.notes == () and (tries["scores_shape"], tries["flat_logits"]) == (20, 20), "no count is lost"
    assert sorted(path.name for path in Path().iterdir()) == [FILE.name]


def test_a_lock_that_nobody_frees_is_not_waited_for_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="Windows locks in another way")
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        assert lessons.check("scores_shape", "B H T T").notes == ()
    finally:
        os.close(handle)
    assert lessons.progress().solved == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the administrator may write everywhere")
def test_a_folder_that_is_read_only(folder: Path) -> None:
    folder.chmod(0o500)
    feedback = lessons.check("scores_shape", "B H T T")
    folder.chmod(0o700)
    assert feedback.status == "right" and "cannot be kept here" in feedback.notes[0]


class _Shell:
    """What IPython offers to the code of a cell."""

    def __init__(self, folder: Path, **names: Any) -> None:
        self.starting_dir, self.user_ns = str(folder), names


def test_progress_stays_beside_the_notebook_when_its_code_goes_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, beside = folder / "elsewhere", folder / "beside"
    elsewhere.mkdir()
    beside.mkdir()
    monkeypatch.setattr("builtins.get_ipython", lambda: _Shell(folder), raising=False)
    os.chdir(elsewhere)
    lessons.check("scores_shape", "B H T T")
    assert (folder / FILE).exists() and not (elsewhere / FILE).exists()
    code = _Shell(folder, __vsc_ipynb_file__=str(beside / "a.ipynb"))
    monkeypatch.setattr("builtins.get_ipython", lambda: code)
    lessons.check("scores_shape", "B H T T")
    assert (beside / FILE).exists() and not (elsewhere / FILE).exists()


# ------------------------------------------------------------------ what the teacher allows


def test_the_teacher_opens_solutions_or_closes_them(folder: Path) -> None:
    rules = folder / "tracer_class.json"
    rules.write_text('{"solutions": "always"}')
    assert lessons.solution("split_heads").code
    rules.write_text('{"solutions": "never"}')
    lessons.check("split_heads", view_only)
    assert (
        "not shown in this class" in str(lessons.solution("split_heads")) and not lessons.solution("split_heads").code
    )
    rules.write_text('{"solutions": "after a try"}')
    assert lessons.solution("split_heads").code
    assert not lessons.solution("merge_heads").code


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", '{"solutions": "maybe"}', '{"seconds": "long"}', '{"solution": "always"}', '{"notes": ["a"]}'],
)
def test_a_teachers_file_that_cannot_be_read_is_said_and_nothing_else_happens(folder: Path, text: str) -> None:
    (folder / "tracer_class.json").write_text(text)
    feedback = lessons.check("scores_shape", "B H T T")
    assert feedback.status == "right" and "tracer_class.json cannot be used" in feedback.notes[0]
    assert lessons.solution("split_heads").code == ""


def fills(x: Tensor, H: int) -> Any:
    return 0


def stars(*args: Any, **options: Any) -> Any:
    return torch.zeros(2)


@pytest.mark.parametrize(
    ("id", "filler", "honest"),
    [
        ("split_heads", fills, view_only),
        ("split_heads", stars, lambda *args: args[0]),
        ("split_heads", "B H T D", lambda x, H: [H for _n in range(3)]),
        ("scores_shape", 3, "B"),
        ("count_parameters", "many", 3),
        ("parameter_or_activation", "z", "a"),
    ],
)
def test_a_filler_opens_no_solution(id: str, filler: Any, honest: Any) -> None:
    assert lessons.check(id, filler).status in ("wrong", "error")
    assert not lessons.solution(id).code
    assert lessons.check(id, honest).status == "wrong"
    assert lessons.solution(id).code


# ------------------------------------------------------------------ what is shown


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def _shown(thing: Any) -> _Reader:
    reader = _Reader()
    reader.feed(thing._repr_html_())
    return reader


@pytest.mark.parametrize(
    ("status", "sign"),
    [("right", "✓ Right"), ("wrong", "✗ Not yet"), ("error", "! Stopped"), ("not attempted", "○ Not attempted yet")],
)
def test_a_status_is_a_sign_and_a_word_never_colour_alone(status: Any, sign: str) -> None:
    feedback = Feedback("x", status, "text")
    assert sign in str(feedback) and sign in _shown(feedback).text


def test_all_text_is_escaped() -> None:
    evil = "<script>alert('&')</script>"
    for thing in (Feedback(evil, "wrong", evil, evil, (evil,)), Note(evil, evil, evil)):
        reader = _shown(thing)
        assert "script" not in reader.tags and evil in reader.text
    feedback = lessons.check("scores_shape", evil)
    assert "script" not in _shown(feedback).tags


def test_the_name_of_the_mistake_is_shown() -> None:
    feedback = lessons.check("split_heads", view_only)
    for text in (str(feedback), _shown(feedback).text):
        assert "split_heads_view_only" in text and "scrambled" in text


@pytest.mark.parametrize("exercise", lessons.exercises(), ids=lambda e: e.id)
def test_an_exercise_shows_its_question(exercise: lessons.Exercise) -> None:
    assert exercise.question in str(exercise) and exercise.question in _shown(exercise).text


@pytest.mark.parametrize("call", ["check('split_head', 1)", "hint('split_head')", "solution('split_head')"])
def test_a_mistyped_id_shows_none_of_our_lines_in_a_notebook(call: str) -> None:
    code = (
        f"from IPython.core.interactiveshell import InteractiveShell as S\nS.instance().run_cell({call_cell(call)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Did you mean “split_heads”" in done.stdout and "desk.py" not in done.stdout


def call_cell(call: str) -> str:
    return f"from tracer import lessons\nlessons.{call}"


# ------------------------------------------------------------------ stages and progress, as shown


def test_the_stages_say_how_far_an_answer_came() -> None:
    def signs(answer: Any) -> str:
        return "".join(str(stage)[0] for stage in lessons.check("split_heads", answer).stages)

    assert signs(right) == "✓✓✓✓✓✓"
    assert signs(lambda x, H: x.no_such) == "✓✗––––"
    assert signs(lambda x, H: x) == "✓✓✗––✓"
    assert signs(view_only) == "✓✓✓✗✗✓"
    assert signs(3) == "✓✗–"
    stages = lessons.check("split_heads", view_only).stages
    assert stages[2].detail == "[B, H, T, D]" and "1 of 5 inputs" in stages[3].detail, "all ones: nothing to scramble"
    plain = lessons.check("scores_shape", "B H T D")
    assert [stage.passed for stage in plain.stages] == [True, True, False]
    assert lessons.check("scores_shape", ...).stages == ()


@pytest.mark.parametrize(
    ("passed", "sign", "word"), [(True, "✓", "passed"), (False, "✗", "failed"), (None, "–", "not")]
)
def test_a_stage_is_a_sign_for_the_eye_and_a_word_for_the_ear(passed: bool | None, sign: str, word: str) -> None:
    stage = Stage("runs", passed, "<b>")
    assert str(stage).startswith(sign) and "&lt;b&gt;" in stage.to_html()
    hidden = re.search(
        r'aria-hidden="true">(.*?)</span></span><span style="position:absolute[^>]*>(.*?)<', stage.to_html()
    )
    assert hidden and sign in hidden[1] and word in hidden[2]


def test_progress_by_notebook_and_by_review_question() -> None:
    lessons.check("split_heads", right)
    lessons.check("merge_heads", "no")
    report = lessons.progress()
    own = [exercise for exercise in lessons.exercises() if exercise.notebook == "00"]
    row = next(line for line in str(report).splitlines() if line.startswith("00  ") and " of " in line)
    assert row.split()[1].count("✓") == 1 and row.split()[1].count("!") == 1 and len(row.split()[1]) == len(own)
    assert f"2 of {sum(exercise.points for exercise in own)} points" in row
    assert "question 1  ✓" in str(report)
    reader = _shown(report)
    assert "split_heads: Right" in reader.text and "question 1" in reader.text and "script" not in reader.tags
    assert {"caption", "details", "summary"} <= set(reader.tags)
    assert 'scope="row"' in report._repr_html_() and "aria-hidden" in report._repr_html_()


def test_what_stands_in_plain_text_is_what_a_reader_needs() -> None:
    for thing in (lessons.check("scores_shape", "B"), lessons.hint("scores_shape"), lessons.progress()):
        assert repr(thing) == str(thing)
