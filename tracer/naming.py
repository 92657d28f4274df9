"""Axis names as terms: read (`3C`, `D/2`, `(H D)`, `S+T`), write, and unify them. Knows nothing of operations.

A term is a fraction times an ordered product of atoms. An atom is a symbol (`T`), a variable (an axis whose name is not
known yet) or a sum (`S+T`). Variables are solved by unification, also backwards: every term that mentions a variable
gets its name the moment the variable does. A `Space` holds the sizes of one trace and what follows from them (C = H·D).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import gcd, prod

from .errors import AxesError

__all__ = [
    "DATA",
    "FEATURES",
    "ONE",
    "POSITIONS",
    "Space",
    "Sum",
    "Sym",
    "Term",
    "Var",
    "number",
    "parse_axes",
    "size_of",
]

POSITIONS = frozenset("TSNXYL") | {"Y/P", "X/P"}
DATA = POSITIONS | {"B"}
"""Axes that only data can have: which example, which position."""
FEATURES = ("C", "H", "D", "G", "M", "V", "E", "D_k", "D_v")
"""Axes that a parameter may get from its size alone, where the size leaves no tie."""
NARROW = frozenset("HDGE") | {"D_k", "D_v"}
"""Those that are small enough to be met by chance: they need a role as well as a size."""
_PATCHED = ("Y", "X", "N")
"""axes of an image that is cut into patches: Y is (Y/P P), X is (X/P P), N is (Y/P X/P)"""


class Sym:
    """A named axis with its size; one object for each (name, size) of a space."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size


class Var:
    """An axis with no name yet. `options`: the only terms it can be (from a parameter's size), or None for any.

    `()`: an axis of a parameter that its size alone does not name: see `Space.feature` and `Space.offer`.
    `feature` marks an axis that a learned map made: it can never turn out to be a batch or position axis. `mixed` marks
    one that a learned map made of positions: it may be anything. `piece`: a slice, as (whole axis, first, last + 1).
    """

    __slots__ = ("bound", "feature", "mixed", "options", "piece", "size")

    def __init__(self, size: int, options: "tuple[Term, ...] | None" = None, feature: bool = False) -> None:
        self.size, self.options, self.feature, self.mixed = size, options, feature, False
        self.bound: Term | None = None
        self.piece: tuple[Term, int, int] | None = None


