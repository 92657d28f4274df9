"""The frame of every note: where it failed, the named shapes, and the first kind of mistake that knows why.

A kind is a function `Case -> Finding | None`, registered by the name of the operation under `@kind(...)`. It may take
for granted what it needs (so many tensors, so many axes): where that is not so, the error it makes counts as "not this
kind". So does a repair that cannot be known: it is left out, since a wrong one is worse than none.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..records import Op, TensorInfo
from ..render.layout import as_written, concrete, place, plain
from ..speech import N_, say
from .words import code_of, dtype_of, who

__all__ = ["ROWS", "Case", "Finding", "explain", "kind", "known_names", "mistakes", "of_all"]


class Finding(NamedTuple):
    """What is wrong, and the repair if one is known."""

    what: str
    repair: str = ""


class Case(NamedTuple):
    """A failed operation, and what torch said about it."""

    op: Op
    error: str
    message: str
    sizes: Mapping[str, int]

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that the operation was given."""
        return self.op.inputs

    @property
    def line(self) -> str:
        """The line of code, or ""."""
        return self.op.source.code if self.op.source else ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The whole numbers among the positional arguments, a tuple of them opened: `view((2, 3))` as `view(2, 3)`."""
        flat = [n for a in self.op.args for n in (a if isinstance(a, tuple) else (a,))]
        return tuple(n for n in flat if type(n) is int)

    def dim(self, at: int, default: int) -> int:
        """Return `dim=`, or the whole number at a place among the positional arguments."""
        for a in self.op.args:
            if isinstance(a, str) and (found := re.fullmatch(r"dim=(-?\d+)", a)):
                return int(found.group(1))
        value = self.op.args[at] if at < len(self.op.args) else default
        return value if type(value) is int else default

    def says(self, pattern: str) -> "re.Match[str] | None":
        """Look for a pattern in torch's own message."""
        return re.search(pattern, self.message)

    def told(self, pattern: str) -> "re.Match[str]":
        """Return what a pattern finds in torch's message; without it, this is another kind of mistake (LookupError)."""
        if said := self.says(pattern):
            return said
        raise LookupError(pattern)

    def found(
        self, what: str, repair: str = "", *, of: TensorInfo | None = None, called: str = N_("the tensor"),
        also: TensorInfo | None = None, then: str = "", **values: object,
    ) -> Finding:  # fmt: skip
        """Return what is wrong and the repair; both are sentences for the translator, as those of `say`.

        In both, `{x}`, `{label}`, `{dtype}`, `{n}` stand for one tensor, its shape by name, its type and its number of
        axes, `{c}` for its variable as it stands in code. It is the first one, or `of`; `called` is how it is called
        where it has no variable. `{y}`, `{y_label}`, `{y_dtype}`, `{d}` are the same of the second, or of `also`;
        `{name}` is the operation. `then` is a repair that is a sentence already.
        """
        x, y, *_ = (*self.inputs[:2], None, None)
        fields: dict[str, object] = {"name": self.op.name.rstrip("_")}
        if x := of or x:
            fields |= {"x": who(x, called), "c": code_of(x), "label": x.label, "dtype": dtype_of(x), "n": len(x.shape)}
        if y := also or y:
            fields |= {"y": who(y, N_("the other")), "d": code_of(y), "y_label": y.label, "y_dtype": dtype_of(y)}
        fields |= values
        return Finding(say(what, **fields), then or (say(repair, **fields) if repair else ""))


Kind = Callable[[Case], Finding | None]
_BY_NAME: dict[str, list[Kind]] = {}
_FIRST: list[Kind] = []
_LAST: list[Kind] = []
ROWS: list[tuple[str, str, str]] = []
"""All rows of `mistakes`."""


def known_names() -> tuple[str, ...]:
    """Return the names of the operations that have advice of their own."""
    return tuple(sorted(_BY_NAME))


def kind(*names: str) -> Callable[[Kind], Kind]:
    """Register advice for the operations of these names; the first that finds something has the word."""

    def register(function: Kind) -> Kind:
        for name in names:
            _BY_NAME.setdefault(name, []).append(function)
        return function

    return register


def of_all(first: bool) -> Callable[[Kind], Kind]:
    """Register advice for every operation, to be asked before or after those with a name of their own."""

    def register(function: Kind) -> Kind:
        (_FIRST if first else _LAST).append(function)
        return function

    return register


def mistakes(names: str, *rows: tuple[str, str, str]) -> None:
    """Register mistakes that torch's message tells apart by itself, for operations named in one text ("" for all).

    A row has a pattern of the message, what is wrong, and the repair or "": sentences as in `Case.found`, in which
    `{a}` and `{b}` stand for the groups of the pattern.
    """

    def look(case: Case) -> Finding | None:
        for pattern, what, repair in rows:
            if said := case.says(pattern):
                groups: dict[str, Any] = dict(zip("ab", said.groups(), strict=False))
                return case.found(what, repair, **groups)
        return None

    ROWS.extend(rows)
    (kind(*names.split()) if names else of_all(first=True))(look)


def explain(op: Op, error: str, message: str, sizes: Mapping[str, int]) -> str:
    """Return the note for a failed operation: where, the named shapes, what is wrong, the repair if known.

    `error` is the exception's type name, `message` its text, `sizes` what is known of the symbols.
    """
    op = replace(op, inputs=tuple(as_written(info, op) for info in op.inputs))
    found = _find(Case(op, error, message, sizes))
    where = ", ".join(part for part in (op.module, place(op.source)) if part)
    lines = [say("Shape Tracer: {name} failed in {where}", name=op.name, where=where)]
    lines += [f"    {op.source.code}"] if op.source and op.source.code else []
    lines += [f"      {_described(info)}" for info in op.inputs]
    if found:
        lines.append(say("Why: {what}", what=found.what))
    if found and found.repair:
        lines.append(say("Repair: {repair}", repair=found.repair))
    return "\n".join(map(plain, lines))


def _find(case: Case) -> Finding | None:
    for look in _kinds_for(case.op.name):
        try:
            found = look(case)
        except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError):
            continue  # not this kind; and the user's own exception must leave, whatever happens here
        if found:
            return found
    return None


def _kinds_for(name: str) -> Iterable[Kind]:
    own = _BY_NAME.get(name) or _BY_NAME.get(name.rstrip("_"), [])
    return (*_FIRST, *own, *_LAST)


def _described(info: TensorInfo) -> str:
    name = f"{info.variable} " if info.variable else ""
    return f"{name}{info.label}  {concrete(info)}  {dtype_of(info)}"
