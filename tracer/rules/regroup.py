"""How the axes of `view` and `reshape` follow from the old axes and the new sizes.

Reading a tensor row by row, old and new axes cut the same sequence of numbers. Where the cuts agree, an axis is kept,
split (C -> H, D) or merged (B, T -> (B T)). Where they do not, the new axis takes entries of several old ones.

Steps: old axes become units (atoms with their place); stretches of old and new axes that hold equally many entries are
matched one by one; units of size 1, which no size can place, go where the code's own text or their kind puts them.
"""

import ast
import re
from functools import cache
from itertools import chain, pairwise
from itertools import product as every
from math import prod

from ..naming import POSITIONS, Space, Sum, Sym, Term, Var, number
from ..speech import say
from .core import UNIT, Axes, Axis, Step

__all__ = ["counted", "entries", "merged", "regroup", "spelled", "written_sizes"]

Written = list[str | None]
"""The text of each new size in the user's code, None where it is not known."""
Unit = tuple[tuple[int, int], Term]
"""Part of an old axis, with its place: (old axis, number of the part)."""
WIDTHS = frozenset({"C", "D", "M", "V", "D_k", "D_v"})


def regroup(step: Step, old: Axes, new: tuple[int, ...], written: Written, *, constant: bool) -> Axes:
    """Return the axes of a tensor of axes `old` seen with the sizes `new`; warns of cuts across axes."""
    if 0 in new:
        return list(old) if tuple(a.size for a in old) == new else step.fresh(new)
    groups: dict[int, list[Unit]] = {}
    ones = [u for i, a in enumerate(old) if a.size == 1 for u in _units(i, step.space.walk(a.term))[0] if u[1].atoms]
    for olds, where in _stretches(old, new):
        terms = [(i, step.space.walk(old[i].term)) for i in olds]
        found, small = _stretch(step, terms, [new[j] for j in where], [written[j] for j in where])
        whole = all(t.num == 1 for _, t in terms) and len(where) > 1
        odd = any(n == 1 and w is not None and not w.isdigit() for n, w in zip(new, written, strict=True))
        if any(_contradicts(step.space, g, written[j], whole, odd) for g, j in zip(found, where, strict=True)):
            found = [[((olds[0], k), step.space.fresh(new[j]))] for k, j in enumerate(where)]
        groups.update(zip(where, found, strict=True))
        ones += small
    big = sorted(groups)
    hiding = {i for i, a in enumerate(old) if _hides_one(step.space, step.space.walk(a.term))}
    _place_ones(step, sorted(ones, key=lambda u: u[0]), new, groups, written, hiding)
    for j in [j for j, n in enumerate(new) if n == 1 and _divides(written[j] or "")]:  # the other part is hidden
        for k in {j, max((k for k in big if k < j), default=j), min((k for k in big if k > j), default=j)}:
            groups[k] = [((k, 0), _opened(step.space, groups.get(k, []), new[k]))]
    some = [j for j, text in enumerate(written) if text != "1"]
    left = any(n == 1 and j not in groups and written[j] != "1" for j, n in enumerate(new))
    for j in big:
        if left and written[j] == "-1" and len({bool(t.atoms) for _, t in groups[j]}) == 2:
            groups[j] = [(groups[j][0][0], _opened(step.space, groups[j], new[j]))]  # 2T is twice T, in either order
        near = (max((k for k in some if k < j), default=-1), min((k for k in some if k > j), default=-1))
        beside = [k for k in near if k in groups and (written[k] == "-1" or _divides(written[k] or ""))]
        named = written[j] == "2" and any(t.atoms for _, t in groups[j])  # `view(-1, 2)` of [T, D] at D = 2: no D
        if beside and (named or ((written[j] or "").isdigit() and _is_width(step, old, groups[j]))):
            for k in (j, *beside):
                groups[k] = [(groups[k][0][0], _opened(step.space, groups[k], new[k]))]
    for i in hiding:
        _hide(step, i, groups, new, written)
    for j in (
        _belied(step.space, new, groups, written)
        | _unclear(step.space, new, groups, written, hiding)
        | _numbered(step.space, new, groups, written)
    ):
        groups[j] = [(groups[j][0][0], _opened(step.space, groups[j], new[j]))]
    out = [_axis(step, old, groups[j]) if j in groups else None for j in range(len(new))]
    for j in range(len(new)):
        if out[j] is None:
            out[j] = _new_unit(step, j, out, written)
    if not constant and len(new) > 1:
        for group in groups.values():
            _check_merge(step, [t for _, t in group])
    return [a or UNIT for a in out]


