"""Each mistake is made in torch with these very shapes; the note comes from the axes and torch's own message."""

import linecache
import math
import re
from collections.abc import Callable
from typing import Any

import einops
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from handmade import SIZES, Maker
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tracer
from tracer.advice import explain, known_names
from tracer.advice.core import ROWS
from tracer.records import Op, TensorInfo


def take(n: int, parts: Any) -> None:
    """Unpack: the statement that names n parts."""
    assert len(parts) == n


SCOPE: dict[str, Any] = {
    "torch": torch,
    "math": math,
    "F": F,
    "nn": nn,
    "einops": einops,
    "rearrange": rearrange,
    "take": take,
}
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

# nobody's kind, and so without advice
spec("probabilities below zero", "multinomial", ["p: B T"], "torch.multinomial(p - 1, 1)")


# the code that repairs, of which the note says the first part
REPAIRED = {
    "scores without the transpose": ("k.transpose(-2, -1)", "q @ k.transpose(-2, -1)"),
    "grouped keys": ("k.repeat_interleave(2, dim=1)", "q @ k.repeat_interleave(2, dim=1)"),
    "left side transposed": ("w.transpose(-2, -1)", "w.transpose(-2, -1) @ x"),
    "heads neither moved nor joined": (
        "heads.transpose(1, 2).flatten(2)",
        "heads.transpose(1, 2).flatten(2) @ w",
    ),
    "heads not joined": ("heads.flatten(2)", "heads.flatten(2) @ w"),
    "bmm of four axes": ("a @ b", "q @ k"),
    "addmm": ("w.transpose(-2, -1)", "torch.addmm(bias, x, w.transpose(-2, -1))"),
    "product of two types": ("k.to(q.dtype)", "q @ k.to(q.dtype)"),
    "linear on heads": ("y.flatten(2)", "F.linear(y.flatten(2), w)"),
    "linear on moved features": ("x.transpose(1, -1)", "F.linear(x.transpose(1, -1), w)"),
    "attention grouped": ("enable_gqa=True", f"{ATTEND}(q, k, v, enable_gqa=True)"),
    "attention mask rank": ("mask[:, None, :, :]", f"{ATTEND}(q, k, v, mask[:, None, :, :])"),
    "attention mask type": ("mask.bool()", f"{ATTEND}(q, k, v, mask.bool())"),
    "attention mask size": ("mask[..., :5, :5]", f"{ATTEND}(q, k, v, mask[..., :5, :5])"),
    "view after transpose": ("y.contiguous().view(...)", "y.contiguous().view(2, 5, 21)"),
    "split in two of three": ("qkv.split(21, dim=2)", "qkv.split(21, dim=2)"),
    "transpose without a batch": ("x.unsqueeze(0)", "x.unsqueeze(0).transpose(1, 2)"),
    "positions longer than the tokens": ("pos[..., :5, :]", "tok + pos[..., :5, :]"),
    "sum of axes in another order": ("y.transpose(1, 2)", "x + y.transpose(1, 2)"),
    "mask without the heads": ("mask[:, None, :, :]", "scores.masked_fill(mask[:, None, :, :], -1.0)"),
    "padding mask": ("pad[:, None, None, :]", "scores.masked_fill(pad[:, None, None, :], -1.0)"),
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
    "norm before the heads are joined": ("y.flatten(2)", "F.layer_norm(y.flatten(2), (21,))"),
    "norm of moved features": ("x.transpose(1, -1)", "F.layer_norm(x.transpose(1, -1), (21,))"),
}


def traced(name: str, inputs: list[str], code: str, said: str, repaired: str = "") -> None:
    """Add a case that runs in a real trace, where tensors inside the line have no names; and what the repair says."""
    spec(name, "", inputs, code)
    REPAIRED[name] = (said, repaired)


Q, K, V = "q: B H T D", "k: B H T D", "v: B H T D"
SCORES = "scores: B H T T"
traced("padding mask without names", [SCORES, "m: ? ? = 2 5 / bool"], "scores.masked_fill(m, -1.0)",
       "m lacks 2 axes: m[:, None, None, :].", "scores.masked_fill(m[:, None, None, :], -1.0)")  # fmt: skip
traced("padding mask, nothing named", ["scores: ? ? ? ? = 2 3 5 5", "m: ? ? = 2 5"], "scores + m",
       "m lacks 2 axes: m[:, None, None, :].", "scores + m[:, None, None, :]")  # fmt: skip
traced("padding mask in one call", [Q, K, V, "m: B T / bool"], f"{ATTEND}(q, k, v, m)",
       "m lacks 2 axes: m[:, None, None, :].", f"{ATTEND}(q, k, v, m[:, None, None, :])")  # fmt: skip
traced("cosines over unmoved heads", ["q: B T H D", "cos: ? ? = 5 7"], "q * cos",
       "cos lacks an axis: cos[:, None, :].", "q * cos[:, None, :]")  # fmt: skip
traced("mask of a smaller block", [SCORES, "mask: ? ? = 4 4"], "scores.masked_fill(mask == 0, -1.0)",
       "make the mask T x T, 5 x 5 here: block_size (4) is smaller than T.",
       "scores.masked_fill(torch.ones(5, 5) == 0, -1.0)")  # fmt: skip
traced("mask of a smaller block, cut", [SCORES, "bias: 1 1 ? ? = 1 1 4 4"], "scores + bias[:, :, :5, :5]",
       "make the mask T x T, 5 x 5 here: block_size (4) is smaller than T.",
       "scores + torch.zeros(1, 1, 5, 5)")  # fmt: skip
traced("mask of a larger block, nothing named", ["scores: ? ? ? ? = 2 3 5 5", "mask: ? ? = 8 8"], "scores + mask",
       "mask[..., :5, :5]", "scores + mask[..., :5, :5]")  # fmt: skip
