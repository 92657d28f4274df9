"""Why an operation failed, in named shapes, and what repairs it: the note that is added to the original exception.

Pure: works from the recorded operation and the exception's text. One small function for each kind of mistake, found by
the operation's name in a table; what none of them knows is still told with its line and its named shapes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import prod
from typing import NamedTuple

from .naming import DATA
from .records import Op, TensorInfo
from .render.layout import as_written, concrete, place, plain
from .speech import N_, say, say_count

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
        except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError):
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


def _unmoved(case: Case, info: TensorInfo) -> TensorInfo:
    """Return an operand as it was before the line transposed it (`k` for the `k.T` of `q @ k.T`), or itself."""
    found = re.findall(r"([\w.]+)\.(T|mT|(?:transpose|permute)\(([-\d, ]+)\))(?!\w)", _line(case))
    if info.variable or len(found) != 1 or "." in found[0][0].removeprefix("self."):
        return info
    name, call, numbers = found[0]
    order = list(range(_rank(info)))
    given = [int(n) % len(order) for n in numbers.split(",")] if numbers else [-2, -1]
    if call == "T":
        order.reverse()
    elif call.startswith("permute"):
        order = [given.index(i) for i in order]
    else:
        order[given[0]], order[given[1]] = order[given[1]], order[given[0]]
    shape, axes = tuple(info.shape[i] for i in order), tuple(info.axes[i] for i in order)
    return replace(info, variable=name, shape=shape, axes=axes)


def _line(case: Case) -> str:
    return case.op.source.code if case.op.source else ""


def _is_own(case: Case, info: TensorInfo) -> bool:
    """Tell whether a tensor belongs to the layer: its weights keep their type, what comes in is converted."""
    layer = case.op.name in ("linear", "layer_norm", "rms_norm") and info is not case.inputs[0]
    return layer or "." in (info.variable or "")


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


def _alike(a: TensorInfo, i: int, b: TensorInfo, j: int) -> bool:
    """Tell whether two axes can be the same one: of one size, and not known under two names."""
    return a.shape[i] == b.shape[j] and (a.axes[i] == b.axes[j] or "?" in (a.axes[i], b.axes[j]))


def _fitting(small: TensorInfo, large: TensorInfo) -> str:
    """Return the index, transpose or permute that lines `small` up with `large`, or ""."""
    n, m = _rank(small), _rank(large)
    if n == m:
        return _reordered(small, large)
    fits = [at for at in combinations(range(m), n) if all(_alike(small, i, large, j) for i, j in enumerate(at))]
    if not n or not fits:
        return ""
    at = max(fits)  # a padding mask [B, T] hides keys, the last axis of the scores
    return f"[{', '.join(':' if i in at else 'None' for i in range(at[0], m))}]"


def _reordered(mine: TensorInfo, theirs: TensorInfo, free: int | None = None) -> str:
    """Return the transpose or permute that puts the same axes into one order, or ""; axis `free` may differ in size."""
    if not 1 < _rank(mine) == _rank(theirs) < 6:
        return ""
    orders = [
        order
        for order in permutations(range(_rank(mine)))
        if all(_alike(mine, i, theirs, j) for j, i in enumerate(order) if j != free)
    ]
    moves = [[i for i, j in enumerate(order) if i != j] for order in orders]
    moved = min(moves, key=len, default=[])
    if not moved:
        return ""
    order = orders[moves.index(moved)]
    return f".transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f".permute({', '.join(map(str, order))})"


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
    return Finding(what, _contraction_repair(case, a, b))


def _contraction_repair(case: Case, a: TensorInfo, b: TensorInfo) -> str:
    """Try the usual repairs on the shapes, and name the first that makes them fit."""
    if _rank(b) < 2:
        return ""
    if _multiply(a.shape, _swapped(b.shape)):
        return _last_two(b, "the right side")
    if (k := _unmoved(case, b)) != b and _multiply(a.shape, _swapped(k.shape)):
        return say("swap only the last two axes: {c}.transpose(-2, -1).", c=_code(k))
    if _rank(a) > 1 and b.shape[-1] == b.shape[-2] and _alike(b, -1, a, -2) and _multiply(b.shape, a.shape):
        x, y = _who(b, "the right side"), _who(a, "the left side")
        return say("change the order: {x} @ {y}.", x=x, y=y)
    if _rank(a) > 1 and _multiply(_swapped(a.shape), b.shape):
        return _last_two(a, "the left side")
    if _rank(b) > 2:
        heads = _heads_first(b.shape)
        for shape, call in ((heads, ""), (_swapped(heads), ".transpose(-2, -1)")):
            if _multiply(a.shape, shape):
                code = f"{_code(b)}.transpose({_rank(b) - 3}, {_rank(b) - 2}){call}"
                x = _who(b, "the right side")
                return say("{x} is {label}; bring the heads in front: {code}.", x=x, label=b.label, code=code)
    return _join(a, b.shape[-2])


def _heads_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _multiply(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Tell whether two shapes, of two axes or more on the right side, make a product."""
    leading = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return a[-1] == b[-2] and all(m == n or 1 in (m, n) for m, n in leading)


