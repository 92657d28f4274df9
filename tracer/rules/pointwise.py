"""Rules for operations that work entry by entry, along one axis, or away an axis; losses and factories too."""

from ..naming import POSITIONS
from ..speech import say
from .core import COMPARES, LINES_UP, UNIT, Axes, Axis, Step, Tensor, axis_index, rule
from .regroup import written_sizes

__all__: list[str] = []

KEEPS_WEIGHTS = frozenset(
    "dropout contiguous clone detach to float half bfloat16 double type type_as cpu cuda masked_fill div mul "
    "alpha_dropout feature_dropout true_divide multiply divide nan_to_num where data requires_grad_".split()
)
"""Operations after which softmax weights still are softmax weights, as far as their axis goes."""

_ELEMENTWISE = """
abs absolute acos acosh add addcdiv addcmul alias alpha_dropout and angle arccos arcsin arctan asin asinh atan atan2
atanh bernoulli bfloat16 bitwise_and bitwise_not bitwise_or bitwise_xor bool byte cauchy ceil celu char clamp
clamp_max clamp_min clip clone conj contiguous copy copysign cos cosh cpu cuda data deg2rad detach digamma div divide
double dropout elu empty_like eq erf erfc erfinv exp exp2 expm1 exponential fake_quantize feature_alpha_dropout
feature_dropout fill float float_power floor floor_divide fmax fmin fmod frac full_like ge gelu geometric greater
greater_equal gt half hardshrink hardsigmoid hardswish hardtanh heaviside hypot iand imag int invert ior isclose
isfinite isinf isnan ixor le leaky_relu lerp less less_equal lgamma log log10 log1p log2 log_normal
logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid long lshift lt masked_fill maximum minimum
mish mod mul multiply nan_to_num ne neg negative nextafter normal not_equal ones_like or pin_memory polygamma positive
pow prelu quantize rad2deg radd rand_like randint_like randn_like random rdiv real reciprocal relu relu6 remainder
requires_grad resolve_conj resolve_neg rfloordiv rmod rmul round rpow rrelu rshift rsqrt rsub rtruediv selu sgn short
sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink
threshold to true_divide trunc type type_as uniform where xlogy xor zero zeros_like
"""


@rule(*dict.fromkeys(_ELEMENTWISE.split()))
def _elementwise(step: Step) -> list[Axes] | None:
    tensors = step.tensors()
    if not tensors:
        return None
    name = step.name.rstrip("_")
    if name in ("type_as", "to", "prelu"):  # the others give a type, or one number for each channel
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
    return [axes]


def _weighs_values(tensors: list[Tensor], axes: Axes) -> bool:
    """Weights `[.., T, S, 1]` times values `[.., 1, S, D]`: each side brings an axis that the other lacks."""
    for t in tensors:
        if any(a.soft for a in t.axes):
            missing = len(axes) - t.rank
            return any(n == 1 and a.size > 1 for n, a in zip((1,) * missing + t.shape, axes, strict=True))
    return False


@rule("softmax", "softmin", "gumbel_softmax")
def _softmax(step: Step) -> list[Axes] | None:
    x, dim = step.tensor(), step.arg(1, "dim")
    if x is None or not x.rank:
        return None if x is None else [[]]
    if not isinstance(dim, int):
        return [list(x.axes)]
    d = axis_index(dim, x.rank)
    return [[a.marked(soft=int(i == d)) for i, a in enumerate(x.axes)]]


