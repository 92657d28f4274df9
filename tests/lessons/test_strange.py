"""Strange answers: each gets feedback that says what it is, no line of ours is shown, and nothing is left changed."""

import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from strange_answers import ENDLESS, STRANGE, right

from tracer import lessons
from tracer.lessons import clock
from tracer.lessons.clock import in_time
from tracer.lessons.feedback import Feedback

unixlike = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracer_class.json").write_text(json.dumps({"seconds": 0.4}))
    monkeypatch.setattr(clock, "AGAIN", 0.05)
    return tmp_path


def state() -> list[Any]:
    """Return what a check must leave as it was."""
    torch_state = [
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
    ]
    functions = [torch.isclose, torch.Tensor.__eq__, torch.Tensor.clone, len, signal.getsignal(signal.SIGINT)]
    python = [os.getcwd(), sys.getrecursionlimit(), sys.stdout, sys.stderr, sys.gettrace(), sys.getprofile()]
    return [
        *torch_state,
        *functions,
        *python,
        list(warnings.filters),
        random.getstate(),
        torch.get_rng_state().tolist(),
    ]


def check(answer: Any) -> Feedback:
    before = state()
    feedback = lessons.check("split_heads", answer)
    assert state() == before
    for text in (str(feedback), feedback._repr_html_()):
        assert "Traceback" not in text and "tracer/lessons" not in text and "desk.py" not in text
    return feedback


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_answer_gets_feedback(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer, status, words = STRANGE[name]
    (Path() / "tracer_class.json").unlink()
    feedback = check(answer)
    assert feedback.status == status, str(feedback)
    for word in words:
        assert word in str(feedback)
    assert feedback.stages and feedback.stages[0].passed is True
    assert all(stage.passed for stage in feedback.stages[:-1]) == (status == "right" or "in place" in str(words))
    assert len(str(feedback)) < 3000
    assert capsys.readouterr() == ("", "")


def test_there_are_enough_of_them() -> None:
    assert len(STRANGE) + len(ENDLESS) >= 50


# ------------------------------------------------------------------ the time limit


@unixlike
@pytest.mark.parametrize("name", ENDLESS)
def test_code_that_does_not_end_is_ended(name: str) -> None:
    feedback = check(ENDLESS[name])
    assert (feedback.status, feedback.mistake) == ("error", "time_limit")
    assert "After 0.4 s your code was still running and was stopped. It was at line" in feedback.message
    assert [stage.passed for stage in feedback.stages] == [True, False]
    assert lessons.check("split_heads", right).status == "right", "and the next check works"


@pytest.mark.parametrize("name", ["loop", "loop_in_a_helper", "catches_exceptions"])
def test_in_another_thread_and_so_on_windows_plain_loops_are_ended(name: str) -> None:
    found: list[Any] = []
    x = torch.ones(2, 3, 6)

    def work() -> None:
        found.append(in_time(0.2, lambda: ENDLESS[name](x, 2), lambda line: line))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and found[0].line > ENDLESS[name].__code__.co_firstlineno


@unixlike
def test_a_timer_that_was_there_goes_on() -> None:
    rung: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_rest: rung.append(time.monotonic()))
    left, again = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert in_time(10, lambda: 5, lambda line: 6) == 5
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        end = time.monotonic() + 20
        while not rung and time.monotonic() < end:
            time.sleep(0.01)
        assert rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
        signal.signal(signal.SIGALRM, before)


def test_a_check_that_is_slow_itself_does_not_blame_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(exercise: Any, answer: Any) -> Any:
        time.sleep(100)

    slow.__code__ = slow.__code__.replace(co_filename=lessons.__file__)
    monkeypatch.setattr("tracer.lessons.desk.judge", slow)
    feedback = lessons.check("split_heads", right)
    assert feedback.mistake == "time_limit" and "your code" not in feedback.message


@pytest.mark.usefixtures("interruptible")
def test_stop_shows_one_sentence() -> None:
    def presses_stop(x: Any, H: int) -> Any:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        lessons.check("split_heads", presses_stop)
    assert isinstance(caught.value, lessons.Stopped)
    assert caught.value._render_traceback_() == ["Stopped: split_heads was not judged."]
    assert caught.value.__suppress_context__ and not Path(".tracer-progress.json").exists()


def test_exit_in_a_notebook_ends_no_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    class Shell:
        starting_dir, user_ns = str(folder), {}
        asked = False

        def ask_exit(self) -> None:
            Shell.asked = True

    shell = Shell()

    def leaves(x: Any, H: int) -> Any:
        shell.ask_exit()  # what IPython's exit() does

    monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
    assert "SystemExit" in lessons.check("split_heads", leaves).message
    assert not Shell.asked and vars(shell) == {}
