"""Rules for convolutions and pooling: batch and channels keep their axes, positions are counted anew."""

from .core import CONTRACTS, Axes, Axis, Step, Tensor, rule
from .products import made_by_weights

__all__: list[str] = []


@rule("conv1d", "conv2d", "conv3d")
def _conv(step: Step) -> list[Axes] | None:
    x, weight, bias = step.tensor(), step.tensor(1, "weight"), step.tensor(2, "bias")
    if x is None or weight is None:
        return None
    spatial, space = weight.rank - 2, step.space
    for axis in weight.axes[1:]:
        space.disown(axis.term)  # kernels and groups have no names of their own
    channels = x.axes[-spatial - 1]
    if weight.axes[1].size == channels.size > 1 and weight.role == "parameter":
        step.meet(channels, weight.axes[1], CONTRACTS)
    out = weight.axes[0]
    space.offer(out.term, heads=False)
    made_by_weights(step, channels, out)
    if weight.axes[0].size == channels.size and weight.axes[1].size == 1 and channels.size > 1:
        out = step.meet(channels, out)  # one filter for each channel
    if bias is not None:
        out = step.meet(out, bias.axes[0])
    return [[*x.axes[: -spatial - 1], out, *_positions(step, x, spatial)]]


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "interpolate",
)  # fmt: skip
def _pool(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    spatial = x.rank - 2 if step.name == "interpolate" else int(step.name[-2])
    return [[*x.axes[:-spatial], *_positions(step, x, spatial)]] * len(step.outs)


def _positions(step: Step, x: Tensor, spatial: int) -> list[Axis]:
    """A window that moves over positions gives other positions, also where there are as many."""
    return step.fresh(step.outs[0][-spatial:])
