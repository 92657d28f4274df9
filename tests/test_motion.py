"""What `reads` names is what the numbers say: every entry of every input is changed, and what changes in the result.

An input entry must be named for a result entry exactly where changing it changes that result. `hides` marks inputs that
a mask, a choice or a zero hides in places: those may be named for more, never for less. `unknown` marks inputs whose
reads have no form: None.
"""

import itertools
from dataclasses import dataclass
from math import prod

import pytest
import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce, repeat

import tracer
from tracer.render.motion import motion


@dataclass(frozen=True)
class Case:
    """One call: its inputs are drawn at `shapes`; an entry that is no tuple of sizes is passed as it is."""

    name: str
    call: object
    shapes: tuple
    kind: str
    hides: tuple = ()
    unknown: tuple = ()
    axes: tuple | None = None
    output: int = 0
    only: str = ""

    def __str__(self):
        return (
            f"{self.name}-{'-'.join('x'.join(map(str, s)) if isinstance(s, tuple) else 'given' for s in self.shapes)}"
        )


def draw(shape, seed):
    if isinstance(shape, torch.Tensor):
        return shape.clone()
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64) * 1.3 + 0.1


def changes(case, inputs, number, plain):
    """Return a bool array [entries of input `number`, entries of the result]: which changes are felt where."""
    x = inputs[number]
    felt = torch.zeros(x.numel(), plain.numel(), dtype=torch.bool)
    for at in range(x.numel()):
        for other in others(x.reshape(-1)[at], x):
            changed = [i.clone() for i in inputs]
            changed[number].view(-1)[at] = other
            result = result_of(case, changed)
            same = (result == plain) | (result.isnan() & plain.isnan())
            felt[at] |= ~same.reshape(-1)
    return felt


def others(value, x):
    if x.dtype == torch.bool:
        return [~value]
    if not x.is_floating_point():
        return [torch.tensor(i) for i in range(4) if i != value]
    return [value + 0.37, value - 5.3, value + 1000.0, -value * 0.5]


def result_of(case, inputs):
    torch.manual_seed(0)
    result = case.call(*(i.clone() for i in inputs))
    return (result if isinstance(result, torch.Tensor) else result[case.output]).detach()


def named_by(read, shape, out):
    """Return the bool array that a read stands for, worked out entry by entry as the player does."""
    named = torch.zeros(prod(shape), prod(out), dtype=torch.bool)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    for number, index in enumerate(itertools.product(*map(range, out))):
        if read[0] == "flat":
            named[number, number] = True
            continue
        ranges = []
        for entry, n in zip(read[1], shape, strict=True):
            if entry == "all":
                ranges.append(range(n))
            elif isinstance(entry, int):
                ranges.append([0 if n == 1 else index[entry]])
            else:
                at = index[entry[0]] - entry[1]
                ranges.append([at] if 0 <= at < n else [])
        for place in itertools.product(*ranges):
            named[sum(i * s for i, s in zip(place, strides, strict=True)), number] = True
    return named


def check(case):
    inputs = [draw(s, i) for i, s in enumerate(case.shapes)]
    torch.manual_seed(0)
    trace = tracer.trace(case.call, *(i.clone() for i in inputs))
    op = trace.find(name=case.only)[0] if case.only else [op for op in trace if op.parent is None][-1]
    moved = motion(op, case.output)
    assert moved.kind == case.kind
    if case.axes is not None:
        assert moved.axes == case.axes
    assert len(moved.reads) == len(op.inputs) == len(inputs)
    plain = result_of(case, inputs)
    for i, read in enumerate(moved.reads):
        assert (read is None) == (i in case.unknown), (i, read)
        if read is None:
            continue
        named = named_by(read, tuple(inputs[i].shape), tuple(plain.shape))
        felt = changes(case, inputs, i, plain)
        assert not (felt & ~named).any(), (i, read)
        assert i in case.hides or torch.equal(named, felt), (i, read)
    return moved