def _opened(space: Space, group: list[Unit], size: int) -> Term:
    """Return an axis with no name in place of a group: still a feature where every unit of several entries is one."""
    real = [t for _, t in group if t.size > 1]
    return space.fresh(size, feature=size > 1 and bool(real) and all(map(space.is_feature, real)))


def _is_width(step: Step, old: Axes, group: list[Unit]) -> bool:
    """Tell whether a group is all of one old axis, which is no data."""
    term = step.space.product(t for _, t in group)
    (place, *rest) = {p[0] for p, _ in group}
    return not rest and not step.space.is_data(term) and bool(term.atoms) and term.size == old[place].size


def _belied(space: Space, new: tuple[int, ...], groups: dict[int, list[Unit]], written: Written) -> set[int]:
    """Return what is in doubt where a -1 may hold any of the 1s and the code has another symbol for a size: H for T."""
    if "-1" not in written or 1 not in new:
        return set()
    symbols = space.sizes.keys() | space.seen.keys()
    names = {j: space.name(space.product(t for _, t in group)) for j, group in groups.items()}
    other = {j for j, name in names.items() if written[j] in symbols and name not in (written[j], "?")}
    return other and other | {j for j in groups if new[j] == 1}


def _numbered(space: Space, new: tuple[int, ...], groups: dict[int, list[Unit]], written: Written) -> set[int]:
    """Return what is in doubt where the code has a number and the axis none, or the other way round.

    `2 * M` is no (D M), `H * 2` is no C, T is no bare 2, and what `T * D // 2` leaves is no D, though D or T may be 2.
    """
    found: set[int] = set()
    for j, group in groups.items():
        text, terms = written[j] or "", [space.walk(t) for _, t in group]
        numbers = {int(f) for f in text.split("*") if f.strip().isdigit()} if "*" in text else set()
        parts = (space.halves(terms[0]) or ()) if len(terms) == 1 else terms
        missing = numbers - {t.num if t.atoms else t.size for t in terms}
        divisors = {int(d) for d in re.findall(r"/\s*(\d+)", text)}
        found |= {x for k, w in enumerate(written) if w == "-1" for x in (j, k) if new[k] in divisors} & groups.keys()
        if missing & {p.size for p in parts} or (missing and len(terms) > 1):
            found |= {j, *(k for k in groups if written[k] == "-1")}
        elif text in space.sizes.keys() | space.seen.keys() and not any(t.atoms for t in terms) and terms[0].size > 1:
            found |= {j, *(k for k in groups if written[k] == "-1")}
    return found


def _unclear(
    space: Space, new: tuple[int, ...], groups: dict[int, list[Unit]], written: Written, hiding: set[int]
) -> set[int]:
    """Return what may be otherwise: a size written as a product, a part or -1, beside units of 1 that it may hold."""
    some = [j for j, text in enumerate(written) if text != "1"]
    exact = {j: _counts(space, written[j] or "", groups.get(j, [])) for j in some}
    holding = {j for j in some if any(place[0] in hiding for place, _ in groups.get(j, []))}
    found: set[int] = set()
    for before, j, after in zip([-1, *some], some, [*some[1:], -1], strict=False):
        text = written[j] or ""
        if text != "-1" and not set("*/+") & set(text):
            continue
        beside = [k for k in (before, after) if k >= 0]
        hidden = [k for k in (j, *beside) if k in holding]
        ones = [k for k in (j, *beside) if any(t.size == 1 for _, t in groups.get(k, []))]
        empty = [k for k in (j, *beside) if new[k] == 1 and k not in groups]
        clear = exact[j] if text != "-1" else all(exact[k] for k in beside)
        if (hidden and hidden != [j]) or empty or (ones and not clear):
            found |= {j, *hidden, *ones, *empty}
    for near, j in chain(pairwise(some), pairwise(some[::-1])):
        if near in found and new[near] == 1 and j in holding:
            found.add(j)  # that 1 may be the one which it holds
    return found & groups.keys()


