"""The stages of a check: placeholders, exceptions at the learner's line, odd results, inputs changed in place."""

import functools
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tracer.lessons import Exercise, Feedback, exercises
from tracer.lessons.exercise import Case, Mistake
from tracer.lessons.judge import judge

BY_ID = {exercise.id: exercise for exercise in exercises()}
SPLIT, MERGE = BY_ID["split_heads"], BY_ID["merge_heads"]


def right(x: Tensor, H: int) -> Tensor:
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)


def split(answer: Any) -> Feedback:
    feedback = judge(SPLIT, answer)
    assert "tracer/lessons" not in str(feedback) and "Traceback" not in str(feedback)
    return feedback


# ------------------------------------------------------------------ attempted at all


def untouched(x: Tensor, H: int) -> Tensor: ...  # type: ignore[empty-body]
def passed(x: Tensor, H: int) -> Any:
    """Only a docstring."""
    pass


def ellipsis_after_a_start(x: Tensor, H: int) -> Any:
    _B, _T, _C = x.shape
    return ...


def bare_ellipsis(x: Tensor, H: int) -> Any:
    _B, _T, _C = x.shape
    ...  # your code here


def to_do(x: Tensor, H: int) -> Any:
    raise NotImplementedError("your code here")


@pytest.mark.parametrize(
    "answer",
    [
        ...,
        None,
        NotImplementedError,
        NotImplementedError(),
        untouched,
        passed,
        ellipsis_after_a_start,
        bare_ellipsis,
        to_do,
        lambda x, H: ...,
        lambda x, H: None,
    ],
)
def test_placeholders_are_not_attempted_and_quiet(answer: Any) -> None:
    feedback = split(answer)
    assert (feedback.status, feedback.mistake, feedback.message) == ("not attempted", None, "")


@pytest.mark.parametrize("id", ["shape_of_embedding", "count_parameters", "parameter_or_activation"])
@pytest.mark.parametrize("answer", [..., None, "", "...", " ? ", lambda: ...])
def test_placeholders_of_other_kinds(id: str, answer: Any) -> None:
    assert judge(BY_ID[id], answer).status == "not attempted"


def test_a_missing_return_is_not_a_placeholder() -> None:
    def forgot(x: Tensor, H: int) -> Any:
        x.view(*x.shape[:2], H, -1).transpose(1, 2)

    feedback = split(forgot)
    assert (feedback.status, feedback.mistake) == ("wrong", "nothing_returned")
    assert "return" in feedback.message


def test_a_missing_kernel_is_not_a_placeholder() -> None:
    def sparse(x: Tensor, H: int) -> Tensor:
        return torch.empty(2, device="meta").to_sparse().cpu()

    assert split(sparse).status == "error"


# ------------------------------------------------------------------ exceptions


def test_an_exception_is_shown_at_the_line_of_the_learner() -> None:
    def stops(x: Tensor, H: int) -> Tensor:
        B, T, C = x.shape
        return x.view(B, T, H, C // H).transpose(1, 7)

    feedback = split(stops)
    line = stops.__code__.co_firstlineno + 2
    assert (feedback.status, feedback.mistake) == ("error", None)
    assert f"line {line} of stops: return x.view(B, T, H, C // H).transpose(1, 7)" in feedback.message
    assert "IndexError: Dimension out of range" in feedback.message
    assert "x: [B, T, C] = [" in feedback.message and "H = " in feedback.message


def test_an_exception_inside_torch_is_shown_where_the_learner_called() -> None:
    def layer(x: Tensor, H: int) -> Tensor:
        return torch.nn.functional.linear(x, torch.zeros(3, 1000))

    message = split(layer).message
    assert (
        "of layer: return torch.nn.functional.linear(x, torch.zeros(3, 1000))" in message
        and "functional.py" not in message
    )


def test_code_that_was_never_in_a_file() -> None:
    space: dict[str, Any] = {}
    exec("def split_heads(x, H):\n    return x.no_such_method(H)", space)
    message = split(space["split_heads"]).message
    assert "line 2 of split_heads" in message and "no_such_method" in message


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: BaseException) -> Callable[..., Any]:
    def function(x: Tensor, H: int) -> Any:
        raise error

    return function


