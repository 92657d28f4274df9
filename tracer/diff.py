"""Diff: how two traces differ, as a sequence of changes, and every way to show it. Matching is `matching`."""

from collections.abc import Iterator, Sequence
from typing import overload

from .matching import Change, compare
from .records import Op
from .render.compare import Comparison, parting, to_html, to_text, totals
from .render.html import whole_page
from .speech import say

__all__ = ["Diff"]


class Diff(Sequence[Change]):
    """The steps in which two runs differ, in order: `len(d)`, `d[0]`, `for change in d`.

    Its length is the number of changes; it is false where the runs are equal, step by step: the same operations on the
    same named shapes, of the same types, with the same memory and arguments. Variables, files and devices may differ.
    """

    def __init__(self, mine: Sequence[Op], theirs: Sequence[Op], names: tuple[str, str] = ("mine", "theirs")) -> None:
        self.names = names
        """What the two runs are called."""
        self._found = Comparison(compare(mine, theirs), (len(mine), len(theirs)), names)

    @overload
    def __getitem__(self, key: int) -> Change: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Change, ...]: ...
    def __getitem__(self, key: int | slice) -> Change | tuple[Change, ...]:
        return self._found.changes[key]

    def __len__(self) -> int:
        return len(self._found.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._found.changes)

    @property
    def first(self) -> Change | None:
        """The step where the runs part; None where they are equal.

        A slight change (the same result, made earlier, later or by a twin: `Change.slight`) only where all are slight.
        """
        return next((change for change in self if not change.slight), self[0] if self else None)

    @property
    def sentence(self) -> str:
        """Where the runs part, in one sentence with the named shapes of both; else that they are equal."""
        return parting(self.first, self.names) if self.first else totals(self._found)

    def to_text(self, fold: bool = True) -> str:
        """Return the differences as text; `fold` shows equal changes of numbered blocks once."""
        return to_text(self._found, self.first, fold)

    def to_html(self, fold: bool = True) -> str:
        """Return the differences as one offline HTML page, the two runs side by side."""
        return whole_page(say("Difference of two traces"), to_html(self._found, self.first, fold))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Diff: {totals(self._found)}>"

    def _repr_html_(self) -> str:
        return to_html(self._found, self.first)
