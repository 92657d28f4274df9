"""Each mistake is made in torch with these very shapes; the note comes from the axes and torch's own message."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from handmade import SIZES, Maker
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.advice import explain, known_names
from tracer.records import Op, TensorInfo

CASES: dict[str, tuple[str, list[str], str, tuple[Any, ...]]] = {}


def spec(name: str, op: str, inputs: list[str], code: str, args: tuple[Any, ...] = ()) -> None:
    """Add a case: tensors as `"k: B H T D"`, `"mask: ? ? = 8 8"`, `"idx: B T / int64"`; the code that fails.

    `"y: B T H D < B H T D"` is a tensor that was transposed.
    """
    CASES[name] = (op, inputs, code, args)


# products
spec("scores without the transpose", "matmul", ["q: B H T D", "k: B H T D"], "q @ k")
spec("heads left behind the positions", "matmul", ["q: B H T D", "kt: B T D H"], "q @ kt")
spec("keys neither moved nor transposed", "matmul", ["q: B H T D", "k: B T H D"], "q @ k")
spec("grouped keys", "matmul", ["q: B H T D = 2 6 5 7", "k: B G D T = 2 3 7 5"], "q @ k")
spec("left side transposed", "matmul", ["w: T C", "x: T M"], "w @ x")
spec("heads neither moved nor joined", "matmul", ["heads: B H T D", "w: C C"], "heads @ w")
spec("heads not joined", "matmul", ["heads: B T H D", "w: C C"], "heads @ w")
spec("bmm of four axes", "bmm", ["q: B H T D", "k: B H D T"], "torch.bmm(q, k)")
spec("mm of three axes", "mm", ["x: B T C", "w: C M"], "torch.mm(x, w)")
spec("addmm", "addmm", ["bias: M", "x: T C", "w: M C"], "torch.addmm(bias, x, w)")
spec("vector", "matmul", ["x: T C", "v: T"], "x @ v")
spec("product of two types", "matmul", ["q: T C / float64", "k: C T"], "q @ k")
spec("product with ids", "matmul", ["idx: B T / int64", "w: T C"], "idx @ w")
spec("linear on heads", "linear", ["y: B T H D", "w: C C"], "F.linear(y, w)")
spec("linear on moved features", "linear", ["x: B C T", "w: M C"], "F.linear(x, w)")
spec("linear of another width", "linear", ["x: B T M", "w: V C"], "F.linear(x, w)")
spec("linear on scores", "linear", ["scores: B H T T", "w: C C"], "F.linear(scores, w)")
spec("linear on ids", "linear", ["idx: B C / int64", "w: M C"], "F.linear(idx, w)")
spec(
    "einsum letters",
    "einsum",
    ["q: B H T D", "k: B T H D"],
    "torch.einsum('bhid,bhjd->bhij', q, k)",
    ("bhid,bhjd->bhij",),
)
spec("einsum rank", "einsum", ["q: B H T D", "k: B T C"], "torch.einsum('bhid,bhjd->bhij', q, k)", ("bhid,bhjd->bhij",))

# attention in one call
ATTEND = "F.scaled_dot_product_attention"
spec(
    "attention head sizes",
    "scaled_dot_product_attention",
    ["q: B H T D", "k: B H T M", "v: B H T M"],
    f"{ATTEND}(q, k, v)",
)
spec("attention grouped", "scaled_dot_product_attention",
     ["q: B H T D = 2 6 5 7", "k: B G T D = 2 3 5 7", "v: B G T D = 2 3 5 7"], f"{ATTEND}(q, k, v)")  # fmt: skip
spec("attention mask rank", "scaled_dot_product_attention",
     ["q: B H T D", "k: B H T D", "v: B H T D", "mask: B T T / bool"], f"{ATTEND}(q, k, v, mask)")  # fmt: skip
spec("attention mask type", "scaled_dot_product_attention",
     ["q: B H T D", "k: B H T D", "v: B H T D", "mask: T T / int64"], f"{ATTEND}(q, k, v, mask)")  # fmt: skip
spec("attention mask size", "scaled_dot_product_attention",
     ["q: B H T D", "k: B H T D", "v: B H T D", "mask: ? ? = 8 8 / bool"], f"{ATTEND}(q, k, v, mask)")  # fmt: skip

# views
spec("view after transpose", "view", ["y: B T H D < B H T D"], "y.view(2, 5, 21)", (2, 5, 21))
spec("heads that do not divide", "view", ["q: B T C"], "q.view(2, 5, 4, 5)", (2, 5, 4, 5))
spec("heads that do not divide, open", "view", ["q: B T C"], "q.view(2, 5, 4, -1)", (2, 5, 4, -1))
spec("head size that does not fit", "view", ["q: B T C"], "q.view(2, 5, 3, 8)", (2, 5, 3, 8))
spec("reshape to another width", "reshape", ["q: B T C"], "q.reshape(2, 5, 20)", ((2, 5, 20),))
spec("two open sizes", "view", ["q: B T C"], "q.view(2, -1, -1)", (2, -1, -1))
spec("unflatten", "unflatten", ["q: B T C"], "q.unflatten(2, (4, -1))", (2, (4, -1)))
spec("split in two of three", "split", ["qkv: B T 3C"], "qkv.split([21, 21], dim=2)", ((21, 21), "dim=2"))
spec("split unevenly", "split", ["qkv: B T 3C"], "qkv.split([20, 20, 20], 2)", ((20, 20, 20), 2))
spec("transpose without a batch", "transpose", ["x: T C"], "x.transpose(1, 2)", (1, 2))
spec("softmax over an axis too far", "softmax", ["scores: B H T T"], "scores.softmax(4)", (4,))
spec("permute", "permute", ["x: B T C"], "x.permute(0, 2, 1, 3)", (0, 2, 1, 3))
spec("expand", "expand", ["x: T C"], "x.expand(2, 5, 20)", (2, 5, 20))

# sums and masks
spec("residual of another width", "add", ["x: B T C", "y: B T M"], "x + y")
spec("positions longer than the tokens", "add", ["tok: B T C", "pos: ? C = 8 21"], "tok + pos")
spec("sum of axes in another order", "add", ["x: B H T D", "y: B T H D"], "x + y")
spec(
    "mask without the heads", "masked_fill", ["scores: B H T T", "mask: B T T / bool"], "scores.masked_fill(mask, -1.0)"
)
spec("padding mask", "masked_fill", ["scores: B H T S", "pad: B S / bool"], "scores.masked_fill(pad, -1.0)")
spec(
    "mask of the whole block",
    "masked_fill",
    ["scores: B H T T", "bias: 1 1 ? ? = 1 1 8 8 / bool"],
    "scores.masked_fill(bias, -1.0)",
)
spec("mask of more examples", "add", ["scores: B H T T", "mask: B H T T = 4 3 5 5"], "scores + mask")
spec("mask of numbers", "masked_fill", ["scores: B H T T", "mask: T T / int64"], "scores.masked_fill(mask, -1.0)")
spec("where with numbers", "where", ["mask: T T", "scores: B H T T"], "torch.where(mask, scores, -1.0)")
spec("mask grown in place", "masked_fill_", ["scores: T T", "mask: B T T / bool"], "scores.masked_fill_(mask, -1.0)")
spec("softmax of ids", "softmax", ["idx: B T / int64"], "idx.softmax(-1)")
spec("mean of ids", "mean", ["idx: B T / int64"], "idx.mean()")

# joining and indexing
spec("cat of two batches", "cat", ["past: B S D", "new: B T D = 3 5 7"], "torch.cat([past, new], dim=1)", ("dim=1",))
spec("cat along the wrong axis", "cat", ["past: B H S D", "new: B H T D"], "torch.cat([past, new], 1)", (1,))
spec("cat of two ranks", "cat", ["past: B S D", "new: B D"], "torch.cat([past, new], 1)", (1,))
spec("stack of two lengths", "stack", ["a: T D", "b: S D"], "torch.stack([a, b])")
spec("too many indices", "getitem", ["x: T C"], "x[0, 0, 0]")
spec("index beyond", "getitem", ["x: B T C"], "x[:, 9]")

# lookups, losses, norms
spec("embedding of embeddings", "embedding", ["x: B T", "wte: V C"], "F.embedding(x, wte)")
spec("token out of range", "embedding", ["idx: B T / int64", "wte: V C"], "F.embedding(idx + 11, wte)")
spec("position out of range", "embedding", ["pos: T / int64", "wpe: ? C = 4 21"], "F.embedding(torch.arange(5), wpe)")
spec(
    "loss of unflattened logits",
    "cross_entropy",
    ["logits: B T V", "targets: B T / int64"],
    "F.cross_entropy(logits, targets)",
)
spec(
    "loss of unflattened targets",
    "cross_entropy",
    ["flat: (B T) V", "targets: B T / int64"],
    "F.cross_entropy(flat, targets)",
)
spec(
    "loss of flattened targets",
    "cross_entropy",
    ["logits: B T V", "flat: (B T) / int64"],
    "F.cross_entropy(logits, flat)",
)
spec(
    "loss of shifted targets", "cross_entropy", ["flat: (B T) V", "next: ? = 8 / int64"], "F.cross_entropy(flat, next)"
)
spec("class out of range", "cross_entropy", ["flat: (B T) V", "y: (B T) / int64"], "F.cross_entropy(flat, y + 11)")
spec("class of another type", "cross_entropy", ["flat: (B T) V", "y: (B T) / int32"], "F.cross_entropy(flat, y)")
spec("norm before the heads are joined", "layer_norm", ["y: B T H D"], "F.layer_norm(y, (21,))")
spec("norm of moved features", "layer_norm", ["x: B C T"], "F.layer_norm(x, (21,))")
spec("channels last", "conv1d", ["x: B T C", "w: ? ? ? = 4 21 2"], "F.conv1d(x, w)")

# nobody's kind
spec("probabilities below zero", "multinomial", ["p: B T"], "torch.multinomial(p - 1, 1)")


def made(name: str) -> tuple[list[TensorInfo], dict[str, torch.Tensor]]:
    """Return a case's tensors, as records and as what torch is given."""
    m = Maker({**SIZES, "S": 13})
    infos: list[TensorInfo] = []
    tensors: dict[str, torch.Tensor] = {}
    for text in CASES[name][1]:
        variable, rest = text.split(": ")
        rest, _, dtype = rest.partition(" / ")
        rest, _, moved = rest.partition(" < ")
        axes, _, sizes = rest.partition(" = ")
        info = m.tensor(axes, variable, shape=tuple(map(int, sizes.split())) or None, dtype=dtype or "float32")
        infos.append(info)
        tensors[variable] = torch.zeros(info.shape, dtype=getattr(torch, info.dtype))
        if moved:
            tensors[variable] = tensors[variable].transpose(1, 2).contiguous().transpose(1, 2)
    return infos, tensors


