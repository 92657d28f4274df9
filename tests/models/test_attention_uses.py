"""Every use of the one attention class: cross, grouped, padded, cached, and the three ways to compute it."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.models import Attention, KVCache, Rotary, scaled_dot_product_attention

HOWS = ("steps", "fused", "einops")
B, T, S, C, C_S = 2, 5, 7, 24, 13
KINDS = {
    "self": {"n_head": 3},
    "unmasked": {"n_head": 3, "causal": False},
    "stored mask": {"n_head": 3, "block_size": 11},
    "three maps": {"n_head": 3, "fused_qkv": False},
    "grouped": {"n_head": 6, "n_kv_head": 2},
    "one key/value head": {"n_head": 6, "n_kv_head": 1},
    "H·D is not C": {"n_head": 3, "d_head": 7},
    "d_v is not d_k": {"n_head": 3, "n_kv_head": 1, "d_head": 7, "d_value": 5},
    "no biases": {"n_head": 3, "bias": False},
    "biases of q, k, v": {"n_head": 3, "fused_qkv": False, "out_bias": False},
    "rotary": {"n_head": 3, "rotary": Rotary(8)},
    "cross": {"n_head": 3, "causal": False, "d_source": C_S},
    "cross, grouped, d_v": {"n_head": 6, "n_kv_head": 3, "d_head": 7, "d_value": 5, "causal": False, "d_source": C_S},
}
by_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, **more) -> tuple[Attention, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    attn = Attention(C, **(KINDS[kind] | more))
    x = torch.randn(B, T, C)
    return attn, (x,) if attn.d_source is None else (x, torch.randn(B, S, C_S))


def far(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


# ------------------------------------------------------------------ three ways, one result


def some_padding(length: int) -> Tensor:
    padding = torch.ones(B, length, dtype=torch.bool)
    padding[0, :2] = False
    return padding


@by_kind
@pytest.mark.parametrize("padded", [False, True])
def test_three_ways_agree(kind, padded):
    attn, inputs = made(kind)
    seen = {"padding": some_padding(inputs[-1].shape[1])} if padded else {}
    wanted = attn(*inputs, **seen)
    assert wanted.shape == (B, T, C)
    for how in HOWS[1:]:
        other, _ = made(kind, how=how)
        assert far(other(*inputs, **seen), wanted) < 1e-6
        assert set(other.state_dict()) == set(attn.state_dict())


@by_kind
def test_gradients_agree_and_reach_every_parameter(kind):
    grads = {}
    for how in HOWS:
        attn, inputs = made(kind, how=how)
        attn(*inputs).square().sum().backward()
        grads[how] = {name: p.grad for name, p in attn.named_parameters()}
        assert all(grad.isfinite().all() for grad in grads[how].values())
        # A bias of k adds the same to all scores of a query, and the softmax takes it away again.
        moved = {name for name, grad in grads[how].items() if grad.abs().max() > 1e-4}
        assert moved | {"c_k.bias"} >= set(grads[how])
    for name in grads["steps"]:
        for how in HOWS[1:]:
            assert far(grads[how][name], grads["steps"][name]) < 1e-5, name


def test_dropout_of_the_fused_way_works_in_training_alone():
    attn = Attention(C, 3, dropout=0.5, how="fused")
    attn.resid_dropout.p = 0.0
    x = torch.randn(B, T, C)
    assert not torch.equal(attn(x), attn(x))
    attn.eval()
    assert torch.equal(attn(x), attn(x))


# ------------------------------------------------------------------ against torch


def heads_of(attn: Attention, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    H, G = attn.n_head, attn.n_kv_head
    return [t.unflatten(-1, (n, -1)).transpose(1, 2) for t, n in ((q, H), (k, G), (v, G))]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("G", [1, 2, 3, 6])
def test_grouped_equals_enable_gqa(G, how):
    torch.manual_seed(0)
    attn = Attention(C, 6, n_kv_head=G, how=how, fused_qkv=False)
    x = torch.randn(B, T, C)
    q, k, v = heads_of(attn, attn.c_q(x), attn.c_k(x), attn.c_v(x))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert far(attn(x), attn.c_proj(heads.transpose(1, 2).flatten(2))) < 1e-6
    if 1 < G < 6:  # in turn instead of side by side: another answer
        k, v = k.repeat(1, 6 // G, 1, 1), v.repeat(1, 6 // G, 1, 1)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert far(attn(x), attn.c_proj(heads.transpose(1, 2).flatten(2))) > 1e-3


def test_fused_and_separate_maps_give_the_same_numbers():
    fused, (x,) = made("self")
    separate, _ = made("three maps")
    rows = {
        f"c_{part}.{kind}": rows
        for kind in ("weight", "bias")
        for part, rows in zip("qkv", fused.get_parameter(f"c_attn.{kind}").chunk(3), strict=True)
    }
    separate.load_state_dict(
        rows | {f"c_proj.{kind}": fused.get_parameter(f"c_proj.{kind}") for kind in ("weight", "bias")}
    )
    assert far(separate(x), fused(x)) < 1e-6
    separate.c_q, separate.c_k = separate.c_k, separate.c_q
    assert far(separate(x), fused(x)) > 1e-3


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention_equals_multihead_attention(how, padded):
    torch.manual_seed(0)
    attn = Attention(C, 3, causal=False, d_source=C_S, how=how)
    x, source, padding = torch.randn(B, T, C), torch.randn(B, S, C_S), some_padding(S)
    judge = nn.MultiheadAttention(C, 3, kdim=C_S, vdim=C_S, batch_first=True)
    judge.load_state_dict(
        {f"{part}_proj_weight": attn.get_parameter(f"c_{part}.weight") for part in "qkv"}
        | {"in_proj_bias": torch.cat([attn.c_q.bias, attn.c_k.bias, attn.c_v.bias])}
        | {f"out_proj.{kind}": attn.get_parameter(f"c_proj.{kind}") for kind in ("weight", "bias")}
    )
    wanted, _ = judge(x, source, source, key_padding_mask=~padding if padded else None)  # there True hides
    assert far(attn(x, source, padding=padding if padded else None), wanted) < 1e-6
    wrong = attn(x, source, padding=None if padded else padding)
    assert far(wrong, wanted) > 1e-3


# ------------------------------------------------------------------ masks


@pytest.mark.parametrize("shape", [(T, T), (1, 1, T, T), (B, 1, T, T), (1, 3, T, T), (B, 3, T, T)])
@pytest.mark.parametrize("how", HOWS)
def test_masks_of_every_shape(shape, how):
    attn, (x,) = made("unmasked", how=how)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[..., 0] = True
    q, k, v = heads_of(attn, *attn.c_attn(x).chunk(3, -1))
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert far(attn(x, mask=mask), attn.c_proj(heads.transpose(1, 2).flatten(2))) < 1e-6
    assert far(attn(x, mask=mask), attn(x)) > 1e-4


@pytest.mark.parametrize("how", HOWS)
def test_masks_add_up(how):
    """Causal, mask and padding: what one of them hides is hidden."""
    attn, (x,) = made("self", how=how)
    mask = torch.ones(T, T, dtype=torch.bool)
    mask[3, 1] = False
    seen = {"mask": mask, "padding": some_padding(T)}
    for s in range(T):
        other = x.clone()
        other[:, s] += 1.0
        moved = (attn(other, **seen) - attn(x, **seen)).abs().amax(-1) > 1e-6
        for b, t in itertools.product(range(B), range(T)):
            visible = s <= t and (t, s) != (3, 1) and not (b == 0 and s < 2)
            own = s == t and (b == 1 or t >= 2)  # the query itself moved; a row that sees nothing stays zero
            assert moved[b, t].item() is (visible or own), (b, t, s)


@pytest.mark.parametrize("how", HOWS)
def test_rows_that_see_nothing_give_zeros_with_finite_gradients(how):
    attn, (x,) = made("self", how=how)
    x.requires_grad_()
    padding = torch.ones(B, T, dtype=torch.bool)
    padding[0] = False
    padding[1, :2] = False
    out = attn(x, padding=padding)
    assert far(out[0], attn.c_proj.bias.expand(T, C)) == 0 and far(out[1, :2], attn.c_proj.bias.expand(2, C)) == 0
    out.square().sum().backward()
    assert x.grad.isfinite().all() and not x.grad[0].any() and x.grad[1, 2:].abs().min() > 0
    assert all(p.grad.isfinite().all() for p in attn.parameters())


def test_the_softmax_alone_would_give_nan():
    q, k = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1] = False
    plain = F.softmax((q @ k.T / math.sqrt(3)).masked_fill(~mask, float("-inf")), dim=-1)
    assert plain[1].isnan().all() and plain[0].isfinite().all()
    heads, weights = scaled_dot_product_attention(q, k, k, mask)
    assert torch.equal(weights[0], plain[0]) and not weights[1].any() and not heads[1].any()
    heads.sum().backward()
    assert q.grad.isfinite().all() and not q.grad[1].any()


def test_one_query_over_data_vectors():
    query, data = torch.randn(1, 3), torch.randn(7, 3)
    heads, weights = scaled_dot_product_attention(query, data, data)
    shares = torch.tensor([math.exp(query[0] @ row / math.sqrt(3)) for row in data])
    shares /= shares.sum()
    assert far(weights[0], shares) < 1e-6
    assert far(heads[0], sum(share * row for share, row in zip(shares, data, strict=True))) < 1e-6


# ------------------------------------------------------------------ order


@pytest.mark.parametrize("how", HOWS)
def test_permutation_equivariance_holds_without_mask_and_positions(how):
    order = torch.tensor([3, 0, 4, 2, 1])
    attn, (x,) = made("unmasked", how=how)
    assert far(attn(x[:, order]), attn(x)[:, order]) < 1e-6
    for kind, more in (("self", {}), ("unmasked", {"rotary": Rotary(8)})):
        attn, (x,) = made(kind, how=how, **more)
        assert far(attn(x[:, order]), attn(x)[:, order]) > 1e-3, kind


@pytest.mark.parametrize("how", HOWS)
def test_future_changes_nothing(how):
    for kind in ("self", "stored mask", "grouped", "d_v is not d_k", "rotary"):
        attn, (x,) = made(kind, how=how)
        for t in range(1, T):
            later = x.clone()
            later[:, t:] = torch.randn_like(later[:, t:])
            assert far(attn(later)[:, :t], attn(x)[:, :t]) < 1e-6
            assert far(attn(later)[:, t:], attn(x)[:, t:]) > 1e-3


# ------------------------------------------------------------------ cache


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("cuts", [[1, 1, 1, 1, 1], [3, 2], [2, 1, 2], [5], [1, 4]])
@pytest.mark.parametrize("kind", ["self", "stored mask", "grouped", "one key/value head", "d_v is not d_k", "rotary"])
def test_cached_equals_the_full_pass(kind, cuts, how):
    attn, (x,) = made(kind, how=how)
    cache = KVCache()
    parts = [attn(part, cache=cache) for part in x.split(cuts, dim=1)]
    assert far(torch.cat(parts, dim=1), attn(x)) < 1e-6
    assert len(cache) == T
    assert cache.k.shape == (B, attn.n_kv_head, T, attn.d_head)
    assert cache.v.shape == (B, attn.n_kv_head, T, attn.d_value)
    assert cache.nbytes == 4 * B * attn.n_kv_head * T * (attn.d_head + attn.d_value)


def test_a_causal_mask_from_the_first_key_on_would_be_wrong():
    """What torch's is_causal does where T is not S."""
    attn, (x,) = made("self")
    q, k, v = heads_of(attn, *attn.c_attn(x).chunk(3, -1))
    heads = F.scaled_dot_product_attention(q[:, :, 3:], k, v, is_causal=True)
    wrong = attn.c_proj(heads.transpose(1, 2).flatten(2))
    assert far(wrong, attn(x)[:, 3:]) > 1e-3


