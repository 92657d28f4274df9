"""What can go wrong in any operation: types, devices, axes that are not there, gradients, and no tensor at all."""

from itertools import combinations
from math import prod

from ..records import TensorInfo
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes, of_all
from .words import code_of, dtype_of, is_whole, rank, who

__all__: list[str] = []


@of_all(first=True)
def _devices(case: Case) -> Finding | None:
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if a.device != b.device]
    if not pairs or "device" not in case.message:
        return None
    a, b = pairs[0]
    what = say(
        "{a} is on {x}, {b} is on {y}; one operation works on one device.",
        a=who(a, N_("the first tensor")), x=a.device, b=who(b, N_("another tensor")), y=b.device,
    )  # fmt: skip
    if _is_own(case, b):
        return Finding(
            what,
            say(
                'move the model, model.to("{x}"), or what goes in: {a}.to("{y}").', a=code_of(a), x=a.device, y=b.device
            ),
        )
    return Finding(what, say('move one to the other\'s device: {b}.to("{x}").', b=code_of(b), x=a.device))


@of_all(first=True)
def _dim_range(case: Case) -> Finding | None:
    found = case.says(r"Dimension out of range .*\[(-\d+), (\d+)\].*got (-?\d+)")
    if found is None:
        return None
    x, low, dim = case.inputs[0], int(found.group(1)), int(found.group(3))
    if low != -rank(x):  # unsqueeze may also go behind the last
        what = say("{x} has {n} axes, {label}: a new one can stand at 0 to {last}; there is no place {dim}.",
                   x=who(x, N_("the tensor")), n=rank(x), label=x.label, last=-low - 1, dim=dim)  # fmt: skip
        return Finding(
            what, say("count from the end where you mean the end: {c}.unsqueeze(-1) adds it last.", c=code_of(x))
        )
    if rank(x) == 1:
        what = say("{x} has one axis, {label}, number 0 or -1; there is no axis {dim}.",
                   x=who(x, N_("the tensor")), label=x.label, dim=dim)  # fmt: skip
        return Finding(what, say("{c}.unsqueeze(0) puts another axis in front.", c=code_of(x)))
    what = say(
        "{x} has {n} axes, {label}, numbered 0 to {last} or -{n} to -1; there is no axis {dim}.",
        x=who(x, N_("the tensor")), n=rank(x), label=x.label, last=rank(x) - 1, dim=dim,
    )  # fmt: skip
    if dim == rank(x) and "B" not in x.axes:
        return Finding(what, say("if the batch axis is missing, add it in front: {c}.unsqueeze(0).", c=code_of(x)))
    return Finding(what, say("count from the end where you mean the end: dim=-1 is the last axis."))


# ---------------------------------------------------------------- one number


@kind("bool", "item", "float", "int", "__float__", "__int__", "__index__")
def _one_number(case: Case) -> Finding | None:
    if not case.says("more than one value|cannot be converted to Scalar|only one element|single element"):
        return None
    x = case.inputs[0]
    name = who(x, N_("this tensor"))
    if case.op.name == "bool":
        what = say(
            "if, and, or, not, max and min want one yes or no; {x} has {n} entries, {label}.",
            x=name, n=prod(x.shape), label=x.label,
        )  # fmt: skip
        return Finding(
            what, say("entry by entry: torch.where(condition, a, b), or & | ~; one answer for all: .all() or .any().")
        )
    what = say("a Python number holds one entry; {x} has {n}, {label}.", x=name, n=prod(x.shape), label=x.label)
    return Finding(what, say("take one, {c}[i, ...], or their mean, {c}.mean().", c=code_of(x)))


# ---------------------------------------------------------------- gradients and memory

mistakes(
    "backward",
    (
        r"can be implicitly created only for scalar",
        N_("backward starts from one number; {x} is {label}."),
        N_("{c}.mean().backward()"),
    ),
    (
        r"modified by an inplace operation",
        N_("a tensor that backward still needs was overwritten in place."),
        N_("write y = y + 1 in the place of y += 1 where y comes out of an operation."),
    ),
    (
        r"backward through the graph a second time",
        N_("backward frees what it used, and was called twice on the same forward pass."),
        N_("run the model again for each step, or detach what is carried over: hidden.detach()."),
    ),
)
mistakes(
    "backward grad",
    (
        r"does not require grad",
        N_("nothing that {x} was computed from asks for gradients."),
        N_("compute it outside of torch.no_grad(), from parameters, without .detach() or .item() on the way."),
    ),
)
mistakes(
    "",
    (
        r"a leaf Variable that requires grad is being used in an in-place",
        N_("{x} is a parameter or asks for gradients, and may not be overwritten where gradients are recorded."),
        N_("make a new tensor, or write inside `with torch.no_grad():`."),
    ),
    (
        r"more than one element of the written-to tensor refers to a single memory location",
        N_("{x} was expanded: several of its entries are one place in memory, and cannot be written one by one."),
        N_("copy it first: {c}.clone()."),
    ),
    (
        r"Can't call numpy\(\) on Tensor that requires grad",
        N_("{x} is still part of the computation of gradients."),
        N_("{c}.detach().numpy()"),
    ),
    (
        r"cannot be called on meta tensors",
        N_("{x} is on the meta device, where tensors have shapes and no numbers."),
        N_("ask for numbers where the data is real."),
    ),
    (
        r"not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver",
        N_("this machine has no GPU that torch can use."),
        N_("take the device from tracer.device(), which is the CPU where there is nothing else."),
    ),
)