def _recurse(x: Tensor, H: int) -> Any:
    return _recurse(x, H)


@pytest.mark.parametrize("answer", [_raise(Rude()), _raise(SystemExit(3)), _raise(ValueError("a\nb" * 999)), _recurse])
def test_any_exception_becomes_feedback(answer: Any) -> None:
    feedback = split(answer)
    assert feedback.status == "error" and len(feedback.message) < 800


@pytest.mark.usefixtures("interruptible")
def test_stop_pressed_by_the_learner_goes_through() -> None:
    def pressed(x: Tensor, H: int) -> Any:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        judge(SPLIT, pressed)
    assert split(_raise(KeyboardInterrupt())).status == "error", "one that they raise themselves does not"


def test_notes_of_an_exception_are_kept() -> None:
    error = RuntimeError("sizes")
    error.add_note("q: [B, H, T, D], k: [B, T, H, D]")
    assert "k: [B, T, H, D]" in split(_raise(error)).message


# ------------------------------------------------------------------ odd answers and odd results


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (3, "type int"),
        (torch.ones(2), "type Tensor"),
        ("split_heads", "type str"),
        (lambda x: x, "yours takes (x)"),
        (lambda x, H, D: x, "yours takes (x, H, D)"),
        (functools.partial(right), ""),
    ],
)
def test_what_is_handed_in_instead_of_a_function(answer: Any, part: str) -> None:
    feedback = split(answer)
    assert feedback.status == ("error" if part else "right")
    assert part in feedback.message


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda y: y.tolist(), "values as list"),
        (lambda y: (y,), "1 values as tuple"),
        (lambda y: "text", "type str"),
        (lambda y: y.numpy(), "type ndarray"),
        (lambda y: y.unsqueeze(0), "shape"),
        (lambda y: y[:1], "shape"),
        (lambda y: y[:, :1], "shape"),
        (lambda y: y.flatten(), "shape"),
        (lambda y: y.sum(), "shape"),
        (lambda y: 1.0, "shape [];"),
        (lambda y: y * float("nan"), "NaN"),
        (lambda y: y.to(torch.complex64), "complex64"),
        (lambda y: y.to("meta"), "meta"),
        (lambda y: y + 1e-3, "differs is at [b=0, h=0, t=0, d=0]: 0.001"),
        (lambda y: y > 0, "features"),
        (lambda y: y.to_sparse(), ""),
    ],
)
def test_odd_results_are_described(change: Callable[[Tensor], Any], part: str) -> None:
    feedback = split(lambda x, H: change(right(x, H)))
    assert feedback.status == ("wrong" if part else "right")
    assert part in feedback.message, feedback.message


def test_a_result_is_never_broadcast() -> None:
    for shape in ([1, 1, 1, 1], [1], []):
        feedback = judge(SPLIT, lambda x, H, shape=shape: torch.zeros(shape))
        assert feedback.status == "wrong" and "shape" in feedback.message


def test_the_first_number_that_differs_is_named_by_its_axes() -> None:
    plain = Exercise(**{**vars(SPLIT), "properties": ()})

    def off(x: Tensor, H: int) -> Tensor:
        y = right(x, H).clone()
        y[-1, 0, 0, -1] += 1
        return y

    feedback = judge(plain, off, seed=1)
    assert plain.inputs is not None
    assert "[b=" in feedback.message and "h=0, t=0, d=" in feedback.message
    assert "1 of " in feedback.message and "numbers differ" in feedback.message


def test_results_in_several_parts() -> None:
    def halves(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :-1], x[:, 1:]

    def same_twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    pair = Exercise(
        id="halves",
        notebook="00",
        kind="function",
        question="?",
        reference=halves,
        why="so",
        hints=("a",),
        minutes=1,
        given=("B T",),
        axes=("B T", "B T"),
        inputs=lambda draw: [Case((draw.normal(2, 5),), {"B": 2, "T": 5})],
        mistakes=(Mistake(id="not_shifted", wrong=(same_twice,), says="T stays {T}."),),
    )
    assert judge(pair, lambda x: [x[:, :-1], x[:, 1:]]).status == "right"
    assert judge(pair, same_twice).mistake == "not_shifted" and "T stays 5." in judge(pair, same_twice).message
    assert "2 results" in judge(pair, lambda x: x[:, 1:]).message
    assert "Result 1: " in judge(pair, lambda x: (x[:, :-1], x[:, :-1])).message


