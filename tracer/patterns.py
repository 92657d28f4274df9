"""Calls of einops as one step each: the pattern as it is written, and beneath it what it made torch do.

The recorder sees only the operations inside such a call. It notes which of them belong together; here each group gets
an operation of its own, once the run is over.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .calls import module_call
from .records import Log, Ref

__all__ = ["FUNCTIONS", "Group", "gather", "said_by"]

FUNCTIONS = frozenset("rearrange reduce repeat einsum pack unpack".split())
_TENSORS = {"unpack": 2}
"""Function -> how many of its first arguments are no part of the pattern, where that is not one."""


class Group(NamedTuple):
    """Operations that one call of `name` ran: events number `first` to `last`.

    `said`: the pattern and what follows it; None where the source has them.
    """

    name: str
    first: int
    last: int
    said: tuple[str, ...] | None = None


def gather(log: Log, groups: Sequence[Group]) -> None:
    """Put an operation before each group; the group's own become steps inside it."""
    groups = [call for group in groups for call in _calls(group, log.events)]
    starts = {group.first: group for group in groups}
    events: list[tuple[Any, ...]] = []
    moved: dict[int, int] = {}
    """old number of an event -> its new one; -1 - n -> that of the whole call whose first event was number n"""
    for number, event in enumerate(log.events):
        group = starts.get(number)
        if group is not None:
            moved[-1 - number] = len(events)
            events.append(_whole(group, log.events[number : group.last + 1], log.facts))
        moved[number] = len(events)
        events.append(event)
    inside = {n: moved[-1 - g.first] for g in groups for n in range(g.first, g.last + 1)}
    for number, event in enumerate(log.events):
        place, parent = event[5], event[7]
        if number in inside:
            place = place.named(()) if place is not None else None
            parent = inside[number] if parent is None else moved[parent]
        elif parent is not None:
            parent = moved[parent]
        events[moved[number]] = (*event[:5], place, event[6], parent)
    ends = {g.last: moved[-1 - g.first] for g in groups}
    log.caller_names = {ends.get(n, moved[n]): names for n, names in log.caller_names.items()}
    log.work = {moved[n]: work for n, work in log.work.items()}
    log.events[:] = events


def _calls(group: Group, events: list[tuple[Any, ...]]) -> list[Group]:
    """Cut a group where an operation takes nothing from those before it: that is another call on the same line.

    Patterns held in a variable may let one call end before the instruction at which the next one begins.
    """
    if group.said is not None or group.name not in ("rearrange", "reduce", "repeat"):
        return [group]
    calls, first = [], group.first
    made: set[Ref] = set(events[first][3])
    for number in range(group.first + 1, group.last + 1):
        event = events[number]
        if made.isdisjoint(_refs((event[1], tuple(v for _, v in event[2])))):
            calls.append(Group(group.name, first, number - 1))
            place = events[number - 1][5]  # as the last of its call it has the variable after all
            place = place.named(next(iter(place.variants))) if place is not None else None
            events[number - 1] = (*events[number - 1][:5], place, *events[number - 1][6:])
            first, made = number, set()
        made.update(event[3])
    return [*calls, Group(group.name, first, group.last)]


def _whole(group: Group, events: Sequence[tuple[Any, ...]], facts: Sequence[Any]) -> tuple[Any, ...]:
    """Return the event of the call itself; its outputs are what is made and not used inside."""
    used: dict[Ref, None] = {}
    made: dict[Ref, Any] = {}
    for event in events:
        used.update(dict.fromkeys(r for r in _refs((event[1], tuple(v for _, v in event[2])))))
        made.update(zip(event[3], event[4], strict=True))
    ins = tuple(r for r in used if r not in made)
    outs = tuple(r for r in made if r not in used) or tuple(events[-1][3])
    memory = tuple(_memory(facts[r.fact], [facts[i.fact] for i in ins], made[r]) for r in outs)
    place = events[-1][5]
    if place is not None and group.name in ("pack", "unpack"):  # what they return is no tensor alone
        names = next(iter(place.variants))
        place = place.named(names[:1] if group.name == "pack" else names if len(names) == len(outs) else ())
    said = group.said if group.said is not None else _written(group.name, place.literals if place is not None else ())
    return module_call(group.name), (*ins, *said), (), outs, memory, place, events[-1][6], None


def _memory(out: Any, ins: Sequence[Any], inner: Any) -> Any:
    """Return how an output came to its memory, seen from outside the call."""
    if inner is None:
        return None
    if any(out[0] == t[0] for t in ins):
        return inner
    return "view" if any(out[4] == t[4] for t in ins) else "new"


def _written(name: str, literals: Sequence[str]) -> tuple[str, ...]:
    """Return the pattern and what follows it, as the source has them."""
    positional = [text for text in literals if not _keyword(text)]
    start = len(positional) - 1 if name == "einsum" else _TENSORS.get(name, 1)
    return tuple(_unquoted(text) for text in (*positional[start:], *filter(_keyword, literals)))


def _keyword(text: str) -> bool:
    return text.startswith("**") or ("=" in text and text.partition("=")[0].isidentifier())


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) else text


def said_by(module: Any) -> tuple[str, ...]:
    """Return the arguments of an einops layer, from what it keeps."""
    lengths: Mapping[str, int] = getattr(module, "axes_lengths", None) or {}
    kept = [getattr(module, name, None) for name in ("pattern", "reduction")]
    return (*(text for text in kept if isinstance(text, str)), *(f"{k}={v}" for k, v in lengths.items()))


def _refs(value: Any) -> list[Ref]:
    if type(value) is Ref:
        return [value]
    return [r for v in value for r in _refs(v)] if isinstance(value, tuple) else []
