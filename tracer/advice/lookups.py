"""Looking up and comparing: embeddings, indices, gather and scatter, losses."""

from ..records import TensorInfo
from ..speech import N_, say
from .core import Case, Finding, kind, mistakes
from .words import axis_of, code_of, dtype_of, is_whole, rank

__all__: list[str] = []


@kind("embedding", "gather", "getitem", "index_select", "take_along_dim", "scatter", "scatter_add", "one_hot")
def _whole_numbers(case: Case) -> Finding | None:
    """Places to look up are int64."""
    ids = case.inputs[0 if case.op.name in ("embedding", "one_hot") else 1]
    if not case.says(r"(indices|index)\b") or case.says("must be Tensor") or is_whole(ids) or dtype_of(ids) == "bool":
        return None
    return case.found(
        "{name} looks up by whole numbers; {x} is {dtype}.", "give it int64: {c}.long() where the numbers are whole.",
        of=ids, called=N_("its input"),
    )  # fmt: skip


@kind("gather", "take_along_dim", "scatter", "scatter_add")
def _gathered(case: Case) -> Finding | None:
    x, ids = case.inputs[:2]
    if rank(x) == rank(ids):
        return None
    fits = rank(ids) == rank(x) - 1 and case.dim(0, 0) in (-1, rank(ids))
    return case.found(
        "{name} wants as many axes in the index as in the data; there are {y_label} and {label}.",
        "one entry for each row: {d}.unsqueeze(-1)." if fits else "",
    )


@kind("scatter", "scatter_add")
def _scattered(case: Case) -> Finding | None:
    x, _, source = case.inputs
    if not case.says("dtype") or dtype_of(x) == dtype_of(source):
        return None
    what, repair = N_("what is written is {dtype}, and {y} is {y_dtype}."), N_("convert it: {c}.to(torch.{y_dtype}).")
    return case.found(what, repair, of=source, also=x)


@kind("gather", "scatter", "scatter_add", "index_select", "take_along_dim")
def _beyond(case: Case) -> Finding | None:
    said = case.told(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)")
    return case.found(
        "axis {dim} has places 0 to {last}, and {y} asks for {i}.", "look at {d}.min() and {d}.max(), and at dim.",
        dim=said.group(2), last=int(said.group(3)) - 1, i=said.group(1),
    )  # fmt: skip


@kind("embedding")
def _ids(case: Case) -> Finding | None:
    case.told("out of range")
    ids, weight = case.inputs[:2]
    rows = weight.shape[0]
    if weight.axes[0] != "V" and ids.shape and ids.shape[-1] > rows:
        return case.found(
            "the table has {rows} positions, and {x} asks for {m}.",
            "keep the last {rows} positions, or make the model with a larger block_size.",
            called=N_("its input"), rows=rows, m=ids.shape[-1],
        )  # fmt: skip
    return case.found(
        "the table {y_label} has rows 0 to {last}; {x} holds a number outside.",
        "look at {c}.min() and {c}.max(); tokenizer and model need the same vocabulary.",
        called=N_("its input"), last=rows - 1,
    )  # fmt: skip


mistakes(
    "one_hot",
    (
        r"only applicable to index tensor",
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
        r"selected index k out of range|k not in range",
        N_("it takes the k largest along an axis, and that axis of {x}, {label}, has fewer."),
        N_("make k smaller: min(k, {c}.size(dim))."),
    ),
)
mistakes(
    "multinomial",
    (
        r"must be 1 or 2 dim",
        N_("multinomial draws from rows of probabilities; {x} is {label}."),
        N_("for the next token take the last position first: {c}[:, -1]."),
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
        N_("to take from each row places of its own, use gather or take_along_dim."),
    ),
)


# ---------------------------------------------------------------- losses


