"""Why an operation failed, in named shapes, and what repairs it: the note that is added to the original exception.

Pure: works from the recorded operation and the exception's text. One small function for each kind of mistake, found by
the operation's name in a table; what none of them knows is still told with its line and its named shapes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from .naming import DATA
from .records import Op, TensorInfo
from .render.layout import as_written, concrete, place, plain
from .speech import say

__all__ = ["Case", "Finding", "explain", "known_names"]


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


class Finding(NamedTuple):
    """What is wrong, and the repair if one is known."""

    what: str
    repair: str = ""


Kind = Callable[[Case], Finding | None]
_BY_NAME: dict[str, list[Kind]] = {}
_FIRST: list[Kind] = []
_LAST: list[Kind] = []


def known_names() -> tuple[str, ...]:
    """Return the names of the operations that have advice of their own."""
    return tuple(sorted(_BY_NAME))


def kind(*names: str) -> Callable[[Kind], Kind]:
    """Register advice for the operations of these names."""

    def register(function: Kind) -> Kind:
        for name in names:
            _BY_NAME.setdefault(name, []).append(function)
        return function

    return register


def for_all(table: list[Kind]) -> Callable[[Kind], Kind]:
    """Register advice for every operation, before or after those with a name of their own."""

    def register(function: Kind) -> Kind:
        table.append(function)
        return function

    return register


def explain(op: Op, error: str, message: str, sizes: Mapping[str, int]) -> str:
    """Return the note for a failed operation: where, the named shapes, what is wrong, the repair if known.

    `error` is the exception's type name, `message` its text, `sizes` what is known of the symbols.
    """
    op = replace(op, inputs=tuple(as_written(info, op) for info in op.inputs))
    case = Case(op, error, message, sizes)
    found = _find(case)
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
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue  # arguments of a form it does not know: the user's own exception must leave, whatever happens here
        if found:
            return found
    return None


def _kinds_for(name: str) -> Iterable[Kind]:
    own = _BY_NAME.get(name) or _BY_NAME.get(name.rstrip("_"), [])
    return (*_FIRST, *own, *_LAST)


# ---------------------------------------------------------------- words for tensors and axes


def _described(info: TensorInfo) -> str:
    name = f"{info.variable} " if info.variable else ""
    return f"{name}{info.label}  {concrete(info)}  {_dtype(info)}"


def _dtype(info: TensorInfo) -> str:
    return info.dtype.removeprefix("torch.")


def _is_whole(info: TensorInfo) -> bool:
    return _dtype(info).startswith(("int", "uint"))


def _who(info: TensorInfo, otherwise: str) -> str:
    return info.variable or say(otherwise)


def _code(info: TensorInfo) -> str:
    """Return the variable to write before a dot, or nothing: `k.transpose(-2, -1)`, `.transpose(-2, -1)`."""
    name = info.variable or ""
    return name if name.removeprefix("self.").isidentifier() else ""


def _axis(info: TensorInfo, i: int) -> str:
    """Return an axis with its size, `D = 7`; only the size where it has no name."""
    name, size = info.axes[i], info.shape[i]
    return say("size {n}", n=size) if name in ("?", str(size)) else f"{name} = {size}"


def _product(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _rank(info: TensorInfo) -> int:
    return len(info.shape)


def _last_two(info: TensorInfo, otherwise: str) -> str:
    return say("transpose the last two axes of {x}: {c}.transpose(-2, -1).", x=_who(info, otherwise), c=_code(info))


# ---------------------------------------------------------------- how two shapes could fit


def _clash(a: TensorInfo, b: TensorInfo, skip: int = 0) -> int | None:
    """Return the first axis from the right (-1, -2, …) that does not broadcast, after the last `skip` axes."""
    for i in range(-1 - skip, -min(_rank(a), _rank(b)) - 1, -1):
        if a.shape[i] != b.shape[i] and 1 not in (a.shape[i], b.shape[i]):
            return i
    return None


def _fitting(small: TensorInfo, large: TensorInfo) -> str:
    """Return the calls that line `small` up with `large` by the names of its axes, or ""."""
    if _rank(small) == _rank(large):
        return _reordered(small, large)
    at: list[int] = []
    stop = _rank(large)
    for name, size in zip(reversed(small.axes), reversed(small.shape), strict=True):
        places = [i for i in range(stop) if large.axes[i] == name and large.shape[i] == size]
        if not places or name == "?":
            return ""
        stop = places[-1]
        at.insert(0, stop)
    gaps = [i for i in range(at[0], _rank(large)) if i not in at] if at else []
    return "".join(f".unsqueeze({i - at[0]})" for i in gaps)


def _reordered(mine: TensorInfo, theirs: TensorInfo) -> str:
    """Return the transpose or permute that puts the same axes into the same order, or ""."""
    names = list(mine.axes)
    if sorted(names) != sorted(theirs.axes) or len(set(names)) != len(names) or "?" in names:
        return ""
    order = [names.index(name) for name in theirs.axes]
    if [mine.shape[i] for i in order] != list(theirs.shape):
        return ""
    moved = [i for i, j in enumerate(order) if i != j]
    call = f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute({', '.join(map(str, order))})"
    return f".{call}"


# ---------------------------------------------------------------- any operation: looked at first


@for_all(_FIRST)
def _devices(case: Case) -> Finding | None:
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if a.device != b.device]
    if not pairs or "device" not in case.message:
        return None
    a, b = pairs[0]
    what = say(
        "{a} is on {x}, {b} is on {y}; one operation works on one device.",
        a=_who(a, "the first tensor"), x=a.device, b=_who(b, "another tensor"), y=b.device,
    )  # fmt: skip
    return Finding(what, say('move one to the other\'s device: {b}.to("{x}").', b=_code(b), x=a.device))


@for_all(_FIRST)
def _dim_range(case: Case) -> Finding | None:
    found = re.search(r"Dimension out of range .*got (-?\d+)", case.message)
    if found is None or not case.inputs:
        return None
    x, dim = case.inputs[0], int(found.group(1))
    what = say(
        "{x} has {n} axes, {label}, numbered 0 to {last} or -{n} to -1; there is no axis {dim}.",
        x=_who(x, "the tensor"), n=_rank(x), label=x.label, last=_rank(x) - 1, dim=dim,
    )  # fmt: skip
    if dim == _rank(x) and "B" not in x.axes:
        return Finding(what, say("if the batch axis is missing, add it in front: {c}.unsqueeze(0).", c=_code(x)))
    return Finding(what, say("count from the end where you mean the end: dim=-1 is the last axis."))


# ---------------------------------------------------------------- products


@kind("mm", "bmm")
def _product_rank(case: Case) -> Finding | None:
    wanted = {"mm": 2, "bmm": 3}[case.op.name]
    odd = next((info for info in case.inputs if _rank(info) != wanted), None)
    if odd is None:
        return None
    what = say(
        "{name} takes tensors of {n} axes; {x} has {m}.",
        name=case.op.name, n=wanted, x=_who(odd, "one of these"), m=_rank(odd),
    )  # fmt: skip
    return Finding(what, say("write a @ b, which takes any number of axes before the last two."))


@kind("matmul", "bmm", "mm", "mv", "linalg_matmul", "addmm", "baddbmm")
def _contraction(case: Case) -> Finding | None:
    pair = case.inputs[1:3] if case.op.name in ("addmm", "baddbmm") else case.inputs[:2]
    if len(pair) < 2 or not all(info.shape for info in pair):
        return None
    a, b = pair
    row = -2 if _rank(b) > 1 else -1
    if a.shape[-1] == b.shape[row]:
        return None
    what = say(
        "a product sums over the last axis of the left side and the {row} of the right; "
        "here these are {x} and {y}, and must be the same axis.",
        row=say("second to last") if row == -2 else say("only one"), x=_axis(a, -1), y=_axis(b, row),
    )  # fmt: skip
    return Finding(what, _contraction_repair(a, b))


def _contraction_repair(a: TensorInfo, b: TensorInfo) -> str:
    """Try the usual repairs on the shapes, and name the first that makes them fit."""
    if _rank(b) < 2:
        return ""
    if _multiply(a.shape, _swapped(b.shape)):
        return _last_two(b, "the right side")
    if _rank(a) > 1 and _multiply(_swapped(a.shape), b.shape):
        return _last_two(a, "the left side")
    if b.axes[-3:-1] in (("T", "H"), ("S", "H")):
        x = _who(b, "the right side")
        return say("{x} is {label}: .transpose(1, 2) after its view brings the heads in front.", x=x, label=b.label)
    return _join(a, b.shape[-2])


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _multiply(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Tell whether two shapes, of two axes or more on the right side, make a product."""
    leading = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return a[-1] == b[-2] and all(m == n or 1 in (m, n) for m, n in leading)