traced("fewer positions than tokens", ["x: B T C", "pe: 1 ? C = 1 4 21"], "x + pe",
       "make it for 5 positions or more: block_size (4) is smaller than T.", "x + torch.zeros(1, 5, 21)")  # fmt: skip
traced("values before weights", [V, "weights: B H T T"], "v @ weights", "change the order: weights @ v.", "weights @ v")
traced("values before weights, nothing named", ["v: ? ? ? ? = 2 3 5 7", "weights: ? ? ? ? = 2 3 5 5"], "v @ weights",
       "change the order: weights @ v.", "weights @ v")  # fmt: skip
for turned in ("transpose(1, 2)", "permute(0, 2, 1, 3)", "permute(3, 2, 1, 0)", "transpose(-3, 2)"):
    traced(f"keys turned by {turned}", [Q, K], f"q @ k.{turned}",
           "swap only the last two axes: k.transpose(-2, -1).", "q @ k.transpose(-2, -1)")  # fmt: skip
traced("keys turned by T", [Q, K], "q @ k.T", "swap only the last two axes: k.transpose(-2, -1).",
       "q @ k.transpose(-2, -1)")  # fmt: skip
traced("values with heads behind", ["weights: B H T T", "v: B T H D"], "weights @ v",
       "bring the heads in front: v.transpose(1, 2).", "weights @ v.transpose(1, 2)")  # fmt: skip
traced("keys transposed for one call", [Q, K, V], f"{ATTEND}(q, k.transpose(-2, -1), v)",
       "pass k as it was before the transpose.", f"{ATTEND}(q, k, v)")  # fmt: skip
traced("keys transposed before one call", [Q, "kt: B H D T", V], f"{ATTEND}(q, kt, v)",
       "pass k as [B, H, S, D]: kt.transpose(-2, -1).", f"{ATTEND}(q, kt.transpose(-2, -1), v)")  # fmt: skip
traced("heads not moved for one call", [Q, "k: B T H D", V], f"{ATTEND}(q, k, v)",
       "bring the heads of k before its positions: .transpose(1, 2)",
       f"{ATTEND}(q, k.transpose(1, 2), v)")  # fmt: skip
traced("residual before the heads are joined", ["x: B T C", "heads: B H T D"], "x + heads",
       "join the heads first: heads.transpose(1, 2).flatten(2).", "x + heads.transpose(1, 2).flatten(2)")  # fmt: skip
traced("residual, nothing named", ["x: ? ? ? = 2 5 21", "heads: ? ? ? ? = 2 3 5 7"], "x + heads",
       "join the heads first: heads.transpose(1, 2).flatten(2).", "x + heads.transpose(1, 2).flatten(2)")  # fmt: skip
traced("cat of keys in two orders", ["past: B H S D", "new: B T H D"], "torch.cat((past, new), 2)",
       "new has its axes in another order: new.transpose(1, 2).",
       "torch.cat((past, new.transpose(1, 2)), 2)")  # fmt: skip
traced("cat of keys in two orders, odd one first", ["past: B S H D", "new: B H T D"], "torch.cat((past, new), 2)",
       "past has its axes in another order: past.transpose(1, 2).",
       "torch.cat((past.transpose(1, 2), new), 2)")  # fmt: skip
traced("cosines for half the features", ["q: B H T D = 2 3 5 8", "cos: ? ? = 5 4"], "q * cos",
       "torch.cat((cos, cos), -1)", "q * torch.cat((cos, cos), -1)")  # fmt: skip
traced("cosines for half the features, of neighbours", ["q: B H T D = 2 3 5 8", "cos: 1 1 ? ? = 1 1 5 4"], "q * cos",
       "cos.repeat_interleave(2, -1)", "q * cos.repeat_interleave(2, -1)")  # fmt: skip
traced("grouped keys, not repeated", ["q: ? ? ? ? = 2 6 5 7", "k: ? ? ? ? = 2 2 5 7"], "q @ k.transpose(-2, -1)",
       "let 3 query heads share a key head: k.repeat_interleave(3, dim=1).",
       "q @ k.repeat_interleave(3, dim=1).transpose(-2, -1)")  # fmt: skip
traced("grouped keys in one call", ["q: ? ? ? ? = 2 6 5 7", "k: ? ? ? ? = 2 2 5 7"], f"{ATTEND}(q, k, k)",
       "pass enable_gqa=True", f"{ATTEND}(q, k, k, enable_gqa=True)")  # fmt: skip
traced("cache written in another order", ["cache: ? ? ? ? = 2 3 8 7", "k: B T H D"],
       "cache.__setitem__((slice(None), slice(None), slice(5)), k)",
       "bring it into the order of the place: k.transpose(1, 2).", "cache[:, :, :5].copy_(k.transpose(1, 2))",
)  # fmt: skip
traced("cache without room", ["cache: ? ? ? ? = 2 3 4 7", "k: B H T D"], "cache.__setitem__(..., k)",
       "write to a slice of the size of the value, or cut the value.", "cache.__setitem__(..., k[:, :, :4])",
)  # fmt: skip
traced("gather by fractions", ["logits: B T V", "idx: B T 1"], "logits.gather(-1, idx)",
       "idx.long()", "logits.gather(-1, idx.long())")  # fmt: skip
traced("gather without the last axis", ["logits: B T V", "idx: B T / int64"], "logits.gather(-1, idx)",
       "idx.unsqueeze(-1)", "logits.gather(-1, idx.unsqueeze(-1))")  # fmt: skip
