"""Wrong answers that no catalogue knows: where the run parts from the reference's, by named shapes and by numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tracer.lessons import Exercise, Feedback, exercises
from tracer.lessons.exercise import Draw
from tracer.lessons.judge import judge
from tracer.lessons.running import run
from tracer.lessons.trial import arguments, tell

BY_ID = {exercise.id: exercise for exercise in exercises()}
FUNCTIONS = [exercise for exercise in exercises() if exercise.kind == "function"]


def told(id: str, answer: Any) -> str:
    feedback = judge(BY_ID[id], answer)
    assert feedback.status in ("wrong", "error") and feedback.mistake is None, str(feedback)
    assert "lesson_" not in feedback.message and "Traceback" not in feedback.message
    return feedback.message


def line_of(function: Any, offset: int) -> int:
    return int(function.__code__.co_firstlineno) + offset


def test_the_first_step_off_is_told_with_its_line_and_the_references_step() -> None:
    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1)
        weights = (scores / 3.3).softmax(dim=-1)
        return weights @ v

    message = told("one_head_output", head)
    step = f"parts from the reference's at div (line {line_of(head, 2)}: weights = (scores / 3.3).softmax(dim=-1))"
    assert step in message and "which makes [B, H, T, S]; up to there they agree." in message
    assert "yours [B, H, T, S], arguments: 3.3; the reference [B, H, T, S], arguments: " in message
    assert message.index("asked for") < message.index("parts from"), "what is wrong comes before where"


def test_another_style_is_not_taken_for_the_mistake() -> None:
    """The scale on q and einsum differ from the reference and are right; the step that spoils the numbers is told."""

    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = q * q.shape[-1] ** -0.5
        scores = torch.einsum("bhtd,bhsd->bhts", q, k)
        weights = scores.softmax(dim=-1)
        return torch.einsum("bhts,bhsd->bhtd", weights, v.flip(2) + 1)

    message = told("one_head_output", head)
    assert f"at add (line {line_of(head, 4)}: " in message and "at mul" not in message


def test_a_mask_made_on_the_way_does_not_count_as_agreement() -> None:
    def weights(scores: Tensor) -> Tensor:
        scores = scores.tanh()
        keep = torch.ones(scores.shape[-2:]).tril().bool()
        return scores.masked_fill(~keep, float("-inf")).softmax(-1)

    assert f"at tanh (line {line_of(weights, 1)}: scores = scores.tanh())" in told("causal_weights", weights)


def test_a_comparison_is_no_step_of_its_own() -> None:
    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        weights = weights.masked_fill(weights < 0.05, 0)
        return weights @ v

    assert "at masked_fill" in told("one_head_output", head)


def test_what_is_only_looked_at_does_not_count() -> None:
    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        largest = q.max()  # printed, say
        del largest
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ (v * 2)

    assert "at mul" in told("one_head_output", head)


def test_names_find_what_sizes_hide() -> None:
    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.reshape(k.shape[0], k.shape[1], k.shape[3], k.shape[2])
        return scores.softmax(-1) @ v

    message = told("one_head_output", head)
    assert "The names of the axes show it:" in message and "reshape cuts across axes: [S=" in message


def test_the_same_numbers_in_another_order() -> None:
    def split(x: Tensor, H: int) -> Tensor:
        B, T, C = x.shape
        heads = x.view(B, T, H, C // H).transpose(1, 2)
        return heads.flip(-1)

    message = told("split_heads", split)
    assert "It should hold features 0 to " in message, "the property, with its numbers"
    assert f"at flip (line {line_of(split, 3)}: return heads.flip(-1)), which makes [B, H, T, D]" in message


def test_an_exception_brings_the_named_shapes_and_the_repair() -> None:
    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k
        return scores.softmax(-1) @ v + 1

    message = told("one_head_output", head)
    assert f"line {line_of(head, 1)} of head: scores = q @ k" in message
    assert "k [B, H, S, D]" in message and "Repair: transpose the last two axes of k" in message


def test_results_from_elsewhere_are_judged_without_the_function() -> None:
    exercise = BY_ID["one_head_output"]
    assert exercise.inputs
    cases, names = exercise.inputs(Draw(3)), arguments(exercise)

    def off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ (v * 2)

    def told_of(function: Any) -> Feedback:
        return tell(exercise, cases, [run(function, case, names) for case in cases])

    assert told_of(exercise.reference).status == "right"
    assert told_of(lambda q, k, v: (q @ k.mT).softmax(-1) @ v).mistake == "not_scaled"
    feedback = told_of(off)
    assert feedback.status == "wrong" and feedback.message and "parts from" not in feedback.message


def test_a_result_of_no_operation_is_described_all_the_same() -> None:
    assert "cannot leave the range of the values" in told("one_head_output", lambda q, k, v: q + 9)
    for answer in (lambda q, k, v: v, lambda q, k, v: 3.0, lambda q, k, v: "text"):
        assert "asked for" in told("one_head_output", answer)


def test_a_loop_over_all_numbers_is_compared_by_its_result_alone() -> None:
    def scores(q: Tensor, k: Tensor) -> Tensor:
        B, H, T, D = q.shape
        out = torch.zeros(B, H, T, k.shape[2])
        for t in range(T):
            for s in range(k.shape[2]):
                for d in range(D):
                    out[:, :, t, s] += q[:, :, t, d] * k[:, :, s, d] * (d + 1)
        return out

    assert "the dot product of these two rows is" in told("all_scores", scores)


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_every_exercise_says_something_about_an_unknown_answer(exercise: Exercise) -> None:
    """Right numbers, spoilt at the end: the last line is quoted and no line of ours is."""

    def spoil(value: Any) -> Any:
        return tuple(map(spoil, value)) if isinstance(value, tuple) else value + 7 if value is not True else 3

    def answer(*args: Any) -> Any:
        value = exercise.reference(*args)
        return spoil(value)

    names = arguments(exercise)
    wrapped = eval(f"lambda {', '.join(names)}: answer({', '.join(names)})", {"answer": answer})
    feedback = judge(exercise, wrapped)
    assert feedback.status in ("wrong", "error") and feedback.message
    assert "lesson_" not in feedback.message and "tracer/" not in feedback.message
    assert "{" not in feedback.message


@pytest.mark.parametrize("exercise", [e for e in FUNCTIONS if any(e.given)], ids=lambda e: e.id)
def test_an_input_changed_in_place_is_noticed(exercise: Exercise) -> None:
    names = arguments(exercise)

    def answer(*args: Any) -> Any:
        value = exercise.reference(*args)
        value = tuple(part.clone() for part in value) if isinstance(value, tuple) else torch.as_tensor(value).clone()
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        for arg in tensors[:1]:
            arg.copy_(~arg if arg.dtype is torch.bool else arg + 1)
        return value

    wrapped = eval(f"lambda {', '.join(names)}: answer({', '.join(names)})", {"answer": answer})
    feedback = judge(exercise, wrapped)
    assert (feedback.status, feedback.mistake) == ("wrong", "input_changed_in_place"), str(feedback)