class Sum:
    """Axes joined end to end (`S+T`)."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: "tuple[Term, ...]") -> None:
        self.parts = parts
        self.size: int = sum(p.size for p in parts)


Atom = Sym | Var | Sum


class Term:
    """`num/den` times the product of `atoms`; `size` is its number of entries."""

    __slots__ = ("atoms", "den", "num", "size")

    def __init__(self, num: int, den: int, atoms: tuple[Atom, ...]) -> None:
        if den != 1:
            g = gcd(num, den)
            num, den = num // g, den // g
        self.num, self.den, self.atoms = num, den, atoms
        self.size = num * prod(a.size for a in atoms) // den

    @property
    def var(self) -> Var | None:
        """The variable that this term is, with nothing around it; else None."""
        if len(self.atoms) == 1 and self.num == self.den == 1 and isinstance(self.atoms[0], Var):
            return self.atoms[0]
        return None


ONE = Term(1, 1, ())
"""An axis of size 1 that stands for nothing (`unsqueeze`, `keepdim`)."""


def _parts(t: Term) -> tuple[Term, ...]:
    first = t.atoms[0] if len(t.atoms) == 1 and t.num == t.den == 1 else None
    return first.parts if isinstance(first, Sum) else (t,)


def number(n: int) -> Term:
    """Return the term of a bare number: the 3 of `[B, T, 3, H, D]`."""
    return ONE if n == 1 else Term(n, 1, ())


class Space:
    """The sizes of one trace, the relations between them, and the equations not yet solved."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        """Sizes of the symbols met so far that were not declared: B, T, S; the latest where one changes."""
        self._syms: dict[tuple[str, int], Sym] = {}
        self._split: dict[str, tuple[str, str]] = {}  # C -> (H, D), Y -> (Y/P, P), only where the sizes agree
        self._equations: list[tuple[Term, Term]] = []
        self._options: dict[int, tuple[Term, ...]] = {}
        self._open: list[Var] = []  # axes of parameters, named at the end by their only option
        self._cut: list[Var] = []  # slices of axes
        self._attending: list[Term] = []  # axes that are compared with themselves
        self._earlier: list[Term] = []  # axes that keys have before those of the queries: a cache
        self._declare(sizes)

    def _declare(self, sizes: Mapping[str, int]) -> None:
        """Take in sizes, and what follows from them."""
        known = self.sizes = complete_sizes(sizes)
        self._options.clear()
        if {"C", "H", "D"} <= known.keys() and known["C"] == known["H"] * known["D"]:
            self._split["C"] = ("H", "D")
        if {"G", "H"} <= known.keys() and 1 < known["G"] < known["H"] and known["H"] % known["G"] == 0:
            self._split["H"] = ("G", "H/G")
            known["H/G"] = known["H"] // known["G"]
        for edge, patches in (("Y", "Y/P"), ("X", "X/P")):  # an image cut into patches of P x P
            if {edge, "P"} <= known.keys() and known["P"] and known[edge] % known["P"] == 0:
                self._split[edge] = (patches, "P")
                known[patches] = known[edge] // known["P"]
        if {"Y/P", "X/P"} <= known.keys():
            self._split["N"] = ("Y/P", "X/P")
            known["N"] = known["Y/P"] * known["X/P"]
        self._joined = {pair: whole for whole, pair in self._split.items()}

    # ------------------------------------------------------------ making terms

    def sym(self, name: str, size: int) -> Term:
        """Return the term of one symbol."""
        found = self._syms.get((name, size))
        if found is None:
            found = self._syms[name, size] = Sym(name, size)
            if name not in self.sizes:
                self.seen[name] = size
                if name in FEATURES:
                    self._declare({**self.sizes, name: size})
        return Term(1, 1, (found,))

    def fresh(self, size: int, feature: bool = False) -> Term:
        """Return an axis with no name yet."""
        return Term(1, 1, (Var(size, None, feature),))

    def feature(self, size: int) -> Term:
        """Return a parameter's axis: its declared sizes are the only names it can have by itself.

        A size that only H, D, G or E has says nothing: rows of a position table, classes, colours and kernels are as
        small. `offer` gives such a name once the parameter is seen to be a learned map. Size 1 says nothing either.
        """
        options = self.options(size)
        if size == 1 and not options:
            return ONE
        if size == 1 or all(self.name(o) in NARROW for o in options):
            var = Var(size, () if options else None)
        else:
            var = Var(size, options)
        self._open.append(var)
        return Term(1, 1, (var,))

    def offer(self, term: Term, heads: bool) -> None:
        """An axis belongs to a learned map, so a small size may name it; H and G only where maps have `heads`."""
        var = self.walk(term).var
        if var is not None and var.options == () and var.size > 1:
            options = self.options(var.size)
            if heads or not any(self.name(o) in ("H", "G") for o in options):
                var.options = options

    def disown(self, term: Term) -> None:
        """Forget what a parameter's size says: nothing is known about the role of this axis."""
        var = self.walk(term).var
        if var is not None:
            var.options = None

    def patches(self, axes: Sequence[Term], edges: Sequence[int], counts: Sequence[int]) -> list[Term]:
        """Return the axes (Y/P, X/P) of an image cut into patches of the declared edge, or none."""
        names = [self.name(t) for t in axes]
        whole = [e * n for e, n in zip(edges, counts, strict=True)]
        if names != ["Y", "X"] or {*edges} != {self.sizes.get("P")} or whole != [t.size for t in axes]:
            return []
        self._declare({**self.sizes, "Y/P": counts[0], "X/P": counts[1]})
        return [self.sym(f"{name}/P", n) for name, n in zip(names, counts, strict=True)]

    def attend(self, query: Term, key: Term) -> None:
        """Scores of an axis with itself, or with what came before it and itself: positions that look at positions."""
        query, key = self.walk(query), self.walk(key)
        if query.var and query.var is key.var:
            self._attending.append(query)
        elif self._is_sum(key):
            *before, last = _parts(key)
            if len(before) == 1 and before[0].var and self.same(last, query):
                self._earlier.append(before[0])

    def _name_positions(self) -> None:
        """Call an axis that attends to itself T, or S beside a decoder's T; one that stands before T in the keys S.

        Only where the batch is known and there is one such axis.
        """
        for terms, names in ((self._attending, "TS"), (self._earlier, "S")):
            found = {t.var for t in map(self.walk, terms) if t.var}
            free = [s for s in names if s not in self.seen and s not in self.sizes]
            if len(found) == 1 and free and "B" in self.seen:
                (var,) = found
                told_apart = var.size not in (1, self.seen.get("T"))  # T itself may have lost its name on the way
                if told_apart and not (var.feature or var.mixed or var.options):
                    var.bound = self.sym(free[0], var.size)

    def product(self, terms: Iterable[Term]) -> Term:
        """Multiply axes in order: `(B T)`."""
        num = den = 1
        atoms: tuple[Atom, ...] = ()
        for t in terms:
            t = self.walk(t)
            num, den, atoms = num * t.num, den * t.den, atoms + t.atoms
        return Term(num, den, atoms)

    def sum(self, terms: Sequence[Term]) -> Term:
        """Join axes end to end: `S+T`; adjacent parts of one axis add up (`D/2+D/2` is `D`)."""
        parts: list[Term] = []
        for t in (self.walk(t) for t in terms if t.size):
            for p in _parts(t):
                last = parts[-1] if parts else None
                if last is not None and (last.atoms == p.atoms):
                    parts[-1] = Term(last.num * p.den + p.num * last.den, last.den * p.den, p.atoms)
                elif last is not None and (both := self._rejoined(last, p)) is not None:
                    parts[-1] = both
                else:
                    parts.append(p)
        if len(parts) == 1:
            return parts[0]
        return Term(1, 1, (Sum(tuple(parts)),)) if parts else ONE

    def counted(self, term: Term, times: int) -> Term:
        """Return an axis repeated end to end, a number of times that has no name: heads joined by a loop, `(? D)`."""
        return self.product([self.fresh(times * term.num), Term(1, term.den, term.atoms)])

    def slice(self, term: Term, first: int, last: int) -> Term:
        """Return entries `first` to `last - 1` of an axis: an axis with no name yet, that remembers what it is part of.

        It can be joined to the whole again (`cat`), and is named at the end where the model declares such a part of the
        axis (`D/4`: rotary positions of a quarter of each head).
        """
        var = Var(last - first, None, self.is_feature(term))
        var.piece = (term, first, last)
        self._cut.append(var)
        return Term(1, 1, (var,))

    def _rejoined(self, a: Term, b: Term) -> Term | None:
        """Return the axis that two neighbouring slices make."""
        one, two = ((t.var.piece if t.var else None) for t in (a, b))
        if one is None or two is None or one[2] != two[1] or not self.same(one[0], two[0]):
            return None
        return one[0] if two[2] - one[1] == one[0].size else self.slice(one[0], one[1], two[2])

    def joint(self, term: Term, first: int, last: int) -> Term | None:
        """Return entries `first` to `last - 1` of an axis that was joined from several, where they are whole ones.

        C, (G D), (G D) are such parts of `C+2(G D)`, two times C of `3C`. A parameter's axis that could be several of
        these is decided by a slice that fits one alone.
        """
        term = self.walk(term)
        var = term.var
        found = [(o, p) for o in (var.options or () if var else (term,)) if (p := self._joint(o, first, last))]
        if not found or not all(self.same(p, found[0][1]) for _, p in found):
            return None
        if var and len(found) == 1:
            var.bound = found[0][0]
        return found[0][1]

    def after_numbers(self, term: Term) -> tuple[int, int]:
        """Return first and last + 1 of what follows the bare numbers of a sum: the N of `1+N`."""
        parts = _parts(self.walk(term))
        count = next((i for i, p in enumerate(parts) if p.atoms), 0)
        return sum(p.size for p in parts[:count]), term.size

    def _joint(self, term: Term, first: int, last: int) -> Term | None:
        if not self._is_sum(term) and (term.num == 1 or term.den > 1):
            return None
        starts, parts = [0], []
        for p in _parts(term):
            one = Term(1, p.den, p.atoms)
            parts += [one] * p.num
            starts += [starts[-1] + one.size * (i + 1) for i in range(p.num)]
        if first not in starts or last not in starts or (first, last) == (0, term.size):
            return None
        return self.sum(parts[starts.index(first) : starts.index(last)])

    @staticmethod
    def _is_sum(t: Term) -> bool:
        return len(t.atoms) == 1 and isinstance(t.atoms[0], Sum) and t.num == t.den

    def scaled(self, term: Term, num: int, den: int) -> Term:
        """Return `num/den` of an axis; the size must divide."""
        term = self.walk(term)
        if self._is_sum(term) and den == 1:
            return Term(num, 1, term.atoms)
        return Term(term.num * num, term.den * den, term.atoms)

    def options(self, size: int) -> tuple[Term, ...]:
        """Return every term of declared feature sizes that has this size: such as C, M, 3C or (G D)."""
        found = self._options.get(size)
        if found is not None:
            return found
        out: list[Term] = []
        known = self.sizes
        groups = known.get("G", 1) > 1
        out += [self.sym(f, size) for f in FEATURES if known.get(f) == size and (f != "G" or groups)]
        for pair in (("H", "D"), ("G", "D")) if groups else (("H", "D"),):
            if set(pair) <= known.keys() and prod(known[p] for p in pair) == size:
                out.append(self.product(self.sym(p, known[p]) for p in pair))
        for whole, times in (("C", (2, 3)), ("M", (2,)), ("C", () if "M" in known else (4,))):  # M is 4C as a rule
            for k in times if whole in known else ():
                if k * known[whole] == size and k != known.get(f"M/{whole}"):
                    out.append(self.scaled(self.sym(whole, known[whole]), k, 1))
        if {"H", "G", "D"} <= known.keys() and (known["H"] + 2 * known["G"]) * known["D"] == size:
            query, key = (self.product(self.sym(s, known[s]) for s in n) for n in ("HD", "GD" if groups else "D"))
            out.append(self.sum([query, key, key]))  # one map for queries, keys and values
        unique: list[Term] = []
        for t in out:
            if not any(self.same(t, u) for u in unique):
                unique.append(t)
        self._options[size] = tuple(unique)
        return self._options[size]

    # ------------------------------------------------------------ comparing

    def walk(self, term: Term) -> Term:
        """Return the term with every solved variable replaced."""
        for atom in term.atoms:
            if type(atom) is Var and atom.bound is not None:
                break
        else:
            return term
        num, den = term.num, term.den
        atoms: list[Atom] = []
        for atom in term.atoms:
            if type(atom) is Var and atom.bound is not None:
                inner = atom.bound = self.walk(atom.bound)
                num, den = num * inner.num, den * inner.den
                atoms += inner.atoms
            else:
                atoms.append(atom)
        return Term(num, den, tuple(atoms))

    def expand(self, term: Term) -> Term:
        """Return the term over the smallest symbols: C as (H D), H as (G H/G)."""
        term = self.walk(term)
        if not self._split or not any(type(a) is Sym and self._relation(a) for a in term.atoms):
            return term
        atoms: list[Atom] = []
        for a in term.atoms:
            pair = self._relation(a) if type(a) is Sym else None
            parts = [b for p in pair for b in self.expand(self.sym(p, self.sizes[p])).atoms] if pair else [a]
            # An image of one row of patches is as high as a patch: there Y is P. H = 1 does not make C the same as D.
            atoms += (
                parts
                if a.size == 1 or type(a) is not Sym or a.name not in _PATCHED
                else [b for b in parts if b.size > 1]
            )
        return Term(term.num, term.den, tuple(atoms))

    def split_of(self, name: str) -> tuple[str, str] | None:
        """Return the two symbols that a symbol is the product of, in order, or None."""
        return self._split.get(name)

    def halves(self, term: Term) -> tuple[Term, Term] | None:
        """Return (H, D) for C and (G, H/G) for H; None for any other term."""
        if len(term.atoms) == 1 and term.num == term.den == 1 and isinstance(term.atoms[0], Sym):
            pair = self._relation(term.atoms[0])
            if pair is not None:
                first, second = (self.sym(p, self.sizes[p]) for p in pair)
                return first, second
        return None

    def has_part(self, term: Term, size: int) -> bool:
        """Tell whether a part of the axis happens to have this size: D in C = H·D."""
        atoms = self.expand(term).atoms
        return len(atoms) > 1 and any(a.size == size for a in atoms)

    def _relation(self, sym: Sym) -> tuple[str, str] | None:
        return self._split.get(sym.name) if self.sizes.get(sym.name) == sym.size else None

    def same(self, a: Term, b: Term) -> bool:
        """Tell whether two terms are the same axis, without solving anything."""
        if a is b:
            return True
        a, b = self.expand(a), self.expand(b)
        return a.num * b.den == b.num * a.den and self._same_atoms(a.atoms, b.atoms)

    def _same_atoms(self, a: tuple[Atom, ...], b: tuple[Atom, ...]) -> bool:
        return a == b or (len(a) == len(b) and all(self._same_atom(x, y) for x, y in zip(a, b, strict=True)))

    def _same_atom(self, x: Atom, y: Atom) -> bool:
        if isinstance(x, Sum) and isinstance(y, Sum):
            return len(x.parts) == len(y.parts) and all(map(self.same, x.parts, y.parts))
        return x is y

    def is_data(self, term: Term) -> bool:
        """Tell whether the axis is made of batch and position axes alone."""
        term = self.walk(term)
        return bool(term.atoms) and all(self._data_atom(a) for a in term.atoms)

    def is_feature(self, term: Term) -> bool:
        """Tell whether the axis is known to be made by learned maps, named or not: no batch, no position."""
        atoms = self.walk(term).atoms
        return any(a.feature if isinstance(a, Var) else isinstance(a, Sym) and a.name in FEATURES for a in atoms)

    def _data_atom(self, a: Atom) -> bool:
        if isinstance(a, Sum):
            return all(self.is_data(p) or not p.atoms for p in a.parts)
        return isinstance(a, Sym) and a.name.partition("/")[0] in DATA

    # ------------------------------------------------------------ solving

    def unify(self, a: Term, b: Term) -> bool:
        """Make two aligned axes one; False where they are known to be different axes of one size."""
        if a is b:
            return True
        a, b = self.walk(a), self.walk(b)
        if a.size != b.size:
            return False
        if not a.atoms or not b.atoms or a.size == 1:
            return self._unify_small(a, b)
        if b.var:
            return self._bind(b.var, a)
        if a.var:
            return self._bind(a.var, b)
        return self._unify_products(self.expand(a), self.expand(b))

    def _unify_small(self, a: Term, b: Term) -> bool:
        """Sizes of 1 and bare numbers: a neutral 1 fits everything and teaches nothing."""
        for x, y in ((a, b), (b, a)):
            if x.var and y.atoms:
                return self._bind(x.var, y)
        if not a.atoms or not b.atoms or self.same(a, b):
            return True
        return len(a.atoms) == len(b.atoms) > 1 and self._unify_products(self.expand(a), self.expand(b))

    def _unify_products(self, a: Term, b: Term) -> bool:
        """Cancel what two products share at both ends; what is left must be equal, or one variable."""
        left, right = list(a.atoms), list(b.atoms)
        while left and right and self._same_atom(left[0], right[0]):
            del left[0], right[0]
        while left and right and self._same_atom(left[-1], right[-1]):
            del left[-1], right[-1]
        num, den = a.num * b.den, a.den * b.num  # (num/den)·left == right
        if not left and not right:
            return num == den
        for mine, other, n, d in ((left, right, den, num), (right, left, num, den)):
            if len(mine) == 1 and other and isinstance(mine[0], Var) and n * prod(x.size for x in other) % d == 0:
                return self._bind(mine[0], Term(n, d, tuple(other)))
        if not any(isinstance(x, Var) for x in left + right):
            return self._unify_sums(left, right) if num == den else False
        self._equations.append((a, b))
        return True

    def _unify_sums(self, left: list[Atom], right: list[Atom]) -> bool:
        if len(left) == len(right) == 1 and isinstance(left[0], Sum) and isinstance(right[0], Sum):
            x, y = left[0].parts, right[0].parts
            return (
                len(x) == len(y)
                and all(p.size == q.size for p, q in zip(x, y, strict=True))
                and all(map(self.unify, x, y))
            )
        return False

    def _bind(self, var: Var, term: Term) -> bool:
        if var in term.atoms:
            return True
        other = term.var
        inner = term.atoms[0] if len(term.atoms) == 1 else None
        if var.piece and isinstance(inner, Var) and inner is not other and not (inner.piece or inner.options):
            if var.size * term.den % term.num == 0:  # cos and sin are 2 x ?, and a slice of D tells what they are
                return self._bind(inner, Term(term.den, term.num, (var,)))
        if other is not None:
            if var.options and other.options:
                both = tuple(o for o in var.options if any(self.same(o, p) for p in other.options))
                other.options = both or None
            elif not other.options:
                other.options = var.options or other.options
            other.feature, other.mixed = other.feature or var.feature, other.mixed or var.mixed
            other.piece = other.piece or var.piece
        elif var.feature and self.is_data(term):
            return False
        elif var.feature:
            for a in term.atoms:
                if isinstance(a, Var):
                    a.feature = True
        if other is None and (only := self._only(var)) and any(isinstance(a, Var) for a in term.atoms):
            self._equations.append((only, term))  # a parameter's axis met (p q): C = p·q
        var.bound = term
        return True

    def split(self, whole: Term, parts: Sequence[Term]) -> None:
        """Remember that an axis was cut into these, in order; solved when either side becomes known."""
        self._equations.append((whole, self.product(parts)))

    def narrow(self, term: Term, pieces: int) -> None:
        """An axis is cut into so many equal pieces: prefer the options that are such a multiple (3C), or none (C)."""
        var = self.walk(term).var
        if var and var.options:
            options = var.options
            fits = tuple(o for o in options if o.num % pieces == 0)
            var.options = fits or tuple(o for o in options if o.num == 1) or None

    def settle(self, term: Term) -> None:
        """Give a variable its only option now, rather than at the end."""
        var = self.walk(term).var
        if var and (only := self._only(var)):
            var.bound = only

    def _only(self, var: Var) -> Term | None:
        """Return a variable's only option; how a sum is laid out, a size can't tell: a slice must (see `joint`)."""
        options = var.options or ()
        return options[0] if len(options) == 1 and not self._is_sum(options[0]) else None

    def solve(self) -> None:
        """After the pass: give each variable its only option, and solve the equations until nothing moves."""
        self._solve_equations()
        self._name_positions()
        waiting = self._unsolved()
        for known in self._open:
            v = self.walk(Term(1, 1, (known,))).var
            if v is not None and (only := self._only(v)):
                v.bound = only
                if v in waiting:
                    self._solve_equations()
                    waiting = self._unsolved()
        for var in self._cut:
            if var.bound is None and var.piece is not None:
                whole, first, last = var.piece
                part = self.scaled(whole, last - first, whole.size)
                if self.name(part) in self.sizes:
                    var.bound = part

    def _unsolved(self) -> set[Atom]:
        """Return every atom that an equation mentions, so that one without news is not tried again."""
        return {a for pair in self._equations for t in pair for a in self.walk(t).atoms}

    def _solve_equations(self) -> None:
        moved = True
        while moved and self._equations:
            moved = False
            waiting, self._equations = self._equations, []
            for a, b in waiting:
                if self._solve_equation(self.expand(a), self.expand(b)):
                    moved = True
                else:
                    self._equations.append((a, b))

    def _solve_equation(self, a: Term, b: Term) -> bool:
        """Match two products of equal size atom by atom: `C = p·q` gives p = H, q = D where the sizes fit."""
        if a.num != b.num or a.den != b.den:
            n, d = a.num * b.den, a.den * b.num
            for whole, parts, num, den in ((a, b, n, d), (b, a, d, n)):
                if whole.var is None and len(parts.atoms) == 1 and isinstance(parts.atoms[0], Var):
                    return self._bind(parts.atoms[0], Term(num, den, whole.atoms))
            return any(solve(*pair) for solve in (self._solve_scaled, self._solve_counted) for pair in ((a, b), (b, a)))
        known, unknown = (a, b) if not any(isinstance(x, Var) for x in a.atoms) else (b, a)
        if any(isinstance(x, Var) for x in known.atoms):
            var, other = (a.var, b) if a.var else (b.var, a)
            if var:
                options = [o for o in (var.options or ()) if self._is_sum(o) or self._fits(self.expand(o), other)]
                if len(options) == 1 and not self._is_sum(options[0]):
                    var.bound = options[0]
                    return self._solve_equation(self.expand(a), self.expand(b))
            return False
        runs = self._fits(known, unknown)
        if not runs:
            return False
        for atom, run in runs:
            if isinstance(atom, Var) and atom.bound is None:
                if atom.feature and self.is_data(run):
                    return False
                atom.bound = run
        return True

    def _solve_scaled(self, whole: Term, scaled: Term) -> bool:
        """C = 2(p q), where a rotation cut q in halves: 2q is one axis if that alone fits."""
        if whole.num != whole.den or scaled.den != 1 or any(isinstance(a, Var) for a in whole.atoms):
            return False
        found = []
        for i, atom in enumerate(scaled.atoms):
            if isinstance(atom, Var):
                double = Var(atom.size * scaled.num, None, atom.feature)
                trial = Term(1, 1, (*scaled.atoms[:i], double, *scaled.atoms[i + 1 :]))
                found += [(atom, double, trial)] if self._fits(whole, trial) else []
        if len(found) != 1:
            return False
        atom, double, trial = found[0]
        atom.bound = Term(1, scaled.num, (double,))
        return self._solve_equation(whole, trial)

    def _solve_counted(self, whole: Term, parts: Term) -> bool:
        """3(H D) = (p q r), a view of all heads of q, k and v: one of the parts is the 3, if that alone fits."""
        if parts.num != parts.den or whole.den != 1 or any(isinstance(a, Var) for a in whole.atoms):
            return False
        plain = Term(1, 1, whole.atoms)
        rest = [
            (atom, Term(1, 1, parts.atoms[:i] + parts.atoms[i + 1 :]))
            for i, atom in enumerate(parts.atoms)
            if isinstance(atom, Var) and atom.size == whole.num
        ]
        found = [(atom, others) for atom, others in rest if self._fits(plain, others)]
        if len(found) != 1:
            return False
        found[0][0].bound = number(whole.num)
        return self._solve_equation(plain, found[0][1])

    def _fits(self, known: Term, unknown: Term) -> list[tuple[Atom, Term]] | None:
        """Pair each atom of `unknown` with the run of `known` atoms of its size, or None."""
        if known.num != unknown.num or known.den != unknown.den:
            return None
        runs: list[tuple[Atom, Term]] = []
        if [a.size for a in known.atoms] == [a.size for a in unknown.atoms]:
            pairs = list(zip(unknown.atoms, known.atoms, strict=True))
            fits = all(isinstance(u, Var) or u is k for u, k in pairs)
            return [(u, Term(1, 1, (k,))) for u, k in pairs] if fits else None
        if any(a.size == 1 for a in known.atoms + unknown.atoms):
            return None
        i = 0
        for atom in unknown.atoms:
            start, size = i, 1
            while size < atom.size and i < len(known.atoms):
                size *= known.atoms[i].size
                i += 1
            if size != atom.size or (not isinstance(atom, Var) and known.atoms[start:i] != (atom,)):
                return None
            runs.append((atom, Term(1, 1, known.atoms[start:i])))
        return runs if i == len(known.atoms) else None

    # ------------------------------------------------------------ writing

    def name(self, term: Term) -> str:
        """Write a term as a reader sees it; `?` where any part of it is unknown."""
        term = self.walk(term)
        words = [self._atom_name(a) for a in self.contract(term)]
        if "?" in words:
            return "?"
        if not words:
            return str(term.size)
        if len(words) == 1:
            word = words[0] if term.num == term.den == 1 or not {"+", "/"} & {*words[0]} else f"({words[0]})"
            return f"{term.num if term.num > 1 else ''}{word}{f'/{term.den}' if term.den > 1 else ''}"
        sums = any("+" in word for word in words)  # 2 beside a sum would seem to be part of it: (2 S+T T)
        count = [str(term.num)] if term.num > 1 and not sums else []
        times = str(term.num) if term.num > 1 and sums else ""
        return f"{times}({' '.join(count + words)})" + (f"/{term.den}" if term.den > 1 else "")

    def _atom_name(self, atom: Atom | str) -> str:
        if isinstance(atom, str):
            return atom
        if isinstance(atom, Sym):
            return atom.name
        if isinstance(atom, Sum):
            whole = self.sum(atom.parts)  # parts that became known late may be one axis now
            if not self._is_sum(whole):
                return self.name(whole)
            names = [self.name(p) for p in _parts(whole)]
            return "?" if "?" in names else "+".join(names)
        return "?"

    def contract(self, term: Term) -> list[Atom | str]:
        """Write (G H/G) as H and (H D) as C."""
        out: list[Atom | str] = []
        for atom in self.walk(term).atoms:
            out.append(atom)
            while len(out) > 1:
                pair = tuple(a if isinstance(a, str) else self._declared(a) for a in out[-2:])
                whole = self._joined.get(pair)  # type: ignore[arg-type]
                if whole is None:
                    break
                out[-2:] = [whole]
        return out

    def _declared(self, atom: Atom) -> str | None:
        return atom.name if isinstance(atom, Sym) and self.sizes.get(atom.name) == atom.size else None

    # ------------------------------------------------------------ reading

    def read(self, text: str, shape: Sequence[int]) -> list[Term]:
        """Return the terms of an axes text for a tensor of this shape.

        Raises:
            AxesError: the text does not fit the rank, or a symbol the sizes already given.
        """
        words = parse_axes(text)
        if len(words) != len(shape):
            raise AxesError(
                f'"{text}" names {len(words)} axes, but the tensor has {len(shape)}: {list(shape)}. '
                "Write one name for each axis, or ? for one you do not want to name."
            )
        met: dict[str, int] = {}
        for word, n in zip(words, shape, strict=True):
            if word.isidentifier() and met.setdefault(word, n) != n:
                raise AxesError(f'"{text}" gives the name {word} to axes of {met[word]} and of {n} entries.')
        return [self._read_one(word, n, text) for word, n in zip(words, shape, strict=True)]

    def _read_one(self, word: str, size: int, text: str) -> Term:
        if word == "?":
            return self.fresh(size)
        if word == "1" and size == 1:
            return ONE
        tree = _parse_term(word)
        known = self.sizes if tree[0] == "sym" else {**self.seen, **self.sizes}
        local = {s: known[s] for s in _symbols(tree) if s in known}
        missing = sorted(set(_symbols(tree)) - local.keys())
        if len(missing) == 1:
            solved = _solve_for(tree, missing[0], local, size)
            if solved is not None:
                local[missing[0]] = solved
        value = _evaluate(tree, local)
        if value is None:
            raise AxesError(f'"{word}" in "{text}": the size of {", ".join(missing)} is not known; give it in sizes=.')
        if value != size:
            raise AxesError(f'"{word}" in "{text}" is {value} by the sizes given, but this axis has {size} entries.')
        return self._term(tree, local)

    def _term(self, tree: tuple[object, ...], sizes: Mapping[str, int]) -> Term:
        kind = tree[0]
        if kind == "sym":
            return self.sym(str(tree[1]), sizes[str(tree[1])])
        if kind == "num":
            return number(int(tree[1]))  # type: ignore[call-overload]
        inner = [self._term(t, sizes) for t in tree[1:] if isinstance(t, tuple)]
        if kind == "product":
            return self.product(inner)
        if kind == "sum":
            return self.sum(inner)
        return self.scaled(inner[0], int(tree[2]), int(tree[3]))  # type: ignore[call-overload]


