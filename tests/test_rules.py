"""One operation at a time: names in, names out, with distinct sizes and with all sizes equal."""

import re
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import get_testing_overrides

import tracer
from tracer.calls import call_of
from tracer.naming import parse_axes
from tracer.rules import RULES, find_rule, rule

DISTINCT = {"B": 2, "T": 5, "S": 11, "H": 3, "D": 14, "C": 42, "M": 13, "V": 17, "E": 23, "K": 19, "Y": 29, "X": 31}
EQUAL = {"B": 4, "T": 4, "S": 4, "H": 4, "D": 4, "C": 16, "M": 16, "V": 4, "E": 4, "K": 4, "Y": 4, "X": 4}
CASES = []


def program(expected, f, *inputs):
    """Register one program: the axes of each output of its last operation (`|` between them, one for all alike).

    Inputs are axes with a kind before them: `i:` ids, `b:` booleans, `c:` complex numbers; else fractions.
    """
    CASES.append(pytest.param(f, inputs, expected, id=f"{len(CASES)}: {expected}"))


def same(names, axes, *more):
    """Register operations that keep the axes of one input, by the names of its methods or of functions."""
    for name in names.split():
        kind = axes[:2] if ":" in axes else ""
        f = getattr(torch.Tensor, name, None) or getattr(F, name, None) or getattr(torch, name)
        program(axes.removeprefix(kind), lambda x, n, f=f: f(x, *more), axes)