def _counts(space: Space, text: str, group: list[Unit]) -> bool:
    """Tell whether a size is written as a name, or as a product of as many names as there are units.

    (G H/G) counts as two where the code writes G, `T * H` at T = 1 would else be both; `T * n_head` tells neither.
    """
    factors = [f.strip() for f in text.split("*")]
    wholes = space.contract(space.product(t for _, t in group))
    if len(wholes) < sum(len(t.atoms) for _, t in group) and "H" in wholes:
        if not {f.rpartition(".")[2] for f in factors} & {"G", "H/G"}:
            return len(factors) == 1
    count = sum(bool(t.atoms) or str(t.size) in factors for _, t in group)
    return text != "-1" and not set("/+") & set(text) and (len(factors) == 1 or len(factors) == count)


def _hide(step: Step, i: int, groups: dict[int, list[Unit]], new: tuple[int, ...], written: Written) -> None:
    """Old axis `i` holds a unit of size 1, as C does where H is 1; a product that is written before D may have it."""
    mine = [j for j, g in sorted(groups.items()) if any(place[0] == i for place, _ in g)]
    near = max((k for k in range(mine[0]) if written[k] != "1"), default=-1) if mine else -1
    before, stars = groups.get(near, []), (written[near] or "").count("*") if near >= 0 else 0
    led = bool(before) and (len(before) > 1 or stars > 0) and bool(groups[mine[0]][0][1].atoms)  # 3C begins with 3
    if led or any("*" in (written[j] or "") for j in mine[:-1]):
        for j in mine:
            groups[j] = [(groups[j][0][0], _opened(step.space, groups[j], new[j]))]
        if led and len(before) != stars + 1:
            groups[near] = [(before[0][0], _opened(step.space, before, new[near]))]


def _contradicts(space: Space, group: list[Unit], written: str | None, whole: bool, odd: bool) -> bool:
    """The code writes G where the sizes say H/G, and both are as large: the name of the whole was a chance.

    So is a whole unit where the code writes `D // 2`, or `T * 2` and more; `whole`: none of the units is a number that
    may be divided by; `odd`: some other size comes out as 1.
    """
    numbers = [f for f in map(str.strip, (written or "").split("*")) if f.isdigit()]
    times = odd and any(int(f) not in [t.size for _, t in group if not t.atoms] for f in numbers)
    if (written and "*" in written and times) or (_divides(written or "") and (whole or "*" in str(written))):
        return all(isinstance(a, Sym) for _, t in group for a in t.atoms) and all(t.den == 1 for _, t in group)
    written = (written or "").rpartition(".")[2]  # self.G
    if written not in space.sizes:
        return False
    term = space.product(t for _, t in group)
    atom = term.atoms[0] if len(term.atoms) == 1 and term.num == term.den == 1 else None
    if not isinstance(atom, Sym) or atom.name == written or space.sizes[written] != atom.size:
        return False
    said = space.sym(written, atom.size)
    return not any(a in space.expand(b).atoms for a, b in ((said.atoms[0], term), (atom, said)))


