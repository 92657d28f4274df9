"""Exercises of notebook 10: parameters counted, the loss of an untrained model, the logits laid out for the loss."""

import math

from ..speech import N_
from .exercise import Exercise, Mistake

__all__ = ["EXERCISES", "gpt_parameters"]


def gpt_parameters(
    *, n_layer: int, n_embd: int, vocab_size: int, block_size: int, bias: bool = True, tied: bool = False
) -> int:
    """Return how many numbers a GPT of minGPT's architecture learns.

    Tables [V, C] and [block, C]; in each block two layer norms, c_attn [3C, C], c_proj [C, C], c_fc [4C, C] and
    c_proj [C, 4C]; a last layer norm; the head [V, C], without bias. `bias=False` leaves the biases of the linear
    layers out, `tied=True` counts the head as the token table.
    """
    C = n_embd
    norm = 2 * C
    linear = 3 * C * C + C * C + 4 * C * C + 4 * C * C
    biases = 3 * C + C + 4 * C + C if bias else 0
    head = 0 if tied else vocab_size * C
    return vocab_size * C + block_size * C + n_layer * (2 * norm + linear + biases) + norm + head


# ------------------------------------------------------------------ count_parameters

_LAYERS, _WIDTH, _VOCABULARY, _BLOCK = 3, 48, 10, 8


def _count(layers: int = _LAYERS, bias: bool = True, tied: bool = False) -> int:
    return gpt_parameters(
        n_layer=layers, n_embd=_WIDTH, vocab_size=_VOCABULARY, block_size=_BLOCK, bias=bias, tied=tied
    )


_TOTAL = _count()
_NORMS = (2 * _LAYERS + 1) * 2 * _WIDTH
_MASKS = _LAYERS * _BLOCK * _BLOCK

