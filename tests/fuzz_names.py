"""Random programs against PyTorch's symbolic shapes: `python tests/fuzz_names.py --programs 10000 [--seed 0]`.

`--symbolic 20` makes the symbolic expressions of every twentieth program only (they take nine tenths of the time); the
others are judged by a run at sizes that no two axes share, which is what the expressions come out at.

A program is Python source, valid at any sizes: 1 to 30 steps of views, transposes, products, einsum, indexing, joins,
cuts, reductions and broadcasting over tensors of known axes. It runs three times:

1. on fake tensors whose sizes are PyTorch's symbols: each result's size is then an expression in B, T, S, H, N, M, V;
2. traced at distinct primes; 3. traced at sizes that coincide, or are 1.

A name is wrong if, at other sizes, it does not come out at the value of that expression; or if sizes change it to
another name; or if its factors stand in another order than the program joined them in. `?` is never wrong.
"""

import argparse
import linecache
import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.overrides import TorchFunctionMode
from tqdm import tqdm

import tracer
from tracer.calls import call_of
from tracer.naming import parse_axes, size_of

SYMBOLS = ("B", "T", "S", "H", "N", "M", "V")
"""The sizes that are free: the head size D is 2 N, so that it has halves, and the width C is H D."""
PRIMES = {"B": 2, "T": 5, "S": 11, "H": 3, "N": 7, "M": 13, "V": 17}
OTHERS = {"B": 101, "T": 103, "S": 107, "H": 109, "N": 113, "M": 127, "V": 131}
"""Where names and expressions are compared."""
INPUTS = {
    "x": "B T C", "y": "B S C", "q": "B H T D", "k": "B H S D", "f": "B T 3C", "m": "T S", "w": "M C", "u": "C M",
    "p": "C", "e": "V C", "g": "B T H", "r": "T D", "z": "T T",
}  # fmt: skip
FACTORS = {"C": ("H", "D"), "3C": ("3", "H", "D")}
HEADER = "def program(x, y, q, k, f, m, w, u, p, e, g, r, z, ids, B, T, S, H, N, M, V):\n    D = 2 * N\n    C = H * D\n"

Pick = Callable[[Sequence[Any]], Any]
Axis = tuple[str, ...]
"""The factors of one axis, in order, as texts of sizes; () is an axis of 1. A factor in brackets is a sum or a part."""


class Made(NamedTuple):
    """One variable of a program."""

    name: str
    axes: tuple[Axis, ...]


class Program(NamedTuple):
    """Source, and the axes of each variable that it makes."""

    source: str
    made: tuple[Made, ...]


# ------------------------------------------------------------------ writing programs


