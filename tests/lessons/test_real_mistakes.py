"""Mistakes that students really made, as they wrote them: each is rejected, and named by what it is.

They call with other names of arguments, and at times with other shapes than ours; the code between stays theirs.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tracer.lessons import exercises
from tracer.lessons.judge import judge

BY_ID = {exercise.id: exercise for exercise in exercises()}


def split_heads_view_only(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.view(B, H, T, C // H)


def fused_view_only(qkv: Tensor, H: int) -> Any:
    return [split_heads_view_only(part.contiguous(), H) for part in qkv.chunk(3, dim=-1)]


def merge_heads_no_transpose(y: Tensor) -> Tensor:
    B, H, T, D = y.shape
    return y.reshape(B, T, H * D)


def view_on_non_contiguous(y: Tensor) -> Tensor:
    B, H, T, D = y.shape
    return y.transpose(1, 2).view(B, T, H * D)


def softmax_wrong_dim(s: Tensor) -> Tensor:
    return s.softmax(dim=1)


def scale_by_model_dim(q: Tensor, k: Tensor) -> Tensor:
    _B, H, _T, D = q.shape
    return q @ k.transpose(-2, -1) / (H * D) ** 0.5


def mask_after_softmax(s: Tensor, keep: Tensor) -> Tensor:
    return s.softmax(-1) * keep


def mask_fill_not_minus_inf(s: Tensor, keep: Tensor) -> Tensor:
    return s.masked_fill(~keep, 1e-9).softmax(-1)


def masked_fill_result_dropped(s: Tensor, keep: Tensor) -> Tensor:
    s.masked_fill(~keep, float("-inf"))
    return s.softmax(-1)


def fully_masked_row_nan(s: Tensor, keep: Tensor) -> Tensor:
    return s.masked_fill(~keep, float("-inf")).softmax(-1)


def normalise_without_keepdim(e: Tensor) -> Tensor:
    return e / e.sum(-1)


def targets_not_shifted(ids: Tensor) -> Any:
    return ids, ids


def causal(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda scores: function(scores, torch.ones(scores.shape[-2:]).tril().bool())


def padded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda scores, keep: function(scores, keep[:, None, None, :])


MADE: list[tuple[str, str, Any]] = [
    ("split_heads", "split_heads_view_only", split_heads_view_only),
    ("qkv_heads", "split_heads_view_only", fused_view_only),
    ("merge_heads", "merge_heads_no_transpose", merge_heads_no_transpose),
    ("join_and_project", "merge_heads_no_transpose", lambda out, w_o: merge_heads_no_transpose(out) @ w_o.T),
    ("merge_heads", "view_on_non_contiguous", view_on_non_contiguous),
    ("join_and_project", "view_on_non_contiguous", lambda out, w_o: view_on_non_contiguous(out) @ w_o.T),
    ("attention_weights", "softmax_wrong_dim", softmax_wrong_dim),
    ("one_head_output", "softmax_wrong_dim", lambda q, k, v: softmax_wrong_dim(q @ k.mT / q.shape[-1] ** 0.5) @ v),
    ("scaled_scores", "scale_by_model_dim", scale_by_model_dim),
    ("one_head_output", "scale_by_model_dim", lambda q, k, v: scale_by_model_dim(q, k).softmax(-1) @ v),
    ("attention_weights", "normalise_without_keepdim", lambda scores: normalise_without_keepdim(scores.exp())),
    ("causal_weights", "mask_after_softmax", causal(mask_after_softmax)),
    ("padded_weights", "mask_after_softmax", padded(mask_after_softmax)),
    ("causal_weights", "mask_fill_not_minus_inf", causal(mask_fill_not_minus_inf)),
    ("padded_weights", "mask_fill_not_minus_inf", padded(mask_fill_not_minus_inf)),
    ("causal_weights", "masked_fill_result_dropped", causal(masked_fill_result_dropped)),
    ("padded_weights", "masked_fill_result_dropped", padded(masked_fill_result_dropped)),
    ("rows_without_keys", "fully_masked_row_nan", fully_masked_row_nan),
    ("shifted_targets", "targets_not_shifted", targets_not_shifted),
]


@pytest.mark.parametrize(("id", "name", "wrong"), MADE, ids=lambda x: x if isinstance(x, str) else "")
def test_a_real_mistake_is_named(id: str, name: str, wrong: Any) -> None:
    for seed in (None, 1, 2):
        feedback = judge(BY_ID[id], wrong, seed)
        assert feedback.status in ("wrong", "error") and feedback.mistake == name, str(feedback)
        assert "lesson_" not in str(feedback) and "Traceback" not in str(feedback)
