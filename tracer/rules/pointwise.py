"""Rules for operations that work entry by entry, or along axes without changing them; factories too."""

from ..naming import number
from .core import LINES_UP, UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .regroup import Written, written_sizes

__all__: list[str] = []

KEEPS_WEIGHTS = frozenset(
    "dropout contiguous clone detach to float half bfloat16 double type type_as cpu cuda masked_fill div mul "
    "alpha_dropout feature_dropout true_divide multiply divide nan_to_num where data requires_grad_".split()
)
"""Operations after which softmax weights still are softmax weights, as far as their axis goes."""

_ELEMENTWISE = """
abs absolute acos acosh add addcdiv addcmul airy_ai alias alpha_dropout and angle arccos arccosh arcsin arcsinh arctan
arctan2 arctanh asin asinh atan atan2 atanh bernoulli bessel_j0 bessel_j1 bessel_y0 bessel_y1 bfloat16 binomial
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bool byte cauchy cdouble ceil
celu cfloat chalf char clamp clamp_max clamp_min clip clone complex conj conj_physical contiguous copy copysign cos
cosh cpu cross cuda data deepcopy deg2rad detach digamma div divide double dropout dropout1d dropout2d dropout3d elu
empty_like entr eq erf erfc erfcx erfinv exp exp2 expit expm1 exponential fake_quantize
fake_quantize_per_tensor_affine feature_alpha_dropout feature_dropout fill fix float float_power floor floor_divide
fmax fmin fmod frac frexp full_like gammainc gammaincc gammaln gcd ge gelu geometric greater greater_equal gt half
hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma igammac imag int invert ior isclose
isfinite isin isinf isnan isneginf isposinf isreal ixor lcm ldexp le leaky_relu lerp less less_equal lgamma log log10
log1p log2 log_ndtr log_normal log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
logsigmoid long lt masked_fill maximum minimum mish mod mul multigammaln multiply mvlgamma nan_to_num native_dropout
ndtr ndtri ne neg negative nextafter normal not_equal ones_like or pin_memory poisson polar polygamma positive pow
prelu psi quantize rad2deg rand_like randint_like randn_like random rdiv real reciprocal relu relu6 remainder
requires_grad resolve_conj resolve_neg rfloor_divide round rpow rrelu rremainder rsqrt rsub selu sgn short sigmoid
sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold to
true_divide trunc type type_as uniform where xlog1py xlogy xor zero zeros_like zeta
"""


@rule(*_ELEMENTWISE.split())
def _elementwise(step: Step) -> list[Axes] | None:
    tensors, name = step.tensors(), step.name.rstrip("_")
    if not tensors:
        return None
    if name in ("type_as", "to", "prelu", "isin", "deepcopy"):  # the others give a type, a set, one number per channel
        tensors = tensors[:1]
    if name == "where" and len(tensors) == 1 and len(step.args) == 1:
        return [step.fresh(shape) for shape in step.outs]
    axes = step.broadcast(tensors)
    keeps = name in KEEPS_WEIGHTS
    soft = [i for i, a in enumerate(axes) if a.soft]
    if soft and not keeps:
        axes = [a.marked(soft=0) if a.soft else a for a in axes]
    elif soft and name in ("mul", "multiply") and _weighs_values(tensors, axes):
        axes = [a.marked(soft=2) if a.soft else a for a in axes]
    return [axes] * max(1, len(step.outs))


@rule("broadcast_tensors")
def _broadcast_tensors(step: Step) -> list[Axes]:
    return [step.broadcast(step.tensors())] * len(step.outs)


def _weighs_values(tensors: list[Tensor], axes: Axes) -> bool:
    """Weights `[.., T, S, 1]` times values `[.., 1, S, D]`: each side brings an axis that the other lacks."""
    for t in tensors:
        if any(a.soft for a in t.axes):
            missing = len(axes) - t.rank
            return any(n == 1 and a.size > 1 for n, a in zip((1,) * missing + t.shape, axes, strict=True))
    return False