def _join(x: TensorInfo, wanted: int) -> str:
    """Return how the heads are joined where that gives the width that is wanted, or ""."""
    if _rank(x) > 1 and x.shape[-2] * x.shape[-1] == wanted and x.axes[-2] not in ("T", "S"):
        return say("join the last two axes first: {c}.flatten(-2).", c=_code(x))
    if _rank(x) > 2 and x.shape[-3] * x.shape[-1] == wanted and x.axes[-3] == "H":
        return say("bring the heads next to their features, then join: {c}.transpose(-3, -2).flatten(-2).", c=_code(x))
    return ""


@kind("matmul", "bmm", "linalg_matmul")
def _leading_axes(case: Case) -> Finding | None:
    if len(case.inputs) < 2:
        return None
    a, b = case.inputs[:2]
    if (at := _clash(a, b, skip=2)) is None:
        return None
    what = say(
        "all axes before the last two must agree, lined up from the right; "
        "the left side has {x} where the right has {y}.",
        x=_axis(a, at), y=_axis(b, at),
    )  # fmt: skip
    return Finding(what, _leading_repair(a, b, at))


def _leading_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    """Grouped heads, heads not moved in front of the positions, or an axis that one side lacks."""
    if a.axes[at] == "H" and b.axes[at] == "G" and a.shape[at] % b.shape[at] == 0:
        n, dim = a.shape[at] // b.shape[at], _rank(b) + at
        return say(
            "let {n} query heads share a key head: {c}.repeat_interleave({n}, dim={dim}).", n=n, c=_code(b), dim=dim
        )
    for one, other in ((a, b), (b, a)):
        if one.axes[at] == "H" and other.axes[at] in ("T", "S") and "H" in other.axes:
            x = _who(other, "the tensor")
            return say("bring the heads of {x} before its positions: .transpose(1, 2) right after the view.", x=x)
    if _rank(a) != _rank(b):
        small = min(a, b, key=_rank)
        return say("give {x} the axis it lacks with .unsqueeze(...).", x=_who(small, "the smaller tensor"))
    return ""


