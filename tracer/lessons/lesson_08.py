"""Exercises of notebook 08: sinusoids, the rotary turn, learned positions, and what is left without any of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Property, known, show, usual_cases

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ sinusoids


def sinusoids(T: int, C: int) -> Tensor:
    """Return sines and cosines of T positions in turn: [T, C]."""
    t = torch.arange(T).unsqueeze(1)  # [T, 1]
    angles = t / 10000 ** (torch.arange(0, C, 2) / C)  # [T, C/2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # [T, C/2, 2] -> [T, C]


def _in_halves(T: int, C: int) -> Tensor:
    angles = _angles(T, C)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _angles(T: int, C: int, *, power: float = 1.0, start: int = 0, base: float = 10000.0) -> Tensor:
    t = torch.arange(start, T + start).unsqueeze(1)
    return t / base ** (power * torch.arange(0, C, 2) / C)


def _tables(angles: Callable[[int, int], Tensor]) -> tuple[Callable[[int, int], Tensor], ...]:
    """Return a table made of these angles in both layouts, in turn and in halves."""
    return (
        lambda T, C: torch.stack([angles(T, C).sin(), angles(T, C).cos()], dim=-1).flatten(1),
        lambda T, C: torch.cat([angles(T, C).sin(), angles(T, C).cos()], dim=-1),
    )


def _each_feature_its_own(T: int, C: int, power: float) -> Tensor:
    angles = torch.arange(T).unsqueeze(1) / 10000 ** (power * torch.arange(C) / C)  # [T, C]
    return torch.where(torch.arange(C) % 2 == 0, angles.sin(), angles.cos())


def _each_feature_its_own_in_halves(T: int, C: int) -> Tensor:
    angles = torch.arange(T).unsqueeze(1) / 10000 ** (torch.arange(C) / C)
    return torch.cat([angles[:, : C // 2].sin(), angles[:, C // 2 :].cos()], dim=-1)


def _cosine_first(T: int, C: int) -> Tensor:
    return torch.stack([_angles(T, C).cos(), _angles(T, C).sin()], dim=-1).flatten(1)


def _cosine_half_first(T: int, C: int) -> Tensor:
    return torch.cat([_angles(T, C).cos(), _angles(T, C).sin()], dim=-1)


def _sinusoid_cases(draw: Draw) -> list[Case]:
    lengths, widths = (draw.sizes("X Y R") for _n in range(2))
    pairs = [(lengths[x] + 2, 2 * widths[x] + 2) for x in "XYR"] + [(4, 4), (1, 2)]
    return [Case((T, C), {"T": T, "C": C}) for T, C in pairs]


def _pair_off_the_circle(case: Case, got: Tensor) -> Numbers | None:
    """In either layout each pair of features is the sine and the cosine of one angle: their squares add up to 1."""
    _T, C = case.args
    layouts = {(0, 1): (got[:, 0::2], got[:, 1::2]), (0, C // 2): (got[:, : C // 2], got[:, C // 2 :])}
    totals = {pair: sine.square() + cosine.square() for pair, (sine, cosine) in layouts.items()}
    if any(bool((total - 1).abs().max() < 0.01) for total in totals.values()):
        return None
    total = totals[(0, 1)]
    t, i = [int(n) for n in ((total - 1).abs() > 0.01).nonzero()[0]]
    return {"t": t, "i": 2 * i, "j": 2 * i + 1, "sum": f"{total[t, i].item():.3f}"}


def _second_row(case: Case, got: Any, want: Any) -> Numbers:
    return {"row": show(got[min(1, len(got) - 1)])}


SINUSOIDS = Exercise(
    id="sinusoids",
    notebook="08",
    kind="function",
    question=N_(
        "Write sinusoids(T, C) for positions t = 0 ... T-1 and an even C: feature 2i is sin(t / 10000^(2i/C)) and "
        "feature 2i+1 the cosine of the same angle. All sines first and then all cosines is accepted too. Return [T, "
        "C]."
    ),
    reference=sinusoids,
    also=(_in_halves,),
    why=N_(
        "Each pair of features is a hand of a clock, and each pair turns more slowly than the one before. Nothing is "
        "learned, and any position has a row."
    ),
    hints=(
        N_("There are C/2 angles for each position, and each is used twice: once by sin, once by cos."),
        N_("torch.arange(0, C, 2) already holds 2i: the exponent is that divided by C."),
        N_("angles = t / 10000 ** (torch.arange(0, C, 2) / C) with t as a column [T, 1] is [T, C/2]."),
    ),
    minutes=8,
    points=2,
    review=8,
    given=(None, None),
    axes=("T C",),
    inputs=_sinusoid_cases,
    properties=(
        Property(
            id="sine_and_cosine_share_an_angle",
            says=N_(
                "At t={t} the squares of features {i} and {j} add up to {sum}. A sine and a cosine of the same angle "
                "add up to 1 in squares, at every position and for every pair."
            ),
            fails=_pair_off_the_circle,
        ),
    ),
    mistakes=(
        known(
            "posenc_exponent_doubled",
            N_(
                "The two features of a pair turn at different speeds, or twice as fast down the row as asked: the "
                "exponent was doubled. A loop variable that runs 0, 2, 4, ... already IS 2i. Sine and cosine share "
                "the exponent 2i/C. Your row t=1 is {row}."
            ),
            lambda T, C: _each_feature_its_own(T, C, 2.0),
            *_tables(lambda T, C: _angles(T, C, power=2.0)),
            numbers=_second_row,
        ),
        known(
            "each_feature_has_its_own_angle",
            N_(
                "Each feature has an angle of its own: the cosine uses the exponent (2i+1)/C. It belongs to the same "
                "angle as the sine before it, 2i/C: only then is the pair a point on a circle. Your row t=1 is {row}."
            ),
            lambda T, C: _each_feature_its_own(T, C, 1.0),
            _each_feature_its_own_in_halves,
            numbers=_second_row,
        ),
        known(
            "exponent_halved",
            N_(
                "The exponent is i/C where 2i/C is asked for: the number of the pair was taken, not of its first "
                "feature. The last pair turns at nearly 1/10000; yours stops at 1/100. Your row t=1 is {row}."
            ),
            *_tables(lambda T, C: _angles(T, C, power=0.5)),
            numbers=_second_row,
        ),
        known(
            "cosine_before_sine",
            N_(
                "Sine and cosine have changed places: at t=0 yours begins with {got}. Even features hold sines, so row "
                "0 begins with 0, and 1 comes second (or in the second half)."
            ),
            _cosine_first,
            _cosine_half_first,
        ),
        known(
            "positions_from_1",
            N_(
                "Your positions begin with 1. Row 0 belongs to t = 0, where every sine is 0 and every cosine 1; yours "
                "holds {got} at {place}."
            ),
            *_tables(lambda T, C: _angles(T, C, start=1)),
        ),
        known(
            "multiplied_instead_of_divided",
            N_(
                "t is multiplied with 10000^(2i/C), so the later pairs race round the circle. It is divided: the later "
                "pairs turn slowly. Your row t=1 is {row}."
            ),
            *_tables(lambda T, C: _angles(T, C, power=-1.0)),
            numbers=_second_row,
        ),
        known(
            "one_speed_for_all_pairs",
            N_(
                "All pairs turn at the same speed, so that all hold the same two numbers. Pair i turns by "
                "1 / 10000^(2i/C) for each position."
            ),
            *_tables(lambda T, C: _angles(T, C, power=0.0)),
        ),
        known(
            "sines_alone",
            N_("Every feature is a sine. Each angle is used twice, once by sin and once by cos."),
            lambda T, C: _angles(T, C).sin().repeat_interleave(2, dim=1),
            lambda T, C: _angles(T, C).sin().repeat(1, 2),
        ),
        known(
            "table_lies_on_its_side",
            N_("This is [C, T] = {shape}. One row for each position is asked for, [T, C] = {wanted}."),
            lambda T, C: sinusoids(T, C).T,
            lambda T, C: _in_halves(T, C).T,
        ),
    ),
)


# ------------------------------------------------------------------ rotary


def rotary(x: Tensor) -> Tensor:
    """Turn each pair of features (i, i + D/2) of position t by t / 10000^(2i/D): [B, H, T, D] -> the same."""
    T, D = x.shape[-2:]
    angles = torch.arange(T).unsqueeze(1) / 10000 ** (torch.arange(0, D, 2) / D)  # [T, D/2]
    a, b = x.chunk(2, dim=-1)  # 2 x [B, H, T, D/2]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


def _turn_in_turn(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    turned = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(turned, dim=-1).flatten(-2)


def _both(angles: Callable[[Tensor], Tensor]) -> tuple[Callable[[Tensor], Tensor], ...]:
    """Return the turn by these angles in both layouts."""
    return lambda x: _turn(x, angles(x)), lambda x: _turn_in_turn(x, angles(x))


def _of_x(x: Tensor) -> Tensor:
    return _angles(x.shape[-2], x.shape[-1])


def _rotary_in_turn(x: Tensor) -> Tensor:
    return _turn_in_turn(x, _of_x(x))


def _half_turned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


def _neighbours_turned(x: Tensor) -> Tensor:
    return torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)


def _mixed(x: Tensor) -> Tensor:
    angles = _of_x(x).repeat_interleave(2, dim=-1)
    return x * angles.cos() + _half_turned(x) * angles.sin()


def _mixed_the_other_way(x: Tensor) -> Tensor:
    angles = _of_x(x).repeat(1, 2)
    return x * angles.cos() + _neighbours_turned(x) * angles.sin()


def _without_minus(x: Tensor) -> Tensor:
    a, b, angles = *x.chunk(2, dim=-1), _of_x(x)
    return torch.cat([a * angles.cos() + b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def _without_minus_in_turn(x: Tensor) -> Tensor:
    a, b, angles = x[..., 0::2], x[..., 1::2], _of_x(x)
    kept = [a * angles.cos() + b * angles.sin(), b * angles.cos() + a * angles.sin()]
    return torch.stack(kept, dim=-1).flatten(-2)


def _wave_added(x: Tensor) -> Tensor:
    return x + sinusoids(*x.shape[-2:])


def _wave_added_in_halves(x: Tensor) -> Tensor:
    return x + _in_halves(*x.shape[-2:])


def _times_cos_and_sin(x: Tensor) -> Tensor:
    angles = _of_x(x).repeat(1, 2)
    return x * angles.cos() + x * angles.sin()


def _times_cos_and_sin_in_turn(x: Tensor) -> Tensor:
    angles = _of_x(x).repeat_interleave(2, dim=-1)
    return x * angles.cos() + x * angles.sin()


def _by_head(x: Tensor) -> Tensor:
    return rotary(x.transpose(1, 2)).transpose(1, 2)


def _by_head_in_turn(x: Tensor) -> Tensor:
    return _rotary_in_turn(x.transpose(1, 2)).transpose(1, 2)


def _first_half_alone(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * _of_x(x).cos() - b * _of_x(x).sin(), b], dim=-1)


def _length_of_a_token(case: Case, got: Tensor) -> Numbers | None:
    x = case.args[0].double()
    now, before = got.norm(dim=-1), x.norm(dim=-1)
    wrong = ((now - before).abs() > 0.02 * (1 + before)).nonzero()
    if not len(wrong):
        return None
    b, h, t = wrong[0].tolist()
    return {"b": b, "h": h, "t": t, "now": f"{now[b, h, t].item():.4g}", "before": f"{before[b, h, t].item():.4g}"}


ROTARY = Exercise(
    id="rotary",
    notebook="08",
    kind="function",
    question=N_(
        "Write rotary(x) for x [B, H, T, D], D even: at position t (from 0) each pair (a, b) of features is turned by "
        "the angle t / 10000^(2i/D) to (a cos - b sin, a sin + b cos), i being the number of the pair. The pairs may "
        "be features i and i + D/2, or 2i and 2i + 1: either layout, but one and the same throughout."
    ),
    reference=rotary,
    also=(_rotary_in_turn,),
    why=N_(
        "A turn keeps lengths. Turned by m and n, a query and a key meet at the angle between them plus (n - m) times "
        "the speed of each pair: the score depends on the distance, not on the place."
    ),
    hints=(
        N_("Make the angles first, [T, D/2]; they line up with the last two axes of half of x."),
        N_("Cut x into the first and the second member of each pair: x.chunk(2, dim=-1), or x[..., 0::2] and 1::2."),
        N_("(a cos - b sin, a sin + b cos), put back in the order in which you cut: cat for halves, stack in turn."),
    ),
    minutes=10,
    points=3,
    review=8,
    given=("B H T D",),
    axes=("B H T D",),
    inputs=lambda draw: usual_cases(
        draw,
        "B T H D",
        lambda n, fill: (draw.normal(n["B"], n["H"], n["T"], n["D"]),),
        derive=lambda n: {"D": 2 * n["D"], "C": 2 * n["H"] * n["D"]} if n["D"] % 2 or n["D"] == 2 else {},
    ),
    properties=(
        Property(
            id="a_turn_keeps_the_length",
            says=N_(
                "In sentence {b}, head {h}, the vector at t={t} had the length {before} and now has {now}. A turn "
                "changes no length."
            ),
            fails=_length_of_a_token,
        ),
    ),
    mistakes=(
        known(
            "layouts_mixed",
            N_(
                "Two layouts are mixed: the angles are laid out for one kind of pair, the features are paired the "
                "other way. With the angles repeated as 1 1 2 2 the pairs are neighbours, with 1 2 1 2 they are i and "
                "i + D/2. As it is, the two members of a pair turn by different angles, and no length is kept."
            ),
            _mixed,
            _mixed_the_other_way,
        ),
        known(
            "turned_the_other_way",
            N_(
                "Each pair turns the other way: this is (a cos + b sin, b cos - a sin). Scores between q and k turned "
                "like that depend on distances all the same, but weights trained with the usual turn would not fit."
            ),
            *_both(lambda x: -_of_x(x)),
        ),
        known(
            "minus_forgotten",
            N_(
                "One sign is missing: (a cos + b sin, b cos + a sin) is no turn, and lengths change. The first member "
                "is a cos - b sin."
            ),
            _without_minus,
            _without_minus_in_turn,
        ),
        known(
            "partner_forgotten",
            N_(
                "x cos + x sin stretches each feature by itself. In a turn the sine goes with the partner in the pair: "
                "a cos - b sin."
            ),
            _times_cos_and_sin,
            _times_cos_and_sin_in_turn,
        ),
        known(
            "positions_along_the_heads",
            N_(
                "The angle grows along axis 1, which is H: every head turns by its own number, and all tokens of a "
                "head alike. The position is T, axis 2."
            ),
            _by_head,
            _by_head_in_turn,
        ),
        known(
            "positions_from_1",
            N_(
                "Your positions begin with 1. The token at t = 0 is not turned at all; yours is. Between q and k only "
                "the distance counts, so this is harmless until a model counts from 0."
            ),
            *_both(lambda x: _angles(x.shape[-2], x.shape[-1], start=1)),
        ),
        known(
            "one_speed_for_all_pairs",
            N_(
                "All pairs turn by the same angle t. Pair i turns by t / 10000^(2i/D): the first pairs fast, the last "
                "ones slowly."
            ),
            *_both(lambda x: _angles(x.shape[-2], x.shape[-1], power=0.0)),
        ),
        known(
            "exponent_wrong_by_two",
            N_(
                "The exponent is off by a factor of 2. For pair i of D/2 it is 2i/D, so torch.arange(0, D, 2) / D, and "
                "the number of the pair alone or twice that range is not it."
            ),
            *_both(lambda x: _angles(x.shape[-2], x.shape[-1], power=2.0)),
            *_both(lambda x: _angles(x.shape[-2], x.shape[-1], power=0.5)),
        ),
        known(
            "added_instead_of_turned",
            N_(
                "Sines and cosines are ADDED to x: that is the sinusoidal encoding of the paper of 2017. Rotary "
                "positions multiply: they turn what is there."
            ),
            _wave_added,
            _wave_added_in_halves,
        ),
        known(
            "second_member_not_turned",
            N_("The first member of each pair is turned, the second is left as it was. Both change: a sin + b cos."),
            _first_half_alone,
        ),
    ),
)


# ------------------------------------------------------------------ numbers and choices

LEARNED_POSITIONS = Exercise(
    id="learned_positions",
    notebook="08",
    kind="number",
    question=N_(
        "GPT-2 learns its positions: block_size = 1024, C = 768, 12 blocks, V = 50257. How many parameters does this "
        "cost, compared with sinusoids?"
    ),
    reference=1024 * 768,
    why=N_(
        "One learned row of C numbers for each of 1024 positions: 786,432. Sinusoids and rotary turns are computed and "
        "cost none."
    ),
    hints=(
        N_("Positions are looked up in a table as tokens are. How many rows has it, how many columns?"),
        N_("The table is read once, before the first block."),
    ),
    minutes=2,
    review=8,
    mistakes=(
        known("computed_not_learned", N_("That is what sinusoids cost, which are computed. A table is learned."), 0),
        known(
            "table_of_the_tokens",
            N_("That is the table of the tokens, V rows. The table of the positions has block_size rows."),
            50257 * 768,
        ),
        known("one_number_for_each_position", N_("That is one number for each position. Each has C numbers."), 1024),
        known("one_position", N_("That is the vector of one position. There are block_size of them."), 768),
        known(
            "a_table_in_each_block",
            N_("That is a table in each block. Learned positions are added once, before the first block."),
            12 * 1024 * 768,
        ),
    ),
)

WHERE_ROTARY_ACTS = Exercise(
    id="where_rotary_acts",
    notebook="08",
    kind="choice",
    question=N_("Where do rotary positions (RoPE) enter a model?"),
    choices={
        "a": N_("A vector for each position is added to the token embeddings."),
        "b": N_("q and k are turned, in every attention layer."),
        "c": N_("q, k and v are turned, in every attention layer."),
        "d": N_("The token embeddings are turned once, before the first block."),
    },
    reference="b",
    why=N_(
        "Only q and k meet in a product, so only there does a turn become a distance. v is what is handed on, and the "
        "stream itself knows no positions."
    ),
    hints=(
        N_("Where does the product of two turned vectors depend on the difference of their angles?"),
        N_("Which of q, k and v enter the scores?"),
    ),
    minutes=1,
    review=8,
    mistakes=(
        known(
            "sinusoids_and_learned_ones_are_added",
            N_("Sinusoids and learned positions do that. RoPE adds no vector."),
            "a",
        ),
        known(
            "values_are_not_turned",
            N_("v does not enter the scores. A turned v would carry its own position into the sum, not a distance."),
            "c",
        ),
        known(
            "embeddings_are_not_turned",
            N_("The next projection would mix the turned pairs. The turn comes after the projections, in each layer."),
            "d",
        ),
    ),
)

SAME_DISTANCE = Exercise(
    id="same_distance",
    notebook="08",
    kind="number",
    question=N_(
        "A query vector q and a key vector k, turned by RoPE at positions 7 and 3, have a certain score. The same q "
        "stands at position 12 now. At which position must the same k stand for the same score?"
    ),
    reference=8,
    why=N_("The score depends on n - m alone: 3 - 7 = 8 - 12. Both may move, if they move together."),
    hints=(
        N_("Turned by m and by n, the product holds the angle (n - m) times the speed."),
        N_("The key stood 4 positions before the query."),
    ),
    minutes=2,
    review=8,
    mistakes=(
        known("key_stays", N_("At 3 the key would be 9 before the query. It was 4 before it."), 3),
        known(
            "distance_without_direction",
            N_("The distance is 4 again, but the key stands behind the query. The sign of n - m counts."),
            16,
        ),
        known("same_position", N_("There the distance is 0. It was 4."), 12),
        known("distance_itself", N_("That is the distance. Asked for is the position of the key."), 4),
    ),
)

ORDER_WITHOUT_POSITIONS = Exercise(
    id="order_without_positions",
    notebook="08",
    kind="choice",
    question=N_(
        "A self-attention layer has no positions and no mask. You hand in the same tokens in another order. What comes "
        "out?"
    ),
    choices={
        "a": N_("The same vectors, in the old order."),
        "b": N_("The same vectors, in the same other order."),
        "c": N_("Other vectors: each token has other neighbours now."),
        "d": N_("The same vectors, but only if there is a causal mask."),
    },
    reference="b",
    why=N_(
        "Each token's output is a weighted sum over the same set, whoever stands where: permutation equivariance. A "
        "causal mask breaks it, because then the set depends on the place."
    ),
    hints=(
        N_("Take the output of one token as a weighted sum. Which of its terms changes when the others change places?"),
        N_("A sum does not depend on the order of its terms, but row t of the result belongs to token t."),
    ),
    minutes=2,
    review=8,
    mistakes=(
        known(
            "invariance_is_not_equivariance",
            N_("Row t of the output belongs to the token in row t of the input: it moves along with its token."),
            "a",
        ),
        known(
            "neighbours_do_not_count",
            N_("Nothing in the layer knows who stands beside whom: all tokens are in the sum, wherever they stand."),
            "c",
        ),
        known(
            "a_mask_breaks_it",
            N_("It is the other way round: with a causal mask a token that moves sees another set of tokens."),
            "d",
        ),
    ),
)


EXERCISES = (SINUSOIDS, ROTARY, LEARNED_POSITIONS, WHERE_ROTARY_ACTS, SAME_DISTANCE, ORDER_WITHOUT_POSITIONS)
