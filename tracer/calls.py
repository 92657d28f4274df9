"""From a torch function to the name that the user wrote for it; each function once per process.

`x @ y` reaches us as `Tensor.matmul`, `1 - x` as `Tensor.__rsub__`, `x.mT` as the `__get__` of a descriptor, just as
`.shape` does. Reading a tensor's description (`.shape`, `.size()`, `len`) is no operation and is never recorded.
"""

import inspect
from functools import lru_cache
from typing import Any

from .records import Call

__all__ = ["CALLS", "READS", "call_of", "inplace_position", "module_call"]

READS = frozenset("allclose backward bool equal item numpy tolist".split())
"""Recorded although no tensor comes out of them; other calls without a tensor in their result are not."""

SKIPPED = frozenset(
    """
    size dim ndimension stride numel nelement element_size requires_grad_ retain_grad register_hook
    register_post_accumulate_grad_hook is_contiguous storage storage_offset untyped_storage storage_type data_ptr
    get_device is_floating_point is_complex is_signed is_inference is_pinned is_shared is_same_size is_set_to is_neg
    is_conj is_nonzero is_distributed is_coalesced is_tensor is_storage sparse_dim dense_dim has_names
    result_type promote_types can_cast broadcast_shapes device
    __len__ __repr__ __str__ __hash__ __format__ __dir__ __reduce__ __reduce_ex__ __setstate__ __contains__
    __dlpack__ __dlpack_device__ __array_wrap__
    """.split()
)
"""Questions about a tensor, not operations on it."""

DESCRIPTORS = frozenset("T mT H mH real imag data".split())
"""Attributes that give a tensor and count as operations; all other attributes are skipped."""

OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__rsub__": "rsub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__matmul__": "matmul", "__rmatmul__": "rmatmul",
    "__imatmul__": "matmul_", "__truediv__": "div", "__div__": "div", "__rtruediv__": "rdiv", "__rdiv__": "rdiv",
    "__itruediv__": "div_", "__idiv__": "div_", "__floordiv__": "floor_divide", "__rfloordiv__": "rfloor_divide",
    "__ifloordiv__": "floor_divide_", "__mod__": "remainder", "__rmod__": "rremainder", "__imod__": "remainder_",
    "__pow__": "pow", "__rpow__": "rpow", "__ipow__": "pow_", "__neg__": "neg", "__pos__": "positive",
    "__abs__": "abs", "__invert__": "bitwise_not", "__and__": "bitwise_and", "__rand__": "bitwise_and",
    "__iand__": "bitwise_and_", "__or__": "bitwise_or", "__ror__": "bitwise_or", "__ior__": "bitwise_or_",
    "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor", "__ixor__": "bitwise_xor_",
    "__lshift__": "bitwise_left_shift", "__rlshift__": "bitwise_left_shift", "__ilshift__": "bitwise_left_shift_",
    "__rshift__": "bitwise_right_shift", "__rrshift__": "bitwise_right_shift", "__irshift__": "bitwise_right_shift_",
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__getitem__": "getitem", "__setitem__": "setitem", "__bool__": "bool", "__deepcopy__": "deepcopy",
    "__reversed__": "flip", "dsmm": "mm", "spmm": "mm",  # they equal mm as keys: the first to be met would name all
}  # fmt: skip
"""Python's operator methods, under the names that torch gives to the same operations."""

CALLS: dict[Any, Call] = {}
"""torch function -> its Call. A cache: nothing in it depends on what was traced."""

_MODULES: dict[str, Call] = {}


def call_of(func: Any) -> Call:
    """Return the Call of a torch function, making it at first sight."""
    try:
        call = CALLS.get(func)
    except TypeError:  # an object that cannot be a key
        return _make(func)
    if call is None:
        call = CALLS[func] = _make(func)
    return call


def module_call(name: str) -> Call:
    """Return the Call that stands for a whole module which ran untouched, named after its class."""
    return _MODULES.setdefault(name, Call(name))


@lru_cache
def inplace_position(func: Any) -> int | None:
    """Return where the argument `inplace` of a function stands, or None if it has none."""
    try:
        return list(inspect.signature(func).parameters).index("inplace")
    except (TypeError, ValueError):
        return None


def _make(func: Any) -> Call:
    name = str(getattr(func, "__name__", "") or type(func).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        return _attribute(func, name)
    name = name.partition(".")[0]  # torch.ops.aten.add.Tensor
    inplace = name in OPERATORS and OPERATORS[name].endswith("_")
    name = OPERATORS.get(name, name)
    inplace = inplace or name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    return Call(name, skip=name in SKIPPED, inplace=inplace)


def _attribute(func: Any, kind: str) -> Call:
    owner = getattr(func, "__self__", None)
    name = getattr(owner, "__name__", None) or getattr(getattr(owner, "fget", None), "__name__", "")
    if kind == "__get__" and name in DESCRIPTORS:
        return Call(name)
    if kind == "__set__" and name in DESCRIPTORS:
        return Call(name, inplace=True)
    return Call(name or kind, skip=True)