def _join(x: TensorInfo, wanted: int) -> str:
    """Return how the heads are joined where that gives the width that is wanted, or ""."""
    n = _rank(x)
    if n > 1 and x.shape[-2] * x.shape[-1] == wanted and x.axes[-2] not in ("T", "S"):
        return say("join the last two axes first: {c}.flatten({i}).", c=_code(x), i=n - 2)
    if n > 2 and x.shape[-3] * x.shape[-1] == wanted and x.axes[-3] in ("H", "?"):
        return say("join the heads first: {c}.transpose({i}, {j}).flatten({j}).", c=_code(x), i=n - 3, j=n - 2)
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
    before = _unmoved(case, b)
    return Finding(what, _leading_repair(a, before if before.shape[:-2] == b.shape[:-2] else b, at))


def _leading_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    """Grouped heads, heads not moved in front of the positions, or an axis that one side lacks."""
    if _heads_behind(a, b, at):
        known = [x for x in (a, b) if x.axes[at] in ("T", "S")]
        x = _who(known[0], "the tensor") if len(known) == 1 else say("the side that is [B, T, H, D]")
        return say("bring the heads of {x} before its positions: .transpose(1, 2) right after the view.", x=x)
    if at == -3 and _rank(b) == 4 and b.axes[at] in ("G", "?") and a.shape[at] % b.shape[at] == 0:
        n, dim = a.shape[at] // b.shape[at], _rank(b) + at
        return say(
            "let {n} query heads share a key head: {c}.repeat_interleave({n}, dim={dim}).", n=n, c=_code(b), dim=dim
        )
    if _rank(a) != _rank(b):
        small = min(a, b, key=_rank)
        return say("give {x} the axis it lacks with .unsqueeze(...).", x=_who(small, "the smaller tensor"))
    return ""


def _heads_behind(a: TensorInfo, b: TensorInfo, at: int) -> bool:
    """Tell whether one side has its heads before its positions, the other behind."""
    if at != -3:
        return False
    names = {a.axes[at], b.axes[at]}
    if "?" not in names:
        return "H" in names and bool(names & {"T", "S"}) and "H" in a.axes and "H" in b.axes
    return a.shape[at] in b.shape[-2:] and b.shape[at] in a.shape[-2:]


@kind("linear")
def _features(case: Case) -> Finding | None:
    x, weight, *_ = [*case.inputs, None, None]
    if x is None or weight is None or not x.shape or _rank(weight) != 2 or x.shape[-1] == weight.shape[1]:
        return None
    what = say(
        "this layer takes {n} features and gives {m}; the last axis of {x} is {axis}.",
        n=weight.shape[1], m=weight.shape[0], x=_who(x, "its input"), axis=_axis(x, -1),
    )  # fmt: skip
    make = say("make the layer nn.Linear({n}, {m})", n=x.shape[-1], m=weight.shape[0])
    return _width(what, x, weight.shape[1], make)


def _width(what: str, x: TensorInfo, wanted: int, make: str) -> Finding:
    """Add the repair of a last axis that is not the one a layer was made for."""
    if joined := _join(x, wanted):
        return Finding(what, joined)
    for i in reversed(range(_rank(x) - 1)):
        if x.shape[i] == wanted:
            return Finding(what, say("bring {a} to the end: {c}.transpose({i}, -1).", a=_axis(x, i), c=_code(x), i=i))
    if x.axes[-1] in DATA:
        return Finding(say("{what} That is no feature axis: this is not the tensor that the layer is for.", what=what))
    return Finding(what, say("{make}, or give it what it was made for.", make=make))


