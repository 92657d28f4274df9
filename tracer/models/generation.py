"""How the next token is drawn from its scores; the loop itself is `GPT.stream`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .inputs import check_positive

__all__ = ["check_draw", "choose", "evaluating"]


def choose(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None, logits: Tensor
) -> Tensor:
    """Return one token id `[B, 1]` for each row of logits `[B, V]`: temperature first, then top-k, then top-p."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]  # [B, V] -> [B, k] -> [B, 1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p is not None:
        ranked, order = F.softmax(logits, dim=-1).sort(dim=-1, descending=True)  # [B, V] -> 2 x [B, V]
        # A token stays while those before it have not reached top_p; the likeliest always does.
        rare = ranked.cumsum(dim=-1) - ranked >= top_p
        rare[:, 0] = False
        logits = logits.masked_fill(torch.zeros_like(rare).scatter(-1, order, rare), float("-inf"))
    return torch.multinomial(F.softmax(logits, dim=-1), 1, generator=generator)


def check_draw(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError for a number of tokens or a choice that draws nothing."""
    for name, value in (("max_new_tokens", max_new_tokens), ("temperature", temperature)):
        if not value >= 0:
            raise ValueError(f"{name}={value} is below 0. Give 0 or more.")
    if top_k is not None:
        check_positive(top_k=top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} is no share of the probability. Give a number above 0, up to 1.")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, and afterwards for each module the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
