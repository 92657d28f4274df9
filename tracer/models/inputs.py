"""What a model is given, checked before the first product: one sentence says what is wrong, why, and what to do.

Kept apart so that the files which a student reads hold the computation alone.
"""

from collections.abc import Iterable, Sequence
from numbers import Integral

import torch
from torch import Tensor

__all__ = [
    "check_batch",
    "check_cache",
    "check_choice",
    "check_chosen",
    "check_even",
    "check_groups",
    "check_heads",
    "check_image_targets",
    "check_images",
    "check_inputs",
    "check_length",
    "check_mask",
    "check_pair",
    "check_positions",
    "check_positive",
    "check_residual",
    "check_segments",
    "check_source",
    "check_source_ids",
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


def check_groups(n_head: int, n_kv_head: int) -> None:
    """Raise ValueError unless the H query heads share the G key/value heads evenly."""
    check_positive(n_kv_head=n_kv_head)
    if n_head % n_kv_head:
        fitting = ", ".join(str(G) for G in range(1, n_head + 1) if n_head % G == 0)
        raise ValueError(
            f"n_kv_head={n_kv_head} does not divide n_head={n_head}: each key/value head serves H / G query heads. "
            f"With n_head={n_head}, n_kv_head can be {fitting}."
        )


def check_chosen(n_expert: int, n_chosen: int) -> None:
    """Raise ValueError unless each token can have K of E experts."""
    check_positive(n_expert=n_expert, n_chosen=n_chosen)
    if n_chosen > n_expert:
        raise ValueError(
            f"n_chosen={n_chosen} experts for each token, but there are n_expert={n_expert}. "
            f"Give n_chosen from 1 to {n_expert}."
        )


def check_source(d_source: int | None, causal: bool, block_size: int | None) -> None:
    """Raise ValueError for a causal mask over another sequence, or one that is stored and never used."""
    if d_source is not None:
        check_positive(d_source=d_source)
        if causal:
            raise ValueError(
                f"d_source={d_source} with a causal mask: positions of the source are not earlier or later than those "
                "of x. Give causal=False."
            )
    if block_size is not None and not causal:
        raise ValueError(f"block_size={block_size} is the size of a causal mask, but causal=False. Leave one out.")


def check_inputs(x: Tensor, source: Tensor | None, *, C_in: int, C_source: int | None) -> None:
    """Raise ValueError unless x is `[B, T, C]`, and a source `[B, S, C_s]` is given just where the layer has one."""
    _check_width("x", x, C_in)
    if source is None:
        if C_source is not None:
            raise ValueError("source is missing: this layer takes keys and values from it. Give source [B, S, C_s].")
        return
    if C_source is None:
        raise ValueError(
            "source is given, but this layer takes q, k and v all from x. Build it with d_source=source.shape[-1] and "
            "causal=False for cross-attention."
        )
    _check_width("source", source, C_source)
    if source.shape[0] != x.shape[0]:
        raise ValueError(
            f"source is {list(source.shape)} and x is {list(x.shape)}: each row of x has its own source, so the first "
            "axis B is the same in both."
        )


def _check_width(name: str, x: Tensor, width: int) -> None:
    if x.dim() != 3 or x.shape[-1] != width:
        raise ValueError(
            f"{name} is {list(x.shape)}, but the layer takes three axes, batch, positions and {width} features."
        )


def check_mask(name: str, mask: Tensor, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise TypeError unless a mask is of True and False, ValueError unless it has one of `shapes`."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} is a {type(mask).__name__}, but a mask is a tensor. Use torch.tensor({name}).")
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} holds {mask.dtype}, but a mask is True where there is something to see. Use {name}.bool() for one "
            "of 1 and 0, and == 0 for one of 0 and -inf."
        )
    if tuple(mask.shape) not in shapes:
        fitting = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ValueError(f"{name} is {list(mask.shape)}, but here it has to be {fitting}.")


def check_residual(part: Tensor, x: Tensor) -> Tensor:
    """Return `part` if it can be added to the stream x position by position; raise ValueError otherwise.

    Addition alone would let `[B, T, 1]` pass, by broadcasting.
    """
    if part.shape != x.shape:
        raise ValueError(
            f"a part of the block returned {list(part.shape)}, but the residual stream is {list(x.shape)}: what is "
            "added to the stream has its shape. Give the part a last layer that maps back to C features."
        )
    return part


def check_length(T: int, block_size: int | None) -> None:
    """Raise ValueError if there are more positions than the model was built for; None: for any number."""
    if block_size is not None and T > block_size:
        raise ValueError(
            f"T={T} positions, but block_size={block_size}: the model was built for no more than that. "
            f"Keep the last {block_size} positions, [:, -{block_size}:], or build with a larger block_size."
        )


