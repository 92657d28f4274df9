"""One attention, written in the ways that people write it, and the mistakes that they make in it.

Every function takes a `Parts` (the learned maps, by size) and x `[B, T, C]`. The right ones differ in style alone; each
wrong one runs wherever its sizes happen to fit.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

RIGHT = {}
WRONG = {}


def right(f):
    """Register a right style."""
    RIGHT[f.__name__] = f
    return f


def wrong(*words):
    """Register a mistake, with words of the warning that must name it."""

    def register(f):
        WRONG[f.__name__] = (f, words)
        return f

    return register


class Parts(nn.Module):
    """The parameters of one attention layer: H heads of size D, G key/value heads, C = H * D."""

    def __init__(self, H: int, D: int, T: int, G: int | None = None, declare: bool = True) -> None:
        super().__init__()
        C, G = H * D, G or H
        self.H, self.D, self.G = H, D, G
        self.q, self.o = nn.Linear(C, C), nn.Linear(C, C)
        self.k, self.v = nn.Linear(C, G * D), nn.Linear(C, G * D)
        self.qkv = nn.Linear(C, 3 * C)
        self.register_buffer("mask", torch.ones(T + 3, T + 3).tril().bool())
        if declare:
            kv = "C" if G == H else "(G D)"
            outs = {"q": "C", "k": kv, "v": kv, "o": "C", "qkv": "3C"}
            self.axes = {f"{n}.weight": f"{out} C" for n, out in outs.items()} | {
                f"{n}.bias": a for n, a in outs.items()
            }
            self.sizes = {"C": C, "H": H, "D": D} | ({"G": G} if G != H else {})

    def forward(self, run, x: Tensor) -> Tensor:
        """Run one of the styles."""
        return run(self, x)


def heads_of(s, x):
    B, T, C = x.shape
    return [t.view(B, T, s.H, s.D).transpose(1, 2) for t in s.qkv(x).split(C, dim=2)]


def weights_of(s, q, k, dim=-1):
    T = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(s.D)
    return scores.masked_fill(~s.mask[:T, :T], float("-inf")).softmax(dim)


# ---------------------------------------------------------------- right


@right
def nano(s, x):
    B, T, C = x.shape
    q, k, v = heads_of(s, x)
    return s.o((weights_of(s, q, k) @ v).transpose(1, 2).contiguous().view(B, T, C))


@right
def stacked(s, x):
    B, T, C = x.shape
    qkv = s.qkv(x).reshape(B, T, 3, s.H, s.D).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    weights = (q @ k.transpose(-2, -1) * s.D**-0.5).masked_fill(s.mask[:T, :T].logical_not(), -1e9).softmax(-1)
    return s.o((weights @ v).transpose(1, 2).reshape(B, T, C))


@right
def fused(s, x):
    B, T, _ = x.shape
    q, k, v = s.qkv(x).reshape(B, T, 3, s.H, s.D).permute(2, 0, 3, 1, 4).unbind(0)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return s.o(out.transpose(1, 2).flatten(2))


@right
def batched(s, x):
    B, T, C = x.shape
    H, D = s.H, s.D
    q = s.q(x).view(B, T, H, D).transpose(1, 2).reshape(B * H, T, D)
    k = s.k(x).view(B, T, H, D).transpose(1, 2).reshape(B * H, T, D)
    v = s.v(x).view(B, T, H, D).transpose(1, 2).reshape(B * H, T, D)
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, T, T) + torch.zeros(1, 1, T, T)
    weights = F.softmax(scores.view(B * H, T, T), dim=-1)
    return s.o(torch.bmm(weights, v).view(B, H, T, D).transpose(1, 2).reshape(B, T, C))


@right
def einsums(s, x):
    B, T, C = x.shape
    q, k, v = (f(x).view(B, T, s.H, s.D) for f in (s.q, s.k, s.v))
    weights = torch.einsum("bthd,bshd->bhts", q, k).masked_fill(~s.mask[:T, :T], float("-inf")).softmax(-1)
    return s.o(torch.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, C))


@right
def einops_style(s, x):
    q, k, v = (rearrange(t, "b t (h d) -> b h t d", h=s.H) for t in s.qkv(x).chunk(3, dim=-1))
    weights = torch.einsum("b h i d, b h j d -> b h i j", q, k).softmax(-1)
    return s.o(rearrange(weights @ v, "b h t d -> b t (h d)"))


@right
def raw_matrices(s, x):
    B = x.shape[0]
    q = (x @ s.q.weight.T + s.q.bias).view(B, -1, s.H, s.D).permute(0, 2, 1, 3)
    k = (x @ s.k.weight.t()).view(B, -1, s.H, s.D).permute(0, 2, 3, 1)
    out = ((q @ k).softmax(dim=3) @ q).permute(0, 2, 1, 3).contiguous().view(B, -1, s.H * s.D)
    return s.o(out)


@right
def softmax_by_hand(s, x):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    scores = y @ y.mT
    weights = (scores - scores.max(-1, keepdim=True).values).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return x + weights @ y


def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)


@right
def rotary(s, x):
    T, D = x.shape[1], s.D - s.D % 2
    q, k, v = heads_of(s, x)
    if D != s.D or D == 0:
        return v
    angles = torch.outer(torch.arange(T).float(), 10000 ** (torch.arange(0, D, 2).float() / -D))
    angles = torch.cat((angles, angles), -1)
    q, k = q * angles.cos() + rotate_half(q) * angles.sin(), k * angles.cos() + rotate_half(k) * angles.sin()
    return s.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(-2))


@right
def grouped(s, x):
    B, T, _ = x.shape
    H, D, G = s.H, s.D, s.G
    q = s.q(x).view(B, T, H, D).transpose(1, 2)
    k, v = (f(x).view(B, T, G, D).transpose(1, 2) for f in (s.k, s.v))
    k = k[:, :, None, :, :].expand(B, G, H // G, T, D).reshape(B, H, T, D)
    v = v.repeat_interleave(H // G, dim=1)
    scores = q @ k.transpose(2, 3) / math.sqrt(D) + torch.full((T, T), float("-inf")).triu(1)
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return s.o((weights @ v).transpose(1, 2).contiguous().reshape(B, T, -1))


# ---------------------------------------------------------------- wrong


@wrong("cuts across axes", "heads with heads")
def scrambled(s, x):
    B, T, C = x.shape
    q, k, v = (t.reshape(B, s.H, T, s.D) for t in s.qkv(x).split(C, dim=2))
    return s.o((weights_of(s, q, k) @ v).transpose(1, 2).contiguous().view(B, T, C))


@wrong("cuts across axes", "heads with heads")
def scrambled_and_back(s, x):
    B, T, C = x.shape
    q, k, v = (t.reshape(B, s.H, T, s.D) for t in s.qkv(x).split(C, dim=2))
    return s.o((weights_of(s, q, k) @ v).view(B, T, C))


@wrong("cuts across axes", "(T D)")
def merged_without_transpose(s, x):
    B, T, C = x.shape
    q, k, v = heads_of(s, x)
    return s.o((weights_of(s, q, k) @ v).contiguous().view(B, T, C))


@wrong("(T D)")
def flattened_without_transpose(s, x):
    q, k, v = heads_of(s, x)
    return s.o((weights_of(s, q, k) @ v).flatten(2))


@wrong("contracts D with T")
def keys_not_transposed(s, x):
    q, k, v = heads_of(s, x)
    return (q @ k).softmax(-1) @ v


@wrong("heads with heads")
def heads_not_brought_forward(s, x):
    B, T, C = x.shape
    q, k, v = (t.view(B, T, s.H, s.D) for t in s.qkv(x).split(C, dim=2))
    return s.o(((q @ k.transpose(-2, -1)).softmax(-1) @ v).reshape(B, T, C))


@wrong("softmax ran over another axis")
def softmax_over_heads(s, x):
    q, k, v = heads_of(s, x)
    return weights_of(s, q, k, dim=1) @ v


@wrong("softmax ran over another axis")
def softmax_over_queries(s, x):
    q, k, v = heads_of(s, x)
    return weights_of(s, q, k, dim=-2) @ v


@wrong("softmax ran over another axis")
def weights_turned_round(s, x):
    q, k, v = heads_of(s, x)
    return weights_of(s, q, k).transpose(-2, -1) @ v


@wrong("merges (D H)")
def heads_joined_the_wrong_way_round(s, x):
    B, T, C = x.shape
    q, k, v = heads_of(s, x)
    return s.o((weights_of(s, q, k) @ v).permute(0, 2, 3, 1).reshape(B, T, C))


@wrong("the softmax ran over another axis")
def rows_of_weights_do_not_add_up(s, x):
    q, k, _ = heads_of(s, x)
    return weights_of(s, q, k, dim=1).sum(-1)


@wrong("the softmax ran over another axis")
def weighted_values_added_up_by_hand(s, x):
    q, k, v = heads_of(s, x)
    return (weights_of(s, q, k, dim=-2)[..., None] * v[:, :, None]).sum(-2)


@wrong("lines up T with H")
def positions_added_to_heads(s, x):
    q, _, _ = heads_of(s, x)
    return q.transpose(1, 2) + q


@wrong("lines up T with B")
def normalised_without_keepdim(s, x):
    weights = (x @ x.mT).exp()
    return weights / weights.sum(-1)
