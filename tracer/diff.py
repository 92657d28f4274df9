"""Two traces beside each other: which steps are added, gone or changed, where they part, as data, text and HTML.

Which step answers to which is found by `alignment`; here it is said what differs between them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import isclose
from typing import Any, Literal, overload

from .alignment import FAMILY, align
from .records import Op, Source, TensorInfo
from .render.html import esc, label_html, page_of, style
from .render.layout import Repeat, Sheet, concrete, fold, header_sizes, lines, memory_word, place, plain
from .speech import N_, say, say_count

__all__ = ["Diff", "Pair", "compare"]

Kind = Literal["equal", "changed", "added", "gone"]
MARKS = {"gone": "-", "added": "+", "changed": "~", "equal": "="}
WHAT = {
    "operation": N_("operation"),
    "results": N_("number of results"),
    "names": N_("names"),
    "sizes": N_("sizes"),
    "dtype": N_("type"),
    "memory": N_("memory"),
    "arguments": N_("arguments"),
    "inputs": N_("inputs"),
}
"""What can differ between two steps that answer to each other, and its word."""


# ---------------------------------------------------------------- as data


@dataclass(frozen=True, slots=True)
class Pair:
    """A step of one trace beside the step of the other that answers to it.

    `kind`: `"changed"` (both are there and differ in `what`, words of `WHAT`), `"gone"` (only `mine`), `"added"` (only
    `theirs`), or `"equal"`. Where a step is gone or added, `held` is the tensor that the other side goes on with at
    this place; None where none can be told.
    `minor`: both sides go on with tensors of the same names: sizes that a symbol explains, another word for the same
    step (`reshape` for `view`), a copy more.
    """

    kind: Kind
    mine: Op | None
    theirs: Op | None
    what: tuple[str, ...] = ()
    held: TensorInfo | None = None
    minor: bool = False

    @property
    def name(self) -> str:
        """The operation's name, `mul -> div` where there are two."""
        names = dict.fromkeys(op.name for op in (self.mine, self.theirs) if op)
        return " -> ".join(names)

    @property
    def labels(self) -> tuple[str, str]:
        """What each side has at this place by name, `("[B, T, H, D]", "[B, H, T, D]")`; "" where it can't be told."""
        held = self.held.label if self.held else ""
        return (_labels(self.mine) if self.mine else held), (_labels(self.theirs) if self.theirs else held)


def _labels(op: Op) -> str:
    """Return the labels of the results, one for all where they are alike."""
    if not op.outputs:
        return ""
    labels = [out.label for out in op.outputs]
    return f"{len(labels)} x {labels[0]}" if len(labels) > 1 and len(set(labels)) == 1 else ", ".join(labels)


@dataclass(frozen=True, eq=False, repr=False)
class Diff(Sequence[Pair]):
    """The steps in which two traces differ, in order: `len(d)`, `d[0]`, `for pair in d`; true if there are any.

    `d.pairs` has the equal steps too, `d.first` is where the traces part. `print(d)` shows it as text, a notebook as
    two columns; `d.to_html()` is a page.
    """

    pairs: tuple[Pair, ...]
    sheets: tuple[Sheet, Sheet]
    titles: tuple[str, str]

    @cached_property
    def _different(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.kind != "equal")

    def __len__(self) -> int:
        return len(self._different)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._different)

    @overload
    def __getitem__(self, key: int) -> Pair: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, key: int | slice) -> Pair | tuple[Pair, ...]:
        return self._different[key]

    @property
    def first(self) -> Pair | None:
        """The first step where the traces part, passing over minor ones if there is any other; None if they are equal.

        Its `labels` say what either has there: `("[B, T, H, D]", "[B, H, T, D]")`.
        """
        return next((pair for pair in self if not pair.minor), self._different[0] if self else None)

    @property
    def sizes(self) -> dict[str, tuple[str, str]]:
        """Symbols whose size is not the same in both: `{"H": ("4", "8")}`; "" where it is not in use."""
        a, b = map(header_sizes, self.sheets)
        return {s: (a.get(s, ""), b.get(s, "")) for s in a | b if a.get(s, "") != b.get(s, "")}

    @property
    def summary(self) -> str:
        """What differs, in few sentences: the counts, the sizes, and where the traces part."""
        return "\n".join(_summary(self))

    def to_text(self) -> str:
        """Return the differing steps as text, by line of code; repeated blocks stand once."""
        return _text(self)

    def to_html(self) -> str:
        """Return one offline page."""
        return page_of(say("Two traces compared"), _fragment(self))

    __str__ = to_text

    def __repr__(self) -> str:
        return f"<Diff: {_counts(self)}>"

    def _repr_html_(self) -> str:
        return _fragment(self)


# ---------------------------------------------------------------- comparing


def compare(mine: Sheet, theirs: Sheet, titles: tuple[str, str]) -> Diff:
    """Return what differs between two traces; `titles` are the names that they are shown under."""
    a, b = _ops(mine), _ops(theirs)
    matches = align(a, b)
    flow = _Flow(a, b)
    together = _reordered(flow, a, b, matches)
    pairs: list[Pair] = []
    for i, j in together:
        pairs.append(_pair(flow, None if i is None else a[i], None if j is None else b[j]))
    return Diff(tuple(pairs), (mine, theirs), titles)


def _ops(sheet: Sheet) -> tuple[Op, ...]:
    """Return the operations, the one that raised among them."""
    return (*sheet.ops, sheet.failed) if sheet.failed else sheet.ops


class _Flow:
    """Which tensor of one run answers to which of the other: results of steps that answer to each other, and tensors
    from outside under one name, else met first at the same place."""

    def __init__(self, mine: Sequence[Op], theirs: Sequence[Op]) -> None:
        self.there: dict[int, int] = {}
        self.here: dict[int, int] = {}
        self.made = [{out.id for op in ops for out in op.outputs} for ops in (mine, theirs)]
        outside = [
            {i.variable: i.id for op in reversed(ops) for i in op.inputs if i.variable and i.id not in made}
            for ops, made in zip((mine, theirs), self.made, strict=True)
        ]
        for name in outside[0].keys() & outside[1].keys():
            self.tie(outside[0][name], outside[1][name])

    def tie(self, mine: int, theirs: int) -> None:
        """Note that two tensors answer to each other; the latest step decides."""
        self.here.pop(self.there.pop(mine, -1), None)
        self.there.pop(self.here.pop(theirs, -1), None)
        self.there[mine], self.here[theirs] = theirs, mine
