"""Exercises of notebook 06: the MLP works on each token alone; its parameters and FLOPs beside attention's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ feed_forward


def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Widen each token's features, apply ReLU, narrow them again: [B, T, C] -> [B, T, M] -> [B, T, C]."""
    hidden = x @ w1.T + b1  # [B, T, C] @ [C, M] -> [B, T, M]
    hidden = torch.relu(hidden)
    return hidden @ w2.T + b2  # [B, T, M] @ [M, C] -> [B, T, C]


def _mlp(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, act: Any = torch.relu) -> Any:
    return act(x @ w1.T + b1) @ w2.T + b2


def _mlp_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        C, M = n["C"], n["M"]
        return fill(n["B"], n["T"], C), draw.normal(M, C), draw.normal(M), draw.normal(C, M), draw.normal(C)

    return usual_cases(draw, "B T C M", build, first=draw.digits)


def _token_is_not_its_own(case: Case, got: Tensor) -> Numbers | None:
    """Each token sent through alone must come out as it does among the others."""
    x, *weights = (arg.to(got) for arg in case.args)
    for t in range(x.shape[1]):
        alone = feed_forward(x[0, t], *weights)
        if (got[0, t] - alone).abs().max() > 2e-2 * (1 + alone.abs().max()):
            return {"t": t, "among": show(got[0, t]), "alone": show(alone)}
    return None


FEED_FORWARD = Exercise(
    id="feed_forward",
    notebook="06",
    kind="function",
    question=N_(
        "Write feed_forward(x, w1, b1, w2, b2): x is [B, T, C]; w1 [M, C] and b1 [M] widen, w2 [C, M] and b2 [C] "
        "narrow again, with a ReLU between (as in the paper; GPT has a GELU there). Weights are stored as in "
        "nn.Linear, outputs first. The result is [B, T, C]."
    ),
    reference=feed_forward,
    why=N_(
        "With tokens as rows it is x W1, then ReLU, then W2, on every row alike: no step of it looks at another token."
    ),
    hints=(
        N_("Three steps: C to M, ReLU, M to C. The axes B and T are never touched."),
        N_("nn.Linear stores [out, in], so the product is x @ w1.T; the bias is added to each token."),
        N_("torch.relu(x @ w1.T + b1), then the same form once more without ReLU."),
    ),
    minutes=5,
    points=2,
    review=6,
    given=("B T C", "M C", "M", "C M", "C"),
    axes=("B T C",),
    inputs=_mlp_cases,
    properties=(
        Property(
            id="a_token_alone_comes_out_the_same",
            says=N_("Token t={t} of sentence 0 comes out as {among}; sent through the MLP alone it is {alone}."),
            fails=_token_is_not_its_own,
        ),
    ),
    mistakes=(
        known(
            "no_activation",
            N_(
                "There is no ReLU. Without it the two products are one: W2 W1 is a single [C, C] matrix, and widening "
                "to M = {M} is for nothing."
            ),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, b1, w2, b2, lambda y: y),
        ),
        known(
            "gelu_instead",
            N_("The activation is a GELU, GPT's choice. Asked for is the paper's ReLU: max(0, y)."),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, b1, w2, b2, torch.nn.functional.gelu),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, b1, w2, b2, torch.nn.GELU(approximate="tanh")),
        ),
        known(
            "activation_last",
            N_("A ReLU comes at the end, so the MLP can only add, never take away. It belongs between the two layers."),
            lambda x, w1, b1, w2, b2: torch.relu(_mlp(x, w1, b1, w2, b2, lambda y: y)),
            lambda *args: torch.relu(_mlp(*args)),
        ),
        known(
            "activation_first",
            N_("The ReLU is applied to x, before the first layer. It belongs between the two layers."),
            lambda x, w1, b1, w2, b2: _mlp(torch.relu(x), w1, b1, w2, b2, lambda y: y),
        ),
        known(
            "bias_after_activation",
            N_("b1 is added after the ReLU. It belongs to the first layer: it decides where the ReLU cuts."),
            lambda x, w1, b1, w2, b2: (torch.relu(x @ w1.T) + b1) @ w2.T + b2,
        ),
        known(
            "bias_forgotten",
            N_("A bias is missing. Both layers have one: b1 before the ReLU, b2 at the end."),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, 0, w2, b2),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, b1, w2, 0),
            lambda x, w1, b1, w2, b2: _mlp(x, w1, 0, w2, 0),
        ),
        known(
            "weights_not_transposed",
            N_("The weights are used as [in, out]. nn.Linear stores [out, in]: w1 is [M, C], so x @ w1.T."),
            lambda x, w1, b1, w2, b2: torch.relu(x @ w1 + b1) @ w2 + b2,
        ),
        known(
            "weight_on_the_left",
            N_("W1 stands left of x, as in the formula for ONE column vector. Here tokens are rows: x @ w1.T."),
            lambda x, w1, b1, w2, b2: torch.relu(w1 @ x + b1) @ w2.T + b2,
        ),
        known(
            "weights_swapped",
            N_(
                "w1 and w2 have changed places: they have the right shapes for each other's transpose, and other "
                "numbers."
            ),
            lambda x, w1, b1, w2, b2: torch.relu(x @ w2 + b1) @ w1 + b2,
        ),
        known(
            "input_added",
            N_("x is added to the result. The residual belongs to the block around the MLP, not into it."),
            lambda x, w1, b1, w2, b2: x + _mlp(x, w1, b1, w2, b2),
        ),
        known(
            "one_layer",
            N_("This stops after the first layer and the ReLU: {shape}, where {wanted} is asked for."),
            lambda x, w1, b1, w2, b2: torch.relu(x @ w1.T + b1),
        ),
    ),
)


