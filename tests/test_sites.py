"""Lines, variables and arguments that are read from the source of a call.

The reader knows nothing of torch: here a plain object stands for a tensor, and looks at its caller in every operation.
"""

import copy
import importlib.util
import linecache
import os
import subprocess
import sys
from types import SimpleNamespace

import einops
import pytest
import torch
from torch import nn

import tracer
from tracer import sites
from tracer.models import GPT
from tracer.sites import caller_names, is_library, locate, trail

SEEN = []


class Value:
    """Writes down the site of each operation on it."""

    def note(self):
        frame = sys._getframe(2)
        place, where = locate(frame)
        SEEN.append((place, caller_names(where, place) if place.returned else ()))
        return self

    def op(self, *args, **kwargs):
        return self.note()

    def __add__(self, other):
        return self.note()

    __sub__ = __radd__ = __iadd__ = __lt__ = __getitem__ = __add__

    def __neg__(self):
        return self.note()

    def __setitem__(self, key, value):
        self.note()

    def __iter__(self):
        self.note()
        return iter((self, self, self))

    @property
    def part(self):
        return self.note()


def run(code, **names):
    """Run code with a Value `x`; return what was seen: (line, names, literals, names by the caller)."""
    file = f"<test {abs(hash(code))}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    SEEN.clear()
    exec(compile(code, file, "exec"), {"x": Value(), **names})
    return SEEN.copy()


def variables(code):
    return [place.names for place, _ in run(code)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("y = x.op()", [("y",)]),
        ("y = (x.op())", [("y",)]),
        ("y: int = x + 1", [("y",)]),
        ("a = b = x + 1", [("a",)]),
        ("a, b, c = x.op()", [("a", "b", "c"), ("a", "b", "c")]),
        ("[a, b, c] = (x + 1)", [("a", "b", "c"), ()]),
        ("a, (b, c, d), _ = x.op()", [("a", "b", "c", "d", "_"), ("a", "b", "c", "d", "_"), ("b", "c", "d")]),
        ("a, b = x + 1, x.op()", [("a",), ("b",)]),
        ("(a, b), c = (1, 2), x.op()", [("c",)]),
        ("a, *b = x + 1, x.op()", [(), ()]),
        ("a, *b = x.op()", [(), ()]),
        ("x += x.op()", [(), ("x",)]),
        ("x[0] = x.op()", [(), ()]),
        ("x[0] += 1", [(), (), ()]),
        ("x.y = x.op()", [()]),
        ("x.y, a = x.op(), x.op()", [(), ("a",)]),
        ("print((y := x.op()) is None)", [("y",)]),
        ("y = x.op() + 1", [(), ("y",)]),
        ("y = x.op().op()", [(), ("y",)]),
        ("y = -x", [("y",)]),
        ("y = x[1:2]", [("y",)]),
        ("y = x.part", [("y",)]),
        ("y = x.op() if x < x else x + 1", [(), ("y",)]),
        ("y = x.op() or 1", [()]),
        ("y = not x.op()", [()]),
        ("y = [x.op()]", [()]),
        ("y = [v.op() for v in [x, x]]", [(), ()]),
        ("y = {1: x.op()}", [()]),
        ("y = str(x.op())", [()]),
        ("y = x.op()[0]", [("y", ""), ("y",)]),
        ("y = x.op()[1]", [("", "y", ""), ("y",)]),
        ("y = x.op()[-1]", [(), ("y",)]),
        ("for y in x.op(): pass", [(), ()]),
        ("with open(__import__('os').devnull) as f, x.op() if 0 else f: pass\nx.op()", [()]),
        ("y = (x\n  .op(1)\n  .op(2,\n      3)\n  )", [(), ("y",)]),
        ("y = x.op(\n  x.op(),\n  2,\n)", [(), ("y",)]),
        ("if (y := x + 1) is None: pass", [("y",)]),
        ("try:\n  y = x.op()\nfinally:\n  z = x.op()", [("y",), ("z",)]),
        ("match x.op():\n  case y:\n    z = y.op()", [(), ("z",)]),
        ("class A:\n  y = x.op()", [("y",)]),
        ("y = 1; z = x.op(); w = 2", [("z",)]),
        ("y = 'ä' + 'é' * len('中' ) if 0 else x.op()", [("y",)]),
        ("중 = x.op()", [("중",)]),
    ],
)
def test_variables(code, expected):
    assert variables(code) == expected


def test_lines_and_functions():
    seen = run("def f():\n    return (x\n        .op()\n        + x.op(\n            1))\n\ny = f()\n")
    assert [(p.source.line, p.source.code) for p, _ in seen] == [(3, ".op()"), (4, "+ x.op("), (2, "return (x")]
    assert {p.function for p, _ in seen} == {"f"}
    assert [p.instruction for p, _ in seen] == sorted(p.instruction for p, _ in seen)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("x.op(B, T, 1, C)", ("B", "T", "1", "C")),
        ("x.op(2, -1, dim=C // 2)", ("2", "-1", "dim=C // 2")),
        ("x.op(*[1, 2], **{})", ("*[1, 2]", "**{}")),
        ('x.op("b t c -> c", h=B)', ('"b t c -> c"', "h=B")),
        ("x.op(\n    B,\n    (T,\n     C))", ("B", "(T, C)")),
        ("x.op()", ()),
        ("x + 1", ()),
        ("x.op('중', B)", ("'중'", "B")),
    ],
)
def test_arguments_as_they_were_written(call, expected):
    ((place, _),) = run(f"B = T = C = 4\ny = {call}\n")
    assert place.literals == expected


