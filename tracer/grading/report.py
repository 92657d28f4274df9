"""The results as a teacher opens them: a table for a spreadsheet, a page of the class, a page for each student.

Names and texts come from students: in the table nothing begins like a formula, in the pages all is escaped.
"""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from ..lessons.feedback import Feedback
from ..render.html import esc, whole_page
from ..render.layout import plain
from ..speech import _
from .marking import Mark
from .state import Row, replace_file

__all__ = ["cell", "class_page", "feedback_names", "student_page", "table", "write_all"]

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001
_STYLE = (
    "<style>main{font-family:sans-serif;max-width:60em;margin:1em auto;padding:0 1em}table{border-collapse:collapse}"
    "td,th{border:1px solid #8888;padding:.3em .6em;text-align:left}</style>"
)


def cell(text: str) -> str:
    """Return a text for a spreadsheet: on one line, and never a formula.

    Example:
        >>> print(cell("=1+1"))
        '=1+1
    """
    line = " ".join(plain(text).split())
    return "'" + line if text.startswith(_FORMULA) or line.startswith(_FORMULA) else line


def _number(mark: Mark) -> str:
    """Return a mark for the table: points where something was judged, else why not."""
    return str(mark.points) if mark.status in {"right", "wrong", "error"} else mark.status


def table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the CSV: a row for each file, a column for each exercise; points are empty where nothing could be run."""
    exercises = list(dict.fromkeys(mark.exercise for row in rows for mark in row.marks))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["student", "file", "status", "points", "out of", *exercises, "detail", "feedback"])
    for row, name in zip(rows, names, strict=True):
        marks = {mark.exercise: _number(mark) for mark in row.marks}
        points = ["" if value is None else value for value in (row.points, row.out_of)]
        words = [cell(row.student), cell(row.file), row.status]
        writer.writerow([*words, *points, *(marks.get(id, "") for id in exercises), cell(row.detail), cell(name)])
    return out.getvalue()


def feedback_names(rows: Sequence[Row]) -> list[str]:
    """Return a file name for each row's page: a number, and the student's name as far as file systems take it."""
    safe = [re.sub(r"[^\w-]+", "_", row.student).strip("_")[:40] for row in rows]
    return [f"{number:03}_{name or 'student'}.html" for number, name in enumerate(safe, 1)]


def _page(title: str, parts: Sequence[str]) -> str:
    return whole_page(title, _STYLE + f"<h1>{esc(title)}</h1>" + "".join(parts))


def _sum(row: Row) -> str:
    if row.points is None:
        return esc(row.status)
    return esc(_("{points} of {total} points").format(points=row.points, total=row.out_of))


def _lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))


def student_page(row: Row) -> str:
    """Return one student's page: the sum, what each exercise came to and why, cells that failed."""
    parts = [f"<p>{esc(row.file)} · <b>{_sum(row)}</b> · {esc(row.status)}</p>"]
    if row.detail:
        parts.append(f"<p>{esc(row.detail)}</p>")
    for mark in row.marks:
        parts.append(f"<h2>{esc(mark.exercise)} · {mark.points}/{mark.out_of}</h2>")
        status = "not attempted" if mark.status == "missing" or mark.status == "lost" else mark.status  # noqa: PLR1714
        parts.append(Feedback(mark.exercise, status, _lines(mark.message), mark.mistake)._repr_html_())
    if row.failed:
        items = "".join(f"<li><code>{esc(text)}</code></li>" for text in row.failed)
        parts.append(f"<h2>{esc(_('Cells that stopped with an error'))}</h2><ul>{items}</ul>")
    return _page(row.student, parts)


def class_page(rows: Sequence[Row], names: Sequence[str], folder: str) -> str:
    """Return the page of the class, with a link to each student's."""
    heads = (_("student"), _("file"), _("status"), _("points"))
    lines = ["<tr>" + "".join(f"<th scope='col'>{esc(head)}</th>" for head in heads) + "</tr>"]
    for row, name in zip(rows, names, strict=True):
        link = f'<a href="{esc(folder)}/{esc(name)}">{esc(row.student)}</a>'
        cells = (link, esc(row.file), esc(row.status), _sum(row))
        lines.append("<tr>" + "".join(f"<td>{one}</td>" for one in cells) + "</tr>")
    return _page(_("Grades"), [f"<table>{''.join(lines)}</table>"])


def write_all(rows: Sequence[Row], out: Path) -> Path:
    """Write the table to `out` and the pages beside it, each in one step; return the page of the class."""
    folder = out.with_name(out.stem + "_feedback")
    folder.mkdir(exist_ok=True)
    names = feedback_names(rows)
    for old in folder.glob("[0-9][0-9][0-9]*_*.html"):
        if old.name not in names:
            old.unlink()
    for row, name in zip(rows, names, strict=True):
        replace_file(folder / name, student_page(row))
    page = out.with_suffix(".html")
    replace_file(page, class_page(rows, names, folder.name))
    replace_file(out, table(rows, [f"{folder.name}/{name}" for name in names]), "utf-8-sig")
    return page
