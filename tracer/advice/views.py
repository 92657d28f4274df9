"""Views, cuts, joins and their sizes: view, split, permute, expand, cat, stack, einops patterns, unpacking."""

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
    what = say(
        "view never moves data, and the axes of {x} that it would join or cut do not lie next to each other in memory: "
        "a transpose changed the order of the axes, not the data.",
        x=who(case.inputs[0], N_("the tensor")),
    )  # fmt: skip
    repair = say(
        "{c}.contiguous().view(...) or {c}.reshape(...), which copies where it must. "
        "Keep the transpose: without it the view would run, and mix the axes.",
        c=code_of(case.inputs[0]),
    )  # fmt: skip
    return Finding(what, repair)


@kind("view", "reshape", "unflatten")
def _wrong_count(case: Case) -> Finding | None:
    found = case.says(r"shape '\[([-\d, ]*)\]' is invalid|Provided sizes \[([-\d, ]*)\] don't multiply")
    if found is None:
        return None
    x = case.inputs[0]
    wanted = _numbers(found.group(1) or found.group(2))
    have, names = list(x.shape), list(x.axes)
    if found.group(2) is not None:
        dim = case.dim(0, -1)
        have, names = [x.shape[dim]], [x.axes[dim]]
    while wanted and have and wanted[0] == have[0] and len(wanted) > 1 and len(have) > 1:
        del wanted[0], have[0], names[0]  # axes in front that stay as they are
    whole = prod(have)
    label = names[0] if len(names) == 1 and names[0] != "?" else f"[{', '.join(names)}]"
    parts = [n for n in wanted if n >= 0]
    new = say("the new axis has") if len(wanted) == 1 else say("the new axes make {sizes} =", sizes=product(parts))
    what = say(
        "{label} has {have} entries; {new} {n}.",
        label=label, have=whole, new=new, n=prod(parts),
    )  # fmt: skip
    if -1 in wanted:
        what = say("{n} does not divide the {have} entries of {label}.", n=prod(parts), have=whole, label=label)
    if is_whole(x) and not whole % max(len(have), 1) and prod(parts) % whole == 0 and prod(parts) > whole:
        return Finding(what, say("{x} has no feature axis yet: ids go through an embedding first.", x=who(x, N_("it"))))
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
    if len(parts) == 2 and not open_ and 1 < n < whole:
        return say(
            "{n} equal parts of {whole} have {each} entries each, not {m}.",
            n=n,
            whole=whole,
            each=whole // n,
            m=parts[1],
        )
    return ""


mistakes(
    "view reshape expand unflatten zeros ones empty full",
    (
        r"must be tuple of ints, ?but (?:got|found element of type) float|got float",
        N_("a size is a whole number, and / always gives a fraction, also where nothing is left over."),
        N_("divide with //: C // H."),
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
        N_("flatten joins the axes from its first number to its second, which must come later."),
        N_("the last two axes of {x}: {c}.flatten(-2)."),
    ),
)
mistakes(
    "mT T mH H t",
    (
        r"only supported on matrices",
        N_("it swaps the last two axes, and {x} is {label}."),
        N_("with one axis there is nothing to swap; a column is {c}[:, None]."),
    ),
)


# ---------------------------------------------------------------- another order, more axes


@kind("permute")
def _permutation(case: Case) -> Finding | None:
    if "number of dimensions" not in case.message:
        return None
    x = case.inputs[0]
    what = say(
        "permute needs every axis once: {x} has {n}, and {m} were given.",
        x=who(x, N_("the tensor")), n=rank(x), m=len(case.numbers),
    )  # fmt: skip
    if len(case.numbers) == rank(x) + 1:
        return Finding(
            what, say("if an axis is missing, split or unsqueeze it first; {label} is what there is.", label=x.label)
        )
    return Finding(what)


mistakes(
    "permute",
    (
        r"duplicate dims",
        N_("permute needs every axis once; one number stands twice."),
        N_("{x} is {label}: name each of its {n} axes once, in the new order."),
    ),
)


