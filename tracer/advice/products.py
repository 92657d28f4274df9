"""Failed products: matmul and its relatives, linear layers, einsum, convolutions, recurrent layers."""

from ..naming import DATA
from ..records import TensorInfo
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes
from .words import alike, axis_of, clash, code_of, heads_behind, join, rank, swap_last_two, unmoved, who

__all__ = ["leading_repair", "width"]


@kind("mm", "bmm")
def _product_rank(case: Case) -> Finding | None:
    wanted = {"mm": 2, "bmm": 3}[case.op.name]
    odd = next(info for info in case.inputs if rank(info) != wanted)
    what = say(
        "{name} takes tensors of {n} axes; {x} has {m}.",
        name=case.op.name, n=wanted, x=who(odd, N_("one of these")), m=rank(odd),
    )  # fmt: skip
    return Finding(what, say("write a @ b, which takes any number of axes before the last two."))


mistakes(
    "dot mv outer ger",
    (
        r"1D tensors expected, but got|Expected 1-D argument|vector \+ matrix @ vector expected|expected a matrix|1-D",
        N_("{name} is for vectors, which have one axis; {x} is {label}, {y} is {y_label}."),
        N_("write {c} @ {d}, with the axes to sum over last on the left and second to last on the right."),
    ),
)


@kind("matmul", "bmm", "mm", "mv", "linalg_matmul", "addmm", "baddbmm")
def _contraction(case: Case) -> Finding | None:
    a, b = case.inputs[1:3] if case.op.name in ("addmm", "baddbmm") else case.inputs[:2]
    row = -2 if rank(b) > 1 else -1
    if a.shape[-1] == b.shape[row]:
        return None
    what = say(
        "a product sums over the last axis of the left side and the {row} of the right; "
        "here these are {x} and {y}, and must be the same axis.",
        row=say("second to last") if row == -2 else say("only one"), x=axis_of(a, -1), y=axis_of(b, row),
    )  # fmt: skip
    return Finding(what, _contraction_repair(case, a, b))


def _contraction_repair(case: Case, a: TensorInfo, b: TensorInfo) -> str:
    """Try the usual repairs on the shapes, and name the first that makes them fit."""
    if rank(b) < 2:
        return ""
    if _multiply(a.shape, _swapped(b.shape)):
        return swap_last_two(b, N_("the right side"))
    if (k := unmoved(case.line, b)) != b and _multiply(a.shape, _swapped(k.shape)):
        return say("swap only the last two axes: {c}.transpose(-2, -1).", c=code_of(k))
    if rank(a) > 1 and b.shape[-1] == b.shape[-2] and alike(b, -1, a, -2) and _multiply(b.shape, a.shape):
        x, y = who(b, N_("the right side")), who(a, N_("the left side"))
        return say("change the order: {x} @ {y}.", x=x, y=y)
    if rank(a) > 1 and _multiply(_swapped(a.shape), b.shape):
        return swap_last_two(a, N_("the left side"))
    if rank(b) > 2:
        heads = _heads_first(b.shape)
        for shape, call in ((heads, ""), (_swapped(heads), ".transpose(-2, -1)")):
            if _multiply(a.shape, shape):
                code = f"{code_of(b)}.transpose({rank(b) - 3}, {rank(b) - 2}){call}"
                x = who(b, N_("the right side"))
                return say("{x} is {label}; bring the heads in front: {code}.", x=x, label=b.label, code=code)
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
    what = say(
        "all axes before the last two must agree, lined up from the right; "
        "the left side has {x} where the right has {y}.",
        x=axis_of(a, at), y=axis_of(b, at),
    )  # fmt: skip
    before = unmoved(case.line, b)
    return Finding(what, leading_repair(a, before if before.shape[:-2] == b.shape[:-2] else b, at))


