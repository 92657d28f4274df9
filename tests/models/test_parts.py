"""RMSNorm, SwiGLU, the mixture of experts, and blocks with cross-attention; the order of normalisation at depth."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.models import MLP, Attention, Block, LayerNorm, MoE, RMSNorm, SwiGLU

B, T, S, H, C, M = 2, 5, 7, 3, 21, 13


def far(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_rms_norm_equals_torch_and_its_formula():
    ours, judge, x = RMSNorm(C, eps=1e-4), nn.RMSNorm(C, eps=1e-4), torch.randn(B, T, C) * 3 + 2
    ours.weight.data.uniform_(0.5, 1.5)
    judge.load_state_dict(ours.state_dict())
    assert far(ours(x), judge(x)) < 1e-6
    formula = x / (x.square().sum(-1, keepdim=True) / C + 1e-4).sqrt() * ours.weight
    assert far(ours(x), formula) < 1e-6
    assert far(ours(x), LayerNorm(C)(x) * ours.weight) > 0.1  # that one takes the mean away


def test_swiglu_as_its_formula():
    net, x = SwiGLU(C, M).double(), torch.randn(B, T, C, dtype=torch.float64)
    gate, up = x @ net.c_gate.weight.T, x @ net.c_fc.weight.T
    assert far(net(x), (gate / (1 + (-gate).exp()) * up) @ net.c_proj.weight.T) < 1e-12
    assert far(net(x), (up / (1 + (-up).exp()) * gate) @ net.c_proj.weight.T) > 1e-4
    assert SwiGLU(24).sizes == {"C": 24, "M": 64}  # 8/3 C


def mixture(n_chosen: int, renormalise: bool) -> tuple[MoE, Tensor]:
    torch.manual_seed(0)
    moe = MoE(C, M, n_expert=5, n_chosen=n_chosen, renormalise=renormalise)
    return moe.double(), torch.randn(B, T, C, dtype=torch.float64)


@pytest.mark.parametrize("n_chosen", [1, 2, 5])
@pytest.mark.parametrize("renormalise", [True, False])
def test_mixture_token_by_token(n_chosen, renormalise):
    moe, x = mixture(n_chosen, renormalise)
    out, counts = moe(x), torch.zeros(5, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            shares = (moe.router.weight @ x[b, t]).softmax(0)
            chosen = sorted(range(5), key=lambda e, shares=shares: -shares[e].item())[:n_chosen]
            counts[chosen] += 1
            total = sum(shares[e] for e in chosen) if renormalise else 1.0
            wanted = sum(shares[e] / total * moe.experts[e](x[b, t]) for e in chosen)
            assert far(out[b, t], wanted) < 1e-12
    assert far(moe.load, counts / counts.sum()) < 1e-12 and not moe.load.requires_grad
    other, _ = mixture(n_chosen, not renormalise)
    assert (far(other(x), out) > 1e-4) is (n_chosen < 5)


def test_experts_not_chosen_get_no_gradient():
    moe, x = mixture(2, True)
    moe(x[:1, :1]).sum().backward()
    used = [expert.c_proj.weight.grad.abs().max() > 0 for expert in moe.experts]
    assert sum(used) == 2 and [bool(load) for load in moe.load > 0] == used
    assert moe.router.weight.grad.abs().max() > 0


def test_sizes_and_axes_of_the_parts():
    moe = MoE(C, M, n_expert=5)
    assert moe.sizes == {"C": C, "M": M, "E": 5, "K": 2}
    for part in (moe, SwiGLU(C, M), RMSNorm(C), MLP(C, bias=False), LayerNorm(C, bias=False)):
        assert set(part.axes) - {"x", "input"} == set(part.state_dict())
    with pytest.raises(ValueError, match=r"n_chosen=6 experts for each token, but there are n_expert=5\."):
        MoE(C, n_expert=5, n_chosen=6)


# ------------------------------------------------------------------ the paper's decoder block


def decoder(norm: str, width: int = C, **choices) -> Block:
    torch.manual_seed(0)
    cross = Attention(C, H, d_source=width, causal=False)
    block = Block(C, H, d_mlp=M, norm=norm, activation="relu", cross=cross, **choices)
    with torch.no_grad():
        for part in (block.ln_1, block.ln_cross, block.ln_2):
            part.weight.uniform_(0.5, 1.5)
            part.bias.uniform_(-0.5, 0.5)
    return block.double()


def torch_decoder(block: Block, norm_first: bool) -> nn.TransformerDecoderLayer:
    judge = nn.TransformerDecoderLayer(C, H, M, dropout=0.0, norm_first=norm_first, batch_first=True)
    ours, state = block.state_dict(), {}
    for kind in ("weight", "bias"):
        state[f"self_attn.in_proj_{kind}"] = ours[f"attn.c_attn.{kind}"]
        state[f"multihead_attn.in_proj_{kind}"] = torch.cat([ours[f"cross.c_{part}.{kind}"] for part in "qkv"])
        pairs = {"self_attn.out_proj": "attn.c_proj", "multihead_attn.out_proj": "cross.c_proj"}
        pairs |= {"linear1": "mlp.c_fc", "linear2": "mlp.c_proj"}
        pairs |= {"norm1": "ln_1", "norm2": "ln_cross", "norm3": "ln_2"}
        state |= {f"{theirs}.{kind}": ours[f"{name}.{kind}"] for theirs, name in pairs.items()}
    judge.load_state_dict(state)
    return judge.double()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("padded", [False, True])
def test_decoder_block_equals_torch(norm, padded):
    block = decoder(norm)
    x, memory = (torch.randn(B, n, C, dtype=torch.float64) for n in (T, S))
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    padding, memory_padding = torch.ones(B, T, dtype=torch.bool), torch.ones(B, S, dtype=torch.bool)
    padding[0, 3:] = memory_padding[1, 4:] = False
    ours = {"padding": padding, "memory_padding": memory_padding} if padded else {}
    theirs = {"tgt_key_padding_mask": ~padding, "memory_key_padding_mask": ~memory_padding} if padded else {}
    out = block(x, memory, **ours)
    assert far(out, torch_decoder(block, norm == "pre")(x, memory, tgt_mask=hidden, **theirs)) < 1e-12
    assert far(out, torch_decoder(block, norm == "post")(x, memory, tgt_mask=hidden, **theirs)) > 1e-3
    block.ln_cross, block.ln_2 = block.ln_2, block.ln_cross
    assert far(out, block(x, memory, **ours)) > 1e-3


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("padded", [False, True])
def test_encoder_block_equals_torch(norm, padded):
    """Without a causal mask; torch's layer in training mode, since its fast path is another computation."""
    torch.manual_seed(0)
    attn = Attention(C, H, causal=False)
    block = Block(C, H, d_mlp=M, norm=norm, activation="gelu_erf", attn=attn).double()
    judge = nn.TransformerEncoderLayer(
        C, H, M, dropout=0.0, activation="gelu", norm_first=norm == "pre", batch_first=True
    ).double()
    pairs = {"self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj.": "attn.c_proj.", "linear1.": "mlp.c_fc."}
    pairs |= {"linear2.": "mlp.c_proj.", "norm1.": "ln_1.", "norm2.": "ln_2."}
    ours = block.state_dict()
    judge.load_state_dict({t + kind: ours[o + kind] for t, o in pairs.items() for kind in ("weight", "bias")})
    x, padding = torch.randn(B, T, C, dtype=torch.float64), torch.ones(B, T, dtype=torch.bool)
    padding[0, 3:] = False
    out = block(x, padding=padding if padded else None)
    assert far(out, judge(x, src_key_padding_mask=~padding if padded else None)) < 1e-12
    assert far(out, judge(x, src_key_padding_mask=None if padded else ~padding)) > 1e-3