def failed(name: str) -> tuple[Op, str, str]:
    """Run the failing code; return the operation as it would be recorded, the exception's type and its text."""
    op_name, _, code, args = CASES[name]
    infos, tensors = made(name)
    m = Maker()
    m.op(op_name, infos, [], (25, code), module="blocks.0.attn", args=args)
    try:
        eval(code, {"torch": torch, "F": F, **tensors})
    except Exception as error:
        return m.ops[-1], type(error).__name__, str(error)
    raise AssertionError(f"{name}: nothing failed")


def note(name: str) -> str:
    op, error, message = failed(name)
    return explain(op, error, message, SIZES)


def test_all_notes(golden: Callable[[str, str], None]) -> None:
    golden("advice.txt", "\n\n".join(f"# {name}\n{note(name)}" for name in CASES))


@pytest.mark.parametrize("name", [n for n in CASES if n != "probabilities below zero"])
def test_every_kind_says_why(name: str) -> None:
    assert "\nWhy: " in note(name)


REPAIRED = {
    "scores without the transpose": ("k.transpose(-2, -1)", "q @ k.transpose(-2, -1)"),
    "grouped keys": ("k.repeat_interleave(2, dim=1)", "q @ k.repeat_interleave(2, dim=1)"),
    "left side transposed": ("w.transpose(-2, -1)", "w.transpose(-2, -1) @ x"),
    "heads neither moved nor joined": (
        "heads.transpose(-3, -2).flatten(-2)",
        "heads.transpose(-3, -2).flatten(-2) @ w",
    ),
    "heads not joined": ("heads.flatten(-2)", "heads.flatten(-2) @ w"),
    "bmm of four axes": ("a @ b", "q @ k"),
    "addmm": ("w.transpose(-2, -1)", "torch.addmm(bias, x, w.transpose(-2, -1))"),
    "product of two types": ("k.to(q.dtype)", "q @ k.to(q.dtype)"),
    "linear on heads": ("y.flatten(-2)", "F.linear(y.flatten(-2), w)"),
    "linear on moved features": ("x.transpose(1, -1)", "F.linear(x.transpose(1, -1), w)"),
    "attention grouped": ("enable_gqa=True", f"{ATTEND}(q, k, v, enable_gqa=True)"),
    "attention mask rank": ("mask.unsqueeze(1)", f"{ATTEND}(q, k, v, mask.unsqueeze(1))"),
    "attention mask type": ("mask.bool()", f"{ATTEND}(q, k, v, mask.bool())"),
    "attention mask size": ("mask[..., :5, :5]", f"{ATTEND}(q, k, v, mask[..., :5, :5])"),
    "view after transpose": ("y.contiguous().view(...)", "y.contiguous().view(2, 5, 21)"),
    "split in two of three": ("qkv.split(21, dim=2)", "qkv.split(21, dim=2)"),
    "transpose without a batch": ("x.unsqueeze(0)", "x.unsqueeze(0).transpose(1, 2)"),
    "positions longer than the tokens": ("pos[..., :5, :]", "tok + pos[..., :5, :]"),
    "sum of axes in another order": ("y.transpose(1, 2)", "x + y.transpose(1, 2)"),
    "mask without the heads": ("mask.unsqueeze(1)", "scores.masked_fill(mask.unsqueeze(1), -1.0)"),
    "padding mask": ("pad.unsqueeze(1).unsqueeze(2)", "scores.masked_fill(pad.unsqueeze(1).unsqueeze(2), -1.0)"),
    "mask of the whole block": ("bias[..., :5, :5]", "scores.masked_fill(bias[..., :5, :5], -1.0)"),
    "mask of numbers": ("mask == 0", "scores.masked_fill(mask == 0, -1.0)"),
    "cat along the wrong axis": ("dim=2", "torch.cat([past, new], dim=2)"),
    "loss of unflattened logits": (
        "logits.view(-1, logits.size(-1)) and targets.view(-1)",
        "F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))",
    ),
    "loss of unflattened targets": ("targets.view(-1)", "F.cross_entropy(flat, targets.view(-1))"),
    "loss of flattened targets": (
        "logits.view(-1, logits.size(-1))",
        "F.cross_entropy(logits.view(-1, logits.size(-1)), flat)",
    ),
    "class of another type": ("y.long()", "F.cross_entropy(flat, y.long())"),
    "norm before the heads are joined": ("y.flatten(-2)", "F.layer_norm(y.flatten(-2), (21,))"),
    "norm of moved features": ("x.transpose(1, -1)", "F.layer_norm(x.transpose(1, -1), (21,))"),
    "channels last": ("x.transpose(1, 2)", "F.conv1d(x.transpose(1, 2), w)"),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_the_repair_repairs(name: str) -> None:
    said, code = REPAIRED[name]
    assert said in note(name).split("\nRepair: ")[1]
    eval(code, {"torch": torch, "F": F, **made(name)[1]})


def test_two_devices() -> None:
    m = Maker()
    q, k = m.tensor("B H T D", "q", device="cuda:0"), m.tensor("B H D T", "k")
    m.op("matmul", [q, k], [], (25, "q @ k"), module="blocks.0.attn")
    message = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    assert explain(m.ops[0], "RuntimeError", message, SIZES) == (
        "Shape Tracer: matmul failed in blocks.0.attn, model.py:25\n"
        "    q @ k\n"
        "      q [B, H, T, D]  2·3·5·7  float32\n"
        "      k [B, H, D, T]  2·3·7·5  float32\n"
        "Why: q is on cuda:0, k is on cpu; one operation works on one device.\n"
        'Repair: move one to the other\'s device: k.to("cuda:0").'
    )


def test_an_unknown_failure_still_has_its_line_and_shapes() -> None:
    assert note("probabilities below zero") == (
        "Shape Tracer: multinomial failed in blocks.0.attn, model.py:25\n"
        "    torch.multinomial(p - 1, 1)\n"
        "      p [B, T]  2·5  float32"
    )


def test_axes_without_names_are_told_by_size() -> None:
    m = Maker()
    a, b = m.tensor("? ?", shape=(5, 7)), m.tensor("? ?", shape=(5, 7))
    m.op("matmul", [a, b], [])
    assert explain(m.ops[0], "RuntimeError", "shapes cannot be multiplied", {}).splitlines()[-2:] == [
        "Why: a product sums over the last axis of the left side and the second to last of the right; "
        "here these are size 7 and size 5, and must be the same axis.",
        "Repair: transpose the last two axes of the right side: .transpose(-2, -1).",
    ]


def test_no_code_can_reach_the_terminal() -> None:
    m = Maker()
    m.op("matmul", [m.tensor("T", "x\x1b[31m")], [], (1, "x\x1b]0;title\x07"))
    assert "\x1b" not in explain(m.ops[0], "RuntimeError", "", {})


NAMES = ["B", "T", "C", "H", "D", "?", "1"]
SHAPES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=5)
ARGS = st.one_of(st.integers(-5, 9), st.tuples(st.integers(-1, 9)), st.sampled_from(["dim=1", "bhd,bd->b", "dim=x"]))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*known_names(), "softmax", "add"]),
    st.lists(SHAPES, max_size=4),
    st.lists(ARGS, max_size=4),
    st.sampled_from(sorted({failed(name)[2] for name in CASES})),
)
def test_it_always_answers(op: str, shapes: list[list[tuple[str, int]]], args: list[Any], message: str) -> None:
    m = Maker()
    infos = [m.tensor(" ".join(n for n, _ in shape), shape=tuple(s for _, s in shape)) for shape in shapes]
    m.op(op, infos, [], args=tuple(args))
    assert explain(m.ops[0], "RuntimeError", message, {}).startswith(f"Shape Tracer: {op} failed")