@kind("linear")
def _features(case: Case) -> Finding | None:
    x, weight, *_ = [*case.inputs, None, None]
    if x is None or weight is None or not x.shape or _rank(weight) != 2 or x.shape[-1] == weight.shape[1]:
        return None
    what = say(
        "this layer takes {n} features and gives {m}; the last axis of {x} is {axis}.",
        n=weight.shape[1], m=weight.shape[0], x=_who(x, "its input"), axis=_axis(x, -1),
    )  # fmt: skip
    if joined := _join(x, weight.shape[1]):
        return Finding(what, joined)
    for i in reversed(range(_rank(x) - 1)):
        if x.shape[i] == weight.shape[1]:
            return Finding(what, say("bring {a} to the end: {c}.transpose({i}, -1).", a=_axis(x, i), c=_code(x), i=i))
    if x.axes[-1] in DATA:
        return Finding(say("{what} That is no feature axis: this is not the tensor that the layer is for.", what=what))
    return Finding(
        what,
        say("make the layer nn.Linear({n}, {m}), or give it what it was made for.", n=x.shape[-1], m=weight.shape[0]),
    )


@kind("einsum")
def _letters(case: Case) -> Finding | None:
    equation = next((a for a in case.op.args if isinstance(a, str)), "").removeprefix("equation=").replace(" ", "")
    groups = equation.split("->", 1)[0].split(",")
    if not equation or "." in equation or len(groups) != len(case.inputs):
        return None
    seen: dict[str, tuple[int, str]] = {}
    for letters, info in zip(groups, case.inputs, strict=True):
        if len(letters) != _rank(info):
            return Finding(
                say(
                    "'{letters}' names {n} axes, and its tensor is {label}.",
                    letters=letters,
                    n=len(letters),
                    label=info.label,
                )
            )
        for i, letter in enumerate(letters):
            size, first = seen.setdefault(letter, (info.shape[i], _axis(info, i)))
            if size != info.shape[i]:
                what = say(
                    "the letter {x} stands for {a} first and for {b} later.", x=letter, a=first, b=_axis(info, i)
                )
                return Finding(
                    what,
                    say("write the letters in the order of each tensor's axes; two different axes need two letters."),
                )
    return None


