"""Positions as their formulas, in both orders of features; what rotary does to a product."""

import math

import pytest
import torch
from torch import Tensor, nn

from tracer.models import LearnedPositions, Rotary, SinusoidalPositions, joined

LAYOUTS = ["interleaved", "halves"]


def far(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_sinusoids_of_the_paper():
    """Section 3.5, term by term."""
    C, table = 6, SinusoidalPositions(6)(torch.arange(50))
    for t in (0, 1, 7, 49):
        for i in range(C // 2):
            angle = t / 10000 ** (2 * i / C)
            assert abs(table[t, 2 * i].item() - math.sin(angle)) < 1e-5
            assert abs(table[t, 2 * i + 1].item() - math.cos(angle)) < 1e-5


def test_halves_equal_marian():
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    judge = marian.MarianSinusoidalPositionalEmbedding(40, 12)
    judge.weight.data.copy_(judge.create_weight())
    ours = SinusoidalPositions(12, layout="halves")(torch.arange(40))
    assert far(ours, judge.weight.data) < 1e-5
    assert far(SinusoidalPositions(12)(torch.arange(40)), judge.weight.data) > 0.1


def test_both_layouts_hold_the_same_features():
    a, b = (SinusoidalPositions(8, layout=layout)(torch.arange(9)) for layout in LAYOUTS)
    assert far(a, b.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)) == 0


def test_learned_positions_are_a_table():
    table = LearnedPositions(5, 4)
    assert isinstance(table, nn.Embedding) and table.weight.shape == (5, 4)
    assert torch.equal(table(torch.tensor([[2, 0]])), table.weight[[2, 0]][None])
    assert table.axes == {"weight": "block_size C"} and table.sizes == {"C": 4}


def test_joined():
    x, vectors = torch.randn(2, 5, 4), torch.randn(5, 4)
    assert torch.equal(joined(x, vectors), x + vectors)
    both = joined(x, vectors[:, :3], "concat")
    assert torch.equal(both[..., :4], x) and torch.equal(both[1, ..., 4:], vectors[:, :3])
    # One map reads both: with the same weights for both it reads their sum.
    W = torch.randn(7, 4)
    assert far(joined(x, vectors, "concat") @ torch.cat([W, W], dim=1).T, joined(x, vectors) @ W.T) < 1e-5
    assert joined(x.bfloat16(), vectors).dtype == torch.bfloat16
    with pytest.raises(ValueError, match=r"position vectors have 3 features and tokens 4.*concat"):
        joined(x, vectors[:, :3])
    with pytest.raises(ValueError, match=r"how='cat' is not known\. Choose one of: add, concat\."):
        joined(x, vectors, "cat")


# ------------------------------------------------------------------ rotary


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_pair_is_turned_by_its_own_angle(layout):
    D, x = 6, torch.randn(1, 1, 1, 6, dtype=torch.float64)
    out = Rotary(D, layout=layout)(x, torch.tensor([5]))
    for i in range(D // 2):
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + D // 2)
        angle = 5 / 10000 ** (2 * i / D)
        before, after = complex(x[..., a], x[..., b]), complex(out[..., a], out[..., b])
        assert abs(before * complex(math.cos(angle), math.sin(angle)) - after) < 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_depend_on_the_distance_alone(layout):
    rotary = Rotary(8, layout=layout)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def product(m: int, n: int) -> float:
        return (rotary(q, torch.tensor([m])) * rotary(k, torch.tensor([n]))).sum().item()

    for m, n in ((0, 3), (4, 4), (9, 2)):
        assert abs(product(m, n) - product(m + 1000, n + 1000)) < 1e-9
    assert abs(product(0, 3) - product(0, 4)) > 1e-3
    assert abs(product(0, 3) - product(3, 0)) > 1e-3  # n - m, not |n - m|
    assert abs(product(5, 5) - (q * k).sum().item()) < 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_turning_keeps_lengths_and_position_zero(layout):
    rotary, x = Rotary(8, layout=layout), torch.randn(2, 3, 5, 8)
    assert torch.equal(rotary(x, torch.zeros(5, dtype=torch.long)), x)
    assert far(rotary(x, torch.arange(5)).norm(dim=-1), x.norm(dim=-1)) < 1e-5


def test_positions_of_each_row():
    rotary, x = Rotary(8), torch.randn(2, 3, 5, 8)
    rows = torch.stack([torch.arange(5), torch.arange(5) + 4])
    out = rotary(x, rows)
    for b in range(2):
        assert far(out[b : b + 1], rotary(x[b : b + 1], rows[b])) == 0


def test_layouts_differ_by_the_order_of_features():
    x, order = torch.randn(1, 1, 5, 8), torch.arange(8).view(4, 2).T.flatten()  # 0 2 4 6 1 3 5 7
    halves = Rotary(8)(x[..., order], torch.arange(5))
    interleaved = Rotary(8, layout="interleaved")(x, torch.arange(5))
    assert far(halves, interleaved[..., order]) < 1e-6
    assert far(Rotary(8)(x, torch.arange(5)), interleaved) > 0.1


def test_bfloat16_tells_late_positions_apart():
    x = torch.ones(1, 1, 1, 4, dtype=torch.bfloat16)
    late = [Rotary(4)(x, torch.tensor([t])) for t in (1000, 1001)]
    assert late[0].dtype == torch.bfloat16 and far(*late) > 0.1
    wanted = Rotary(4)(x.double(), torch.tensor([1001]))
    assert far(late[1].double(), wanted) < 0.02


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotary(7), "d_head=7 is odd"),
        (lambda: SinusoidalPositions(7), "n_embd=7 is odd"),
        (lambda: Rotary(8, layout="pairs"), "layout='pairs' is not known. Choose one of: interleaved, halves."),
        (lambda: LearnedPositions(0, 4), "block_size=0 cannot be a number of anything"),
    ],
)
def test_bad_choices(make, message):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_the_turn_of_another_head_size():
    for x in (torch.zeros(2, 3, 5, 6), torch.zeros(2, 5, 4)):
        with pytest.raises(ValueError, match=r"the turn was built for \[B, H, T, D\] with D=4"):
            Rotary(4)(x, torch.arange(5))