@pytest.mark.parametrize("how", HOWS)
def test_cached_with_padding(how):
    attn, (x,) = made("rotary", how=how)
    padding, cache = some_padding(T), KVCache()
    wanted = attn(x, padding=padding)
    ends = list(itertools.accumulate([2, 1, 2]))
    parts = [
        attn(part, padding=padding[:, :end], cache=cache)
        for part, end in zip(x.split([2, 1, 2], dim=1), ends, strict=True)
    ]
    assert far(torch.cat(parts, dim=1), wanted) < 1e-6


# ------------------------------------------------------------------ names and errors


@by_kind
def test_axes_fit_the_parameters(kind):
    attn, _ = made(kind)
    sizes = attn.sizes | {"1": 1, "3C": 3 * C, "block_size": attn.block_size}
    sizes = {"G": attn.n_kv_head, "D_v": attn.d_value} | sizes
    for name, tensor in attn.state_dict().items():
        axes = attn.axes[name].replace("(", "").replace(")", "")
        assert math.prod(sizes[axis] for axis in axes.split()) == tensor.numel(), name


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"n_head": 6, "n_kv_head": 4}, "n_kv_head=4 does not divide n_head=6: each key/value head serves H / G"),
        ({"n_head": 3, "d_head": 0}, "d_head=0 cannot be a number of anything"),
        ({"n_head": 3, "how": "flash"}, "how='flash' is not known. Choose one of: steps, fused, einops."),
        ({"n_head": 3, "d_source": 7}, "d_source=7 with a causal mask"),
        ({"n_head": 3, "causal": False, "block_size": 5}, "block_size=5 is the size of a causal mask"),
        ({"n_head": 6, "n_kv_head": 2, "fused_qkv": True}, "fused_qkv=True, but q, k and v have [24, 8, 8] features"),
    ],
)
def test_bad_choices(choices, message):
    with pytest.raises(ValueError) as caught:
        Attention(C, **choices)
    assert str(caught.value).startswith(message)