@kind("scaled_dot_product_attention")
def _attention(case: Case) -> Finding | None:
    if len(case.inputs) < 3:
        return None
    q, k, v, *mask = case.inputs
    if q.shape[-1] != k.shape[-1]:
        what = say("q and k are compared feature by feature; q has {x}, k has {y}.", x=_axis(q, -1), y=_axis(k, -1))
        return Finding(what, say("give q and k the same head size."))
    if _rank(k) > 1 < _rank(v) and k.shape[-2] != v.shape[-2]:
        what = say("every key has one value; k has {x} positions, v has {y}.", x=_axis(k, -2), y=_axis(v, -2))
        return Finding(what, say("make k and v from the same tensor."))
    if (at := _clash(q, k, skip=2)) is not None:
        what = say("q has {x} where k has {y}.", x=_axis(q, at), y=_axis(k, at))
        if at == -3 and q.axes[at] == "H" and q.shape[at] % k.shape[at] == 0:
            n = q.shape[at] // k.shape[at]
            return Finding(what, say("pass enable_gqa=True: {n} query heads then share each key head.", n=n))
        return Finding(what, _leading_repair(q, k, at))
    return _attention_mask(q, k, mask[0]) if mask else None


def _attention_mask(q: TensorInfo, k: TensorInfo, mask: TensorInfo) -> Finding | None:
    """A mask must broadcast to the scores, `[B, H, T, S]`, and be bool or float."""
    if _is_whole(mask):
        what = say(
            "the mask is {dtype}; it must be bool (True: may look) or float (added to the scores).", dtype=_dtype(mask)
        )
        return Finding(what, say("{c}.bool()", c=_code(mask) or say("mask")))
    scores = (*q.shape[:-1], k.shape[-2])
    wrong = [i for i in range(-1, -min(len(scores), _rank(mask)) - 1, -1) if mask.shape[i] not in (1, scores[i])]
    if not wrong:
        return None
    names = f"[{', '.join((*q.axes[:-1], k.axes[-2]))}]"
    what = say("the mask {label} is added to scores {names}, lined up from the right.", label=mask.label, names=names)
    if _rank(mask) == len(scores) - 1:
        return Finding(what, say("give it the axis of the heads: {c}.unsqueeze(1).", c=_code(mask)))
    if all(mask.shape[i] > scores[i] for i in wrong):
        return Finding(what, _cut(mask, scores))
    return Finding(what, say("give the mask the shape of the scores, with 1 for axes that it does not depend on."))


# ---------------------------------------------------------------- views


@kind("view", "view_as")
def _not_contiguous(case: Case) -> Finding | None:
    if "not compatible with input tensor's size and stride" not in case.message or not case.inputs:
        return None
    what = say(
        "view never moves data, and the axes of {x} that it would join or cut do not lie next to each other in memory: "
        "a transpose changed the order of the axes, not the data.",
        x=_who(case.inputs[0], "the tensor"),
    )  # fmt: skip
    repair = say(
        "{c}.contiguous().view(...) or {c}.reshape(...), which copies where it must. "
        "Keep the transpose: without it the view would run, and mix the axes.",
        c=_code(case.inputs[0]),
    )  # fmt: skip
    return Finding(what, repair)


