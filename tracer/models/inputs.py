"""What a model is given, checked before the first product: one sentence says what is wrong, why, and what to do.

Kept apart so that the files which a student reads hold the computation alone.
"""

from collections.abc import Iterable
from numbers import Integral

import torch
from torch import Tensor

__all__ = [
    "check_batch",
    "check_choice",
    "check_heads",
    "check_length",
    "check_mask",
    "check_positive",
    "check_source",
    "check_tokens",
]


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless each size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise ValueError(f"{name}={size!r} cannot be a number of anything. Give a whole number of at least 1.")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name}={value!r} is not known. Choose one of: {', '.join(known)}.")


def check_heads(n_embd: int, n_head: int) -> None:
    """Raise ValueError unless the width C divides into H heads."""
    check_positive(n_embd=n_embd, n_head=n_head)
    if n_embd % n_head:
        fitting = ", ".join(str(H) for H in range(1, n_embd + 1) if n_embd % H == 0)
        nearest = max(1, round(n_embd / n_head)) * n_head
        raise ValueError(
            f"n_embd={n_embd} does not divide into n_head={n_head} heads: each head gets D = C / H features, and "
            f"{n_embd} / {n_head} is not whole. With n_embd={n_embd}, n_head can be {fitting}; "
            f"with n_head={n_head}, n_embd can be {nearest} or another multiple of {n_head}."
        )


def check_length(T: int, block_size: int) -> None:
    """Raise ValueError if there are more positions than the model was built for."""
    if T > block_size:
        raise ValueError(
            f"T={T} positions, but block_size={block_size}: the mask and the position embeddings have no row beyond "
            f"it. Keep the last {block_size} positions, [:, -{block_size}:], or build with a larger block_size."
        )


def check_batch(idx: Tensor, targets: Tensor | None, vocab_size: int, block_size: int | None = None) -> None:
    """Raise unless the model has a row for every id and position of `idx`, and `targets` fits `idx`.

    TypeError: no tensor, or not of whole numbers. ValueError: a shape that does not fit. IndexError: an id outside
    0..V-1; in `targets` -1 is allowed too.
    """
    check_tokens(idx)
    if block_size is not None:
        check_length(idx.shape[1], block_size)
    _check_ids("idx", idx, vocab_size)
    if targets is None:
        return
    if not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        kind = targets.dtype if isinstance(targets, Tensor) else type(targets).__name__
        raise TypeError(f"targets is {kind}, but the loss takes a tensor of torch.int64 ids. Use targets.long().")
    if targets.shape != idx.shape:
        raise ValueError(
            f"targets is {list(targets.shape)} but idx is {list(idx.shape)}: each position predicts one next token, "
            f"so both are [B, T]. From one sequence: idx = ids[:, :-1], targets = ids[:, 1:]."
        )
    _check_ids("targets", targets, vocab_size, lowest=-1)


def check_source(src: Tensor, src_mask: Tensor | None, vocab_size: int) -> None:
    """Raise unless the encoder has a row for every id of `src` `[B, S]`, and `src_mask` is True or False for each.

    TypeError, ValueError, IndexError as in `check_batch`.
    """
    check_tokens(src, "src", "S")
    _check_ids("src", src, vocab_size)
    if src_mask is not None:
        check_mask("src_mask", src_mask, src.shape)


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Raise TypeError or ValueError unless `mask` is a boolean tensor of this shape: True at tokens."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{name} is {kind}, but a mask says True at tokens and False at padding. Use {name}.bool().")
    if mask.shape != shape:
        raise ValueError(
            f"{name} is {list(mask.shape)}, but there are {list(shape)} tokens: it needs one entry for each."
        )


def check_tokens(idx: Tensor, name: str = "idx", axis: str = "T") -> None:
    """Raise TypeError or ValueError unless `idx` is a tensor of whole numbers `[B, T]` with T of at least 1.

    `name` and `axis` are what the caller calls it and its positions.
    """
    if not isinstance(idx, Tensor):
        raise TypeError(
            f"{name} is a {type(idx).__name__}, but the model takes a tensor [B, {axis}]. Use torch.tensor({name})."
        )
    if idx.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{name} holds {idx.dtype}, but a token id is a row number of the embedding table: use {name}.long() if "
            f"the numbers are whole. Vectors [B, {axis}, C] that are embedded already go into a Block, not into a GPT."
        )
    shape = list(idx.shape)
    if len(shape) == 1:
        raise ValueError(
            f"{name} is {shape}, without a batch axis; the model takes [B, {axis}]. Use {name}.unsqueeze(0)."
        )
    if len(shape) != 2:
        raise ValueError(
            f"{name} is {shape}, with {len(shape)} axes; the model takes [B, {axis}], one sequence in each row."
        )
    if shape[1] == 0:
        raise ValueError(f"{name} is {shape}: {axis}=0, so there is no token to go on. Give at least one in each row.")


def _check_ids(name: str, ids: Tensor, vocab_size: int, lowest: int = 0) -> None:
    """Raise IndexError naming the first id outside lowest..V-1; pass where the numbers cannot be looked at.

    Without it a GPU stops with a device-side assert that names neither id nor line, and the process must be
    started anew. The price is that each forward pass waits for the GPU once.
    """
    if torch.compiler.is_compiling() or type(ids) is not Tensor:  # a fake tensor has its own type
        return
    # Unseen by function modes: a recording of the model shows the model, not this look at its input.
    with torch._C.DisableTorchFunction():
        if not _readable(ids):
            return
        low, high = (int(end) for end in ids.aminmax())
        if low >= lowest and high < vocab_size:
            return
        b, t = ((ids < lowest) | (ids >= vocab_size)).nonzero()[0].tolist()
        wrong = int(ids[b, t])
    also = ", and -1 marks a position that the loss leaves out" if lowest == -1 else ""
    raise IndexError(
        f"{name}[{b}, {t}] is {wrong}, but V={vocab_size}: ids run from 0 to {vocab_size - 1}{also}. "
        f"Use the tokenizer that belongs to the model, or build it with a larger vocab_size."
    )


def _readable(ids: Tensor) -> bool:
    """Tell whether there are numbers to read: not without any, on meta, under vmap or into a CUDA graph."""
    return (
        ids.numel() > 0
        and not ids.is_meta
        and not torch._C._are_functorch_transforms_active()
        and not (ids.is_cuda and torch.cuda.is_current_stream_capturing())
    )