@kind("expand", "expand_as", "broadcast_to", "setitem", "copy_")
def _expansion(case: Case) -> Finding | None:
    found = case.says(r"expanded size .*Target sizes: \[([\d, ]*)\]\.  Tensor sizes: \[([\d, ]*)\]")
    if found is None:
        return None
    target, shape = (tuple(_numbers(text)) for text in found.groups())
    x = next(info for info in reversed(case.inputs) if info.shape == shape)
    room = replace(x, variable=None, shape=target, axes=("?",) * len(target))
    at = next(i for i in range(-1, -len(shape) - 1, -1) if shape[i] not in (1, target[i]))
    if case.op.name in ("setitem", "copy_"):
        what = say(
            "the place that is written to is {m}, and {x} is {n}; lined up from the right, {axis} meets {k}.",
            m=concrete(room), x=who(x, N_("the new value")), n=concrete(x), axis=axis_of(x, at), k=target[at],
        )  # fmt: skip
        calls = fitting(x, room)
        fit = say("bring it into the order of the place: {c}{calls}.", c=code_of(x), calls=calls)
        return Finding(what, fit if calls else say("write to a slice of the size of the value, or cut the value."))
    what = say(
        "expand only stretches axes of size 1, lined up from the right; {axis} cannot become {n}.",
        axis=axis_of(x, at), n=target[at],
    )  # fmt: skip
    if len(shape) == len(target) and target[at] % shape[at] == 0:
        n = target[at] // shape[at]
        return Finding(
            what, say("to have each entry {n} times: {c}.repeat_interleave({n}, dim={i}).", n=n, c=code_of(x), i=at)
        )
    return Finding(what, say("put an axis of size 1 where the new one belongs: {c}.unsqueeze(dim).", c=code_of(x)))


mistakes(
    "expand repeat",
    (
        r"number of sizes provided|Number of dimensions of repeat dims",
        N_("{name} wants a number for every axis, and may add axes in front; {x} has {n}, {label}."),
        N_("say one for each axis; for expand, -1 leaves an axis as it is."),
    ),
)


# ---------------------------------------------------------------- cutting and joining


@kind("split", "split_with_sizes")
def _split_sum(case: Case) -> Finding | None:
    found = case.says(r"sum exactly to (\d+) .*dimension (-?\d+)\).*split_sizes=\[([-\d, ]*)\]")
    if found is None:
        return None
    x, dim = case.inputs[0], int(found.group(2))
    parts = _numbers(found.group(3))
    sum_ = f"{' + '.join(map(str, parts))} = {sum(parts)}"
    what = say("the parts must make up the whole axis, {axis}; {sum} does not.", axis=axis_of(x, dim), sum=sum_)
    if parts and x.shape[dim] % parts[0] == 0:
        n = x.shape[dim] // parts[0]
        return Finding(
            what, say("{c}.split({size}, dim={dim}) makes {n} equal parts.", c=code_of(x), size=parts[0], dim=dim, n=n)
        )
    return Finding(what)


mistakes(
    "split",
    (
        r"split_size can only be 0",
        N_("split takes the size of each part, and it is 0 here."),
        N_("split(C // n, dim) makes n parts of size C // n; chunk(n, dim) takes their number."),
    ),
)
mistakes(
    "narrow",
    (
        r"start \((\d+)\) \+ length \((\d+)\) exceeds",
        N_("narrow takes a first place and a length: from {a}, {b} places do not fit into this axis of {x}, {label}."),
        N_("give a shorter length, or write a slice: {c}[:, a:b]."),
    ),
)


@kind("cat", "concat", "concatenate")
def _joined(case: Case) -> Finding | None:
    first, *rest = case.inputs
    odd = next((info for info in rest if rank(info) != rank(first)), None)
    if odd is not None:
        what = say("cat joins tensors with equally many axes; there are {a} and {b}.", a=first.label, b=odd.label)
        return Finding(what, say("add what is missing with unsqueeze, or stack along a new axis."))
    dim = case.dim(0, 0) % max(rank(first), 1)
    for n, info in enumerate(rest, start=1):
        for i in range(rank(first)):
            if i != dim and info.shape[i] != first.shape[i]:
                what = say(
                    "cat joins along axis {dim}; every other axis must be equal, "
                    "and axis {i} is {a} in tensor 0, {b} in tensor {n}.",
                    dim=dim, i=i, a=axis_of(first, i), b=axis_of(info, i), n=n,
                )  # fmt: skip
                return Finding(what, _cat_repair(first, info, dim, i))
    return None