# ---------------------------------------------------------------- no tensor at all


@kind("unpack")
def _no_tensor(case: Case) -> Finding | None:
    """A call that got something else than a tensor; `args` have the type that it got."""
    found = case.says(
        r"must be Tensor, not (\w+)|operand type\(s\) for \S+ 'Tensor' and '(\w+)'|operand type\(s\) for \S+ '(\w+)' and '"
        r"|'(\w+)' object has no attribute|Tensor as element \d+ in argument \d+, but got (\w+)"
    )
    if found is None:
        return None
    return _not_a_tensor(next(group for group in found.groups() if group))


@of_all(first=False)
def _not_the_first(case: Case) -> Finding | None:
    found = case.says(r"must be Tensor, not (\w+)")
    return _not_a_tensor(found.group(1)) if found else None


def _not_a_tensor(got: str) -> Finding | None:
    if got == "tuple":
        what = say("a tensor is needed here, and this is a tuple of several results.")
        return Finding(what, say("nn.MultiheadAttention, nn.LSTM and nn.GRU return two things: out, _ = layer(...)."))
    if got == "NoneType":
        what = say("a tensor is needed here, and this is None.")
        return Finding(what, say("a function without `return` gives None; look at the one that made it."))
    if got == "list":
        return Finding(
            say("a tensor is needed here, and this is a list."),
            say("torch.tensor([...]) of numbers, torch.stack([...]) of tensors."),
        )
    if got in ("int", "float"):
        return Finding(
            say("a tensor is needed here, and this is a number."),
            say("for plain numbers there is math.sqrt, or x ** 0.5."),
        )
    return None


@kind("unpack")
def _no_such_axis(case: Case) -> Finding | None:
    if not case.says("tuple index out of range"):
        return None
    x = case.inputs[0]
    what = say("{x} has {n} axes, {label}, numbered 0 to {last} or -{n} to -1.",
               x=who(x, N_("the tensor")), n=rank(x), label=x.label, last=rank(x) - 1)  # fmt: skip
    return Finding(
        what, say("count from the end where you mean the end: {c}.shape[-1] is the last axis.", c=code_of(x))
    )


# ---------------------------------------------------------------- types

mistakes(
    "bitwise_and bitwise_or bitwise_xor bitwise_not",
    (
        r"not implemented for|only implemented on integer and Boolean",
        N_("& | ~ are for True and False, and for whole numbers; one of these is neither."),
        N_("compare first: {c} != 0."),
    ),
)
mistakes(
    "complex polar",
    (
        r"Expected both inputs to be|Expected all inputs",
        N_("{name} joins two tensors of fractions; {x} is {dtype}, {y} is {y_dtype}."),
        N_("convert both: {c}.float() and {d}.float()."),
    ),
)
mistakes(
    "view_as_complex",
    (
        r"last dimension of size 2",
        N_("each complex number is made of two on the last axis; {x} is {label}."),
        N_("put pairs there first: {c}.unflatten(-1, (-1, 2))."),
    ),
)
mistakes(
    "norm linalg_vector_norm",
    (
        r"floating point or complex tensor",
        N_("a length is computed from fractions; {x} is {dtype}."),
        N_("{c}.float()"),
    ),
)
mistakes(
    "dropout",
    (
        r"has to be between 0 and 1",
        N_("dropout's number is the part that is dropped, from 0 to 1."),
        N_("0.1 drops a tenth."),
    ),
)


@of_all(first=False)
def _dtypes(case: Case) -> Finding | None:
    """Types that do not go together; an integer where a fraction is needed."""
    if not case.says(r"dtype|scalar type|not implemented for"):
        return None
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if dtype_of(a) != dtype_of(b)]
    if pairs and not case.says(r"not implemented for|infer"):
        a, b = pairs[0]
        what = say(
            "{a} is {x}, {b} is {y}; this operation wants one type.",
            a=who(a, N_("the first tensor")), x=dtype_of(a), b=who(b, N_("another")), y=dtype_of(b),
        )  # fmt: skip
        if is_whole(a) != is_whole(b):
            ids = a if is_whole(a) else b
            return Finding(
                what, say("token ids go through an embedding first; quantities become {c}.float().", c=code_of(ids))
            )
        target, other = (b, a) if _is_own(case, b) and not _is_own(case, a) else (a, b)
        name = code_of(target) if not _is_own(case, target) else ""
        dtype = f"{name}.dtype" if name else f"torch.{dtype_of(target)}"
        x = who(other, N_("the first tensor") if other is a else N_("the other"))
        return Finding(what, say("convert {x}: {c}.to({dtype}).", x=x, c=code_of(other), dtype=dtype))
    whole = next(info for info in case.inputs if is_whole(info) or dtype_of(info) == "bool")
    what = say(
        "{name} works on floating-point numbers; {x} is {dtype}.",
        name=case.op.name, x=who(whole, N_("the tensor")), dtype=dtype_of(whole),
    )  # fmt: skip
    return Finding(what, say("{c}.float()", c=code_of(whole)))


def _is_own(case: Case, info: TensorInfo) -> bool:
    """Tell whether a tensor belongs to the layer: its weights keep their type, what comes in is converted."""
    layer = case.op.name in ("linear", "layer_norm", "rms_norm") and info is not case.inputs[0]
    return layer or "." in (info.variable or "")