@rule(
    "log_softmax",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "cummin",
    "sort",
    "argsort",
    "msort",
    "normalize",
    "renorm",
)
def _along(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None else [[a.marked(soft=0) for a in x.axes]] * len(step.outs)


@rule(
    "sum", "mean", "amax", "amin", "any", "all", "prod", "std", "var", "norm", "logsumexp", "argmax", "argmin",
    "median", "nansum", "nanmean", "nanmedian", "count_nonzero", "std_mean", "var_mean", "aminmax", "mode",
    "vector_norm", "linalg_norm", "linalg_vector_norm",
)  # fmt: skip
def _reduce(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    at = 2 if step.name in ("norm", "vector_norm", "linalg_norm", "linalg_vector_norm") else 1
    dim = step.arg(at, "dim", step.kwargs.get("axis"))
    if at == 1 and len(step.args) > 2 and all(type(a) is int for a in step.args[1:]):
        dim = step.args[1:]
    return [_without(step, x, dim, step.outs[0])] * len(step.outs)


def _without(step: Step, x: Tensor, dim: object, out: tuple[int, ...]) -> Axes:
    """Return the axes left after a reduction over `dim` (None: all of them)."""
    dims = [d for d in (dim if isinstance(dim, tuple) else (dim,)) if type(d) is int]
    gone = {axis_index(d, x.rank) for d in dims} if dims else set(range(x.rank))
    if step.name == "sum":
        soft = [a for a in x.axes if a.soft]
        summed = [x.axes[i] for i in gone]
        if soft and summed and not any(a.soft for a in summed):
            from_weights(step, soft[0], summed[0])
    keep = len(out) == x.rank and x.rank > 0
    axes = [UNIT if i in gone else a for i, a in enumerate(x.axes) if keep or i not in gone]
    return [a.marked(soft=0) if a.soft == 1 and len(gone) < x.rank and not keep else a for a in axes]


def from_weights(step: Step, soft: Axis, summed: Axis) -> None:
    """Warn that weights, or weighted values, are summed over an axis that the softmax did not run over.

    Weights by themselves are also summed on purpose: over heads or examples, and a router's over its tokens.
    """

    def text() -> str | None:
        name, other = step.space.name(soft.term), step.space.name(summed.term)
        if soft.soft == 1 and (name in ("E", "K", "?") or other not in POSITIONS):
            return None
        what = say("weighted values") if soft.soft == 2 else say("weights")
        return say(
            "{step} adds up {what} over {other}, but the softmax ran over another axis, {name}",
            step=step.name,
            what=what,
            other=other,
            name=say("a second {name}", name=name) if name == other else name,
        )

    step.warn(text)


@rule("max", "min")
def _max(step: Step) -> list[Axes] | None:
    tensors = step.tensors()
    return _elementwise(step) if len(tensors) > 1 else _reduce(step)


@rule("topk", "kthvalue")
def _topk(step: Step) -> list[Axes] | None:
    x, k = step.tensor(), step.arg(1, "k")
    if x is None or step.name == "kthvalue":
        return None
    d = axis_index(step.arg(2, "dim", -1), x.rank)
    known = step.space.sizes
    experts = step.space.name(x.axes[d].term) == "E" and known.get("K") == k
    chosen = Axis(step.space.sym("K", k)) if experts else step.fresh([step.outs[0][d]])[0]
    return [[*x.axes[:d], chosen, *x.axes[d + 1 :]]] * len(step.outs)


@rule("multinomial")
def _multinomial(step: Step) -> list[Axes] | None:
    x = step.tensor()
    return None if x is None else [[*x.axes[:-1], *step.fresh(step.outs[0][-1:])]]


@rule("one_hot")
def _one_hot(step: Step) -> list[Axes] | None:
    x = step.tensor(0, "tensor")
    if x is None:
        return None
    return [[*x.axes, *step.fresh(step.outs[0][-1:])]]


@rule("layer_norm", "rms_norm")
def _layer_norm(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    weights = [t for t in (step.tensor(2, "weight"), step.tensor(3, "bias")) if t is not None]
    return [step.broadcast([x, *weights], LINES_UP)]


@rule("batch_norm", "group_norm", "instance_norm")
def _channel_norm(step: Step) -> list[Axes] | None:
    x = step.tensor()
    if x is None:
        return None
    axes = list(x.axes)
    for t in step.tensors()[1:]:
        if t.rank == 1 and x.rank > 1 and t.shape[0] == x.shape[1]:
            axes[1] = step.meet(axes[1], t.axes[0], LINES_UP)
    return [axes]


@rule("cross_entropy", "nll_loss")
def _cross_entropy(step: Step) -> list[Axes] | None:
    logits, target = step.tensor(), step.tensor(1, "target")
    if logits is None or target is None:
        return None
    if target.rank == logits.rank:
        rows = step.broadcast([logits, target], COMPARES)
        rows = [*rows[:1], *rows[2:]] if len(rows) > 1 else []
    else:
        left = [*logits.axes[:1], *logits.axes[2:]] if logits.rank > 1 else []
        rows = [step.meet(a, b, COMPARES) for a, b in zip(left, target.axes, strict=False)]
    return [rows if step.outs[0] else []]


@rule(
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
)
def _pair_loss(step: Step) -> list[Axes] | None:
    axes = step.broadcast(step.tensors()[:2], COMPARES)
    return [axes if step.outs[0] else []]


@rule("cosine_similarity")
def _cosine(step: Step) -> list[Axes] | None:
    axes = step.broadcast(step.tensors()[:2])
    d = axis_index(step.arg(2, "dim", 1), len(axes))
    return [[*axes[:d], *axes[d + 1 :]]]


SIZED = frozenset({"zeros", "ones", "empty", "rand", "randn"})
"""Factories whose positional arguments are the sizes, as written."""


@rule(
    "arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "tensor", "as_tensor", "eye",
    "linspace", "logspace", "range", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "from_numpy",
    "scalar_tensor", "asarray", "empty_strided", "tril_indices", "triu_indices", "hann_window",
)  # fmt: skip
def _factory(step: Step) -> list[Axes] | None:
    if len(step.outs) != 1:
        return None
    given = step.tensor()
    if given is not None and step.name in ("tensor", "as_tensor", "asarray") and given.shape == step.outs[0]:
        return [list(given.axes)]
    rank = len(step.outs[0])
    written = written_sizes(step, (), rank) if rank and step.name in SIZED else [None] * rank
    return [[UNIT if w == "1" else Axis(step.space.fresh(n)) for n, w in zip(step.outs[0], written, strict=True)]]
