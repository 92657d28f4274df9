"""Exercises of notebook 15: RMSNorm, SwiGLU, shared key/value heads, experts chosen by a router, bytes of a cache."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, show, usual_cases
from .quote import rows, sums

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ rms_norm


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """Divide each token by the root of its mean square, then stretch its features: [B, T, C] -> [B, T, C]."""
    square = x.square().mean(dim=-1, keepdim=True)  # [B, T, 1]
    return x / (square + 1e-6).sqrt() * gain


def _rms_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: object) -> tuple[Tensor, Tensor]:
        x = 1 + 2 * draw.normal(n["B"], n["T"], n["C"])
        x[0, 0] *= 1e-3  # a mean square near the 1e-6 that are added
        x[0, -1] = 0.0  # a token of zeros
        return x, 1 + draw.normal(n["C"])

    return usual_cases(draw, "B T C", build, derive=lambda n: {"T": max(n["T"], 2), "C": max(n["C"], 2)})


def _mean_square(case: Case, got: Tensor) -> Numbers | None:
    x, gain = (arg.double() for arg in case.args)
    if gain.abs().min() < 0.05:
        return None
    total = (got / gain).square().mean(dim=-1)
    wrong = ((total - 1).abs() > 0.05).logical_and(x.abs().amax(dim=-1) > 0.1).nonzero()
    if not len(wrong):
        return None
    b, t = wrong[0].tolist()
    return {"b": b, "t": t, "square": f"{total[b, t].item():.4g}"}


RMS_NORM = Exercise(
    id="rms_norm",
    notebook="15",
    kind="function",
    question=N_(
        "Write rms_norm(x, gain) for x [B, T, C], gain [C]: divide each token by the root of the mean of its squares "
        "(1e-6 is added to the mean), then multiply with gain. Nothing is subtracted, and there is no shift."
    ),
    reference=rms_norm,
    why=N_(
        "Layer norm without the mean and without the shift: one number per token less to compute, C parameters less."
    ),
    hints=(
        N_("Read the name backwards: the square, the mean of it, the root of that."),
        N_("The mean runs over the features of one token: dim=-1, with keepdim=True."),
    ),
    minutes=4,
    points=2,
    given=("B T C", "C"),
    axes=("B T C",),
    inputs=_rms_cases,
    properties=(
        Property(
            id="the_mean_square_is_1",
            says=N_(
                "Divide by gain: the mean square of token t={t} of sentence {b} is {square}. For every token that is "
                "not zero it should be 1."
            ),
            fails=_mean_square,
        ),
    ),
    mistakes=(
        known(
            "layer_norm",
            N_(
                "The mean is subtracted: this is layer norm without its shift. RMSNorm leaves the mean in, and divides "
                "by the root of the mean square. Row {at} is {got}, and {want} is asked for."
            ),
            lambda x, gain: F.layer_norm(x, x.shape[-1:], eps=1e-6) * gain,
            numbers=rows,
        ),
        known(
            "divided_by_the_spread",
            N_(
                "x is divided by its standard deviation, which measures from the mean. The root mean square measures "
                "from 0."
            ),
            lambda x, gain: x / (x.var(dim=-1, keepdim=True, correction=0) + 1e-6).sqrt() * gain,
        ),
        known(
            "divided_by_the_length",
            N_(
                "x is divided by the root of the SUM of the squares, its length: the result is √C times too small. The "
                "mean divides the sum by C = {C}."
            ),
            lambda x, gain: x / (x.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt() * gain,
            lambda x, gain: F.normalize(x, dim=-1) * gain,
        ),
        known(
            "root_forgotten",
            N_("x is divided by the mean square itself. Its root is what has the scale of x."),
            lambda x, gain: x / (x.square().mean(dim=-1, keepdim=True) + 1e-6) * gain,
        ),
        known(
            "mean_of_the_sizes",
            N_("x is divided by the mean of |x|. Asked for is the root of the mean of the squares."),
            lambda x, gain: x / (x.abs().mean(dim=-1, keepdim=True) + 1e-6) * gain,
        ),
        known(
            "over_other_tokens",
            N_(
                "The mean runs over other tokens too, so a token's result depends on its neighbours. It runs over C, "
                "dim=-1, within one token. Row {at} is {got}, and {want} is asked for."
            ),
            lambda x, gain: x / (x.square().mean(dim=1, keepdim=True) + 1e-6).sqrt() * gain,
            lambda x, gain: x / (x.square().mean(dim=0, keepdim=True) + 1e-6).sqrt() * gain,
            lambda x, gain: x / (x.square().mean(dim=(1, 2), keepdim=True) + 1e-6).sqrt() * gain,
            lambda x, gain: x / (x.square().mean() + 1e-6).sqrt() * gain,
            numbers=rows,
        ),
        known(
            "gain_forgotten",
            N_("The token is normalised, and gain is not applied: C learned numbers that multiply the features."),
            lambda x, gain: rms_norm(x, torch.ones_like(gain)),
        ),
        known(
            "gain_added",
            N_("gain is added. It multiplies."),
            lambda x, gain: rms_norm(x, torch.ones_like(gain)) + gain,
        ),
        known(
            "eps_forgotten",
            N_("A token of zeros gives 0 / 0, which is NaN. The 1e-6 under the root is there for such a token."),
            lambda x, gain: x / x.square().mean(dim=-1, keepdim=True).sqrt() * gain,
        ),
        known(
            "eps_of_another_size",
            N_(
                "All is right but the number that keeps the root from 0: 1e-6 is added to the mean square, under the "
                "root. (F.rms_norm takes another one unless it is given eps.) At {place} yours is {got}, and {want} is "
                "asked for."
            ),
            lambda x, gain: F.rms_norm(x, x.shape[-1:], gain),
            *(lambda x, gain, eps=eps: F.rms_norm(x, x.shape[-1:], gain, eps) for eps in (1e-5, 1e-8)),
            lambda x, gain: x / (x.square().mean(dim=-1, keepdim=True).sqrt() + 1e-6) * gain,
        ),
        known(
            "keepdim_forgotten",
            N_(
                "Two shapes do not line up. A mean over dim=-1 is [B, T], and beside [B, T, C] broadcasting sets its T "
                "against C. keepdim=True keeps it as [B, T, 1]."
            ),
            lambda x, gain: x / (x.square().mean(dim=-1) + 1e-6).sqrt() * gain,
        ),
    ),
)


# ------------------------------------------------------------------ swiglu


def swiglu(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """Let one projection gate another, then come back: [B, T, C] -> [B, T, M] -> [B, T, C]."""
    gate = torch.nn.functional.silu(x @ w_gate)  # [B, T, M]
    return (gate * (x @ w_up)) @ w_down  # [B, T, M] @ [M, C] -> [B, T, C]


def _gated(gate: Any, x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    out: Tensor = (gate(x @ w_gate) * (x @ w_up)) @ w_down
    return out


SWIGLU = Exercise(
    id="swiglu",
    notebook="15",
    kind="function",
    question=N_(
        "Write swiglu(x, w_gate, w_up, w_down): silu(x W_gate) gates x W_up, number by number; W_down brings the "
        "product back. silu(z) = z · sigmoid(z). x is [B, T, C], w_gate and w_up are [C, M], w_down is [M, C]."
    ),
    reference=swiglu,
    why=N_(
        "Three matrices where the MLP of GPT-2 has two. To cost the same, M is made 2/3 as large: 8C/3 instead of 4C."
    ),
    hints=(
        N_("Both projections read x. Only one of them goes through silu."),
        N_("The gate multiplies, number by number: *, not @."),
    ),
    minutes=4,
    points=2,
    given=("B T C", "C M", "C M", "M C"),
    axes=("B T C",),
    inputs=lambda draw: usual_cases(
        draw,
        "B T C M",
        lambda n, fill: (
            draw.normal(n["B"], n["T"], n["C"]),
            draw.normal(n["C"], n["M"]),
            draw.normal(n["C"], n["M"]),
            draw.normal(n["M"], n["C"]),
        ),
    ),
    mistakes=(
        known(
            "gate_and_up_exchanged",
            N_(
                "silu is taken of x W_up. It belongs to the gate, x W_gate; weights trained one way do not fit the "
                "other."
            ),
            lambda x, w_gate, w_up, w_down: swiglu(x, w_up, w_gate, w_down),
        ),
        known(
            "gate_alone_without_its_input",
            N_("The gate is sigmoid(x W_gate): that is GLU. silu(z) is z · sigmoid(z)."),
            lambda x, w_gate, w_up, w_down: _gated(torch.sigmoid, x, w_gate, w_up, w_down),
        ),
        known(
            "another_activation",
            N_("The gate goes through another function, GELU, ReLU or tanh (GEGLU, ReGLU). Here it is silu."),
            lambda x, w_gate, w_up, w_down: _gated(F.gelu, x, w_gate, w_up, w_down),
            lambda x, w_gate, w_up, w_down: _gated(torch.relu, x, w_gate, w_up, w_down),
            lambda x, w_gate, w_up, w_down: _gated(torch.tanh, x, w_gate, w_up, w_down),
        ),
        known(
            "no_activation",
            N_("There is no silu: the gate is x W_gate as it is."),
            lambda x, w_gate, w_up, w_down: _gated(lambda z: z, x, w_gate, w_up, w_down),
        ),
        known(
            "added_instead_of_gated",
            N_("Gate and up are added. A gate multiplies: where it is 0, nothing passes."),
            lambda x, w_gate, w_up, w_down: (F.silu(x @ w_gate) + x @ w_up) @ w_down,
        ),
        known(
            "activation_of_the_product",
            N_("silu is taken of the product. It belongs to the gate alone, before the two are multiplied."),
            lambda x, w_gate, w_up, w_down: F.silu((x @ w_gate) * (x @ w_up)) @ w_down,
        ),
        known(
            "activation_of_both",
            N_("silu is taken of both projections. x W_up passes as it is, gated by the other."),
            lambda x, w_gate, w_up, w_down: (F.silu(x @ w_gate) * F.silu(x @ w_up)) @ w_down,
        ),
        known(
            "no_gate",
            N_(
                "This is an MLP with two matrices: nothing is gated. x W_gate and x W_up are multiplied number by "
                "number."
            ),
            lambda x, w_gate, w_up, w_down: F.silu(x @ w_up) @ w_down,
            lambda x, w_gate, w_up, w_down: F.silu(x @ w_gate) @ w_down,
        ),
        known(
            "not_brought_back",
            N_("The gated product has M = {M} features, {shape}. W_down brings it back to C: {wanted}."),
            lambda x, w_gate, w_up, w_down: F.silu(x @ w_gate) * (x @ w_up),
        ),
    ),
)


# ------------------------------------------------------------------ repeat_heads


def repeat_heads(k: Tensor, H: int) -> Tensor:
    """Give each query head the key head of its group: [B, G, S, D] -> [B, H, S, D]."""
    G = k.shape[1]
    return k.repeat_interleave(H // G, dim=1)


def _group_cases(draw: Draw) -> list[Case]:
    """H is a multiple of G, twice or more; the equal case has H = G, ordinary attention."""

    def derive(n: dict[str, int]) -> dict[str, int]:
        equal = n["B"] == n["G"] == n["H"] > 1
        times = 1 if equal else max(n["H"], 2)
        return {"H": n["G"] * times, "C": n["G"] * times * n["D"]}

    return usual_cases(draw, "B G S D H", lambda n, fill: (fill(n["B"], n["G"], n["S"], n["D"]), n["H"]), derive=derive)


def _head_of_a_group(case: Case, got: Tensor) -> Numbers | None:
    k, H = case.args
    times = H // k.shape[1]
    for h in range(H):
        if not torch.allclose(got[0, h], k[0, h // times].double(), atol=2e-2):
            return {"h": h, "g": h // times, "got": show(got[0, h, 0]), "want": show(k[0, h // times, 0])}
    return None


REPEAT_HEADS = Exercise(
    id="repeat_heads",
    notebook="15",
    kind="function",
    question=N_(
        "Write repeat_heads(k, H): k [B, G, S, D] has G key heads for H query heads, G divides H. Query heads that "
        "stand side by side share a key head: the first H/G use key head 0, the next H/G key head 1. Return [B, H, S, "
        "D]."
    ),
    reference=repeat_heads,
    why=N_(
        "repeat_interleave repeats each head on the spot, 0 0 1 1; repeat would lay the whole row out again, 0 1 0 1. "
        "The cache keeps the G heads, and only the product sees H."
    ),
    hints=(
        N_("With G = 2 and H = 6, write the number of the key head under each query head."),
        N_("0 0 0 1 1 1: each head is repeated on the spot. torch has two functions with repeat in their name."),
    ),
    minutes=4,
    points=2,
    given=("B G S D", None),
    axes=("B H S D",),
    inputs=_group_cases,
    properties=(
        Property(
            id="head_h_uses_its_group",
            says=N_(
                "Query head {h} of sentence 0 gets {got} at s=0. It belongs to key head {g}, which holds {want}: there "
                "are {G} key heads for {H} query heads."
            ),
            fails=_head_of_a_group,
        ),
    ),
    mistakes=(
        known(
            "repeat_instead_of_repeat_interleave",
            N_(
                "The key heads are laid out as 0 1 0 1: repeat lays the whole row out again. Groups stand side by "
                "side, 0 0 1 1: repeat_interleave. The shape is the same, but query head 1 is now answered by the "
                "wrong key head."
            ),
            lambda k, H: k.repeat(1, H // k.shape[1], 1, 1),
            lambda k, H: torch.cat([k] * (H // k.shape[1]), dim=1),
        ),
        known(
            "every_head_repeated_h_times",
            N_("Each key head is repeated H = {H} times, {shape}. H/G times is enough: {wanted}."),
            lambda k, H: k.repeat_interleave(H, dim=1),
        ),
        known(
            "another_axis_repeated",
            N_("Another axis is repeated: {shape}. The heads are axis 1, and the result is {wanted}."),
            lambda k, H: k.repeat_interleave(H // k.shape[1], dim=2),
            lambda k, H: k.repeat_interleave(H // k.shape[1], dim=3),
            lambda k, H: k.repeat_interleave(H // k.shape[1], dim=0),
        ),
        known(
            "first_head_for_all",
            N_("All query heads get key head 0: one head is expanded. That is right for G = 1 alone (multi-query)."),
            lambda k, H: k[:, :1].expand(-1, H, -1, -1),
        ),
        known(
            "heads_averaged",
            N_("The key heads are averaged and handed to all. Each group keeps its own."),
            lambda k, H: k.mean(dim=1, keepdim=True).expand(-1, H, -1, -1),
        ),
        known(
            "filled_up_with_zeros",
            N_("The missing heads are filled with zeros. Every query head needs a key head to compare with."),
            lambda k, H: F.pad(k, (0, 0, 0, 0, 0, H - k.shape[1])),
        ),
    ),
)


# ------------------------------------------------------------------ expert_shares


def expert_shares(logits: Tensor, K: int) -> Tensor:
    """Choose K of E experts for each token: shares that add up to 1, 0 for the others: [B, T, E] -> [B, T, E]."""
    top, chosen = logits.softmax(dim=-1).topk(K, dim=-1)  # 2 x [B, T, K]
    top = top / top.sum(dim=-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, chosen, top)  # [B, T, E]


def _kept(logits: Tensor, K: int, largest: bool = True) -> Tensor:
    chosen = logits.topk(K, dim=-1, largest=largest).indices
    return torch.zeros_like(logits).scatter(-1, chosen, 1.0)


def _router_cases(draw: Draw) -> list[Case]:
    """E experts, fewer of them chosen; in the equal case all four are."""

    def derive(n: dict[str, int]) -> dict[str, int]:
        equal = len(set(n.values())) == 1 and n["E"] > 1
        return {} if equal else {"E": max(n["E"], n["K"]) + (n["E"] == n["K"]), "K": min(n["E"], n["K"])}

    return usual_cases(
        draw, "B T E K", lambda n, fill: (2 * draw.normal(n["B"], n["T"], n["E"]), n["K"]), derive=derive
    )


def _shares_of_a_token(case: Case, got: Tensor) -> Numbers | None:
    K = case.args[1]
    wrong = ((got.sum(dim=-1) - 1).abs() > 0.02) | ((got != 0).sum(dim=-1) > K)
    if not bool(wrong.any()):
        return None
    b, t = wrong.nonzero()[0].tolist()
    used = int((got[b, t] != 0).sum())
    return {"b": b, "t": t, "row": show(got[b, t]), "used": used, "sum": f"{got[b, t].sum().item():.3g}"}


EXPERT_SHARES = Exercise(
    id="expert_shares",
    notebook="15",
    kind="function",
    question=N_(
        "Write expert_shares(logits, K), as Mixtral's router does it: for each token of logits [B, T, E] keep the K "
        "experts with the largest softmax shares, and divide these by their sum. The others get 0. Return [B, T, E]."
    ),
    reference=expert_shares,
    why=N_(
        "The shares of the chosen experts add up to 1. A softmax over the K chosen logits gives the same numbers. "
        "Parameters count E times, arithmetic K times."
    ),
    hints=(
        N_("topk gives the largest values and where they stand. Along which axis?"),
        N_("After dividing by their sum, the K shares go back to their places among E zeros: scatter."),
        N_("Or: fill the logits that are not chosen with -inf, and take the softmax of what is left."),
    ),
    minutes=8,
    points=3,
    given=("B T E", None),
    axes=("B T E",),
    inputs=_router_cases,
    properties=(
        Property(
            id="k_shares_add_up_to_1",
            says=N_(
                "For sentence {b}, t={t}, the shares are {row}: {used} experts are used, and the shares add up to "
                "{sum}. At most K = {K} may be used, and the sum is 1."
            ),
            fails=_shares_of_a_token,
        ),
    ),
    mistakes=(
        known(
            "not_renormalised",
            N_(
                "The shares of the chosen experts are those among all E: row {at} adds up to {sum}. Divide them by "
                "their sum. (Some models leave that out; Mixtral does not.)"
            ),
            lambda logits, K: logits.softmax(dim=-1) * _kept(logits, K),
            numbers=sums,
        ),
        known(
            "zero_instead_of_minus_inf",
            N_(
                "The logits that are not chosen are filled with 0 before the softmax. exp(0) is 1, so these experts "
                "keep a share. -inf takes them out. Row {at} is {got}, and {want} is asked for."
            ),
            lambda logits, K: (logits * _kept(logits, K)).softmax(dim=-1),
            numbers=rows,
        ),
        known(
            "softmax_once_more",
            N_(
                "The shares go through a second softmax, which makes them more equal than they are. Dividing by their "
                "sum is enough. Row {at} is {got}, and {want} is asked for."
            ),
            lambda logits, K: logits.softmax(dim=-1).masked_fill(_kept(logits, K) == 0, float("-inf")).softmax(dim=-1),
            numbers=rows,
        ),
        known(
            "all_experts_kept",
            N_("Every expert keeps its share: nothing is chosen. For each token E - K of the shares are 0."),
            lambda logits, K: logits.softmax(dim=-1),
        ),
        known(
            "equal_shares",
            N_("The chosen experts all get 1/K. They get what the router gives them: their softmax shares."),
            lambda logits, K: _kept(logits, K) / K,
        ),
        known(
            "smallest_chosen",
            N_("The K smallest are chosen. topk gives the largest, unless it is told largest=False."),
            lambda logits, K: logits.masked_fill(_kept(logits, K, False) == 0, float("-inf")).softmax(dim=-1),
        ),
        known(
            "one_expert_alone",
            N_("Only the best expert is used. K = {K} of them share each token."),
            lambda logits, K: _kept(logits, 1),
        ),
        known(
            "shares_without_places",
            N_(
                "These are the K shares, {shape}, largest first. Which experts they belong to is lost: put them in "
                "their places among E, {wanted}."
            ),
            lambda logits, K: logits.topk(K, dim=-1).values.softmax(dim=-1),
        ),
        known(
            "logits_divided",
            N_("The chosen logits are divided by their sum, without a softmax. They may be negative."),
            lambda logits, K: logits * _kept(logits, K) / (logits * _kept(logits, K)).sum(dim=-1, keepdim=True),
        ),
        known(
            "softmax_over_the_tokens",
            N_(
                "The softmax runs over T: the tokens compete for an expert. For each token the experts compete: dim=-1."
            ),
            lambda logits, K: logits.masked_fill(_kept(logits, K) == 0, -1e9).softmax(dim=1),
        ),
    ),
)


# ------------------------------------------------------------------ cache_bytes

_LAYERS, _HEADS, _GROUPS, _D, _S = 32, 32, 8, 128, 4096
_CACHE = 2 * _LAYERS * _GROUPS * _S * _D * 4

CACHE_BYTES = Exercise(
    id="cache_bytes",
    notebook="15",
    kind="number",
    question=N_(
        "A model has L = 32 layers, H = 32 query heads, G = 8 key/value heads and D = 128. How many bytes does the "
        "cache of keys and values take for one sentence of S = 4096 tokens, in float32?"
    ),
    reference=_CACHE,
    why=N_(
        "2 · L · G · S · D numbers of 4 bytes: 1 GiB. With a key head for each query head, G = 32, it would be 4 GiB: "
        "that is what grouped queries save."
    ),
    hints=(
        N_("What is kept for one token, in one layer? Keys and values, of G heads each."),
        N_("Multiply: 2, L, G, S, D, and the bytes of one number."),
    ),
    minutes=4,
    points=2,
    mistakes=(
        known(
            "query_heads_counted",
            N_("H = 32 heads are counted. The cache keeps the G = 8 key/value heads, unrepeated."),
            4 * _CACHE,
        ),
        known(
            "keys_alone",
            N_("Keys alone are counted (or values alone, or 2 bytes for a number). Both are kept, 4 bytes each."),
            _CACHE // 2,
        ),
        known(
            "numbers_not_bytes", N_("That is how many numbers are kept. Each takes 4 bytes in float32."), _CACHE // 4
        ),
        known(
            "one_layer", N_("That is one layer. Each of the L = 32 has keys and values of its own."), _CACHE // _LAYERS
        ),
        known("one_token", N_("That is one token. There are S = 4096."), _CACHE // _S),
        known("one_head", N_("That is one head of each layer. G = 8 are kept."), _CACHE // _GROUPS),
        known("gibibytes", N_("That is in GiB. Asked for are bytes."), 1, 1.073741824),
    ),
)


EXERCISES = (RMS_NORM, SWIGLU, REPEAT_HEADS, EXPERT_SHARES, CACHE_BYTES)
