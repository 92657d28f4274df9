"""check_axes: what fits and what it binds, and the whole text of each refusal."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracer.checks import check_axes
from tracer.errors import AxesError, AxisMismatch


class Shaped:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("shape", "axes", "sizes", "bound"),
    [
        ((2, 3, 5, 7), "B H T D", {"H": 3}, {"H": 3, "B": 2, "T": 5, "D": 7}),
        ((2, 5, 21), "B T (H D)", {"H": 3}, {"H": 3, "B": 2, "T": 5, "D": 7}),
        ((2, 5, 63), "B T 3C", {}, {"B": 2, "T": 5, "C": 21}),
        ((5, 4), "T D/2", {}, {"T": 5, "D": 8}),
        ((2, 3, 18, 7), "B H S+T D", {"T": 5}, {"T": 5, "B": 2, "H": 3, "S": 13, "D": 7}),
        ((1, 5, 21), "1 T C", {}, {"T": 5, "C": 21}),
        ((9, 5, 21), "? T C", {}, {"T": 5, "C": 21}),
        ((2, 3, 5, 5), "B H T T", {}, {"B": 2, "H": 3, "T": 5}),
        ((21, 7), "(H D) D", {}, {"D": 7, "H": 3}),
        ((2, 21), "B (H D)", {}, {"B": 2}),
        ((2, 5, 3, 3, 7), "B T 3 H D", {}, {"B": 2, "T": 5, "H": 3, "D": 7}),
        ((16, 128), "H D", {"C": 1024}, {"C": 1024, "H": 16, "D": 128}),
        ((), "", {}, {}),
    ],
)
def test_fits(shape: tuple[int, ...], axes: str, sizes: dict[str, int], bound: dict[str, int]) -> None:
    assert check_axes(Shaped(*shape), axes, **sizes) == bound


def test_a_tensor_and_a_symbol_called_x() -> None:
    assert check_axes(torch.zeros(2, 3), "x axes", x=2) == {"x": 2, "axes": 3}


@pytest.mark.parametrize(
    ("shape", "axes", "sizes", "text"),
    [
        (
            (2, 5, 3, 7), "B H T D", {"H": 3},
            "expected [B, H, T, D] with H=3, got [2, 5, 3, 7]\n"
            "axis 1 has size 5, but H is 3 (H=3 was given)\n"
            "axes 1 and 2 look swapped: [2, 5, 3, 7] is B T H D",
        ),
        (
            (7, 5, 3), "H T D", {"H": 3, "D": 7, "T": 5},
            "expected [H, T, D] with H=3, D=7, T=5, got [7, 5, 3]\n"
            "axis 0 has size 7, but H is 3 (H=3 was given)\n"
            "axis 2 has size 3, but D is 7 (D=7 was given)\n"
            "axes 0 and 2 look swapped: [7, 5, 3] is D T H",
        ),
        (
            (5, 7, 3), "H T D", {"H": 3, "D": 7, "T": 5},
            "expected [H, T, D] with H=3, D=7, T=5, got [5, 7, 3]\n"
            "axis 0 has size 5, but H is 3 (H=3 was given)\n"
            "axis 1 has size 7, but T is 5 (T=5 was given)\n"
            "axis 2 has size 3, but D is 7 (D=7 was given)\n"
            "axes 0, 1, 2 look reordered: [5, 7, 3] is T D H",
        ),
        (
            (2, 3, 5, 6), "B H T T", {},
            "expected [B, H, T, T], got [2, 3, 5, 6]\n"
            "axis 3 has size 6, but T is 5 (T is 5 by axis 2)",
        ),
        (
            (2, 5, 20), "B T (H D)", {"H": 3},
            "expected [B, T, (H D)] with H=3, got [2, 5, 20]\n"
            "axis 2 has size 20, and no D makes that (H D)",
        ),
        (
            (5, 3), "T D/2", {"D": 7},
            "expected [T, D/2] with D=7, got [5, 3]\n"
            "axis 1 has size 3, but D/2 is no whole number (D=7 was given)",
        ),
        (
            (2, 5), "B 1", {},
            "expected [B, 1], got [2, 5]\n"
            "axis 1 has size 5, but should have 1",
        ),
        (
            (3, 5, 7), "B H T D", {"B": 2, "H": 3, "T": 5, "D": 7},
            "expected [B, H, T, D] with B=2, H=3, T=5, D=7, got [3, 5, 7]\n"
            "4 axes are expected, there are 3: B looks missing",
        ),
        (
            (2, 1, 5, 21), "B T C", {"B": 2, "T": 5, "C": 21},
            "expected [B, T, C] with B=2, T=5, C=21, got [2, 1, 5, 21]\n"
            "3 axes are expected, there are 4: axis 1, of size 1, looks like one too many",
        ),
        (
            (2, 5), "B H T D", {},
            "expected [B, H, T, D], got [2, 5]\n"
            "4 axes are expected, there are 2",
        ),
    ],
)  # fmt: skip
def test_refusals(shape: tuple[int, ...], axes: str, sizes: dict[str, int], text: str) -> None:
    with pytest.raises(AxisMismatch) as caught:
        check_axes(Shaped(*shape), axes, **sizes)
    assert str(caught.value) == text


def test_a_refusal_is_an_assertion() -> None:
    with pytest.raises(AssertionError):
        check_axes(Shaped(2, 3), "B B")


@pytest.mark.parametrize("x", [None, 3, "B T"])
def test_what_has_no_shape(x: Any) -> None:
    with pytest.raises(AxesError, match="needs something with a shape"):
        check_axes(x, "B T")


def test_what_cannot_be_read() -> None:
    with pytest.raises(AxesError):
        check_axes(Shaped(2, 3), "B (T")


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4), st.permutations([0, 1, 2, 3]))
def test_it_refuses_exactly_what_does_not_fit(shape: list[int], order: list[int]) -> None:
    sizes = dict(zip("BHTD", shape, strict=True))
    moved = Shaped(*(shape[i] for i in order))
    if list(moved.shape) == shape:
        assert check_axes(moved, "B H T D", **sizes) == sizes
    else:
        with pytest.raises(AxisMismatch, match="expected"):
            check_axes(moved, "B H T D", **sizes)


@pytest.mark.parametrize(
    ("x", "axes", "sizes", "words"),
    [
        ("B H T D", torch.zeros(2, 3), {}, "The tensor comes first, then the axes."),
        ((2, 3), "B C", {}, "Give the tensor itself, not its shape."),
        (torch.zeros(2, 3), ["B", "C"], {}, 'axes are one text, such as "B H T D"; this is of type list.'),
        (torch.zeros(2, 3), None, {}, "this is of type NoneType."),
        (torch.zeros(2, 3), "B H", {"h": 3}, "no axis is called h; did you mean H?"),
        (torch.zeros(2, 3), "B H", {"(B H)": 6}, "a size is given for one symbol; (B H) is none."),
        (torch.zeros(2, 3), "B H", {"H": "3"}, "the size of H should be a whole number; it is '3'."),
        (torch.zeros(2, 3), "B H", {"H": 3.0}, "it is 3.0."),
        (torch.zeros(2, 1), "B H", {"H": True}, "it is True."),
        (torch.zeros(2, 3), "B H", {"H": None}, "it is None."),
        (torch.zeros(2, 3), "B H", {"H": -3}, "it is -3."),
    ],
)
def test_a_call_that_cannot_be_meant_is_an_error_of_the_call(x: Any, axes: Any, sizes: Any, words: str) -> None:
    with pytest.raises(AxesError, match=re.escape(words)):
        check_axes(x, axes, **sizes)


def test_axes_without_spaces_and_in_round_brackets() -> None:
    with pytest.raises(AxisMismatch, match="1 axis is expected, there are 4: write spaces between the axes, 'B H T D'"):
        check_axes(torch.zeros(2, 3, 5, 7), "BHTD")
    with pytest.raises(AxisMismatch, match="round brackets join axes into one; leave them out"):
        check_axes(torch.zeros(2, 3, 5, 7), "(B, H, T, D)")


def test_sizes_of_a_whole_trace_may_be_given() -> None:
    """`check_axes(x, "B T C", **t.sizes)`: sizes of symbols that this tensor does not have are let be."""
    assert check_axes(torch.zeros(2, 5, 21), "B T C", C=21, H=3)["T"] == 5
    assert check_axes(torch.zeros(2, 3), "B H", H=torch.tensor(3)) == {"H": 3, "B": 2}