def leading_repair(a: TensorInfo, b: TensorInfo, at: int) -> str:
    """Grouped heads, heads not moved in front of the positions, or an axis that one side lacks."""
    if heads_behind(a, b, at):
        known = [x for x in (a, b) if x.axes[at] in ("T", "S")]
        x = who(known[0], N_("the tensor")) if len(known) == 1 else say("the side that is [B, T, H, D]")
        return say("bring the heads of {x} before its positions: .transpose(1, 2) right after the view.", x=x)
    if at == -3 and rank(b) == 4 and b.axes[at] in ("G", "?") and a.shape[at] % b.shape[at] == 0:
        n, dim = a.shape[at] // b.shape[at], rank(b) + at
        return say(
            "let {n} query heads share a key head: {c}.repeat_interleave({n}, dim={dim}).", n=n, c=code_of(b), dim=dim
        )
    if rank(a) != rank(b):
        small = min(a, b, key=rank)
        return say("give {x} the axis it lacks with .unsqueeze(...).", x=who(small, N_("the smaller tensor")))
    return ""


# ---------------------------------------------------------------- layers


@kind("linear")
def _features(case: Case) -> Finding | None:
    x, weight = case.inputs[:2]
    m, n = weight.shape
    if x.shape[-1] == n:
        return None
    what = say(
        "this layer takes {n} features and gives {m}; the last axis of {x} is {axis}.",
        n=n, m=m, x=who(x, N_("its input")), axis=axis_of(x, -1),
    )  # fmt: skip
    return width(what, x, n, say("make the layer nn.Linear({n}, {m})", n=x.shape[-1], m=m))


def width(what: str, x: TensorInfo, wanted: int, make: str) -> Finding:
    """Add the repair of a last axis that is not the one a layer was made for."""
    if joined := join(x, wanted):
        return Finding(what, joined)
    for i in reversed(range(rank(x) - 1)):
        if x.shape[i] == wanted:
            return Finding(
                what, say("bring {a} to the end: {c}.transpose({i}, -1).", a=axis_of(x, i), c=code_of(x), i=i)
            )
    if x.axes[-1] in DATA:
        return Finding(say("{what} That is no feature axis: this is not the tensor that the layer is for.", what=what))
    return Finding(what, say("{make}, or give it what it was made for.", make=make))


@kind("layer_norm", "rms_norm", "multi_head_attention_forward")
def _made_for(case: Case) -> Finding | None:
    found = case.says(r"normalized_shape=\[(\d+)\], expected input|embedding dimension of (\d+)")
    if found is None:
        return None
    x, wanted = case.inputs[0], int(found.group(1) or found.group(2))
    what = say(
        "this layer was made for a last axis of {n}; the last axis of {x} is {axis}.",
        n=wanted, x=who(x, N_("its input")), axis=axis_of(x, -1),
    )  # fmt: skip
    return width(what, x, wanted, say("make the layer for {n} features", n=x.shape[-1]))


@kind("lstm", "gru", "rnn_tanh", "rnn_relu", "unpack")
def _recurrent(case: Case) -> Finding | None:
    found = case.says(r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)")
    if found is None:
        return None
    x = case.inputs[0]
    if x.shape[-1] != int(found.group(2)):
        return None
    what = say(
        "this layer was made for a last axis of {n}; the last axis of {x} is {axis}.",
        n=found.group(1), x=who(x, N_("its input")), axis=axis_of(x, -1),
    )  # fmt: skip
    return width(what, x, int(found.group(1)), say("make the layer for {n} features", n=x.shape[-1]))


mistakes(
    "layer_norm rms_norm",
    (
        r"'normalized_shape' .*must be tuple of ints, not int",
        N_("the sizes to normalise over are a tuple, also if it is one axis."),
        N_("write ({label_last},) with its comma; nn.LayerNorm takes the plain number."),
    ),
    (
        r"normalized_shape=\[([\d, ]+)\], expected input",
        N_("this norm was made for last axes of {a}; {x} is {label}."),
        N_("in a Transformer one axis is normalised, the last: nn.LayerNorm(C)."),
    ),
)


