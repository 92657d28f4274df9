"""The source text of the functions that ran, read when a trace is shown: nothing is read while a model runs.

A file may have changed since the run, or be gone (a saved trace, another machine): text that does not hold the lines of
the trace where the trace has them is not shown; the lines that the trace itself knows stand in its place.
"""

import ast
import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .records import Op, Source

__all__ = ["Listing", "listings"]

_MOST_LINES = 400
"""Of a longer function only the lines around those that ran are shown."""


@dataclass(frozen=True)
class Listing:
    """Lines of one file: `(number, text)`, number from 1, in order; `name` is the function's, "" outside of one."""

    file: str
    name: str
    lines: tuple[tuple[int, str], ...]


def listings(ops: Iterable[Op]) -> dict[Source, Listing]:
    """Return, for each line that ran, the listing it stands in: its innermost function, else what surrounds it."""
    files: dict[str, dict[int, Source]] = {}
    for op in ops:
        if op.source is not None:
            files.setdefault(op.source.file, {})[op.source.line] = op.source
    found: dict[Source, Listing] = {}
    for file, sources in files.items():
        ran = [sources[line] for line in sorted(sources)]
        found |= _of_file(file, ran) or dict.fromkeys(ran, _known(file, ran))
    return found


def _known(file: str, ran: Sequence[Source]) -> Listing:
    return Listing(file, "", tuple((source.line, source.code) for source in ran))


def _of_file(file: str, ran: Sequence[Source]) -> dict[Source, Listing]:
    """Return the listings of one file; {} where its text is not the one that ran."""
    text = linecache.getlines(file)
    if any(source.line > len(text) or text[source.line - 1].strip() != source.code.strip() for source in ran):
        return {}
    spans = list(_functions(text))
    groups: dict[tuple[int, int, str], list[Source]] = {}
    for source in ran:
        inside = [span for span in spans if span[0] <= source.line <= span[1]]
        groups.setdefault(max(inside, default=(1, len(text), "")), []).append(source)
    return {
        source: listing
        for (first, last, name), group in groups.items()
        for listing in [_cut(file, name, text, first, last, group)]
        for source in group
    }


def _functions(text: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (first line, last line, name) of each function; none where the text is no Python (a cell with magics)."""
    try:
        tree = ast.parse("".join(text))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield first, node.end_lineno, node.name


def _cut(file: str, name: str, text: Sequence[str], first: int, last: int, ran: Sequence[Source]) -> Listing:
    """Return the lines of a span without their common indent; of a long one, what ran and what stands around it."""
    kept = set(range(first, last + 1))
    if len(kept) > _MOST_LINES:
        kept &= {n for source in ran for n in range(source.line - 5, source.line + 6)}
    lines = [(n, text[n - 1].rstrip().expandtabs(4)) for n in sorted(kept)]
    indent = min((len(line) - len(line.lstrip()) for _, line in lines if line), default=0)
    return Listing(file, name, tuple((n, line[indent:]) for n, line in lines))
