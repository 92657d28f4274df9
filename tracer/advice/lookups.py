"""Looking up and comparing: embeddings, indices, gather and scatter, losses."""

from ..records import TensorInfo
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes
from .words import axis_of, code_of, dtype_of, is_whole, rank, who

__all__: list[str] = []


@kind("embedding", "gather", "getitem", "index_select", "take_along_dim", "scatter", "scatter_add", "one_hot")
def _whole_numbers(case: Case) -> Finding | None:
    """Places to look up are int64."""
    if not case.says(r"(indices|index)\b"):
        return None
    ids = case.inputs[0 if case.op.name in ("embedding", "one_hot") else 1]
    if is_whole(ids) or dtype_of(ids) == "bool":
        return None
    x = who(ids, N_("its input"))
    what = say("{name} looks up by whole numbers; {x} is {dtype}.", name=case.op.name, x=x, dtype=dtype_of(ids))
    return Finding(what, say("give it int64: {c}.long() where the numbers are whole.", c=code_of(ids)))


@kind("gather", "take_along_dim")
def _gathered(case: Case) -> Finding | None:
    x, ids = case.inputs[:2]
    if rank(x) == rank(ids):
        return None
    what = say(
        "{name} wants as many axes in the index as in the data; there are {a} and {b}.",
        name=case.op.name, a=ids.label, b=x.label,
    )  # fmt: skip
    fits = rank(ids) == rank(x) - 1 and case.dim(0, 0) in (-1, rank(ids))
    return Finding(what, say("one entry for each row: {c}.unsqueeze(-1).", c=code_of(ids)) if fits else "")


@kind("scatter", "scatter_add")
def _scattered(case: Case) -> Finding | None:
    x, _, *rest = case.inputs
    if not case.says("dtype") or not rest or dtype_of(rest[0]) == dtype_of(x):
        return None
    what = say(
        "what is written is {a}, and {x} is {b}.", a=dtype_of(rest[0]), x=who(x, N_("the tensor")), b=dtype_of(x)
    )
    return Finding(what, say("convert it: {c}.to({d}.dtype).", c=code_of(rest[0]), d=code_of(x) or say("target")))


@kind("gather", "scatter", "scatter_add", "index_select", "take_along_dim")
def _beyond(case: Case) -> Finding | None:
    found = case.says(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)|index out of range")
    if found is None:
        return None
    x = case.inputs[0]
    ids = case.inputs[1]
    if found.group(1) is None:
        return Finding(say("{x} holds a place that {label} does not have.", x=who(ids, N_("the index")), label=x.label))
    what = say(
        "axis {dim} has places 0 to {last}, and {x} asks for {i}.",
        dim=found.group(2), last=int(found.group(3)) - 1, x=who(ids, N_("the index")), i=found.group(1),
    )  # fmt: skip
    return Finding(what, say("look at {c}.min() and {c}.max(), and at dim.", c=code_of(ids)))


@kind("embedding")
def _ids(case: Case) -> Finding | None:
    if "out of range" not in case.message:
        return None
    ids, weight = case.inputs[:2]
    x = who(ids, N_("its input"))
    rows = weight.shape[0]
    if weight.axes[0] != "V" and ids.shape and ids.shape[-1] > rows:
        what = say("the table has {n} positions, and {x} asks for {m}.", n=rows, x=x, m=ids.shape[-1])
        return Finding(what, say("keep the last {n} positions, or make the model with a larger block_size.", n=rows))
    what = say(
        "the table {label} has rows 0 to {last}; {x} holds a number outside.", label=weight.label, last=rows - 1, x=x
    )
    return Finding(
        what, say("look at {c}.min() and {c}.max(); tokenizer and model need the same vocabulary.", c=code_of(ids))
    )


mistakes(
    "one_hot",
    (
        r"only applicable to index tensor|index tensor of type",
        N_("one_hot counts by whole numbers; {x} is {dtype}."),
        N_("give it int64: {c}.long() where the numbers are whole."),
    ),
    (
        r"smaller than num_classes|non-negative",
        N_("{x} holds a number outside of the classes."),
        N_("look at {c}.min() and {c}.max(); num_classes is one more than the largest."),
    ),
)
mistakes(
    "topk kthvalue",
    (
        r"selected index k out of range",
        N_("it takes the k largest along one axis, and that axis of {x}, {label}, has fewer."),
        N_("make k smaller: min(k, {c}.size(dim))."),
    ),
)
mistakes(
    "multinomial",
    (
        r"must be 1 or 2 dim",
        N_("multinomial draws from rows of probabilities; {x} is {label}."),
        N_("to draw the next token, take the last position first: [:, -1]."),
    ),
    (
        r"sum of probabilities <= 0|inf, nan or element < 0|invalid multinomial distribution",
        N_("{x} must hold probabilities: none below 0, not all 0, no nan."),
        N_("logits become probabilities by softmax(dim=-1)."),
    ),
)
mistakes(
    "index_select",
    (
        r"Index is supposed to be a vector",
        N_("index_select takes a list of places, one axis; {y} is {y_label}."),
        N_("to take from each row its own places, use gather or take_along_dim."),
    ),
)


