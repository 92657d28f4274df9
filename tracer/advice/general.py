"""What can go wrong in any operation: devices, axes that are not there, gradients, no tensor at all, types."""

import re
from itertools import combinations
from math import prod

from ..records import TensorInfo
from ..speech import N_
from .core import Case, Finding, kind, mistakes, of_all
from .words import code_of, dtype_of, is_whole, rank, who

__all__: list[str] = []


@of_all(first=True)
def _devices(case: Case) -> Finding | None:
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if a.device != b.device]
    if not pairs or "device" not in case.message:
        return None
    a, b = pairs[0]
    repair = N_('move one to the other\'s device: {d}.to("{one}").')
    if _is_own(case, b):
        repair = N_('move what goes in, {c}.to("{other}"), or the model, model.to("{one}").')
    return case.found(
        "{x} is on {one}, {z} is on {other}; one operation works on one device.", repair,
        of=a, called=N_("the first tensor"), also=b, z=who(b, N_("another tensor")), one=a.device, other=b.device,
    )  # fmt: skip


@of_all(first=True)
def _dim_range(case: Case) -> Finding | None:
    said = case.told(r"Dimension out of range .*\[(-\d+), (\d+)\].*got (-?\d+)")
    x, (low, high, dim) = case.inputs[0], map(int, said.groups())
    what = N_("{x} has {n} axes, {label}, numbered 0 to {high} or {low} to -1; there is no axis {dim}.")
    repair = N_("count from the end where you mean the end: dim=-1 is the last axis.")
    if high == rank(x):  # unsqueeze may also put one behind the last
        what = N_("{x} is {label}: a new axis can stand at 0 to {high}; there is no place {dim}.")
        repair = N_("{c}.unsqueeze(-1) puts it at the end.")
    elif rank(x) == 1:
        what = N_("{x} has one axis, {label}, number 0 or -1; there is no axis {dim}.")
        repair = N_("{c}.unsqueeze(0) puts another one in front.")
    elif dim == rank(x) and "B" not in x.axes:
        repair = N_("if the batch axis is missing, add it in front: {c}.unsqueeze(0).")
    return case.found(what, repair, high=high, low=low, dim=dim)


@kind("shape")
def _no_such_axis(case: Case) -> Finding | None:
    case.told("tuple index out of range")
    what = N_("{x} has {n} axes, {label}, numbered 0 to {high} or -{n} to -1.")
    repair = N_("count from the end where you mean the end: {c}.shape[-1] is the last axis.")
    return case.found(what, repair, high=rank(case.inputs[0]) - 1)


@kind("bool", "item", "float", "int", "__float__", "__int__", "__index__")
def _one_number(case: Case) -> Finding | None:
    case.told("more than one value|cannot be converted to Scalar|only one element|single element")
    entries, called = prod(case.inputs[0].shape), N_("this tensor")
    if case.op.name == "bool":
        what = N_("if, and, or, not, max and min want one yes or no; {x} has {entries} entries, {label}.")
        repair = N_("entry by entry: torch.where(condition, a, b), or & | ~; one answer for all: .all() or .any().")
        return case.found(what, repair, called=called, entries=entries)
    what = N_("a Python number holds one entry; {x} has {entries}, {label}.")
    if math := re.search(r"math\.(sqrt|exp|log|log2|sin|cos|tanh|floor|ceil)\(", case.line):
        repair = N_("math is for one number; entry by entry: torch.{f}(...).")
        return case.found(what, repair, called=called, entries=entries, f=math.group(1))
    return case.found(what, "take one, {c}[i, ...], or their mean, {c}.mean().", called=called, entries=entries)


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
        N_("write y = y + 1 in the place of y += 1 for what comes out of an operation."),
    ),
    (
        r"backward through the graph a second time",
        N_("backward frees what it used, and was called twice for one forward pass."),
        N_("run the model again for each step; detach what is carried over: hidden.detach()."),
    ),
)
mistakes(
    "backward grad",
    (
        r"does not require grad",
        N_("nothing that {x} was computed from asks for gradients."),
        N_("compute it outside of torch.no_grad(), from parameters, without detach() or item() on the way."),
    ),
)
mistakes(
    "",
    (
        r"a leaf Variable that requires grad is being used in an in-place",
        N_("{x} asks for gradients, and may not be overwritten while they are recorded."),
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
        r"cannot be called on meta tensors|no data on meta",
        N_("{x} is on the meta device, where tensors have shapes and no numbers."),
        N_("ask for numbers where the data is real."),
    ),
    (
        r"not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver",
        N_("this machine has no GPU that torch can use."),
        N_("take the device from tracer.device(): the CPU where there is nothing else."),
    ),
)


# ---------------------------------------------------------------- no tensor at all

