"""Failed products: matmul and its relatives, linear and recurrent layers, convolutions, einsum."""

import re
from typing import Any

from ..naming import DATA
from ..records import TensorInfo
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes
from .words import (
    alike,
    axis_of,
    clash,
    code_of,
    heads_back,
    heads_behind,
    is_whole,
    join,
    rank,
    swap_last_two,
    unmoved,
    who,
)

__all__ = ["leading_repair"]


@kind("mm", "bmm")
def _product_rank(case: Case) -> Finding | None:
    wanted = {"mm": 2, "bmm": 3}[case.op.name]
    odd = next(info for info in case.inputs if rank(info) != wanted)
    return case.found(
        "{name} takes tensors of {wanted} axes; {x} has {n}.",
        "write a @ b, which takes any number of axes before the last two.",
        of=odd, called=N_("one of these"), wanted=wanted,
    )  # fmt: skip


mistakes(
    "dot",
    (
        r"1D tensors expected, but got",
        N_("dot is for vectors, which have one axis; {x} is {label}, {y} is {y_label}."),
        N_("the product of each row with its own row: ({c} * {d}).sum(-1)."),
    ),
)
mistakes(
    "outer ger",
    (
        r"Expected 1-D argument",
        N_("outer is for vectors, which have one axis; {x} is {label}, {y} is {y_label}."),
        N_("row by row: {c}[..., :, None] * {d}[..., None, :]."),
    ),
)
mistakes(
    "mv",
    (
        r"vector \+ matrix @ vector expected",
        N_("mv multiplies a matrix and a vector; {x} is {label}, {y} is {y_label}."),
        N_("{c} @ {d} takes more axes."),
    ),
)


@kind("matmul", "bmm", "mm", "mv", "linalg_matmul", "addmm", "baddbmm")
def _contraction(case: Case) -> Finding | None:
    a, b = case.inputs[1:3] if case.op.name in ("addmm", "baddbmm") else case.inputs[:2]
    row = -2 if rank(b) > 1 else -1
    if a.shape[-1] == b.shape[row]:
        return None
    return case.found(
        "a product sums over the last axis of the left side and the {row} of the right; "
        "here these are {left} and {right}, and must be the same axis.",
        row=say("second to last") if row == -2 else say("only one"),
        left=axis_of(a, -1), right=axis_of(b, row), then=_contraction_repair(case, a, b),
    )  # fmt: skip


def _contraction_repair(case: Case, a: TensorInfo, b: TensorInfo) -> str:
    """Try the usual repairs on the shapes, and name the first that makes them fit."""
    if rank(b) < 2:
        return ""
    left, right = N_("the left side"), N_("the right side")
    k = unmoved(case.line, b)
    if k != b and _multiply(a.shape, k.shape):
        return say("leave the transpose out: {c} as it is.", c=code_of(k))
    if _multiply(a.shape, _swapped(b.shape)):
        return swap_last_two(b, right)
    if k != b and _multiply(a.shape, _swapped(k.shape)):
        return say("swap only the last two axes: {c}.transpose(-2, -1).", c=code_of(k))
    if rank(a) > 1 and b.shape[-1] == b.shape[-2] and alike(b, -1, a, -2) and _multiply(b.shape, a.shape):
        return say("change the order: {x} @ {y}.", x=who(b, right), y=who(a, left))
    if set(a.axes[-2:]) == {"T", "S"} and b.axes[-2] in ("T", "S"):
        return say("values stand at the positions of the keys: make k and v from the same tensor.")
    if rank(a) > 1 and _multiply(_swapped(a.shape), b.shape):
        return swap_last_two(a, left)
    if rank(b) > 2:
        heads = _heads_first(b.shape)
        for shape, call in ((heads, ""), (_swapped(heads), ".transpose(-2, -1)")):
            if _multiply(a.shape, shape):
                code = f"{code_of(b)}.transpose({rank(b) - 3}, {rank(b) - 2}){call}"
                return say(
                    "{x} is {label}; bring the heads in front: {code}.", x=who(b, right), label=b.label, code=code
                )
    return join(a, b.shape[-2])