def test_callers_name_what_is_returned():
    code = """
def direct(): return x.op()
def chain(): return direct()
def pair(): return x.op(), 1, x + 1
def later():
    out = x.op()
    return out
def parts():
    a = x.op()
    b = x + 1
    return b, a
def other():
    a = x.op()
    def inner(): return a
    return 1
def branch(c): return x.op() if c else None
def group():
    q, k, v = x.op()
    return q, k, v
a = direct()
b = chain()
c, d, e = pair()
f = pair()
g = later()
h, i = parts()
j = other()
k = branch(1)
l = (lambda: x.op())()
m = max([1], key=lambda _: direct() is None)
n = list(map(lambda _: x.op(), [1]))
p = direct() + 1
print(direct(), end="")
direct()
r, (s, t) = pair()[:2] if 0 else (1, (2, 3))
u, v, w = group()
"""
    assert [names for _, names in run(code) if names] == [
        ("a",), ("b",), ("c",), ("e",), ("g",), ("i",), ("h",), ("k",), ("l",), ("u", "v", "w"), ("u", "v", "w"),
    ]  # fmt: skip


def test_methods_properties_and_coroutines_return_too():
    code = """
import asyncio
class M:
    def __call__(self, v): return self.forward(v)
    def forward(self, v): return v.op()
    @property
    def weight(self): return x + 1
async def slow():
    await asyncio.sleep(0)
    return x.op()
async def main():
    late = await slow()
m = M()
y = m(x)
w = m.weight
asyncio.run(main())
"""
    assert [names for _, names in run(code)] == [("y",), ("w",), ("late",)]


def test_code_without_source_has_a_line_and_no_more():
    SEEN.clear()
    exec(compile("y = x.op()", "<nowhere>", "exec"), {"x": Value()})
    ((place, _),) = SEEN
    assert (place.source.file, place.source.line, place.source.code) == ("<nowhere>", 1, "")
    assert (place.names, place.literals) == ((), ())


def test_source_that_does_not_fit_or_cannot_be_parsed_names_nothing():
    for text in ("z = 1\n", "y = (\n", "y = 'x.op()'\n"):
        file = f"<stale {len(text)} {text[0]}>"
        linecache.cache[file] = (len(text), None, [text], file)
        SEEN.clear()
        exec(compile("y = x.op()", file, "exec"), {"x": Value()})
        ((place, _),) = SEEN
        assert place.names == () and place.literals == ()


def test_a_site_is_the_same_object_each_time():
    places = [p for p, _ in run("for i in range(3): y = x.op()")]
    assert places[0] is places[1] is places[2]
    assert places[0].named(("a", "b")) is places[0].named(("a", "b"))
    assert places[0].named(("y",)) is places[0] and places[0].named(()).names == ()
    assert places[0].named(()).source is places[0].source


def test_library_code_is_passed_over():
    assert is_library(torch.nn.Linear.forward.__code__) and is_library(einops.rearrange.__code__)
    assert is_library(copy.deepcopy.__code__) and is_library(sites.locate.__code__)
    assert not is_library(GPT.forward.__code__) and not is_library(run.__code__)
    assert not is_library(compile("1", "<ipython-input-1-abc>", "exec"))
    assert is_library(compile("1", "<eval_with_key>.3", "exec"))


def test_how_far_a_library_call_has_come():
    end = SimpleNamespace(f_lasti=2, f_back=None)
    outer = SimpleNamespace(f_lasti=4, f_back=end, f_code="outer")
    inner = SimpleNamespace(f_lasti=8, f_back=outer, f_code="inner")
    assert trail(inner, end) == ((4, 8), "outer")
    assert trail(inner, inner) == ((), None)


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "edited.py"
    for number, text in enumerate(("def f(x):\n    a = x.op()\n", "def f(x):\n    bb = x.op()\n")):
        file.write_text(text)
        os.utime(file, (number, number))
        spec = importlib.util.spec_from_file_location("edited", file)
        module = importlib.util.module_from_spec(spec)
        exec(compile(text, str(file), "exec"), module.__dict__)
        SEEN.clear()
        module.f(Value())
        assert SEEN[0][0].names == (("a",), ("bb",))[number]


def test_positions_may_be_switched_off(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from tracer.sites import locate\n"
        "def op(): return locate(sys._getframe(1))[0]\n"
        "y = op()\n"
        "print(y.source.line, y.source.code, y.names)\n"
    )
    root = sites.__file__.rpartition("tracer")[0]
    run = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
        check=False,
    )
    assert run.stdout == "4 y = op() ()\n", run.stderr


def test_a_layer_of_torch_traced_by_itself_shows_its_own_lines():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    t = tracer.trace(layer, torch.randn(2, 3, 8))
    assert {op.source.file.rpartition(os.sep)[2] for op in t} == {"transformer.py"}
    assert t.find(name="relu")[0].source.code.startswith("x = self.linear2(")
    assert tracer.trace(nn.Linear(8, 8), torch.randn(3, 8))[0].source.code.startswith("return F.linear(")