def check_batch(
    idx: Tensor, targets: Tensor | None, vocab_size: int, block_size: int | None = None, past: int = 0
) -> None:
    """Raise unless the model has a row for every id and position of `idx`, and `targets` fits `idx`.

    TypeError: no tensor, or not of whole numbers. ValueError: a shape that does not fit. IndexError: an id outside
    0..V-1; in `targets` -1 is allowed too.
    """
    check_tokens(idx)
    check_length(past + idx.shape[1], block_size)
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


def check_cache(cache: Sequence[object], n_layer: int) -> None:
    """Raise ValueError unless there is a cache for each block."""
    if len(cache) != n_layer:
        raise ValueError(
            f"cache is a list of {len(cache)}, but the model has {n_layer} blocks and each keeps its own. "
            "Take one from new_cache()."
        )


def check_pair(src: Tensor, idx: Tensor) -> None:
    """Raise ValueError unless each row of `idx` has a source of its own."""
    if len(src) != len(idx):
        raise ValueError(f"src has {len(src)} rows and idx {len(idx)}: each row of idx has its own source.")


def check_source_ids(src: Tensor, padding: Tensor | None, vocab_size: int, block_size: int | None = None) -> None:
    """Raise unless an encoder has a row for every id of `src` `[B, S]`, and `padding` says for each if it is a token.

    TypeError, ValueError, IndexError as in `check_batch`.
    """
    check_tokens(src, "src", "S")
    check_length(src.shape[1], block_size)
    _check_ids("src", src, vocab_size)
    if padding is not None:
        check_mask("src_padding", padding, [tuple(src.shape)])


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


def _check_ids(name: str, ids: Tensor, vocab_size: int, lowest: int = 0, count: str = "V") -> None:
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
        f"{name}[{b}, {t}] is {wrong}, but {count}={vocab_size}: ids run from 0 to {vocab_size - 1}{also}. "
        "Use the tokenizer that belongs to the model, or build it with a larger vocab_size."
    )


def _readable(ids: Tensor) -> bool:
    """Tell whether there are numbers to read: not without any, on meta, under vmap or into a CUDA graph."""
    return (
        ids.numel() > 0
        and not ids.is_meta
        and not torch._C._are_functorch_transforms_active()
        and not (ids.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def check_even(name: str, size: int) -> None:
    """Raise ValueError unless a width splits into pairs."""
    check_positive(**{name: size})
    if size % 2:
        raise ValueError(f"{name}={size} is odd, but a sine and a cosine, or two turned features, go in pairs.")


def check_positions(positions: Tensor, x: Tensor, d_head: int) -> None:
    """Raise ValueError unless x is `[B, H, T, D]` with D = `d_head`, and positions are `[T]` or `[B, T]`."""
    if x.dim() != 4 or x.shape[-1] != d_head:
        raise ValueError(
            f"x is {list(x.shape)}, but the turn was built for [B, H, T, D] with D={d_head}. "
            "Build Rotary with the head size of the layer."
        )
    B, _, T, _ = x.shape
    if tuple(positions.shape) not in ((T,), (B, T), (1, T)):
        raise ValueError(
            f"positions are {list(positions.shape)}, but x is {list(x.shape)}: give one number for each of the "
            f"T={T} positions, [{T}] or [{B}, {T}]."
        )


def check_segments(segments: Tensor, idx: Tensor, n_segment: int) -> None:
    """Raise unless each token of `idx` `[B, T]` has a segment from 0 to n_segment - 1."""
    if n_segment == 0:
        raise ValueError("segments are given, but the model was built with n_segment=0. Leave them out.")
    if not isinstance(segments, Tensor) or segments.dtype not in (torch.int64, torch.int32):
        kind = segments.dtype if isinstance(segments, Tensor) else type(segments).__name__
        raise TypeError(f"segments is {kind}, but the model takes a tensor of whole numbers. Use .long().")
    if segments.shape != idx.shape:
        raise ValueError(f"segments is {list(segments.shape)}, but idx is {list(idx.shape)}: each token has one.")
    _check_ids("segments", segments, n_segment, count="n_segment")


def check_images(images: Tensor, shape: tuple[int, int, int]) -> None:
    """Raise unless `images` are fractions `[B, R, Y, X]` of the size that the model was built for."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images are {kind}, but the model takes a tensor of fractions. Use images.float() / 255.")
    if images.dim() != 4 or tuple(images.shape[1:]) != shape:
        raise ValueError(f"images are {list(images.shape)}, but the model takes [B, R, Y, X] with {list(shape)} last.")


def check_image_targets(targets: Tensor, B: int, n_class: int) -> None:
    """Raise unless there is one class from 0 to V-1 for each of B images."""
    if not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        kind = targets.dtype if isinstance(targets, Tensor) else type(targets).__name__
        raise TypeError(f"targets is {kind}, but the loss takes a tensor of torch.int64 classes. Use targets.long().")
    if tuple(targets.shape) != (B,):
        raise ValueError(f"targets is {list(targets.shape)}, but there are B={B} images: it has to be [{B}].")
    _check_ids("targets", targets.unsqueeze(0), n_class)