@kind("view", "reshape", "unflatten")
def _wrong_count(case: Case) -> Finding | None:
    found = re.search(r"shape '\[([-\d, ]*)\]' is invalid|Provided sizes \[([-\d, ]*)\] don't multiply", case.message)
    if found is None or not case.inputs:
        return None
    x = case.inputs[0]
    wanted = [int(n) for n in (found.group(1) or found.group(2) or "").split(",") if n.strip()]
    have, names = list(x.shape), list(x.axes)
    if found.group(2) is not None:
        dim = case.dim(0, -1)
        have, names = [x.shape[dim]], [x.axes[dim]]
    while wanted and have and wanted[0] == have[0] and len(wanted) > 1 and len(have) > 1:
        del wanted[0], have[0], names[0]  # axes in front that stay as they are
    whole = prod(have)
    label = names[0] if len(names) == 1 and names[0] != "?" else f"[{', '.join(names)}]"
    parts = [n for n in wanted if n >= 0]
    new = say("the new axis has") if len(wanted) == 1 else say("the new axes make {sizes} =", sizes=_product(parts))
    what = say(
        "{label} has {have} entries; {new} {n}.",
        label=label, have=whole, new=new, n=prod(parts),
    )  # fmt: skip
    if -1 in wanted:
        what = say("{n} does not divide the {have} entries of {label}.", n=prod(parts), have=whole, label=label)
    return Finding(what, _split_repair(whole, [n for n in wanted if n > 0], -1 in wanted))


def _split_repair(whole: int, parts: list[int], open_: bool) -> str:
    if not parts or prod(parts) == whole or (len(parts) == 1 and not open_):
        return ""
    n = parts[0]
    if whole % n:
        divisors = [k for k in range(1, whole + 1) if whole % k == 0]
        near = sorted(sorted(divisors, key=lambda k: abs(k - n))[:3])
        return say(
            "{whole} % {n} = {rest}: choose a number that divides {whole}, for example {near}.",
            whole=whole, n=n, rest=whole % n, near=", ".join(map(str, near)),
        )  # fmt: skip
    if len(parts) == 2:
        return say(
            "{n} equal parts of {whole} have {each} entries each, not {m}.",
            n=n,
            whole=whole,
            each=whole // n,
            m=parts[1],
        )
    return ""


@kind("view", "reshape")
def _two_open(case: Case) -> Finding | None:
    if "only one dimension can be inferred" not in case.message:
        return None
    return Finding(say("-1 stands for the one size that follows from the others; it was given twice."))


@kind("split", "split_with_sizes")
def _split_sum(case: Case) -> Finding | None:
    found = re.search(r"sum exactly to (\d+) .*dimension (-?\d+)\).*split_sizes=\[([-\d, ]*)\]", case.message)
    if found is None or not case.inputs:
        return None
    x, dim = case.inputs[0], int(found.group(2))
    parts = [int(n) for n in found.group(3).split(",") if n.strip()]
    sum_ = f"{' + '.join(map(str, parts))} = {sum(parts)}"
    what = say("the parts must make up the whole axis, {axis}; {sum} does not.", axis=_axis(x, dim), sum=sum_)
    if parts and x.shape[dim] % parts[0] == 0:
        n = x.shape[dim] // parts[0]
        return Finding(
            what, say("{c}.split({size}, dim={dim}) makes {n} equal parts.", c=_code(x), size=parts[0], dim=dim, n=n)
        )
    return Finding(what)


@kind("permute")
def _permutation(case: Case) -> Finding | None:
    if "number of dimensions" not in case.message or not case.inputs:
        return None
    x = case.inputs[0]
    what = say(
        "permute needs every axis once: {x} has {n}, and {m} were given.",
        x=_who(x, "the tensor"),
        n=_rank(x),
        m=len(case.numbers),
    )
    if len(case.numbers) == _rank(x) + 1:
        return Finding(
            what, say("if an axis is missing, split or unsqueeze it first; {label} is what there is.", label=x.label)
        )
    return Finding(what)


