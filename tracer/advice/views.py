"""Views, cuts and joins: view, split, permute, expand, cat, stack, unpacking, einops patterns."""

import re
from dataclasses import replace
from math import prod

from ..records import TensorInfo
from ..render.layout import concrete
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes
from .words import axis_of, code_of, fitting, is_whole, product, rank, reordered, who

__all__: list[str] = []


def _numbers(text: str | None) -> list[int]:
    return [int(n) for n in re.findall(r"-?\d+", text or "")]


# ---------------------------------------------------------------- new sizes for the same entries


@kind("view", "view_as")
def _not_contiguous(case: Case) -> Finding | None:
    if "not compatible with input tensor's size and stride" not in case.message:
        return None
    x = case.inputs[0]
    steps = [step for n, step in zip(x.shape, x.stride or (), strict=False) if n > 1]
    if x.contiguous is False and steps == sorted(steps, reverse=True) and 0 not in steps:
        return case.found(
            "view never moves data, and {x} is a part of a larger tensor: its rows do not lie next to each other.",
            "{c}.reshape(...), which copies where it must.",
        )
    return case.found(
        "view never moves data, and the axes of {x} that it would join or cut do not lie next to each other in memory: "
        "a transpose changed the order of the axes, not the data.",
        "{c}.contiguous().view(...) or {c}.reshape(...), which copies where it must. "
        "Keep the transpose: without it the view would run, and mix the axes.",
    )


@kind("view", "reshape", "unflatten")
def _wrong_count(case: Case) -> Finding | None:
    said = case.told(r"shape '\[([-\d, ]*)\]' is invalid|Provided sizes \[([-\d, ]*)\] don't multiply")
    x = case.inputs[0]
    wanted = _numbers(said.group(1) or said.group(2))
    have, names = list(x.shape), list(x.axes)
    if said.group(2) is not None:
        dim = case.dim(0, -1)
        have, names = [x.shape[dim]], [x.axes[dim]]
    while wanted and have and wanted[0] == have[0] and len(wanted) > 1 and len(have) > 1:
        del wanted[0], have[0], names[0]  # axes in front that stay as they are
    whole, parts = prod(have), [n for n in wanted if n >= 0]
    label = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    label = say("the axis") if label == "?" else label
    new = say("the new axis has") if len(wanted) == 1 else say("the new axes make {sizes} =", sizes=product(parts))
    what = N_("{n} does not divide the {have} entries of {label}.")
    if -1 not in wanted:
        what = N_("{label} has {have} entries; {new} {n}.")
    repair = "" if wanted == [-1, 2] else _split_repair(whole, [n for n in wanted if n > 0], -1 in wanted)
    if wanted == [-1, 2]:
        repair = say("pairs are made of an even number of features: make {label} even.", label=label)
    if is_whole(x) and prod(parts) > whole:
        repair = say("{x} has no feature axis yet: ids go through an embedding first.", x=who(x, N_("the tensor")))
    return case.found(what, label=label, have=whole, new=new, n=prod(parts), then=repair)