def complete_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Add the one of C, H, D that follows from the other two."""
    known = dict(sizes)
    if "D" not in known and {"C", "H"} <= known.keys() and known["H"] and known["C"] % known["H"] == 0:
        known["D"] = known["C"] // known["H"]
    if "C" not in known and {"H", "D"} <= known.keys():
        known["C"] = known["H"] * known["D"]
    if "H" not in known and {"C", "D"} <= known.keys() and known["D"] and known["C"] % known["D"] == 0:
        known["H"] = known["C"] // known["D"]
    return known


# ---------------------------------------------------------------- the text form of axes

_TOKEN = re.compile(r"\s*(?:(\()|(\))|(\d+\s*)|([A-Za-z_][A-Za-z_0-9]*)|([+/?]))")


@cache
def parse_axes(text: str) -> tuple[str, ...]:
    """Split an axes text into one name for each axis: `"B T (H D) 3C"` -> `("B", "T", "(H D)", "3C")`.

    `_` and `*` read as `?`. Brackets and commas around the whole are allowed: `"[B, T, C]"`.

    Raises:
        AxesError: a bracket is not closed, a name is not one, or `...` is used.

    Example:
        >>> parse_axes("[B, T, 3C]")
        ('B', 'T', '3C')
    """
    body = text.strip()
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1]
    words: list[str] = []
    depth = 0
    for piece in body.replace(",", " ").replace("(", " ( ").replace(")", " ) ").split():
        depth += piece == "("
        if depth and words and not (piece == "(" and depth == 1):
            words[-1] += piece if piece in "()" or words[-1].endswith("(") else f" {piece}"
        else:
            words.append(piece)
        depth -= piece == ")"
        if depth < 0 or depth > 1:
            raise AxesError(f'"{text}" has brackets that do not match; write a merged axis as (H D).')
    if depth:
        raise AxesError(f'"{text}" has a bracket that is not closed; write a merged axis as (H D).')
    merged = _join_suffixes([w.replace("( ", "(").replace(" )", ")") for w in words])
    names = tuple("?" if w in ("_", "*", "?") else w for w in merged)
    for name in names:
        if name != "?":
            _parse_term(name)
    return names


def _join_suffixes(words: list[str]) -> list[str]:
    """Put `3(H D)` and `(H D)/2` back together after the brackets were set apart."""
    out: list[str] = []
    for w in words:
        if out and ((w.startswith("/") and out[-1].endswith(")")) or (w.startswith("(") and out[-1].isdigit())):
            out[-1] += w
        else:
            out.append(w)
    return out


@cache
def _parse_term(word: str) -> tuple[object, ...]:
    """Read one axis into a tree: ("sym", T) | ("num", 3) | ("scale", tree, 3, 1) | ("product", …) | ("sum", …)."""
    tokens: list[str] = []
    at = 0
    while at < len(word):
        match = _TOKEN.match(word, at)
        if match is None or match.end() == at:
            raise AxesError(f'"{word}" is not an axis name; write T, 3C, D/2, (H D), S+T, 1 or ?.')
        tokens.append(match.group().lstrip())
        at = match.end()
    tree, rest = _read_sum(tokens, word)
    if rest:
        raise AxesError(f'"{word}" is not an axis name; write T, 3C, D/2, (H D), S+T, 1 or ?.')
    return tree


def _read_sum(tokens: list[str], word: str) -> tuple[tuple[object, ...], list[str]]:
    first, tokens = _read_scaled(tokens, word)
    parts = [first]
    while tokens and tokens[0] == "+":
        part, tokens = _read_scaled(tokens[1:], word)
        parts.append(part)
    return (parts[0] if len(parts) == 1 else ("sum", *parts)), tokens


def _read_scaled(tokens: list[str], word: str) -> tuple[tuple[object, ...], list[str]]:
    num, alone = 1, False
    tree: tuple[object, ...] | None = None
    if tokens and tokens[0].strip().isdigit():
        num, alone, tokens = int(tokens[0]), tokens[0].endswith(" "), tokens[1:]
        tree = ("num", num)
    if alone:  # (T+1 S) is T+1 times S, and (2 T) a 2 beside T: only 2T is twice T
        pass
    elif tokens and tokens[0] == "(":
        inner, tokens = [], tokens[1:]
        while tokens and tokens[0] != ")":
            part, tokens = _read_sum(tokens, word)
            inner.append(part)
        if not tokens or not inner:
            raise AxesError(f'"{word}" has an empty or open bracket; write a merged axis as (H D).')
        body: tuple[object, ...] = inner[0] if len(inner) == 1 else ("product", *inner)
        tree, tokens = (body if num == 1 else ("scale", body, num, 1)), tokens[1:]
    elif tokens and re.match(r"[A-Za-z_]", tokens[0]):
        tree = ("sym", tokens[0]) if num == 1 else ("scale", ("sym", tokens[0]), num, 1)
        tokens = tokens[1:]
    if tree is None:
        raise AxesError(f'"{word}" is not an axis name; write T, 3C, D/2, (H D), S+T, 1 or ?.')
    if tokens and tokens[0] == "/":
        if len(tokens) < 2 or not (tokens[1].strip().isdigit() and int(tokens[1])):
            if len(tokens) > 1 and tree[0] == "sym" and re.match(r"[A-Za-z_]", tokens[1]):
                return ("sym", f"{tree[1]}/{tokens[1]}"), tokens[2:]  # H/G: query heads per key head
            raise AxesError(f'"{word}": a part is written D/2, with a whole number.')
        tree, tokens = ("scale", tree, 1, int(tokens[1])), tokens[2:]
    return tree, tokens


def _symbols(tree: tuple[object, ...]) -> list[str]:
    if tree[0] == "sym":
        return [str(tree[1])]
    return [s for t in tree[1:] if isinstance(t, tuple) for s in _symbols(t)]


def _evaluate(tree: tuple[object, ...], sizes: Mapping[str, int]) -> int | None:
    kind = tree[0]
    if kind == "sym":
        return _ratio(str(tree[1]), sizes)
    if kind == "num":
        return int(tree[1])  # type: ignore[call-overload, no-any-return]
    values = [_evaluate(t, sizes) for t in tree[1:] if isinstance(t, tuple)]
    if any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    if kind == "product":
        return prod(known)
    if kind == "sum":
        return sum(known)
    top = known[0] * int(tree[2])  # type: ignore[call-overload]
    return top // int(tree[3]) if top % int(tree[3]) == 0 else None  # type: ignore[call-overload]


def _ratio(name: str, sizes: Mapping[str, int]) -> int | None:
    if name in sizes or "/" not in name:
        return sizes.get(name)
    top, bottom = (sizes.get(part) for part in name.split("/"))
    return top // bottom if top and bottom and top % bottom == 0 else None


def _solve_for(tree: tuple[object, ...], name: str, sizes: Mapping[str, int], size: int) -> int | None:
    """Find the size of the one unknown symbol that makes the term come out at `size`."""
    for n in range(1, size * 64 + 1) if _evaluate(tree, {**sizes, name: 1}) is None else range(1, size + 1):
        value = _evaluate(tree, {**sizes, name: n})
        if value is not None and value >= size:
            return n if value == size else None
    return None


def size_of(term: str, sizes: Mapping[str, int]) -> int | None:
    """Return the number of entries of an axis name, or None where a symbol's size is not known.

    Example:
        >>> size_of("3(H D)", {"H": 3, "D": 16})
        144
    """
    return None if term == "?" else _evaluate(_parse_term(term), complete_sizes(sizes))