X = torch.zeros(B, T, C)


@pytest.mark.parametrize(
    ("kind", "call", "error", "message"),
    [
        ("self", lambda a: a(X[0]), ValueError, "x is [5, 24], but the layer takes three axes"),
        (
            "self",
            lambda a: a(X[..., :7]),
            ValueError,
            "x is [2, 5, 7], but the layer takes three axes, batch, positions",
        ),
        ("self", lambda a: a(X, X), ValueError, "source is given, but this layer takes q, k and v all from x."),
        ("cross", lambda a: a(X), ValueError, "source is missing"),
        ("cross", lambda a: a(X, X), ValueError, "source is [2, 5, 24], but the layer takes three axes"),
        ("cross", lambda a: a(X, X[:1, :, :13]), ValueError, "source is [1, 5, 13] and x is [2, 5, 24]"),
        ("self", lambda a: a(X, mask=torch.ones(T, T)), TypeError, "mask holds torch.float32, but a mask is True"),
        (
            "self",
            lambda a: a(X, mask=torch.ones(T, T + 1).bool()),
            ValueError,
            "mask is [5, 6], but here it has to be [5, 5] or [1, 1, 5, 5] or [2, 1, 5, 5] or [1, 3, 5, 5]",
        ),
        (
            "self",
            lambda a: a(X, padding=torch.ones(T, B).bool()),
            ValueError,
            "padding is [5, 2], but here it has to be [2, 5].",
        ),
        ("stored mask", lambda a: a(X.repeat(1, 3, 1)), ValueError, "T=15 positions, but block_size=11"),
        ("rotary", lambda a: a(X, positions=torch.arange(3)), ValueError, "positions are [3], but x is [2, 3, 5, 8]"),
    ],
)
def test_bad_calls(kind: str, call: Callable, error: type[Exception], message: str):
    for how in HOWS:
        attn, _ = made(kind, how=how)
        with pytest.raises(error) as caught:
            call(attn)
        assert str(caught.value).startswith(message)