def _cat_repair(first: TensorInfo, other: TensorInfo, dim: int, odd: int) -> str:
    mine, theirs = (first, other) if first.axes[-2:-1] == ("H",) else (other, first)
    if calls := reordered(mine, theirs, free=dim):
        x = who(mine, N_("one of them"))
        return say("{x} has its axes in another order: {c}{calls}.", x=x, c=code_of(mine), calls=calls)
    differ = [j for j in range(rank(first)) if first.shape[j] != other.shape[j]]
    one, many = (first, other) if first.shape[odd] == 1 else (other, first)
    if one.shape[odd] == 1 and set(differ) <= {odd, dim}:  # a class token [1, 1, C] before [B, N, C]
        sizes = ", ".join(str(many.shape[odd]) if j == odd else "-1" for j in range(rank(one)))
        x = who(one, N_("one of them"))
        return say("{x} is there once; show it to each: {c}.expand({sizes}).", x=x, c=code_of(one), sizes=sizes)
    return say("these two fit along dim={i}.", i=odd) if differ == [odd] else ""


@kind("stack")
def _stacked(case: Case) -> Finding | None:
    if not case.says(r"stack expects each tensor to be equal size"):
        return None
    first = case.inputs[0]
    other = next(info for info in case.inputs if info.shape != first.shape)
    what = say("stack puts tensors of one shape along a new axis; there are {a} and {b}.", a=first.label, b=other.label)
    if rank(first) != rank(other):
        return Finding(what)
    mine, theirs = (first, other) if first.axes[-2:-1] == ("H",) else (other, first)
    if calls := reordered(mine, theirs):
        x = who(mine, N_("one of them"))
        return Finding(what, say("{x} has its axes in another order: {c}{calls}.", x=x, c=code_of(mine), calls=calls))
    differ = [j for j in range(rank(first)) if first.shape[j] != other.shape[j]]
    return Finding(
        what,
        say("to join along the axis that differs: torch.cat(..., dim={i}).", i=differ[0]) if len(differ) == 1 else "",
    )


mistakes(
    "cat stack unpack",
    (
        r"must be tuple of Tensors, not Tensor",
        N_("it takes all tensors in one list, and after it the axis."),
        N_("put brackets around them: torch.cat([a, b], dim)."),
    ),
)
mistakes(
    "tensor as_tensor",
    (
        r"only one element tensors|only integer tensors of a single element|converted to Python scalars|to Scalar",
        N_("torch.tensor makes a tensor of numbers; its list holds tensors of many entries."),
        N_("torch.stack([a, b]) puts tensors of one shape along a new axis; torch.cat joins them along an old one."),
    ),
)


# ---------------------------------------------------------------- q, k, v = …


@kind("unpack")
def _unpacked(case: Case) -> Finding | None:
    """A statement that names another number of parts than there are; `args` say what was unpacked."""
    found = case.says(r"values to unpack \(expected (\d+)")
    if found is None:
        return None
    x, wanted, how = case.inputs[0], int(found.group(1)), case.op.args[0]
    names = ", ".join(name.strip() for name in case.line.partition("=")[0].split(","))
    if how == "shape":
        return _unpacked_shape(x, wanted, names)
    count = case.op.args[1]
    if how == "unbind" and "unbind" not in case.line:
        what = say(
            "a tensor is unpacked along its first axis: {x} is {label} and gives {n} parts; the line names {m}.",
            x=who(x, N_("the tensor")), label=x.label, n=count, m=wanted,
        )  # fmt: skip
        whole = x.shape[-1] % wanted == 0
        return Finding(
            what,
            say("cut the last axis into {m} parts: {c}.chunk({m}, dim=-1).", c=code_of(x), m=wanted) if whole else "",
        )
    what = say("{how} of {x}, {label}, gives {n} parts; the line names {m}.",
               how=how, x=who(x, N_("the tensor")), label=x.label, n=count, m=wanted)  # fmt: skip
    if how == "unbind":
        at = [i for i, size in enumerate(x.shape) if size == wanted]
        return Finding(
            what,
            say("axis {i} has {m} entries: {c}.unbind({i}).", i=at[0], m=wanted, c=code_of(x)) if len(at) == 1 else "",
        )
    if x.shape[-1] % wanted:
        return Finding(what)
    size = x.shape[-1] // wanted if how == "split" else wanted
    return Finding(
        what,
        say(
            "for {m} equal parts of the last axis: {c}.{how}({size}, dim=-1).",
            m=wanted,
            c=code_of(x),
            how=how,
            size=size,
        ),
    )