COUNT_PARAMETERS = Exercise(
    id="count_parameters",
    notebook="10",
    kind="number",
    question=N_(
        "How many parameters has the GPT with n_layer = 3, n_head = 3, n_embd = 48, vocab_size = 10, block_size = 8? "
        "Its head has weights of its own and no bias. Count by hand or by code."
    ),
    reference=_TOTAL,
    why=N_(
        "Two tables, three blocks, one last layer norm and the head. n_head does not enter: with C held, heads cost "
        "no parameters."
    ),
    hints=(
        N_("Go through the state dict: tables, then one block, then what comes after the blocks."),
        N_(
            "One block has four linear layers with biases, 3C + C + 4C + C outputs in all, and two layer norms of 2C "
            "each."
        ),
        N_("In code: add up p.numel() over model.parameters()."),
    ),
    minutes=6,
    points=2,
    mistakes=(
        Mistake(
            id="biases_forgotten",
            wrong=(_count(bias=False), _count(bias=False) - _NORMS // 2),
            says=N_(
                "The biases are missing. A linear layer [out, in] has out·in weights and out biases; only the head "
                "has none."
            ),
        ),
        Mistake(
            id="head_forgotten",
            wrong=(_count(tied=True),),
            says=N_(
                "The head is missing, or was counted as the token table. In minGPT lm_head has V·C weights of its own."
            ),
        ),
        Mistake(
            id="layer_norms_forgotten",
            wrong=(_TOTAL - _NORMS,),
            says=N_(
                "The layer norms are missing: two in each block and one at the end, each with C weights and C biases."
            ),
        ),
        Mistake(
            id="last_layer_norm_forgotten",
            wrong=(_TOTAL - 2 * _WIDTH,),
            says=N_("The layer norm after the last block is missing: 2C numbers."),
        ),
        Mistake(
            id="positions_forgotten",
            wrong=(_TOTAL - _BLOCK * _WIDTH,),
            says=N_("The table of positions is missing: block_size rows of C numbers, which GPT learns."),
        ),
        Mistake(
            id="masks_counted",
            wrong=(_TOTAL + _MASKS,),
            says=N_("The causal masks are in the state dict but are not learned: they are buffers, not parameters."),
        ),
        Mistake(
            id="one_block_counted",
            wrong=(_count(layers=1),),
            says=N_("Only one block is counted. There are n_layer of them, each with parameters of its own."),
        ),
    ),
)


# ------------------------------------------------------------------ loss_at_start

LOSS_AT_START = Exercise(
    id="loss_at_start",
    notebook="10",
    kind="number",
    question=N_(
        "An untrained GPT gives all V = 10 tokens about the same probability. Near which value does the "
        "cross-entropy loss begin? "
        "Two digits after the point are enough."
    ),
    reference=math.log(_VOCABULARY),
    tolerance=0.05,
    why=N_(
        "The loss is -ln of the probability of the right token. With 1/V for each that is ln V: here ln 10, about 2.30."
    ),
    hints=(
        N_("Which probability does the right token get when all V are equally likely?"),
        N_("Cross-entropy is minus the natural logarithm of that probability."),
    ),
    minutes=2,
    mistakes=(
        Mistake(
            id="logarithm_to_base_2",
            wrong=(math.log2(_VOCABULARY),),
            says=N_("That is log₂ V, the loss in bits. torch's cross_entropy uses the natural logarithm."),
        ),
        Mistake(
            id="logarithm_to_base_10",
            wrong=(math.log10(_VOCABULARY),),
            says=N_("That is log₁₀ V. torch's cross_entropy uses the natural logarithm: math.log in Python."),
        ),
        Mistake(
            id="probability_instead_of_loss",
            wrong=(1 / _VOCABULARY,),
            says=N_("That is the probability 1/V itself. The loss is minus its logarithm."),
        ),
        Mistake(
            id="sign_forgotten",
            wrong=(-math.log(_VOCABULARY),),
            says=N_("The sign is missing: the logarithm of a probability is negative, and the loss is minus that."),
        ),
        Mistake(
            id="a_guess_is_not_free",
            wrong=(0.0,),
            says=N_(
                "A loss of 0 means that the right token is predicted with certainty. An untrained model is far from "
                "that."
            ),
        ),
        Mistake(
            id="vocabulary_size_itself",
            wrong=(float(_VOCABULARY),),
            says=N_("That is V itself: e to the loss, which is called perplexity. The loss is its logarithm."),
        ),
    ),
)


# ------------------------------------------------------------------ flat_logits

FLAT_LOGITS = Exercise(
    id="flat_logits",
    notebook="10",
    kind="shape",
    question=N_("The logits are [B, T, V]. Which shape do they have when they enter the loss as one row per token?"),
    reference="(B T) V",
    why=N_("view(-1, V) reads batch and positions as one axis: B·T rows, each with V scores for one target."),
    hints=(
        N_("Each row is one prediction. How many predictions does a batch hold?"),
        N_("A merged axis is written with brackets: (B T), B outside and T inside."),
    ),
    minutes=2,
    mistakes=(
        Mistake(
            id="not_flattened",
            wrong=("B T V",),
            says=N_(
                "That is how the logits leave the model. For the loss B and T are read as one axis; write it as (B T)."
            ),
        ),
        Mistake(
            id="vocabulary_merged_too",
            wrong=("[(B T V)]", "B (T V)"),
            says=N_("V must stay an axis of its own: the softmax of the loss runs over it, one row for each token."),
        ),
        Mistake(
            id="classes_before_rows",
            wrong=("V (B T)", "B V T"),
            says=N_(
                "V comes last here: view(-1, V) keeps the last axis. Only an unflattened input to cross_entropy has "
                "its classes second."
            ),
        ),
        Mistake(
            id="merged_the_other_way",
            wrong=("(T B) V",),
            says=N_(
                "(T B) would put the first tokens of all sentences first. view reads memory in order: sentence by "
                "sentence, so (B T)."
            ),
        ),
        Mistake(
            id="shape_of_the_targets",
            wrong=("B T", "[(B T)]"),
            says=N_("That is the shape of the targets, one id per token. The logits have V numbers per token."),
        ),
        Mistake(
            id="width_instead_of_vocabulary",
            wrong=("(B T) C",),
            says=N_("C is the width before the head. The head turns C numbers into V scores."),
        ),
    ),
)


EXERCISES = (COUNT_PARAMETERS, LOSS_AT_START, FLAT_LOGITS)
