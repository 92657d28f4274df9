"""Exercises of notebook 14: an image cut into patches, how many there are, a class token in front of them."""

import torch
from torch import Tensor

from ..speech import N_
from .exercise import Case, Draw, Exercise, Fill, Property, known, show, usual_cases
from .quote import rows

__all__ = ["EXERCISES"]

Numbers = dict[str, object]


# ------------------------------------------------------------------ patches


def patches(images: Tensor, P: int) -> Tensor:
    """Cut images into patches of P by P pixels, row by row: [B, R, Y, X] -> [B, N, (R P P)]."""
    B, R, Y, X = images.shape
    x = images.reshape(B, R, Y // P, P, X // P, P)
    x = x.permute(0, 2, 4, 1, 3, 5)  # [B, Y/P, X/P, R, P, P]
    return x.reshape(B, (Y // P) * (X // P), R * P * P)  # [B, N, (R P P)]


def _cut(images: Tensor, P: int, order: tuple[int, ...]) -> Tensor:
    B, R, Y, X = images.shape
    x = images.reshape(B, R, Y // P, P, X // P, P).permute(order)
    return x.reshape(B, (Y // P) * (X // P), R * P * P)


def _strips(images: Tensor, P: int) -> Tensor:
    B, R, Y, X = images.shape
    return images.reshape(B, (Y // P) * (X // P), R * P * P)


def _sizes(n: dict[str, int]) -> dict[str, int]:
    """Return Y and X as multiples of P, at least two rows of three patches; where all sizes are equal, one patch."""
    if len(set(n.values())) == 1 and n["P"] > 1:
        return {}
    return {"Y": max(n["Y"], 2) * n["P"], "X": max(n["X"], 3) * n["P"]}


def _image_cases(draw: Draw) -> list[Case]:
    def build(n: dict[str, int], fill: Fill) -> tuple[Tensor, int]:
        return fill(n["B"], n["R"], n["Y"], n["X"]), n["P"]

    return usual_cases(draw, "B R Y X P", build, derive=_sizes)


def _first_patch(case: Case, got: Tensor) -> Numbers | None:
    images, P = case.args
    corner = images[0, :, :P, :P].double().flatten()
    if bool((got[0, 0].sort().values - corner.sort().values).abs().max() < 0.02):
        return None
    return {"got": show(got[0, 0], 8), "want": show(corner, 8)}


PATCHES = Exercise(
    id="patches",
    notebook="14",
    kind="function",
    question=N_(
        "Write patches(images, P): cut images [B, R, Y, X] into patches of P by P pixels, from left to right, then "
        "down. Each patch becomes one row of R·P·P numbers, channel by channel, as a convolution's kernel [C, R, P, P] "
        "lies in memory. Return [B, N, R·P·P]; P divides Y and X."
    ),
    reference=patches,
    why=N_(
        "Y is cut into (Y/P) P and X into (X/P) P, then what belongs to one patch is brought together at the end. With "
        "this order a linear layer on the rows is a convolution of stride P."
    ),
    hints=(
        N_("Cut Y into two axes and X into two axes first: six axes in all, and no number moves."),
        N_("[B, R, Y/P, P, X/P, P]: which two axes count the patches, which three lie within one?"),
        N_("permute(0, 2, 4, 1, 3, 5), then merge the first two behind B, and the last three."),
    ),
    minutes=8,
    points=3,
    given=("B R Y X", None),
    axes=("B N (R P P)",),
    inputs=_image_cases,
    properties=(
        Property(
            id="patch_0_is_the_corner",
            says=N_(
                "Patch 0 of image 0 holds {got}. It should hold the {P} by {P} pixels of the top left corner, in all "
                "channels: {want}."
            ),
            fails=_first_patch,
        ),
    ),
    mistakes=(
        known(
            "cut_without_permute",
            N_(
                "This is a reshape alone. It takes the numbers in the order of memory, so a patch holds pieces of "
                "pixel rows, not a square: patch 0 begins {got}, and {want} is asked for."
            ),
            _strips,
            numbers=rows,
        ),
        known(
            "channels_last",
            N_(
                "Within a patch the channels come last, pixel by pixel: (P P R). Many write it so, but the kernel [C, "
                "R, P, P] goes channel by channel, (R P P), and weights in one order do not fit the other. Row {at} is "
                "{got}, and {want} is asked for."
            ),
            lambda images, P: _cut(images, P, (0, 2, 4, 3, 5, 1)),
            numbers=rows,
        ),
        known(
            "patches_down_first",
            N_(
                "The patches are taken down the columns first. Row {at} is {got}, and {want} is asked for: from left "
                "to right, then down."
            ),
            lambda images, P: _cut(images, P, (0, 4, 2, 1, 3, 5)),
            numbers=rows,
        ),
        known(
            "pixels_down_first",
            N_(
                "Each patch is turned on its side: its columns are read before its rows. Row {at} is {got}, and {want} "
                "is asked for."
            ),
            lambda images, P: _cut(images, P, (0, 2, 4, 1, 5, 3)),
            numbers=rows,
        ),
        known(
            "grid_and_pixels_exchanged",
            N_(
                "The grid of patches and the pixels within a patch are exchanged: P-th pixels are gathered from all "
                "over the image. Row {at} is {got}, and {want} is asked for. Y is cut as (Y/P) P, the outer part first."
            ),
            lambda images, P: (
                images.unflatten(2, (P, -1))
                .unflatten(4, (P, -1))
                .permute(0, 3, 5, 1, 2, 4)
                .reshape(images.shape[0], -1, images.shape[1] * P * P)
            ),
            numbers=rows,
        ),
        known(
            "channels_apart",
            N_("Every channel makes patches of its own, {shape}. A patch holds all channels of its pixels: {wanted}."),
            lambda images, P: images.unfold(2, P, P).unfold(3, P, P).reshape(images.shape[0], -1, P * P),
        ),
        known(
            "features_before_patches",
            N_("This is [B, R·P·P, N] = {shape}, as F.unfold gives it. The patches come first, like tokens: {wanted}."),
            lambda images, P: patches(images, P).transpose(1, 2),
        ),
        known(
            "grid_not_merged",
            N_("The grid is still two axes, {shape}. N counts the patches of the whole grid: {wanted}."),
            lambda images, P: torch.unflatten(patches(images, P), 1, (images.shape[2] // P, -1)),
        ),
    ),
)


# ------------------------------------------------------------------ add_class_token


def add_class_token(x: Tensor, cls: Tensor) -> Tensor:
    """Put one learned vector in front of the patches of every image: [B, N, C] and [1, 1, C] -> [B, 1+N, C]."""
    B = x.shape[0]
    return torch.cat([cls.expand(B, -1, -1), x], dim=1)  # [B, 1, C], [B, N, C] -> [B, 1+N, C]


ADD_CLASS_TOKEN = Exercise(
    id="add_class_token",
    notebook="14",
    kind="function",
    question=N_(
        "Write add_class_token(x, cls): put the learned vector cls [1, 1, C] in front of the patches x [B, N, C] of "
        "every image. Return [B, 1+N, C]."
    ),
    reference=add_class_token,
    why=N_(
        "One token more, the same for every image until attention fills it. The classes are read from its row alone."
    ),
    hints=(
        N_("A new row, not a sum: the number of tokens grows by 1."),
        N_("cat wants the same B on both sides, and does not broadcast. expand does, without a copy."),
    ),
    minutes=4,
    given=("B N C", "1 1 C"),
    axes=("B 1+N C",),
    inputs=lambda draw: usual_cases(
        draw, "B N C", lambda n, fill: (fill(n["B"], n["N"], n["C"]), draw.normal(1, 1, n["C"]))
    ),
    mistakes=(
        known(
            "class_token_at_the_end",
            N_("The class token stands behind the patches. It comes first: row 0 is where the classes are read."),
            lambda x, cls: torch.cat([x, cls.expand(x.shape[0], -1, -1)], dim=1),
        ),
        known(
            "added_to_every_patch",
            N_("The vector is added to every patch, {shape}. It is a token of its own, one row more: {wanted}."),
            lambda x, cls: x + cls,
        ),
        known(
            "first_patch_replaced",
            N_(
                "The class token takes the place of patch 0, {shape}. No patch is lost: there is one row more, "
                "{wanted}."
            ),
            lambda x, cls: torch.cat([cls.expand(x.shape[0], -1, -1), x[:, 1:]], dim=1),
        ),
        known(
            "zeros_in_front",
            N_("A row of zeros stands in front, or the mean of the patches. The vector to put there is cls."),
            lambda x, cls: torch.cat([torch.zeros_like(x[:, :1]), x], dim=1),
            lambda x, cls: torch.cat([x.mean(dim=1, keepdim=True), x], dim=1),
        ),
        known(
            "not_repeated_for_the_batch",
            N_(
                "cls is [1, 1, C] and x is [B, N, C]: cat joins along one axis and wants the others equal, without "
                "broadcasting. Repeat cls for the batch: cls.expand(B, -1, -1)."
            ),
            lambda x, cls: torch.cat([cls, x], dim=1),
        ),
    ),
)


# ------------------------------------------------------------------ numbers, shape, choice

_Y, _X, _P, _R = 96, 160, 16, 3

NUMBER_OF_PATCHES = Exercise(
    id="number_of_patches",
    notebook="14",
    kind="number",
    question=N_("An image of 96 x 160 pixels in 3 colours is cut into patches of 16 x 16. How many tokens is that?"),
    reference=(_Y // _P) * (_X // _P),
    why=N_("6 rows of 10 patches: 60. The colours make each patch's row longer, not more patches."),
    hints=(
        N_("How many patches fit down, how many across?"),
        N_("Every patch holds all colours of its pixels."),
    ),
    minutes=1,
    mistakes=(
        known("a_token_for_each_pixel", N_("That is one token for each pixel."), _Y * _X),
        known(
            "colours_counted", N_("The colours are counted as patches of their own. A patch holds all three."), _R * 60
        ),
        known("sides_added", N_("Patches down and patches across are added. They make a grid: multiply."), 16),
        known(
            "size_of_a_patch",
            N_("That is how many numbers a patch holds. Asked for is how many patches there are."),
            _P * _P * _R,
            _P * _P,
        ),
        known("divided_once", N_("The pixels are divided by P once only. A patch takes P·P of them."), _Y * _X // _P),
        known("class_token_counted", N_("A class token would make one more; none was added here."), 61),
    ),
)

PATCH_ROWS_SHAPE = Exercise(
    id="patch_rows_shape",
    notebook="14",
    kind="shape",
    question=N_(
        "Images [B, R, Y, X] are cut into N patches of P by P pixels, each flattened to a row. What is the shape, "
        "before the projection to C? Write a merged axis with brackets."
    ),
    reference="B N (R P P)",
    also=("B N (P P R)", "B N (P R P)"),
    why=N_("A row for each patch, R·P·P numbers long: the patches have become what tokens are in a text."),
    hints=(
        N_("What stands in the place of T?"),
        N_("How many numbers has a patch? All its pixels, in all colours."),
    ),
    minutes=2,
    mistakes=(
        known("colours_forgotten", N_("The colours are missing: each pixel has R numbers."), "B N (P P)", "B N P P"),
        known(
            "already_projected",
            N_("That is the shape after the projection. Asked for is the row that goes into it."),
            "B N C",
        ),
        known(
            "patches_behind",
            N_("The patches come before their numbers, as tokens come before features."),
            "B (R P P) N",
            "B (P P R) N",
        ),
        known(
            "not_flattened",
            N_("These are the patches before they are flattened: each is to be one row, R·P·P long."),
            "B N R P P",
            "B N P P R",
        ),
        known(
            "still_an_image",
            N_("That is the image. Its pixels are to be gathered patch by patch."),
            "B R Y X",
            "B R Y/P X/P",
        ),
    ),
)

CLASS_TOKEN_OR_MEAN = Exercise(
    id="class_token_or_mean",
    notebook="14",
    kind="choice",
    question=N_(
        "A vision transformer reads its classes from a class token; another reads them from the mean of all patches. "
        "What does the class token need that the mean does not?"
    ),
    choices={
        "a": N_("nothing: both have the same parameters"),
        "b": N_("a larger head, as it reads from N + 1 vectors"),
        "c": N_("a causal mask, so that it sees no patch"),
        "d": N_("a learned vector, and one position more: T = 1 + N"),
    },
    reference="d",
    why=N_("The token costs C numbers and its position C more. Both ways hand one vector [B, C] to the same head."),
    hints=(
        N_("What is put into the sequence, and what does that do to its length?"),
        N_("How many vectors does the head read, either way?"),
    ),
    minutes=2,
    mistakes=(
        known("the_head_reads_one_vector", N_("The head reads one vector of C numbers either way."), "b"),
        known("it_must_see_the_patches", N_("It has to see all patches: attention fills it with what they hold."), "c"),
        known("a_learned_vector_more", N_("The vector itself is learned, and so is its position."), "a"),
    ),
)


EXERCISES = (PATCHES, NUMBER_OF_PATCHES, PATCH_ROWS_SHAPE, ADD_CLASS_TOKEN, CLASS_TOKEN_OR_MEAN)