# ------------------------------------------------------------------ changed_tokens


def changed_tokens(f: torch.nn.Module, x: Tensor, t: int) -> Tensor:
    """Tell which outputs of f change when token t of every sentence does: x [B, T, C] -> [T], True where changed."""
    other = x.clone()
    other[:, t] += 1
    differs: Tensor = f(x) != f(other)  # [B, T, C]
    return differs.any(dim=2).any(dim=0)  # [T]


class _Layer(torch.nn.Module):
    """A layer without parameters; messages show it as what its function is called."""

    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.rule, self.__name__ = rule, rule.__name__

    def forward(self, x: Tensor) -> Tensor:
        return self.rule(x)


def _each_alone(x: Tensor) -> Tensor:
    return 1 - 2 * torch.relu(x)


def _past_mixed(x: Tensor) -> Tensor:
    return x.cumsum(dim=1)


def _last_reads_all(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[:, -1, 0] = x.sum(dim=(1, 2))
    return out


def _one_sentence_mixed(x: Tensor) -> Tensor:
    out = x * 0
    out[0, :, 0] = x[0, :, 0]
    out[-1, :, -1] = x[-1, :, -1].roll(-1)
    return out


def _all_mixed(x: Tensor) -> Tensor:
    return x.sum(dim=1, keepdim=True) + x


def _change_cases(draw: Draw) -> list[Case]:
    functions = iter((_past_mixed, _each_alone, _last_reads_all, _one_sentence_mixed, _all_mixed))
    places = iter((1, -1, 0, 0, 0))

    def build(n: dict[str, int], fill: Fill) -> tuple[Any, ...]:
        x = draw.digits(n["B"], n["T"], n["C"]) + 4  # above 0, where ReLU lets a change through
        return _Layer(next(functions)), x + draw.ids(7, n["B"], n["T"], n["C"]), next(places) % n["T"]

    return usual_cases(draw, "B T C", build)


def _changes(f: Any, x: Tensor, other: Tensor) -> Any:
    return f(x) != f(other)


def _with_change(x: Tensor, t: int) -> Tensor:
    other = x.clone()
    other[:, t] += 1
    return other


CHANGED_TOKENS = Exercise(
    id="changed_tokens",
    notebook="06",
    kind="function",
    question=N_(
        "f takes x [B, T, C] and gives back as many. Write changed_tokens(f, x, t): change token t in every sentence "
        "(leave x itself as it is), and return [T] truth values: True at each position where the output of f changes "
        "in any sentence or feature. An MLP gives True at t alone; attention does not."
    ),
    reference=changed_tokens,
    why=N_(
        "Change one token and look who notices: that is a test of token mixing that needs no look inside. For an MLP "
        "it is t alone, for causal attention t and what follows, for full attention all."
    ),
    hints=(
        N_("You need f(x) and f of a changed copy: x.clone(), then change other[:, t]."),
        N_("Compare the two outputs number by number: [B, T, C] truth values."),
        N_("any over C and over B leaves [T]."),
    ),
    minutes=6,
    points=2,
    review=6,
    given=(None, "B T C", None),
    axes=("T",),
    inputs=_change_cases,
    mistakes=(
        known(
            "only_one_token_looked_at",
            N_("This tells whether output t changes, and nothing of the others. Look at all T positions."),
            lambda f, x, t: _changes(f, x, _with_change(x, t))[:, t].any(),
            lambda f, x, t: (torch.arange(x.shape[1]) == t) & _changes(f, x, _with_change(x, t)).any(2).any(0),
        ),
        known(
            "another_axis_changed",
            N_(
                "x[t] is sentence t, and x[:, :, t] is feature t of every token. Tokens are axis 1: change other[:, t]."
            ),
            lambda f, x, t: _changes(f, x, torch.cat([x[:t], x[t : t + 1] + 1, x[t + 1 :]])).any(2).any(0),
        ),
        known(
            "truth_values_turned_round",
            N_("This is True where nothing changes. Asked for is True where the output changes."),
            lambda f, x, t: ~_changes(f, x, _with_change(x, t)).any(2).any(0),
        ),
        known(
            "all_instead_of_any",
            N_("This is True only where EVERY number of a token changes. One number in one sentence is enough: any."),
            lambda f, x, t: _changes(f, x, _with_change(x, t)).all(2).all(0),
            lambda f, x, t: _changes(f, x, _with_change(x, t)).any(2).all(0),
        ),
        known(
            "first_sentence_alone",
            N_("Only sentence 0 is looked at. A change may show in another sentence alone: any over the batch, too."),
            lambda f, x, t: _changes(f, x, _with_change(x, t))[0].any(-1),
        ),
        known(
            "features_told",
            N_(
                "The result has an entry for each feature, not for each position: any over B and C leaves [T] = "
                "{wanted}."
            ),
            lambda f, x, t: _changes(f, x, _with_change(x, t)).any(0).any(0),
        ),
        known(
            "not_gathered",
            N_(
                "This tells it for each sentence or feature apart, {shape}. Gather with any until [T] = {wanted} is "
                "left."
            ),
            lambda f, x, t: _changes(f, x, _with_change(x, t)),
            lambda f, x, t: _changes(f, x, _with_change(x, t)).any(2),
            lambda f, x, t: _changes(f, x, _with_change(x, t)).any(0),
        ),
        known(
            "outputs_compared_with_input",
            N_("The output is compared with x, not with the output for the changed copy. f must run twice."),
            lambda f, x, t: (f(x) != x).any(2).any(0),
        ),
    ),
)


# ------------------------------------------------------------------ mlp_parameters

MLP_PARAMETERS = Exercise(
    id="mlp_parameters",
    notebook="06",
    kind="number",
    question=N_(
        "An MLP goes from C = 48 to M = 4C and back, both layers with a bias. How many parameters has it? There are T "
        "= 10 tokens in a sentence."
    ),
    reference=2 * 48 * 192 + 192 + 48,
    why=N_("Two matrices of C·M, biases of M and C. T does not enter: every position uses the same W1 and W2."),
    hints=(
        N_("The first layer is [192, 48] with 192 biases."),
        N_("The second is [48, 192] with 48 biases. Add up."),
    ),
    minutes=3,
    review=6,
    mistakes=(
        known("biases_forgotten", N_("The biases are missing: M for the first layer, C for the second."), 2 * 48 * 192),
        known("one_bias_forgotten", N_("One of the two biases is missing."), 2 * 48 * 192 + 192, 2 * 48 * 192 + 48),
        known(
            "one_layer",
            N_("That is one layer. The way back has as many weights."),
            48 * 192 + 192,
            48 * 192 + 48,
            48 * 192,
        ),
        known(
            "for_each_token",
            N_("This counts the MLP once for each token. All positions share one W1 and one W2."),
            10 * (2 * 48 * 192 + 192 + 48),
            10 * 2 * 48 * 192,
        ),
        known(
            "not_widened",
            N_("That is two layers from C to C. The hidden layer is M = 4C wide."),
            2 * 48 * 48,
            2 * 48 * 48 + 96,
        ),
    ),
)


# ------------------------------------------------------------------ equal_cost_length

EQUAL_COST_LENGTH = Exercise(
    id="equal_cost_length",
    notebook="06",
    kind="number",
    question=N_(
        "In one block with C = 768 and M = 4C: for how many tokens T do the two products q·kᵀ and weights·v (all "
        "heads, no projections, no mask saved) take as many FLOPs as the two products of the MLP?"
    ),
    reference=4 * 768,
    why=N_(
        "q·kᵀ and weights·v take 2·T²·C each, 4T²C together. The MLP takes 2·T·C·4C twice, 16TC². They are equal at T "
        "= 4C: below it the MLP's C² costs more, above it attention's T²."
    ),
    hints=(
        N_("A product [m, k] [k, n] takes 2·m·k·n FLOPs. For one head, q·kᵀ is [T, D] [D, T]; there are H of them."),
        N_("Attention: 2·T²·C twice. MLP: 2·T·C·4C twice. Set them equal."),
        N_("4·T²·C = 16·T·C². Divide by 4·T·C."),
    ),
    minutes=5,
    points=2,
    review=6,
    mistakes=(
        known("as_long_as_wide", N_("T = C forgets that the MLP is 4C wide inside."), 768),
        known("one_attention_product", N_("T = 8C counts only one of q·kᵀ and weights·v."), 8 * 768),
        known(
            "half_way",
            N_("T = 2C counts one layer of the MLP, or attention's projections as well. Neither is asked for."),
            2 * 768,
        ),
        known(
            "one_head_alone",
            N_("This counts one head of 64 numbers, of which GPT-2 has 12. Together the heads are C wide."),
            12 * 4 * 768,
        ),
        known(
            "wide_as_hidden_squared",
            N_("T = 16C takes M for both sides of the MLP's matrices: they are [4C, C]."),
            16 * 768,
        ),
    ),
)


# ------------------------------------------------------------------ twice_as_long

TWICE_AS_LONG = Exercise(
    id="twice_as_long",
    notebook="06",
    kind="choice",
    question=N_("A text gets twice as long; C stays. What happens to the FLOPs of q·kᵀ, and to those of the MLP?"),
    choices={
        "a": N_("both double"),
        "b": N_("both become four times as many"),
        "c": N_("q·kᵀ twice, MLP four times"),
        "d": N_("q·kᵀ four times, MLP twice"),
    },
    reference="d",
    why=N_("q·kᵀ makes T² scores of D products each; the MLP does the same work once more for each further token."),
    hints=(
        N_("How many scores are there for T tokens? And for 2T?"),
        N_("The MLP treats each token alone."),
    ),
    minutes=1,
    review=6,
    mistakes=(
        known(
            "pairs_forgotten", N_("Each query meets each key: twice as many of both makes four times the pairs."), "a"
        ),
        known("mlp_has_no_pairs", N_("No token meets another in the MLP: twice the tokens, twice the work."), "b"),
        known(
            "the_other_way_round",
            N_("It is the other way round: attention has the pairs, T²; the MLP has C², which stays."),
            "c",
        ),
    ),
)


EXERCISES = (FEED_FORWARD, CHANGED_TOKENS, MLP_PARAMETERS, EQUAL_COST_LENGTH, TWICE_AS_LONG)
