"""What a learner sees: the answer to a check, a hint, a solution; as text and as HTML. Judges nothing itself.

The HTML needs no script and no style sheet, and takes the colours of text and ground from the page around it.
"""

from dataclasses import dataclass
from typing import Literal

from ..render.html import esc
from ..speech import N_, _

__all__ = ["HIDDEN", "Feedback", "Note", "Stage", "Status", "badge", "chip"]

Status = Literal["right", "wrong", "error", "not attempted"]

# Sign, word and colour: never colour alone. White on each colour has a contrast of at least 5 to 1.
_LOOK: dict[str, tuple[str, str, str]] = {
    "right": ("✓", N_("Right"), "#00694c"),
    "wrong": ("✗", N_("Not yet"), "#b0350b"),
    "error": ("!", N_("Stopped"), "#b0350b"),
    "not attempted": ("○", N_("Not attempted yet"), "#595959"),
    "note": ("i", N_("Note"), "#0b5394"),
}
_STAGE: dict[bool | None, tuple[str, str, str]] = {
    True: ("✓", N_("passed"), "right"),
    False: ("✗", N_("failed"), "wrong"),
    None: ("–", N_("not reached"), "not attempted"),
}
HIDDEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap"
"""Style of words for a screen reader, where a sign says the same to the eye."""
MOST_LINES = 12  # of what a learner's function printed


def chip(status: str, text: str) -> str:
    """Return a piece of HTML: white text on the colour of a status."""
    style = f"background:{_LOOK[status][2]};color:#fff;padding:0 .5em;border-radius:.3em;font-weight:bold"
    return f'<span style="{style}">{esc(text)}</span>'


def badge(status: str) -> tuple[str, str]:
    """Return a status as text (`✓ Right`) and as an HTML span."""
    sign, word, _colour = _LOOK[status]
    text = f"{sign} {_(word)}"
    return text, chip(status, text)


def _box(status: str, head: str, *parts: str) -> str:
    """Return a box in the colour of a status; `parts` are HTML."""
    head = f"<div>{badge(status)[1]} <code>{esc(head)}</code></div>"
    style = f"border-left:.3em solid {_LOOK[status][2]};padding:.4em .8em;margin:.3em 0;overflow-wrap:anywhere"
    return f'<div role="status" style="{style}">{head}{"".join(parts)}</div>'


def _lines(text: str) -> str:
    return "\n".join(map(esc, text.split("\n")))  # `esc` shows a line break as two characters


def _paragraph(text: str) -> str:
    return f'<div style="white-space:pre-line;margin-top:.3em">{_lines(text)}</div>' if text else ""


def _code(text: str) -> str:
    return f'<pre style="margin:.5em 0 0;overflow-x:auto">{_lines(text)}</pre>' if text else ""


@dataclass(frozen=True)
class Stage:
    """One stage of a check: passed, failed (False), or not reached (None)."""

    name: str
    passed: bool | None
    detail: str = ""

    def __str__(self) -> str:
        return f"{_STAGE[self.passed][0]} {self._words}"

    @property
    def _words(self) -> str:
        return f"{_(self.name)} ({self.detail})" if self.detail else _(self.name)

    def to_html(self) -> str:
        """Return the stage as an item of a list."""
        sign, word, status = _STAGE[self.passed]
        mark = f'<span aria-hidden="true">{chip(status, sign)}</span><span style="{HIDDEN}">{esc(_(word))}: </span>'
        return f'<li style="display:inline-block;margin:0 1em 0 0">{mark} {esc(self._words)}</li>'


@dataclass(frozen=True, repr=False)
class Feedback:
    """What `check` says about one answer.

    `mistake` is the name of a catalogued mistake when the answer is exactly that one, else None. `notes` are
    sentences about something else than the answer, such as a progress file that could not be read. `stages` say how far
    the answer came, `printed` is what a function printed on the input that the message speaks of. `points` is set where
    nbgrader runs the check: the points earned, which it reads from the plain text of the result.
    """

    exercise: str
    status: Status
    message: str
    mistake: str | None = None
    notes: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    printed: str = ""
    points: float | None = None

    @property
    def _head(self) -> str:
        return f"{self.exercise} · {self.mistake}" if self.mistake else self.exercise

    def _output(self) -> str:
        lines = self.printed.rstrip().split("\n")
        more = len(lines) - MOST_LINES
        if more > 0:
            lines = [*lines[:MOST_LINES], _("… and more")]
        return "\n".join(line if len(line) < 200 else line[:200] + "…" for line in lines)

    def __str__(self) -> str:
        lines = [f"{badge(self.status)[0]}  {self._head}", self.message, " · ".join(map(str, self.stages))]
        if self.printed.strip():
            lines += [_("Your function printed:"), self._output()]
        return "\n".join(text for text in (*lines, *self.notes) if text)

    def __repr__(self) -> str:
        return str(self) if self.points is None else f"{self.points:g}"

    def _repr_html_(self) -> str:
        parts = [_paragraph(self.message)]
        if self.stages:
            items = "".join(stage.to_html() for stage in self.stages)
            named = f'aria-label="{esc(_("How far the answer came"))}"'
            parts.append(f'<ol {named} style="list-style:none;margin:.5em 0 0;padding:0">{items}</ol>')
        if self.printed.strip():
            parts += [_paragraph(_("Your function printed:")), _code(self._output())]
        return _box(self.status, self._head, *parts, *map(_paragraph, self.notes))


@dataclass(frozen=True, repr=False)
class Note:
    """A hint, a solution, or a sentence that says why there is none: a title, text, and perhaps code."""

    title: str
    text: str
    code: str = ""

    def __str__(self) -> str:
        return "\n".join(part for part in (f"i {self.title}", self.text, self.code) if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _box("note", self.title, _paragraph(self.text), _code(self.code))