@kind("expand", "expand_as", "broadcast_to")
def _expansion(case: Case) -> Finding | None:
    found = re.search(r"expanded size of the tensor \((\d+)\) .*  Target sizes: \[([\d, ]*)\]", case.message)
    if not case.inputs or found is None:
        return None
    x, target = case.inputs[0], [int(n) for n in found.group(2).split(",") if n.strip()]
    at = next((i for i in range(-1, -_rank(x) - 1, -1) if x.shape[i] not in (1, target[i])), None)
    if at is None:
        return None
    what = say(
        "expand only stretches axes of size 1, lined up from the right; {axis} cannot become {n}.",
        axis=_axis(x, at), n=target[at],
    )  # fmt: skip
    return Finding(what, say("put an axis of size 1 where the new one belongs: {c}.unsqueeze(dim).", c=_code(x)))


# ---------------------------------------------------------------- joining


@kind("cat", "concat", "concatenate")
def _joined(case: Case) -> Finding | None:
    if len(case.inputs) < 2:
        return None
    first, *rest = case.inputs
    odd = next((info for info in rest if _rank(info) != _rank(first)), None)
    if odd is not None:
        what = say("cat joins tensors with equally many axes; there are {a} and {b}.", a=first.label, b=odd.label)
        return Finding(what, say("add what is missing with unsqueeze, or stack along a new axis."))
    dim = case.dim(0, 0) % max(_rank(first), 1)
    for n, info in enumerate(rest, start=1):
        for i in range(_rank(first)):
            if i != dim and info.shape[i] != first.shape[i]:
                what = say(
                    "cat joins along axis {dim}; every other axis must be equal, "
                    "and axis {i} is {a} in tensor 0, {b} in tensor {n}.",
                    dim=dim, i=i, a=_axis(first, i), b=_axis(info, i), n=n,
                )  # fmt: skip
                same = [j for j in range(_rank(first)) if first.shape[j] != info.shape[j]]
                return Finding(what, say("these two fit along dim={i}.", i=i) if same == [i] else "")
    return None


@kind("stack")
def _stacked(case: Case) -> Finding | None:
    odd = next((info for info in case.inputs[1:] if info.shape != case.inputs[0].shape), None)
    if odd is None:
        return None
    what = say(
        "stack puts equal tensors side by side along a new axis; there are {a} ({m}) and {b} ({n}).",
        a=case.inputs[0].label,
        m=concrete(case.inputs[0]),
        b=odd.label,
        n=concrete(odd),
    )
    return Finding(what, say("cut or pad them to one length, or join them along an axis with cat."))


# ---------------------------------------------------------------- lookups, losses, norms


@kind("embedding")
def _ids(case: Case) -> Finding | None:
    if len(case.inputs) < 2:
        return None
    ids, weight = case.inputs[:2]
    x = _who(ids, "its input")
    if "indices" in case.message and not _is_whole(ids):
        what = say("an embedding looks rows up by whole numbers; {x} is {dtype}.", x=x, dtype=_dtype(ids))
        return Finding(what, say("give it token ids, int64: {c}.long() where the numbers are whole.", c=_code(ids)))
    if "out of range" not in case.message:
        return None
    rows = weight.shape[0]
    if weight.axes[0] != "V" and ids.shape and ids.shape[-1] > rows:
        what = say("the table has {n} positions, and {x} asks for {m}.", n=rows, x=x, m=ids.shape[-1])
        return Finding(what, say("keep the last {n} positions, or make the model with a larger block_size.", n=rows))
    what = say(
        "the table {label} has rows 0 to {last}; {x} holds a number outside.", label=weight.label, last=rows - 1, x=x
    )
    return Finding(
        what, say("look at {c}.min() and {c}.max(); tokenizer and model need the same vocabulary.", c=_code(ids))
    )


@kind("cross_entropy", "nll_loss")
def _loss(case: Case) -> Finding | None:
    if len(case.inputs) < 2:
        return None
    logits, target = case.inputs[:2]
    a, b = _code(logits) or say("logits"), _code(target) or say("targets")
    if "out of bounds" in case.message and _rank(logits):
        n = logits.shape[1] if _rank(logits) > 1 else logits.shape[0]
        what = say("there are {n} classes, 0 to {last}; {b} holds a number outside.", n=n, last=n - 1, b=b)
        return Finding(what, say("look at {b}.max(); positions to leave out bear ignore_index, -100.", b=b))
    if "dtype" in case.message and target.shape == logits.shape[:1] + logits.shape[2:]:
        what = say("{b} are class numbers and must be int64; they are {dtype}.", b=b, dtype=_dtype(target))
        return Finding(what, say("{b}.long()", b=b))
    return _loss_shapes(logits, target, a, b)