def test_another_convention_is_right_if_it_is_kept_throughout() -> None:
    def interleaved(x: Tensor, H: int) -> Tensor:
        return x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2)

    def now_this_now_that(x: Tensor, H: int) -> Tensor:
        return right(x, H) if x.shape[0] == 4 else interleaved(x, H)

    both = Exercise(**(vars(SPLIT) | {"also": (interleaved,)}))
    assert [judge(both, answer).status for answer in (right, interleaved, now_this_now_that)] == ["right"] * 2 + [
        "wrong"
    ]
    assert judge(SPLIT, interleaved).mistake == "split_heads_d_before_h"


# ------------------------------------------------------------------ inputs and random state


def test_inputs_changed_in_place_are_noticed() -> None:
    def zeroes(x: Tensor, H: int) -> Tensor:
        y = right(x, H).clone()
        x.zero_()
        return y

    def turns(out: Tensor) -> Tensor:
        return out.transpose_(1, 2).flatten(2)

    for exercise, answer, name in ((SPLIT, zeroes, "x"), (MERGE, turns, "out")):
        feedback = judge(exercise, answer)
        assert (feedback.status, feedback.mistake) == ("wrong", "input_changed_in_place")
        assert f"input {name} in place" in feedback.message
    wrong_too = split(lambda x, H: right(x.add_(1), H))
    assert wrong_too.status == "wrong" and "changes x in place" in wrong_too.message


def test_a_gradient_that_is_not_finite_is_told() -> None:
    def covered_up(scores: Tensor, keep: Tensor) -> Tensor:
        mask = torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))
        return (scores + mask).softmax(-1).nan_to_num(0.0)

    def whole(scores: Tensor, keep: Tensor) -> Tensor:
        return scores.masked_fill(~keep, -1e9).softmax(-1) * keep

    exercise = BY_ID["rows_without_keys"]
    feedback = judge(exercise, covered_up)
    assert (feedback.status, feedback.mistake) == ("wrong", "gradient_not_finite")
    assert "NaN" in feedback.message and "scores: [B, H, T, S] = " in feedback.message

    def by_numpy(scores: Tensor, keep: Tensor) -> Tensor:  # torch refuses .numpy() where a gradient is wanted
        return whole(torch.from_numpy(scores.numpy()), keep)

    for answer in (whole, by_numpy, torch.no_grad()(whole), torch.no_grad()(covered_up)):
        assert judge(exercise, answer).status == "right"
    with torch.no_grad():
        assert judge(exercise, covered_up).mistake == "gradient_not_finite"


def test_a_check_reads_and_changes_no_global_random_state() -> None:
    before, python = torch.get_rng_state(), random.getstate()
    split(right)
    assert torch.equal(before, torch.get_rng_state()) and python == random.getstate()


def test_a_check_works_under_no_grad_and_another_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert split(right).status == "right"
    finally:
        torch.set_default_dtype(torch.float32)


# ------------------------------------------------------------------ shapes, numbers, choices


@pytest.mark.parametrize(
    ("id", "answer", "status", "part"),
    [
        ("shape_of_embedding", torch.Size([2, 5, 12]), "error", "letters"),
        ("shape_of_embedding", 3, "error", "type int"),
        ("shape_of_embedding", "batch time C", "error", "batch"),
        ("shape_of_embedding", "B", "wrong", "[B] has 1 axis; the tensor has 3"),
        ("shape_of_embedding", "B S C", "wrong", "axis 1, S"),
        ("flat_logits", "(B T)", "wrong", "targets"),
        ("flat_logits", "(D H) V", "wrong", "axis 0, (D H)"),
        ("count_parameters", "86256", "error", "type str"),
        ("count_parameters", True, "error", "type bool"),
        ("count_parameters", 86255, "wrong", "86255 is too small"),
        ("count_parameters", float("inf"), "wrong", "too large"),
        ("count_parameters", float("nan"), "wrong", "compared"),
        ("count_parameters", torch.ones(2), "error", "type Tensor"),
        ("count_parameters", torch.ones(1, device="meta"), "error", "type Tensor"),
        ("count_parameters", 1j, "error", "type complex"),
        ("count_parameters", lambda: 86256, "error", "type function"),
        ("loss_at_start", 2.0, "wrong", "too small"),
        ("parameter_or_activation", "e", "error", "a, b, c, d"),
        ("parameter_or_activation", 2, "error", "a, b, c, d"),
    ],
)
def test_answers_that_are_no_functions(id: str, answer: Any, status: str, part: str) -> None:
    feedback = judge(BY_ID[id], answer)
    assert feedback.status == status and part in feedback.message, str(feedback)


