"""What operations cost, worked out from their records alone: FLOPs, bytes, and what is alive at one time.

One small rule for each family of products counts FLOPs; all else counts 0. Nothing is measured: the same trace costs
the same on every machine. Showing costs is left to `render.costs`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

from .records import Op, Ref, Slice, TensorInfo
from .speech import say

__all__ = [
    "By",
    "Cost",
    "Peak",
    "Traffic",
    "bytes_of",
    "encoder_flops",
    "flops_of",
    "item_size",
    "outermost",
    "peak",
    "tally",
    "traffic",
]

Shape = tuple[int, ...]
By = Literal["operation", "module", "line"]

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


# ------------------------------------------------------------------ FLOPs


class Product(NamedTuple):
    """A call as the rules read it: `args` with a shape in the place of each tensor, `out` the first output's shape."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    inputs: Sequence[Shape]
    out: Shape

    def arg(self, at: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or its name."""
        return self.args[at] if at < len(self.args) else self.named.get(name, default)


class Sized(tuple[int, ...]):
    """The shape of a tensor among the arguments: told apart from a tuple that the user wrote."""

    __slots__ = ()


Rule = Callable[[Product], int]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how the FLOPs of these operations are counted; a name that is there already raises."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"two rules count {name}")
            _RULES[name] = function
        return function

    return register


def flops_of(
    name: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    args: tuple[Any, ...] = (),
    kwargs: Iterable[tuple[str, Any]] = (),
    shape_of: Callable[[Ref], Shape] = lambda ref: (),
) -> int:
    """Return the FLOPs of an operation: 2·m·n·k for a product [m, k] @ [k, n], 0 for what is no product.

    A multiplication and an addition count as two; bias, scale, mask and softmax are not counted, and neither is the
    backward pass. Counted are the products of all matmul-like calls, convolutions, recurrent layers (their
    matrices, once for each position) and attention. Attention counts both of its products over all T x S scores:
    `is_causal` and masks do not halve it, and with grouped heads each query head counts. `outer` is a product with
    k = 1, `bilinear` two products, first with the left input. An einsum of more than two operands is taken from left
    to right, as torch does without opt_einsum. Where `torch.utils.flop_counter` counts, the numbers are equal.

    Args:
        name: as in `Op.name`.
        inputs: the tensors among the arguments, in order.
        outputs: the results; without any the call failed and costs nothing.
        args: the recorded arguments; read by the few operations whose cost is not in the shapes.
        kwargs: those that were given by name.
        shape_of: from a `Ref` in the arguments to its tensor's shape.
    """
    count = _RULES.get(name)
    if count is None or not outputs or any(-1 in t.shape for t in (*inputs, *outputs)):
        return 0  # a ragged axis has no one length
    named = {k: _shaped((v,), shape_of)[0] for k, v in kwargs}
    try:
        return count(Product(_shaped(args, shape_of), named, [t.shape for t in inputs], outputs[0].shape))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return 0  # arguments of a form that the rule does not know


def _shaped(args: tuple[Any, ...], shape_of: Callable[[Ref], Shape]) -> tuple[Any, ...]:
    return tuple(
        [Sized(shape_of(a)) if type(a) is Ref else _shaped(a, shape_of) if type(a) is tuple else a for a in args]
    )


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "linear", "linalg_matmul", "_scaled_mm")
def _matmul(p: Product) -> int:
    return 2 * prod(p.out) * p.inputs[0][-1]


@rule("rmatmul")
def _rmatmul(p: Product) -> int:
    return 2 * prod(p.out) * p.inputs[1][-1]


@rule("addmm", "baddbmm", "addmv", "addmm_", "baddbmm_", "addmv_")
def _added(p: Product) -> int:
    return 2 * prod(p.out) * p.inputs[1][-1]


@rule("addbmm", "addbmm_")
def _added_over_the_batch(p: Product) -> int:
    return 2 * prod(p.out) * p.inputs[1][0] * p.inputs[1][-1]


@rule("outer", "ger", "addr")
def _outer(p: Product) -> int:
    return 2 * prod(p.out)


@rule("linalg_vecdot")
def _vecdot(p: Product) -> int:
    dim: int = p.arg(2, "dim", -1)
    return 2 * prod(p.out) * p.inputs[0][dim]


@rule("_grouped_mm", "grouped_mm")
def _grouped(p: Product) -> int:
    groups = p.out[0] if len(p.out) > len(p.inputs[0]) else 1  # [m, K] @ [K, n] cut along K: each group has a part
    return 2 * prod(p.out) * p.inputs[0][-1] // groups


@rule("bilinear")
def _bilinear(p: Product) -> int:
    _, i, j = p.inputs[2]
    return 2 * prod(p.out) * j * (i + 1)  # x1 @ W gives [N, o, j], which x2 then sums over j


@rule("tensordot")
def _tensordot(p: Product) -> int:
    a, b = p.inputs[:2]
    dims = p.arg(2, "dims", 2)
    pairs = zip(a[-dims:], b, strict=False) if type(dims) is int else ((a[i], b[j]) for i, j in zip(*dims, strict=True))
    return 2 * prod(p.out) * (prod(map(min, pairs)) if dims else 1)


@rule("linalg_multi_dot", "chain_matmul")
def _chain(p: Product) -> int:
    """The cheapest order of a chain of products, which torch takes too."""
    shapes = p.inputs
    sizes = [shapes[0][0] if len(shapes[0]) > 1 else 1, *(s[0] for s in shapes[1:]), shapes[-1][-1]]
    if len(shapes[-1]) == 1:
        sizes[-1] = 1

    @cache
    def cost(i: int, j: int) -> int:
        parts = (cost(i, k) + cost(k, j) + 2 * sizes[i] * sizes[k] * sizes[j] for k in range(i + 1, j))
        return min(parts, default=0)

    return cost(0, len(shapes))


@rule("matrix_power", "linalg_matrix_power")
def _power(p: Product) -> int:
    n: int = abs(p.arg(1, "n"))
    squared, times = n.bit_length() - 1, n.bit_count() - 1
    return 2 * prod(p.out) * p.out[-1] * max(0, squared + times)


@rule("conv1d", "conv2d", "conv3d")
def _convolution(p: Product) -> int:
    return 2 * prod(p.out) * prod(p.inputs[1][1:])  # weight [c_out, c_in / groups, *window]


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(p: Product) -> int:
    return 2 * prod(p.inputs[0]) * prod(p.inputs[1][1:])  # each entry that comes in is spread over a window


@rule("scaled_dot_product_attention")
def _attention(p: Product) -> int:
    q: Shape = p.arg(0, "query")
    k: Shape = p.arg(1, "key")
    return 2 * prod(p.out[:-1]) * k[-2] * (q[-1] + p.out[-1])


@rule("multi_head_attention_forward")
def _attention_layer(p: Product) -> int:
    q, k, v = p.inputs[:3]
    E, batch, T, S = q[-1], prod(q[1:-1]), q[0], k[0]
    rows = S + (p.arg(7, "bias_k") is not None) + bool(p.arg(9, "add_zero_attn", False))
    projections = 2 * batch * E * (T * E + S * (k[-1] + v[-1]) + T * E)  # of q; of k and v; of the joined heads
    return projections + 4 * batch * T * rows * E


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(p: Product) -> int:
    weights = next(a for a in reversed(p.args) if type(a) is tuple and a and isinstance(a[0], Sized))
    return _matrices(p.inputs[0], weights)


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(p: Product) -> int:
    return _matrices(p.inputs[0], p.args[2:4])


def _matrices(x: Shape, weights: Iterable[Shape]) -> int:
    """Each matrix of a layer takes each position of the input `[…, features]` once."""
    return 2 * prod(x[:-1]) * sum(prod(w) for w in weights if len(w) == 2)


def encoder_flops(x: Shape, weights: Iterable[Shape], batch_first: bool) -> int:
    """Return the FLOPs of self-attention layers, with or without their MLP, that ran as one fused operation.

    x: `[B, T, C]`, or `[T, B, C]`, or `[T, C]`; weights: shapes of all parameters inside. Padding counts as if it were
    computed.
    """
    weights = list(weights)
    T = x[-2] if batch_first else x[0]
    layers = sum(len(w) == 2 and w[0] == 3 * w[1] == 3 * x[-1] for w in weights)  # each joins its W_q, W_k, W_v
    return _matrices(x, weights) + layers * 4 * prod(x) * T


@rule("einsum")
def _einsum(p: Product) -> int:
    equation = next(a for a in (*p.args, *p.named.values()) if isinstance(a, str))
    left, _, right = equation.partition("->")
    terms = [_letters(part, shape) for part, shape in zip(left.split(","), p.inputs, strict=True)]
    if "->" in equation:
        out = {name for name, _ in _letters(right, p.out)}
    else:  # what stands once
        names = [name for term in terms for name in dict(term)]
        out = {name for name in names if type(name) is int or names.count(name) == 1}
    total, held = 0, dict(terms[0])
    for i, term in enumerate(terms[1:], start=2):
        later = out.union(*(dict(t) for t in terms[i:]))
        more, held = _contract(held, dict(term), later)
        total += more
    return total


def _letters(part: str, shape: Shape) -> list[tuple[str | int, int]]:
    """Return the axes of one operand, in torch's letters or einops' words; those of `...` are numbered from the end."""
    words, letters = part.split(), re.findall(r"\.\.\.|\S", part)
    names: list[str | int] = [*(letters if _fits(letters, shape) else words)]
    if "..." in names:
        at, rest = names.index("..."), len(shape) - len(names) + 1
        names[at : at + 1] = range(-rest, 0)
    return list(zip(names, shape, strict=True))


def _fits(names: Sequence[str], shape: Shape) -> bool:
    return len(names) - 1 <= len(shape) if "..." in names else len(names) == len(shape)


def _contract(
    a: dict[str | int, int], b: dict[str | int, int], kept: set[str | int]
) -> tuple[int, dict[str | int, int]]:
    """Multiply two operands and sum what nobody needs; what one side alone has, it sums before."""
    summed = (a.keys() & b.keys()) - kept
    sizes = {n: max(a.get(n, 1), b.get(n, 1)) for n in (*a, *b) if n in kept}
    is_product = summed or (a.keys() - b.keys() and b.keys() - a.keys())
    return (2 * prod(sizes.values()) * prod(min(a[n], b[n]) for n in summed) if is_product else 0), sizes


# ------------------------------------------------------------------ bytes


class Traffic(NamedTuple):
    """Bytes that an operation reads, writes, and takes from the system for its results."""

    read: int
    written: int
    new: int


def bytes_of(info: TensorInfo) -> int:
    """Return the bytes of memory that a tensor stands for.

    An axis of stride 0, as `expand` makes it, is one entry of memory read many times, and counts once; so do windows
    that overlap.
    """
    shape, stride = info.shape, info.stride
    if info.contiguous or stride is None or 0 in shape:
        return max(0, prod(shape)) * item_size(info.dtype)  # -1: a length that is not told, of a ragged axis
    apart = prod(n for n, step in zip(shape, stride, strict=True) if step)
    span = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return min(apart, span) * item_size(info.dtype)


_LOOKUPS = {"embedding": 1, **dict.fromkeys(("getitem", "gather", "index_select", "take", "take_along_dim"), 0)}
"""Operations that read from one of their tensors only what they return, and which one that is."""
_OVERWRITES = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ trunc_normal_ xavier_uniform_ kaiming_uniform_"
    " ones_ zeros_ constant_".split()
)
"""They write their tensor without reading it."""
_PARTS = frozenset("index_copy_ index_add_ scatter_ scatter_add_".split())
"""They write into a tensor as many entries as their last tensor has."""
_EMPTY = frozenset("empty empty_like empty_strided new_empty new_empty_strided".split())


def traffic(
    name: str,
    args: tuple[Any, ...],
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    size: Callable[[TensorInfo], int] = bytes_of,
    facts: Sequence[tuple[Any, ...]] = (),
) -> Traffic:
    """Return the bytes of the tensors that an operation reads and writes, and of the memory that it newly takes.

    A view moves nothing. Memory that several operands share is read once, and an expanded operand is read as what it is
    expanded from. A look-up (`embedding`, `gather`) reads the rows that it returns, an assignment (`x[:, t] = y`)
    writes the part that is assigned; in-place operations take no new memory. What a kernel keeps for itself
    (scratch space, the caches of a processor) is not in it.
    """
    changed = [t for t in outputs if t.memory in ("new", "in-place", None)]
    if outputs and not changed:
        return Traffic(0, 0, 0)
    distinct = {(t.storage, t.offset, size(t)) if t.storage is not None else (t.id, 0, 0): t for t in inputs}
    read = sum(map(size, distinct.values()))
    written = 0 if name in _EMPTY else sum(map(size, changed))
    new = sum(size(t) for t in outputs if t.memory == "new")
    if name in _LOOKUPS and new and len(inputs) > _LOOKUPS[name]:
        read -= max(0, size(inputs[_LOOKUPS[name]]) - written)
    elif name in _OVERWRITES and inputs:
        read = sum(map(size, inputs[1:]))
    elif name == "setitem" and len(args) > 1:
        read = sum(map(size, inputs[1:]))
        written = _entries(inputs[0].shape, args[1], facts) * item_size(inputs[0].dtype)
    elif name in _PARTS and len(inputs) > 1:
        read = sum(map(size, inputs[1:]))
        written = prod(inputs[-1].shape) * item_size(inputs[0].dtype)
        read += written if "add" in name else 0
    return Traffic(read, written, new)


def _entries(shape: Shape, index: Any, facts: Sequence[tuple[Any, ...]]) -> int:
    """Return how many entries `x[index]` has, for an x of this shape; a boolean mask counts as all True."""
    try:
        return _selected(shape, index if type(index) is tuple else (index,), facts)
    except (LookupError, TypeError, ValueError):
        return prod(shape)  # an index of a form that is not known here


def _selected(shape: Shape, items: tuple[Any, ...], facts: Sequence[tuple[Any, ...]]) -> int:
    covers = [_covers(item, facts) for item in items]
    count, picked, at = 1, 1, 0
    for item, n in zip(items, covers, strict=True):
        n = len(shape) - sum(covers) if item is Ellipsis else n
        if type(item) is Slice:
            count *= len(range(*slice(*item).indices(shape[at])))
        elif type(item) is Ref and "bool" not in str(facts[item.fact][5]):
            picked = max(picked, prod(facts[item.fact][1]))
        elif type(item) is tuple:
            picked = max(picked, len(item))
        elif item is Ellipsis or type(item) is Ref:
            count *= prod(shape[at : at + n])
        at += n
    return count * picked * prod(shape[at:])


def _covers(item: Any, facts: Sequence[tuple[Any, ...]]) -> int:
    """Return how many axes one entry of an index takes."""
    if item is None or item is Ellipsis or item is True:
        return 0
    is_mask = type(item) is Ref and "bool" in str(facts[item.fact][5])
    return len(facts[item.fact][1]) if is_mask else 1


# ------------------------------------------------------------------ what is alive at one time


class Peak(NamedTuple):
    """The most bytes that were alive at one time, and the operation at which they were."""

    bytes: int
    op: Op | None

    def __str__(self) -> str:
        if self.op is None:
            return say("{bytes} bytes", bytes=self.bytes)
        return say(
            "{bytes} bytes at operation {index}, {name}", bytes=self.bytes, index=self.op.index, name=self.op.name
        )


def peak(ops: Sequence[Op], returned: Iterable[int] | None = None) -> Peak:
    """Return the peak of live activations, by the order of the operations alone.

    Alive is memory that an operation of the run took for a result: from that operation to the last one that reads or
    writes it, through any view, both included. Inputs, parameters and buffers are apart. `returned` are the storages
    that the call returned: they stay to the end, and what nobody reads goes at once. Where they are not known (None),
    what nobody reads counts as a result and stays.

    It is what a run needs at least. Python holds a tensor as long as a variable has it, which is longer; a kernel may
    take scratch space; and with gradients autograd keeps what backward needs, often most of all activations.
    """
    size: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, op in enumerate(ops):
        for t in op.outputs:
            if t.memory == "new" and t.storage is not None:
                size.setdefault(t.storage, bytes_of(t))
                first.setdefault(t.storage, at)
        for t in op.inputs + op.outputs:
            if t.storage in first:
                last[t.storage] = at
    end = len(ops)
    for storage in [s for s in first if last[s] == first[s]] if returned is None else returned:
        last[storage] = end
    change = [0] * (end + 2)
    for storage, at in first.items():
        change[at] += size[storage]
        change[last[storage] + 1] -= size[storage]
    best, where, alive = 0, None, 0
    for op, more in zip(ops, change, strict=False):
        alive += more
        if alive > best:
            best, where = alive, op
    return Peak(best, where)


# ------------------------------------------------------------------ sums


@dataclass(frozen=True, slots=True)
class Cost:
    """What all operations of one name, one module or one line cost together.

    `count` is how many they are; `share` their part of all FLOPs, `share_bytes` their part of all bytes moved (read
    and written), both from 0 to 1.
    """

    name: str
    count: int
    flops: int
    bytes_read: int
    bytes_written: int
    bytes_new: int
    share: float
    share_bytes: float

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


def tally(ops: Sequence[Op], key: Callable[[Op], str]) -> list[Cost]:
    """Return the costs by key, what costs most FLOPs first, then most bytes.

    An operation that was opened counts once, without the steps inside it.
    """
    own = outermost(ops)
    groups: dict[str, list[Op]] = {}
    for op in own:
        groups.setdefault(key(op), []).append(op)
    flops, moved = sum(op.flops for op in own), sum(op.bytes_read + op.bytes_written for op in own)
    costs = [_cost(name, group, flops, moved) for name, group in groups.items()]
    return sorted(costs, key=lambda cost: (-cost.flops, -cost.bytes_moved))


def outermost(ops: Sequence[Op]) -> list[Op]:
    """Return the operations that are no steps inside another one of these."""
    here = {op.index for op in ops}
    return [op for op in ops if op.parent is None or op.parent not in here]


def _cost(name: str, ops: Sequence[Op], all_flops: int, all_moved: int) -> Cost:
    flops, read, written = (sum(getattr(op, f) for op in ops) for f in ("flops", "bytes_read", "bytes_written"))
    return Cost(
        name=name,
        count=len(ops),
        flops=flops,
        bytes_read=read,
        bytes_written=written,
        bytes_new=sum(op.bytes_new for op in ops),
        share=flops / all_flops if all_flops else 0.0,
        share_bytes=(read + written) / all_moved if all_moved else 0.0,
    )