@kind("conv1d", "conv2d", "conv3d", "batch_norm")
def _channels(case: Case) -> Finding | None:
    """Channels stand on axis 1, behind the batch; a Transformer keeps its features last."""
    found = case.says(r"to have (\d+) channels, but got (\d+) channels|should contain (\d+) elements not (\d+)")
    if found is None:
        return None
    x = case.inputs[0]
    wanted = int(found.group(1) or found.group(4))
    at = 0 if rank(x) == {"conv1d": 2, "conv2d": 3, "conv3d": 4}.get(case.op.name) else 1
    what = say(
        "{name} takes {n} channels, on axis {at}; axis {at} of {x} is {axis}.",
        name=case.op.name, n=wanted, at=at, x=who(x, N_("its input")), axis=axis_of(x, at),
    )  # fmt: skip
    here = [i for i, n in enumerate(x.shape) if n == wanted]
    if here != [rank(x) - 1]:
        return Finding(what)
    call = f".transpose({at}, {here[0]})"
    if here[0] - at > 1:  # an image with its colours last
        order = [*range(at), here[0], *range(at, here[0])]
        call = f".permute({', '.join(map(str, order))})"
    return Finding(what, say("bring {a} there: {c}{call}.", a=axis_of(x, -1), c=code_of(x), call=call))


mistakes(
    "conv1d conv2d conv3d max_pool1d max_pool2d avg_pool1d avg_pool2d",
    (
        r"input size per channel: \((.+?)\)\. Kernel size: \((.+?)\)",
        N_("the window is {b}, and what it moves over is only {a}."),
        N_("choose a smaller window, or check that the last axes are the ones to move over."),
    ),
    (
        r"Expected (.+?) input to conv\w+, but got",
        N_("{name} takes {a} input, a batch of channels of positions; {x} is {label}."),
        N_("add the axes it lacks, a channel axis with {c}.unsqueeze(-3) for an image."),
    ),
)


# ---------------------------------------------------------------- einsum


@kind("einsum")
def _letters(case: Case) -> Finding | None:
    equation = next(a for a in case.op.args if isinstance(a, str)).removeprefix("equation=").replace(" ", "")
    left, _, right = equation.partition("->")
    groups = left.split(",")
    if len(groups) != len(case.inputs):
        what = say("the equation is for {n} tensors, and there are {m}.", n=len(groups), m=len(case.inputs))
        return Finding(what, say("one group of letters for each tensor, with commas between: 'bhtd,bhsd->bhts'."))
    if odd := next((x for x in right.replace(".", "") if x not in left or right.count(x) > 1), ""):
        if odd in left:
            return Finding(
                say("the letter {x} stands twice in the result.", x=odd), say("each axis of it has one letter.")
            )
        return Finding(
            say("the result has a letter {x} that no tensor has.", x=odd),
            say("take letters of the tensors; a new axis of size 1 comes from unsqueeze."),
        )
    return None if "." in equation else _sizes(groups, case.inputs)


def _sizes(groups: list[str], inputs: tuple[TensorInfo, ...]) -> Finding | None:
    seen: dict[str, tuple[int, str]] = {}
    for letters, info in zip(groups, inputs, strict=True):
        if len(letters) != rank(info):
            return Finding(
                say(
                    "'{letters}' names {n} axes, and its tensor is {label}.",
                    letters=letters,
                    n=len(letters),
                    label=info.label,
                )
            )
        for i, letter in enumerate(letters):
            size, first = seen.setdefault(letter, (info.shape[i], axis_of(info, i)))
            if size != info.shape[i] and 1 not in (size, info.shape[i]):
                what = say(
                    "the letter {x} stands for {a} first and for {b} later.", x=letter, a=first, b=axis_of(info, i)
                )
                return Finding(
                    what,
                    say("write the letters in the order of each tensor's axes; two different axes need two letters."),
                )
    return None
