"""Shapes as learners write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.errors import AxesError
from tracer.lessons.shapes import read, write

BTC = read("B T C")[0]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "B T C",
            "[B, T, C]",
            "B,T,C",
            "(B, T, C)",
            "(B T C)",
            "BTC",
            "btc",
            "b t c",
            " [ B , T , C ] ",
            "B; T; C",
            "B|T|C",
        ),
        *("B T (H D)", "B T H*D", "B, T, H·D", "[B, T, [H, D]]", "B T HD", "torch.Size([B, T, C])", "Size([B, T, C])"),
        *("B x T x C", "BxTxC", "B\u00d7T\u00d7C", "[B x T x C]"),
    ],
)
def test_equivalent_writings_of_one_shape(text: str) -> None:
    assert BTC in read(text)


@pytest.mark.parametrize("text", ["B T D_v", "[B, T, d_v]", "b t dv", "B,T,Dv", "BxTxD_v", ("B T D_V")])
def test_head_sizes_of_keys_and_values(text: str) -> None:
    assert read("B T D_v")[0] in read(text)
    assert read("B T D_k")[0] not in read(text) and read("B T D")[0] not in read(text)


def test_several_heads_of_another_size_are_not_the_width() -> None:
    assert write(read("B T (H D_v)")[0]) == "[B, T, (H D_v)]" != write(read("B T (H D)")[0]) == "[B, T, C]"


@pytest.mark.parametrize("text", ["B T (D H)", "B C T", "B T", "B T C 1", "B T 3C", "[(B T) C]", "B T D", "[(B T C)]"])
def test_other_shapes_are_not_taken_for_it(text: str) -> None:
    assert BTC not in read(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *(("B T 3*C", "[B, T, 3C]"), ("B T 3(H D)", "[B, T, 3C]"), ("3C", "[3C]"), ("B H T C//H", "[B, H, T, D]")),
        *(("B H T C / H", "[B, H, T, D]"), ("D/2", "[D/2]"), ("B T (D H)", "[B, T, (D H)]"), ("[(B T)]", "[(B T)]")),
        *(
            ("[]", "[]"),
            ("( )", "[]"),
            ("1 T C", "[1, T, C]"),
            ("B/B", "[1]"),
            ("[1]", "[1]"),
            ("(B T) V", "[(B T), V]"),
            ("B*T, V", "[(B T), V]"),
        ),
    ],
)
def test_written_as_the_traces_write(text: str, written: str) -> None:
    assert write(read(text)[0]) == written


@pytest.mark.parametrize("text", ["(B T)V", "(BT)V", "(B\u2219T) V", "B\u22c5T, V", "B\u00b7T V"])
def test_a_merged_axis_in_other_writings(text: str) -> None:
    assert read("(B T) V")[0] in read(text)


def test_round_brackets_alone_have_two_readings() -> None:
    assert [write(axes) for axes in read("(B T)")] == ["[B, T]", "[(B T)]"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        *(
            ("2 5 12", "letters"),
            ("batch T C", "batch"),
            ("B T ?", "“?”"),
            ("B T (", "“(”"),
            ("S+T", "+"),
            ("C/0", "C/0"),
            ("B C/(0 H)", "C/(0 H)"),
            ("2B/B", "letters"),
        ),
        *(("B T )", "“)”"), ("W", "W"), ("B T " * 100, "B T B T"), ("B ((H D) T)", "(")),
    ],
)
def test_what_cannot_be_read_is_quoted(text: str, part: str) -> None:
    with pytest.raises(AxesError) as caught:
        read(text)
    assert part in str(caught.value)


@settings(max_examples=300)
@given(st.text(alphabet="BTCHDx0123()[]*/, ·?+", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = read(text)
    except AxesError:
        return
    assert readings[0] in read(write(readings[0])), "what is written can be read again"
