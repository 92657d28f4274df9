"""Rules for products: matmul and its relatives, linear, einsum, embedding, attention calls."""

from collections.abc import Sequence

from ..naming import Term
from ..speech import say
from .core import CONTRACTS, Axes, Axis, Step, Tensor, rule

__all__: list[str] = []

HEADS = frozenset({"H", "G"})


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "rmatmul", "_scaled_mm", "_int_mm")
def _matmul(step: Step) -> list[Axes]:
    a, b = step.tensors()[:2]
    return [multiply(step, b, a) if step.name == "rmatmul" else multiply(step, a, b)]


@rule("chain_matmul", "multi_dot")
def _chain(step: Step) -> list[Axes]:
    first, *rest = step.tensors()
    for t in rest:
        first = made(multiply(step, first, t))
    return [first.axes]


@rule("_grouped_mm")
def _grouped_mm(step: Step) -> list[Axes]:
    """Rows sorted by group times the group's own matrix; where both have two axes, the groups cut the inner one."""
    a, b = step.tensors()[:2]
    contract(step, a, a.axes[-1], b, b.axes[-2])
    offer_names(step, a, b)
    groups = [] if len(step.outs[0]) == 2 else [(a if a.rank == 3 else b).axes[0]] if b.rank == 3 else None
    return [[*(step.fresh(step.outs[0][:1]) if groups is None else groups), a.axes[-2], b.axes[-1]]]


def made(axes: Axes) -> Tensor:
    """Return a tensor in the middle of an operation."""
    return Tensor([a.size for a in axes], axes, constant=False, owner=None)


def multiply(step: Step, a: Tensor, b: Tensor) -> Axes:
    """Return the axes of `a @ b`: batch axes line up, the last of a and the last but one of b are summed away."""
    inner_b = b.axes[-2] if b.rank > 1 else b.axes[-1]
    contract(step, a, a.axes[-1], b, inner_b)
    offer_names(step, a, b)
    if b.role == "parameter" and b.rank == 2:
        made_by_weights(step, a.axes[-1], b.axes[-1])
    batch_a = Tensor(a.shape[:-2], a.axes[:-2], constant=a.constant, owner=a.owner)
    batch_b = Tensor(b.shape[:-2], b.axes[:-2], constant=b.constant, owner=b.owner)
    rows = [owned(a.axes[-2], a)] if a.rank > 1 else []
    columns = [owned(b.axes[-1], b)] if b.rank > 1 else []
    if rows and columns and not a.constant and not b.constant:
        warn_of_heads(step, rows[0].term, columns[0].term)
    return [*step.broadcast([batch_a, batch_b]), *told_apart(step, [*rows, *columns])]


def offer_names(step: Step, *operands: Tensor) -> None:
    """What a parameter is multiplied as has the axes of a learned map; one of three axes or more may have heads."""
    for t in operands:
        for axis in t.axes if t.constant and t.rank > 1 else ():
            step.space.offer(axis.term, heads=t.rank > 2)


def owned(axis: Axis, tensor: Tensor) -> Axis:
    """Return the axis with a note of whose it is: T of q, T of k."""
    return axis.marked(origin=tensor.owner, soft=0) if axis.origin is None and tensor.owner else axis.marked(soft=0)


def told_apart(step: Step, axes: Axes) -> Axes:
    """Keep the notes of whose each axis is only where two axes would bear one name."""
    if len(axes) == 2 and step.space.same(axes[0].term, axes[1].term):
        return axes
    return [Axis(a.term) for a in axes]


def contract(step: Step, a: Tensor, x: Axis, b: Tensor, y: Axis) -> None:
    """Sum two axes away against each other: they must be one axis, and weights are summed where their softmax ran."""
    if x.size == y.size and not step.space.unify(x.term, y.term) and x.size > 1:
        step.clash(x.term, y.term, CONTRACTS)
    for t, axis, other in ((a, x, b), (b, y, a)):
        soft = [s for s in t.axes if s.soft == 1]
        if soft and not axis.soft:
            warn_of_weights(step, soft[0].term, axis.term, mixed=other.constant)


