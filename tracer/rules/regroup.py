"""How the axes of `view` and `reshape` follow from the old axes and the new sizes.

Reading a tensor row by row, old and new axes cut the same sequence of numbers. Where the cuts agree, an axis is kept,
split (C -> H, D) or merged (B, T -> (B T)). Where they do not, the new axis takes entries of several old ones.
"""

import ast
from itertools import product as every

from ..naming import DATA, ONE, POSITIONS, Sum, Sym, Term, number
from .core import UNIT, Axes, Axis, Step

__all__ = ["merged", "regroup", "written_sizes"]

WIDTHS = frozenset({"C", "D", "M", "V", "D_k", "D_v"})


def regroup(step: Step, old: Axes, new: tuple[int, ...], written: list[str] | None, *, constant: bool) -> Axes:
    """Return the axes of a tensor of axes `old` seen with the sizes `new`; warns of cuts across axes."""
    if any(n == 0 for n in new):
        return [old[i] if i < len(old) and old[i].size == n else Axis(step.space.fresh(n)) for i, n in enumerate(new)]
    out: list[Axis | None] = [None] * len(new)
    slots = [i for i, n in enumerate(new) if n != 1]
    big = [a for a in old if a.size != 1]
    at = 0
    members: dict[int, Axes] = {}
    for olds, count in _segments(big, [new[i] for i in slots]):
        where = slots[at : at + count]
        at += count
        if len(where) == 1:
            members[where[0]] = olds
        axes = _segment(step, olds, [new[i] for i in where], [written[i] for i in where] if written else None)
        for i, axis in zip(where, axes, strict=True):
            out[i] = axis
    _place_ones(step, old, new, out, members, written)
    if not constant and len(new) > 1:
        for i, group in members.items():
            if len(group) > 1:
                _check_merge(step, group, out[i])
    return [a or UNIT for a in out]


