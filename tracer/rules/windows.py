"""Rules for convolutions, pooling and frequencies: batch and channels keep their axes, positions are counted anew."""

from math import prod
from typing import Any

from .core import CONTRACTS, Axes, Axis, Step, Tensor, axis_index, rule
from .products import made_by_weights

__all__: list[str] = []


@rule("conv1d", "conv2d", "conv3d")
def _conv(step: Step) -> list[Axes]:
    x, weight, bias = step.tensor(), step.tensor(1, "weight"), step.maybe(2, "bias")
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
    positions = _positions(step, x, spatial)
    padded = step.arg(4, "padding", 0) not in (0, (0, 0), "valid")
    if spatial == 2 and _pair(step.arg(3, "stride", 1)) == weight.shape[2:] and not padded:
        patches = space.patches([a.term for a in x.axes[-2:]], weight.shape[2:], step.outs[0][-2:])
        positions = [Axis(t) for t in patches] or positions
    return [[*x.axes[: -spatial - 1], out, *positions]]


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(step: Step) -> list[Axes]:
    x, weight, bias = step.tensor(), step.tensor(1, "weight"), step.maybe(2, "bias")
    spatial, groups = weight.rank - 2, step.arg(6, "groups", 1)
    for axis in weight.axes[1 + (groups == 1) :]:
        step.space.disown(axis.term)
    channels = step.meet(x.axes[-spatial - 1], weight.axes[0], CONTRACTS)
    out = weight.axes[1] if groups == 1 else step.fresh([weight.shape[1] * groups])[0]
    step.space.offer(out.term, heads=False)
    made_by_weights(step, channels, out)
    if bias is not None:
        out = step.meet(out, bias.axes[0])
    return [[*x.axes[: -spatial - 1], out, *_positions(step, x, spatial)]]


_POOLS = [f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max", "lp") for n in (1, 2, 3)]
_INDICES = [f"{kind}_pool{n}d_with_indices" for kind in ("max", "adaptive_max", "fractional_max") for n in (1, 2, 3)]
_MORE = [
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "interpolate",
]


@rule(*_POOLS, *_INDICES, *_MORE)
def _pool(step: Step) -> list[Axes]:
    x = step.tensor()
    spatial = x.rank - 2 if step.name == "interpolate" else int(step.name[step.name.index("pool") + 4])
    return [[*x.axes[:-spatial], *_positions(step, x, spatial)]] * len(step.outs)


def _positions(step: Step, x: Tensor, spatial: int) -> list[Axis]:
    """A window that moves over positions gives other positions, also where there are as many."""
    return step.fresh(step.outs[0][-spatial:])


@rule("grid_sample")
def _grid_sample(step: Step) -> list[Axes]:
    x, grid = step.tensor(), step.tensor(1, "grid")
    return [[step.meet(x.axes[0], grid.axes[0]), x.axes[1], *grid.axes[1:-1]]]


@rule("affine_grid")
def _affine_grid(step: Step) -> list[Axes]:
    return [[step.tensor(0, "theta").axes[0], *step.fresh(step.outs[0][1:])]]


@rule("unfold")
def _unfold(step: Step) -> list[Axes]:
    """`x.unfold(dim, size, step)` adds an axis, the window; `F.unfold` joins it to the channels; `fold` undoes it."""
    x, out = step.tensor(), step.outs[0]
    if len(out) == x.rank + 1:
        d = step.dim(1, x.rank) if "dimension" not in step.kwargs else axis_index(step.kwargs["dimension"], x.rank)
        return [[*x.axes[:d], *step.fresh([out[d]]), *x.axes[d + 1 :], *step.fresh(out[-1:])]]
    kernel = prod(_pair(step.arg(1, "kernel_size")))
    return [[*x.axes[:-3], Axis(step.space.scaled(x.axes[-3].term, kernel, 1)), *step.fresh(out[-1:])]]


@rule("fold")
def _fold(step: Step) -> list[Axes]:
    x, kernel = step.tensor(), prod(_pair(step.arg(2, "kernel_size")))
    return [[*x.axes[:-2], Axis(step.space.scaled(x.axes[-2].term, 1, kernel)), *step.fresh(step.outs[0][-2:])]]


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


@rule("pixel_shuffle", "pixel_unshuffle")
def _pixel_shuffle(step: Step) -> list[Axes]:
    x, r = step.tensor(), step.arg(1, "upscale_factor", step.kwargs.get("downscale_factor"))
    up = step.name == "pixel_shuffle"
    scales = [(1, r * r) if up else (r * r, 1), *[(r, 1) if up else (1, r)] * 2]
    made = [Axis(step.space.scaled(a.term, *scale)) for a, scale in zip(x.axes[-3:], scales, strict=True)]
    return [[*x.axes[:-3], *made]]


@rule(*(f"fft_{i}{kind}{n}" for i in ("", "i") for kind in ("fft", "rfft", "hfft") for n in ("", "2", "n")))
def _fft(step: Step) -> list[Axes]:
    """Frequencies are counted along the axis of the positions; a padded one, or the half of one, has no name."""
    x, many = step.tensor(), not step.name.endswith("fft")
    size, dims = step.arg(1, "s" if many else "n"), step.arg(2, "dim", (-2, -1) if step.name.endswith("2") else None)
    if dims is None:
        count = len(size) if many and size else x.rank
        dims = tuple(range(x.rank - count, x.rank)) if many else -1
    dims = [axis_index(d, x.rank) for d in (dims if isinstance(dims, tuple) else (dims,))]
    halved = {dims[-1]} if "rfft" in step.name or "hfft" in step.name else set()
    other = halved if size is None else {*dims}
    return [[step.fresh([step.outs[0][i]])[0] if i in other else a for i, a in enumerate(x.axes)]]


@rule("stft", "istft")
def _stft(step: Step) -> list[Axes]:
    x = step.tensor()
    kept = x.rank - (1 if step.name == "stft" else 2 + ("complex" not in x.dtype))
    return [[*x.axes[:kept], *step.fresh(step.outs[0][kept:])]]
