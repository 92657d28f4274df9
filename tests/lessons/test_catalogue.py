"""Every exercise: mistakes are rejected and named, right answers in other styles are accepted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import RIGHT
from torch import Tensor

from tracer.lessons import Exercise, exercises
from tracer.lessons.compare import all_numbers, difference
from tracer.lessons.exercise import Draw, Mistake
from tracer.lessons.judge import judge
from tracer.lessons.lesson_10 import gpt_parameters
from tracer.lessons.running import Outcome, run
from tracer.lessons.trial import arguments
from tracer.models import GPT, GPTConfig

BY_ID = {exercise.id: exercise for exercise in exercises()}
MISTAKES = [(exercise, mistake) for exercise in exercises() for mistake in exercise.mistakes]
FUNCTIONS = [exercise for exercise in exercises() if exercise.kind == "function"]


@pytest.mark.parametrize("exercise", exercises(), ids=lambda e: e.id)
def test_right_answers_in_any_style(exercise: Exercise) -> None:
    answers = [exercise.reference, *RIGHT[exercise.id]]
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
        assert feedback.status == "error" if mistake.raises else feedback.status in ("wrong", "error")
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
    names = arguments(exercise)
    forms = [(mistake.id, form) for mistake in exercise.mistakes for form in mistake.wrong]
    results = [(id, [run(form, case, names) for case in cases]) for id, form in forms]
    for place, (id, mine) in enumerate(results):
        for other_id, others in results[place + 1 :]:
            alike = not any(_differ(exercise, a, b) for a, b in zip(mine, others, strict=True))
            assert id == other_id or not alike, f"{id} and {other_id}"


def _differ(exercise: Exercise, a: Outcome, b: Outcome) -> bool:
    if a.trouble or b.trouble:
        return (a.trouble and a.trouble.text) != (b.trouble and b.trouble.text)
    return difference(a.value, b.value, exercise.axes, exercise.tolerance) is not None


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_inputs_are_fresh_distinct_and_batched(exercise: Exercise) -> None:
    assert exercise.inputs
    cases, others = exercise.inputs(Draw()), exercise.inputs(Draw())
    *distinct, equal, _ones = cases
    for case in distinct:
        sizes = list(case.sizes.values())
        assert len(set(sizes)) == len(sizes) and case.sizes.get("B", 2) > 1
    assert {size for letter, size in equal.sizes.items() if letter != "C" or "H" not in equal.sizes} == {4}
    tensors = [[arg for arg in case.args if isinstance(arg, Tensor)] for case in (*cases[1:], *others[1:])]
    drawn = [tuple(torch.cat([arg.flatten() for arg in args]).tolist()) for args in tensors if args]
    assert len(set(drawn)) == len(drawn), "sizes alone may come again, numbers may not"


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_a_property_holds_for_right_answers_and_fails_for_some_wrong_one(exercise: Exercise) -> None:
    assert exercise.inputs
    for rule in exercise.properties:
        failed = 0
        for case in exercise.inputs(Draw()):
            got = all_numbers(run(exercise.reference, case, arguments(exercise)).value)
            assert rule.fails(case, got) is None
            failed += any(rule.fails(case, wrong) is not None for wrong in _spoilt(got))
        assert failed, rule.id


def _spoilt(got: Any) -> list[Any]:
    """Return results that are wrong: turned round along each axis, shifted, and grown by one."""
    if isinstance(got, tuple):
        return [tuple(parts) for parts in zip(*map(_spoilt, got), strict=False)]
    turned = [got.flip(axis) for axis in range(got.dim())] + [got.roll(1, axis) for axis in range(got.dim())]
    return [got + 1, got * 2, *turned]


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
