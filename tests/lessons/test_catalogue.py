"""Every exercise: mistakes are rejected and named, right answers in other styles are accepted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from tracer.lessons import Exercise, exercises
from tracer.lessons.compare import difference
from tracer.lessons.exercise import Draw, Mistake
from tracer.lessons.judge import judge
from tracer.lessons.lesson_10 import gpt_parameters
from tracer.lessons.running import run
from tracer.lessons.trial import arguments
from tracer.models import GPT, GPTConfig

BY_ID = {exercise.id: exercise for exercise in exercises()}
MISTAKES = [(exercise, mistake) for exercise in exercises() for mistake in exercise.mistakes]
FUNCTIONS = [exercise for exercise in exercises() if exercise.kind == "function"]


# ------------------------------------------------------------------ right answers in other styles


def split_by_loop(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    out = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                out[b, h, t] = x[b, t, h * D : (h + 1) * D]
    return out


def split_by_strides(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    return x.contiguous().as_strided((B, H, T, D), (T * C, D, C, 1))


def split_by_einsum(x: Tensor, H: int) -> Tensor:
    C = x.shape[-1]
    place = torch.eye(C, dtype=x.dtype).view(C, H, C // H)
    return torch.einsum("btc,chd->bhtd", x, place)


def split_with_gradient(x: Tensor, H: int) -> Tensor:
    scale = torch.nn.Parameter(torch.ones(()))
    return x.view(*x.shape[:2], H, -1).movedim(2, 1) * scale


class SplitModule(torch.nn.Module):
    def forward(self, x: Tensor, H: int) -> Tensor:
        return x.reshape(*x.shape[:2], H, -1).permute(0, 2, 1, 3).contiguous()


def merge_by_loop(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    x = torch.empty(B, T, H * D)
    for h in range(H):
        x[:, :, h * D : (h + 1) * D] = out[:, h]
    return x


def merge_in_place_of_its_own(out: Tensor) -> Tensor:
    mine = out.clone()
    return mine.transpose_(1, 2).flatten(2)


def merge_by_columns(out: Tensor) -> Tensor:
    _B, H, _T, D = out.shape
    rows = torch.eye(H * D, dtype=out.dtype).view(H, D, H * D)
    return torch.einsum("bhtd,hdc->btc", out, rows)


VARIANTS: dict[str, list[Any]] = {
    "split_heads": [
        lambda x, H: rearrange(x, "b t (h d) -> b h t d", h=H),
        lambda x, H: torch.stack(x.chunk(H, dim=-1), dim=1),
        lambda x, H: x.view(*x.shape[:2], H, -1).transpose(-2, -3).to(torch.float64),
        lambda x, H: x.unflatten(2, (H, -1)).swapaxes(1, 2).bfloat16(),
        *(split_by_loop, split_by_strides, split_by_einsum, split_with_gradient, SplitModule()),
        torch.inference_mode()(lambda x, H: x.view(*x.shape[:2], H, -1).transpose(1, 2)),
    ],
    "merge_heads": [
        lambda out: rearrange(out, "b h t d -> b t (h d)"),
        lambda out: torch.cat(out.unbind(1), dim=-1),
        lambda out: out.transpose(1, 2).contiguous().view(out.shape[0], out.shape[2], -1),
        lambda out: out.permute(0, 2, 1, 3).flatten(-2).double(),
        lambda out: torch.from_numpy(out.numpy().transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)),
        *(merge_by_loop, merge_in_place_of_its_own, merge_by_columns),
    ],
    "shape_of_embedding": ["B T C", "[B, T, C]", "b,t,(h d)", ("B", "T", "C"), "torch.Size([B, T, H*D])"],
    "scores_shape": ["B H T T", "[B, H, T, S]", "(B, H, T, T)", ["B", "H", "T", "T"]],
    "parameter_or_activation": ["b", "B", " (b) "],
    "count_parameters": [86256, 86256.0, torch.tensor(86256), torch.tensor([86256.0])],
    "loss_at_start": [2.3, 2.302585, torch.tensor(10.0).log(), 2.33],
    "flat_logits": ["(B T) V", "[(B T), V]", "B*T, V", "[B·T, V]", "((B T), V)"],
}


@pytest.mark.parametrize("exercise", exercises(), ids=lambda e: e.id)
def test_right_answers_in_any_style(exercise: Exercise) -> None:
    answers = [exercise.reference, *VARIANTS[exercise.id]]
    assert len(answers) > 3
    for answer in answers:
        feedback = judge(exercise, answer)
        assert (feedback.status, feedback.mistake) == ("right", None), f"{answer}: {feedback}"
        assert feedback.message == exercise.why


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=lambda x: x.id)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_each_mistake_is_rejected_and_named(exercise: Exercise, mistake: Mistake, seed: int | None) -> None:
    for wrong in mistake.wrong:
        feedback = judge(exercise, wrong, seed)
        assert feedback.status == ("error" if mistake.raises else "wrong")
        assert feedback.mistake == mistake.id, str(feedback)
        assert mistake.id in str(feedback)
        assert "{" not in feedback.message and "None" not in feedback.message, feedback.message


@pytest.mark.parametrize("exercise", exercises(), ids=lambda e: e.id)
def test_an_exercise_is_complete(exercise: Exercise) -> None:
    ids = Counter(mistake.id for mistake in exercise.mistakes)
    assert len(ids) >= 3 and set(ids.values()) == {1}
    assert exercise.hints and exercise.question and exercise.why and exercise.minutes > 0 and exercise.points > 0
    assert exercise.id.isidentifier() and exercise.id.islower()
    assert str(exercise).count("\n") >= 1 and exercise.id in exercise._repr_html_()
    if exercise.kind == "function":
        assert exercise.inputs and exercise.axes and len(exercise.given) == len(arguments(exercise))


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_two_mistakes_never_look_alike(exercise: Exercise) -> None:
    assert exercise.inputs
    cases = exercise.inputs(Draw(3))
    forms = [(mistake.id, form) for mistake in exercise.mistakes if not mistake.raises for form in mistake.wrong]
    for place, (id, form) in enumerate(forms):
        for other_id, other in forms[place + 1 :]:
            pairs = [(run(form, case, arguments(exercise)), run(other, case, arguments(exercise))) for case in cases]
            assert any(difference(a.value, b.value, exercise.axes) for a, b in pairs), f"{id} and {other_id}"


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_inputs_are_fresh_distinct_and_batched(exercise: Exercise) -> None:
    assert exercise.inputs
    cases, others = exercise.inputs(Draw()), exercise.inputs(Draw())
    *distinct, equal, _ones = cases
    for case in distinct:
        sizes = list(case.sizes.values())
        assert len(set(sizes)) == len(sizes) and case.sizes["B"] > 1
    assert {size for letter, size in equal.sizes.items() if letter != "C"} == {4}
    drawn = [case.args[0].flatten()[:3].tolist() for case in (*cases[1:], *others[1:])]
    assert len({tuple(numbers) for numbers in drawn}) == len(drawn)


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_a_property_holds_for_right_answers_and_fails_for_some_wrong_one(exercise: Exercise) -> None:
    assert exercise.inputs
    for rule in exercise.properties:
        failed = 0
        for case in exercise.inputs(Draw()):
            got = run(exercise.reference, case, arguments(exercise)).value
            assert rule.fails(case, got.double()) is None
            failed += rule.fails(case, got.double().flip(1, 2)) is not None
        assert failed


def test_the_messages_of_the_first_case_quote_real_numbers() -> None:
    def view_only(x: Tensor, H: int) -> Tensor:
        return x.view(x.shape[0], H, x.shape[1], -1)

    B, T, C = (case := BY_ID["split_heads"].inputs(Draw(5))[0]).args[0].shape  # type: ignore[misc]
    D = case.sizes["D"]
    message = judge(BY_ID["split_heads"], view_only, seed=5).message
    assert f"head 0 at t=1 holds [{D}, {D + 1}" in message, "the second run of D numbers in memory"
    assert f"token 1 has [{C}, {C + 1}" in message, "the first features of token 1"
    assert f"x: [B, T, C] = [{B}, {T}, {C}], H = {case.sizes['H']}" in message


# ------------------------------------------------------------------ the counted numbers, written out


def test_parameters_of_the_nano_model_written_out() -> None:
    tables = 10 * 48 + 8 * 48
    block = (
        *(48 + 48, 144 * 48 + 144, 48 * 48 + 48),  # ln_1, c_attn, c_proj of the attention
        *(48 + 48, 192 * 48 + 192, 48 * 192 + 48),  # ln_2, c_fc, c_proj of the MLP
    )
    transformer = tables + 3 * sum(block) + (48 + 48)
    assert transformer == 85776
    assert transformer + 10 * 48 == BY_ID["count_parameters"].reference == 86256


def test_parameters_of_gpt2_as_published() -> None:
    assert gpt_parameters(n_layer=12, n_embd=768, vocab_size=50257, block_size=1024, tied=True) == 124_439_808
    assert gpt_parameters(n_layer=48, n_embd=1600, vocab_size=50257, block_size=1024, tied=True) == 1_557_611_200


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_counted_are_those_of_the_reference_model(tied: bool) -> None:
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=21, vocab_size=11, block_size=5, tie_weights=tied))
    counted = gpt_parameters(n_layer=2, n_embd=21, vocab_size=11, block_size=5, tied=tied)
    assert sum(p.numel() for p in model.parameters()) == counted


def test_the_expected_loss_is_that_of_equal_logits() -> None:
    logits, targets = torch.zeros(4, 10), torch.tensor([1, 5, 0, 9])
    loss = torch.nn.functional.cross_entropy(logits, targets)
    assert abs(loss.item() - BY_ID["loss_at_start"].reference) < 1e-6


def test_ids_are_unique_and_functions_bear_them() -> None:
    assert len(BY_ID) == len(exercises())
    named: list[tuple[str, Callable[..., Any]]] = [(exercise.id, exercise.reference) for exercise in FUNCTIONS]
    assert all(function.__name__ == id for id, function in named), "solution() prints the reference under the id"