@kind("layer_norm", "rms_norm", "multi_head_attention_forward")
def _made_for(case: Case) -> Finding | None:
    found = re.search(r"normalized_shape=\[(\d+)\], expected input|embedding dimension of (\d+)", case.message)
    if found is None or not case.inputs or not case.inputs[0].shape:
        return None
    x, wanted = case.inputs[0], int(found.group(1) or found.group(2))
    what = say(
        "this layer was made for a last axis of {n}; the last axis of {x} is {axis}.",
        n=wanted, x=_who(x, "its input"), axis=_axis(x, -1),
    )  # fmt: skip
    return _width(what, x, wanted, say("make the layer for {n} features", n=x.shape[-1]))


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
        return _attention_width(case, q, k)
    if (at := _clash(q, k, skip=2)) is not None:
        what = say("q has {x} where k has {y}.", x=_axis(q, at), y=_axis(k, at))
        if at == -3 and not _heads_behind(q, k, at) and q.shape[at] % k.shape[at] == 0:
            n = q.shape[at] // k.shape[at]
            return Finding(what, say("pass enable_gqa=True: {n} query heads then share each key head.", n=n))
        return Finding(what, _leading_repair(q, k, at))
    if _rank(k) > 1 < _rank(v) and k.shape[-2] != v.shape[-2]:
        what = say("every key has one value; k has {x} positions, v has {y}.", x=_axis(k, -2), y=_axis(v, -2))
        return Finding(what, say("make k and v from the same tensor."))
    return _attention_mask(q, k, mask[0]) if mask else None


def _attention_width(case: Case, q: TensorInfo, k: TensorInfo) -> Finding:
    if _rank(k) < 2 or q.shape[-1] != k.shape[-2]:
        what = say("q and k are compared feature by feature; q has {x}, k has {y}.", x=_axis(q, -1), y=_axis(k, -1))
        return Finding(what, say("give q and k the same head size."))
    what = say("k is transposed, {label}; this call takes [B, H, S, D] and transposes it itself.", label=k.label)
    if (before := _unmoved(case, k)) != k and before.shape[-1] == q.shape[-1]:
        return Finding(what, say("pass {x} as it was before the transpose.", x=_code(before)))
    return Finding(what, say("pass k as [B, H, S, D]: {c}.transpose(-2, -1).", c=_code(k)))


def _attention_mask(q: TensorInfo, k: TensorInfo, mask: TensorInfo) -> Finding | None:
    """A mask must broadcast to the scores, `[B, H, T, S]`, and be bool or float."""
    if _is_whole(mask):
        what = say(
            "the mask is {dtype}; it must be bool (True: may look) or float (added to the scores).", dtype=_dtype(mask)
        )
        return Finding(what, say("{c}.bool()", c=_code(mask) or say("mask")))
    shape, axes = (*q.shape[:-1], k.shape[-2]), (*q.axes[:-1], k.axes[-2])
    scores = replace(q, variable=None, shape=shape, axes=axes)
    if (at := _clash(scores, mask)) is None:
        return None
    what = say(
        "the mask {label} is added to scores [{names}], lined up from the right.",
        label=mask.label, names=", ".join(axes),
    )  # fmt: skip
    repair = _broadcast_repair(scores, mask, at)
    return Finding(
        what, repair or say("give the mask the shape of the scores, with 1 for axes that it does not depend on.")
    )


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
        x=_who(x, "the tensor"), n=_rank(x), m=len(case.numbers),
    )  # fmt: skip
    if len(case.numbers) == _rank(x) + 1:
        return Finding(
            what, say("if an axis is missing, split or unsqueeze it first; {label} is what there is.", label=x.label)
        )
    return Finding(what)


