"""Axis names as terms: reading, writing, unifying; no operation is involved."""

import pytest

from tracer.errors import AxesError
from tracer.naming import ONE, Space, Term, parse_axes, size_of


@pytest.fixture
def space() -> Space:
    """Sizes as distinct primes, H·D = C, G divides H."""
    return Space({"H": 6, "D": 7, "G": 3, "M": 11, "V": 13})


def names(space: Space, terms: list[Term]) -> list[str]:
    return [space.name(t) for t in terms]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B T C", ("B", "T", "C")),
        ("[B, T, C]", ("B", "T", "C")),
        ("B (H D) 3C D/2", ("B", "(H D)", "3C", "D/2")),
        ("S+T 1 ? _ *", ("S+T", "1", "?", "?", "?")),
        ("3(H D) (H D)/2 H/G D_k", ("3(H D)", "(H D)/2", "H/G", "D_k")),
        ("block_size C", ("block_size", "C")),
        ("", ()),
    ],
)
def test_parse_axes(text: str, expected: tuple[str, ...]) -> None:
    assert parse_axes(text) == expected


@pytest.mark.parametrize("text", ["B (T", "B T)", "B ((H D))", "B D/0", "B ...", "B T-1", "( )", "3+ T", "B $"])
def test_parse_axes_refuses(text: str) -> None:
    with pytest.raises(AxesError, match=r"axis|bracket|part"):
        parse_axes(text)


def test_sizes_that_follow() -> None:
    assert Space({"C": 48, "H": 3}).sizes["D"] == 16
    assert Space({"H": 3, "D": 16}).sizes["C"] == 48
    assert Space({"C": 48, "D": 16}).sizes["H"] == 3
    assert "D" not in Space({"C": 48, "H": 5}).sizes


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("T", 5),
        ("3C", 126),
        ("D/2", None),
        ("(H D)", 42),
        ("3(H D)", 126),
        ("S+T", None),
        ("1", 1),
        ("?", None),
        ("H/G", 2),
        ("(T+1 H)", 36),
        ("(2 T)", 10),
    ],
)
def test_size_of(term: str, expected: int | None) -> None:
    assert size_of(term, {"T": 5, "H": 6, "D": 7, "G": 3}) == expected


def test_read_and_name_give_back_the_text(space: Space) -> None:
    terms = space.read("B T 3C (G D) D/7 C", (2, 5, 126, 21, 1, 42))
    assert names(space, terms) == ["B", "T", "3C", "(G D)", "D/7", "C"]


def test_product_of_heads_and_head_size_is_the_width(space: Space) -> None:
    _, h, d = space.read("B H D", (2, 6, 7))
    assert space.name(space.product([h, d])) == "C"
    assert space.name(space.product([d, h])) == "(D H)"
    g, rest = space.halves(h) or (ONE, ONE)
    assert names(space, [g, rest, space.product([g, rest])]) == ["G", "H/G", "H"]
    assert space.name(space.product([g, rest, d])) == "C"


def test_width_that_is_no_product_stays_apart() -> None:
    space = Space({"C": 40, "H": 6, "D": 7})
    h, d, c = space.read("H D C", (6, 7, 40))
    assert space.name(space.product([h, d])) == "(H D)"
    assert space.name(c) == "C"


def test_sums(space: Space) -> None:
    s, t, d = space.read("S T D", (3, 5, 7))
    assert space.name(space.sum([s, t])) == "S+T"
    assert space.name(space.sum([t, ONE])) == "T+1"
    half = Space({"D": 8}).read("D", (8,))[0]
    assert space.name(space.sum([space.scaled(half, 1, 2)] * 2)) == "D"
    assert space.name(space.product([space.sum([s, t]), d])) == "(S+T D)"


def test_unify_gives_a_name_also_backwards(space: Space) -> None:
    first, second = space.fresh(5), space.fresh(5)
    merged = space.product([first, space.read("D", (7,))[0]])
    assert space.unify(first, second)
    assert space.name(first) == "?"
    assert space.unify(second, space.read("T", (5,))[0])
    assert space.name(first) == "T"
    assert space.name(merged) == "(T D)"


def test_unify_tells_axes_of_one_size_apart() -> None:
    space = Space({"H": 4, "D": 4, "M": 16})
    t, h, d = space.read("T H D", (4, 4, 4))
    assert not space.unify(t, h)
    assert not space.unify(h, d)
    assert not space.unify(space.read("M", (16,))[0], space.read("C", (16,))[0])
    assert space.unify(space.product([h, d]), space.read("C", (16,))[0])
    assert not space.unify(space.product([d, h]), space.read("C", (16,))[0])


def test_unify_of_different_sizes_is_refused(space: Space) -> None:
    assert not space.unify(space.fresh(5), space.fresh(6))


def test_features_cannot_become_positions(space: Space) -> None:
    made = space.fresh(5, feature=True)
    assert not space.unify(made, space.read("T", (5,))[0])
    assert space.name(made) == "?"


def test_repeated_heads_are_solved_by_division(space: Space) -> None:
    g, h = space.read("G H", (3, 6))
    repeat = space.fresh(2)
    assert space.unify(space.product([g, repeat]), h)
    assert space.name(repeat) == "H/G"


def test_parameter_sizes_give_a_name_only_where_one_is_left() -> None:
    space = Space({"C": 48, "H": 3, "M": 48, "V": 97})
    tie, only, none = space.feature(48), space.feature(97), space.feature(17)
    space.solve()
    assert names(space, [tie, only, none]) == ["?", "V", "?"]
    triple = space.feature(144)
    space.solve()
    assert space.name(triple) == "3C"
    assert space.name(space.feature(1)) == "1"


def test_splits_are_solved_when_the_whole_is_known(space: Space) -> None:
    whole = space.fresh(42)
    parts = [space.fresh(6), space.fresh(7)]
    space.split(whole, parts)
    space.solve()
    assert names(space, parts) == ["?", "?"]
    assert space.unify(whole, space.read("C", (42,))[0])
    space.solve()
    assert names(space, parts) == ["H", "D"]


def test_splits_in_the_other_order_are_not_named(space: Space) -> None:
    parts = [space.fresh(7), space.fresh(6)]
    space.split(space.read("C", (42,))[0], parts)
    space.solve()
    assert names(space, parts) == ["?", "?"]


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("B T", (2, 3, 4), r"names 2 axes, but the tensor has 3: \[2, 3, 4\]"),
        ("B H", (2, 4), r'"H" in "B H" is 6 by the sizes given, but this axis has 4 entries'),
        ("B Q+R", (2, 4), r"the size of Q, R is not known"),
    ],
)
def test_read_explains_what_does_not_fit(space: Space, text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(AxesError, match=message):
        space.read(text, shape)