class Writer:
    """Writes one program, one step at a time; `pick` makes every choice."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.known = [Made(n, tuple(FACTORS.get(a, (a,)) for a in parse_axes(t))) for n, t in INPUTS.items()]
        self.lines: list[str] = []
        self.made: list[Made] = []

    def program(self) -> Program:
        """Return a program of 1 to 30 steps."""
        length = self.pick([1, 2, 3, 5, 8, 8, 12, 12, 20, 30])
        while len(self.lines) < length:
            step: Callable[[], None] = getattr(self, self.pick(STEPS))
            step()
        results = ", ".join(m.name for m in self.made)
        body = "".join(f"    {line}\n" for line in self.lines)
        return Program(f"{HEADER}{body}    return ({results},)\n", tuple(self.made))

    def tensor(self, least: int = 1, most: int = 5) -> Made:
        """Choose a tensor, one of the last made as a rule."""
        fitting = [m for m in self.known if least <= len(m.axes) <= most]
        return self.pick([*fitting, *fitting[-3:] * 6])

    def add(self, code: str, *axes: tuple[Axis, ...]) -> None:
        """Write `t3 = code`, or `t3, t4 = code`."""
        new = [Made(f"t{len(self.made) + i}", a) for i, a in enumerate(axes)]
        self.lines.append(f"{', '.join(m.name for m in new)} = {code}")
        self.known += new
        self.made += new

    def place(self, rank: int) -> int:
        return self.pick(range(rank))

    def dim(self, i: int, rank: int) -> int:
        """Write a dimension from the front or from the back."""
        return self.pick([i, i - rank])

    def size(self, axis: Axis) -> str:
        """Write the size of an axis as people do."""
        text = " * ".join(axis) or "1"
        return self.pick([text, text.replace("H * D", "C")])

    # views

    def transpose(self) -> None:
        a = self.tensor(2)
        r, i, j = len(a.axes), self.place(len(a.axes)), self.place(len(a.axes))
        axes = list(a.axes)
        axes[i], axes[j] = axes[j], axes[i]
        i, j = self.dim(i, r), self.dim(j, r)
        forms = (
            f"{a.name}.transpose({i}, {j})",
            f"torch.transpose({a.name}, {i}, {j})",
            f"{a.name}.swapaxes({i}, {j})",
        )
        self.add(self.pick(forms), tuple(axes))

    def swap_last(self) -> None:
        a = self.tensor(2)
        self.add(f"{a.name}.mT", (*a.axes[:-2], a.axes[-1], a.axes[-2]))

    def permute(self) -> None:
        a = self.tensor(2)
        order, left = [], list(range(len(a.axes)))
        while left:
            order.append(left.pop(self.place(len(left))))
        self.add(f"{a.name}.permute({', '.join(map(str, order))})", tuple(a.axes[i] for i in order))

    def movedim(self) -> None:
        a = self.tensor(2)
        i, j = self.place(len(a.axes)), self.place(len(a.axes))
        axes = list(a.axes)
        axes.insert(j, axes.pop(i))
        self.add(f"{a.name}.movedim({i}, {j})", tuple(axes))

    def regroup(self) -> None:
        a = self.tensor()
        factors = [f for axis in a.axes for f in axis]
        if "D" in factors and self.pick([0, 0, 1]):  # a head is cut into pairs, or halves
            i = factors.index("D")
            factors[i : i + 1] = self.pick([["D // 2", "2"], ["2", "D // 2"]])
        axes: list[list[str]] = [[]]
        for f in factors:
            if axes[-1] and self.pick([0, 1]):
                axes.append([])
            axes[-1].append(f)
        if len(axes) < 5 and self.pick([0, 0, 0, 1]):
            axes.insert(self.place(len(axes) + 1), [])
        new = tuple(tuple(whole(axis)) for axis in axes if axis or len(axes) > 1) or ((),)
        sizes = [self.size(axis) for axis in new]
        if self.pick([0, 1]):
            sizes[self.place(len(sizes))] = "-1"
        name = self.pick(["reshape", "contiguous().view"])
        text = ", ".join(sizes)
        self.add(f"{a.name}.{name}({self.pick([text, f'({text},)'])})", new)

    def flatten(self) -> None:
        a = self.tensor(2)
        i = self.place(len(a.axes) - 1)
        j = self.pick(range(i + 1, len(a.axes)))
        joined = whole([f for axis in a.axes[i : j + 1] for f in axis])
        self.add(f"{a.name}.flatten({i}, {self.dim(j, len(a.axes))})", (*a.axes[:i], tuple(joined), *a.axes[j + 1 :]))

    def unflatten(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        if len(a.axes[i]) > 1:
            cut = self.pick(range(1, len(a.axes[i])))
            parts = (a.axes[i][:cut], a.axes[i][cut:])
            sizes = [self.size(p) for p in parts]
            if self.pick([0, 1]):
                sizes[self.pick([0, 1])] = "-1"
            self.add(f"{a.name}.unflatten({i}, ({', '.join(sizes)}))", (*a.axes[:i], *parts, *a.axes[i + 1 :]))

    def unsqueeze(self) -> None:
        a = self.tensor(1, 4)
        i = self.place(len(a.axes) + 1)
        index = ", ".join([":"] * i + ["None"])
        code = self.pick([f"unsqueeze({i})", f"unsqueeze({i - len(a.axes) - 1})"])
        self.add(self.pick([f"{a.name}.{code}", f"{a.name}[{index}]"]), (*a.axes[:i], (), *a.axes[i:]))

    def squeeze(self) -> None:
        a = self.tensor()
        units = [i for i, axis in enumerate(a.axes) if not axis]
        if units and len(a.axes) > 1:
            i = self.pick(units)
            self.add(f"{a.name}.squeeze({self.dim(i, len(a.axes))})", (*a.axes[:i], *a.axes[i + 1 :]))

    def expand(self) -> None:
        a = self.tensor()
        units = [i for i, axis in enumerate(a.axes) if not axis]
        if units:
            i, new = self.pick(units), self.pick(["B", "T", "H"])
            sizes = ["-1"] * len(a.axes)
            sizes[i] = new
            self.add(f"{a.name}.expand({', '.join(sizes)})", (*a.axes[:i], (f"({new})",), *a.axes[i + 1 :]))

    # joins and cuts

    def cat(self) -> None:
        a = self.tensor()
        pairs = [(b, d) for b in self.known for d in range(len(a.axes)) if others(a, d) == others(b, d)]
        b, d = self.pick([*pairs, *pairs[-4:]])
        joined = (f"({self.text(a.axes[d])} + {self.text(b.axes[d])})",)
        name = self.pick(["cat", "concat", "concatenate"])
        self.add(f"torch.{name}([{a.name}, {b.name}], dim={self.dim(d, len(a.axes))})", replaced(a.axes, d, joined))

    @staticmethod
    def text(axis: Axis) -> str:
        return " * ".join(axis) or "1"

    def stack(self) -> None:
        a = self.tensor(1, 4)
        b = self.pick([b for b in self.known if b.axes == a.axes])
        d = self.place(len(a.axes) + 1)
        self.add(f"torch.stack(({a.name}, {b.name}), {d})", (*a.axes[:d], ("2",), *a.axes[d:]))

    def cut(self) -> None:
        a = self.tensor()
        for i, axis in enumerate(a.axes):
            if axis and axis[0] in ("2", "3") and len(axis) > 1:
                parts, rest = int(axis[0]), axis[1:]
            elif axis and axis[0] == "D" and len(axis) == 1:
                parts, rest = 2, ("D // 2",)
            else:
                continue
            forms = (
                f"chunk({parts}, {i})",
                f"split({self.text(rest)}, dim={self.dim(i, len(a.axes))})",
                f"tensor_split({parts}, {i})",
            )
            self.add(f"{a.name}.{self.pick(forms)}", *[replaced(a.axes, i, rest)] * parts)
            return

    def roll(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        self.add(f"{a.name}.{self.pick([f'roll(1, {i})', f'flip({i})', f'cumsum({i})', f'softmax({i})'])}", a.axes)

    # products

    def matmul(self) -> None:
        a = self.tensor(2)
        pairs = []
        for b in self.known:
            if len(b.axes) >= 2 and (b.axes[:-2] == a.axes[:-2] or len(b.axes) == 2):
                if b.axes[-1] == a.axes[-1]:
                    pairs.append((b, self.pick([".mT", ".transpose(-2, -1)"]), b.axes[-2]))
                elif b.axes[-2] == a.axes[-1]:
                    pairs.append((b, "", b.axes[-1]))
        if pairs:
            b, turn, column = self.pick(pairs)
            code = self.pick([f"{a.name} @ {b.name}{turn}", f"torch.matmul({a.name}, {b.name}{turn})"])
            self.add(code, (*a.axes[:-1], column))

    def linear(self) -> None:
        a = self.tensor()
        maps = [b for b in self.known if len(b.axes) == 2 and b.axes[1] == a.axes[-1]]
        if maps:
            b = self.pick(maps)
            self.add(f"F.linear({a.name}, {b.name})", (*a.axes[:-1], b.axes[0]))

    def einsum(self) -> None:
        a = self.tensor(1, 4)
        b = self.tensor(1, 4) if self.pick([0, 1, 1]) else None
        letters: dict[str, Axis] = {}
        names = [self.letters(m, letters) for m in (a, b) if m is not None]
        free = sorted(letters)
        out = []
        while free and (self.pick([1, 1, 1, 1, 0]) or not out) and len(out) < 4:
            out.append(free.pop(self.place(len(free))))
        equation = f"{','.join(names)}->{''.join(out)}"
        tensors = ", ".join(m.name for m in (a, b) if m is not None)
        if len({*"".join(names)}) <= 6:
            self.add(f'torch.einsum("{equation}", {tensors})', tuple(letters[n] for n in out))

    def letters(self, m: Made, known: dict[str, Axis]) -> str:
        """Give each axis a letter: one that stands for the same axis in the other operand, or a new one."""
        word = ""
        for axis in m.axes:
            same = [n for n, other in known.items() if other == axis and n not in word]
            if same and self.pick([1, 1, 1, 0]):
                word += self.pick(same)
            else:
                word += "abcdefgh"[len(known)]
                known[word[-1]] = axis
        return word

    def einsum_dots(self) -> None:
        a = self.tensor(2)
        pairs = [b for b in self.known if len(b.axes) >= 2 and b.axes[:-2] == a.axes[:-2] and b.axes[-1] == a.axes[-1]]
        b = self.pick(pairs)
        self.add(f'torch.einsum("...ij,...kj->...ik", {a.name}, {b.name})', (*a.axes[:-2], a.axes[-2], b.axes[-2]))

    # entries

    def index(self) -> None:
        a = self.tensor(2)
        i = self.place(len(a.axes))
        text, axis = self.pick([("0", None), ("-1", None), ("-1:", ()), (":1", ()), (":", a.axes[i])])
        code = f"{a.name}[{', '.join([':'] * i + [text])}]"
        back = f"{a.name}[{', '.join(['...', text, *[':'] * (len(a.axes) - i - 1)])}]"
        self.add(self.pick([code, back]), replaced(a.axes, i, axis))

    def part(self) -> None:
        a = self.tensor()
        if a.axes[-1][-1:] == ("D",) and len(a.axes[-1]) == 1:
            text = self.pick(["::2", "1::2", ": D // 2", "D // 2 :", ": D // 2"])
            self.add(f"{a.name}[..., {text}]", (*a.axes[:-1], ("D // 2",)))

    def bounded(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        if a.axes[i] in (("T",), ("S",)):
            self.add(f"{a.name}[{', '.join([':'] * i + [f': {a.axes[i][0]}'])}]", a.axes)

    def lookup(self) -> None:
        a = self.tensor(2)
        if a.axes[0] == ("V",):
            rest = a.axes[1:]
            forms = [(f"{a.name}[ids]", (("B",), ("T",), *rest)), (f"{a.name}[ids[0]]", (("T",), *rest))]
            forms.append((f"{a.name}.index_select(0, ids[:, 0])", (("B",), *rest)))
            code, axes = self.pick(forms)
            self.add(code, axes)

    def gather(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        self.add(f"{a.name}.gather({i}, {a.name}.argsort({i}))", a.axes)

    def reduce(self) -> None:
        a = self.tensor()
        name = self.pick(["sum", "mean", "amax", "logsumexp", "prod", "argmax", "norm"])
        i = self.place(len(a.axes))
        d = f"dim={self.dim(i, len(a.axes))}"
        value = "" if name != "argmax" else ".float()"
        if self.pick([0, 1]):
            self.add(f"{a.name}.{name}({d}, keepdim=True){value}", replaced(a.axes, i, ()))
        elif len(a.axes) > 1:
            self.add(f"{a.name}.{name}({d}){value}", replaced(a.axes, i, None))

    def several(self) -> None:
        a = self.tensor(3)
        i = self.place(len(a.axes) - 1)
        code = f"{a.name}.{self.pick(['sum', 'amax', 'mean'])}(({i}, -1))"
        self.add(code, (*a.axes[:i], *a.axes[i + 1 : -1]))

    def largest(self) -> None:
        a = self.tensor(2)
        i = self.place(len(a.axes))
        self.add(f"{a.name}.{self.pick(['max', 'min', 'median'])}({i})[0]", replaced(a.axes, i, None))

    def sort(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        self.add(f"{a.name}.sort({i})[0]", a.axes)

    def pointwise(self) -> None:
        a = self.tensor()
        self.add(self.pick([f"-{a.name}", f"1 - {a.name}", f"F.relu({a.name})", f"{a.name} * 2"]), a.axes)

    def broadcast(self) -> None:
        a = self.tensor()
        fitting = [b for b in self.known if len(b.axes) <= len(a.axes) and all(
            m in (n, ()) for m, n in zip(b.axes[::-1], a.axes[::-1], strict=False))]  # fmt: skip
        b = self.pick([*fitting, *fitting[-3:]])
        pair = self.pick([(a.name, b.name), (b.name, a.name)])
        forms = ("{} + {}", "{} * {}", "torch.maximum({}, {})", "torch.where({} > 0, {}, 0.0)")
        self.add(self.pick(forms).format(*pair), a.axes)

    def outer(self) -> None:
        a = self.tensor(1, 4)
        b = self.pick([b for b in self.known if b.axes[:-1] == a.axes[:-1]])
        self.add(f"{a.name}[..., :, None] - {b.name}[..., None, :]", (*a.axes[:-1], a.axes[-1], b.axes[-1]))

    def positions(self) -> None:
        a = self.tensor()
        i = self.place(len(a.axes))
        if a.axes[i] in (("T",), ("S",)):
            turn = "[:, None]" * (i < len(a.axes) - 1) if i >= len(a.axes) - 2 else None
            if turn is not None:
                self.add(f"{a.name} + torch.arange({a.axes[i][0]}, device=x.device){turn}", a.axes)

    def triangle(self) -> None:
        a = self.tensor(2)
        self.add(f"{a.name}.{self.pick(['tril', 'triu'])}()", a.axes)


STEPS = sorted(
    n for n, f in vars(Writer).items()
    if callable(f) and n not in ("program", "tensor", "add", "place", "dim", "size", "text", "letters", "__init__")
)  # fmt: skip


def whole(factors: Sequence[str]) -> list[str]:
    """Write a pair of halves as the whole: (D // 2) times 2 is D."""
    text = "|".join(factors)
    return [f for f in text.replace("D // 2|2", "D").split("|") if f]


def replaced(axes: tuple[Axis, ...], i: int, new: Axis | None) -> tuple[Axis, ...]:
    """Return the axes with one replaced, or without it."""
    return (*axes[:i], *([] if new is None else [new]), *axes[i + 1 :])


def others(m: Made, d: int) -> tuple[Axis, ...] | None:
    """Return all axes but one."""
    return (*m.axes[:d], ("",), *m.axes[d + 1 :]) if d < len(m.axes) else None


# ------------------------------------------------------------------ running them

_number = count()


def compiled(program: Program) -> Callable[..., Any]:
    """Return the function of a program; its lines can be read as a file's can."""
    name = f"<program {next(_number)}>"
    linecache.cache[name] = (len(program.source), None, program.source.splitlines(True), name)
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(program.source, name, "exec"), space)
    return space["program"]  # type: ignore[no-any-return]