def warn_of_weights(step: Step, soft: Term, summed: Term, *, mixed: bool) -> None:
    """Warn that weights made by a softmax over one axis are summed over another.

    `mixed`: by a learned map; one that mixes heads (talking heads) does so on purpose.
    """

    def text() -> str | None:
        name, other = step.space.name(soft), step.space.name(summed)
        if name in ("E", "K") or (mixed and other in HEADS):
            return None
        return say(
            "{step} sums over {other}, but the softmax ran over another axis, {name}: the weights that are summed do "
            "not add up to 1; use softmax(dim=-1) on scores of queries x keys",
            step=step.name,
            other=other,
            name=say("a second {name}", name=name) if name == other else name,
        )

    step.warn(text)


def warn_of_heads(step: Step, row: Term, column: Term) -> None:
    """Warn that heads were compared with heads: the transpose that puts H before T is missing."""

    def text() -> str | None:
        x, y = step.space.name(row), step.space.name(column)
        if x not in HEADS or y not in HEADS:
            return None
        return say(
            "{step} compares heads with heads: its result ends in [{x}, {y}], so no token looks at another; put H "
            "before T first: view(B, T, H, D).transpose(1, 2)",
            step=step.name,
            x=x,
            y=y,
        )

    step.warn(text)


@rule("addmm", "baddbmm", "addbmm", "addmv", "addr")
def _addmm(step: Step) -> list[Axes]:
    bias, a, b = step.tensors()[:3]
    if step.name.startswith("addr"):
        axes = summed(step, [["i"], ["j"]], [a, b], ["i", "j"])
    else:
        axes = multiply(step, a, b)[step.name.startswith("addbmm") :]
    return [step.broadcast([made(axes), bias])]


@rule("linear")
def _linear(step: Step) -> list[Axes]:
    x, weight, bias = step.tensor(0), step.tensor(1, "weight"), step.maybe(2, "bias")
    contract(step, x, x.axes[-1], weight, weight.axes[-1])
    if weight.rank == 1:
        return [list(x.axes[:-1])]
    out = weight.axes[0]
    step.space.offer(out.term, heads=False)
    made_by_weights(step, x.axes[-1], out)
    if bias is not None:
        if step.space.is_data(x.axes[-1].term):
            step.space.disown(bias.axes[-1].term)
        out = step.meet(out, bias.axes[-1])
    return [[*x.axes[:-1], out]]


def made_by_weights(step: Step, source: Axis, made: Axis) -> None:
    """The outputs of a learned map of features are features; mapping over positions can give positions."""
    space = step.space
    var, given = space.walk(made.term).var, space.walk(source.term).var
    if var is None or not space.walk(source.term).atoms:
        return
    if space.is_data(source.term) or (given is not None and given.mixed):
        var.options, var.mixed = None, True
        return
    space.settle(made.term)
    var.feature = True


@rule("bilinear")
def _bilinear(step: Step) -> list[Axes]:
    a, b, w = step.tensor(0, "input1"), step.tensor(1, "input2"), step.tensor(2, "weight")
    rows = [f"row{i}" for i in range(a.rank - 1)]
    return [summed(step, [[*rows, "i"], [*rows, "j"], ["o", "i", "j"]], [a, b, w], [*rows, "o"])]


@rule("outer", "ger", "inner", "tensordot", "cdist")
def _pair_product(step: Step) -> list[Axes]:
    a, b = step.tensors()[:2]
    left, right = [f"a{i}" for i in range(a.rank)], [f"b{i}" for i in range(b.rank)]
    both: list[str] = []
    if step.name == "inner" and a.rank and b.rank:
        right[-1] = left[-1]
    elif step.name == "tensordot":
        dims = step.arg(2, "dims", 2)
        ours, theirs = (range(-dims, 0), range(dims)) if isinstance(dims, int) else map(_as_tuple, dims)
        for i, j in zip(ours, theirs, strict=True):
            right[j] = left[i]
    elif step.name == "cdist":
        left, right = _letters("...pd", a.rank), _letters("...rd", b.rank)
        both = _letters("...pr", len(step.outs[0]))
    gone = {*left} & {*right}
    return [summed(step, [left, right], [a, b], both or [n for n in [*left, *right] if n not in gone])]