def _loss_shapes(logits: TensorInfo, target: TensorInfo, a: str, b: str) -> Finding | None:
    what = say("cross_entropy wants the classes on axis 1 and one target for the rest: [N, V] and [N].")
    if _rank(logits) == 3 and _rank(target) == 2:
        flat = say("flatten both: {a}.view(-1, {a}.size(-1)) and {b}.view(-1).", a=a, b=b)
        return Finding(say("{what} Here axis 1 is {axis}.", what=what, axis=_axis(logits, 1)), flat)
    if _rank(logits) == 2 and _rank(target) == 2:
        return Finding(what, say("flatten the targets as well: {b}.view(-1).", b=b))
    if _rank(logits) == 3 and _rank(target) == 1:
        return Finding(what, say("flatten the logits as well: {a}.view(-1, {a}.size(-1)).", a=a))
    if logits.shape and target.shape and logits.shape[0] != target.shape[0]:
        what = say("there are {n} rows of logits and {m} targets.", n=logits.shape[0], m=target.shape[0])
        return Finding(
            what, say("where targets are shifted, shorten both: logits [:, :-1], targets [:, 1:], and then flatten.")
        )
    return None


@kind("layer_norm", "rms_norm")
def _normalized(case: Case) -> Finding | None:
    found = re.search(r"normalized_shape=\[([\d, ]+)\], expected input", case.message)
    if found is None or not case.inputs or not case.inputs[0].shape:
        return None
    x, wanted = case.inputs[0], found.group(1)
    what = say(
        "this norm was made for a last axis of {n}; the last axis of {x} is {axis}.",
        n=wanted,
        x=_who(x, "its input"),
        axis=_axis(x, -1),
    )
    if not wanted.isdigit():
        return Finding(what)
    if joined := _join(x, int(wanted)):
        return Finding(what, joined)
    if int(wanted) in x.shape[:-1]:
        i = x.shape.index(int(wanted))
        return Finding(what, say("bring {a} to the end: {c}.transpose({i}, -1).", a=_axis(x, i), c=_code(x), i=i))
    return Finding(what, say("make the norm for {n}.", n=x.shape[-1]))


@kind("conv1d", "conv2d", "conv3d")
def _channels(case: Case) -> Finding | None:
    found = re.search(r"to have (\d+) channels, but got (\d+)", case.message)
    if found is None or _rank(case.inputs[0]) < 2:
        return None
    x, wanted = case.inputs[0], int(found.group(1))
    what = say(
        "a convolution reads channels on axis 1; it takes {n}, and axis 1 of {x} is {axis}.",
        n=wanted,
        x=_who(x, "its input"),
        axis=_axis(x, 1),
    )
    places = [i for i in range(2, _rank(x)) if x.shape[i] == wanted]
    if places:
        return Finding(what, say("{c}.transpose(1, {i})", c=_code(x), i=places[-1]))
    return Finding(what)


@kind("getitem", "select", "index_select")
def _index(case: Case) -> Finding | None:
    if not case.inputs:
        return None
    x = case.inputs[0]
    if "too many indices" in case.message:
        return Finding(
            say("{x} has {n} axes, {label}; more were indexed.", x=_who(x, "the tensor"), n=_rank(x), label=x.label)
        )
    found = re.search(r"index (-?\d+) is out of bounds for dimension (\d+)", case.message)
    if found is None or int(found.group(2)) >= _rank(x):
        return None
    i, dim = int(found.group(1)), int(found.group(2))
    return Finding(
        say(
            "axis {dim} is {axis}: its places are 0 to {last}, and {i} was asked for.",
            dim=dim,
            axis=_axis(x, dim),
            last=x.shape[dim] - 1,
            i=i,
        )
    )