def arguments(sizes: dict[str, Any]) -> list[Any]:
    """Return the inputs of a program at these sizes, numbers or symbols."""
    known = {**sizes, "D": 2 * sizes["N"], "C": sizes["H"] * 2 * sizes["N"]}
    known["3C"] = 3 * known["C"]
    shapes = [[known[a] for a in parse_axes(text)] for text in INPUTS.values()]
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    return [*tensors, torch.empty([known["B"], known["T"]], dtype=torch.long, device="meta"), *sizes.values()]


class Watcher(TorchFunctionMode):
    """Writes down the shape of every result, operation by operation, as the tracer does."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[Any, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not call_of(func).skip:
            results = out if isinstance(out, tuple | list) else (out,)
            self.shapes.append(tuple(tuple(t.shape) for t in results if isinstance(t, torch.Tensor)))
        return out


class Judge:
    """PyTorch's symbolic shapes: one environment for all programs, since nothing in them bounds a size."""

    def __init__(self) -> None:
        environment = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=environment)
        self.symbols, self.values = {}, {}
        for name in SYMBOLS:
            source = ConstantSource(name)
            symbol = environment.create_symbol(PRIMES[name], source, dynamic_dim=DimDynamic.DYNAMIC)
            self.symbols[name] = environment.create_symintnode(symbol, hint=PRIMES[name], source=source)
            self.values[symbol] = OTHERS[name]
        self.seen: dict[Any, int] = {}

    def shapes(self, function: Callable[..., Any], symbolic: bool) -> list[tuple[tuple[int, ...], ...]]:
        """Return, for each operation and each result, its shape at the sizes in OTHERS.

        The symbolic expressions at these sizes are what a run at these sizes shows, at a hundredth of the cost; where
        `symbolic`, both are made, and must agree.
        """
        with Watcher() as watcher:
            function(*INPUTS_THERE)
        if symbolic:
            with self.mode:
                inputs = arguments(self.symbols)
                with Watcher() as expressions:
                    function(*inputs)
            values = [tuple(tuple(map(self.value, shape)) for shape in shapes) for shapes in expressions.shapes]
            assert values == watcher.shapes, "a program whose sizes are no expressions in its symbols"
        return watcher.shapes

    def value(self, size: Any) -> int:
        """Return a symbolic size at the sizes in OTHERS."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self.seen:
            self.seen[expression] = int(expression.xreplace(self.values))
        return self.seen[expression]


INPUTS_THERE = arguments(OTHERS)


def traced(function: Callable[..., Any], sizes: dict[str, int]) -> tracer.Trace:
    """Trace a program at some sizes."""
    axes = [*INPUTS.values(), "B T"]
    declared = {"H": sizes["H"], "D": 2 * sizes["N"], "M": sizes["M"], "V": sizes["V"]}
    return tracer.trace(function, *arguments(sizes), axes=axes, sizes=declared)


def runs(function: Callable[..., Any], sizes: dict[str, int]) -> bool:
    """Tell whether a program runs at all at these sizes."""
    try:
        function(*arguments(sizes))
    except (RuntimeError, IndexError):
        return False
    return True


KNOWN = {**OTHERS, "D": 2 * OTHERS["N"], "C": 2 * OTHERS["N"] * OTHERS["H"]}


class Verdict(NamedTuple):
    """What one program showed: wrong names, and how many axes were named of how many, at distinct and other sizes."""

    wrong: tuple[str, ...]
    axes: int
    named: int
    named_colliding: int


def judged(judge: Judge, program: Program, colliding: dict[str, int], symbolic: bool = True) -> Verdict | None:
    """Run and judge one program; None where it does not run at these sizes."""
    function = compiled(program)
    if not (runs(function, colliding) and runs(function, OTHERS)):  # some results would be too large
        return None
    expected = judge.shapes(function, symbolic)
    plain, other = traced(function, PRIMES), traced(function, colliding)
    wrong: list[str] = []
    counts = [0, 0, 0]
    factors = {m.name: m.axes for m in program.made}
    for k, (shapes, one, two) in enumerate(zip(expected, plain, other, strict=True)):
        for shape, a, b in zip(shapes, one.outputs, two.outputs, strict=True):
            made = (
                factors.get(a.variable or "", ()) if one.source and one.source.code.startswith(f"{a.variable} ") else ()
            )
            place = (
                f"operation {k}, {one.source.code if one.source else one.name}, of {[i.label for i in two.inputs]}: "
            )
            for i, n in enumerate(shape):
                names = (a.axes[i], b.axes[i])
                counts[0] += 1
                counts[1] += names[0] != "?"
                counts[2] += names[1] != "?"
                for name in names:
                    if name != "?" and size_of(name, KNOWN) != n:
                        wrong.append(f"{place}axis {i}: {name} is of another size; {names}")
                if "?" not in names and names[0] != names[1]:
                    wrong.append(f"{place}axis {i}: {names[0]} becomes {names[1]}")
                if len(made) == len(shape) and one is last_of_line(plain, k) and not right_order(names, made[i]):
                    wrong.append(f"{place}axis {i}: {names}, made of {made[i]}")
    return Verdict(tuple(wrong), *counts)


def last_of_line(trace: tracer.Trace, k: int) -> Any:
    """Return the last operation of the line that operation k stands on."""
    line = trace[k].source.line
    return [op for op in trace if op.source is not None and op.source.line == line][-1]


def right_order(names: tuple[str, str], made: Axis) -> bool:
    """Tell whether the factors of names stand as the program joined them; only plain products are compared."""
    if any(f.startswith("(") or "/" in f for f in made):
        return True
    letters = [f for f in made if not f.isdigit()]  # 3T is T times 3, in either order
    found = [atoms_of(n) for n in names if n != "?"]
    return all(f is None or [a for a in f if not a.isdigit()] == letters for f in found)


def atoms_of(name: str) -> list[str] | None:
    """Return the factors of a product, C as H D; None for sums and parts."""
    if "+" in name or "/" in name:
        return None
    words: list[str] = []
    for word in name.strip("()").split():
        number = word.rstrip("BTSHNMVCD(")
        words += [w for w in (number, *word[len(number) :].strip("(")) if w]
    atoms = [b for w in words for b in ({"C": ("H", "D")}.get(w, (w,)))]
    return [] if atoms == ["1"] else atoms


def collisions(pick: Pick) -> dict[str, int]:
    """Choose sizes of which most coincide."""
    if pick([0, 0, 0, 1]):
        n = pick([1, 2, 4])
        return {**dict.fromkeys(SYMBOLS, n), "N": max(1, n // 2)}
    if pick([0, 0, 1]):
        return {s: pick([1, 1, 2, 4]) for s in SYMBOLS}
    return {s: pick([1, 2, 2, 3, 4, 4, 6]) for s in SYMBOLS}


def main() -> None:
    """Run as many programs as asked, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--symbolic", type=int, default=1, help="make symbolic sizes for every n-th program")
    parser.add_argument("--show", type=int, default=5, help="how many wrong programs to print")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    judge, ran, bad, counts, steps = Judge(), 0, 0, [0, 0, 0], 0
    for seed in tqdm(range(chosen.seed, chosen.seed + chosen.programs), unit=" programs"):
        draw = random.Random(seed)
        program, sizes = Writer(draw.choice).program(), collisions(draw.choice)
        try:
            verdict = judged(judge, program, sizes, symbolic=seed % chosen.symbolic == 0)
        except Exception as error:
            verdict = Verdict((f"{type(error).__name__}: {error}",), 0, 0, 0)
        if verdict is None:
            continue
        ran += 1
        steps += len(program.made)
        counts = [a + b for a, b in zip(counts, verdict[1:], strict=True)]
        if verdict.wrong:
            bad += 1
            if bad <= chosen.show:
                print(f"seed {seed}, sizes {sizes}\n{program.source}", *verdict.wrong[:4], "", sep="\n")
    shares = ", ".join(
        f"{n / max(1, counts[0]):.1%} {at}"
        for n, at in zip(counts[1:], ("at primes", "at sizes that coincide"), strict=True)
    )
    print(
        f"{ran} programs of {steps} steps judged (others do not run at their sizes); {bad} with a wrong name or a crash"
    )
    print(f"{counts[0]} axes, named: {shares}")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