traced("index by fractions", ["wte: V C", "idx: B T"], "wte[idx]", "idx.long()", "wte[idx.long()]")
traced("attention layer of another width", ["x: B T C"],
       "torch.nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x)", "make the layer for 21 features",
       "torch.nn.MultiheadAttention(21, 3, batch_first=True)(x, x, x)")  # fmt: skip
traced("if over many entries", ["x: B T"], "1 if x > 0 else 0", "torch.where(condition, a, b)",
       "torch.where(x > 0, 1, 0)")  # fmt: skip
traced("a number of many entries", ["loss: B T"], "loss.item()", "loss.mean()", "loss.mean().item()")
traced("two types without names", [Q, K], "q.half() @ k.transpose(-2, -1)", "convert the other: .to(torch.float16).",
       "q.half() @ k.transpose(-2, -1).to(torch.float16)")  # fmt: skip
traced("input of another type than the weights", ["x: B T C"], "torch.nn.Linear(21, 4)(x.half())",
       "convert the first tensor: .to(torch.float32).",
       "torch.nn.Linear(21, 4)(x.half().to(torch.float32))")  # fmt: skip


# through a real trace, of one line or a few, with what the repair says and code that it repairs
QKV = ["q: B H T D", "k: B H T D", "v: B H T D"]
CROSS = ["q: B H T D", "k: B H S D"]
MHA = "nn.MultiheadAttention(21, 3, batch_first=True)"
RUNS: list[tuple[str, list[str], str, str, str]] = [
    # taken apart
    ("shape of too few axes", ["x: T C"], "B, T, C = x.shape", "x.unsqueeze(0)", "take(3, x.unsqueeze(0).shape)"),
    ("shape of split heads", ["x: B H T D"], "B, T, C = x.shape", "B, H, T, D = x.shape", "take(4, x.shape)"),
    ("size of ids", ["idx: B T / int64"], "B, T, C = idx.size()", "an embedding adds the feature axis", ""),
    ("shape, one axis too far", ["x: T C"], "C = x.shape[2]", "x.shape[-1]", "x.shape[-1]"),
    ("size, one axis too far", ["x: T C"], "C = x.size(2)", "x.unsqueeze(0)", "x.unsqueeze(0).size(2)"),
    ("tensor taken apart", ["qkv: B T 3C"], "q, k, v = qkv", "qkv.chunk(3, dim=-1)", "take(3, qkv.chunk(3, dim=-1))"),
    ("result taken apart", ["x: B T C"], "q, k, v = nn.Linear(21, 63)(x)", ".chunk(3, dim=-1)",
     "take(3, nn.Linear(21, 63)(x).chunk(3, dim=-1))"),
    ("too few chunks", ["qkv: B T 3C"], "q, k, v = qkv.chunk(2, dim=-1)", "qkv.chunk(3, dim=-1)",
     "take(3, qkv.chunk(3, dim=-1))"),
    ("split of the first axis", ["qkv: B T 3C"], "q, k, v = qkv.split(21)", "qkv.split(21, dim=-1)",
     "take(3, qkv.split(21, dim=-1))"),
    ("too many parts", ["qkv: B T 3C"], "q, k, v = qkv.split(7, dim=-1)", "qkv.split(21, dim=-1)",
     "take(3, qkv.split(21, dim=-1))"),
    ("unbind of another axis", ["qkv: B T 3 C"], "q, k, v = qkv.unbind(0)", "qkv.unbind(2)", "take(3, qkv.unbind(2))"),
    ("unbind, but of the batch", ["qkv: 3 B T C"], "q, k = qkv.unbind(0)", "", ""),
    # no tensor at all
    ("attention layer in a sum", ["x: B T C"], f"x + {MHA}(x, x, x)", "out, _ = layer(...)", f"x + {MHA}(x, x, x)[0]"),
    ("recurrent layer into a linear", ["x: B T C"], "h = nn.GRU(21, 8, batch_first=True)(x)\nreturn nn.Linear(8, 2)(h)",
     "out, _ = layer(...)", "nn.Linear(8, 2)(nn.GRU(21, 8, batch_first=True)(x)[0])"),
    ("attention layer into a norm", ["x: B T C"], f"nn.LayerNorm(21)({MHA}(x, x, x))", "out, _ = layer(...)",
     f"nn.LayerNorm(21)({MHA}(x, x, x)[0])"),
    ("method of a tuple", ["x: B T C"], f"y = {MHA}(x, x, x)\nreturn y.transpose(1, 2)", "out, _ = layer(...)", ""),
    ("method of None", ["x: B T C"], "y = (lambda x: None)(x)\nreturn y.transpose(1, 2)", "without `return`", ""),
    ("sum with None", ["x: B T C"], "y = (lambda x: None)(x)\nreturn x + y", "without `return`", ""),
    ("cat with None", ["x: B T C"], "torch.cat([x, None])", "without `return`", ""),
    ("list of ids", ["idx: B T / int64"], "nn.Embedding(11, 21)([1, 2, 3])", "torch.tensor([...])",
     "nn.Embedding(11, 21)(torch.tensor([1, 2, 3]))"),
    ("root of a number", ["q: B H T D"], "q / torch.sqrt(q.shape[-1])", "n ** 0.5", "q / q.shape[-1] ** 0.5"),
    ("cat without brackets", ["a: B T", "b: B T"], "torch.cat(a, b)", "torch.cat([a, b], dim)", "torch.cat([a, b], 1)"),
    ("tensor of tensors", ["a: B T", "b: B T"], "torch.tensor([a, b])", "torch.stack([a, b])", "torch.stack([a, b])"),
    # sizes and orders
    ("half an entry", ["x: B T C"], "x.view(2, 5, 3, 21 / 3)", "//", "x.view(2, 5, 3, 21 // 3)"),
    ("two unknown sizes", ["x: B T C"], "x.view(2, 5, -1, -1)", "all axes but one", "x.view(2, 5, 3, -1)"),
    ("a feature axis that ids do not have", ["idx: B T / int64"], "idx.view(2, 5, 21)", "embedding first", ""),
    ("view of a slice", ["logits: B T V"], "logits[:, :-1].view(-1, 11)", ".reshape(...)",
     "logits[:, :-1].reshape(-1, 11)"),
    ("view of another width, not named", ["idx: B T / int64"], "nn.Embedding(11, 21)(idx).view(2, 5, 22)", "", ""),
    ("flatten backwards", ["x: B T C"], "x.flatten(2, 1)", "x.flatten(-2)", "x.flatten(-2)"),
    ("an axis named twice", ["x: B T C"], "x.permute(0, 2, 2)", "each of its 3 axes once", "x.permute(0, 2, 1)"),
    ("transpose of a vector", ["x: T"], "x.transpose(-1, -2)", "x.unsqueeze(0)", "x.unsqueeze(0).transpose(-1, -2)"),
    ("mT of a vector", ["x: T"], "x.mT", "x[:, None]", "x[:, None].mT"),
    ("unsqueeze too far", ["x: B T C"], "x.unsqueeze(5)", "x.unsqueeze(-1)", "x.unsqueeze(-1)"),
    ("expand to more heads", ["k: B G T D = 2 3 5 7"], "k.expand(2, 6, 5, 7)", "k.repeat_interleave(2, dim=-3)",
     "k.repeat_interleave(2, dim=-3)"),
    ("expand of fewer axes", ["x: 1 1 C"], "x.expand(2, -1)", "-1 in expand", "x.expand(2, -1, -1)"),
    ("repeat of fewer axes", ["x: B T C"], "x.repeat(2, 2)", "1 in repeat", "x.repeat(1, 2, 2)"),
    ("parts of size 0", ["x: B T C"], "x.split(0, dim=2)", "x.chunk(3, dim=-1)", "x.chunk(3, dim=-1)"),
    ("narrow beyond the end", ["x: B T C"], "x.narrow(1, 3, 4)", "shorter", "x.narrow(1, 3, 2)"),
    ("class token of one example", ["cls: 1 1 C", "x: B T C"], "torch.cat([cls, x], dim=1)", "cls.expand(2, -1, -1)",
     "torch.cat([cls.expand(2, -1, -1), x], dim=1)"),
    ("new key along the heads", ["cache: B H S D", "k: B H 1 D"], "torch.cat([cache, k], dim=1)", "dim=2",
     "torch.cat([cache, k], dim=2)"),
    ("stack of two lengths", ["a: B T", "b: B S"], "torch.stack([a, b])", "torch.cat(..., dim=1)",
     "torch.cat([a, b], dim=1)"),
    ("stack of two orders", ["q: B H T D", "k: B T H D"], "torch.stack([q, k])", "k.transpose(1, 2)",
     "torch.stack([q, k.transpose(1, 2)])"),
    # einops and einsum
    ("rearrange into parts that do not divide", ["x: B T C"], "rearrange(x, 'b t (h d) -> b h t d', h=4)",
     "1, 3, 7", "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
    ("rearrange of two unknowns", ["x: B T C"], "rearrange(x, 'b t (h d) -> b h t d')", "as in h=3",
     "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
    ("rearrange of another rank", ["x: B T C"], "rearrange(x, 'b h t d -> b t (h d)')", "on the left what comes", ""),
    ("rearrange that loses an axis", ["x: B T C"], "rearrange(x, 'b t c -> b t')", "reduce(..., 'mean')",
     "einops.reduce(x, 'b t c -> b t', 'mean')"),
    ("rearrange of other sizes", ["x: B T C"], "rearrange(x, 'b t (h d) -> b h t d', h=3, d=8)", "leave one of them",
     "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
    ("repeat without a size", ["x: B T C"], "einops.repeat(x, 'b t c -> b n t c')", "as in n=3",
     "einops.repeat(x, 'b t c -> b n t c', n=3)"),
    ("repeat that loses an axis", ["x: B T C"], "einops.repeat(x, 'b t c -> b t n', n=3)", "on the right too",
     "einops.repeat(x, 'b t c -> b t c n', n=3)"),
    ("reduce to more axes", ["x: B T C"], "einops.reduce(x, 'b t c -> b c d', 'mean')", "from the left side", ""),
    ("reduce by a word it does not know", ["x: B T C"], "einops.reduce(x, 'b t c -> b c', 'average')", "'mean'",
     "einops.reduce(x, 'b t c -> b c', 'mean')"),
    ("einsum of one tensor too few", ["q: B H T D"], "torch.einsum('bhtd,bhsd->bhts', q)", "one group of letters", ""),
    ("einsum with a new letter", CROSS, "torch.einsum('bhtd,bhsd->bhtx', q, k)", "letters of the tensors",
     "torch.einsum('bhtd,bhsd->bhts', q, k)"),
    ("einsum with a letter twice", CROSS, "torch.einsum('bhtd,bhsd->bhhts', q, k)", "one letter",
     "torch.einsum('bhtd,bhsd->bhts', q, k)"),
    ("einops einsum of another rank", ["q: B T C", "k: B T C"],
     "einops.einsum(q, k, 'b h i d, b h j d -> b h i j')", "", ""),
    # products and layers
    ("weights over other positions", [*CROSS, "v: B H T D"], "(q @ k.mT).softmax(-1) @ v", "make k and v from the same",
     "(q @ k.mT).softmax(-1) @ k"),
    ("values not split", ["weights: B H T S", "v: B S C"], "weights @ v", "view, then transpose(1, 2)",
     "weights @ v.view(2, 13, 3, 7).transpose(1, 2)"),
    ("weight transposed for nothing", ["x: B T C", "w: C M"], "x @ w.T", "w as it is", "x @ w"),
    ("dot of matrices", ["q: T D", "k: T D"], "torch.dot(q, k)", "(q * k).sum(-1)", "(q * k).sum(-1)"),
    ("outer of matrices", ["q: T D", "k: T D"], "torch.outer(q, k)", "q[..., :, None] * k[..., None, :]",
     "q[..., :, None] * k[..., None, :]"),
    ("mv of matrices", ["w: M C", "x: C T"], "torch.mv(w, x)", "w @ x", "w @ x"),
    ("convolution over features last", ["x: B T C"], "nn.Conv1d(21, 8, 3)(x)", "x.transpose(1, 2)",
     "nn.Conv1d(21, 8, 3)(x.transpose(1, 2))"),
    ("image with its colours last", ["x: B Y X R = 2 8 9 3"], "nn.Conv2d(3, 8, 3)(x)", "x.permute(0, 3, 1, 2)",
     "nn.Conv2d(3, 8, 3)(x.permute(0, 3, 1, 2))"),
    ("image without channels", ["x: Y X = 8 9"], "nn.Conv2d(3, 8, 3)(x)", "", ""),
    ("patches larger than the image", ["x: B R Y X = 2 3 8 8"], "nn.Conv2d(3, 8, 16, stride=16)(x)", "smaller window",
     "nn.Conv2d(3, 8, 4, stride=4)(x)"),
    ("batch norm over features last", ["x: B T C"], "nn.BatchNorm1d(21)(x)", "x.transpose(1, 2)",
     "nn.BatchNorm1d(21)(x.transpose(1, 2))"),
    ("recurrent layer of another width", ["x: B T M"], "nn.GRU(21, 8, batch_first=True)(x)", "for 84 features",
     "nn.GRU(84, 8, batch_first=True)(x)"),
    ("state with the batch first", ["x: B T C", "h: B 1 8"], "nn.GRU(21, 8, batch_first=True)(x, h)",
     "leave it out to start from zeros", "nn.GRU(21, 8, batch_first=True)(x)"),
    ("norm over a number", ["x: B T C"], "F.layer_norm(x, 21)", "(C,)", "F.layer_norm(x, (21,))"),
    ("norm over two axes", ["x: B T C"], "F.layer_norm(x, (5, 22))", "nn.LayerNorm(C)", "nn.LayerNorm(21)(x)"),
    # attention
    ("mask of T x T across", [*CROSS, "mask: T T / bool"], f"{ATTEND}(q, k, k, mask)", "make it 5 x 13",
     f"{ATTEND}(q, k, k, torch.ones(5, 13).bool())"),
    ("bias of T x T across", [*CROSS, "bias: T T"], "q @ k.mT + bias", "make it 5 x 13",
     "q @ k.mT + torch.ones(5, 13)"),
    ("mask with an axis for the heads' place", ["scores: B H T T", "mask: B 1 T"], "scores.masked_fill(mask == 0, 0.0)",
     "[:, None, :, :]", "scores.masked_fill((mask == 0)[:, None, :, :], 0.0)"),
    ("heads that key heads do not divide", ["q: ? ? ? ? = 2 5 5 7", "k: ? ? ? ? = 2 3 5 7"],
     f"{ATTEND}(q, k, k, enable_gqa=True)", "that divides", ""),
    ("heads that do not divide the layer", ["x: B T C"], "nn.MultiheadAttention(21, 4)(x, x, x)", "% num_heads is 0",
     "nn.MultiheadAttention(21, 3)(x, x, x)"),
    ("padding mask turned", ["x: B T C", "pad: T B / bool"], f"{MHA}(x, x, x, key_padding_mask=pad)",
     "True at the padding", f"{MHA}(x, x, x, key_padding_mask=pad.T)"),
    ("padding mask as the other mask", ["x: B T C", "pad: B T / bool"],
     "nn.TransformerEncoderLayer(21, 3, batch_first=True)(x, pad)", "src_key_padding_mask",
     "nn.TransformerEncoderLayer(21, 3, batch_first=True)(x, src_key_padding_mask=pad)"),
    ("mask of each example for a layer", ["x: B T C", "mask: B T T / bool"], f"{MHA}(x, x, x, attn_mask=mask)",
     "mask.repeat_interleave(num_heads, dim=0)", f"{MHA}(x, x, x, attn_mask=mask.repeat_interleave(3, dim=0))"),
    ("split heads for a layer", ["x: B H T C"], f"{MHA}(x, x, x)", "before its heads are split",
     f"{MHA}(*[x[:, 0]] * 3)"),
    ("two batches for a layer", ["x: B T C", "y: ? ? C = 3 13 21"], f"{MHA}(x, y, y)", "compare the batch sizes", ""),
    ("mask as the value", ["scores: B H T T", "mask: T T / bool"], "scores.masked_fill(mask, mask)",
     "torch.where(mask, value, scores)", "torch.where(mask, mask, scores)"),
    ("triangle of a vector", ["x: T"], "torch.tril(x)", "torch.ones(T, T).tril()", "torch.ones(5, 5).tril()"),
    ("minus a mask", ["mask: T T / bool"], "1 - mask", "~", "~mask"),
    ("and of a mask with numbers", ["m: T T", "n: T T / bool"], "m & n", "mask != 0", "(m != 0) & n"),
    # lining up
    ("rows that lost their axis", ["x: B T C"], "x / x.norm(dim=-1)", "norm(..., keepdim=True)",
     "x / x.norm(dim=-1, keepdim=True)"),
    ("weights that lost their axis", ["weights: T S"], "weights / weights.sum(-1)", "sum(..., keepdim=True)",
     "weights / weights.sum(-1, keepdim=True)"),
    ("one gate for each token", ["x: B T C", "gate: B T"], "x * gate", "gate[:, :, None]", "x * gate[:, :, None]"),
    ("positions cut by the batch", ["x: B T C", "pe: ? ? = 8 21"], "x + pe[:x.size(0)]", "", ""),
    ("losses of two lengths", ["x: B T", "y: B S"], "F.mse_loss(x, y)", "", ""),
    # looking up and comparing
    ("gather beyond the classes", ["logits: B T V", "y: B T 1 / int64"], "logits.gather(-1, y + 11)", ".max()",
     "logits.gather(-1, y)"),
    ("scatter by fractions", ["x: B V", "idx: B T"], "x.scatter(1, idx, 1.0)", "idx.long()",
     "x.scatter(1, idx.long(), 1.0)"),
    ("scatter of another type", ["x: B V", "idx: B T / int64", "y: B T / int64"], "x.scatter(1, idx, y)",
     "y.to(torch.float32)", "x.scatter(1, idx, y.to(torch.float32))"),
    ("one_hot of fractions", ["idx: B T"], "F.one_hot(idx)", "idx.long()", "F.one_hot(idx.long())"),
    ("one_hot of too few classes", ["idx: B T / int64"], "F.one_hot(idx + 11, 11)", "one more than the largest",
     "F.one_hot(idx + 11, 12)"),
    ("more than there are", ["x: B T C"], "x.topk(30)", "min(k, x.size(dim))", "x.topk(min(30, x.size(-1)))"),
    ("draw from all positions", ["p: B T V"], "torch.multinomial(p, 1)", "p[:, -1]",
     "torch.multinomial(p[:, -1] + 1, 1)"),
    ("draw from logits", ["logits: B V"], "torch.multinomial(logits, 1)", "softmax(dim=-1)",
     "torch.multinomial(logits.softmax(dim=-1), 1)"),
    ("index_select by a table", ["x: B T C", "idx: B T / int64"], "x.index_select(1, idx)", "gather",
     "x.gather(1, idx[..., None])"),
    ("mask of another order", ["x: B T C", "mask: T B / bool"], "x[mask]", "one order of axes", "x[mask.T]"),
    ("slice backwards", ["x: B T C"], "x[:, ::-1]", "x.flip(1)", "x.flip(1)"),
    ("place between two", ["x: B T C"], "x[5 / 2]", "//", "x[3 // 2]"),
    ("select beyond the end", ["x: B T C"], "x.select(1, 7)", "", ""),
    ("targets before logits", ["logits: B V", "targets: B / int64"], "F.cross_entropy(targets, logits)",
     "F.cross_entropy(logits, targets)", "F.cross_entropy(logits, targets)"),
    ("one-hot targets of other classes", ["logits: B V", "p: B ? = 2 12"], "F.cross_entropy(logits, p)", "[N]", ""),
    ("target below 0", ["logits: B V", "targets: B / int64"], "F.cross_entropy(logits, targets - 1)", "targets.min()",
     "F.cross_entropy(logits, targets - 100)"),
    ("targets with one axis more", ["x: B T", "y: B T 1"], "F.binary_cross_entropy_with_logits(x, y)", "y.squeeze(-1)",
     "F.binary_cross_entropy_with_logits(x, y.squeeze(-1))"),
    # types, devices, gradients
    ("layer on another device", ["x: B T C / float32 @ meta"], "nn.Linear(21, 4)(x)", 'model.to("meta")',
     'nn.Linear(21, 4).to("meta")(x)'),
    ("two tensors on two devices", ["x: B T C", "y: B T C / float32 @ meta"], "x + y", 'y.to("cpu")', ""),
    ("number of a tensor without numbers", ["x: 1 / float32 @ meta"], "x.item()", "where the data is real", ""),
    ("no GPU here", ["x: B T C"], "x.cuda()", "tracer.device()", ""),
    ("a number in Python", ["x: B T"], "float(x)", "x.mean()", "float(x.mean())"),
    ("complex of whole numbers", ["a: T D / int64", "b: T D / int64"], "torch.complex(a, b)", "a.float() and b.float()",
     "torch.complex(a.float(), b.float())"),
    ("complex without pairs", ["x: B T C = 2 5 22"], "torch.view_as_complex(x)", "x.unflatten(-1, (-1, 2))",
     "torch.view_as_complex(x.unflatten(-1, (-1, 2)))"),
    ("length of whole numbers", ["x: B T / int64"], "x.norm(dim=-1)", "x.float()", "x.float().norm(dim=-1)"),
    ("drop more than all", ["x: B T"], "F.dropout(x, 1.5)", "0.1 drops a tenth", "F.dropout(x, 0.1)"),
    ("backward from many", ["x: B T"], "loss = x * nn.Parameter(x)\nloss.backward()", "loss.mean().backward()",
     "(x * nn.Parameter(x)).mean().backward()"),
    ("backward from nothing", ["loss: "], "loss.backward()", "from parameters", ""),
    ("backward twice", ["x: B T"], "loss = nn.Parameter(x).exp().sum()\nloss.backward()\nloss.backward()",
     "run the model again", ""),
    ("overwritten before backward", ["x: B T"], "y = nn.Parameter(x).exp()\ny += 1\ny.sum().backward()", "y = y + 1",
     "(nn.Parameter(x).exp() + 1).sum().backward()"),
    ("parameter in place", ["x: B T"], "w = nn.Parameter(x)\nw += 1", "torch.no_grad()", ""),
    ("expanded in place", ["x: 1 T"], "y = x.expand(2, 5)\ny.add_(1)", "y.clone()", "x.expand(2, 5).clone().add_(1)"),
    ("numpy with gradients", ["x: B T"], "y = nn.Parameter(x) * 2\nreturn y.numpy()", "y.detach().numpy()",
     "(nn.Parameter(x) * 2).detach().numpy()"),
    # a student's own
    ("ids into a layer", ["idx: B T / int64"], "nn.Linear(21, 4)(idx)", "through an embedding",
     "nn.Linear(21, 4)(nn.Embedding(11, 21)(idx))"),
    ("layer that heads do not divide, alone", ["x: B T C"], "layer = nn.MultiheadAttention(21, 4)", "% num_heads is 0",
     "nn.MultiheadAttention(21, 3)"),
    ("batch_first forgotten", ["x: B T C", "pad: B T / bool"],
     "nn.TransformerEncoderLayer(21, 3)(x, src_key_padding_mask=pad)", "batch_first=True",
     "nn.TransformerEncoderLayer(21, 3, batch_first=True)(x, src_key_padding_mask=pad)"),
    ("memory of another width", ["x: B T C", "y: B S M"], f"{MHA}(x, y, y)", "nn.Linear(84, 21)",
     f"{MHA}(x, *[nn.Linear(84, 21)(y)] * 2), nn.MultiheadAttention(21, 3, True, kdim=84, vdim=84)"),
    ("state and output added", ["x: B T C"], "y = nn.LSTM(21, 21)(x) + x", "out, _ = layer",
     "nn.LSTM(21, 21)(x)[0] + x"),
    ("values and places", ["x: B T C"], "x - x.max(-1, keepdim=True)", "call amax",
     "x - x.amax(-1, keepdim=True), x - x.max(-1, keepdim=True).values"),
    ("results by name", ["x: B T C"], "x + {'logits': x}", "out['logits']", "x + {'logits': x}['logits']"),
    ("root of many", ["x: B T C"], "math.sqrt(x)", "torch.sqrt(", "torch.sqrt(x)"),
    ("shape as a size", ["x: B T C"], "x.view(2, 5, x.shape)", "x.shape[-1]",
     "x.view(2, 5, x.shape[-1]), x.view(*x.shape)"),
    ("pairs of an odd head", ["q: B H T D"], "q.reshape(2, 3, 5, -1, 2)", "make D even", ""),
    ("axis stretched in place", ["x: 1 T 1"], "x.expand(2, 6, 21)", "", ""),
    ("axis to be put behind", ["x: B T"], "x.expand(2, 5, 21)", "x[:, :, None]", "x[:, :, None].expand(2, 5, 21)"),
    ("mask turned", ["scores: B T S", "mask: S T / bool"], "scores.masked_fill(mask, 0.0)", "mask.transpose(-2, -1)",
     "scores.masked_fill(mask.transpose(-2, -1), 0.0)"),
    ("mask cut in rows only", ["scores: B H T T", "mask: ? ? = 5 8 / bool"], "scores.masked_fill(mask, 0.0)",
     "mask[..., :5]", "scores.masked_fill(mask[..., :5], 0.0)"),
    ("heads joined in front of the positions", ["heads: B H T D", "x: B T C"], "y = heads.flatten(2)\nreturn y + x",
     "bring the heads back", "heads.transpose(1, 2).flatten(2) + x"),
    ("layer on heads joined in front of the positions", ["heads: B H T D"],
     "y = heads.flatten(2)\nreturn nn.Linear(21, 21)(y)", "bring the heads back",
     "nn.Linear(21, 21)(heads.transpose(1, 2).flatten(2))"),
    ("einops einsum letters", ["q: B H T D", "k: B T H D"], "einops.einsum(q, k, 'b h i d, b h j d -> b h i j')",
     "the order of each tensor's axes", "einops.einsum(q, k, 'b h i d, b j h d -> b h i j')"),
    ("size of no axis", ["x: B T C"], "rearrange(x, 'b t (h d) -> b h t d', heads=3)", "h=3",
     "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
    ("pattern without an arrow", ["x: B T C"], "rearrange(x, 'b t (h d), b h t d', h=3)", "->",
     "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
    ("pattern with a name twice", ["x: T T C"], "rearrange(x, 't t c -> c t')", "another name",
     "rearrange(x, 't s c -> c t s')"),
    ("pattern with an open bracket", ["x: B T C"], "rearrange(x, 'b t (h d -> b h t d', h=3)", "'(h d)'",
     "rearrange(x, 'b t (h d) -> b h t d', h=3)"),
]  # fmt: skip
for run in RUNS:
    traced(*run)


def made(name: str) -> tuple[list[TensorInfo], dict[str, torch.Tensor]]:
    """Return a case's tensors, as records and as what torch is given."""
    m = Maker({**SIZES, "S": 13})
    infos: list[TensorInfo] = []
    tensors: dict[str, torch.Tensor] = {}
    for text in CASES[name][1]:
        variable, rest = text.split(": ")
        rest, _, device = rest.partition(" @ ")
        rest, _, dtype = rest.partition(" / ")
        rest, _, moved = rest.partition(" < ")
        axes, _, sizes = rest.partition(" = ")
        info = m.tensor(axes, variable, shape=tuple(map(int, sizes.split())) or None, dtype=dtype or "float32")
        infos.append(info)
        tensors[variable] = torch.zeros(info.shape, dtype=getattr(torch, info.dtype), device=device or "cpu")
        if moved:
            tensors[variable] = tensors[variable].transpose(1, 2).contiguous().transpose(1, 2)
    return infos, tensors


def failed_in_a_trace(name: str) -> Exception:
    """Run the failing code as the body of a function of its tensors, in a trace."""
    _, inputs, code, _ = CASES[name]
    infos, tensors = made(name)
    body = "".join(f"    {line}\n" for line in code.splitlines())
    source = f"def mistake({', '.join(tensors)}):\n{body}"
    linecache.cache["model.py"] = (len(source), None, source.splitlines(True), "model.py")
    scope = dict(SCOPE)
    exec(compile(source, "model.py", "exec"), scope)
    known = {i.variable: " ".join(i.axes) for i in infos if not {"?"} & set(i.axes)}
    with pytest.raises(Exception) as caught:
        tracer.trace(scope["mistake"], **tensors, axes=known)
    assert len(inputs) == len(tensors)
    return caught.value


def failed(name: str) -> tuple[Op, str, str]:
    """Run the failing code; return the operation as it would be recorded, the exception's type and its text."""
    op_name, _, code, args = CASES[name]
    if not op_name:
        error = failed_in_a_trace(name)
        return error.trace.failed, type(error).__name__, str(error)  # type: ignore[attr-defined]
    infos, tensors = made(name)
    m = Maker()
    m.op(op_name, infos, [], (25, code), module="blocks.0.attn", args=args)
    try:
        eval(code, SCOPE | tensors)
    except Exception as error:
        return m.ops[-1], type(error).__name__, str(error)
    raise AssertionError(f"{name}: nothing failed")


def note(name: str) -> str:
    if not CASES[name][0]:
        (text,) = failed_in_a_trace(name).__notes__
        return str(text)
    op, error, message = failed(name)
    return explain(op, error, message, SIZES)


def test_all_notes(golden: Callable[[str, str], None]) -> None:
    golden("advice.txt", "\n\n".join(f"# {name}\n{note(name)}" for name in CASES))


@pytest.mark.parametrize("name", [n for n in CASES if n != "probabilities below zero"])
def test_every_kind_says_why(name: str) -> None:
    assert "\nWhy: " in note(name)


@pytest.mark.parametrize("name", REPAIRED)
def test_the_repair_repairs(name: str) -> None:
    said, code = REPAIRED[name]
    repair = note(name).partition("\nRepair: ")[2]
    assert said in repair if said else not repair
    if code:
        eval(code, SCOPE | made(name)[1])


def test_there_are_enough() -> None:
    assert len(CASES) > 200


def test_every_row_of_the_tables_has_a_case() -> None:
    messages = [failed(name)[2] for name in CASES]
    assert [pattern for pattern, _, _ in ROWS if not any(re.search(pattern, m) for m in messages)] == []


def test_einops_letters_are_those_of_the_line() -> None:
    assert "the letter h stands for H = 3 first and for T = 5 later." in note("einops einsum letters")
    assert "'b h i d' names 4 axes" in note("einops einsum of another rank")


def test_the_words_of_torch_raised_by_the_user_are_left_alone() -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"{x.shape[-1]} must be divisible by num_heads")

    def own(x: torch.Tensor) -> None:
        raise TypeError('can only concatenate tuple (not "Tensor") to tuple', x.shape)

    for f in (Own(), own):
        with pytest.raises((TypeError, ValueError)) as caught:
            tracer.trace(f, torch.zeros(2, 5))
        assert not hasattr(caught.value, "__notes__")


def test_a_block_says_the_same_as_a_call() -> None:
    q, k = torch.zeros(2, 3, 5, 7), torch.zeros(2, 5, 3, 7)
    with pytest.raises(RuntimeError) as caught, tracer.record(axes={"q": "B H T D", "k": "B T H D"}):
        q = q * 1
        k = k * 1
        q @ k.transpose(-2, -1)
    (text,) = caught.value.__notes__
    assert text.splitlines()[2:] == [
        "      q [B, H, T, D]  2·3·5·7  float32",
        "      [B, T, D, H]  2·5·7·3  float32",
        "Why: all axes before the last two must agree, lined up from the right; "
        "the left side has H = 3 where the right has T = 5.",
        "Repair: bring the heads of k before its positions: .transpose(1, 2) right after the view.",
    ]


def test_plain_python_in_a_block_is_told_with_its_line() -> None:
    x = torch.zeros(5, 21)
    with pytest.raises(ValueError, match="not enough") as caught, tracer.record() as t:
        B, T, C = x.shape  # noqa: RUF059
    (text,) = caught.value.__notes__
    assert text.startswith("Shape Tracer: unpack failed in test_advice.py:")
    assert "Why: x has 2 axes, [?=5, ?=21]; the line names 3: B, T, C." in text
    assert t.failed is not None
    assert t.failed.name == "unpack"


class Unpacks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        return x.view(B, T, C)


def test_the_module_is_named_and_each_call_has_one_note() -> None:
    model = nn.Sequential(nn.Identity(), Unpacks())
    with pytest.raises(ValueError, match="not enough") as caught, tracer.record():
        tracer.trace(model, torch.zeros(5, 21), axes=["T C"])
    (text,) = caught.value.__notes__
    assert text.startswith("Shape Tracer: unpack failed in 1, test_advice.py:")


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('too few')",
        "a, b = [1, 2, 3]",
        "(1, 2)[5]",
        "None.strip()",
        "{}['x']",
        "1 + None",
        "(1).view()",
    ],
)
def test_errors_that_have_nothing_to_do_with_tensors_are_left_alone(code: str) -> None:
    def own(x: torch.Tensor) -> None:
        exec(code)

    with pytest.raises(Exception) as caught:
        tracer.trace(own, torch.zeros(2))
    assert not hasattr(caught.value, "__notes__")


def test_what_the_code_handles_itself_is_left_alone() -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        try:
            B, T, C = x.shape  # noqa: RUF059
        except ValueError:
            x = x.unsqueeze(0)
        return x

    t = tracer.trace(careful, torch.zeros(5, 21))
    assert (t.failed, len(t)) == (None, 1)


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