def _segments(old: Axes, new: list[int]) -> list[tuple[Axes, int]]:
    """Cut both into the shortest stretches that hold the same number of entries."""
    out: list[tuple[Axes, int]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        have, want = old[i].size, new[j]
        i0, j0 = i, j
        i, j = i + 1, j + 1
        while have != want and (i < len(old) or j < len(new)):
            if have < want and i < len(old):
                have, i = have * old[i].size, i + 1
            elif j < len(new):
                want, j = want * new[j], j + 1
            else:
                break
        out.append((old[i0:i], j - j0))
    return out


def _segment(step: Step, olds: Axes, new: list[int], written: list[str] | None) -> Axes:
    space = step.space
    if len(new) == 1:
        return [olds[0]] if len(olds) == 1 else [merged(step, olds)]
    terms = [space.walk(a.term) for a in olds]
    for spell in (_raw, space.expand):
        exact = _exact(step, [spell(t) for t in terms], new, written)
        if exact is not None:
            return [Axis(t) for t in exact]
    return _pieces(step, terms, new, written)


def merged(step: Step, axes: Axes) -> Axis:
    """Return the product of axes, in order; it keeps the marks of an axis that stands alone."""
    real = [a for a in axes if a.term.atoms or a.size != 1]
    return real[0] if len(real) == 1 else Axis(step.space.product(a.term for a in real))


def _raw(term: Term) -> Term:
    return term


def _exact(step: Step, terms: list[Term], new: list[int], written: list[str] | None) -> list[Term] | None:
    """Group whole atoms into the new sizes; None where a cut falls inside an atom or two readings differ."""
    found: list[list[Term]] = []
    for units in every(*(_units(t) for t in terms)):
        groups = _group([u for unit in units for u in unit], new)
        if groups is not None:
            found.append([step.space.product(g) for g in groups])
    if len(found) > 1 and written:
        found = [f for f in found if all((not t.atoms) == w.isdigit() for t, w in zip(f, written, strict=True))] or found
    if not found:
        return None
    if all(all(map(step.space.same, f, found[0])) for f in found):
        return found[0]
    return [t if all(step.space.same(f[i], t) for f in found) else step.space.fresh(t.size) for i, t in enumerate(found[0])]


def _units(term: Term) -> list[list[Term]]:
    """Return the ways to read one axis as a row of atoms: 3C is (3 C); 3(H D) is (3 H D), (H 3 D) …"""
    if term.den != 1 or not term.atoms:
        return [[term]]
    atoms = [Term(1, 1, (a,)) for a in term.atoms if a.size != 1]
    if term.num == 1:
        return [atoms]
    if len(atoms) == 1 and isinstance(term.atoms[0], Sum):
        return [[term]]
    return [[*atoms[:i], number(term.num), *atoms[i:]] for i in range(len(atoms))]


def _group(units: list[Term], new: list[int]) -> list[list[Term]] | None:
    groups: list[list[Term]] = []
    i = 0
    for n in new:
        group: list[Term] = []
        size = 1
        while size < n and i < len(units):
            size *= units[i].size
            group.append(units[i])
            i += 1
        if size != n:
            return None
        groups.append(group)
    return groups if i == len(units) else None


def _pieces(step: Step, terms: list[Term], new: list[int], written: list[str] | None) -> Axes:
    """Cut atoms where the new sizes ask for it; a new axis with parts of several old ones is a cut across them."""
    space = step.space
    units = [(t, u) for t in terms for u in _units(t)[0]]
    rows: list[list[tuple[int, int]]] = []  # for each new axis: (unit, size of the piece taken)
    i, left = 0, units[0][1].size
    crossed: set[int] = set()
    for n in new:
        row: list[tuple[int, int]] = []
        while n > 1 and i < len(units):
            take = left if n % left == 0 else (n if left % n == 0 else 0)
            if take == 0:
                return _crossed(step, [t for t, _ in units], terms, new)
            row.append((i, take))
            n, left = n // take, left // take
            if left == 1:
                i += 1
                left = units[i][1].size if i < len(units) else 1
        if len(row) > 1 and not _leading_data(step, units, row):
            crossed |= {u for u, take in row if take != units[u][1].size}
            if crossed:
                return _crossed(step, [t for t, _ in units], terms, new)
        rows.append(row)
    pieces: dict[int, list[tuple[int, int]]] = {}
    for k, row in enumerate(rows):
        for u, take in row:
            pieces.setdefault(u, []).append((k, take))
    parts: dict[tuple[int, int], Term] = {}
    for u, cut in pieces.items():
        for (k, _), t in zip(cut, _cut_unit(step, units[u][1], cut, written), strict=True):
            parts[u, k] = t
    return [Axis(space.product(parts[u, k] for u, _ in row)) for k, row in enumerate(rows)]


def _leading_data(step: Step, units: list[tuple[Term, Term]], row: list[tuple[int, int]]) -> bool:
    """`[B, T] -> [(B T/w), w]`: whole data axes with the leading part of the last one are no cut across."""
    whole = all(take == units[u][1].size for u, take in row[:-1])
    return whole and all(step.space.is_data(units[u][1]) for u, _ in row)


def _cut_unit(step: Step, unit: Term, cut: list[tuple[int, int]], written: list[str] | None) -> list[Term]:
    if len(cut) == 1:
        return [unit]
    space = step.space
    digits = [bool(written and written[k].isdigit()) for k, _ in cut]
    if digits.count(False) == 1 and not space.is_data(unit):
        rest = next(take for (_, take), d in zip(cut, digits, strict=True) if not d)
        part = space.scaled(unit, 1, unit.size // rest)
        return [number(take) if d else part for (_, take), d in zip(cut, digits, strict=True)]
    var = space.walk(unit).var
    made = [space.fresh(take, feature=bool(var and var.feature)) for _, take in cut]
    space.split(unit, made)
    return made


def _crossed(step: Step, owners: list[Term], terms: list[Term], new: list[int]) -> Axes:
    space = step.space
    if len(terms) > 1 or len({id(t) for t in owners}) > 1 or len(terms[0].atoms) > 1:

        def text() -> str:
            names = ", ".join(f"{_shown(step, t)}" for t in terms)
            sizes = ", ".join(map(str, new))
            return (
                f"{step.name} cuts across axes: [{names}] is read as [{sizes}], so the new axes mix entries of "
                "different old ones; split the axis first, then transpose"
            )

        step.warn(text)
    return [Axis(space.fresh(n)) for n in new]


def _shown(step: Step, term: Term) -> str:
    name = step.space.name(term)
    return f"?={term.size}" if name == "?" else f"{name}={term.size}"


def _check_merge(step: Step, group: Axes, result: Axis | None) -> None:
    """Warn where a position axis and a width are merged into one axis: heads joined without the transpose back."""

    def text() -> str | None:
        atoms = [a for g in group for a in step.space.walk(g.term).atoms]
        names = [a.name for a in atoms if isinstance(a, Sym)]
        if not (POSITIONS & set(names[:-1]) and names[-1] in WIDTHS):
            return None
        shown = " ".join(step.space.name(g.term) for g in group)
        return (
            f"{step.name} merges a data axis with a feature axis: ({shown}) becomes one axis of {_size(group)}; "
            "to join heads, transpose them back next to D first"
        )

    step.warn(text)


def _size(group: Axes) -> int:
    n = 1
    for g in group:
        n *= g.size
    return n


def _place_ones(
    step: Step,
    old: Axes,
    new: tuple[int, ...],
    out: list[Axis | None],
    members: dict[int, Axes],
    written: list[str] | None,
) -> None:
    """Give the axes of size 1 their names: B of size 1 stays B, H of size 1 comes out of C or joins D again."""
    before = 0  # how many big old axes stand before this one
    gaps: dict[int, Axes] = {}
    for a in old:
        if a.size != 1:
            before += 1
        elif a.term.atoms:
            gaps.setdefault(before, []).append(a)
    starts = _starts(old, new, out, members)
    for gap, ones in gaps.items():
        free = [i for i in starts.get(gap, []) if new[i] == 1 and out[i] is None]
        for a in ones:
            if free and len(free) >= len(ones):
                out[free.pop(0)] = a
            else:
                _absorb(step, a, gap, old, new, out, members, written)
    for i, n in enumerate(new):
        if n == 1 and out[i] is None:
            out[i] = _unit_out_of_split(step, i, new, out, written)


def _starts(old: Axes, new: tuple[int, ...], out: list[Axis | None], members: dict[int, Axes]) -> dict[int, list[int]]:
    """For each gap between big old axes, the new axes of size 1 that stand in the same gap."""
    found: dict[int, list[int]] = {}
    total, done, count = 1, 1, 0
    bigs = [a.size for a in old if a.size != 1]
    for i, n in enumerate(new):
        total *= n
        while count < len(bigs) and done < total:
            done *= bigs[count]
            count += 1
        if n == 1 and done == total:
            found.setdefault(count, []).append(i)
    return found


def _absorb(
    step: Step,
    one: Axis,
    gap: int,
    old: Axes,
    new: tuple[int, ...],
    out: list[Axis | None],
    members: dict[int, Axes],
    written: list[str] | None,
) -> None:
    """An old axis of size 1 that has no place of its own was merged into a neighbour, or dropped."""
    count = 0
    neighbours: list[tuple[int, bool]] = []  # (new axis, the one comes before its members)
    for i in sorted(members):
        size = len(members[i])
        if count <= gap <= count + size:
            neighbours.append((i, gap == count))
        count += size
    for i, first in neighbours:
        group = [one, *members[i]] if first else [*members[i], one]
        inside = _insert(old, one, members[i])
        product = merged(step, inside or group)
        name = step.space.name(product.term)
        joins = " " not in name and "?" not in name and len(merged(step, members[i]).term.atoms) < len(product.term.atoms)
        asked = written is not None and ("*" in written[i] or written[i] == "-1")
        if asked or joins:
            members[i] = inside or group
            out[i] = product
            return


def _insert(old: Axes, one: Axis, group: Axes) -> Axes | None:
    """Return the group with the size-1 axis where it stood among the old axes."""
    order = [a for a in old if a is one or any(a is g for g in group)]
    return order if len(order) == len(group) + 1 else None


def _unit_out_of_split(
    step: Step, i: int, new: tuple[int, ...], out: list[Axis | None], written: list[str] | None
) -> Axis:
    """`view(B, T, H, D)` at H = 1 splits C; `view(B, T, 1, C)` adds an axis: only the written sizes tell."""
    space = step.space
    if written is not None and written[i].isdigit():
        return UNIT
    for j, first in ((i + 1, True), (i - 1, False)):
        axis = out[j] if 0 <= j < len(new) else None
        if axis is None:
            continue
        whole = space.walk(axis.term)
        atoms = space.expand(whole).atoms
        if whole.num == whole.den == 1 and len(whole.atoms) == 1 and len(atoms) > 1:
            unit, rest = (atoms[0], atoms[1:]) if first else (atoms[-1], atoms[:-1])
            if unit.size == 1 and isinstance(unit, Sym) and unit.name not in DATA:
                if written is None:
                    out[j] = Axis(space.fresh(axis.size))
                    return Axis(space.fresh(1))
                out[j] = Axis(Term(1, 1, rest), axis.origin, axis.soft)
                return Axis(Term(1, 1, (unit,)))
    return Axis(ONE)


def written_sizes(literals: tuple[str, ...], rank: int) -> list[str] | None:
    """Return the text of each size in `view(B, T, 1, C)`, `view((B, T, C))` or `reshape(x, (B, T))`; None if unclear."""
    try:
        call = ast.parse(f"f({', '.join(literals)})", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    assert isinstance(call, ast.Call)
    texts: list[str] = []
    for arg in [*call.args, *(k.value for k in call.keywords)]:
        nodes = arg.elts if isinstance(arg, ast.Tuple | ast.List) else [arg]
        if any(isinstance(n, ast.Starred) for n in nodes):
            return None
        texts += [ast.unparse(n) for n in nodes]
    return texts[-rank:] if rank and len(texts) >= rank else None