def _as_tuple(dims: object) -> tuple[int, ...]:
    return dims if isinstance(dims, tuple) else (dims,)


@rule("embedding")
def _embedding(step: Step) -> list[Axes]:
    ids, weight = step.tensor(0), step.tensor(1, "weight")
    if weight.role == "parameter":
        table_axes(step, ids, weight)
    return [[*ids.axes, *weight.axes[1:]]]


@rule("embedding_bag")
def _embedding_bag(step: Step) -> list[Axes] | None:
    """One sum of rows for each bag: a row of ids, or what one offset begins."""
    ids, weight, offsets = step.tensor(0), step.tensor(1, "weight"), step.maybe(2, "offsets")
    if len(step.outs) > 1:  # torch.embedding_bag has other arguments
        return None
    if weight.role == "parameter":
        table_axes(step, ids, weight)
    bags = ids if ids.rank == 2 or offsets is None else offsets
    return [[bags.axes[0] if bags.shape[0] == step.outs[0][0] else step.fresh(step.outs[0])[0], weight.axes[1]]]


def table_axes(step: Step, ids: Tensor, weight: Tensor) -> None:
    """A table looked up with ids of the input has V rows; any other table has not, and no table is V wide."""
    space, known = step.space, step.space.sizes
    rows, width = space.walk(weight.axes[0].term).var, space.walk(weight.axes[1].term).var
    if rows is not None and rows.options is not None:
        looked_up = not ids.constant and known.get("V") == rows.size
        rows.options = (space.sym("V", rows.size),) if looked_up else None
        space.settle(weight.axes[0].term)
    if width is not None and width.options:
        width.options = tuple(o for o in width.options if space.name(o) != "V") or None
        space.settle(weight.axes[1].term)
        width.feature = True


@rule("einsum")
def _einsum(step: Step) -> list[Axes] | None:
    equation = step.arg(0, "equation")
    operands = step.tensors()
    if not isinstance(equation, str):
        return None
    left, arrow, right = equation.replace(" ", "").partition("->")
    letters = [_letters(term, t.rank) for term, t in zip(left.split(","), operands, strict=False)]
    offer_names(step, *operands)
    out = _letters(right, len(step.outs[0])) if arrow else _implicit(letters)
    return [summed(step, letters, operands, out)]


def summed(step: Step, letters: list[list[str]], operands: Sequence[Tensor], out: list[str]) -> Axes:
    """Return the axes of a sum of products; one letter for each axis: what `out` lacks is summed away."""
    met: dict[str, Axis] = {}
    owners: dict[str, list[Tensor]] = {}
    for names, t in zip(letters, operands, strict=True):
        for name, axis in zip(names, t.axes, strict=True):
            met[name] = step.meet(met[name], axis, CONTRACTS) if name in met else axis
            owners.setdefault(name, []).append(t)
    _check_einsum(step, letters, operands, out, owners)
    kept = {n: _kept(step, met[n], owners[n]) for n in out}
    free = [n for n in out if len(owners[n]) == 1]
    kept.update(zip(free, told_apart(step, [kept[n] for n in free]), strict=True))
    return [kept[n] for n in out]


def _letters(term: str, rank: int) -> list[str]:
    """Return one name for each axis; the axes under `...` are named ...1, ...2 from the right."""
    if "..." not in term:
        return list(term)
    before, _, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(f"...{hidden - i}" for i in range(hidden)), *after]