def _heads_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _multiply(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Tell whether two shapes, of two axes or more on the right side, make a product."""
    leading = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return a[-1] == b[-2] and all(m == n or 1 in (m, n) for m, n in leading)


@kind("matmul", "bmm", "linalg_matmul")
def _leading_axes(case: Case) -> Finding | None:
    a, b = case.inputs[:2]
    if (at := clash(a, b, skip=2)) is None:
        return None
    before = unmoved(case.line, b)
    return case.found(
        "all axes before the last two must agree, lined up from the right; "
        "the left side has {left} where the right has {right}.",
        left=axis_of(a, at), right=axis_of(b, at),
        then=leading_repair(a, before if before.shape[:-2] == b.shape[:-2] else b, at),
    )  # fmt: skip


def leading_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    """Grouped heads, heads not moved in front of the positions, or an axis that one side lacks."""
    if heads_behind(a, b, at):
        known = [x for x in (a, b) if x.axes[at] in ("T", "S")]
        x = who(known[0], N_("the tensor")) if len(known) == 1 else say("the side that is [B, T, H, D]")
        return say("bring the heads of {x} before its positions: .transpose(1, 2) right after the view.", x=x)
    if at == -3 and rank(b) == 4 and b.axes[at] in ("G", "?") and a.shape[at] % b.shape[at] == 0:
        n, dim = a.shape[at] // b.shape[at], rank(b) + at
        text = N_("let {n} query heads share a key head: {c}.repeat_interleave({n}, dim={dim}).")
        return say(text, n=n, c=code_of(b), dim=dim)
    if rank(a) != rank(b):
        small, large = sorted((a, b), key=rank)
        if "H" in large.axes and small.axes[-1] == "C":
            text = N_("split the heads of {x} as for the other side: view, then transpose(1, 2).")
            return say(text, x=who(small, N_("the smaller tensor")))
        return say("give {x} the axis it lacks with .unsqueeze(...).", x=who(small, N_("the smaller tensor")))
    return ""


# ---------------------------------------------------------------- layers that were made for another width


@kind("linear")
def _features(case: Case) -> Finding | None:
    x, weight = case.inputs[:2]
    m, n = weight.shape
    if x.shape[-1] == n or is_whole(x):  # ids: no width would help
        return None
    what = N_("this layer takes {wanted} features and gives {m}; the last axis of {x} is {axis}.")
    return _width(case, what, n, say("make the layer nn.Linear({n}, {m})", n=x.shape[-1], m=m), m=m)


@kind("layer_norm", "rms_norm", "multi_head_attention_forward", "GRU", "LSTM", "RNN")
def _made_for(case: Case) -> Finding | None:
    said = case.told(
        r"normalized_shape=\[(\d+)\], expected input|embedding dimension of (\d+)|input_size\. Expected (\d+)"
    )
    what = N_("this layer was made for a last axis of {wanted}; the last axis of {x} is {axis}.")
    make = say("make the layer for {n} features", n=case.inputs[0].shape[-1])
    return _width(case, what, int(next(filter(None, said.groups()))), make)


def _width(case: Case, what: str, wanted: int, make: str, **values: Any) -> Finding:
    """Add the repair of a last axis that is not the one a layer was made for."""
    x = case.inputs[0]
    repair = join(x, wanted) or heads_back(x, -1)
    moved = [i for i in reversed(range(rank(x) - 1)) if x.shape[i] == wanted]
    if not repair and moved:
        repair = N_("bring {a} to the end: {c}.transpose({i}, -1).")
        repair = say(repair, a=axis_of(x, moved[0]), c=code_of(x), i=moved[0])
    elif not repair and x.axes[-1] not in DATA:
        repair = say("{make}, or give it what it was made for.", make=make)
    values |= {"wanted": wanted, "axis": axis_of(x, -1)}
    found = case.found(what, called=N_("its input"), then=repair, **values)
    if repair:
        return found
    text = N_("{what} That is no feature axis: this is not the tensor that the layer is for.")
    return Finding(say(text, what=found.what))


mistakes(
    "GRU LSTM RNN",
    (
        r"Expected hidden(?:\[\d\])? size \((.+?)\), got \[(.+?)\]",
        N_("the state is [layers, B, hidden], also with batch_first=True: {a} here; this one is {b}."),
        N_("leave it out to start from zeros, or put the layers in front."),
    ),
)
mistakes(
    "layer_norm rms_norm",
    (
        r"'normalized_shape' .*must be tuple of ints, not int",
        N_("the sizes to normalise over are a tuple, also for one axis."),
        N_("write (C,), with its comma; nn.LayerNorm takes the plain number."),
    ),
    (
        r"normalized_shape=\[([\d, ]+)\], expected input",
        N_("this norm was made for last axes of {a}; {x} is {label}."),
        N_("a Transformer normalises one axis, the last: nn.LayerNorm(C)."),
    ),
)


@kind("conv1d", "conv2d", "conv3d", "batch_norm")
def _channels(case: Case) -> Finding | None:
    """Channels stand on axis 1, behind the batch; a Transformer keeps its features last."""
    said = case.told(r"to have (\d+) channels, but got \d+|should contain \d+ elements not (\d+)")
    x, wanted = case.inputs[0], int(said.group(1) or said.group(2))
    at = 0 if rank(x) == {"conv1d": 2, "conv2d": 3, "conv3d": 4}.get(case.op.name) else 1
    call = ""
    if [i for i, n in enumerate(x.shape) if n == wanted] == [rank(x) - 1]:  # an image with its colours last
        order = [*range(at), rank(x) - 1, *range(at, rank(x) - 1)]
        call = f".permute({', '.join(map(str, order))})" if len(order) - at > 2 else f".transpose({at}, {at + 1})"
    return case.found(
        "{name} takes {wanted} channels, on axis {at}; axis {at} of {x} is {axis}.",
        "bring {a} there: {c}{call}." if call else "",
        called=N_("its input"), wanted=wanted, at=at, axis=axis_of(x, at), a=axis_of(x, -1), call=call,
    )  # fmt: skip


mistakes(
    "conv1d conv2d conv3d max_pool1d max_pool2d avg_pool1d avg_pool2d",
    (
        r"input size per channel: \((.+?)\)\. Kernel size: \((.+?)\)",
        N_("the window is {b}, and what it moves over is only {a}."),
        N_("choose a smaller window, or check that the last axes are the ones to move over."),
    ),
    (
        r"Expected (.+?) input to conv\w+, but got",
        N_("{name} takes {a} input: channels, then positions; {x} is {label}."),
        "",
    ),
)


# ---------------------------------------------------------------- einsum


@kind("einsum")
def _letters(case: Case) -> Finding | None:
    equation = next(a for a in case.op.args if isinstance(a, str)).removeprefix("equation=").replace(" ", "")
    left, _, right = equation.partition("->")
    groups = left.split(",")
    if len(groups) != len(case.inputs):
        return case.found(
            "the equation is for {n} tensors, and {m} were given.",
            "one group of letters for each tensor, with commas between: 'bhtd,bhsd->bhts'.",
            n=len(groups), m=len(case.inputs),
        )  # fmt: skip
    for letter in right.replace(".", ""):
        if letter not in left:
            return case.found(
                "the result has a letter {a} that no tensor has.", "take the letters of the tensors.", a=letter
            )
        if right.count(letter) > 1:
            return case.found(
                "the letter {a} stands twice in the result.", "give each of its axes one letter.", a=letter
            )
    return None if "." in equation else _letter_sizes(case, groups)


def _letter_sizes(case: Case, groups: list[str]) -> Finding | None:
    seen: dict[str, tuple[int, str]] = {}
    written = _written(case.line, groups)
    for n, (letters, info) in enumerate(zip(groups, case.inputs, strict=True)):
        if (m := len(letters)) != rank(info):
            text = N_("'{letters}' names {m} axes, and its tensor is {label}.")
            return case.found(text, of=info, letters=" ".join(written[n]) if written else letters, m=m)
        for i, letter in enumerate(letters):
            size, first = seen.setdefault(letter, (info.shape[i], axis_of(info, i)))
            if size != info.shape[i] and 1 not in (size, info.shape[i]):
                own = written[n][i] if written else letter
                return case.found(
                    "the name {letter} stands for {a} first and for {b} later." if len(own) > 1
                    else "the letter {letter} stands for {a} first and for {b} later.",
                    "write the letters in the order of each tensor's axes; two different axes need two letters.",
                    letter=own, a=first, b=axis_of(info, i),
                )  # fmt: skip
    return None


def _written(line: str, groups: list[str]) -> list[list[str]]:
    """Return the names of a pattern as the line has them (einops hands torch other letters), or []."""
    found = re.search(r"""["']([^"']+?)\s*->""", line)
    names = [part.split() for part in found.group(1).split(",")] if found else []
    return names if [len(part) for part in names] == [len(letters) for letters in groups] else []