@kind("cross_entropy", "nll_loss")
def _loss(case: Case) -> Finding | None:
    logits, target = case.inputs[:2]
    a, b = code_of(logits) or say("logits"), code_of(target) or say("targets")
    if is_whole(logits) and not is_whole(target):
        return case.found(
            "the scores come first and the class numbers second; here the first, {a}, is {dtype}.",
            "change the order: F.{name}({b}, {a}).",
            a=a, b=b,
        )  # fmt: skip
    if said := case.says(r"Target (-?\d+) is out of bounds"):
        classes = logits.shape[1] if rank(logits) > 1 else logits.shape[0]
        return case.found(
            "there are {classes} classes, 0 to {last}; {b} holds a number outside.",
            "look at {b}.{end}(); positions to leave out bear ignore_index, -100.",
            classes=classes, last=classes - 1, b=b, end="min" if said.group(1).startswith("-") else "max",
        )  # fmt: skip
    if "dtype" in case.message and target.shape == logits.shape[:1] + logits.shape[2:]:
        return case.found("{b} are class numbers and must be int64; they are {y_dtype}.", "{b}.long()", b=b)
    return _loss_shapes(case, logits, target, a, b)


def _loss_shapes(case: Case, logits: TensorInfo, target: TensorInfo, a: str, b: str) -> Finding | None:
    ranks = rank(logits), rank(target)
    if ranks[0] == ranks[1] > 1 and not is_whole(target):
        what = N_("targets that are probabilities have the shape of the logits; there are {label} and {y_label}.")
        return case.found(what, "give class numbers, int64 [N], or a probability for each of the classes.")
    rule = say("cross_entropy wants the classes on axis 1 and one target for the rest: [N, V] and [N].")
    if ranks == (3, 2):
        flat = N_("flatten both: {a}.view(-1, {a}.size(-1)) and {b}.view(-1).")
        return case.found("{rule} Here axis 1 is {axis}.", flat, rule=rule, axis=axis_of(logits, 1), a=a, b=b)
    if ranks == (2, 2):
        return Finding(rule, say("flatten the targets as well: {b}.view(-1).", b=b))
    if ranks == (3, 1):
        return Finding(rule, say("flatten the logits as well: {a}.view(-1, {a}.size(-1)).", a=a))
    if logits.shape[0] == target.shape[0]:
        return None
    return case.found(
        "there are {rows} rows of logits and {m} targets.",
        "where targets are shifted, shorten both: logits [:, :-1], targets [:, 1:], and then flatten.",
        rows=logits.shape[0], m=target.shape[0],
    )  # fmt: skip


@kind("binary_cross_entropy", "binary_cross_entropy_with_logits")
def _one_for_each(case: Case) -> Finding | None:
    x, y = case.inputs[:2]
    if x.shape == y.shape:
        return None
    longer = next((t for t, other in ((x, y), (y, x)) if t.shape == (*other.shape, 1)), None)
    return case.found(
        "each number has one target: both have one shape, and here they are {label} and {y_label}.",
        "drop the last axis of size 1: {long}.squeeze(-1)." if longer else "",
        long=code_of(longer) if longer else "",
    )


# ---------------------------------------------------------------- x[…]


@kind("getitem", "setitem", "select", "index_select")
def _index(case: Case) -> Finding | None:
    if "too many indices" in case.message:
        return case.found("{x} has {n} axes, {label}; more were indexed.")
    said = case.told(r"index (-?\d+) (?:is )?out of (?:bounds|range) for (?:tensor .* at )?dimension (\d+)")
    i, dim = map(int, said.groups())
    what, x = N_("axis {dim} is {axis}: its places are 0 to {last}, and {i} was asked for."), case.inputs[0]
    return case.found(what, dim=dim, axis=axis_of(x, dim), last=x.shape[dim] - 1, i=i)


mistakes(
    "getitem setitem",
    (
        r"shape of the mask \[(.*?)\] at index \d+ does not match the shape of the indexed tensor \[(.*?)\]",
        N_("a mask in brackets must have the axes that it chooses from: it is [{a}], and {x} is [{b}]."),
        N_("bring mask and tensor into one order of axes; masked_fill lines them up from the right instead."),
    ),
    (
        r"step must be greater than zero",
        N_("torch has no slices that go backwards."),
        N_("flip the axis: {c}.flip(1) for axis 1."),
    ),
    (
        r"only integers, slices .*\(got float\)",
        N_("a place is a whole number; / always gives a fraction."),
        N_("divide with //, or use int(...)."),
    ),
)