@rule("softmax", "softmin", "gumbel_softmax")
def _softmax(step: Step) -> list[Axes]:
    x, dim = step.tensor(), step.arg(1, "dim")
    d = axis_index(dim, x.rank) if isinstance(dim, int) else None
    if d is not None and x.rank > 1 and d == x.rank - 1:
        step.space.attend(x.axes[-2].term, x.axes[-1].term)
    return [[a.marked(soft=0 if d is None else int(i == d)) for i, a in enumerate(x.axes)]]


@rule(
    "log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort", "argsort", "msort", "normalize",
    "renorm", "roll", "flip", "fliplr", "flipud", "tril", "triu", "fill_diagonal", "scatter", "scatter_add",
    "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put", "index_reduce", "masked_scatter", "put",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "local_response_norm",
    "channel_shuffle", "fft_fftshift", "fft_ifftshift", "cholesky", "inv", "inverse", "matrix_power", "matrix_exp",
    "cholesky_inverse", "fake_quantize_per_channel_affine", "quantize_per_tensor", "quantize_per_channel", "dequantize",
    "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder", "TransformerDecoderLayer", "Transformer",
)  # fmt: skip
def _same_axes(step: Step) -> list[Axes] | None:
    """As the first tensor, which has the positions that are moved, filled or added up, each along its own axis."""
    x = step.tensors()[0]
    if step.name == "Transformer":  # source, target: what comes out belongs to the target
        x = step.tensor(1, "tgt")
    return [[a.marked(soft=0) for a in x.axes]] * len(step.outs) if x.shape == step.outs[0] else None


@rule("rot90")
def _rot90(step: Step) -> list[Axes]:
    x, (i, j) = step.tensor(), (axis_index(d, step.tensor().rank) for d in step.arg(2, "dims", (0, 1)))
    axes = list(x.axes)
    if step.arg(1, "k", 1) % 2:
        axes[i], axes[j] = axes[j], axes[i]
    return [axes]


@rule("layer_norm", "rms_norm")
def _layer_norm(step: Step) -> list[Axes]:
    weights = [t for t in (step.maybe(2, "weight"), step.maybe(3, "bias")) if t is not None]
    return [step.broadcast([step.tensor(), *weights], LINES_UP)]


@rule("batch_norm", "group_norm", "instance_norm")
def _channel_norm(step: Step) -> list[Axes]:
    x = step.tensor()
    axes = list(x.axes)
    for t in step.tensors()[1:]:
        if t.rank == 1 and x.rank > 1 and t.shape[0] == x.shape[1]:
            axes[1] = step.meet(axes[1], t.axes[0], LINES_UP)
    return [axes]


# ---------------------------------------------------------------- factories

SIZED = frozenset({"zeros", "ones", "empty", "rand", "randn"})
"""Factories whose positional arguments are the sizes, as written."""


@rule(
    "arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "tensor", "as_tensor", "eye",
    "linspace", "logspace", "range", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "from_numpy",
    "scalar_tensor", "asarray", "empty_strided", "tril_indices", "triu_indices", "hann_window", "hamming_window",
    "bartlett_window", "blackman_window", "kaiser_window", "vander", "fft_fftfreq", "fft_rfftfreq", "frombuffer",
    "empty_permuted", "new_empty_strided",
)  # fmt: skip
def _factory(step: Step) -> list[Axes] | None:
    if len(step.outs) != 1:
        return None
    given = step.maybe(0, "data")
    if given is not None and step.name in ("tensor", "as_tensor", "asarray") and given.shape == step.outs[0]:
        return [list(given.axes)]
    rank = len(step.outs[0])
    written: Written = written_sizes(step, (), rank) if rank and step.name in SIZED else [None] * rank
    if step.name == "arange" and len(step.args) == 1 and step.literals[:1] == ("1",):
        written[0] = "1"
    made = zip(step.outs[0], written, strict=True)
    return [[UNIT if w == "1" else Axis(step.space.fresh(n) if n else number(0)) for n, w in made]]
