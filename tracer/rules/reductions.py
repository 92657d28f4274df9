"""Rules for reductions, choices along an axis, distances and losses: axes go away, or are counted anew."""

from ..naming import POSITIONS
from ..speech import say
from .core import COMPARES, UNIT, Axes, Axis, Step, Tensor, axis_index, rule

__all__: list[str] = []

_AT = dict.fromkeys(
    ("norm", "vector_norm", "quantile", "nanquantile", "kthvalue", "matrix_norm", "trapezoid", "trapz"), 2
)
"""Where the argument `dim` stands, if it is not the one after the input."""
_MATRIX = ("trace", "det", "logdet", "slogdet", "cond", "matrix_rank")
_LAST = {
    **dict.fromkeys(("mode", "kthvalue", "trapezoid", "trapz"), -1),
    **dict.fromkeys(("matrix_norm", "frobenius_norm", "nuclear_norm", *_MATRIX), (-2, -1)),
}
"""What is reduced where nothing is said; everything, for all others."""


@rule(
    "sum", "mean", "amax", "amin", "any", "all", "prod", "std", "var", "norm", "logsumexp", "argmax", "argmin",
    "median", "nansum", "nanmean", "nanmedian", "count_nonzero", "std_mean", "var_mean", "aminmax", "vector_norm",
    "quantile", "nanquantile", *_LAST,
)  # fmt: skip
def _reduce(step: Step) -> list[Axes]:
    x, name = step.tensor(), step.name.removeprefix("linalg_")
    at = _AT.get(name, 1)
    dim = step.arg(at, "dim", step.kwargs.get("axis"))
    if name in _MATRIX:  # the argument after the input is no axis
        dim = None
    if at == 1 and len(step.args) > 2 and all(type(a) is int for a in step.args[1:]):
        dim = step.args[1:]
    q = step.maybe(1, "q") if "quantile" in name else None
    ahead = list(q.axes) if q is not None else []
    dim = _LAST.get(name) if dim is None else dim
    left = _without(step, x, dim, step.outs[0][len(ahead) :])
    return [[*ahead, *left]] * len(step.outs)


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
def _max(step: Step) -> list[Axes]:
    tensors = step.tensors()
    return [[a.marked(soft=0) for a in step.broadcast(tensors)]] if len(tensors) > 1 else _reduce(step)


@rule("topk")
def _topk(step: Step) -> list[Axes]:
    x, k = step.tensor(), step.arg(1, "k")
    d = step.dim(2, x.rank, -1)
    experts = step.space.name(x.axes[d].term) == "E" and step.space.sizes.get("K") == k
    chosen = Axis(step.space.sym("K", k)) if experts else step.fresh([step.outs[0][d]])[0]
    return [[*x.axes[:d], chosen, *x.axes[d + 1 :]]] * len(step.outs)


@rule("diff", "cumulative_trapezoid")
def _diff(step: Step) -> list[Axes]:
    """Steps between neighbours: one fewer than there are."""
    x = step.tensor()
    d = step.dim(2, x.rank, -1)
    return [[*x.axes[:d], *step.fresh([step.outs[0][d]]), *x.axes[d + 1 :]]]


@rule("multinomial")
def _multinomial(step: Step) -> list[Axes]:
    return [[*step.tensor().axes[:-1], *step.fresh(step.outs[0][-1:])]]


@rule("one_hot")
def _one_hot(step: Step) -> list[Axes]:
    return [[*step.tensor(0, "tensor").axes, *step.fresh(step.outs[0][-1:])]]


@rule("cov", "corrcoef")
def _cov(step: Step) -> list[Axes]:
    return [[step.tensor().axes[0]] * len(step.outs[0])]


# ---------------------------------------------------------------- distances and losses


@rule("cosine_similarity", "pairwise_distance", "vecdot")
def _distance(step: Step) -> list[Axes]:
    pair = step.tensors()[:2]
    axes = step.broadcast(pair)
    cosine = step.name == "cosine_similarity"
    d = step.dim(2, len(axes), 1 if cosine else -1) if step.name != "pairwise_distance" else len(axes) - 1
    rest = [*axes[:d], *axes[d + 1 :]]
    return [[*axes[:d], UNIT, *axes[d + 1 :]] if len(step.outs[0]) == len(axes) else rest]


@rule("cross_entropy", "nll_loss")
def _cross_entropy(step: Step) -> list[Axes]:
    logits, target = step.tensor(), step.tensor(1, "target")
    if target.rank == logits.rank:
        rows = step.broadcast([logits, target], COMPARES)
        rows = [*rows[:1], *rows[2:]] if len(rows) > 1 else []
    else:
        left = [*logits.axes[:1], *logits.axes[2:]] if logits.rank > 1 else []
        rows = [step.meet(a, b, COMPARES) for a, b in zip(left, target.axes, strict=False)]
    return [rows if step.outs[0] else []]


@rule(
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss", "soft_margin_loss",
    "margin_ranking_loss", "dist",
)  # fmt: skip
def _pair_loss(step: Step) -> list[Axes]:
    axes = step.broadcast(step.tensors()[:2], COMPARES)
    return [axes if step.outs[0] else []]


@rule(
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "cosine_embedding_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
)  # fmt: skip
def _row_loss(step: Step) -> list[Axes]:
    """One loss for each row."""
    x = step.tensors()[0]
    return [list(x.axes[:-1]) if step.outs[0] else []]


@rule("ctc_loss")
def _ctc_loss(step: Step) -> list[Axes]:
    return [[step.tensor(0, "log_probs").axes[1]] if step.outs[0] else []]