def of(name, call, shapes, kind, **more):
    return [
        Case(
            name,
            call,
            s if isinstance(s, tuple) and s and isinstance(s[0], tuple | torch.Tensor) else (s,),
            kind,
            **more,
        )
        for s in shapes
    ]


IDS = torch.tensor([[2, 0, 1], [1, 1, 3]])
MASK = torch.tensor([[True, False, True], [False, False, True]])
SHAPES = [(2, 3, 4), (1, 3, 4), (2, 1, 4), (3,), (1,), (2, 3, 1)]
PAIRS = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1, 4), (3, 1)),
    ((1, 3), (2, 1)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((1,), (1,)),
    ((1, 1), (3,)),
    ((2, 3, 1), (1, 4)),
]

VIEWS = [
    *of("view", lambda x: x.view(2, 3, 4), [(2, 12), (24,), (6, 4), (2, 3, 4), (1, 24)], "regroup"),
    *of("reshape", lambda x: x.reshape(-1), [(2, 3), (2, 3, 2), ()], "regroup"),
    *of("flatten", lambda x: x.flatten(1), [(2, 3, 4), (1, 3, 1)], "regroup"),
    *of("unflatten", lambda x: x.unflatten(-1, (2, 2)), [(2, 3, 4)], "regroup"),
    *of("unsqueeze", lambda x: x.unsqueeze(-2), SHAPES, "regroup"),
    *of("squeeze", lambda x: x.squeeze(), SHAPES, "regroup"),
    *of("view_as", lambda x, y: x.view_as(y), [((2, 6), (3, 4))], "regroup", unknown=(1,)),
    *of("transpose", lambda x: x.transpose(-1, -2), [(2, 3, 4), (2, 1, 4), (2, 3)], "move"),
    *of("transpose", lambda x: x.transpose(0, 2), [(2, 3, 4)], "move", axes=(0, 2)),
    *of("swapaxes", lambda x: x.swapaxes(axis0=0, axis1=1), [(2, 3, 4)], "move", axes=(0, 1)),
    *of("permute", lambda x: x.permute(2, 0, 1), [(2, 3, 4), (2, 1, 4)], "move", axes=(0, 1, 2)),
    *of("permute", lambda x: torch.permute(x, (0, 2, 1, 3)), [(2, 3, 4, 2)], "move", axes=(1, 2)),
    *of("movedim", lambda x: x.movedim(0, -1), [(2, 3, 4)], "move"),
    *of("moveaxis", lambda x: x.moveaxis((0, 1), (2, 0)), [(2, 3, 4)], "move"),
    *of("T", lambda x: x.T, [(2, 3), (1, 3)], "move"),
    *of("mT", lambda x: x.mT, [(2, 3, 4)], "move"),
    *of("t", lambda x: x.t(), [(2, 3), (3,)], "move"),
    *of("expand", lambda x: x.expand(2, 3, 4), [(1, 3, 1), (3, 4), (2, 3, 4), (1,)], "other"),
    *of("expand_as", lambda x, y: x.expand_as(y), [((3, 1), (2, 3, 4))], "other", unknown=(1,)),
    *of("repeat", lambda x: x.repeat(2, 1, 3), [(3, 1), (1, 3, 1)], "other"),
    *of("repeat", lambda x: x.repeat(2, 1), [(2, 3)], "other", unknown=(0,)),
    *of("repeat_interleave", lambda x: x.repeat_interleave(3, dim=1), [(2, 1, 2)], "other"),
    *of("repeat_interleave", lambda x: x.repeat_interleave(3, dim=1), [(2, 2, 2)], "other", unknown=(0,)),
    *of("diagonal", lambda x: x.diagonal(), [(3, 3), (2, 4), (3, 2, 2)], "cut"),
    *of("diagonal", lambda x: x.diagonal(1, -2, -1), [(2, 3, 4)], "cut"),
    *of("diagonal", lambda x: x.diagonal(offset=-1), [(3, 3), (4, 2)], "cut"),
    *of("contiguous", lambda x: x.contiguous(), [(2, 3)], "pointwise"),
    *of("clone", lambda x: x.clone(), SHAPES, "pointwise"),
]