# ---------------------------------------------------------------- losses


@kind("cross_entropy", "nll_loss")
def _loss(case: Case) -> Finding | None:
    logits, target = case.inputs[:2]
    a, b = code_of(logits) or say("logits"), code_of(target) or say("targets")
    if is_whole(logits) and not is_whole(target):
        what = say("the scores come first and the class numbers second; here the first, {a}, is {dtype}.",
                   a=a, dtype=dtype_of(logits))  # fmt: skip
        return Finding(what, say("change the order: F.{name}({b}, {a}).", name=case.op.name, a=a, b=b))
    if found := case.says(r"Target (-?\d+) is out of bounds"):
        n = logits.shape[1] if rank(logits) > 1 else logits.shape[0]
        what = say("there are {n} classes, 0 to {last}; {b} holds a number outside.", n=n, last=n - 1, b=b)
        if found.group(1).startswith("-"):
            return Finding(what, say("look at {b}.min(); positions to leave out bear ignore_index, -100.", b=b))
        return Finding(what, say("look at {b}.max(); positions to leave out bear ignore_index, -100.", b=b))
    if "dtype" in case.message and target.shape == logits.shape[:1] + logits.shape[2:]:
        what = say("{b} are class numbers and must be int64; they are {dtype}.", b=b, dtype=dtype_of(target))
        return Finding(what, say("{b}.long()", b=b))
    return _loss_shapes(logits, target, a, b)


def _loss_shapes(logits: TensorInfo, target: TensorInfo, a: str, b: str) -> Finding | None:
    what = say("cross_entropy wants the classes on axis 1 and one target for the rest: [N, V] and [N].")
    if rank(logits) == rank(target) > 1 and not is_whole(target):
        what = say("targets that are probabilities have the shape of the logits; there are {x} and {y}.",
                   x=logits.label, y=target.label)  # fmt: skip
        return Finding(what, say("give class numbers, int64 [N], or one probability for each of the classes."))
    if rank(logits) == 3 and rank(target) == 2:
        flat = say("flatten both: {a}.view(-1, {a}.size(-1)) and {b}.view(-1).", a=a, b=b)
        return Finding(say("{what} Here axis 1 is {axis}.", what=what, axis=axis_of(logits, 1)), flat)
    if rank(logits) == 2 and rank(target) == 2:
        return Finding(what, say("flatten the targets as well: {b}.view(-1).", b=b))
    if rank(logits) == 3 and rank(target) == 1:
        return Finding(what, say("flatten the logits as well: {a}.view(-1, {a}.size(-1)).", a=a))
    if logits.shape and target.shape and logits.shape[0] != target.shape[0]:
        what = say("there are {n} rows of logits and {m} targets.", n=logits.shape[0], m=target.shape[0])
        return Finding(
            what, say("where targets are shifted, shorten both: logits [:, :-1], targets [:, 1:], and then flatten.")
        )
    return None


@kind("binary_cross_entropy", "binary_cross_entropy_with_logits")
def _one_for_each(case: Case) -> Finding | None:
    x, y = case.inputs[:2]
    if x.shape == y.shape:
        return None
    what = say("each number has one target: both must have one shape, and they are {a} and {b}.", a=x.label, b=y.label)
    for longer, shorter in ((x, y), (y, x)):
        if longer.shape == (*shorter.shape, 1):
            return Finding(what, say("drop the last axis of size 1: {c}.squeeze(-1).", c=code_of(longer)))
    return Finding(what)


# ---------------------------------------------------------------- x[…]


@kind("getitem", "setitem", "select", "index_select")
def _index(case: Case) -> Finding | None:
    x = case.inputs[0]
    if "too many indices" in case.message:
        return Finding(
            say("{x} has {n} axes, {label}; more were indexed.", x=who(x, N_("the tensor")), n=rank(x), label=x.label)
        )
    found = case.says(r"index (-?\d+) (?:is )?out of (?:bounds|range) for (?:dimension|tensor .* at dimension) (\d+)")
    if found is None:
        return None
    i, dim = int(found.group(1)), int(found.group(2))
    return Finding(
        say(
            "axis {dim} is {axis}: its places are 0 to {last}, and {i} was asked for.",
            dim=dim,
            axis=axis_of(x, dim),
            last=x.shape[dim] - 1,
            i=i,
        )  # fmt: skip
    )


mistakes(
    "getitem setitem",
    (
        r"The shape of the mask \[(.*?)\] at index \d+ does not match the shape of the indexed tensor \[(.*?)\]",
        N_("a mask in brackets must have the axes of {x} that it chooses from: the mask is [{a}], {x} is [{b}]."),
        N_("write x[mask] with mask and x in the same order of axes; masked_fill broadcasts instead."),
    ),
    (
        r"step must be greater than zero",
        N_("torch has no slices that go backwards."),
        N_("flip the axis: {c}.flip(1) for axis 1."),
    ),
    (
        r"only integers, slices .*\(got float\)",
        N_("a place is a whole number, and here is a fraction; / always gives one."),
        N_("divide with //, or use int(...)."),
    ),
)
