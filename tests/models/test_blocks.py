"""LayerNorm, MLP and Block against torch's own; each comparison has a wrong variant that it must reject."""

import pytest
import torch
from torch import Tensor, nn

from tracer.models import MLP, Block, LayerNorm, blocks

SIZES = [(2, 5, 3, 21, 13), (4, 4, 4, 16, 16)]  # B, T, H, C, M
ids = ["primes", "equal"]


def torch_layer(block: Block, activation: str, norm_first: bool) -> nn.TransformerEncoderLayer:
    """The encoder layer of torch with the weights of `block`."""
    C, M = block.mlp.c_fc.in_features, block.mlp.c_fc.out_features
    judge = nn.TransformerEncoderLayer(
        C, block.attn.n_head, M, dropout=0.0, activation=activation, norm_first=norm_first, batch_first=True
    )
    ours = block.state_dict()
    pairs = {
        "self_attn.in_proj_": "attn.c_attn.",
        "self_attn.out_proj.": "attn.c_proj.",
        "linear1.": "mlp.c_fc.",
        "linear2.": "mlp.c_proj.",
        "norm1.": "ln_1.",
        "norm2.": "ln_2.",
    }
    kinds = ("weight", "bias")
    judge.load_state_dict({theirs + kind: ours[name + kind] for theirs, name in pairs.items() for kind in kinds})
    return judge.double()


def made(sizes, **choices) -> tuple[Block, Tensor]:
    B, T, H, C, M = sizes
    torch.manual_seed(0)
    block = Block(C, H, block_size=T, d_mlp=M, **choices)
    with torch.no_grad():
        for norm in (block.ln_1, block.ln_2):  # away from 1 and 0, so that leaving one out shows
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
    return block.double(), torch.randn(B, T, C, dtype=torch.float64)


def far_from_torch(block: Block, x: Tensor, activation: str, norm_first: bool) -> float:
    T = x.shape[1]
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    return (block(x) - torch_layer(block, activation, norm_first)(x, src_mask=hidden)).abs().max().item()


@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("activation", "theirs"), [("gelu_erf", "gelu"), ("relu", "relu")])
def test_block_equals_torch(sizes, norm, activation, theirs):
    block, x = made(sizes, norm=norm, activation=activation)
    assert far_from_torch(block, x, theirs, norm_first=norm == "pre") < 1e-12


@pytest.mark.parametrize("sizes", SIZES, ids=ids)
@pytest.mark.parametrize(
    ("choices", "norm_first"),
    [
        ({"norm": "pre", "activation": "gelu_erf"}, False),
        ({"norm": "post", "activation": "gelu_erf"}, True),
        ({"norm": "pre", "activation": "gelu_tanh"}, True),
        ({"norm": "pre", "activation": "relu"}, True),
    ],
    ids=["pre for post", "post for pre", "tanh for erf", "relu for gelu"],
)
def test_wrong_block_is_told_apart(sizes, choices, norm_first):
    block, x = made(sizes, **choices)
    assert far_from_torch(block, x, "gelu", norm_first) > 1e-6


def test_residual_left_out_is_told_apart():
    block, x = made(SIZES[0], activation="gelu_erf")
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    judge = torch_layer(block, "gelu", norm_first=True)(x, src_mask=hidden)
    assert (block(x) - x - judge).abs().max() > 0.1


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_future_changes_nothing(norm):
    block, x = made(SIZES[0], norm=norm)
    for t in range(1, 5):
        later = x.clone()
        later[:, t:] = torch.randn_like(later[:, t:])
        assert torch.equal(block(later)[:, :t], block(x)[:, :t])
        assert not torch.equal(block(later)[:, t:], block(x)[:, t:])


def test_post_norm_leaves_normalised_tokens_and_pre_norm_does_not():
    x = torch.randn(2, 5, 21) * 10
    for norm, normalised in (("post", True), ("pre", False)):
        variance = Block(21, 3, block_size=5, norm=norm)(x).var(dim=-1, correction=0)
        assert torch.allclose(variance, torch.ones(2, 5), atol=1e-3) is normalised


def test_mlp_is_the_same_at_every_position():
    mlp = MLP(21, 13).double()
    x = torch.randn(2, 5, 21, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert (mlp(x)[:, order] - mlp(x[:, order])).abs().max() < 1e-15
    other = x.clone()
    other[:, 2] += 1.0
    moved = (mlp(other) - mlp(x)).abs().amax(dim=(0, 2)) > 0
    assert moved.tolist() == [False, False, True, False, False]


def test_activations_as_their_formulas():
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    tanh = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    erf = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    formulas = {"gelu_tanh": tanh, "gelu_erf": erf, "relu": x.clamp(min=0)}
    assert list(formulas) == list(blocks.ACTIVATIONS)
    for name, wanted in formulas.items():
        got = MLP(1, activation=name).act(x)
        assert (got - wanted).abs().max() < 1e-12
    assert 1e-4 < (tanh - erf).abs().max() < 5e-4


def test_layer_norm_as_its_formula():
    x = torch.randn(2, 5, 21, dtype=torch.float64) * 3 + 2
    norm = LayerNorm(21).double()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.uniform_(-0.5, 0.5)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    formula = (x - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
    assert (norm(x) - formula).abs().max() < 1e-12
    unbiased = (x - mean) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias
    assert (norm(x) - unbiased).abs().max() > 1e-3


def test_sizes_and_axes():
    block = Block(21, 3, block_size=5, d_mlp=13)
    assert block.sizes == {"C": 21, "H": 3, "D": 7, "M": 13}
    assert set(block.axes) == {"x", *block.state_dict()}
    assert block.axes["attn.c_attn.weight"] == "3C C" and block.axes["mlp.c_proj.weight"] == "C M"
    for part in (block.mlp, block.ln_1):
        assert set(part.axes) - {"x", "input"} == set(part.state_dict())
    assert MLP(21).sizes == {"C": 21, "M": 84} and LayerNorm(21).sizes == {"C": 21}


def test_axes_of_a_parameter_with_two_names():
    block = Block(21, 3, block_size=5)
    block.ln_2.weight = block.ln_1.weight
    assert set(block.axes) == {"x", *block.state_dict()}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"norm": "both"}, "norm='both' is not known. Choose one of: pre, post."),
        ({"activation": "gelu"}, "activation='gelu' is not known. Choose one of: gelu_tanh, gelu_erf, relu."),
        ({"d_mlp": 0}, "d_mlp=0 cannot be a number of anything. Give a whole number of at least 1."),
    ],
)
def test_unknown_choices(choices, message):
    with pytest.raises(ValueError) as caught:
        Block(21, 3, block_size=5, **choices)
    assert str(caught.value) == message
