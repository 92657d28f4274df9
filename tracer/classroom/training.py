"""A training loop for class: seeded, with a progress bar, on the device found, and stopped at any time without loss."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from tqdm.auto import tqdm

from ..devices import device as found_device

__all__ = ["train"]


def train(
    model: nn.Module,
    batch: Callable[[int, Generator], dict[str, Tensor]],
    *,
    steps: int,
    size: int = 64,
    lr: float = 1e-3,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> list[float]:
    """Train `model` in place with AdamW and return the loss of each step, in nats.

    The same seed gives the same batches and dropout on every run; torch's own random state is left as it was. Ctrl-C,
    or the notebook's stop button, ends the training and nothing else: the model keeps what it has learned, and the
    losses so far are returned. Afterwards the model is in evaluation mode, on `device`.

    Args:
        model: called as `model(**batch)`; returns `(logits, loss)`.
        batch: `task.batch`, or any function of a batch size and a generator.
        steps: how many batches.
        size: B, examples in a batch.
        lr: the highest learning rate: it rises over the first tenth of the steps and falls towards zero.
        seed: for the batches and for dropout.
        device: where to train; None: `tracer.device()`.
        progress: show a bar.

    Raises:
        ValueError: fewer than one step or example, or a loss that is no number.
    """
    if steps < 1 or size < 1:
        raise ValueError(f"steps={steps}, size={size}: training takes at least one step on one example.")
    where = torch.device(device) if device is not None else found_device()
    generator = Generator().manual_seed(seed)  # on the CPU: the same batches on every device
    model.to(where).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses: list[float] = []
    bar = tqdm(range(steps), disable=not progress, desc="training", unit="step")
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []), bar:
        torch.manual_seed(seed)
        try:
            for step in bar:
                optimizer.param_groups[0]["lr"] = lr * _share(step, steps)
                inputs = {name: x.to(where) for name, x in batch(size, generator).items()}
                _, loss = model(**inputs)
                losses.append(_learn(model, loss, optimizer))
                bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
        except KeyboardInterrupt:
            bar.write(f"Stopped after {len(losses)} of {steps} steps. The model keeps what it has learned.")
        finally:
            model.eval()
    return losses


def _share(step: int, steps: int) -> float:
    """Return the share of the highest rate: up in a straight line for a tenth of the steps, then down as a cosine."""
    return min(1.0, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2


def _learn(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> float:
    """Take one step down the gradient and return the loss before it."""
    number = loss.item()
    if number != number:
        raise ValueError(
            "The loss is nan: lower lr, and look for a mask that hides every key or targets that are all -1."
        )
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return number
