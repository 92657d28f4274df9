"""What an operation costs, from its shapes alone: FLOPs of products, bytes of tensors."""

from collections.abc import Sequence
from functools import cache
from math import prod

__all__ = ["flops_of", "item_size"]

Shape = tuple[int, ...]

_ITEM = {
    "bool": 1,
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "complex32": 4,
    "float16": 2,
    "bfloat16": 2,
}


@cache
def item_size(dtype: str) -> int:
    """Return the bytes of one entry of a dtype written as text (`float32`)."""
    if dtype in _ITEM:
        return _ITEM[dtype]
    digits = "".join(c for c in dtype.split("_", maxsplit=1)[0] if c.isdigit())[:2]
    return {"8": 1, "16": 2, "32": 4, "64": 8}.get(digits, 1 if dtype.startswith(("float8", "int8", "uint8")) else 4)


def flops_of(name: str, inputs: Sequence[Shape], outputs: Sequence[Shape], equation: str | None = None) -> int:
    """Return 2·m·n·k for products, 0 for all else. `inputs`, `outputs`: shapes of the tensors; `equation`: einsum's.

    Example:
        >>> flops_of("matmul", [(2, 3, 8, 16), (2, 3, 16, 8)], [(2, 3, 8, 8)])
        12288
    """
    if not outputs:
        return 0
    if name in ("matmul", "mm", "bmm", "mv", "dot", "linear", "rmatmul") and len(inputs) > 1 and inputs[0]:
        return 2 * prod(outputs[0]) * inputs[0][-1]
    if name in ("addmm", "baddbmm", "addmv") and len(inputs) > 2:
        return 2 * prod(outputs[0]) * inputs[1][-1]
    if name == "scaled_dot_product_attention" and len(inputs) > 2:
        q, k, v = inputs[:3]
        return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])
    if name == "einsum" and equation and len(inputs) == 2 and "..." not in equation:
        sizes: dict[str, int] = {}
        for letters, shape in zip(equation.replace(" ", "").split("->")[0].split(","), inputs, strict=False):
            sizes.update(zip(letters, shape, strict=False))
        return 2 * prod(sizes.values())
    return 0
