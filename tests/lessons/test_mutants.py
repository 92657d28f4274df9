"""Mutants of right answers: whatever differs from the reference on any valid input is rejected; the score is printed.

The operators are those of the subject: swap axes, drop a step, another order in a view, off by one. A mutant that
differs on none of many inputs is equivalent and must be accepted.
"""

import ast
import copy
import inspect
import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from tracer.lessons import Exercise, exercises
from tracer.lessons.compare import difference
from tracer.lessons.exercise import Case
from tracer.lessons.judge import judge
from tracer.lessons.running import run
from tracer.lessons.trial import arguments

BY_ID = {exercise.id: exercise for exercise in exercises()}


def split_spelled_out(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    D = C // H
    heads = torch.zeros(B, H, T, D)
    for h in range(H):
        heads[:, h, :, :] = x[:, :, h * D : (h + 1) * D]
    return heads


def split_by_permute(x: Tensor, H: int) -> Tensor:
    B, T, C = x.shape
    return x.reshape(B, T, H, C // H).permute(0, 2, 1, 3).contiguous()


def split_by_einops(x: Tensor, H: int) -> Tensor:
    return rearrange(x, "b t (h d) -> b h t d", h=H)


def merge_by_permute(out: Tensor) -> Tensor:
    B, H, T, D = out.shape
    return out.permute(0, 2, 1, 3).contiguous().view(B, T, H * D)


def merge_by_cat(out: Tensor) -> Tensor:
    return torch.cat([out[:, h] for h in range(0, out.shape[1])], dim=2)


def merge_by_einops(out: Tensor) -> Tensor:
    return rearrange(out, "b h t d -> b t (h d)")


SEEDS: list[tuple[str, Callable[..., Any]]] = [
    ("split_heads", BY_ID["split_heads"].reference),
    ("split_heads", split_spelled_out),
    ("split_heads", split_by_permute),
    ("split_heads", split_by_einops),
    ("merge_heads", BY_ID["merge_heads"].reference),
    ("merge_heads", merge_by_permute),
    ("merge_heads", merge_by_cat),
    ("merge_heads", merge_by_einops),
]


# ------------------------------------------------------------------ operators


def _mutations(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything that one node may be replaced with."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        for value in {-2, -1, 0, 1, 2, 3} - {node.value}:  # another axis; off by one
            yield ast.Constant(value)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value:
        yield from map(ast.Constant, _patterns(node.value))
    if isinstance(node, ast.Call):
        for i in range(len(node.args)):  # another order of the arguments
            for j in range(i):
                swapped = copy.deepcopy(node)
                swapped.args[i], swapped.args[j] = swapped.args[j], swapped.args[i]
                yield swapped
        if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name | ast.Attribute):
            yield node.func.value  # a step left out
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id != "torch"
        ):
            yield node.func.value
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        yield ast.Pass()  # a line left out
    if isinstance(node, ast.BinOp):
        for kind in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv):
            if not isinstance(node.op, kind):
                yield ast.BinOp(node.left, kind(), node.right)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and len(node.id) == 1 and node.id.isupper():
        yield from (ast.Name(letter, ast.Load()) for letter in "BTCHD" if letter != node.id)
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store):
        for i in range(1, len(node.elts)):  # the shape unpacked in another order
            elements = list(node.elts)
            elements[i], elements[i - 1] = elements[i - 1], elements[i]
            yield ast.Tuple(elements, ast.Store())


def _patterns(text: str) -> Iterator[str]:
    left, right = text.split("->")
    for side, other, front in ((left, right, True), (right, left, False)):
        letters = [letter for letter in "bthd" if letter in side]
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
    """Yield the source and the function of every mutant that is valid Python."""
    text = textwrap.dedent(inspect.getsource(function))
    count = len(list(ast.walk(ast.parse(text))))
    for place in range(count):
        choices = list(_mutations(list(ast.walk(ast.parse(text)))[place]))
        for choice in range(len(choices)):
            tree = ast.parse(text)
            node = list(ast.walk(tree))[place]
            changed = ast.fix_missing_locations(_Replace(node, list(_mutations(node))[choice]).visit(tree))
            source = ast.unparse(changed)
            space: dict[str, Any] = {"torch": torch, "Tensor": Tensor, "rearrange": rearrange}
            try:
                exec(compile(source, "<mutant>", "exec"), space)
            except SyntaxError:
                continue
            yield source, space[function.__name__]


# ------------------------------------------------------------------ the proof


def _many_cases(exercise: Exercise) -> list[Case]:
    """Valid inputs of all sizes, drawn apart from those of the check."""
    generator = random.Random(4)
    cases = []
    for _n in range(40):
        B, T, H, D = (generator.randint(1, 5) for _axis in range(4))
        shape = (B, T, H * D) if exercise.id == "split_heads" else (B, H, T, D)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(generator.randint(0, 10**6)))
        sizes = {"B": B, "T": T, "H": H, "D": D, "C": H * D}
        cases.append(Case((x, H) if exercise.id == "split_heads" else (x,), sizes))
    return cases


def _equivalent(exercise: Exercise, mutant: Callable[..., Any]) -> bool:
    names = arguments(exercise)
    for case in _many_cases(exercise):
        got, want = run(mutant, case, names), run(exercise.reference, case, names)
        if got.trouble or got.changed or difference(got.value, want.value, exercise.axes):
            return False
    return True


@pytest.mark.parametrize(("id", "seed"), SEEDS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_no_differing_mutant_passes(id: str, seed: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    exercise = BY_ID[id]
    killed, named, survivors, equivalent = 0, 0, [], []
    for source, mutant in mutants(seed):
        feedback = judge(exercise, mutant)
        if feedback.status != "right":
            killed, named = killed + 1, named + bool(feedback.mistake)
            assert not _equivalent(exercise, mutant), f"rejected, though equivalent: {feedback}\n{source}"
        elif _equivalent(exercise, mutant):
            equivalent.append(source)
        else:
            survivors.append(source)
    with capsys.disabled():
        print(f"\n{id}, {seed.__name__}: {killed} mutants killed ({named} named), {len(survivors)} survived, ", end="")
        print(f"{len(equivalent)} equivalent", end=" ")
    assert killed >= 10
    assert not survivors, "\n\n".join(survivors)