def _stretches(old: Axes, new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Pair the shortest stretches of old and new axes (sizes of 1 left out) that hold the same number of entries."""
    olds = [i for i, a in enumerate(old) if a.size != 1]
    news = [j for j, n in enumerate(new) if n != 1]
    out: list[tuple[list[int], list[int]]] = []
    while olds and news:
        i = j = 1
        have, want = old[olds[0]].size, new[news[0]]
        while have != want:
            if have < want and i < len(olds):
                have, i = have * old[olds[i]].size, i + 1
            elif have > want and j < len(news):
                want, j = want * new[news[j]], j + 1
            else:
                i, j = len(olds), len(news)
                break
        out.append((olds[:i], news[:j]))
        olds, news = olds[i:], news[j:]
    return out


def _stretch(
    step: Step, terms: list[tuple[int, Term]], new: list[int], written: Written
) -> tuple[list[list[Unit]], list[Unit]]:
    """Share out the units of some old axes over some new ones; also return the units of size 1 met inside."""
    space = step.space
    if len(new) == 1:
        units = [u for i, t in terms for u in _units(i, t)[0]]
        return [[u for u in units if u[1].size != 1]], [u for u in units if u[1].size == 1]
    exact = _exact(space, [terms, [(i, space.expand(t)) for i, t in terms]], new, written)
    return (_pieces(step, terms, new, written), []) if exact is None else exact


def _units(place: int, term: Term) -> list[list[Unit]]:
    """Return the ways to read one axis as a row of atoms: 3C is (3 C); 3(H D) is (3 H D) or (H 3 D)."""
    atoms = [Term(1, 1, (a,)) for a in term.atoms]
    if term.den != 1 or not atoms or (term.num > 1 and isinstance(term.atoms[0], Sum)):
        rows = [[term]]
    elif term.num == 1:
        rows = [atoms]
    else:
        rows = [[*atoms[:i], number(term.num), *atoms[i:]] for i in range(len(atoms))]
    return [[((place, k), t) for k, t in enumerate(row)] for row in rows]


def _exact(
    space: Space, spellings: list[list[tuple[int, Term]]], new: list[int], written: Written
) -> tuple[list[list[Unit]], list[Unit]] | None:
    """Group whole units into the new sizes; None where a cut falls inside a unit. Two readings that differ give `?`."""
    found: list[tuple[list[list[Unit]], list[Unit]]] = []
    for rows in chain.from_iterable(every(*(_units(i, t) for i, t in terms)) for terms in spellings):
        units = [u for row in rows for u in row]
        groups = _group([u for u in units if u[1].size != 1], new)
        if groups is not None:
            found.append((groups, [u for u in units if u[1].size == 1]))
    if len(found) > 1:
        found = [f for f in found if all(_agrees(g, w) for g, w in zip(f[0], written, strict=True))] or found
    if not found:
        return None
    first, ones = found[0]
    for k, group in enumerate(first):
        term = space.product(t for _, t in group)
        if not all(space.same(space.product(t for _, t in other[0][k]), term) for other in found[1:]):
            first[k] = [(group[0][0], _opened(space, group, term.size))]
    return first, ones


def _group(units: list[Unit], new: list[int]) -> list[list[Unit]] | None:
    groups: list[list[Unit]] = []
    i = 0
    for n in new:
        group: list[Unit] = []
        while n > 1 and i < len(units) and n % units[i][1].size == 0:
            n //= units[i][1].size
            group.append(units[i])
            i += 1
        if n != 1:
            return None
        groups.append(group)
    return groups if i == len(units) else None


def _agrees(group: list[Unit], written: str | None) -> bool:
    """A size written as a digit is a bare number; any other writing is not."""
    return written in (None, "-1") or str(written).isdigit() == all(not t.atoms for _, t in group)


def _pieces(step: Step, terms: list[tuple[int, Term]], new: list[int], written: Written) -> list[list[Unit]]:
    """Cut units where the new sizes ask for it; a new axis made of parts of several old ones is a cut across them."""
    space = step.space
    units = [u for i, t in terms for u in _units(i, t)[0] if u[1].size != 1]
    rows: list[list[tuple[int, int]]] = []  # for each new axis: (unit, size of the piece taken)
    i, left = 0, units[0][1].size
    for n in new:
        row: list[tuple[int, int]] = []
        while n > 1 and i < len(units):
            take = left if n % left == 0 else (n if left % n == 0 else 0)
            if take == 0:
                return _crossed(step, terms, units, new)
            if not units[i][1].atoms and not (written[len(rows)] or "").isdigit():
                return _crossed(step, terms, units, new)  # the 3 of 3C is as large as H: `view(B, T, H, D, 3)`
            row.append((i, take))
            n, left = n // take, left // take
            if left == 1:
                i += 1
                left = units[i][1].size if i < len(units) else 1
        if len(row) > 1 and any(take != units[u][1].size for u, take in row) and not _leading_data(space, units, row):
            return _crossed(step, terms, units, new)
        rows.append(row)
    cuts: dict[int, list[tuple[int, int]]] = {}
    for k, row in enumerate(rows):
        for u, take in row:
            cuts.setdefault(u, []).append((k, take))
    parts = {
        (u, k): part
        for u, cut in cuts.items()
        for (k, _), part in zip(cut, _cut_unit(step, units[u][1], cut, written), strict=True)
    }
    return [[((units[u][0][0], units[u][0][1] + k), parts[u, k]) for u, _ in row] for k, row in enumerate(rows)]


def _leading_data(space: Space, units: list[Unit], row: list[tuple[int, int]]) -> bool:
    """`[B, C] -> [(B H), D]`: whole data axes with the leading part of the next axis are no cut across."""
    return all(take == units[u][1].size and space.is_data(units[u][1]) for u, take in row[:-1])


def _cut_unit(step: Step, unit: Term, cut: list[tuple[int, int]], written: Written) -> list[Term]:
    """Cut one atom: `view(.., D // 2, 2)` as written gives D/2 and 2; else parts that are solved when they can be."""
    space = step.space
    if len(cut) == 1:
        return [unit]
    digits = [(written[k] or "").isdigit() for k, _ in cut]
    if digits.count(False) == 1 and not space.is_data(unit):
        rest = next(take for (_, take), d in zip(cut, digits, strict=True) if not d)
        part = space.scaled(unit, 1, unit.size // rest)
        return [number(take) if d else part for (_, take), d in zip(cut, digits, strict=True)]
    made = [space.fresh(take, feature=space.is_feature(unit)) for _, take in cut]
    space.split(unit, made)
    return made


def _crossed(step: Step, terms: list[tuple[int, Term]], units: list[Unit], new: list[int]) -> list[list[Unit]]:
    if len(terms) > 1 or len(terms[0][1].atoms) > 1:

        def text() -> str:
            repair = say("split the last axis first, then transpose")
            if len(new) < len(terms):
                repair = say("transpose first, so that the axes to be joined stand side by side")
            return say(
                "{step} cuts across axes: [{names}] is read as [{sizes}], so the new axes mix entries of different old "
                "ones; {repair}",
                step=step.name,
                names=", ".join(_shown(step.space, t) for _, t in terms),
                sizes=", ".join(map(str, new)),
                repair=repair,
            )

        step.warn(text)
    return [[(units[0][0], step.space.fresh(n))] for n in new]


def _shown(space: Space, term: Term) -> str:
    return f"{space.name(term)}={term.size}"


def merged(step: Step, axes: Axes) -> Axis:
    """Return the product of axes, in order; it keeps the marks of an axis that stands alone."""
    real = [a for a in axes if a.term.atoms or a.size != 1]
    return real[0] if len(real) == 1 else Axis(step.space.product(a.term for a in real))


def _axis(step: Step, old: Axes, group: list[Unit]) -> Axis:
    """Return the old axis itself where the group is all of it, else the product of the group."""
    term = step.space.product(t for _, t in sorted(group, key=lambda u: u[0]))
    for place in {p[0] for p, _ in group} if len({p[0] for p, _ in group}) == 1 else ():
        if term.size == old[place].size and step.space.same(term, old[place].term):
            return old[place]
    return Axis(term)


def _check_merge(step: Step, terms: list[Term]) -> None:
    """Warn where a position axis and a width are merged, or H and D the wrong way round: heads joined as they stand."""

    def text() -> str | None:
        atoms = [a for t in terms for a in step.space.walk(t).atoms]
        names = [a.name for a in atoms if isinstance(a, Sym)]
        if names == ["D", "H"] == [getattr(a, "name", "") for a in atoms] and step.space.split_of("C") == ("H", "D"):
            return say(
                "{step} merges (D H), but C is (H D): the features of one head do not stand together; bring H before "
                "D first",
                step=step.name,
            )
        if len(names) < 2 or not POSITIONS & set(names[:-1]) or names[-1] not in WIDTHS:
            return None
        shown = " ".join(step.space.name(t) for t in terms)
        return say(
            "{step} merges a data axis with a feature axis: ({shown}) becomes one axis of {size}; to join heads, "
            "transpose them back next to D first",
            step=step.name,
            shown=shown,
            size=prod(t.size for t in terms),
        )

    if len(terms) > 1:
        step.warn(text)


# ---------------------------------------------------------------- axes of size 1


def _place_ones(
    step: Step,
    ones: list[Unit],
    new: tuple[int, ...],
    groups: dict[int, list[Unit]],
    written: Written,
    hiding: set[int],
) -> None:
    """Give each named unit of size 1 a new axis of size 1 in its gap, or its place in a neighbouring group.

    `hiding`: old axes that hold a unit of size 1, as C does where H is 1.
    """
    big = sorted(groups)
    while ones:
        last = max((j for j in big if groups[j][0][0] <= ones[0][0]), default=-1)
        following = min((j for j in big if j > last), default=len(new))
        run = [u for u in ones if following == len(new) or u[0] < groups[following][0][0]]
        ones = ones[len(run) :]
        beyond = min((j for j in big if j > following), default=len(new))
        later = sum(beyond == len(new) or u[0] < groups[beyond][0][0] for u in ones) if following < len(new) else 0
        later += beyond < len(new) and groups[beyond][0][0][0] in hiding
        more = {following: later}
        if following < len(new) and groups[following][0][0][0] in hiding:
            more[following - 1] = 1
        if last >= 0 and max(p for p, _ in groups[last]) > run[0][0]:
            slots, within = [last], [u for u in run if u[0] < max(p for p, _ in groups[last])]
            run, ones = within, [*run[len(within) :], *ones]
        else:
            free = [j for j in range(last + 1, following) if written[j] != "1"]
            slots = [j for j in (last, *free, following) if j in groups or j in free]
            vague = any(written[j] is None for j in free or slots) or (free and any(t.var is not None for _, t in run))
            bare = any(written[j] == "1" for j in range(last + 1, following))
            if bare and not free and all(t.var is not None for _, t in run):
                continue  # `x[:, t : t + 1]` seen as (B, 1, H, D)
            hides = following < len(new) and groups[following][0][0][0] in hiding
            vague = vague or (bare and (not free or hides or any(t.var is not None for _, t in run)))
            several = hides and any(written[j] == "-1" for j in free)  # `view(-1, H, D)`, where H is 1 too
            if len(slots) > 1 and (several or (vague and (bare or len(free) != len(run)))):
                groups.update((j, [(run[0][0], _opened(step.space, groups.get(j, []), new[j]))]) for j in slots)
                continue  # neither sizes nor text tell which is which
        best = max(
            _shares(len(run), len(slots)),
            key=lambda share: _score(step.space, run, share, slots, groups, written, more),
        )
        if any(written[j] == "-1" for j in slots if j not in groups):  # what is left may always be 1
            empty = any(not n for j, n in zip(slots, best, strict=True) if j not in groups)
            unclear = [j for j in slots if j not in groups] if empty else []
        else:
            unclear = []
        if any(not n for j, n in zip(slots, best, strict=True) if j not in groups):
            unclear += [j for j in slots if written[j] == "-1" and any(not t.atoms for _, t in groups.get(j, []))]
        mixed = False
        for j in slots:
            mine, run = run[: best[0]], run[best[0] :]
            best = best[1:]
            if mine:
                groups[j] = sorted([*groups.get(j, []), *mine], key=lambda u: u[0])
                if _mixed(step.space, groups[j]) and written[j] != "-1" and "*" not in (written[j] or ""):
                    groups[j] = [(mine[0][0], step.space.fresh(new[j]))]  # one size for a merge of such axes?
                    mixed = True
                if j in unclear:
                    groups[j] = [(mine[0][0], step.space.fresh(1))]
        if mixed:  # then its neighbours may have got too little: (B T) here is B there
            groups.update((j, [(groups[j][0][0], step.space.fresh(1))]) for j in slots if j in groups and new[j] == 1)


def _shares(count: int, slots: int) -> list[tuple[int, ...]]:
    """Return every way to deal `count` units in order to that many slots."""
    if slots <= 1:
        return [(count,) * slots]
    return [(k, *rest) for k in range(count, -1, -1) for rest in _shares(count - k, slots - 1)]


def _score(
    space: Space,
    run: list[Unit],
    share: tuple[int, ...],
    slots: list[int],
    groups: dict[int, list[Unit]],
    written: Written,
    more: dict[int, int],
) -> float:
    """Say how well a deal fits: each size as written, an axis of 1 for each unit, H with D, data with data.

    `more`: for some slots, the number of units that are still to come.
    """
    total = 0.0
    hands = [run[sum(share[:i]) : sum(share[: i + 1])] for i in range(len(share))]
    full = [[*groups.get(j, []), *hand] for j, hand in zip(slots, hands, strict=True)]
    for i, (j, k, mine) in enumerate(zip(slots, share, hands, strict=True)):
        text, there = written[j], groups.get(j, [])
        text = None if text and _divides(text) else text
        beside = [t for near in full[max(0, i - 1) : i + 2] for _, t in near]
        if not full[i] and not all(space.is_data(t) for t in beside):
            total += 0.5  # an axis of 1 with nothing in it comes out of a feature beside it
        if text is not None and "*" in text:
            factors = [f.strip() for f in text.split("*")]
            lacks = len(factors) - sum(bool(t.atoms) or str(t.size) in factors for _, t in there) - k
            wholes = sum(t.var is not None or space.halves(t) is not None for _, t in there)  # `H * D` may be C
            total -= 2 * (max(0, lacks - more.get(j, 0) - wholes) if lacks > 0 else abs(lacks))
        elif text == "-1":
            total += min(k, 1) * (not there) + 0.1 * k
        if there and mine and there[-1][0][0] == mine[0][0][0]:
            total += 0.2  # parts of one old axis stay together
        if text is not None and ("*" in text or text == "-1"):
            continue
        if not there:
            total += min(k, 1) if k < 2 or _joins(space, [], mine) else 1 - 2 * (k - 1)
        elif k:
            data = all(space.is_data(t) for _, t in there)
            mixed = sum(space.is_data(t) != data for _, t in mine)
            total += 0.5 if _joins(space, there, mine) else -0.2 * k - 0.8 * mixed
    return total


def _mixed(space: Space, units: list[Unit]) -> bool:
    """Tell whether data and other axes come together in one."""
    return len({space.is_data(t) for _, t in units}) > 1


def _joins(space: Space, there: list[Unit], mine: list[Unit]) -> bool:
    """Tell whether some units become one known axis with those that are there: H beside D is C."""
    product = space.product(t for _, t in sorted([*there, *mine], key=lambda u: u[0]))
    return len(space.contract(product)) < len(space.contract(space.product(t for _, t in there))) + len(mine)


def _hides_one(space: Space, term: Term) -> bool:
    """`view(B * T * H, D)` and `view(B * T, C)` have the same sizes at H = 1, so C could be D here."""
    pairs = [space.halves(Term(1, 1, (a,))) for a in term.atoms]
    return any(p and p[0].size == 1 for p in pairs) or (term.var is not None and space.sizes.get("H") == 1)


def _new_unit(step: Step, j: int, out: list[Axis | None], written: Written) -> Axis:
    """A new axis of size 1: `view(B, T, H, D)` at H = 1 splits C, `view(B, T, 1, C)` adds one: the text tells."""
    space = step.space
    if written[j] == "1":
        return UNIT
    after = next((k for k in range(j + 1, len(out)) if written[k] != "1"), len(out))
    before = next((k for k in range(j - 1, -1, -1) if written[k] != "1"), -1)
    for near, first in ((after, True), (before, False)):
        axis = out[near] if 0 <= near < len(out) else None
        if axis is None or axis is UNIT or space.is_data(axis.term):
            continue
        whole = space.walk(axis.term)
        opened = Axis(_opened(space, [((near, 0), whole)], axis.size))
        if (written[j] and (written[near] or "").isdigit()) or (len(whole.atoms) > 1 and _hides_one(space, whole)):
            out[near] = Axis(
                _opened(space, [((near, 0), whole)], axis.size)
            )  # `view(.., D // 2, 2)` at D = 2: the 2 is not D
            return Axis(space.fresh(1))
        pair = space.halves(whole)
        parts_of = space.halves(Term(1, 1, whole.atoms)) if pair is None else None
        if parts_of is not None and parts_of[0 if first else 1].size == 1:  # 3C could be 3D, or 3 times H
            out[near] = opened
            return Axis(space.fresh(1))
        if pair is not None and pair[0 if first else 1].size == 1:
            unit, rest = pair if first else pair[::-1]
            other = written[j] in space.sizes.keys() | space.seen.keys() and written[j] != space.name(unit)
            clear = written[j] and not other  # `view(B, -1, T, C)` at T = H = 1: no H and D
            out[near] = Axis(rest, axis.origin, axis.soft) if clear else opened
            return Axis(unit) if clear else Axis(space.fresh(1))
        if len(whole.atoms) == 1 and isinstance(whole.atoms[0], Var) and axis.size != 1:
            parts = [space.fresh(1), space.fresh(axis.size, feature=space.is_feature(whole))]
            space.split(whole, parts if first else parts[::-1])
            out[near] = Axis(parts[1])
            return Axis(parts[0])
        if whole.var is not None:
            out[near] = Axis(space.fresh(1))
    return UNIT if written[j] is None and all(space.sizes.get(f, 0) > 1 for f in "HD") else Axis(space.fresh(1))


def _divides(text: str) -> bool:
    """Tell whether a size is written as a part by a number: `C // 2`."""
    return any(part.strip()[:1].isdigit() for part in text.split("//")[1:])


def written_sizes(step: Step, given: tuple[object, ...], rank: int) -> Written:
    """Return the text of each size in `view(B, T, 1, C)`, `view((B, T, C))` or `reshape(x, (B, T))`."""
    known: Written = ["-1" if n == -1 else None for n in given] if len(given) == rank else [None] * rank
    texts = _texts(step.literals)
    return list(texts[-rank:]) if rank and texts is not None and len(texts) >= rank else known


def spelled(step: Step, *sizes: int) -> bool:
    """Tell whether one of these sizes stands in the call as a number, or may: then it is no axis, only as large."""
    texts = _texts(step.literals) if step.literals else None
    return texts is None or any(str(n) in texts for n in sizes)


@cache
def _texts(literals: tuple[str, ...]) -> list[str] | None:
    """Return the text of each argument, a tuple's entries apart; None where they are no sizes or a star hides some."""
    try:
        call = ast.parse(f"f({', '.join(literals)})", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    assert isinstance(call, ast.Call)
    texts: list[str] = []
    for arg in [*call.args, *(k.value for k in call.keywords)]:
        nodes = arg.elts if isinstance(arg, ast.Tuple | ast.List) else [arg]
        if any(isinstance(n, ast.Starred) or (isinstance(n, ast.Constant) and isinstance(n.value, str)) for n in nodes):
            return None
        texts += [ast.unparse(n) for n in nodes]
    return texts


def entries(step: Step) -> list[ast.expr]:
    """Return the entries of a first argument that is written as a list or tuple: the two of `stack([x, y], -1)`."""
    node = _first(step)
    plain = isinstance(node, ast.Tuple | ast.List) and not any(isinstance(n, ast.Starred) for n in node.elts)
    return node.elts if plain else []  # type: ignore[union-attr]


def counted(step: Step) -> int:
    """Return how many entries the code says a first argument has: those of a list, or of loops over `range(2)`."""
    node = _first(step)
    if not isinstance(node, ast.ListComp | ast.GeneratorExp):
        return len(entries(step))
    loops = [re.fullmatch(r"range\((\d+)\)", ast.unparse(g.iter)) for g in node.generators if not g.ifs]
    return prod(int(loop[1]) if loop else 0 for loop in loops) if len(loops) == len(node.generators) else 0


def _first(step: Step) -> ast.expr | None:
    try:
        return ast.parse(step.literals[0], mode="eval").body
    except (SyntaxError, ValueError, IndexError):
        return None