JOINS_AND_CUTS = [
    *of(
        "cat",
        lambda *p: torch.cat(p, 1),
        [((2, 3), (2, 1), (2, 2)), ((2, 1, 2), (2, 3, 2)), ((1, 1), (1, 1))],
        "join",
        axes=(1,),
    ),
    *of("cat", lambda *p: torch.cat(p, dim=-1), [((2, 3), (2, 1)), ((3,), (2,))], "join"),
    *of("hstack", lambda *p: torch.hstack(p), [((2, 3), (2, 1)), ((3,), (2,))], "join"),
    *of("vstack", lambda *p: torch.vstack(p), [((2, 3), (1, 3))], "join"),
    *of("stack", lambda *p: torch.stack(p), [((2, 3), (2, 3))], "join", unknown=(0, 1)),
    *of("block_diag", torch.block_diag, [((2, 3), (1, 2))], "join"),
    *of("split", lambda x: x.split(2, dim=1), [(2, 4), (2, 5, 2)], "cut", output=1, axes=(1,)),
    *of("split", lambda x: x.split([1, 3], dim=-1), [(2, 4)], "cut", output=1),
    *of("split", lambda x: x.split(2), [(5, 2), (2, 2)], "cut", output=0),
    *of("chunk", lambda x: x.chunk(3, -1), [(2, 6), (2, 5)], "cut", output=2),
    *of("tensor_split", lambda x: x.tensor_split(2, dim=1), [(2, 5)], "cut", output=1),
    *of("narrow", lambda x: x.narrow(1, 1, 2), [(2, 4)], "cut", axes=(1,)),
    *of("unbind", lambda x: x.unbind(1), [(2, 1, 3)], "cut"),
    *of("unbind", lambda x: x.unbind(0), [(2, 3)], "cut", unknown=(0,)),
    *of("select", lambda x: x.select(0, 1), [(2, 3)], "cut", unknown=(0,)),
    *of("slice", lambda x: x[:, 1:3], [(2, 4), (2, 3, 2)], "cut", axes=(1,)),
    *of("slice", lambda x: x[..., :-1], [(2, 4), (3,)], "cut"),
    *of("slice", lambda x: x[1:, None, :2], [(3, 4)], "cut"),
    *of("slice", lambda x: x[:, -2:], [(2, 4), (2, 3)], "cut"),
    *of("whole", lambda x: x[:, -2:], [(2, 2), (2, 1)], "regroup"),
    *of("none", lambda x: x[None], [(2, 3), (1,)], "regroup"),
    *of("none", lambda x: x[:, None, :, None], [(2, 3)], "regroup"),
    *of("ellipsis", lambda x: x[..., None], [(2, 3)], "regroup"),
    *of("first", lambda x: x[:, 0], [(2, 1, 3)], "cut"),
    *of("last", lambda x: x[:, -1], [(2, 3, 2)], "cut", unknown=(0,)),
    *of("stride", lambda x: x[::2], [(4, 2)], "cut", unknown=(0,)),
    *of("rows", lambda x: x[[0, 2]], [(3, 2)], "gather", unknown=(0,)),
    *of("pad", lambda x: F.pad(x, (1, 2)), [(2, 3), (1,)], "other"),
    *of("pad", lambda x: F.pad(x, (-1, 1, 0, 2)), [(2, 3)], "other"),
    *of("pad", lambda x: F.pad(x, (1, 1), mode="reflect"), [(2, 3)], "other", unknown=(0,)),
]

