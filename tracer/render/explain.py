"""What one operation did, in one plain sentence with its names and sizes; and what memory did.

Worked out from the record alone. A name that the trace shows as `?` is not said: its size is.
"""

from ..records import Op, TensorInfo
from ..speech import say
from .motion import motion

__all__ = ["explain", "memory_sentence"]


def explain(op: Op) -> str:
    """Return one sentence about what an operation did: `view: splits C=21 into H=3 x D=7; nothing moves in memory`."""
    motion(op)
    parts = [say("makes {out} from {ins}", out=", ".join(map(shape, op.outputs)), ins=", ".join(map(shape, op.inputs)))]
    return say("{name}: {what}", name=op.name, what="; ".join([*parts, memory_sentence(op)]))


def memory_sentence(op: Op) -> str:
    """Return what memory did: what is shared, the strides before and after, and why a copy was made."""
    return say("nothing moves in memory") if op.memory == "view" else say("the result has memory of its own")


def shape(info: TensorInfo) -> str:
    """Return the axes of a tensor with their sizes: `[B=2, T=5, 21]`."""
    return "[" + ", ".join(axis(info, i) for i in range(len(info.shape))) + "]"


def axis(info: TensorInfo, i: int) -> str:
    """Return an axis with its size, `C=21`; only the size where it has no name."""
    name, size = info.axes[i], info.shape[i]
    return str(size) if name in ("?", str(size)) else f"{name}={size}"