@given(st.one_of(st.text(max_size=20), st.floats(), st.integers(), st.lists(st.integers()), st.binary(), st.booleans()))
def test_no_plain_answer_ever_raises(answer: Any) -> None:
    for exercise in exercises():
        feedback = judge(exercise, answer)
        assert feedback.status in ("right", "wrong", "error", "not attempted")
        assert "{" not in feedback.message or (isinstance(answer, str) and "{" in answer)


def test_sizes_and_numbers_of_one_message_belong_to_one_case() -> None:
    def turned_round(x: Tensor, H: int) -> Tensor:  # right where all sizes are equal, else another shape
        B, T, C = x.shape
        return x.flip(-1).view(B, T, C // H, H).transpose(1, 2)

    for seed in range(5):
        feedback = judge(SPLIT, turned_round, seed)
        assert feedback.mistake is None
        assert "has the shape" in feedback.message and "For sentence 0" not in feedback.message


def test_the_notebooks_own_sizes_are_named_as_the_reason() -> None:
    D = 17  # as if it stood in a cell above

    def split_heads(x: Tensor, H: int) -> Tensor:
        B, T, _C = x.shape
        return x.view(B, T, H, D).transpose(1, 2)

    feedback = split(split_heads)
    assert feedback.mistake == "split_heads_width_not_divided"
    assert "the notebook's own cells" in feedback.message


@pytest.mark.parametrize("answer", ["2.3", "ln 10"])
def test_a_number_in_quotes(answer: str) -> None:
    loss = next(exercise for exercise in exercises() if exercise.id == "loss_at_start")
    assert "without quotes" in judge(loss, answer).message


# ------------------------------------------------------------------ conventions


def interleaved(T: int, C: int) -> Tensor:
    angles = torch.arange(T).unsqueeze(1) / 10000 ** (torch.arange(0, C, 2) / C)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def halves(T: int, C: int) -> Tensor:
    table = interleaved(T, C)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def test_either_convention_passes_but_not_now_one_and_now_the_other() -> None:
    waves = BY_ID["sinusoids"]
    assert judge(waves, interleaved).status == judge(waves, halves).status == "right"
    assert judge(waves, lambda T, C: halves(T, C) if T == C else interleaved(T, C)).status == "wrong"


@pytest.mark.parametrize(("one", "other"), [(0.0, float("-inf")), (True, False)])
def test_a_mask_may_be_true_and_false_or_added_to_the_scores(one: Any, other: Any) -> None:
    def mask(T: int, S: int) -> Tensor:
        return torch.tensor([[one if s <= S - T + t else other for s in range(S)] for t in range(T)])

    assert judge(BY_ID["cache_mask"], mask).status == "right"
    assert judge(BY_ID["cache_mask"], lambda T, S: mask(S, S)[:T]).mistake == "aligned_top_left"


def test_axes_that_are_sums_are_shown_as_they_are_written() -> None:
    message = judge(BY_ID["add_class_token"], lambda x, cls: x[:, :1]).message
    assert "[B, 1+N, C] = [" in message and "x: [B, N, C] = [" in message
    wrong = judge(BY_ID["add_class_token"], lambda x, cls: torch.cat([cls.expand(len(x), -1, -1), x + 1], dim=1))
    assert "at [0, 1, 0]" in wrong.message


def test_a_long_row_is_quoted_from_where_it_differs() -> None:
    message = judge(BY_ID["multi_head"], BY_ID["multi_head"].mistakes[1].wrong[0], seed=1).message
    mine, asked = (part.split("]")[0].split(", ") for part in message.split("[…, ")[1:3])
    assert mine[0] == asked[0] and mine[1] != asked[1]