def _implicit(letters: list[list[str]]) -> list[str]:
    every = [n for names in letters for n in names]
    dots = sorted({n for n in every if n.startswith("...")}, reverse=True)
    return dots + sorted(n for n in set(every) if not n.startswith("...") and every.count(n) == 1)


def _kept(step: Step, axis: Axis, owners: list[Tensor]) -> Axis:
    return owned(axis, owners[0]) if len(owners) == 1 else axis.marked(soft=0)


def _check_einsum(
    step: Step, letters: list[list[str]], operands: Sequence[Tensor], out: list[str], owners: dict[str, list[Tensor]]
) -> None:
    """The checks of a matmul: weights are summed over their own axis, heads are not compared with heads."""
    for names, t in zip(letters, operands, strict=True):
        soft = [a for a in t.axes if a.soft == 1]
        summed = [a for n, a in zip(names, t.axes, strict=True) if n not in out and len(owners[n]) > 1]
        if soft and summed and not any(a.soft for a in summed):
            others = [o for o in operands if o is not t]
            warn_of_weights(step, soft[0].term, summed[0].term, mixed=all(o.constant for o in others))
    if len(operands) == 2 and not any(t.constant for t in operands):
        free = [[a for n, a in zip(ns, t.axes, strict=True) if len(owners[n]) == 1 and n in out]
                for ns, t in zip(letters, operands, strict=True)]  # fmt: skip
        if len(free[0]) == len(free[1]) == 1:
            warn_of_heads(step, free[0][0].term, free[1][0].term)


@rule("scaled_dot_product_attention")
def _sdpa(step: Step) -> list[Axes]:
    q, k, v = step.tensor(0, "query"), step.tensor(1, "key"), step.tensor(2, "value")
    contract(step, q, q.axes[-1], k, k.axes[-1])
    step.meet(k.axes[-2], v.axes[-2])
    batch = list(q.axes[:-2])
    for other in (k, v):
        for i, axis in enumerate(other.axes[:-2], start=len(batch) - (other.rank - 2)):
            heads = i == len(batch) - 1 and step.kwargs.get("enable_gqa")  # G of them serve H
            if 0 <= i and not heads and (axis.size == batch[i].size or axis.size == 1):
                batch[i] = step.meet(batch[i], axis)
    mask = step.maybe(3, "attn_mask")
    if mask is not None:
        scores = [*batch, q.axes[-2], k.axes[-2]]
        step.broadcast([made(scores), mask])
    warn_of_heads(step, q.axes[-2].term, k.axes[-2].term)
    step.space.attend(q.axes[-2].term, k.axes[-2].term)
    return [[*batch, q.axes[-2], v.axes[-1]]]


@rule("multi_head_attention_forward")
def _mha(step: Step) -> list[Axes]:
    query, key = step.tensor(0, "query"), step.tensor(1, "key")
    out: list[Axes] = [list(query.axes)]
    _projections(step, query)
    if len(step.outs) > 1:
        t, s = owned(query.axes[0], query), owned(key.axes[0], key)
        heads, known = step.arg(4, "num_heads"), step.space.sizes
        middle = step.fresh([1] * 0)
        if len(step.outs[1]) == query.rank + 1:
            middle = [Axis(step.space.sym("H", heads))] if known.get("H") == heads else step.fresh([heads])
        out.append([*query.axes[1:-1], *middle, t, s])
    return out


def _projections(step: Step, query: Tensor) -> None:
    """The three projections give what the query is wide: PyTorch asks for it (embed_dim)."""
    wide = query.axes[-1].term
    for place, name, times in _PROJECTIONS:
        weights = step.maybe(place, name)
        if weights is not None:
            step.space.unify(weights.axes[0].term, step.space.scaled(wide, times, 1))


_PROJECTIONS = (
    (5, "in_proj_weight", 3), (6, "in_proj_bias", 3), (18, "q_proj_weight", 1), (19, "k_proj_weight", 1),
    (20, "v_proj_weight", 1),
)  # fmt: skip
"""Parameters of `multi_head_attention_forward`: position, name, and how often they hold the query's width."""
