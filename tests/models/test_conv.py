"""CausalConv: a convolution of torch with zeros on the left, and no farther than its reach."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tracer
from tracer.models import CausalConv

SIZES = {"primes": (7, 11, 2, 9, 2, 3), "long": (5, 3, 3, 13, 3, 2), "equal": (4, 4, 4, 4, 4, 5)}
"""C, V, B, T, L, window"""
all_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def made(sizes=SIZES["primes"]) -> tuple[CausalConv, Tensor]:
    C, V, B, T, L, window = sizes
    torch.manual_seed(0)
    return CausalConv(C, V, n_layer=L, window=window).eval(), torch.randint(V, (B, T))


def spelled(model: CausalConv, idx: Tensor) -> Tensor:
    """The same model with each window's products written out, position by position."""
    x = model.embedding(idx)
    for norm, conv in zip(model.norms, model.convs, strict=True):
        before = norm(x)
        seen = torch.zeros_like(x)
        for t in range(x.shape[1]):
            for w in range(model.window):
                s = t - (model.window - 1) + w
                if s >= 0:
                    seen[:, t] = seen[:, t] + before[:, s] @ conv.weight[:, :, w].T
        x = x + F.relu(seen + conv.bias)
    return model.head(model.ln_f(x))


@all_sizes
@torch.no_grad()
def test_windows_written_out(sizes):
    model, idx = made(sizes)
    assert (model(idx)[0] - spelled(model, idx)).abs().max() <= 1e-5
    for conv in model.convs:
        conv.weight.copy_(conv.weight.flip(-1))  # a true convolution turns its kernel round; torch's does not
    wrong = model(idx)[0]
    for conv in model.convs:
        conv.weight.copy_(conv.weight.flip(-1))
    assert (wrong - spelled(model, idx)).abs().max() > 1e-3


@all_sizes
def test_a_position_sees_its_reach_and_no_farther(sizes):
    model, idx = made(sizes)
    logits, _ = model(idx)
    for s in range(idx.shape[1]):
        other = idx.clone()
        other[:, s] = (idx[:, s] + 1) % sizes[1]
        moved = ((model(other)[0] - logits).abs().amax((0, 2)) > 1e-7).tolist()
        inside = [s <= t < s + model.reach for t in range(idx.shape[1])]
        assert all(seen or not hit for seen, hit in zip(inside, moved, strict=True))
        assert moved[s]
    assert model.reach == 1 + sizes[4] * (sizes[5] - 1)


@all_sizes
def test_trace_names_every_axis(sizes):
    model, idx = made(sizes)
    t = tracer.trace(model, idx, idx)
    assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
    assert (t.warnings, t.unnamed) == ((), ())
    assert t.find(name="conv1d")[0].inputs[0].label == "[B, C, before+T]"
    assert t.find(name="conv1d")[0].outputs[0].label == "[B, C, T]"


def test_loss_leaves_positions_out():
    model, idx = made()
    logits, _ = model(idx)
    targets = idx.clone()
    targets[:, :4] = -1
    want = F.cross_entropy(logits[:, 4:].reshape(-1, 11), idx[:, 4:].reshape(-1))
    assert torch.allclose(model(idx, targets)[1], want)


def test_bad_input_gets_one_clear_error():
    model, _ = made()
    with pytest.raises(IndexError, match=re.escape("idx[0, 1] is 11, but V=11")):
        model(torch.tensor([[0, 11]]))
    with pytest.raises(ValueError, match="Give 2 or more"):
        CausalConv(7, 11, window=1)
    with pytest.raises(ValueError, match="n_layer=0"):
        CausalConv(7, 11, n_layer=0)