@kind("expand", "expand_as", "broadcast_to", "setitem", "copy_")
def _expansion(case: Case) -> Finding | None:
    found = re.search(r"expanded size .*Target sizes: \[([\d, ]*)\]\.  Tensor sizes: \[([\d, ]*)\]", case.message)
    if found is None:
        return None
    target, shape = (tuple(int(n) for n in text.split(",") if n.strip()) for text in found.groups())
    x = next(info for info in reversed(case.inputs) if info.shape == shape)
    room = replace(x, variable=None, shape=target, axes=("?",) * len(target))
    at = next(i for i in range(-1, -len(shape) - 1, -1) if shape[i] not in (1, target[i]))
    if case.op.name in ("setitem", "copy_"):
        what = say(
            "the place that is written to is {m}, and {x} is {n}; lined up from the right, {axis} meets {k}.",
            m=concrete(room), x=_who(x, "the new value"), n=concrete(x), axis=_axis(x, at), k=target[at],
        )  # fmt: skip
        calls = _fitting(x, room)
        fit = say("bring it into the order of the place: {c}{calls}.", c=_code(x), calls=calls)
        return Finding(what, fit if calls else say("write to a slice of the size of the value, or cut the value."))
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
                return Finding(what, _cat_repair(first, info, dim, i))
    return None


def _cat_repair(first: TensorInfo, other: TensorInfo, dim: int, odd: int) -> str:
    mine, theirs = (first, other) if first.axes[-2:-1] == ("H",) else (other, first)
    if calls := _reordered(mine, theirs, free=dim):
        x = _who(mine, "one of them")
        return say("{x} has its axes in another order: {c}{calls}.", x=x, c=_code(mine), calls=calls)
    differ = [j for j in range(_rank(first)) if first.shape[j] != other.shape[j]]
    return say("these two fit along dim={i}.", i=odd) if differ == [odd] else ""


# ---------------------------------------------------------------- lookups, losses, norms


@kind("embedding", "gather", "getitem", "index_select", "take_along_dim")
def _whole_numbers(case: Case) -> Finding | None:
    """Places to look up are int64."""
    if not re.search(r"(indices|index)\b", case.message) or len(case.inputs) < 2:
        return None
    ids = case.inputs[0 if case.op.name == "embedding" else 1]
    if _is_whole(ids) or _dtype(ids) == "bool":
        return None
    x = _who(ids, "its input")
    what = say("{name} looks up by whole numbers; {x} is {dtype}.", name=case.op.name, x=x, dtype=_dtype(ids))
    return Finding(what, say("give it int64: {c}.long() where the numbers are whole.", c=_code(ids)))


@kind("gather", "take_along_dim")
def _gathered(case: Case) -> Finding | None:
    if len(case.inputs) < 2 or _rank(case.inputs[0]) == _rank(case.inputs[1]):
        return None
    x, ids = case.inputs[:2]
    what = say(
        "{name} wants as many axes in the index as in the data; there are {a} and {b}.",
        name=case.op.name, a=ids.label, b=x.label,
    )  # fmt: skip
    fits = _rank(ids) == _rank(x) - 1 and case.dim(0, 0) in (-1, _rank(ids))
    return Finding(what, say("one entry for each row: {c}.unsqueeze(-1).", c=_code(ids)) if fits else "")


@kind("embedding")
def _ids(case: Case) -> Finding | None:
    if len(case.inputs) < 2:
        return None
    ids, weight = case.inputs[:2]
    x = _who(ids, "its input")
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


@kind("getitem", "setitem", "select", "index_select")
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