# views
program("B T H D", lambda x, n: x.view(n["B"], n["T"], n["H"], n["D"]), "B T C")
program("B T H D", lambda x, n: x.reshape(*x.shape[:-1], n["H"], -1), "B T C")
program("B T H D", lambda x, n: torch.reshape(x, (n["B"], n["T"], n["H"], n["D"])), "B T C")
program("B T C", lambda x, n: x.view(n["B"], n["T"], n["C"]), "B T H D")
program("B T C", lambda x, y, n: x.view_as(y), "B T H D", "B T C")
program("B T C", lambda x, y, n: x.reshape_as(y), "B T H D", "B T C")
program("B T C", lambda x, n: x.view(torch.int32), "B T C")
program("(B T) V", lambda x, n: x.view(-1, n["V"]), "B T V")
program("(B T V)", lambda x, n: x.reshape(-1), "B T V")
program("(B T V)", lambda x, n: x.ravel(), "B T V")
program("B T H D", lambda x, n: x.view(n["B"] * n["T"], -1).view(n["B"], n["T"], n["H"], n["D"]), "B T C")
program("B T C", lambda x, n: x.flatten(2), "B T H D")
program("B T C", lambda x, n: torch.flatten(x, start_dim=-2), "B T H D")
program("(B T) C", lambda x, n: x.flatten(0, 1), "B T C")
program("B T H D", lambda x, n: x.unflatten(-1, (n["H"], n["D"])), "B T C")
program("B T H D", lambda x, n: torch.unflatten(x, 2, (n["H"], -1)), "B T C")
program("B T 1 C", lambda x, n: x.view(n["B"], n["T"], 1, n["C"]), "B T C")
program("B T H D/2 2", lambda x, n: x.view(n["B"], n["T"], n["H"], n["D"] // 2, 2), "B T H D")
program("B T 2 D/2", lambda x, n: x.reshape(n["B"], n["T"], 2, -1), "B T D")
program("B H T D", lambda x, n: x.transpose(1, 2), "B T H D")
program("B H T D", lambda x, n: x.transpose(dim0=-2, dim1=-3), "B T H D")
program("B H T D", lambda x, n: x.clone().transpose_(1, 2), "B T H D")
program("B H T D", lambda x, n: x.swapaxes(1, 2), "B T H D")
program("B H T D", lambda x, n: torch.swapaxes(x, axis0=1, axis1=2), "B T H D")
program("B H T D", lambda x, n: torch.swapdims(x, 1, 2), "B T H D")
program("B H T D", lambda x, n: x.permute(0, 2, 1, 3), "B T H D")
program("B H T D", lambda x, n: x.permute((0, -2, 1, -1)), "B T H D")
program("B H T D", lambda x, n: torch.permute(x, (0, 2, 1, 3)), "B T H D")
program("B H T D", lambda x, n: torch.permute_copy(x, (0, 2, 1, 3)), "B T H D")
program("B H T D", lambda x, n: x.movedim(2, 1), "B T H D")
program("H D B T", lambda x, n: x.moveaxis((0, 1), (-2, -1)), "B T H D")
program("B D T", lambda x, n: x.mT, "B T D")
program("B D T", lambda x, n: x.adjoint(), "B T D")
program("B D T", lambda x, n: x.mH, "c:B T D")
program("D T", lambda x, n: x.T, "T D")
program("D T", lambda x, n: x.H, "T D")
program("D T", lambda x, n: x.t(), "T D")
program("D T", lambda x, n: x.clone().t_(), "T D")
program("T D", lambda x, n: x.real, "c:T D")
program("T D", lambda x, n: x.imag, "c:T D")
program("T D", lambda x, n: x.data, "T D")
program("B 1 T", lambda x, n: x.unsqueeze(1), "B T")
program("B T 1", lambda x, n: torch.unsqueeze(x, dim=-1), "B T")
program("B T 1", lambda x, n: x.clone().unsqueeze_(-1), "B T")
program("B T 1", lambda x, n: x[..., None], "B T")
program("B T", lambda x, n: x.unsqueeze(1).squeeze(1), "B T")
program("B T", lambda x, n: x[None, :, None].squeeze(), "B T")
program("B T", lambda x, n: x[None, :, None].squeeze((0, 2)), "B T")
program("B T", lambda x, n: torch.squeeze(x[..., None], dim=-1), "B T")
program("? T C", lambda x, n: x.unsqueeze(0).expand(n["B"], -1, -1), "T C")
program("B T C", lambda x, y, n: x.expand_as(y), "T C", "B T C")
program("? T C", lambda x, n: torch.broadcast_to(x, (n["B"], n["T"], n["C"])), "T C")
program("B T C", lambda x, y, n: torch.broadcast_tensors(x, y), "T C", "B T C")
program("1 T C", lambda x, n: x.repeat(1, 1, 1), "T C")
program("? T ?", lambda x, n: x.repeat(2, 1, 3), "T C")
program("T ?", lambda x, n: x.tile(1, 2), "T C")
program("T 1", lambda x, n: torch.atleast_3d(x)[0], "T")
program("1 T", lambda x, n: torch.atleast_2d(x), "T")
program("T", lambda x, n: torch.atleast_1d(x), "T")
program("B T C", lambda x, n: x.contiguous(), "B T C")
program("B T C", lambda x, n: deepcopy(x), "B T C")
same("clone detach float double half bfloat16 cpu alias_copy detach_copy", "B T C")
program("B T C", lambda x, n: x.to(torch.float64), "B T C")
program("B T C", lambda x, y, n: x.type_as(y), "B T C", "S D")

# joins and cuts
program("B S+T D", lambda x, y, n: torch.cat([x, y], dim=1), "B S D", "B T D")
program("B S+T D", lambda x, y, n: torch.concat((x, y), axis=-2), "B S D", "B T D")
program("B S+T D", lambda x, y, n: torch.concatenate((x, y), 1), "B S D", "B T D")
program("S+T D", lambda x, y, n: torch.vstack((x, y)), "S D", "T D")
program("S+T D", lambda x, y, n: torch.row_stack((x, y)), "S D", "T D")
program("B S+T D", lambda x, y, n: torch.hstack((x, y)), "B S D", "B T D")
program("S+T", lambda x, y, n: torch.hstack((x, y)), "S", "T")
program("T D+1", lambda x, y, n: torch.column_stack((x, y)), "T D", "T")
program("B T S+D", lambda x, y, n: torch.dstack((x, y)), "B T S", "B T D")
program("S+T M+D", lambda x, y, n: torch.block_diag(x, y), "S M", "T D")
program("B T+1 D", lambda x, n: torch.cat([x, torch.zeros(n["B"], 1, n["D"])], 1), "B T D")
program("B T 2C", lambda x, y, n: torch.cat((x, y), -1), "B T C", "B T C")
program("B T D", lambda x, n: torch.cat((-x[..., n["D"] // 2 :], x[..., : n["D"] // 2]), -1), "B T D")
program("B T 2", lambda x, y, n: torch.stack([x, y], -1), "B T", "B T")
program("2 B T", lambda x, y, n: torch.stack((x, y)), "B T", "B T")
program("? B T", lambda x, n: torch.stack([x] * n["H"]), "B T")
program("B T D", lambda x, n: torch.stack((x[..., 1::2], x[..., ::2]), -1).flatten(-2), "B T D")
program("B T C", lambda x, n: x.split(n["C"], dim=-1), "B T 3C")
program("B T C", lambda x, n: torch.split(x, [n["C"]] * 3, 2), "B T 3C")
program("B T C", lambda x, n: x.split_with_sizes([n["C"]] * 3, 2), "B T 3C")
program("B T C", lambda x, n: x.chunk(3, dim=2), "B T 3C")
program("B T C", lambda x, n: torch.tensor_split(x, 3, dim=-1), "B T 3C")
program("B C", lambda x, n: x.hsplit(3), "B 3C")
program("C T", lambda x, n: torch.vsplit(x, 3), "3C T")
program("B T C", lambda x, n: x.dsplit(3), "B T 3C")
program("B T D/2", lambda x, n: x.chunk(2, dim=-1), "B T D")
program("B T C", lambda x, n: F.glu(x), "B T 2C")
program("B T C", lambda x, n: x.unbind(0), "3 B T C")
program("B C", lambda x, n: torch.unbind(x, dim=-2), "B T C")
program("B C", lambda x, n: x.select(1, 0), "B T C")
program("B C", lambda x, n: torch.select(x, dim=-2, index=1), "B T C")
program("B ? C", lambda x, n: x.narrow(1, 0, 2), "B T C")
program("B T C", lambda x, n: x.narrow(1, 0, n["T"]), "B T C")
program("B T C", lambda x, n: x.roll(1, dims=1), "B T C")
program("B ? C", lambda x, n: F.pad(x, (0, 0, 1, 0)), "B T C")
program("B T C", lambda x, n: F.pad(x, (0, 0, 0, 0)), "B T C")
program("B C ?", lambda x, n: F.pad(x, (1, 1), mode="reflect"), "B C T")
program("T T", lambda x, n: x.tril(), "T T")
program("T S", lambda x, n: torch.triu(x, 1), "T S")
program("B T C", lambda x, n: x.flip(1), "B T C")
program("T B", lambda x, n: torch.rot90(x), "B T")
same("fliplr flipud", "B T C")
program("T T", lambda x, n: torch.diag(x), "T")
program("T", lambda x, n: torch.diag(x), "T T")
program("?", lambda x, n: torch.diag(x), "T S")
program("B T", lambda x, n: x.diagonal(dim1=1, dim2=-1), "B T T")
program("B T", lambda x, n: torch.linalg.diagonal(x), "B T T")
program("B T T", lambda x, n: torch.diag_embed(x), "B T")
program("T B T", lambda x, n: torch.diag_embed(x, dim1=0, dim2=2), "B T")
program("B ? ?", lambda x, n: torch.diag_embed(x, 1), "B T")
program("T T", lambda x, n: torch.diagflat(x), "T")
program("T S", lambda x, y, n: torch.meshgrid(x, y, indexing="ij"), "T", "S")
program("S T", lambda x, y, n: torch.meshgrid(x, y, indexing="xy"), "T", "S")
program("(T S) ?", lambda x, y, n: torch.cartesian_prod(x, y), "T", "S")
program("? ?", lambda x, n: torch.combinations(x), "T")
program("(T S) (M D)", lambda x, y, n: torch.kron(x, y), "T M", "S D")
program("B C ? ?", lambda x, n: x.unfold(2, 2, 1), "B C T")
program("B 4C ?", lambda x, n: F.unfold(x, 2), "B C Y X")
program("B C ? ?", lambda x, n: F.fold(F.unfold(x, (2, 2)), (n["Y"], n["X"]), (2, 2)), "B C Y X")
program("B C 2Y 2X", lambda x, n: F.pixel_shuffle(x, 2), "B 4C Y X")
program("B 4C Y X", lambda x, n: F.pixel_unshuffle(x, 2), "B C 2Y 2X")
program("B C Y X", lambda x, n: F.channel_shuffle(x, 2), "B C Y X")

# indexing
program("B C", lambda x, n: x[:, -1], "B T C")
program("B 1 C", lambda x, n: x[:, -1:], "B T C")
program("B 1 1 T", lambda x, n: x[:, None, None, :], "B T")
program("B T C", lambda x, n: x[:, : n["T"]], "B T C")
program("B ? C", lambda x, n: x[:, 1:], "B T C")
program("B ? C", lambda x, n: x[:, :-1], "B T C")
program("B T", lambda x, n: x[..., 0], "B T C")
program("T", lambda x, n: x[0, ..., 1], "B T C")
program("C B T", lambda x, n: x[..., 0].permute(2, 0, 1), "B T C H")
program("B T D/2", lambda x, n: x[..., 0::2], "B T D")
program("? T C", lambda x, n: x[[0, 1]], "B T C")
program("B ? C", lambda x, n: x[:, [0, 2]], "B T C")
program("? C", lambda x, m, n: x[m], "B T C", "b:B T")
program("?", lambda x, n: x[x > 0.5], "B T C")
program("B T C", lambda x, i, n: x[i], "V C", "i:B T")
program("H S C", lambda x, i, n: x[:, i], "H V C", "i:S")
program("T C", lambda x, i, j, n: x[i, j], "B V C", "i:T", "i:T")
program("T H", lambda x, i, j, n: x[i, :, j], "B H V", "i:T", "i:T")
program("B T C", lambda x, y, n: x.__setitem__((slice(None), 0), y), "B T C", "B C")
program("? ? ?", lambda x, n: x.gather(-1, torch.zeros(n["B"], n["T"], 1, dtype=torch.long)), "B T V")
program("B T K", lambda x, i, n: torch.gather(x, 2, i), "B T V", "i:B T K")
program("B T K", lambda x, i, n: torch.take_along_dim(x, i, dim=-1), "B T V", "i:B T K")
program("T K", lambda x, i, n: x.take(i), "B T V", "i:T K")
program("T C", lambda x, i, n: x.index_select(0, i), "V C", "i:T")
program("V T", lambda x, i, n: torch.index_select(x, dim=-1, index=i), "V C", "i:T")
program("B T V", lambda x, i, y, n: x.scatter(-1, i, y), "B T V", "i:B T K", "B T K")
program("B T V", lambda x, i, n: x.scatter_(-1, i, 1.0), "B T V", "i:B T K")
program("B T V", lambda x, i, y, n: torch.scatter_add(x, -1, i, y), "B T V", "i:B T K", "B T K")
program("B T V", lambda x, i, y, n: x.scatter_reduce(-1, i, y, "sum"), "B T V", "i:B T K", "B T K")
program("V C", lambda x, i, y, n: x.index_add(0, i, y), "V C", "i:T", "T C")
program("V C", lambda x, i, y, n: x.index_add_(0, i, y), "V C", "i:T", "T C")
program("V C", lambda x, i, y, n: x.index_copy(0, i, y), "V C", "i:T", "T C")
program("V C", lambda x, i, y, n: x.index_copy_(0, i, y), "V C", "i:T", "T C")
program("V C", lambda x, i, n: x.index_fill(0, i, 0.0), "V C", "i:T")
program("V C", lambda x, i, y, n: x.index_put((i,), y), "V C", "i:T", "T C")
program("V C", lambda x, i, y, n: x.index_put_((i,), y), "V C", "i:T", "T C")
program("V C", lambda x, i, y, n: x.index_reduce(0, i, y, "amax"), "V C", "i:T", "T C")
program("B T C", lambda x, m, y, n: x.masked_scatter(m, y), "B T C", "b:B T C", "B T C")
program("?", lambda x, m, n: x.masked_select(m), "B T C", "b:B T C")
program("B T C", lambda x, y, n: x.select_scatter(y, 1, 0), "B T C", "B C")
program("B T C", lambda x, y, n: x.slice_scatter(y, 1), "B T C", "B T C")
program("T T", lambda x, y, n: x.diagonal_scatter(y), "T T", "T")
program("V", lambda x, i, y, n: x.put(i, y), "V", "i:T", "T")
program("? ?", lambda x, n: torch.nonzero(x), "B T")
program("?", lambda x, n: torch.nonzero(x, as_tuple=True), "B T")
program("? ?", lambda x, n: torch.argwhere(x), "B T")
program("?", lambda x, n: torch.unique(x), "B T")
program("?", lambda x, n: x.unique_consecutive(), "B T")
program("?", lambda x, n: torch.where(x > 0), "B T")
program("?", lambda x, n: torch.histc(x, 5), "B T")
program("?", lambda x, n: torch.bincount(x), "i:T")
program("? | ?", lambda x, n: torch.histogram(x, 5), "T")
program("B T", lambda e, x, n: torch.searchsorted(e, x), "B V", "B T")
program("B T", lambda x, e, n: torch.bucketize(x, e.sort()[0]), "B T", "V")
program("B T", lambda x, y, n: torch.isin(x, y), "B T", "V")

# products
program("B H T S", lambda q, k, n: q @ k.transpose(-2, -1), "B H T D", "B H S D")
program("B H T D", lambda w, v, n: torch.matmul(w, v), "B H T S", "B H S D")
program("B H T D", lambda w, v, n: w.__rmatmul__(v), "B H S D", "B H T S")
program("B T S", lambda q, k, n: torch.bmm(q, k.mT), "B T D", "B S D")
program("T S", lambda q, k, n: q.mm(k.T), "T D", "S D")
program("T", lambda x, w, n: torch.mv(x, w), "T C", "C")
program("", lambda x, y, n: torch.dot(x, y), "C", "C")
program("", lambda x, y, n: x.vdot(y), "C", "C")
program("B T", lambda x, y, n: torch.linalg.vecdot(x, y), "B T C", "B T C")
program("B T", lambda x, w, n: x @ w, "B T C", "C")
program("T M", lambda a, b, c, n: torch.linalg.multi_dot([a, b, c]), "T C", "C D", "D M")
program("T M", lambda a, b, c, n: torch.chain_matmul(a, b, c), "T C", "C D", "D M")
program("B T S", lambda x, y, n: torch.linalg.matmul(x, y), "B T C", "C S")
program("B T M", lambda x, w, n: F.linear(x, w), "B T C", "M C")
program("B T M", lambda x, w, b, n: F.linear(x, w, bias=b), "B T C", "M C", "M")
program("B T", lambda x, w, n: F.linear(x, w), "B T C", "C")
program("B T M", lambda x, y, w, n: F.bilinear(x, y, w), "B T C", "B T D", "M C D")
program(
    "B T M", lambda x, w, b, n: torch.addmm(b, x.view(-1, n["C"]), w).view(n["B"], n["T"], n["M"]), "B T C", "C M", "M"
)
program("T M", lambda b, x, w, n: b.addmm_(x, w), "T M", "T C", "C M")
program("B T S", lambda b, x, y, n: torch.baddbmm(b, x, y), "B T S", "B T C", "B C S")
program("T S", lambda b, x, y, n: torch.addbmm(b, x, y), "T S", "B T C", "B C S")
program("T", lambda b, x, y, n: torch.addmv(b, x, y), "T", "T C", "C")
program("T D", lambda b, x, y, n: torch.addr(b, x, y), "T D", "T", "D")
program("T D", lambda a, b, n: torch.outer(a, b), "T", "D")
program("T D", lambda a, b, n: a.ger(b), "T", "D")
program("B T S", lambda a, b, n: torch.inner(a, b), "B T D", "S D")
program("B T S", lambda a, b, n: torch.tensordot(a, b, dims=([2], [1])), "B T D", "S D")
program("B M", lambda a, b, n: torch.tensordot(a, b, dims=2), "B T D", "T D M")
program("B T M", lambda a, b, n: torch.tensordot(a, b, 1), "B T D", "D M")
program("B T S", lambda a, b, n: torch.cdist(a, b), "B T D", "B S D")
program("B H T S", lambda q, k, n: torch.einsum("bhtd,bhsd->bhts", q, k), "B H T D", "B H S D")
program("B T H D", lambda x, w, n: torch.einsum("btc,chd->bthd", x, w), "B T C", "C H D")
program("B H T S", lambda q, k, n: torch.einsum("...td,...sd->...ts", q, k), "B H T D", "B H S D")
program("B H T S", lambda q, k, n: torch.einsum("... t d, ... s d -> ... t s", [q, k]), "B H T D", "B H S D")
program("T S", lambda q, k, n: torch.einsum("bij,bkj", q, k), "B T D", "B S D")
program("B T S", lambda q, k, n: torch.einsum("...ij,...kj", q, k), "B T D", "B S D")
program("B S T", lambda q, k, n: torch.einsum(q, [0, 1, 2], k, [0, 3, 2], [0, 3, 1]), "B T D", "B S D")
program("B S T", lambda q, k, n: torch.einsum(q, [..., 1, 2], k, [..., 3, 2], [..., 3, 1]), "B T D", "B S D")
program("T", lambda x, n: torch.einsum("ii->i", x), "T T")
program("", lambda x, n: torch.einsum("ii", x), "T T")
program("T B", lambda x, n: torch.einsum("bt->tb", x), "B T")
program("B", lambda x, n: torch.einsum("bt->b", x), "B T")
program("B T M", lambda x, y, w, n: torch.einsum("bti,btj,mij->btm", x, y, w), "B T C", "B T D", "M C D")
program("B T C", lambda i, w, n: F.embedding(i, w), "i:B T", "V C")
program("B C", lambda i, w, n: F.embedding_bag(i, w), "i:B T", "V C")
program("B C", lambda i, w, o, n: F.embedding_bag(i, w, o * 0), "i:T", "V C", "i:B")
program("B H T D", lambda q, k, v, n: F.scaled_dot_product_attention(q, k, v), "B H T D", "B H S D", "B H S D")
program("B T T", lambda x, n: torch.matrix_power(x, 2), "B T T")
program("B T T", lambda x, n: torch.linalg.matrix_power(x, 2), "B T T")
program("B T T", lambda x, n: torch.matrix_exp(x), "B T T")
program("T T", lambda x, n: torch.inverse(x + torch.eye(n["T"]) * 9), "T T")
program("T T", lambda x, n: torch.linalg.inv(x + torch.eye(n["T"]) * 9), "T T")
program("D T", lambda x, n: torch.linalg.pinv(x), "T D")
program("", lambda x, n: torch.trace(x), "T T")
program("B", lambda x, n: torch.linalg.det(x), "B T T")
program("B", lambda x, n: torch.linalg.slogdet(x), "B T T")
program("D D", lambda x, n: torch.cov(x), "D T")
program("D D", lambda x, n: torch.corrcoef(x), "D T")

# entry by entry
program("B T C", lambda x, y, n: x + y, "B T C", "T C")
program("B T C", lambda x, y, n: 1 - x * y, "B T C", "C")
program("B T C", lambda x, y, n: x - y, "C", "B T C")
program("B T C", lambda x, y, n: torch.add(x, y, alpha=2), "B T C", "T C")
program("B T C", lambda x, n: 2**x, "B T C")
program("B T C", lambda x, n: 2 / x, "B T C")
program("B T C", lambda x, n: 3 // x, "B T C")
program("B T C", lambda x, n: 3 % x, "B T C")
program("B T C", lambda x, n: x % 3, "B T C")
program("B T C", lambda x, n: x**2, "B T C")
program("B T C", lambda x, n: -x, "B T C")
program("B T", lambda x, y, n: x & y, "b:B T", "b:B T")
program("B T", lambda x, y, n: x | y, "b:B T", "b:T")
program("B T", lambda x, n: ~x, "b:B T")
program("B T", lambda x, n: x << 1, "i:B T")
program("B T", lambda x, n: 1 << x, "i:B T")
program("B T", lambda x, y, n: x == y, "B T", "T")
program("B T C", lambda x, y, n: x.add_(y), "B T C", "C")
program("B T C", lambda x, y, n: x.__iadd__(y), "B T C", "C")
program("B T C", lambda x, y, n: x.__imul__(y), "B T C", "T 1")
program("B T C", lambda x, y, n: x.copy_(y), "B T C", "T C")
program("B T C", lambda x, n: F.gelu(x).clamp(min=0), "B T C")
program("B T C", lambda x, y, n: x.clamp(max=y), "B T C", "C")
program("B T C", lambda x, y, w, n: torch.lerp(x, y, w), "B T C", "T C", "C")
program("B T C", lambda x, y, z, n: torch.addcmul(x, y, z), "B T C", "T C", "C")
program("B T C", lambda x, y, z, n: x.addcdiv_(y, z), "B T C", "T C", "C")
program("B T C", lambda x, y, n: torch.maximum(x, y), "B T C", "C")
program("B T C", lambda x, y, n: torch.max(x, y), "B T C", "C")
program("B H T S", lambda s, m, n: s.masked_fill(m == 0, float("-inf")), "B H T S", "T S")
program("B H T S", lambda s, m, n: s.masked_fill_(m, 0), "B H T S", "b:T S")
program("B T S", lambda m, a, n: torch.where(m > 0, a, torch.zeros(1)), "T S", "B T S")
program("B T S", lambda m, a, b, n: a.where(m, b), "b:T S", "B T S", "S")
program("B T C", lambda x, n: F.dropout(x, 0.5), "B T C")
same("dropout alpha_dropout feature_alpha_dropout dropout1d", "B T C")
same("dropout2d", "B C Y X")
same("dropout3d", "B C T Y X")
same(
    "exp log sqrt rsqrt sin cos tanh sigmoid erf relu abs sign square reciprocal floor round isnan zero_ exp_", "B T C"
)
same("silu mish selu celu elu softplus softsign hardswish leaky_relu relu6 logsigmoid tanhshrink hardtanh", "B T C")
same("softmin log_softmax softmax", "B T C", -1)
same(
    "logical_not nan_to_num trunc frac log1p expm1 lgamma digamma i0 sinc logit deg2rad xlogy", "B T C", *()
) if False else None
same("nan_to_num trunc frac log1p expm1 lgamma digamma i0 sinc logit deg2rad gumbel_softmax normalize", "B T C")
program("B T C", lambda x, n: torch.special.expit(x), "B T C")
program("B T C", lambda x, n: torch.special.logit(x), "B T C")
program("B T", lambda x, n: torch.special.logsumexp(x, -1), "B T C")
program("B T C | B T C", lambda x, n: torch.frexp(x), "B T C")
program("B C T", lambda x, w, n: F.prelu(x, w), "B C T", "C")
program("B T C", lambda x, y, n: torch.polar(x, y), "B T C", "B T C")
program("B T C", lambda x, y, n: torch.complex(x, y), "B T C", "B T C")
program("B T C 2", lambda x, n: torch.view_as_real(x), "c:B T C")
program("B T D/2", lambda x, n: torch.view_as_complex(x.view(n["B"], n["T"], n["D"] // 2, 2)), "B T D")
program(
    "B T D",
    lambda x, n: torch.view_as_real(torch.view_as_complex(x.view(n["B"], n["T"], -1, 2)) * 1j).flatten(-2),
    "B T D",
)
same("conj angle conj_physical resolve_conj", "c:B T C")

# along an axis
program("B H T S", lambda s, n: s.softmax(dim=-1), "B H T S")
program("B H T S", lambda s, n: torch.softmax(s, -1, dtype=torch.float64), "B H T S")
for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort", "argsort", "log_softmax"):
    program("B T C", lambda x, n, name=name: getattr(torch, name)(x, dim=1), "B T C")
    program("B T C", lambda x, n, name=name: getattr(x, name)(-2), "B T C")
program("B ? C", lambda x, n: torch.diff(x, dim=1), "B T C")
program("B T ?", lambda x, n: x.diff(), "B T C")
program("B ?", lambda x, n: torch.cumulative_trapezoid(x, dim=1), "B T")
program("B", lambda x, n: torch.trapezoid(x, dim=1), "B T")
program("B T K", lambda x, n: x.topk(n["K"], dim=-1), "B T E")
program("B ? C", lambda x, n: torch.topk(x, 2, 1), "B T C")
program("B ?", lambda x, n: torch.multinomial(x, 2), "B V")
program("B T ?", lambda i, n: F.one_hot(i, n["E"]), "i:B T")
program("B ? C", lambda x, n: x.repeat_interleave(2, dim=1), "B T C")
program("?", lambda x, n: torch.repeat_interleave(x, 2), "T")
program("B ? C", lambda x, r, n: x.repeat_interleave(r, dim=1), "B T C", "i:T")
program("B T C", lambda x, n: torch.fft.fft(x), "B T C")
program("B T C", lambda x, n: torch.fft.ifft(x, dim=1), "c:B T C")
program("B T C", lambda x, n: torch.fft.fft2(x), "B T C")
program("B T C", lambda x, n: torch.fft.fftn(x).real, "B T C")
program("B T C", lambda x, n: torch.fft.fftshift(x), "B T C")
program("B ? C", lambda x, n: torch.fft.rfft(x, dim=1), "B T C")
program("B T ?", lambda x, n: torch.fft.irfft(x), "c:B T C")
program("B T ?", lambda x, n: torch.fft.fft(x, 3), "B T C")
program("B T ?", lambda x, n: torch.fft.rfft2(x), "B T C")

# away an axis
program("B T 1", lambda x, n: x.mean(-1, keepdim=True), "B T C")
program("B C", lambda x, n: x.sum(dim=1), "B T C")
program("B C", lambda x, n: torch.sum(x, axis=-2), "B T C")
program("", lambda x, n: x.mean(), "B T C")
program("T", lambda x, n: x.amax((0, 2)), "B T C")
program("1 T 1", lambda x, n: torch.mean(x, dim=[0, -1], keepdim=True), "B T C")
for name in (
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "std",
    "var",
    "logsumexp",
    "argmax",
    "argmin",
    "nansum",
    "any",
    "all",
):
    program("B C", lambda x, n, name=name: getattr(torch, name)(x, dim=1), "B T C")
    program("B 1 C", lambda x, n, name=name: getattr(x, name)(dim=-2, keepdim=True), "B T C")
program("B T", lambda x, n: x.max(dim=-1), "B T V")
program("B T 1", lambda x, n: torch.min(x, -1, keepdim=True), "B T V")
program("", lambda x, n: x.max(), "B T V")
program("B T", lambda x, n: x.argmax(-1), "B T V")
program("B T", lambda x, n: torch.median(x, -1), "B T V")
program("B T", lambda x, n: torch.mode(x), "B T V")
program("B V", lambda x, n: x.kthvalue(1, 1), "B T V")
program("B V", lambda x, n: torch.quantile(x, 0.5, dim=1), "B T V")
program("S B V", lambda x, q, n: torch.quantile(x, q, dim=1), "B T V", "S")
program("B T", lambda x, n: torch.aminmax(x, dim=-1), "B T V")
program("B T | B T", lambda x, n: torch.std_mean(x, -1), "B T C")
program("B T 1 | B T 1", lambda x, n: torch.var_mean(x, dim=-1, keepdim=True), "B T C")
program("B T", lambda x, n: x.var(-1, unbiased=False), "B T C")
program("B T", lambda x, n: x.norm(dim=-1), "B T C")
program("B T 1", lambda x, n: x.norm(2, -1, True), "B T C")
program("B T", lambda x, n: torch.linalg.norm(x, dim=-1), "B T C")
program("B T", lambda x, n: torch.linalg.vector_norm(x, dim=-1), "B T C")
program("", lambda x, n: torch.linalg.vector_norm(x), "B T C")
program("B", lambda x, n: torch.linalg.matrix_norm(x), "B T C")
program("B C", lambda x, n: x.count_nonzero(1), "B T C")
program("B T", lambda x, y, n: F.cosine_similarity(x, y, dim=-1), "B T C", "B T C")
program("B C", lambda x, y, n: F.cosine_similarity(x, y), "B T C", "T C")
program("B T", lambda x, y, n: F.pairwise_distance(x, y), "B T C", "B T C")
program("", lambda x, y, n: torch.dist(x, y), "B T C", "B T C")

# normalisations and losses
program("B T C", lambda x, w, n: F.layer_norm(x, (n["C"],), w), "B T C", "C")
program("B T C", lambda x, w, n: F.rms_norm(x, (n["C"],), w), "B T C", "C")
program("B C Y X", lambda x, w, n: F.group_norm(x, 2, w), "B C Y X", "C")
program("B C T", lambda x, m, v, n: F.batch_norm(x, m, v), "B C T", "C", "C")
program("B C T", lambda x, n: F.instance_norm(x), "B C T")
program("B C T", lambda x, n: F.local_response_norm(x, 2), "B C T")
program("", lambda x, i, n: F.cross_entropy(x.view(-1, n["V"]), i.view(-1)), "B T V", "i:B T")
program("B T", lambda x, i, n: F.cross_entropy(x.transpose(1, 2), i, reduction="none"), "B T V", "i:B T")
program("B T", lambda x, i, n: F.cross_entropy(x.mT, i.mT, reduction="none"), "B T V", "B T V")
program("B", lambda x, i, n: F.nll_loss(x, i, reduction="none"), "B V", "i:B")
for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "kl_div", "poisson_nll_loss"):
    program("", lambda x, y, n, name=name: getattr(F, name)(x, y), "B T", "B T")
    program("B T", lambda x, y, n, name=name: getattr(F, name)(x, y, reduction="none"), "B T", "B T")
program("B T", lambda x, y, n: F.binary_cross_entropy(x, y, reduction="none"), "B T", "B T")
program("B T", lambda x, y, n: F.binary_cross_entropy_with_logits(x, y, reduction="none"), "B T", "B T")
program("B T", lambda x, y, v, n: F.gaussian_nll_loss(x, y, v, reduction="none"), "B T", "B T", "B T")
program("B", lambda x, y, n: F.multi_margin_loss(x, y, reduction="none"), "B V", "i:B")
program("B", lambda x, y, n: F.multilabel_soft_margin_loss(x, y, reduction="none"), "B V", "B V")
program("B", lambda x, y, z, n: F.triplet_margin_loss(x, y, z, reduction="none"), "B C", "B C", "B C")
program("B", lambda x, y, z, n: F.margin_ranking_loss(x, y, z, reduction="none"), "B", "B", "B")
program("B", lambda x, y, z, n: F.cosine_embedding_loss(x, y, z * 2 - 1, reduction="none"), "B C", "B C", "i:B")
program(
    "B",
    lambda x, n: F.ctc_loss(
        x, torch.ones(n["B"], 2, dtype=torch.long), [n["T"]] * n["B"], [2] * n["B"], reduction="none"
    ),
    "T B V",
)

# windows
program("B M ?", lambda x, w, n: F.conv1d(x, w, padding=1), "B C T", "M C 3")
program("B M ? ?", lambda x, w, b, n: F.conv2d(x, w, b), "B C Y X", "M C 3 3", "M")
program("B M ? ? ?", lambda x, w, n: F.conv3d(x, w), "B C T Y X", "M C 1 2 2")
program("B C ?", lambda x, w, n: F.conv1d(x, w, groups=n["C"]), "B C T", "C 1 3")
program("B M ?", lambda x, w, n: F.conv_transpose1d(x, w), "B C T", "C M 3")
program("B M ? ?", lambda x, w, n: F.conv_transpose2d(x, w, stride=2), "B C Y X", "C M 3 3")
program("B M ? ? ?", lambda x, w, n: F.conv_transpose3d(x, w), "B C T Y X", "C M 1 2 2")
program("B C ?", lambda x, n: F.max_pool1d(x, 1), "B C T")
program("B C ? ?", lambda x, n: F.max_pool2d(x, 2), "B C Y X")
program("B C ? ?", lambda x, n: F.max_pool2d(x, 2, return_indices=True), "B C Y X")
program("B C ? ? ?", lambda x, n: F.max_pool3d(x, 2), "B C T Y X")
program("B C ?", lambda x, n: F.avg_pool1d(x, 2), "B C T")
program("B C ? ?", lambda x, n: F.avg_pool2d(x, 2), "B C Y X")
program("B C ? ?", lambda x, n: F.lp_pool2d(x, 2, 2), "B C Y X")
program("B C ? ?", lambda x, n: F.adaptive_avg_pool2d(x, 2), "B C Y X")
program("B C ?", lambda x, n: F.adaptive_max_pool1d(x, 2), "B C T")
program("B C ? ?", lambda x, n: F.adaptive_max_pool2d(x, 2, return_indices=True), "B C Y X")
program("B C ? ?", lambda x, n: F.interpolate(x, scale_factor=2.0), "B C Y X")
program("B C ?", lambda x, n: F.interpolate(x, 7, mode="linear"), "B C T")
program("B C T S", lambda x, g, n: F.grid_sample(x, g, align_corners=False), "B C Y X", "B T S 2")
program("B ? ? ?", lambda x, n: F.affine_grid(x, (n["B"], 1, 3, 3), align_corners=False), "B 2 3")
program("B ? ?", lambda x, n: torch.stft(x, 4, return_complex=True, window=torch.ones(4)), "B C")


# recurrent calls and attention calls
def weights(hidden, feature, gates):
    """Weights of a recurrent call as torch lays them out."""
    sizes = [(gates * hidden, feature), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    return [torch.rand(s) for s in sizes]


def recurrent(name, gates, first):
    """Register an RNN of one layer and one of both directions; `first`: the batch comes first."""

    def one(x, h, n):
        state = [h, h] if gates == 4 else h
        return getattr(torch, name)(x, state, weights(n["M"], n["C"], gates), True, 1, 0.0, False, False, first)

    def two(x, h, n):
        state = [h, h] if gates == 4 else h
        return getattr(torch, name)(x, state, weights(n["M"], n["C"], gates) * 2, True, 1, 0.0, False, True, first)

    x = "B T" if first else "T B"
    program(f"{x} M | 1 B M" + " | 1 B M" * (gates == 4), one, f"{x} C", "1 B M")
    program(f"{x} 2M | 2 B M" + " | 2 B M" * (gates == 4), two, f"{x} C", "2 B M")


recurrent("lstm", 4, True)
recurrent("gru", 3, False)
recurrent("rnn_tanh", 1, True)
recurrent("rnn_relu", 1, False)
program("B M", lambda x, h, n: torch.lstm_cell(x, [h, h], *weights(n["M"], n["C"], 4)), "B C", "B M")
program("B M", lambda x, h, n: torch.gru_cell(x, h, *weights(n["M"], n["C"], 3)), "B C", "B M")
program("B M", lambda x, h, n: torch.rnn_tanh_cell(x, h, *weights(n["M"], n["C"], 1)), "B C", "B M")
program("B M", lambda x, h, n: torch.rnn_relu_cell(x, h, *weights(n["M"], n["C"], 1)), "B C", "B M")
program(
    "T B C | B T S",
    lambda q, k, n: F.multi_head_attention_forward(
        q, k, k, n["C"], n["H"], torch.rand(3 * n["C"], n["C"]), None, None, None, False, 0.0,
        torch.rand(n["C"], n["C"]), None,
    ),
    "T B C", "S B C",
)  # fmt: skip

# factories; and axes that get their name from what they are lined up with
for name in ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "bernoulli"):
    program("B T C", lambda x, n, name=name: getattr(torch, name)(x), "B T C")
program("B T C", lambda x, n: torch.full_like(x, 2.0), "B T C")
program("B T C", lambda x, n: torch.normal(x, 1.0), "B T C")
program("B T C", lambda x, n: torch.tensor(0.0) + x.new_tensor(1.0) + x, "B T C")
for name in ("zeros", "ones", "rand", "randn", "empty"):
    program("? ?", lambda n, name=name: getattr(torch, name)(n["T"], n["C"]))
for name in ("new_zeros", "new_ones", "new_empty"):
    program("? ?", lambda x, n, name=name: getattr(x, name)(n["T"], n["C"]), "B")
program("? ?", lambda x, n: x.new_full((n["T"], n["C"]), 1.0), "B")
program("? ?", lambda n: torch.tril_indices(n["T"], n["T"]))
program("?", lambda n: torch.arange(n["T"]))
program("?", lambda n: torch.linspace(0, 1, n["T"]))
program("? ?", lambda n: torch.eye(n["T"]))
program("B T C", lambda x, n: x + torch.arange(n["T"])[:, None], "B T C")
program("B T C", lambda x, n: x * x.new_ones(n["T"], 1), "B T C")
program("B T C", lambda x, n: x + torch.full((n["T"], n["C"]), 1.0), "B T C")
program("B H T S", lambda s, n: s + torch.full((n["T"], n["S"]), 0.0).triu(1), "B H T S")


def make(text, sizes):
    """Return a tensor for `i:B T`."""
    kind, axes = text.split(":") if ":" in text else ("", text)
    shape = []
    for name in parse_axes(axes):
        count = name.rstrip("CMYX")
        shape.append(sizes[name] if name in sizes else int(count) * (sizes[name[-1]] if name != count else 1))
    x = torch.rand(shape)
    return {"": x, "i": (2 * x).long(), "b": x > 0.5, "c": torch.complex(x, x)}[kind]


@pytest.mark.filterwarnings("ignore")  # torch calls some of these names old, or experimental
@pytest.mark.parametrize("sizes", [DISTINCT, EQUAL], ids=["distinct", "equal"])
@pytest.mark.parametrize(("f", "inputs", "expected"), CASES)
def test_names_of_one_operation(f, inputs, expected, sizes):
    declared = {k: v for k, v in sizes.items() if k not in "BTSYX"}
    tensors = [make(i, sizes) for i in inputs]
    axes = [i.rpartition(":")[2] for i in inputs]
    t = tracer.trace(lambda *xs: f(*xs, sizes), *tensors, axes=axes, sizes=declared)
    wanted = [parse_axes(e) for e in expected.split("|")]
    found = [out.axes for out in t[-1].outputs]
    assert found == (wanted if len(wanted) == len(found) else wanted * len(found)), str(t)
    assert (t.unnamed, t.warnings) == ((), ())


def test_names_reach_back_to_where_an_axis_was_made():
    x = torch.rand(2, 5, 7)
    t = tracer.trace(lambda x: x + torch.arange(5)[:, None], x, axes=["B T C"])
    assert t.find("arange")[0].outputs[0].axes == ("T",)


def test_an_operation_without_a_rule_is_listed_and_shows_sizes():
    t = tracer.trace(torch.linalg.svdvals, torch.rand(2, 5, 7), axes=["B T C"])
    assert t.unnamed == ("linalg_svdvals",)
    assert t[0].outputs[0].label == "[?=2, ?=5]"


def test_two_rules_for_one_name_are_refused():
    with pytest.raises(ValueError, match="two rules for view"):
        rule("view")(lambda step: None)
    assert "view" in RULES


def test_a_slice_of_a_constant_is_a_new_axis_even_where_it_is_full():
    mask = torch.ones(5, 5)
    t = tracer.trace(lambda x, n: x + mask[:n, :n], torch.rand(2, 5, 5), 5, axes=["B T S"])
    assert t.find("getitem")[0].outputs[0].axes == ("T", "S")


# ---------------------------------------------------------------- sizes that tell nothing


def last(f, *tensors, axes, sizes=None):
    """Trace one program and return the labels of its last operation, and the warnings."""
    t = tracer.trace(f, *tensors, axes=axes, sizes=sizes)
    return [o.axes for o in t[-1].outputs], t.warnings


class Holder(torch.nn.Module):
    """One parameter and what is done with it."""

    def __init__(self, f, *shape):
        super().__init__()
        self.f, self.p = f, torch.nn.Parameter(torch.rand(shape))

    def forward(self, x):
        return self.f(x, self.p)


def test_a_small_parameter_is_not_named_by_its_size_alone():
    x = torch.rand(2, 5, 6, 6)
    colours = torch.nn.Conv2d(5, 24, 3)
    t = tracer.trace(colours, x, axes=["B R Y X"], sizes={"C": 24, "H": 3, "D": 8})
    assert t[0].inputs[1].axes == ("C", "R", "?", "?")  # a kernel of 3 is no head
    assert t[0].outputs[0].axes == ("B", "C", "?", "?")
    table = Holder(lambda x, p: p.expand(2, -1, -1) * 2, 1, 3, 24)
    axes, _ = last(table, x, axes=["B R Y X"], sizes={"C": 24, "H": 3, "D": 8})
    assert axes == [("?", "?", "C")]
    classes = torch.nn.Linear(24, 3)
    axes, _ = last(classes, torch.rand(2, 24), axes=["B C"], sizes={"C": 24, "H": 3, "D": 8})
    assert axes == [("B", "?")]
    assert last(torch.nn.Linear(24, 8), torch.rand(2, 24), axes=["B C"], sizes={"C": 24, "H": 3})[0] == [("B", "D")]


def test_a_parameter_axis_of_one_takes_no_name_from_what_it_is_lined_up_with():
    gain = Holder(lambda x, p: x * p, 1, 1)
    t = tracer.trace(gain, torch.rand(1, 1), axes=["T C"], sizes={"C": 1, "H": 1})
    assert t[0].inputs[1].axes == ("?", "?")
    assert t[0].outputs[0].axes == ("T", "C")


def test_sizes_of_two_wholes_are_a_tie_until_the_code_cuts_them():
    maps = torch.nn.Linear(8, 24)
    x, sizes = torch.rand(2, 5, 8), {"C": 8, "M": 24}
    assert last(maps, x, axes=["B T C"], sizes=sizes)[0] == [("B", "T", "?")]
    assert last(lambda x: maps(x).chunk(3, -1), x, axes=["B T C"], sizes=sizes)[0] == [("B", "T", "C")] * 3
    gates = torch.nn.Linear(8, 24)
    halves, _ = last(lambda x: gates(x).chunk(2, -1), x, axes=["B T C"], sizes={"C": 8, "M": 12})
    assert halves == [("B", "T", "M")] * 2


def test_a_parameter_of_an_operation_without_a_rule_has_no_name_by_size():
    p = Holder(lambda x, p: x + torch.linalg.svdvals(p), 24, 8)
    t = tracer.trace(p, torch.rand(2, 8), axes=["B C"], sizes={"C": 8, "M": 24})
    assert t.find("linalg_svdvals")[0].inputs[0].axes == ("?", "?")


def test_gates_of_a_cell_have_no_name_by_their_number():
    t = tracer.trace(torch.nn.GRUCell(8, 8), torch.rand(2, 8), axes=["B C"], sizes={"C": 8, "M": 24})
    call = t.find("gru_cell")[0]
    assert [x.axes for x in call.inputs] == [("B", "C"), ("B", "C"), ("?", "C"), ("?", "C"), ("?",), ("?",)]
    assert call.outputs[0].axes == ("B", "C")


@pytest.mark.parametrize(
    ("layer", "axes", "shape", "outputs"),
    [
        (torch.nn.LSTM(8, 13, batch_first=True), "B T C", (2, 5, 8), ["B T M", "? B M", "? B M"]),
        (torch.nn.LSTM(8, 13, proj_size=8), "T B C", (5, 2, 8), ["T B C", "? B C", "? B ?"]),
        (torch.nn.GRU(8, 13, 2, bidirectional=True), "T B C", (5, 2, 8), ["T B 2M", "? B M"]),
        (torch.nn.RNN(8, 8, batch_first=True), "B T C", (2, 5, 8), ["B T C", "? B C"]),
        (torch.nn.LSTMCell(8, 13), "B C", (2, 8), ["B M", "B M"]),
        (torch.nn.Conv1d(8, 13, 3), "B C T", (2, 8, 5), ["B M ?"]),
        (torch.nn.ConvTranspose1d(8, 13, 3), "B C T", (2, 8, 5), ["B M ?"]),
        (torch.nn.BatchNorm1d(8), "B C T", (2, 8, 5), ["B C T"]),
        (torch.nn.GroupNorm(2, 8), "B C T", (2, 8, 5), ["B C T"]),
        (torch.nn.TransformerEncoderLayer(8, 2, 13).eval(), "T B C", (5, 2, 8), ["T B C"]),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, torch.nn.Module) else "",
)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_names_of_layers(layer, axes, shape, outputs):
    t = tracer.trace(layer, torch.rand(shape), axes=[axes], sizes={"C": 8, "M": 13})
    assert [o.axes for o in t[-1].outputs] == [parse_axes(o) for o in outputs]
    assert (t.unnamed, t.warnings) == ((), ())


def test_packed_sequences_keep_their_features():
    def run(x):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 4], batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(cell(packed)[0], batch_first=True)[0]

    cell = torch.nn.GRU(8, 13)
    t = tracer.trace(run, torch.rand(2, 5, 8), axes=["B T C"], sizes={"C": 8, "M": 13})
    assert t.find("gru")[0].outputs[0].axes == ("?", "M")
    assert t[-1].outputs[0].axes == ("?", "?", "M")
    assert t.unnamed == ()


def test_products_of_groups_and_of_small_numbers():
    x, w = torch.rand(8, 16, dtype=torch.bfloat16), torch.rand(3, 16, 32, dtype=torch.bfloat16)
    ends = torch.tensor([2, 4, 8], dtype=torch.int32)
    axes, _ = last(lambda x, w: torch._grouped_mm(x, w, offs=ends), x, w, axes=["T C", "E C M"])
    assert axes == [("T", "M")]
    one = torch.tensor(1.0)
    a, b = torch.rand(16, 16).to(torch.float8_e4m3fn), torch.rand(32, 16).to(torch.float8_e4m3fn)
    axes, _ = last(lambda a, b: torch._scaled_mm(a, b.t(), one, one), a, b, axes=["T C", "M C"])
    assert axes == [("T", "M")]


def test_key_heads_that_serve_several_query_heads_are_not_lined_up():
    q, k = torch.rand(2, 4, 5, 8), torch.rand(2, 4, 5, 8)
    t = tracer.trace(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), q, k, axes=["B H T D", "B G S D"]
    )
    assert (t[-1].outputs[0].axes, t.warnings) == (("B", "H", "T", "D"), ())


def test_tables_summed_by_bag_have_rows_of_the_vocabulary():
    bag = torch.nn.EmbeddingBag(17, 8)
    t = tracer.trace(bag, torch.zeros(2, 5, dtype=torch.long), axes=["B T"], sizes={"C": 8, "V": 17})
    assert [x.axes for x in (*t[-1].inputs, *t[-1].outputs)] == [("B", "T"), ("V", "C"), ("B", "C")]


# ---------------------------------------------------------------- all that torch lets a mode see

NO_RULE = re.compile(
    r"""
    _.*|.*(quantize|quantized|qscheme|fbgemm|sparse|miopen|nested|mkldnn|backward|batch_norm|polynomial|bessel).*
    |q_.*|sym_.*|all_.*|reduce.*|broadcast|isend|send|irecv|recv|ipu|mtia|xpu|map2?_|apply_  # devices, processes
    |(c?col|c?row)_indices.*|indices.*|values.*|coalesce|.*smm|.*saddmm|sspaddmm|to_dense|int_repr|fused_.*|slice_copy
    |choose_.*|const_data_ptr|constant_|dim_order|equal|allclose|hash_tensor|item|tolist|numpy|module_load
    |set_|share_memory_|record_stream|resize.*|as_strided.*|sum_to_size|index|gradient|pdist|histogramdd
    |kaiming_uniform_|norm_except_dim|segment_reduce|linear_cross_entropy|conv_tbc|convolution|slice_inverse
    |native_.*|grid_sampler.*|affine_grid_generator
    |(linalg_)?(svd.*|lu.*|eig.*|qr|ldl.*|.*solve.*|cholesky_ex|inv_ex|tensorinv|lstsq|householder_product)
    |geqrf|orgqr|ormqr|lobpcg|pca_lowrank
    """,
    re.VERBOSE,
)
"""What has no rule: decompositions, sparse and quantised tensors, other devices, what gives no tensor, aten's own."""


def test_what_torch_can_do_has_a_rule_or_is_listed():
    names = {call.name: find_rule(call.name) for call in map(call_of, get_testing_overrides()) if not call.skip}
    lacking = {name for name, found in names.items() if found is None}
    assert {n for n in lacking if not NO_RULE.fullmatch(n)} == set()
    share = 1 - len(lacking) / len(names)
    print(f"{len(names) - len(lacking)} of {len(names)} operations that a mode can see have a rule: {share:.0%}")
    assert share > 0.7


def test_three_times_a_width_is_read_as_the_code_writes_it():
    H, D = 3, 14
    axes, _ = last(lambda x: x.view(2, 5, H, 3 * D), torch.rand(2, 5, 126), axes=["B T 3C"], sizes={"H": H, "D": D})
    assert axes == [("B", "T", "H", "3D")]
    axes, _ = last(lambda x: x.view(2, 5, 3, H * D), torch.rand(2, 5, 126), axes=["B T 3C"], sizes={"H": H, "D": D})
    assert axes == [("B", "T", "3", "C")]


def test_a_size_written_by_another_name_is_believed():
    G, H, D = 2, 4, 8  # 2GD is as wide as C
    kv = torch.nn.Linear(H * D, 2 * G * D)
    sizes = {"C": H * D, "H": H, "G": G, "D": D}
    axes, warnings = last(
        lambda x: kv(x).view(3, 5, 2, G, D).sum(3) * 2, torch.rand(3, 5, H * D), axes=["B T C"], sizes=sizes
    )
    assert axes == [("B", "T", "?", "?")]
    assert warnings == ()


@pytest.mark.parametrize("sizes", [(2, 5, 3, 7), (2, 1, 6, 1), (1, 1, 6, 1), (2, 1, 2, 1)], ids=str)
def test_joined_heads_take_no_position_of_size_one(sizes):
    B, T, H, D = sizes
    x = torch.rand(B, T, H, D)
    for f in (lambda x: x.view(x.size(0), -1, H * D), lambda x: x.reshape(B, T, H * D)):
        axes, warnings = last(f, x, axes=["B T H D"], sizes={"H": H, "D": D})
        assert axes == [("B", "T", "C")]
        assert warnings == ()


def test_heads_beside_the_batch_are_no_cut_across_axes():
    B, T, H, D = 2, 5, 3, 7
    maps = torch.nn.Linear(21, 21)
    _, warnings = last(lambda x: maps(x).view(T, B * H, D), torch.rand(T, B, 21), axes=["T B C"])
    assert warnings == ()
    H, D = 1, 7
    axes, _ = last(lambda x: x.view(T, B * H, D), torch.rand(T, B, 7), axes=["T B C"], sizes={"H": H, "D": D})
    assert axes == [("T", "?", "?")]


def test_an_axis_added_with_a_size_that_happens_to_be_one_is_no_bare_one():
    n = 1
    table = Holder(lambda x, p: p.expand(n, -1, -1) * x, 1, 4, 8)
    assert last(table, torch.rand(1), axes=["?"], sizes={"C": 8})[0] == [("?", "?", "C")]
    assert last(lambda x: x.repeat(n, 1, 1), torch.rand(4, 8), axes=["T C"])[0] == [("?", "T", "C")]


def test_mixing_positions_by_a_learned_map_gives_positions_back():
    up, down = torch.nn.Linear(5, 13), torch.nn.Linear(13, 5)
    axes, warnings = last(
        lambda x: x + down(up(x.mT).relu()).mT, torch.rand(2, 5, 8), axes=["B T C"], sizes={"C": 8, "M": 13}
    )
    assert axes == [("B", "T", "C")]
    assert warnings == ()


def test_the_last_of_one_position_may_be_all_of_them():
    assert last(lambda x: x[:, -1:], torch.rand(2, 5, 8), axes=["B T C"])[0] == [("B", "1", "C")]
    assert last(lambda x: x[:, -1:], torch.rand(2, 1, 8), axes=["B T C"])[0] == [("B", "1", "C")]
    assert last(lambda x: x[:, -x.size(1) :], torch.rand(2, 1, 8), axes=["B T C"])[0] == [("B", "T", "C")]


def test_a_slice_bounded_by_a_number_is_no_whole_and_no_half():
    x = torch.rand(2, 4, 8)
    for f in (lambda x: x[:, :4], lambda x: x[:, -4:], lambda x: x[..., :4].mT, lambda x: x.narrow(1, 0, 4)):
        assert last(f, x, axes=["B T D"])[0][0][1] == "?"
    assert last(lambda x, n: x[:, :n], x, 4, axes=["B T D"])[0] == [("B", "T", "D")]
    assert last(lambda x: x[..., : x.size(-1) // 2], x, axes=["B T D"])[0] == [("B", "T", "D/2")]


@pytest.mark.parametrize("T", [1, 5])
def test_a_position_of_size_one_stays_with_the_batch(T):
    axes, warnings = last(
        lambda x: (y := x.reshape(2, T, -1)).view(-1, y.size(-1)),
        torch.rand(2, T, 3, 16),
        axes=["B T H D"],
        sizes={"H": 3, "D": 16},
    )
    assert axes == [("(B T)", "C")]
    assert warnings == ()


def test_the_shift_of_relative_positions_is_no_merge_with_heads():
    def shift(x):
        n = x.shape
        return torch.cat([torch.zeros(*n[:3], 1), x], -1).view(n[0], n[1], n[3] + 1, n[2])

    t = tracer.trace(shift, torch.rand(2, 3, 1, 1), axes=["B H T T"])
    assert t[-1].outputs[0].axes[1] in ("H", "?")


@pytest.mark.parametrize(("G", "width"), [(2, 80), (3, 96), (1, 64)])
def test_fused_grouped_maps_have_the_name_of_their_sum_once_they_are_cut_so(G, width):
    maps, x = torch.nn.Linear(48, width), torch.rand(2, 48)
    sizes = {"C": 48, "H": 6, "G": G, "D": 8}
    assert last(maps, x, axes=["B C"], sizes=sizes)[0] == [("B", "?")]  # each group's own may stand together
    keys = "(G D)" if G > 1 else "D"
    t = tracer.trace(lambda x: maps(x).split([48, 8 * G, 8 * G], -1), x, axes=["B C"], sizes=sizes)
    assert [o.axes for o in t[-1].outputs] == [("B", "C"), ("B", keys), ("B", keys)]
    assert t[0].outputs[0].axes == ("B", "C+(2 G D)" if G > 1 else "C+2D")
    query, key = 48, 8 * G
    t = tracer.trace(lambda x: maps(x)[:, query : query + key], x, axes=["B C"], sizes=sizes)
    assert t[-1].outputs[0].axes == ("B", keys)
    assert last(maps, x, axes=["B C"], sizes={**sizes, "M": width})[0] == [("B", "?")]


def test_one_text_cannot_give_one_name_two_sizes():
    _, warnings = last(lambda x: x + 1, torch.rand(2, 5, 3), axes=["B T B"])
    assert any("B" in w and "2" in w and "3" in w for w in warnings)


def test_where_of_a_condition_gives_indices():
    t = tracer.trace(lambda x: torch.where(x > 0), torch.rand(2, 5), axes=["B T"])
    assert t.unnamed == ()
    assert [o.axes for o in t[-1].outputs] == [("?",), ("?",)]


def test_what_a_parameter_is_added_to_has_its_name_too():
    p = Holder(lambda x, p: x + p, 24)
    assert last(p, torch.rand(2, 5, 24), axes=["B T ?"], sizes={"C": 24, "H": 3})[0] == [("B", "T", "C")]


@pytest.mark.parametrize(
    "f",
    [
        lambda s: s.softmax(-1).sum(-1),
        lambda s: s.softmax(-1).sum(),
        lambda s: s.softmax(-1).sum(1) / 3,  # averaged over heads
        lambda s: s.softmax(-1).mean(-2),
        lambda s: s.softmax(-1).amax(-2),
    ],
)
def test_sums_of_weights_that_are_meant(f):
    t = tracer.trace(f, torch.rand(2, 3, 5, 7), axes=["B H T S"])
    assert t.warnings == ()


def test_classes_of_one_hot_are_not_named_by_their_number():
    t = tracer.trace(lambda i: F.one_hot(i % 6, 6), torch.arange(10).view(2, 5), sizes={"E": 6})
    assert t[-1].outputs[0].axes == ("B", "T", "?")


def test_slopes_of_prelu_belong_to_the_channels_not_to_the_last_axis():
    slopes = torch.rand(5)
    t = tracer.trace(F.prelu, torch.rand(2, 5, 5), slopes, axes=["B C T", "C"])
    assert (t[-1].outputs[0].axes, t.warnings) == (("B", "C", "T"), ())


def test_a_padded_axis_is_another_axis_also_where_its_size_stays():
    t = tracer.trace(lambda x: F.pad(x, (0, 0, 1, -1)), torch.rand(2, 5, 7), axes=["B T C"])
    assert t[-1].outputs[0].axes == ("B", "?", "C")


@pytest.mark.parametrize("sizes", [(2, 1, 3, 14), (2, 5, 1, 14), (1, 5, 3, 14), (1, 1, 1, 2)], ids=str)
def test_a_shape_that_no_text_tells_merges_no_axis_of_one_by_guess(sizes):
    B, T, H, D = sizes
    shape = (B, T * H, D)
    axes, warnings = last(lambda x: x.reshape(shape), torch.rand(B, T, H, D), axes=["B T H D"], sizes={"H": H, "D": D})
    assert all(name in (right, "?") for name, right in zip(axes[0], ("B", "(T H)", "D"), strict=True))
    assert warnings == ()


def test_all_positions_and_heads_in_one_axis_are_not_mistaken_for_groups():
    x = torch.rand(2, 1, 6, 14)  # T is 1, and H is (G H/G): two factors, as T * H has
    axes, warnings = last(
        lambda x: x.reshape(2, x.size(1) * x.size(2), 14), x, axes=["B T H D"], sizes={"H": 6, "G": 2, "D": 14}
    )
    assert all(name in (right, "?") for name, right in zip(axes[0], ("B", "(T H)", "D"), strict=True))
    assert warnings == ()


@pytest.mark.parametrize("H", [1, 2, 3])
def test_the_three_of_a_fused_map_is_where_the_code_writes_it(H):
    D = 14
    C = H * D
    fused = torch.nn.Linear(C, 3 * C)
    axes, _ = last(lambda x: fused(x).view(2, 5, H, D, 3), torch.rand(2, 5, C), axes=["B T C"], sizes={"H": H, "D": D})
    assert all(name in (right, "?") for name, right in zip(axes[0], ("B", "T", "H", "D", "3"), strict=True))


def test_channels_that_attend_to_channels_are_no_positions_where_there_is_one_head():
    H, D = 1, 14
    fused = torch.nn.Linear(D, 3 * D)

    def across(x):
        q, k, v = fused(x).reshape(2, 5, 3, H, D // H).permute(2, 0, 3, 4, 1)
        return (q @ k.mT).softmax(-1) @ v

    axes, _ = last(across, torch.rand(2, 5, D), axes=["B T C"], sizes={"H": H, "D": D})
    assert axes == [("B", "?", "?", "T")]


@pytest.mark.parametrize("H", [1, 3])
def test_a_range_that_starts_at_one_has_no_bare_one(H):
    x = torch.rand(2, H, 5, 5)
    axes, _ = last(lambda x: torch.arange(1, H + 1), x, axes=["B H T T"])
    assert axes == [("?",)]


@pytest.mark.parametrize(("count", "expected"), [(1, ("B", "?", "H", "D")), (3, ("B", "1", "H", "D"))])
def test_one_position_of_several_is_the_one_that_is_written(count, expected):
    x = torch.rand(2, count, 12)
    H, D = 3, 4
    axes, warnings = last(lambda x: x[:, :1].view(x.size(0), 1, H, D), x, axes=["B T C"], sizes={"H": H, "D": D})
    assert all(name in (right, "?") for name, right in zip(axes[0], ("B", "1", "H", "D"), strict=True))
    assert warnings == ()
    if count > 1:
        assert axes == [expected]


@pytest.mark.parametrize("H", [2, 3])
def test_how_many_parts_a_list_joins_is_no_name(H):
    x = torch.rand(2, H, 5, 7)
    settings = {"axes": ["B H T D"], "sizes": {"H": H, "D": 7}}
    assert last(lambda x: torch.cat(list(x.unbind(1)), -1), x, **settings)[0] == [("B", "T", "?")]
    assert last(lambda x: torch.cat([x[:, i, None] for i in range(H)], 1), x, **settings)[0] == [("B", "?", "T", "D")]
    assert last(lambda x: torch.cat([x, x], -1), x, **settings)[0] == [("B", "H", "T", "2D")]


class Talking(torch.nn.Module):
    """Weights of attention, mixed over the heads by a learned map."""

    def __init__(self, spelled):
        super().__init__()
        self.spelled, self.mix = spelled, torch.nn.Parameter(torch.rand(3, 3))

    def forward(self, q):
        w = (q @ q.mT).softmax(-1)
        if self.spelled:
            return torch.einsum("bhts,hg->bgts", w, self.mix) @ q
        return (w.permute(0, 2, 3, 1) @ self.mix).permute(0, 3, 1, 2) @ q


@pytest.mark.parametrize("spelled", [True, False])
def test_a_learned_map_that_mixes_heads_after_the_softmax_is_on_purpose(spelled):
    axes, warnings = last(Talking(spelled), torch.rand(2, 3, 5, 7), axes=["B H T D"], sizes={"H": 3, "D": 7})
    assert axes == [("B", "H", "T", "D")]
    assert warnings == ()