def test_decoder_block_reads_a_memory_of_another_width():
    block = decoder("pre", width=11)
    assert block(torch.zeros(B, T, C).double(), torch.zeros(B, S, 11).double()).shape == (B, T, C)
    assert set(block.axes) == {"x", "memory", *block.state_dict()}
    assert block.sizes == {"C": C, "H": H, "D": 7, "M": M, "C_s": 11}


class Narrow(nn.Module):
    """Returns [B, T, 1], which an addition would broadcast."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :1]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_part_that_does_not_keep_the_shape(norm):
    with pytest.raises(ValueError) as caught:
        Block(C, H, mlp=Narrow(), norm=norm)(torch.zeros(B, T, C))
    assert str(caught.value) == (
        "a part of the block returned [2, 5, 1], but the residual stream is [2, 5, 21]: what is added to the stream "
        "has its shape. Give the part a last layer that maps back to C features."
    )


def test_other_norms_by_argument():
    block = Block(C, H, make_norm=partial(LayerNorm, eps=1e-12), mlp=SwiGLU(C))
    assert block.ln_1.eps == block.ln_2.eps == 1e-12
    assert isinstance(Block(C, H, make_norm=RMSNorm).ln_2, RMSNorm)


# ------------------------------------------------------------------ gradients at depth


def first_over_last(norm: str, depth: int) -> float:
    """Gradient of the first block's MLP over that of the last one, at initialisation (Xiong et al. 2020, figure 3)."""
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block(32, 4, norm=norm) for _ in range(depth)))
    for p in blocks.parameters():
        if p.dim() == 2:
            nn.init.xavier_uniform_(p)
    final = LayerNorm(32) if norm == "pre" else nn.Identity()
    target = torch.randn(4, 8, 32)
    F.mse_loss(final(blocks(torch.randn(4, 8, 32))), target).backward()
    norms = [block.mlp.c_proj.weight.grad.norm().item() for block in (blocks[0], blocks[-1])]
    return norms[0] / norms[1]


def test_gradients_fade_with_depth_after_post_norm_and_not_after_pre_norm():
    ratios = {norm: [first_over_last(norm, depth) for depth in (4, 24)] for norm in ("pre", "post")}
    assert ratios["post"][1] < ratios["post"][0] / 2, ratios
    assert ratios["pre"][1] > ratios["pre"][0] / 2, ratios
    assert ratios["pre"][1] > 5 * ratios["post"][1], ratios


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rms_norm_of_half_numbers_is_no_worse_than_torchs(kind):
    large = torch.full((1, 1, 8), 300.0, dtype=kind)  # its square is infinite in float16
    assert torch.equal(RMSNorm(8).to(kind)(large), torch.ones_like(large))
    x = torch.randn(B, T, C).to(kind)
    assert torch.equal(RMSNorm(C).to(kind)(x), nn.RMSNorm(C, eps=1e-6).to(kind)(x))


def test_a_memory_for_a_block_without_cross_attention():
    x = torch.randn(B, T, C)
    with pytest.raises(ValueError, match=r"memory is given, but this block has no cross-attention"):
        Block(C, H)(x, x)
