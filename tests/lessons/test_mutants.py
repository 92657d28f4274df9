"""Mutants of right answers: whatever differs from the reference on any valid input is rejected; the score is printed.

The operators are those of the subject: swap axes, drop a step, another order in a view, off by one, no scale, a mask
turned round, another broadcast. A mutant that differs on none of many inputs is equivalent and must be accepted.
"""

import ast
import copy
import inspect
import random
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from answers import RIGHT

from tracer.lessons import Exercise, exercises
from tracer.lessons.compare import difference
from tracer.lessons.exercise import Case, Draw, _with_width
from tracer.lessons.running import run
from tracer.lessons.trial import arguments

FUNCTIONS = [exercise for exercise in exercises() if exercise.kind == "function"]


def _seeds(exercise: Exercise) -> list[Callable[..., Any]]:
    """Return the reference and the right answers whose source can be changed: plain functions with a name."""
    named = [f for f in RIGHT[exercise.id] if isinstance(f, types.FunctionType) and f.__name__ != "<lambda>"]
    return [exercise.reference, *named]


SEEDS = [(exercise, seed) for exercise in FUNCTIONS for seed in _seeds(exercise)]


# ------------------------------------------------------------------ operators


def _mutations(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything that one node may be replaced with."""
    if isinstance(node, ast.Constant):
        yield from _constants(node.value)
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        yield ast.Pass()  # a line left out
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()
    if isinstance(node, ast.BinOp):
        for kind in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv):
            if not isinstance(node.op, kind):
                yield ast.BinOp(node.left, kind(), node.right)
        yield node.left  # no scale, no mask, no bias
    if isinstance(node, ast.UnaryOp):
        yield node.operand  # a mask turned round, a sign dropped
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for order in (ast.Lt, ast.LtE, ast.Gt, ast.GtE):
            if not isinstance(node.ops[0], order):
                yield ast.Compare(node.left, [order()], node.comparators)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and len(node.id) == 1 and node.id.isupper():
        yield from (ast.Name(letter, ast.Load()) for letter in "BTSCHD" if letter != node.id)
    if isinstance(node, ast.Tuple):
        for i in range(1, len(node.elts)):  # a shape unpacked, or results given back, in another order
            elements = list(node.elts)
            elements[i], elements[i - 1] = elements[i - 1], elements[i]
            yield ast.Tuple(elements, node.ctx)


def _constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)  # keepdim
    elif isinstance(value, int):
        for other in {-2, -1, 0, 1, 2, 3} - {value}:  # another axis; off by one
            yield ast.Constant(other)
    elif isinstance(value, float):
        yield from (ast.Constant(value * 2), ast.Constant(-value), ast.Constant(0.0))
    elif isinstance(value, str) and "->" in value:
        yield from map(ast.Constant, _patterns(value))
    elif value in ("inf", "-inf"):
        yield from map(ast.Constant, ("1e-9", "0", "inf" if value == "-inf" else "-inf"))


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    for i in range(len(node.args)):  # another order of the arguments
        for j in range(i):
            swapped = copy.deepcopy(node)
            swapped.args[i], swapped.args[j] = swapped.args[j], swapped.args[i]
            yield swapped
    if not isinstance(node.func, ast.Attribute):
        return
    owner = node.func.value
    if not (isinstance(owner, ast.Name) and owner.id in ("torch", "F", "math")) and not isinstance(
        owner, ast.Attribute
    ):
        yield owner  # a step left out
    for one, other in (("tril", "triu"), ("any", "all"), ("sum", "mean"), ("zeros", "ones"), ("matmul", "mul")):
        for old, new in ((one, other), (other, one)):
            if node.func.attr == old:
                changed = copy.deepcopy(node)
                assert isinstance(changed.func, ast.Attribute)
                changed.func.attr = new
                yield changed
    if node.keywords:
        fewer = copy.deepcopy(node)
        fewer.keywords.pop()  # keepdim=True, dim=-1, diagonal=1 left out
        yield fewer


def _patterns(text: str) -> Iterator[str]:
    left, right = text.split("->")
    for side, other, front in ((left, right, True), (right, left, False)):
        letters = sorted({letter for letter in side if letter.isalpha()})
        for i, a in enumerate(letters):
            for b in letters[:i]:
                swapped = side.translate(str.maketrans(a + b, b + a))
                yield f"{swapped}->{other}" if front else f"{other}->{swapped}"


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, by: ast.AST) -> None:
        self.target, self.by = target, by

    def visit(self, node: ast.AST) -> Any:
        return self.by if node is self.target else self.generic_visit(node)


def mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the source and the function of every mutant that is valid Python; annotations stay as they are."""
    whole = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = whole.body[0]
    assert isinstance(definition, ast.FunctionDef)
    documented = ast.get_docstring(definition) is not None
    for statement in definition.body[documented:]:
        for node in ast.walk(statement):
            for by in _mutations(node):
                tree = copy.deepcopy(whole, {id(node): node})  # the node itself is kept, so that it can be found
                source = ast.unparse(ast.fix_missing_locations(_Replace(node, by).visit(tree)))
                space = dict(function.__globals__)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # `3(x)`: a SyntaxWarning, and a mutant that fails at once
                        exec(compile(source, "<mutant>", "exec"), space)
                except (SyntaxError, ValueError):
                    continue
                yield source, space[definition.name]


# ------------------------------------------------------------------ the proof


class _Free(Draw):
    """Draws any valid sizes, equal ones and 1 among them; the checks themselves draw distinct ones."""

    def sizes(self, letters: str) -> dict[str, int]:
        return _with_width({letter: self._random.randint(1, 5) for letter in letters.split()})


def _many_cases(exercise: Exercise) -> list[Case]:
    """Valid inputs of all sizes, drawn apart from those of the check."""
    assert exercise.inputs
    generator = random.Random(4)
    return [case for _n in range(12) for case in exercise.inputs(_Free(generator.randrange(10**6)))]


Solved = list[tuple[Case, list[Any]]]


def _solved(exercise: Exercise, cases: Sequence[Case]) -> Solved:
    """Return each case with the results of the reference, and of the right answers in another convention."""
    names = arguments(exercise)
    rights = (exercise.reference, *exercise.also)
    return [(case, [run(right, case, names).value for right in rights]) for case in cases]


def _passes(exercise: Exercise, function: Callable[..., Any], solved: Solved) -> bool:
    """Whether a function agrees with one convention in every case; as a check judges it; stops at a difference."""
    open_still = set(range(1 + len(exercise.also)))
    for case, wants in solved:
        got = run(function, case, arguments(exercise))
        if got.trouble or got.changed:
            return False
        open_still = {n for n in open_still if not difference(got.value, wants[n], exercise.axes, exercise.tolerance)}
        if not open_still:
            return False
    return True


SEED = 3
"""Of the inputs that a check draws: fixed here, so that two runs say the same."""
KILLED: list[int] = []
EQUIVALENT: list[str] = []


@pytest.mark.parametrize(("exercise", "seed"), SEEDS, ids=lambda x: x.id if isinstance(x, Exercise) else x.__name__)
def test_no_differing_mutant_passes(exercise: Exercise, seed: Callable[..., Any]) -> None:
    assert exercise.inputs
    killed, survivors = 0, []
    checked, many = _solved(exercise, exercise.inputs(Draw(SEED))), _solved(exercise, _many_cases(exercise))
    for source, mutant in mutants(seed):
        if not _passes(exercise, mutant, checked):
            killed += 1
            assert not _passes(exercise, mutant, many), f"rejected, though the same on every input tried:\n{source}"
        elif _passes(exercise, mutant, many):
            EQUIVALENT.append(f"{exercise.id}, {seed.__name__}: {_changed(seed, source)}")
        else:
            survivors.append(source)
    KILLED.append(killed)
    assert killed >= 3
    assert not survivors, "\n\n".join(survivors)


def _changed(seed: Callable[..., Any], source: str) -> str:
    """Return the lines that a mutant has and its original has not."""
    original = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(seed)))).splitlines()
    return " | ".join(line.strip() for line in source.splitlines() if line not in original) or "a line left out"


def test_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the score; `pytest -s` also lists what was let through, the same as the reference on every input tried."""
    print("\n".join(["", *EQUIVALENT]))
    with capsys.disabled():
        print(
            f"\n{sum(KILLED)} mutants that differ on a valid input, all rejected; {len(EQUIVALENT)} equivalent", end=" "
        )
    assert len(KILLED) == len(SEEDS) or not KILLED
