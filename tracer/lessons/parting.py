"""Where a learner's run parts from the reference's: both are traced on one case, and compared by `Trace.diff`.

Code in another style differs in many steps and is right all the same. So the numbers decide: the step that is told
makes numbers that the reference never has, and nothing made from them is the reference's again. Whether an answer is
right is for `trial`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..engine import follow, new_recorder
from ..errors import AxesError
from ..records import Op, TensorInfo
from ..render.compare import parting as in_words
from ..result import Trace
from ..speech import _
from .exercise import Case, Exercise
from .running import Trouble, runs_on

__all__ = ["explained", "parting"]

MOST = 20_000  # elements of a tensor whose numbers are compared
LONGEST = 200  # steps of a run: a loop over all numbers would take long to compare


class _Run(NamedTuple):
    """A trace, and the exception that ended it."""

    trace: Trace
    error: Exception | None


def _record(exercise: Exercise, function: Callable[..., Any], case: Case) -> _Run | None:
    """Trace one call on copies of the inputs; None where that cannot be done."""
    pairs = zip(case.args, exercise.given, strict=True)
    axes = [axes or "" for arg, axes in pairs if isinstance(arg, Tensor)]
    recorder = new_recorder(case.sizes, False, True)
    recorder.ledger.most_kept = MOST
    args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in case.args)
    try:
        return _Run(follow(recorder, function, args, {}, axes), None)
    except AxesError:
        return None
    except BaseException as error:
        if runs_on(error):
            raise
        found = getattr(error, "trace", None)
        return _Run(found, error) if isinstance(found, Trace) and isinstance(error, Exception) else None


# ------------------------------------------------------------------ exceptions


def explained(exercise: Exercise, function: Callable[..., Any], case: Case, trouble: Trouble) -> list[str]:
    """Return what the tracer has to say about an exception: the named shapes of the operation that failed."""
    if trouble.notes:
        return []  # its own words are shown already
    run = _record(exercise, function, case)
    same = run is not None and run.error is not None and type(run.error).__name__ == trouble.type
    return [str(note) for note in getattr(run.error, "__notes__", ())] if run is not None and same else []


# ------------------------------------------------------------------ wrong values


def parting(exercise: Exercise, function: Callable[..., Any], case: Case) -> list[str]:
    """Return sentences on where a run parts from the reference's, with named shapes; none where that is not known."""
    try:
        return _parting(exercise, function, case)
    except Exception:  # code that no trace follows: what is wrong has been said, and where stays open
        return []


def _parting(exercise: Exercise, function: Callable[..., Any], case: Case) -> list[str]:
    mine, theirs = _record(exercise, function, case), _record(exercise, exercise.reference, case)
    if mine is None or theirs is None or mine.error or theirs.error or not theirs.trace:
        return []
    seen = [text for text in mine.trace.warnings if text not in theirs.trace.warnings]
    if seen:
        return [_("The names of the axes show it: {warning}.").format(warning=seen[0])]
    if not 0 < len(mine.trace) <= LONGEST:
        return []
    step = _first_off(mine.trace, theirs.trace)
    return [] if step is None else _told(step, mine.trace, theirs.trace)


def _first_off(mine: Trace, theirs: Trace) -> Op | None:
    """Return my first step with numbers that the reference never has, and from which none of its numbers is made again.

    A step that only orders numbers anew counts as one with the same numbers; constants, masks and what nothing uses do
    not count. Where all numbers are the reference's, in another order, the first step that `diff` finds is returned.
    """
    held = [numbers for op in theirs for info in (*op.inputs, *op.outputs) if (numbers := _sorted(info)) is not None]
    derived = _derived(mine)
    used = {info.id for op in mine for info in op.inputs}
    last, good = mine[-1], set[int]()
    off: Op | None = None
    for op in reversed(list(mine)):
        if any(_among(info, held) or info.id in good for info in op.outputs):
            good.update(info.id for info in op.inputs)
        elif op is last or (op.index in derived and any(i.id in used and i.dtype != "bool" for i in op.outputs)):
            off = op
    if off is None:
        off = next((change.mine for change in mine.diff(theirs) if change.mine and not change.slight), None)
    return off if off and off.source else None


def _derived(run: Trace) -> set[int]:
    """Return the indices of the steps that work on what the inputs hold, not on constants alone."""
    made, carrying, found = set[int](), set[int](), set[int]()
    for op in run:
        outside = any(info.id not in made and info.dtype.startswith(("float", "bfloat")) for info in op.inputs)
        made.update(info.id for info in op.outputs)
        if outside or any(info.id in carrying for info in op.inputs):
            found.add(op.index)
            carrying.update(info.id for info in op.outputs)
    return found


def _sorted(info: TensorInfo) -> Tensor | None:
    if info.values is None:
        return None
    return torch.tensor(info.values, dtype=torch.float64, device="cpu").flatten().sort().values


def _among(info: TensorInfo, held: Sequence[Tensor]) -> bool:
    mine = _sorted(info)
    alike = (other for other in held if mine is not None and mine.shape == other.shape)
    return mine is not None and any(torch.allclose(mine, other, 1e-4, 1e-4, equal_nan=True) for other in alike)


# ------------------------------------------------------------------ words


def _told(step: Op, mine: Trace, theirs: Trace) -> list[str]:
    """Word the step at which the runs part, and what the reference does there."""
    text = _("Your run parts from the reference's at {step} ({code}), which makes {label}; up to there they agree.")
    lines = [text.format(step=step.name, code=_code(step), label=_labels(step.outputs))]
    pair = next((change for change in mine.diff(theirs) if change.mine and change.mine.index == step.index), None)
    if pair and pair.theirs and not pair.slight:
        return [*lines, in_words(pair, (_("yours"), _("the reference")))]
    other = _from_the_same(step, theirs)
    if other is None:
        return lines
    text = _("With the same numbers, the reference goes on with {step}: {before} -> {after}.")
    return [*lines, text.format(step=other.name, before=_labels(other.inputs), after=_labels(other.outputs))]


def _from_the_same(step: Op, theirs: Trace) -> Op | None:
    """Return the reference's first step, other than a view, that works on numbers that this step works on."""
    mine = [numbers for info in step.inputs if (numbers := _sorted(info)) is not None]
    usable = (op for op in theirs if op.memory not in ("view", "same"))
    return next((op for op in usable if any(_among(info, mine) for info in op.inputs)), None)


def _code(op: Op) -> str:
    assert op.source is not None
    return _("line {line}: {code}").format(line=op.source.line, code=op.source.code)


def _labels(tensors: Sequence[TensorInfo]) -> str:
    return ", ".join(info.label for info in tensors) or _("no tensor")
