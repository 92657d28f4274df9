"""Sentences pass through gettext: a catalogue changes what is shown, and every marked sentence can be collected."""

import ast
import gettext
from pathlib import Path

import pytest

from tracer import lessons, speech
from tracer.lessons.judge import judge

FOLDER = Path(lessons.__file__).parent


class Shouting(gettext.NullTranslations):
    """A catalogue that needs no file."""

    def gettext(self, message: str) -> str:
        return message + " (K)" if "{" in message else message.upper()

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


def test_english_is_the_source_where_there_is_no_catalogue() -> None:
    assert speech._("Right") == "Right" and speech._("") == ""


def test_a_catalogue_changes_questions_and_feedback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "_catalogue", Shouting)
    exercise = lessons.exercises()[0]
    assert exercise.question.upper() in str(exercise)
    feedback = judge(exercise, "B T")
    assert feedback.message == feedback.message.upper() and "NOT YET" in str(feedback)
    assert judge(exercise, "B").message.endswith(" (K)")


def test_only_plain_text_is_marked() -> None:
    """xgettext reads literals: an f-string or a variable inside `N_` would never reach a translator."""
    marked = 0
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "N_":
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno}"
                marked += 1
    assert marked > 60
