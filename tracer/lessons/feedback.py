"""What a learner sees: the answer to a check, a hint, a solution; as text and as HTML. Judges nothing itself."""

from dataclasses import dataclass
from html import escape
from typing import Literal

from ..speech import N_, _

__all__ = ["Feedback", "Note", "Status", "badge"]

Status = Literal["right", "wrong", "error", "not attempted"]

# Sign, word and colour: never colour alone. White on each colour has a contrast of at least 5 to 1.
_LOOK: dict[str, tuple[str, str, str]] = {
    "right": ("✓", N_("Right"), "#00694c"),
    "wrong": ("✗", N_("Not yet"), "#b0350b"),
    "error": ("!", N_("Stopped"), "#b0350b"),
    "not attempted": ("○", N_("Not attempted yet"), "#595959"),
    "note": ("i", N_("Note"), "#0b5394"),
}


def badge(status: str) -> tuple[str, str]:
    """Return a status as text (`✓ Right`) and as an HTML span."""
    sign, word, colour = _LOOK[status]
    text = f"{sign} {_(word)}"
    style = f"background:{colour};color:#fff;padding:0 .5em;border-radius:.3em;font-weight:bold"
    return text, f'<span style="{style}">{escape(text)}</span>'


def _box(status: str, head: str, body: tuple[str, ...], code: str = "") -> str:
    colour = _LOOK[status][2]
    parts = [f"<div>{badge(status)[1]} <code>{escape(head)}</code></div>"]
    parts += [f'<div style="white-space:pre-line;margin-top:.3em">{escape(text)}</div>' for text in body]
    if code:
        parts.append(f'<pre style="margin:.5em 0 0">{escape(code)}</pre>')
    style = f"border-left:.3em solid {colour};padding:.4em .8em;margin:.3em 0"
    return f'<div role="status" style="{style}">{"".join(parts)}</div>'


@dataclass(frozen=True)
class Feedback:
    """What `check` says about one answer.

    `mistake` is the name of a catalogued mistake when the answer is exactly that one, else None. `notes` are
    sentences about something else than the answer, such as a progress file that could not be read.
    """

    exercise: str
    status: Status
    message: str
    mistake: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def _head(self) -> str:
        return f"{self.exercise} · {self.mistake}" if self.mistake else self.exercise

    def __str__(self) -> str:
        head = f"{badge(self.status)[0]}  {self._head}"
        return "\n".join([head, *(text for text in (self.message, *self.notes) if text)])

    def _repr_html_(self) -> str:
        return _box(self.status, self._head, tuple(text for text in (self.message, *self.notes) if text))


@dataclass(frozen=True)
class Note:
    """A hint, a solution, or a sentence that says why there is none: a title, text, and perhaps code."""

    title: str
    text: str
    code: str = ""

    def __str__(self) -> str:
        return "\n".join(part for part in (f"i {self.title}", self.text, self.code) if part)

    def _repr_html_(self) -> str:
        return _box("note", self.title, (self.text,), self.code)