PRODUCTS = [
    *of(
        "matmul",
        lambda a, b: a @ b,
        [
            ((2, 3), (3, 4)),
            ((2, 2, 3), (2, 3, 2)),
            ((2, 2, 3), (3, 2)),
            ((2, 3), (2, 3, 2)),
            ((3,), (3, 2)),
            ((2, 3), (3,)),
            ((3,), (3,)),
            ((2, 1, 2, 3), (2, 3, 1)),
            ((1, 2, 3), (2, 3, 2)),
            ((3,), (2, 3, 2)),
            ((2, 2, 3), (3,)),
            ((1, 1), (1, 2)),
        ],
        "contract",
    ),
    *of("rmatmul", lambda b, a: b.__rmatmul__(a), [((3, 4), (2, 3))], "contract"),
    *of("mm", torch.mm, [((2, 3), (3, 1))], "contract", axes=(1,)),
    *of("bmm", torch.bmm, [((2, 2, 3), (2, 3, 2)), ((1, 2, 3), (1, 3, 2))], "contract", axes=(2,)),
    *of("mv", torch.mv, [((2, 3), (3,))], "contract"),
    *of("dot", torch.dot, [((3,), (3,))], "contract"),
    *of("addmm", torch.addmm, [((2, 4), (2, 3), (3, 4)), ((4,), (2, 3), (3, 4)), ((2, 1), (2, 3), (3, 4))], "contract"),
    *of("baddbmm", torch.baddbmm, [((2, 2, 4), (2, 2, 3), (2, 3, 4))], "contract"),
    *of("addbmm", torch.addbmm, [((2, 4), (2, 2, 3), (2, 3, 4))], "contract"),
    *of("addmv", torch.addmv, [((2,), (2, 3), (3,))], "contract"),
    *of("addr", torch.addr, [((2, 3), (2,), (3,))], "contract"),
    *of(
        "linear",
        F.linear,
        [
            ((2, 3), (4, 3)),
            ((2, 3), (4, 3), (4,)),
            ((2, 2, 3), (1, 3), (1,)),
            ((3,), (2, 3), (2,)),
            ((2, 3), (3,)),
            ((1, 1), (2, 1), (2,)),
        ],
        "contract",
    ),
    *of("bilinear", F.bilinear, [((2, 3), (2, 2), (4, 3, 2), (4,)), ((2, 2, 3), (2, 2, 2), (2, 3, 2))], "contract"),
    *of(
        "einsum",
        lambda a, b: torch.einsum("bhtd,bhsd->bhts", a, b),
        [((2, 2, 3, 2), (2, 2, 2, 2)), ((1, 2, 3, 2), (2, 1, 2, 2))],
        "contract",
    ),
    *of(
        "einsum",
        lambda a, b: torch.einsum("...td, ...sd -> ...ts", a, b),
        [((2, 3, 2), (2, 2, 2)), ((3, 2), (2, 2))],
        "contract",
    ),
    *of("einsum", lambda a, b: torch.einsum("...ij,jk", a, b), [((2, 2, 3), (3, 2))], "contract"),
    *of("einsum", lambda a, b: torch.einsum("i,j->ij", a, b), [((2,), (3,))], "contract"),
    *of("einsum", lambda a, b, c: torch.einsum("bi,oij,bj->bo", a, b, c), [((2, 3), (4, 3, 2), (2, 2))], "contract"),
    *of("einsum", lambda a: torch.einsum("ij->ji", a), [(2, 3)], "move"),
    *of("einsum", lambda a: torch.einsum("bij->b", a), [(2, 3, 2)], "contract", axes=(1, 2)),
    *of("einsum", lambda a: torch.einsum("ii->i", a), [(3, 3)], "move"),
    *of("einsum", lambda a: torch.einsum("ii", a), [(3, 3)], "contract", unknown=(0,)),
    *of(
        "einops",
        lambda a, b: einsum(a, b, "b t d, b s d -> b t s"),
        [((2, 3, 2), (2, 2, 2))],
        "contract",
        only="einsum",
    ),
    *of("einops", lambda a, b: einsum(a, b, "row c, out c -> row out"), [((2, 3), (4, 3))], "contract", only="einsum"),
    *of("outer", torch.outer, [((2,), (3,)), ((1,), (3,))], "contract"),
    *of("inner", torch.inner, [((2, 3), (4, 3)), ((3,), (2, 3))], "contract"),
    *of("tensordot", lambda a, b: torch.tensordot(a, b, dims=1), [((2, 3), (3, 2))], "contract", axes=(1,)),
    *of(
        "tensordot",
        lambda a, b: torch.tensordot(a, b, dims=([0, 2], [1, 0])),
        [((2, 3, 2), (2, 2, 4))],
        "contract",
        axes=(0, 2),
    ),
    *of("vecdot", torch.linalg.vecdot, [((2, 3), (2, 3)), ((2, 3), (3,))], "contract"),
    *of("multi_dot", lambda *p: torch.linalg.multi_dot(p), [((2, 3), (3, 2), (2, 4))], "contract"),
    *of("cdist", torch.cdist, [((2, 3), (4, 3)), ((2, 2, 3), (2, 4, 3))], "contract"),
    *of("conv1d", F.conv1d, [((2, 3, 4), (2, 3, 1), (2,)), ((2, 3, 4), (2, 3, 4)), ((1, 1, 2), (1, 1, 1))], "contract"),
    *of("conv1d", F.conv1d, [((2, 3, 4), (2, 3, 3), (2,))], "contract", unknown=(0,)),
    *of("conv1d", lambda x, w: F.conv1d(x, w, groups=3), [((2, 3, 4), (3, 1, 1))], "contract"),
    *of("conv1d", lambda x, w: F.conv1d(x, w, None, 1, 0, 1, 2), [((2, 4, 3), (2, 2, 1))], "contract", unknown=(0,)),
    *of(
        "conv1d", lambda x, w: F.conv1d(x, w, padding=1), [((1, 2, 3), (2, 2, 3))], "contract", unknown=(0,), hides=(1,)
    ),
    *of(
        "conv2d",
        F.conv2d,
        [((1, 2, 3, 2), (2, 2, 1, 1), (2,)), ((2, 2, 2, 2), (3, 2, 2, 2)), ((2, 2, 3), (2, 2, 1, 1))],
        "contract",
    ),
    *of("conv2d", lambda x, w: F.conv2d(x, w, stride=2), [((1, 2, 4, 4), (2, 2, 2, 2))], "contract", unknown=(0,)),
    *of(
        "sdpa",
        F.scaled_dot_product_attention,
        [((2, 2, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2)), ((3, 2), (2, 2), (2, 4)), ((2, 3, 2), (1, 2, 2), (1, 2, 2))],
        "contract",
    ),
    *of(
        "sdpa",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [((2, 3, 2), (2, 3, 2), (2, 3, 2))],
        "contract",
        hides=(0, 1, 2),
    ),
    *of(
        "sdpa",
        F.scaled_dot_product_attention,
        [((2, 3, 2), (2, 2, 2), (2, 2, 3), (3, 2)), ((2, 3, 2), (2, 2, 2), (2, 2, 3), (2, 1, 2))],
        "contract",
    ),
    *of(
        "sdpa",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        [((1, 4, 2, 2), (1, 2, 2, 2), (1, 2, 2, 2))],
        "contract",
        unknown=(1, 2),
    ),
    *of("embedding", F.embedding, [(IDS, (4, 3)), (IDS[0], (4, 1))], "gather", unknown=(1,)),
]

