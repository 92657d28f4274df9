"""How far a learner has come, as text and as a picture in HTML: by notebook, by review question, and each exercise."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ..render.html import esc
from ..speech import N_, _
from .exercise import Exercise
from .feedback import HIDDEN, Status, badge, chip
from .store import Entry

__all__ = ["Report"]

Row = tuple[Exercise, Entry]


def _status(entry: Entry) -> Status:
    return "right" if entry.solved else entry.status


def _sign(row: Row) -> str:
    return badge(_status(row[1]))[0][0]


@dataclass(frozen=True)
class _Sum:
    """Points of some rows: earned and to be had; exercises solved and all."""

    earned: int
    points: int
    solved: int
    count: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "_Sum":
        earned = sum(exercise.points for exercise, entry in rows if entry.solved)
        points = sum(exercise.points for exercise, _entry in rows)
        return cls(earned, points, sum(entry.solved for _exercise, entry in rows), len(rows))

    def __str__(self) -> str:
        return _("{earned} of {points} points").format(earned=self.earned, points=self.points)

    def cell(self) -> str:
        """Return the bar and the two numbers, for a column of points."""
        numbers = esc(_("{earned} of {points}").format(earned=self.earned, points=self.points))
        return f'{self.bar()} <span style="white-space:nowrap">{numbers}</span>'

    def bar(self) -> str:
        """Return a bar that says nothing to a screen reader: the points stand beside it as text."""
        share = 100 * self.earned / self.points if self.points else 0
        filled = f'<span style="display:block;height:100%;width:{share:.0f}%;background:#00694c"></span>'
        frame = "display:inline-block;vertical-align:middle;width:4em;height:.8em;border:1px solid currentColor"
        return f'<span aria-hidden="true" style="{frame}">{filled}</span>'


@dataclass(frozen=True, repr=False)
class Report:
    """The state of every exercise: `rows` hold each with what is kept about it."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def solved(self) -> int:
        """Number of exercises that were right at least once."""
        return _Sum.of(self.rows).solved

    def _summary(self) -> str:
        total = _Sum.of(self.rows)
        text = _("{solved} of {count} exercises solved, {earned} of {points} points.")
        return text.format(**vars(total))

    def _by_notebook(self) -> dict[str, list[Row]]:
        return _grouped(self.rows, lambda exercise: exercise.notebook)

    def _by_question(self) -> dict[str, list[Row]]:
        asked = [row for row in self.rows if row[0].review is not None]
        groups = _grouped(sorted(asked, key=lambda row: row[0].review or 0), lambda exercise: exercise.review)
        return {_("question {number}").format(number=number): rows for number, rows in groups.items()}

    def __str__(self) -> str:
        lines = [self._summary()]
        for rows in (self._by_notebook(), self._by_question()):
            lines += [f"{name}  {''.join(map(_sign, group))}  {_Sum.of(group)}" for name, group in rows.items()]
        for exercise, entry in self.rows:
            lines.append(f"{exercise.notebook}  {exercise.id:<24} {badge(_status(entry))[0]} ({entry.tries})")
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        total = _Sum.of(self.rows)
        parts = [f"<p>{total.bar()} {esc(self._summary())}</p>"]
        parts.append(_picture(_("By notebook"), _("notebook"), self._by_notebook()))
        parts.append(_picture(_("By review question"), _("review question"), self._by_question()))
        parts.append(f"<details><summary>{esc(_('Each exercise'))}</summary>{_table(self.rows)}</details>")
        parts += [f"<p>{esc(note)}</p>" for note in self.notes]
        return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def _grouped(rows: Sequence[Row], key: Callable[[Exercise], Hashable]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(key(row[0])), []).append(row)
    return groups


def _picture(caption: str, what: str, groups: dict[str, list[Row]]) -> str:
    """Return a table with one mark for each exercise and a bar of points for each group."""
    heads = "".join(f'<th scope="col">{esc(head)}</th>' for head in (what, _("exercises"), _("points")))
    body = "".join(
        f'<tr><th scope="row">{esc(name)}</th>'
        f'<td style="text-align:left;line-height:1.7">{" ".join(map(_mark, rows))}</td>'
        f'<td style="text-align:left">{_Sum.of(rows).cell()}</td></tr>'
        for name, rows in groups.items()
    )
    table = f"<table><caption>{esc(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return table if groups else ""


def _mark(row: Row) -> str:
    exercise, entry = row
    words = esc(f"{exercise.id}: {_(badge(_status(entry))[0][2:])}")
    seen = f'<span aria-hidden="true">{chip(_status(entry), _sign(row))}</span>'
    return f'<span title="{words}">{seen}<span style="{HIDDEN}">{words}. </span></span>'


_HEADS = (N_("notebook"), N_("exercise"), N_("status"), N_("attempts"), N_("points"), N_("minutes"))


def _table(rows: Sequence[Row]) -> str:
    heads = "".join(f'<th scope="col">{esc(_(head))}</th>' for head in _HEADS)
    body = "".join(_line(exercise, entry) for exercise, entry in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _line(exercise: Exercise, entry: Entry) -> str:
    cells = [esc(exercise.notebook), f"<code>{esc(exercise.id)}</code>", badge(_status(entry))[1]]
    cells += [str(entry.tries), str(exercise.points), str(exercise.minutes)]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
