"""What memory did in one operation, in words: what is shared, strides before and after, and why a copy was made.

Worked out from strides, offsets and storage numbers alone. The picture of it is drawn by `memory`.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from ..costs import bytes_of
from ..records import Op, TensorInfo
from ..speech import N_, say, say_count
from .layout import memory_word
from .motion import plain_name
from .words import axis, shape, size_groups

__all__ = ["before_of", "memory_sentence", "strides_text", "view_rule", "why_needed"]

# ---------------------------------------------------------------- memory


def memory_sentence(op: Op) -> str:
    """Return what memory did: what is shared, the strides before and after, and why a copy was made."""
    if not op.outputs:
        return say("No tensor comes out, and no memory is taken.")
    out = op.outputs[0]
    kind = memory_word(op)
    if kind == "inside":
        return say("A step inside another operation: its kernel need not write this tensor to memory at all.")
    if kind == "unknown":
        return say("What memory did here cannot be asked for.")
    x = op.inputs[0] if op.inputs else None
    if kind == "same":
        return say("The very same tensor comes back: nothing is read, moved or written.")
    if kind == "in-place":
        text = (
            "The numbers are written over those of {x}: no new memory is taken, and every tensor that shares it "
            "changes too."
        )
        return say(text, x=_tensor(x or out))
    if kind == "view":
        shared = before_of(op) or out
        return " ".join([say("Shares the memory of {x}: nothing moves.", x=_tensor(shared)), _strides(shared, out)])
    taken = sum(bytes_of(info) for info in op.outputs if info.memory == "new")
    said = [say_count("{n:,} byte of new memory is taken.", "{n:,} bytes of new memory are taken.", taken)]
    if kind == "copy" and x is not None:
        said += [_why_copied(op, x, out), _strides(x, out)]
    elif out.stride is not None:
        said.append(_laid_out(out))
    return " ".join(part for part in said if part)


def before_of(op: Op) -> TensorInfo | None:
    """Return the input whose memory the first result shares, or whose numbers it moves; None for new numbers."""
    kind = memory_word(op)
    if kind in ("view", "same", "in-place"):
        out = op.outputs[0]
        return next((info for info in op.inputs if info.storage == out.storage), None)
    return op.inputs[0] if kind == "copy" and op.inputs else None


def why_needed(op: Op, later: Iterable[Op]) -> str:
    """Return why the copy that a `contiguous` made is needed: the first view of it that would have failed; else ""."""
    if plain_name(op.name) != "contiguous" or memory_word(op) != "copy":
        return ""
    for user in later:
        if plain_name(user.name) in ("view", "view_as") and op.outputs[0].id in [info.id for info in user.inputs[:1]]:
            if rule := view_rule(op.inputs[0], user.outputs[0]) if user.outputs else "":
                text = "Without it operation {index}, {name}, would fail: {rule}"
                return say(text, index=user.index, name=user.name, rule=rule)
    return ""


def _tensor(info: TensorInfo) -> str:
    return f"{info.variable} {shape(info)}" if info.variable else shape(info)


def _strides(old: TensorInfo, new: TensorInfo) -> str:
    if old.stride is None or new.stride is None:
        return ""
    text = say("Strides before {old}, after {new}:", old=strides_text(old.stride), new=strides_text(new.stride))
    return f"{text} {_order(new)}"


def _laid_out(info: TensorInfo) -> str:
    return say("Strides {new}:", new=strides_text(info.stride or ())) + f" {_order(info)}"


def _order(info: TensorInfo) -> str:
    if info.contiguous:
        return say("contiguous, the entries stand in the order of the axes.")
    return say("not contiguous, the entries do not stand one after another in the order of the axes.")


def strides_text(numbers: Sequence[int]) -> str:
    """Return strides as they are written: `(21, 7, 1)`."""
    return f"({', '.join(map(str, numbers))})"


def _why_copied(op: Op, old: TensorInfo, new: TensorInfo) -> str:
    """Say why an operation that only moves numbers had to."""
    name = plain_name(op.name)
    if name == "contiguous" and old.stride is not None:
        wanted = tuple(prod(old.shape[i + 1 :]) for i in range(len(old.shape)))
        text = "The order of the axes asks for strides {wanted}, and they were {old}: so the entries are laid out anew."
        return say(text, wanted=strides_text(wanted), old=strides_text(old.stride))
    if name in ("reshape", "flatten", "reshape_as", "ravel", "unflatten"):
        rule = view_rule(old, new)
        return say("A view cannot do it: {rule}", rule=rule) if rule else ""
    if name in ("cat", "stack", "concat", "concatenate", "repeat", "repeat_interleave"):
        return say(
            "A tensor has one stride for each axis: pieces of several memories, or repeats, have to be written anew."
        )
    if name == "getitem":
        return say("Ids and masks can pick any entries, and no stride leads from each to the next: they are copied.")
    return ""


def view_rule(old: TensorInfo, new: TensorInfo) -> str:
    """Return why a view of `old` cannot have the shape of `new`, with the numbers; "" where it can, or is not known."""
    if old.stride is None or prod(old.shape) != prod(new.shape) or prod(old.shape) <= 0:
        return ""
    for ours, theirs in size_groups(old.shape, new.shape):
        for i, j in pairwise(ours):
            wanted = old.shape[j] * old.stride[j]
            if old.stride[i] != wanted:
                text = N_(
                    "joining {i} with {j} needs the stride of {i} to be {n} x {s} = {wanted}, the size times the "
                    "stride of what follows, and it is {stride}."
                )
                if len(theirs) > 1:
                    text = N_(
                        "reading {i} and {j} as one needs the stride of {i} to be {n} x {s} = {wanted}, the size times "
                        "the stride of what follows, and it is {stride}."
                    )
                return say(
                    text, i=axis(old, i), j=axis(old, j), n=old.shape[j], s=old.stride[j], wanted=wanted,
                    stride=old.stride[i],
                )  # fmt: skip
    return ""