@kind("bool", "item", "float", "int")
def _one_number(case: Case) -> Finding | None:
    if not re.search("more than one value|cannot be converted to Scalar", case.message) or not case.inputs:
        return None
    x = case.inputs[0]
    who = _who(x, "this tensor")
    if case.op.name == "bool":
        what = say(
            "if, and, or, not, max and min want one yes or no; {x} has {n} entries, {label}.",
            x=who, n=prod(x.shape), label=x.label,
        )  # fmt: skip
        return Finding(
            what, say("entry by entry: torch.where(condition, a, b), or & | ~; one answer for all: .all() or .any().")
        )
    what = say("a Python number holds one entry; {x} has {n}, {label}.", x=who, n=prod(x.shape), label=x.label)
    return Finding(what, say("take one, {c}[i, ...], or their mean, {c}.mean().", c=_code(x)))


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
            a=_who(a, "the first tensor"), x=_dtype(a), b=_who(b, "another"), y=_dtype(b),
        )  # fmt: skip
        if _is_whole(a) != _is_whole(b):
            ids = a if _is_whole(a) else b
            return Finding(
                what, say("token ids go through an embedding first; quantities become {c}.float().", c=_code(ids))
            )
        target, other = (b, a) if _is_own(case, b) and not _is_own(case, a) else (a, b)
        name = _code(target) if not _is_own(case, target) else ""
        dtype = f"{name}.dtype" if name else f"torch.{_dtype(target)}"
        x = _who(other, "the first tensor" if other is a else "the other")
        return Finding(what, say("convert {x}: {c}.to({dtype}).", x=x, c=_code(other), dtype=dtype))
    whole = next((info for info in case.inputs if _is_whole(info) or _dtype(info) == "bool"), None)
    if whole is None:
        return None
    what = say(
        "{name} works on floating-point numbers; {x} is {dtype}.",
        name=case.op.name, x=_who(whole, "the tensor"), dtype=_dtype(whole),
    )  # fmt: skip
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
            halves = _repeated(a, b) if case.op.name == "mul" and at == -1 else ""
            return Finding(what, halves or _broadcast_repair(a, b, at))
    if case.op.name.endswith("_") and len(case.inputs) > 1 and _rank(case.inputs[1]) > _rank(case.inputs[0]):
        what = say("an in-place operation cannot grow {x}.", x=_who(case.inputs[0], "its tensor"))
        return Finding(what, say("use {name} without the underscore.", name=case.op.name.rstrip("_")))
    return None


def _repeated(a: TensorInfo, b: TensorInfo) -> str:
    """Rotary embedding: one cosine turns two features."""
    half = min(a, b, key=lambda info: info.shape[-1])
    if half.shape[-1] * 2 != max(a.shape[-1], b.shape[-1]):
        return ""
    return say(
        "each entry of {x} is for two features: torch.cat(({c}, {c}), -1) where the halves of D are turned together, "
        "{c}.repeat_interleave(2, -1) where neighbours are.",
        x=_who(half, "the smaller tensor"), c=_code(half) or "x",
    )  # fmt: skip


def _broadcast_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    small, large = (a, b) if _rank(a) < _rank(b) else (b, a)
    if calls := _fitting(small, large):
        if n := calls.count("None"):
            x = _who(small, "the smaller tensor")
            one, many = N_("{x} lacks an axis: {c}{calls}."), N_("{x} lacks {n} axes: {c}{calls}.")
            return say_count(one, many, n, x=x, c=_code(small), calls=calls)
        return say("bring the axes into one order: {c}{calls}.", c=_code(small), calls=calls)
    if _rank(small) < _rank(large) and (joined := _join(large, small.shape[-1])):
        return joined
    for table, other in ((small, large), (large, small)):
        if repair := _table_repair(table, other, at):
            return repair
    if _rank(a) == _rank(b) and at == -1:
        return say("bring one to the width of the other with a linear layer before they meet.")
    return ""


def _table_repair(table: TensorInfo, other: TensorInfo, at: int) -> str:
    """A mask or a table of positions is made once, for the longest text; it may be longer or shorter than this one."""
    if at < -2 or not 1 < _rank(table) <= _rank(other) or (_rank(table) > 2 and table.shape[0] != 1):
        return ""
    mask = table.shape[-1] == table.shape[-2] and _rank(other) > 2
    have, need = table.shape[at], other.shape[at]
    if at == -1 and not mask:
        return ""
    if table.axes[at] not in ("?", "T", "S") or other.axes[at] not in ("?", "T", "S"):
        return ""
    if have > need:
        return _cut(table, other.shape)
    if mask:
        return say("make the mask T x T, {n} x {n} here: block_size ({m}) is smaller than T.", n=need, m=have)
    return say("make it for {n} positions or more: block_size ({m}) is smaller than T.", n=need, m=have)


def _cut(long: TensorInfo, shape: Sequence[int]) -> str:
    """Return the index that cuts a buffer made for the longest text to the positions in use."""
    n = min(_rank(long), len(shape))
    longer = [i for i in range(-n, 0) if long.shape[i] > shape[i]]
    index = ", ".join(f":{shape[i]}" if i in longer else ":" for i in range(longer[0], 0)) if longer else ""
    return say("cut it to the positions in use: {x}[..., {index}].", x=_code(long), index=index) if index else ""