@kind("masked_fill", "where")
def _mask_type(case: Case) -> Finding | None:
    if "boolean" not in case.message:
        return None
    mask = case.inputs[1 if case.op.name.startswith("masked") and len(case.inputs) > 1 else 0]
    what = say("a mask says yes or no; {x} is {dtype}.", x=_who(mask, "the mask"), dtype=_dtype(mask))
    return Finding(what, say("compare it: {c} == 0 marks its zeros; or {c}.bool().", c=_code(mask) or say("mask")))


# ---------------------------------------------------------------- any operation: looked at last


@for_all(_LAST)
def _dtypes(case: Case) -> Finding | None:
    """Types that do not go together; an integer where a fraction is needed."""
    if not re.search(r"dtype|scalar type|not implemented for", case.message):
        return None
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if _dtype(a) != _dtype(b)]
    if pairs and not re.search(r"not implemented for|infer", case.message):
        a, b = pairs[0]
        what = say(
            "{a} is {x}, {b} is {y}; this operation wants one type.",
            a=_who(a, "the first tensor"),
            x=_dtype(a),
            b=_who(b, "another"),
            y=_dtype(b),
        )
        if _is_whole(a) != _is_whole(b):
            ids = a if _is_whole(a) else b
            return Finding(
                what, say("token ids go through an embedding first; quantities become {c}.float().", c=_code(ids))
            )
        return Finding(what, say("{b}.to({a}.dtype)", a=_code(a) or "x", b=_code(b)))
    whole = next((info for info in case.inputs if _is_whole(info) or _dtype(info) == "bool"), None)
    if whole is None:
        return None
    what = say(
        "{name} works on floating-point numbers; {x} is {dtype}.",
        name=case.op.name,
        x=_who(whole, "the tensor"),
        dtype=_dtype(whole),
    )
    return Finding(what, say("{c}.float()", c=_code(whole)))


@for_all(_LAST)
def _broadcast(case: Case) -> Finding | None:
    """Two shapes that do not line up: sums, masks, comparisons, and whatever else combines entry by entry."""
    if not re.search(r"must match the size|broadcast", case.message):
        return None
    for a, b in combinations(case.inputs, 2):
        if (at := _clash(a, b)) is not None:
            what = say(
                "shapes are lined up from the right; {a} has {x} where {b} has {y}, and neither is 1.",
                a=_who(a, "the first"), x=_axis(a, at), b=_who(b, "the second"), y=_axis(b, at),
            )  # fmt: skip
            return Finding(what, _broadcast_repair(a, b, at))
    if case.op.name.endswith("_") and len(case.inputs) > 1 and _rank(case.inputs[1]) > _rank(case.inputs[0]):
        what = say("an in-place operation cannot grow {x}.", x=_who(case.inputs[0], "its tensor"))
        return Finding(what, say("use {name} without the underscore.", name=case.op.name.rstrip("_")))
    return None


def _broadcast_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    small, large = (a, b) if _rank(a) < _rank(b) else (b, a)
    if calls := _fitting(small, large):
        return say("line them up by name: {c}{calls}.", c=_code(small), calls=calls)
    if (_rank(small), _rank(large)) == (3, 4) and small.shape == (large.shape[0], *large.shape[2:]):
        return say("give it the axis of the heads: {c}.unsqueeze(1).", c=_code(small))
    for long, other in ((a, b), (b, a)):
        names = (long.axes[at], other.axes[at])
        if long.shape[at] > other.shape[at] and {*names} & {"T", "S"} and names[0] in ("?", "T", "S"):
            return _cut(long, other.shape)
    if _rank(a) == _rank(b) and at == -1:
        return say("bring one to the width of the other with a linear layer before they meet.")
    return ""


def _cut(long: TensorInfo, shape: Sequence[int]) -> str:
    """Return the index that cuts a buffer made for the longest text to the positions in use."""
    n = min(_rank(long), len(shape))
    longer = [i for i in range(-n, 0) if long.shape[i] > shape[i]]
    index = ", ".join(f":{shape[i]}" if i in longer else ":" for i in range(longer[0], 0)) if longer else ""
    return say("cut it to the positions in use: {x}[..., {index}].", x=_code(long), index=index) if index else ""