_GOT = (
    r"must be Tensor, not (\w+)",
    r"unsupported operand type\(s\) for [^ ]+ 'Tensor' and '(?:torch\.return_types\.)?(\w+)'",
    r"unsupported operand type\(s\) for [^ ]+ '(\w+)' and 'Tensor'",
    r'can only concatenate (tuple|list) \(not "Tensor"\)',
    r"^'(\w+)' object has no attribute",
    r"Tensor as element \d+ in argument \d+, but got (\w+)",
)
_INSTEAD = {
    "tuple": (
        N_("a tensor is needed here, and this is a tuple, several results in one."),
        N_("nn.MultiheadAttention, nn.LSTM and nn.GRU return two things: out, _ = layer(...)."),
    ),
    "NoneType": (
        N_("a tensor is needed here, and this is None."),
        N_("a function without `return` gives None; look at the one that it came from."),
    ),
    "list": (
        N_("a tensor is needed here, and this is a list."),
        N_("torch.tensor([...]) makes one of numbers, torch.stack([...]) one of tensors."),
    ),
    "int": (N_("a tensor is needed here, and this is a number."), N_("for plain numbers: n ** 0.5, or math.sqrt(n).")),
    "dict": (
        N_("a tensor is needed here, and this is a dict, several results by name."),
        N_("take one by its name, as in out['logits']."),
    ),
    "str": (
        N_("a tensor is needed here, and this is a text."),
        N_("leave out the quotes, or make it a number: float(s)."),
    ),
    "max": (
        N_("a tensor is needed here, and these are two: along an axis {found} gives the values and their places."),
        N_("write .values behind the call, or call a{found}, which gives the values alone."),
    ),
}
_INSTEAD |= {"float": _INSTEAD["int"], "min": _INSTEAD["max"]}


@of_all(first=False)
def _no_tensor(case: Case) -> Finding | None:
    """A call that got something else than a tensor."""
    said = next(filter(None, map(case.says, _GOT)))
    return case.found(*_INSTEAD[said.group(1)], found=said.group(1))


# ---------------------------------------------------------------- types

mistakes(
    "bitwise_and bitwise_or bitwise_xor bitwise_not",
    (
        r"not implemented for|only implemented on integer and Boolean",
        N_("& | ~ are for True and False, and for whole numbers; these are fractions."),
        N_("compare first: mask != 0."),
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
        N_("a complex number is made of two, on the last axis; {x} is {label}."),
        N_("put pairs there first: {c}.unflatten(-1, (-1, 2))."),
    ),
)
mistakes(
    "norm linalg_norm linalg_vector_norm",
    (r"floating point or complex tensor", N_("a length is a fraction; {x} is {dtype}."), N_("{c}.float()")),
)
mistakes(
    "dropout",
    (r"has to be between 0 and 1", N_("dropout's number is the part that it drops."), N_("0.1 drops a tenth.")),
)


@of_all(first=False)
def _dtypes(case: Case) -> Finding | None:
    """Types that do not go together; an integer where a fraction is needed."""
    case.told(r"dtype|scalar type|not implemented for")
    pairs = [(a, b) for a, b in combinations(case.inputs, 2) if dtype_of(a) != dtype_of(b)]
    if pairs and not case.says(r"not implemented for|infer"):
        return _two_types(case, *pairs[0])
    whole = next(info for info in case.inputs if is_whole(info) or dtype_of(info) == "bool")
    what = N_("{op} works on floating-point numbers; {x} is {dtype}.")
    return case.found(what, "{c}.float()", of=whole, op=case.op.name)


def _two_types(case: Case, a: TensorInfo, b: TensorInfo) -> Finding:
    target, other = (b, a) if _is_own(case, b) and not _is_own(case, a) else (a, b)
    name = "" if _is_own(case, target) else code_of(target)
    repair = N_("convert {which}: {code}.to({to}).")
    if is_whole(a) != is_whole(b):
        other = a if is_whole(a) else b
        repair = N_("token ids go through an embedding first; quantities become {code}.float().")
    return case.found(
        "{x} is {dtype}, {z} is {y_dtype}; this operation wants one type.", repair,
        of=a, called=N_("the first tensor"), also=b, z=who(b, N_("another")), code=code_of(other),
        which=who(other, N_("the first tensor") if other is a else N_("the other")),
        to=f"{name}.dtype" if name else f"torch.{dtype_of(target)}",
    )  # fmt: skip


def _is_own(case: Case, info: TensorInfo) -> bool:
    """Tell whether a tensor belongs to the layer: its weights keep their type, what comes in is converted."""
    layer = case.op.name in ("linear", "layer_norm", "rms_norm") and info is not case.inputs[0]
    return layer or "." in (info.variable or "")