def _split_repair(whole: int, parts: list[int], open_: bool) -> str:
    if not parts or prod(parts) == whole or (len(parts) == 1 and not open_):
        return ""
    n = parts[0]
    if whole % n:
        divisors = [k for k in range(1, whole + 1) if whole % k == 0]
        near = ", ".join(map(str, sorted(sorted(divisors, key=lambda k: abs(k - n))[:3])))
        text = N_("{whole} % {n} = {rest}: choose a number that divides {whole}, for example {near}.")
        return say(text, whole=whole, n=n, rest=whole % n, near=near)
    if len(parts) == 2 and not open_ and 1 < n < whole:
        text = N_("{n} equal parts of {whole} have {each} entries each, not {m}.")
        return say(text, n=n, whole=whole, each=whole // n, m=parts[1])
    return ""


mistakes(
    "view reshape expand unflatten zeros ones empty full",
    (
        r"must be tuple of ints, ?but got float|found element of type float|expected int, got float",
        N_("a size is a whole number, and / always gives a fraction, also where nothing is left over."),
        N_("divide with //, as in C // H."),
    ),
    (
        r"must be tuple of ints, ?but got torch\.Size",
        N_("the size of an axis is one number, and a whole shape stands in its place."),
        N_("take one entry of the shape, as in x.shape[-1]; or all of them: *x.shape."),
    ),
    (
        r"only one dimension can be inferred",
        N_("-1 stands for whatever is left, which can be said of one axis only."),
        N_("write the size of all axes but one."),
    ),
)
mistakes(
    "flatten",
    (
        r"start_dim cannot come after end_dim",
        N_("flatten joins the axes from its first number to its second, which must not come before it."),
        N_("the last two axes of {x}: {c}.flatten(-2)."),
    ),
)
mistakes(
    "mT mH t",
    (
        r"only supported on matrices",
        N_("{name} swaps the last two axes, and {x} is {label}."),
        N_("a column is made with {c}[:, None]."),
    ),
)


# ---------------------------------------------------------------- another order, more axes


@kind("permute")
def _permutation(case: Case) -> Finding | None:
    case.told("number of dimensions")
    more = len(case.numbers) == rank(case.inputs[0]) + 1
    return case.found(
        "permute needs every axis once: {x} has {n}, and {m} were given.",
        "if an axis is missing, split or unsqueeze it first; {label} is what there is." if more else "",
        m=len(case.numbers),
    )


mistakes(
    "permute",
    (
        r"duplicate dims|repeated dim",
        N_("permute needs every axis once, and one number stands twice."),
        N_("{x} is {label}: give each of its {n} axes once, in the new order."),
    ),
)


@kind("expand", "expand_as", "broadcast_to", "setitem", "copy_")
def _expansion(case: Case) -> Finding | None:
    said = case.told(r"expanded size .*Target sizes: \[([\d, ]*)\]\.  Tensor sizes: \[([\d, ]*)\]")
    target, shape = (tuple(_numbers(text)) for text in said.groups())
    x = next(info for info in reversed(case.inputs) if info.shape == shape)
    at = next(i for i in range(-1, -len(shape) - 1, -1) if shape[i] not in (1, target[i]))
    if case.op.name in ("setitem", "copy_"):
        return _assignment(case, x, target, at)
    own, place = replace(x, axes=("?",) * len(shape)), replace(x, shape=target, axes=("?",) * len(target))
    repair = N_("put axes of size 1 where the new ones belong: {c}{calls}.") if (calls := fitting(own, place)) else ""
    if len(shape) == len(target) and target[at] % shape[at] == 0:
        repair = N_("to have each entry {times} times: {c}.repeat_interleave({times}, dim={at}).")
    what = N_("expand only stretches axes of size 1, lined up from the right; {axis} cannot become {size}.")
    return case.found(what, repair, of=x, axis=axis_of(x, at), size=target[at], calls=calls,
                      times=target[at] // shape[at], at=at)  # fmt: skip


def _assignment(case: Case, x: TensorInfo, target: tuple[int, ...], at: int) -> Finding:
    room = replace(x, variable=None, shape=target, axes=("?",) * len(target))
    calls = fitting(x, room)
    return case.found(
        "the place that is written to is {room}, and {x} is {own}; lined up from the right, {axis} meets {size}.",
        "bring it into the order of the place: {c}{calls}." if calls
        else "write to a slice of the size of the value, or cut the value.",
        of=x, called=N_("the new value"), room=concrete(room), own=concrete(x), axis=axis_of(x, at), size=target[at],
        calls=calls,
    )  # fmt: skip


mistakes(
    "expand repeat",
    (
        r"number of sizes provided|Number of dimensions of repeat dims",
        N_("{name} wants a number for each axis, and may add axes in front; {x} has {n}, {label}."),
        N_("give one more for each axis that is left out; what stays has -1 in expand, 1 in repeat."),
    ),
)


# ---------------------------------------------------------------- cutting and joining


@kind("split", "split_with_sizes")
def _split_sum(case: Case) -> Finding | None:
    said = case.told(r"sum exactly to (\d+) .*dimension (-?\d+)\).*split_sizes=\[([-\d, ]*)\]")
    dim, parts = int(said.group(2)), _numbers(said.group(3))
    whole = case.inputs[0].shape[dim]
    return case.found(
        "the parts must make up the whole axis, {axis}; {sum} does not.",
        "{c}.split({size}, dim={dim}) makes {m} equal parts." if whole % parts[0] == 0 else "",
        axis=axis_of(case.inputs[0], dim), sum=f"{' + '.join(map(str, parts))} = {sum(parts)}",
        size=parts[0], dim=dim, m=whole // parts[0],
    )  # fmt: skip


mistakes(
    "split",
    (
        r"split_size can only be 0",
        N_("split takes the size of each part, and it is 0."),
        N_("chunk takes their number: {c}.chunk(3, dim=-1) makes three."),
    ),
)
mistakes(
    "narrow",
    (
        r"start \((\d+)\) \+ length \((\d+)\) exceeds",
        N_("narrow takes a first place and a length; from {a}, {b} places do not fit into this axis of {x}, {label}."),
        N_("give a shorter length."),
    ),
)


@kind("cat", "concat", "concatenate")
def _joined(case: Case) -> Finding | None:
    first, *rest = case.inputs
    odd = next((info for info in rest if rank(info) != rank(first)), None)
    if odd is not None:
        what = N_("cat joins tensors with equally many axes; there are {a} and {b}.")
        repair = N_("add what is missing with unsqueeze, or stack along a new axis.")
        return case.found(what, repair, a=first.label, b=odd.label)
    dim = case.dim(0, 0) % max(rank(first), 1)
    for m, info in enumerate(rest, start=1):
        for i in range(rank(first)):
            if i != dim and info.shape[i] != first.shape[i]:
                return case.found(
                    "cat joins along axis {dim}; every other axis must be equal, "
                    "and axis {i} is {a} in tensor 0, {b} in tensor {m}.",
                    dim=dim, i=i, a=axis_of(first, i), b=axis_of(info, i), m=m, then=_cat_repair(first, info, dim, i),
                )  # fmt: skip
    return None


def _cat_repair(first: TensorInfo, other: TensorInfo, dim: int, odd: int) -> str:
    if repair := _turned(first, other, dim):
        return repair
    differ = [j for j in range(rank(first)) if first.shape[j] != other.shape[j]]
    if differ == [odd]:
        return say("these two fit along dim={i}.", i=odd)
    one, many = (first, other) if first.shape[odd] == 1 else (other, first)
    if one.shape[odd] == 1 and set(differ) <= {odd, dim}:  # a class token [1, 1, C] before [B, N, C]
        sizes = ", ".join(str(many.shape[odd]) if j == odd else "-1" for j in range(rank(one)))
        text = N_("{x} is there once; show it to each: {c}.expand({sizes}).")
        return say(text, x=who(one, N_("one of them")), c=code_of(one), sizes=sizes)
    return ""


def _turned(first: TensorInfo, other: TensorInfo, free: int | None = None) -> str:
    """Say how two tensors get the same order of axes, if that is what keeps them apart."""
    mine, theirs = (first, other) if first.axes[-2:-1] == ("H",) else (other, first)
    if not (calls := reordered(mine, theirs, free)):
        return ""
    text = N_("{x} has its axes in another order: {c}{calls}.")
    return say(text, x=who(mine, N_("one of them")), c=code_of(mine), calls=calls)


@kind("stack")
def _stacked(case: Case) -> Finding | None:
    case.told(r"stack expects each tensor to be equal size")
    first = case.inputs[0]
    other = next(info for info in case.inputs if info.shape != first.shape)
    differ = [j for j in range(rank(first)) if first.shape[j] != other.shape[j]] if rank(first) == rank(other) else []
    return case.found(
        "stack puts tensors of one shape along a new axis; there are {a} and {b}.",
        "to join them along the axis that differs: torch.cat(..., dim={i})." if len(differ) == 1 else "",
        a=first.label, b=other.label, i=differ and differ[0], then=_turned(first, other),
    )  # fmt: skip


mistakes(
    "cat stack",
    (
        r"must be tuple of Tensors, not Tensor",
        N_("{name} takes all tensors in one list, and after it the axis."),
        N_("put brackets around them: torch.{name}([a, b], dim)."),
    ),
)
mistakes(
    "tensor as_tensor",
    (
        r"only one element tensors|only integer tensors of a single element|converted to Python scalars|to Scalar",
        N_("torch.{name} makes a tensor of numbers; its list holds tensors of many entries."),
        N_("torch.stack([a, b]) puts tensors of one shape along a new axis; torch.cat joins them along an old one."),
    ),
)


# ---------------------------------------------------------------- q, k, v = …


@kind("unpack")
def _unpacked(case: Case) -> Finding | None:
    """A statement that names another number of parts than there are; `args` say what was unpacked, and its parts."""
    said = case.told(r"values to unpack \(expected (\d+)")
    x, m, (how, parts) = case.inputs[0], int(said.group(1)), case.op.args
    if how == "shape":
        return _unpacked_shape(case, x, m)
    repair, last = "", x.shape[-1]
    what = N_("the line names {m} parts; {how} of {x}, {label}, gives {parts}.")
    at = [i for i, size in enumerate(x.shape) if size == m and x.axes[i] in ("?", str(m))]
    if how == "unbind" and "unbind" not in case.line:
        what = N_(
            "the line names {m} parts; a tensor is unpacked along its first axis, and {x}, {label}, gives {parts}."
        )
        repair = N_("cut the last axis into {m} parts: {c}.chunk({m}, dim=-1).") if last % m == 0 else ""
    elif how == "unbind" and len(at) == 1:
        repair = N_("axis {at} has {m} entries: {c}.unbind({at}).")
    elif how in ("split", "chunk") and last % m == 0:
        repair = N_("for {m} equal parts of the last axis: {c}.{how}({size}, dim=-1).")
    size = last // m if how == "split" else m
    return case.found(what, repair, how=how, parts=parts, m=m, at=at and at[0], size=size)


def _unpacked_shape(case: Case, x: TensorInfo, m: int) -> Finding:
    repair = ""
    if rank(x) == m - 1 and "B" not in x.axes:
        repair = N_("if the batch axis is missing, add it in front: {c}.unsqueeze(0).")
    elif is_whole(x) and rank(x) < m:
        repair = N_("{x} holds ids: an embedding adds the feature axis.")
    elif all(name.isidentifier() for name in x.axes):
        repair = N_("name what there is: {axes} = {c}.shape.")
    names = ", ".join(name.strip() for name in case.line.partition("=")[0].split(","))
    what = N_("{x} has {n} axes, {label}; the line names {m}: {names}.")
    return case.found(what, repair, m=m, names=names, axes=", ".join(x.axes))


# ---------------------------------------------------------------- einops


@kind("rearrange", "reduce", "repeat")
def _pattern(case: Case) -> Finding | None:
    """An einops pattern that does not fit; its own message tells what of it, not the names of the axes."""
    x = case.inputs[0]
    if said := case.says(r"can't divide axis of length (\d+) in chunks of (\d+)"):
        whole, size = map(int, said.groups())
        axis = axis_of(x, x.shape.index(whole))
        what = N_("the pattern cuts {axis} into parts of {size}.")
        return case.found(what, axis=axis, size=size, then=_split_repair(whole, [size], True))
    if said := case.says(r"Could not infer sizes for \{(.*?)\}"):
        names = sorted(re.findall(r"\w+", said.group(1)))  # a set: in any order
        what = N_("the lengths of {names} cannot be told from their product alone.")
        return case.found(
            what, "give all but one of them by name, as in {one}=3.", names=", ".join(names), one=names[-1]
        )
    said, pattern = case.says(r"expected (\d+) dims\. Received \d+-dim"), case.says(r'pattern "\s*(.*?)\s*->')
    if said and pattern:
        return case.found(
            "the left side of the pattern, '{left}', names {m} axes; {x} is {label}.",
            "write on the left what comes in, on the right what goes out.",
            left=pattern.group(1), m=said.group(1),
        )  # fmt: skip
    return None


mistakes(
    "rearrange reduce repeat",
    (
        r"Identifiers only on one side of expression \(should be on both\): \{(.*)\}",
        N_("rearrange keeps every axis; {a} stands on one side of the pattern only."),
        N_("to lose an axis use reduce(..., 'mean'), for a new one repeat."),
    ),
    (
        r"Specify sizes for new axes in repeat: \{(.*)\}",
        N_("the new axis {a} has no size."),
        N_("give it by name, as in n=3."),
    ),
    (
        r"Unexpected identifiers on the left side of repeat: \{(.*)\}",
        N_("repeat keeps every axis; {a} stands on the left side only."),
        N_("write it on the right too; to lose an axis use reduce."),
    ),
    (
        r"Unexpected identifiers on the right side of reduce \w+: \{(.*)\}",
        N_("reduce makes no axes; {a} stands on the right side only."),
        N_("take names from the left side; for new axes use repeat."),
    ),
    (
        r"not enough values to unpack \(expected 2, got 1",
        N_("the pattern has no arrow: what comes in stands before ->, what goes out behind it."),
        N_("write '... -> ...', as in 'b t (h d) -> b h t d'."),
    ),
    (
        r"Axis (\w+) is not used in transform",
        N_("a size is given for '{a}', and the pattern has no axis of that name."),
        N_("names must be the same in the pattern and behind it, as h in '(h d)' and h=3."),
    ),
    (
        r'contains duplicate dimension "(\w+)"',
        N_("the name '{a}' stands twice on one side of the pattern; each axis needs one of its own."),
        N_("give the second axis another name."),
    ),
    (
        r"Imbalanced parentheses in expression",
        N_("a bracket of the pattern is opened and not closed, or closed and not opened."),
        N_("write both around the axes that belong together, as in '(h d)'."),
    ),
    (
        r"Unknown reduction (\w+)",
        N_("reduce does not know '{a}'."),
        N_("it knows 'mean', 'sum', 'max', 'min' and 'prod'."),
    ),
    (
        r"Shape mismatch, (\d+) != (\d+)",
        N_("the sizes given by name make {b}, and the axis of {x}, {label}, has {a} entries."),
        N_("leave one of them out: einops works it out."),
    ),
)
