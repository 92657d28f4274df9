"""What a rule sees and gives back, and the table of rules.

A rule is one pure function per family of operations: axes and arguments in, axes out. It is registered by its decorator
and nowhere else. It returns one list of axes for each output, or None where nothing can be known.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..naming import ONE, Space, Term
from ..speech import N_, say

__all__ = ["COMPARES", "CONTRACTS", "LINES_UP", "RULES", "Axes", "Axis", "Rule", "Step", "Tensor", "find_rule", "rule"]


LINES_UP = N_("{name} lines up {x} with {y}: both are {size} here, but they are different axes")
CONTRACTS = N_("{name} contracts {x} with {y}: both are {size} here, but they are different axes")
COMPARES = N_("{name} compares {x} with {y}: both are {size} here, but they are different axes")


class Axis:
    """One axis of one tensor: its term, whose it is where that matters, and whether a softmax ran along it.

    `soft`: 0 no; 1 the entries along this axis are weights that sum to 1; 2 such weights were multiplied into values.
    """

    __slots__ = ("origin", "soft", "term")

    def __init__(self, term: Term, origin: str | None = None, soft: int = 0) -> None:
        self.term, self.origin, self.soft = term, origin, soft

    @property
    def size(self) -> int:
        """Number of entries along this axis."""
        return self.term.size

    def marked(self, *, origin: str | None = None, soft: int | None = None) -> "Axis":
        """Return this axis with another mark."""
        return Axis(self.term, origin or self.origin, self.soft if soft is None else soft)


Axes = list[Axis]
UNIT = Axis(ONE)


class Tensor:
    """A tensor as a rule sees it: shape, axes, and whether it was made from inputs.

    `constant`: made without any input of the run (parameters, buffers, `arange`). `owner`: the variable that it is, or
    is a rearrangement of. `role`: "input", "parameter", "buffer", "constant", or "" for a result.
    """

    __slots__ = ("axes", "constant", "dtype", "owner", "role", "shape")

    def __init__(
        self, shape: Sequence[int], axes: Axes, *, constant: bool, owner: str | None, role: str = "", dtype: str = ""
    ) -> None:
        self.shape, self.axes, self.constant, self.owner = tuple(shape), axes, constant, owner
        self.role, self.dtype = role, dtype

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


class Step:
    """One operation in front of its rule."""

    __slots__ = ("args", "code", "kwargs", "literals", "name", "notices", "outs", "space")

    def __init__(
        self,
        space: Space,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: tuple[tuple[int, ...], ...],
        literals: tuple[str, ...] = (),
        code: str = "",
    ) -> None:
        self.space, self.name, self.args, self.kwargs, self.outs = space, name, args, kwargs, outs
        self.literals, self.code = literals, code
        self.notices: list[Callable[[], str | None]] = []

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument by position or keyword."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def maybe(self, index: int, name: str) -> Tensor | None:
        """Return an argument if it is a tensor."""
        found = self.arg(index, name)
        return found if isinstance(found, Tensor) else None

    def tensor(self, index: int = 0, name: str = "input") -> Tensor:
        """Return an argument that must be a tensor.

        Raises:
            LookupError: it is none; `namer` takes that as None from the rule.
        """
        found = self.arg(index, name)
        if not isinstance(found, Tensor):
            raise LookupError(name)
        return found

    def dim(self, index: int, rank: int, default: Any = None) -> int:
        """Return the argument `dim` or `axis`, counted from the front."""
        return axis_index(self.arg(index, "dim", self.kwargs.get("axis", default)), rank)

    def tensors(self) -> list[Tensor]:
        """Return every tensor among the arguments, in order, also those in lists."""
        return list(_tensors((*self.args, *self.kwargs.values())))

    def numbers(self, start: int, name: str) -> tuple[Any, ...]:
        """Return `f(x, 1, 2)` and `f(x, (1, 2))` alike as `(1, 2)`."""
        rest = self.args[start:] if len(self.args) > start else (self.kwargs.get(name, ()),)
        if len(rest) == 1 and isinstance(rest[0], tuple):
            return rest[0]
        return tuple(rest)

    def fresh(self, shape: Iterable[int]) -> Axes:
        """Return axes with no names yet."""
        return [Axis(self.space.fresh(n)) for n in shape]

    def warn(self, text: Callable[[], str | None]) -> None:
        """Add a warning, written once all names are known; None if there is nothing to say after all."""
        self.notices.append(text)

    def meet(self, a: Axis, b: Axis, how: str = LINES_UP) -> Axis:
        """Return the axis that two aligned axes are, as broadcasting does; a clash of names is a warning and `?`."""
        if a is b or (b.size == 1 and a.size != 1) or b is UNIT:
            return a
        if a is UNIT or (a.size == 1 and b.size != 1):
            return b
        if a.size != b.size:
            return Axis(self.space.fresh(max(a.size, b.size)))
        if a.size == 1:  # a parameter's axis of size 1 may be a bare 1: nothing is learned from where it stands
            for x, y in ((a, b), (b, a)):
                if (var := self.space.walk(x.term).var) is not None and var.options == ():
                    return y
        if self.space.unify(a.term, b.term):
            term = a.term if a.term.atoms else b.term
            origin = a.origin if a.origin == b.origin or b.origin is None else (b.origin if a.origin is None else None)
            return Axis(term, origin, max(a.soft, b.soft))
        if a.size > 1:
            self.clash(a.term, b.term, how)
        return Axis(self.space.fresh(a.size))

    def clash(self, a: Term, b: Term, how: str) -> None:
        """Warn that two different axes of one size were taken for each other; `how` is the sentence."""

        def text() -> str | None:
            x, y = (
                "a feature axis" if name == "?" and self.space.is_feature(t) else name
                for name, t in ((self.space.name(a), a), (self.space.name(b), b))
            )
            if "?" in (x, y) or x == y:
                return None
            return say(how, name=self.name, x=x, y=y, size=a.size)

        self.warn(text)

    def broadcast(self, tensors: Sequence[Tensor], how: str = LINES_UP) -> Axes:
        """Return the axes of an elementwise result."""
        rank = max((t.rank for t in tensors), default=0)
        out: Axes = [UNIT] * rank
        for t in tensors:
            for i, axis in enumerate(t.axes, start=rank - t.rank):
                out[i] = self.meet(out[i], axis, how)
        return out


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif type(v) is tuple:
            yield from _tensors(v)


Rule = Callable[[Step], "list[Axes] | None"]
RULES: dict[str, Rule] = {}


_R = TypeVar("_R", bound=Rule)


def rule(*names: str) -> Callable[[_R], _R]:
    """Register a rule under the names that users write; an in-place `name_` finds the rule of `name`."""

    def register(function: _R) -> _R:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
        return function

    return register


def find_rule(name: str) -> Rule | None:
    """Return the rule of an operation, or None; `exp_`, `special_exp` and `exp_copy` find the rule of `exp`."""
    found = RULES.get(name)
    if found is None:
        plain = name.removesuffix("_").removeprefix("special_").removeprefix("linalg_")
        found = RULES.get(plain) or RULES.get(plain.removesuffix("_copy"))
    return found


def axis_index(dim: int, rank: int) -> int:
    """Return a dimension counted from the front."""
    return dim + rank if dim < 0 else dim