ENTRYWISE = [
    *of("add", lambda a, b: a + b, PAIRS, "pointwise"),
    *of("mul_", lambda a, b: a.mul_(b), [((2, 3), (3,)), ((2, 3), ())], "pointwise"),
    *of("rsub", lambda a: 1 - a, SHAPES, "pointwise"),
    *of("gelu", F.gelu, [(2, 3), (1,)], "pointwise"),
    *of("relu", F.relu, [(2, 3)], "pointwise"),
    *of("maximum", torch.maximum, [((2, 3), (3,))], "pointwise"),
    *of("max", torch.max, [((2, 3), (2, 1))], "pointwise"),
    *of("clamp", lambda x, low: torch.clamp(x, min=low), [((2, 3), (3,))], "pointwise"),
    *of("lerp", torch.lerp, [((2, 3), (3,), (2, 1))], "pointwise"),
    *of("eq", lambda a, b: a == b, [(IDS, torch.tensor([2, 0, 1]))], "pointwise"),
    *of("dropout", lambda x: F.dropout(x, 0.0), [(2, 3)], "pointwise"),
    *of("dropout", lambda x: F.dropout(x, 0.5), [(2, 3)], "pointwise", hides=(0,)),
    *of("prelu", F.prelu, [((2, 3, 2), (1,))], "pointwise", hides=(1,)),
    *of("to", lambda x: x.to(torch.float32), [(2, 3)], "pointwise"),
    *of("type_as", lambda x, y: x.type_as(y), [((2, 3), (4,))], "pointwise", unknown=(1,)),
    *of("copy_", lambda x, y: x.copy_(y), [((2, 3), (3,))], "pointwise", unknown=(0,)),
    *of("fill_", lambda x: x.fill_(2.0), [(2, 3)], "pointwise", unknown=(0,)),
    *of("zeros_like", torch.zeros_like, [(2, 3)], "make", unknown=(0,)),
    *of("new_ones", lambda x: x.new_ones(2, 2), [(2, 3)], "make", unknown=(0,)),
    *of(
        "masked_fill",
        lambda x, m: x.masked_fill(m, -1e9),
        [((2, 3), MASK), ((2, 2, 3), MASK), ((2, 3), MASK[:, :1])],
        "mask",
        hides=(0,),
    ),
    *of(
        "where",
        torch.where,
        [(MASK, (2, 3), (2, 3)), (MASK, (2, 1), ()), (MASK[0], (2, 3), (1, 3))],
        "mask",
        hides=(1, 2),
    ),
    *of("where", lambda m, x: torch.where(m, x, 0.0), [(MASK, (2, 3))], "mask", hides=(1,)),
    *of("tril", torch.tril, [(3, 3), (2, 2, 3)], "mask", hides=(0,)),
    *of("triu", lambda x: x.triu(1), [(3, 3)], "mask", hides=(0,)),
    *of(
        "setitem",
        lambda x, v: (x.__setitem__((slice(None), slice(1, 3)), v), x)[1],
        [((2, 4), (2, 2)), ((2, 4, 3), (2, 2, 3))],
        "other",
        hides=(0,),
        axes=(1,),
    ),
    *of("setitem", lambda x: (x.__setitem__(0, 5.0), x)[1], [(2, 4)], "other", hides=(0,), axes=(0,)),
    *of("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), [((2, 4), IDS, (2, 3))], "other", unknown=(1, 2)),
    *of("view_as_complex", torch.view_as_complex, [(2, 3, 2)], "regroup"),
    *of("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), [((2,), (3,))], "make", unknown=(1,)),
    *of("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="xy"), [((2,), (3,))], "make", unknown=(0,), output=1),
]

ALONG = [
    *of("softmax", lambda x: x.softmax(-1), [(2, 3), (2, 2, 3), (3,)], "normalise"),
    *of("softmax", lambda x: F.softmax(x, dim=1), [(2, 3, 2)], "normalise", axes=(1,)),
    *of("softmax of one", lambda x: F.softmax(x, dim=1), [(2, 1, 2)], "normalise", hides=(0,)),
    *of("log_softmax", lambda x: F.log_softmax(x, dim=-1), [(2, 3)], "normalise", axes=(1,)),
    *of("normalize", lambda x: F.normalize(x, dim=-1), [(2, 3)], "normalise", axes=(1,)),
    *of("normalize", F.normalize, [(2, 3, 2)], "normalise", axes=(1,)),
    *of(
        "layer_norm",
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        [((2, 3), (3,), (3,)), ((2, 3, 2), (3, 2), (3, 2)), ((1, 2, 3), (3,), (3,))],
        "normalise",
    ),
    *of("layer_norm", lambda x: F.layer_norm(x, (3,)), [(2, 3)], "normalise", axes=(1,)),
    *of("rms_norm", lambda x, w: F.rms_norm(x, (3,), w), [((2, 2, 3), (3,))], "normalise", axes=(2,)),
    *of(
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        [((3, 2), (2,), (2,)), ((2, 3, 2), (3,), (3,))],
        "normalise",
        unknown=(1, 2),
    ),
    *of(
        "batch_norm",
        lambda x, m, v: F.batch_norm(x, m, v.abs()),
        [((3, 2), (2,), (2,))],
        "normalise",
        only="batch_norm",
        axes=(),
    ),
    *of("group_norm", lambda x, w, b: F.group_norm(x, 1, w, b), [((2, 4, 2), (4,), (4,))], "normalise", axes=(1, 2)),
    *of("group_norm", lambda x: F.group_norm(x, 2), [(2, 4, 2)], "normalise", unknown=(0,)),
    *of("group_norm", lambda x: F.group_norm(x, 4), [(2, 4, 3)], "normalise", axes=(2,)),
    *of("instance_norm", F.instance_norm, [(2, 3, 4)], "normalise", axes=(2,)),
    *of("cumsum", lambda x: x.cumsum(-1), [(2, 3)], "other", unknown=(0,), axes=(1,)),
    *of("flip", lambda x: x.flip(0), [(2, 3)], "other", unknown=(0,)),
    *of("sort", lambda x: x.sort(dim=-1), [(2, 3)], "other", hides=(0,), axes=(1,)),
    *of("topk", lambda x: x.topk(2, dim=0), [(3, 2)], "other", hides=(0,), axes=(0,)),
]

REDUCTIONS = [
    *(
        case
        for name, exact in {
            "sum": True,
            "mean": True,
            "logsumexp": True,
            "std": True,
            "var": True,
            "amax": False,
            "amin": False,
        }.items()
        for dim, keep in itertools.product([0, 1, -1, (0, -1)], [False, True])
        for case in of(
            name,
            lambda x, name=name, dim=dim, keep=keep: getattr(torch, name)(x, dim=dim, keepdim=keep),
            [(3, 2, 3), (2, 2)],
            "reduce",
            hides=() if exact else (0,),
        )
    ),
    *of("sum", torch.sum, [(2, 3), (1,), ()], "reduce"),
    *of("sum", lambda x: x.sum(1, True), [(2, 3), (2, 1, 2)], "reduce", axes=(1,)),
    *of("prod", lambda x: x.prod(-1), [(2, 3)], "reduce"),
    *of("norm", lambda x: x.norm(dim=-1), [(2, 3)], "reduce", axes=(1,)),
    *of("norm", lambda x: x.norm(2, -1, True), [(2, 3)], "reduce", axes=(1,)),
    *of("vector_norm", lambda x: torch.linalg.vector_norm(x, dim=-1), [(2, 3)], "reduce"),
    *of("max", lambda x: x.max(dim=1), [(2, 3)], "reduce", hides=(0,)),
    *of("argmax", lambda x: x.argmax(-1), [(2, 3)], "reduce", hides=(0,)),
    *of("median", lambda x: x.median(-1), [(2, 3)], "reduce", hides=(0,)),
    *of("any", lambda x: (x > 0).any(-1), [(2, 3)], "reduce", hides=(0,), only="any"),
    *of(
        "cosine_similarity",
        lambda a, b: F.cosine_similarity(a, b, dim=-1),
        [((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (3,))],
        "reduce",
    ),
    *of("pairwise_distance", F.pairwise_distance, [((2, 3), (2, 3))], "reduce"),
    *of(
        "cross_entropy",
        F.cross_entropy,
        [((2, 4), torch.tensor([1, 3])), ((4,), torch.tensor(2)), ((2, 4, 3), IDS)],
        "reduce",
    ),
    *of(
        "cross_entropy",
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
        [((2, 4), torch.tensor([1, 3])), ((2, 4, 3), IDS)],
        "reduce",
        axes=(1,),
    ),
    *of("nll_loss", F.nll_loss, [((2, 4), torch.tensor([1, 3]))], "reduce", hides=(0,)),
    *of("mse_loss", F.mse_loss, [((2, 3), (2, 3))], "reduce"),
    *of("mse_loss", lambda a, b: F.mse_loss(a, b, reduction="none"), [((2, 3), (2, 3))], "pointwise"),
    *of("l1_loss", F.l1_loss, [((2, 3), (2, 3))], "reduce"),
]

CHOICES = [
    *of("gather", lambda x, i: x.gather(1, i), [((2, 4), IDS)], "gather", unknown=(0,), axes=(1,)),
    *of("index_select", lambda x, i: x.index_select(1, i), [((2, 4), IDS[0])], "gather", unknown=(0,), axes=(1,)),
    *of("take_along_dim", lambda x, i: torch.take_along_dim(x, i, dim=1), [((2, 4), IDS)], "gather", unknown=(0,)),
    *of("ids", lambda x, i: x[i], [((4, 3), IDS), ((4,), IDS)], "gather", unknown=(0,)),
    *of("ids", lambda x, i: x[:, i], [((2, 4, 2), IDS[0])], "gather", unknown=(0,)),
    *of("mask", lambda x, m: x[m], [((2, 3), MASK)], "gather", unknown=(0, 1)),
    *of("one_hot", lambda i: F.one_hot(i, 4), [IDS], "gather", hides=(0,)),
]

PATTERNS = [
    *of(
        "rearrange",
        lambda x: rearrange(x, "b t h d -> b h t d"),
        [(2, 3, 2, 2), (2, 3, 1, 2)],
        "move",
        only="rearrange",
        axes=(1, 2),
    ),
    *of("rearrange", lambda x: rearrange(x, "b t (h d) -> b t h d", h=2), [(2, 3, 4)], "regroup", only="rearrange"),
    *of("rearrange", lambda x: rearrange(x, "... h d -> ... (h d)"), [(2, 3, 2, 2)], "regroup", only="rearrange"),
    *of(
        "rearrange",
        lambda x: rearrange(x, "b t (h d) -> b h t d", h=2),
        [(2, 3, 4)],
        "other",
        only="rearrange",
        unknown=(0,),
    ),
    *of("rearrange", lambda x: rearrange(x, "b (t p) c -> (t p) b c", p=2), [(2, 4, 3)], "move", only="rearrange"),
    *of("reduce", lambda x: reduce(x, "b t c -> b c", "mean"), [(2, 3, 2)], "reduce", only="reduce", axes=(1,)),
    *of(
        "reduce",
        lambda x: reduce(x, "b (t p) c -> b t c", "sum", p=2),
        [(2, 4, 2)],
        "other",
        only="reduce",
        unknown=(0,),
    ),
    *of("repeat", lambda x: repeat(x, "t c -> b t c", b=2), [(3, 2)], "other", only="repeat"),
]

CASES = [*VIEWS, *JOINS_AND_CUTS, *PRODUCTS, *ENTRYWISE, *ALONG, *REDUCTIONS, *CHOICES, *PATTERNS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reads_name_what_the_numbers_feel(case):
    check(case)