def _unpacked_shape(x: TensorInfo, wanted: int, names: str) -> Finding:
    what = say(
        "{x} has {n} axes, {label}; the line names {m}: {names}.",
        x=who(x, N_("the tensor")), n=rank(x), label=x.label, m=wanted, names=names,
    )  # fmt: skip
    if rank(x) == wanted - 1 and "B" not in x.axes:
        return Finding(what, say("if the batch axis is missing, add it in front: {c}.unsqueeze(0).", c=code_of(x)))
    if is_whole(x) and rank(x) < wanted:
        return Finding(what, say("{x} holds ids: an embedding adds the feature axis.", x=who(x, N_("it"))))
    if all(name.isidentifier() for name in x.axes):
        return Finding(what, say("name what there is: {axes} = {c}.shape.", axes=", ".join(x.axes), c=code_of(x)))
    return Finding(what)


# ---------------------------------------------------------------- einops


@kind("rearrange", "reduce", "repeat", "parse_shape", "pack", "unpack")
def _pattern(case: Case) -> Finding | None:
    """An einops pattern that does not fit; its own message tells what of it, not the names of the axes."""
    x = case.inputs[0]
    if found := case.says(r"can't divide axis of length (\d+) in chunks of (\d+)"):
        whole, n = map(int, found.groups())
        at = x.shape.index(whole)
        what = say("the pattern cuts {axis} into parts of {n}.", axis=axis_of(x, at), n=n)
        return Finding(what, _split_repair(whole, [n], True))
    if found := case.says(r"expected (\d+) dims\. Received (\d+)-dim"):
        left = (case.says(r'pattern "(.*?)\s*->') or re.match("()", "")).group(1)
        what = say("the left side of the pattern, '{left}', names {n} axes; {x} is {label}.",
                   left=left, n=found.group(1), x=who(x, N_("the tensor")), label=x.label)  # fmt: skip
        return Finding(what, say("write on the left what comes in, on the right what goes out."))
    if found := case.says(r"Could not infer sizes for \{(.*?)\}"):
        names = sorted(re.findall(r"\w+", found.group(1)))
        what = say("how long {names} are cannot be told from the sizes alone.", names=", ".join(names))
        return Finding(what, say("give all but one of them, for example {name}=….", name=names[-1]))
    return None


mistakes(
    "rearrange reduce repeat",
    (
        r"Identifiers only on one side of expression \(should be on both\): \{(.*)\}",
        N_("rearrange keeps every axis; {a} stands on one side of the pattern only."),
        N_("to lose an axis use reduce(..., 'mean'), to make one repeat."),
    ),
    (
        r"Specify sizes for new axes in repeat: \{(.*)\}",
        N_("the new axis {a} has no size."),
        N_("give it by name, for example n=3."),
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
        r"Unknown reduction (\w+)",
        N_("reduce does not know '{a}'."),
        N_("it knows 'mean', 'sum', 'max', 'min' and 'prod'."),
    ),
    (
        r"Shape mismatch, (\d+) != (\d+)",
        N_("the pattern makes an axis of {b}, and {x}, {label}, has {a} there."),
        N_("leave out one of the sizes that you give by name: einops finds it."),
    ),
)
