"""Attention against torch's own, step by step; each comparison has a wrong variant that it must reject."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.models import Attention, attention, scaled_dot_product_attention

PRIMES = {"B": 2, "T": 5, "H": 3, "D": 7}
EQUAL = {"B": 4, "T": 4, "H": 4, "D": 4}


@pytest.fixture(params=[PRIMES, EQUAL], ids=["primes", "equal"])
def sizes(request: pytest.FixtureRequest) -> SimpleNamespace:
    return SimpleNamespace(**request.param, C=request.param["H"] * request.param["D"])


def made(sizes: SimpleNamespace) -> tuple[Attention, Tensor]:
    torch.manual_seed(0)
    attn = Attention(sizes.C, sizes.H, block_size=sizes.T + 2).double()
    return attn, torch.randn(sizes.B, sizes.T, sizes.C, dtype=torch.float64)


def torch_attention(attn: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    """nn.MultiheadAttention with the same weights: what it returns, and the weights of each head."""
    T = x.shape[1]
    judge = nn.MultiheadAttention(attn.n_embd, attn.n_head, batch_first=True).to(x.dtype)
    judge.load_state_dict(
        {
            "in_proj_weight": attn.c_attn.weight,
            "in_proj_bias": attn.c_attn.bias,
            "out_proj.weight": attn.c_proj.weight,
            "out_proj.bias": attn.c_proj.bias,
        }
    )
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)  # True hides here
    return judge(x, x, x, attn_mask=hidden, average_attn_weights=False)


def far(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_equals_multihead_attention(sizes):
    attn, x = made(sizes)
    out, _ = torch_attention(attn, x)
    assert far(attn(x), out) < 1e-12


def see_one_ahead(attn: Attention, _: pytest.MonkeyPatch) -> None:
    attn.bias.copy_(torch.ones_like(attn.bias).tril(1))


def see_nothing_of_oneself(attn: Attention, _: pytest.MonkeyPatch) -> None:
    attn.bias.copy_(torch.ones_like(attn.bias).tril(-1))
    attn.bias[..., 0, 0] = True


def see_all(attn: Attention, _: pytest.MonkeyPatch) -> None:
    attn.bias.fill_(True)


def no_scale(_: Attention, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attention, "math", SimpleNamespace(sqrt=lambda D: 1.0))


def scale_by_D(_: Attention, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attention, "math", SimpleNamespace(sqrt=lambda D: D))


def keys_for_queries(attn: Attention, _: pytest.MonkeyPatch) -> None:
    attn.c_attn.forward = lambda x: F.linear(x, attn.c_attn.weight.roll(attn.n_embd, 0), attn.c_attn.bias)


@pytest.mark.parametrize(
    "spoil", [see_one_ahead, see_nothing_of_oneself, see_all, no_scale, scale_by_D, keys_for_queries]
)
def test_wrong_attention_is_told_apart(sizes, spoil, monkeypatch):
    attn, x = made(sizes)
    out, _ = torch_attention(attn, x)
    with torch.no_grad():
        spoil(attn, monkeypatch)
    assert far(attn(x), out) > 1e-4


def test_steps_equal_torch(sizes):
    """Between the projections: scores, weights and heads against F.scaled_dot_product_attention and MHA."""
    attn, x = made(sizes)
    B, T, H, D = sizes.B, sizes.T, sizes.H, sizes.D
    q, k, v = (
        part.view(B, T, H, D).transpose(1, 2) for part in F.linear(x, attn.c_attn.weight, attn.c_attn.bias).chunk(3, -1)
    )
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    heads, weights = scaled_dot_product_attention(q, k, v, mask)
    assert far(weights, torch_attention(attn, x)[1]) < 1e-12
    assert far(heads, F.scaled_dot_product_attention(q, k, v, attn_mask=mask)) < 1e-12
    # The class writes these lines out itself: both must stay the same.
    out = F.linear(heads.transpose(1, 2).reshape(B, T, H * D), attn.c_proj.weight, attn.c_proj.bias)
    assert far(attn(x), out) < 1e-12


def test_operation_alone_with_other_sizes_for_keys_and_values():
    q, k, v = torch.randn(2, 5, 7), torch.randn(2, 11, 7), torch.randn(2, 11, 3)  # T=5, S=11, D=7, D_v=3
    heads, weights = scaled_dot_product_attention(q, k, v)
    assert heads.shape == (2, 5, 3) and weights.shape == (2, 5, 11)
    assert far(heads, F.scaled_dot_product_attention(q, k, v)) < 1e-6
    assert far(weights.sum(-1), torch.ones(2, 5)) < 1e-6


def test_operation_alone_equals_the_worked_example():
    """q·k is 1, 0, 1, so the shares are e^0.7071 : 1 : e^0.7071, that is .401 : .198 : .401."""
    q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    heads, weights = scaled_dot_product_attention(q, k, k)
    assert far(weights, torch.tensor([[0.4011, 0.1978, 0.4011]])) < 5e-5
    assert far(heads, torch.tensor([[0.8022, 0.5989]])) < 5e-5


def test_operation_refuses_a_mask_that_is_not_true_or_false():
    """An additive mask, 0 and -inf, would be read the wrong way round."""
    q = torch.randn(2, 3)
    with pytest.raises((TypeError, RuntimeError)):
        scaled_dot_product_attention(q, q, q, torch.zeros(2, 2))


def test_future_changes_nothing(sizes):
    attn, x = made(sizes)
    for t in range(1, sizes.T):
        later = x.clone()
        later[:, t:] = torch.randn_like(later[:, t:])
        assert torch.equal(attn(later)[:, :t], attn(x)[:, :t])
        assert far(attn(later)[:, t:], attn(x)[:, t:]) > 1e-4


def test_heads_are_apart_until_the_projection():
    """Features h*D .. h*D+D-1 of the values reach the same features of what c_proj reads, and no others."""
    attn, x = made(SimpleNamespace(**PRIMES, C=21))
    attn.c_proj = nn.Identity()
    before = attn(x)
    with torch.no_grad():
        attn.c_attn.bias[2 * 21 + 7 : 2 * 21 + 14] += 1.0  # v of head 1
    changed = (attn(x) - before).abs().amax(dim=(0, 1)) > 1e-6
    assert changed.tolist() == [False] * 7 + [True] * 7 + [False] * 7


def test_dropout_works_in_training_alone():
    attn = Attention(21, 3, block_size=5, dropout=0.5)
    x = torch.randn(2, 5, 21)
    assert not torch.equal(attn(x), attn(x))
    attn.eval()
    assert torch.equal(attn(x), attn(x))


def test_sizes_and_axes():
    attn = Attention(21, 3, block_size=5)
    assert attn.sizes == {"C": 21, "H": 3, "D": 7}
    assert set(attn.axes) == {"x", "cache.k", "cache.v", *attn.state_dict()}


def test_heads_that_do_not_divide():
    with pytest.raises(ValueError) as caught:
        Attention(48, 5, block_size=8)
    assert str(caught.value) == (
        "n_embd=48 does not divide into n_head=5 heads: each head gets D = C / H features, and 48 / 5 is not whole. "
        "With n_embd=48, n_head can be 1, 2, 3, 4, 6, 8, 12, 16, 24, 48; "
        "with n_head=5, n_embd can be 50 or another multiple of 5."
    )


def test_more_heads_than_features():
    with pytest.raises(ValueError, match="n_embd can be 5 or another"):
        Attention(2, 5, block_size=8)


def test_too_many_positions():
    with pytest.raises(ValueError, match=r"T=6 positions, but block_size=5.*\[:, -5:\]"):
        Attention(21, 3, block_size=5)(torch.zeros(2, 6, 21))
