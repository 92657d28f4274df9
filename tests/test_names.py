"""The names are right: whatever sizes coincide, in any style; and where code is wrong, a warning says so."""

import itertools
import random

import pytest
import torch
from attention_styles import RIGHT, WRONG, Parts

import tracer
from tracer import namer
from tracer.models import GPT, GPTConfig
from tracer.naming import size_of

PRIMES = (2, 5, 6, 7)  # B, T, H, D: no two alike, no one a product of others
COLLIDING = [
    (4, 4, 4, 4), (2, 8, 4, 2), (8, 2, 2, 8), (16, 16, 4, 4), (2, 4, 2, 8), (4, 8, 4, 16), (6, 6, 2, 3), (2, 6, 6, 3),
    (1, 5, 6, 8), (3, 1, 2, 4), (1, 1, 4, 2), (2, 6, 1, 8), (2, 3, 4, 1), (1, 1, 1, 4), (1, 1, 2, 4), (1, 1, 3, 2),
]  # fmt: skip


def named(trace):
    return [(op.name, [t.axes for t in op.outputs]) for op in trace]


def run(style, shape, *, G=None, declare=True, **options):
    B, T, H, D = shape
    torch.manual_seed(0)
    parts = Parts(H, D, T, G, declare)
    x = torch.randn(B, T, H * D)
    return tracer.trace(lambda x: parts(style, x), x, axes=["B T C"], **options)


def names_fit_sizes(trace):
    """Every name that is shown comes out at the size of its axis."""
    for op in trace:
        for t in (*op.inputs, *op.outputs):
            for name, n in zip(t.axes, t.shape, strict=True):
                assert name == "?" or size_of(name, trace.sizes) == n, (op, name, n)


@pytest.mark.parametrize("name", RIGHT)
def test_right_styles_are_named_in_full_and_never_warned_of(name):
    G = 3 if name == "grouped" else None
    t = run(RIGHT[name], (2, 5, 6, 8) if name == "rotary" else PRIMES, G=G)
    assert [op for op in t for o in op.outputs if "?" in o.axes] == []
    assert t.warnings == ()
    assert t.unnamed == ()
    names_fit_sizes(t)


@pytest.mark.parametrize("sizes", COLLIDING, ids=str)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("declare", [True, False], ids=["declared", "by size"])
def test_colliding_sizes_change_no_name(name, sizes, declare):
    G = None
    if name == "grouped":
        G = 3 if sizes[2] % 3 == 0 else 2 if sizes[2] % 2 == 0 else 1
        if sizes[2] <= 2 or G == sizes[2]:
            pytest.skip("no groups at this number of heads")
    if name == "rotary" and sizes[3] % 2:
        pytest.skip("rotary needs an even head size")
    plain = (2, 5, 6, 8) if name == "rotary" else PRIMES
    given = {"C": sizes[2] * sizes[3], "H": sizes[2], "D": sizes[3]} | ({"G": G} if G else {})
    known = {"C": plain[2] * plain[3], "H": plain[2], "D": plain[3]} | ({"G": 3} if G else {})
    t = run(RIGHT[name], sizes, G=G, declare=declare, sizes=given)
    reference = run(RIGHT[name], plain, G=3 if G else None, declare=declare, sizes=known)
    assert t.warnings == ()
    names_fit_sizes(t)
    for i, (mine, other) in enumerate(zip(named(t), named(reference), strict=True)):
        for a, b in zip(itertools.chain(*mine[1]), itertools.chain(*other[1]), strict=True):
            assert a in (b, "?"), f"operation {i}, {mine[0]}: {a} where distinct sizes give {b}"


@pytest.mark.parametrize(
    "sizes", [(2, 5, 3, 7), (4, 4, 4, 4), (2, 6, 6, 3), (2, 8, 4, 8), (2, 5, 5, 5), (2, 6, 3, 6)], ids=str
)
@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_warned_of_wherever_they_run(name, sizes):
    style, words = WRONG[name]
    try:
        t = run(style, sizes)
    except RuntimeError:
        assert len({*sizes[1:], sizes[0]}) > 1, "with all sizes equal every mistake runs"
        return
    assert any(w in text for text in t.warnings for w in words), t.warnings


# ---------------------------------------------------------------- the reference GPT


def gpt_trace(B, T, H, D, V, block, M, n_layer=1, norm="pre"):
    torch.manual_seed(0)
    config = GPTConfig(n_layer=n_layer, n_head=H, n_embd=H * D, vocab_size=V, block_size=block, d_mlp=M, norm=norm)
    model = GPT(config).eval()
    idx, targets = torch.randint(0, V, (2, B, T))
    return tracer.trace(model, idx, targets)


def every_name(trace):
    return [(op.name, op.module, [t.axes for t in op.inputs], [t.axes for t in op.outputs]) for op in trace]


def test_gpt_has_no_unknown_axis_and_no_warning():
    t = gpt_trace(2, 5, 3, 7, 11, 13, 84, n_layer=2)
    assert [op for op in t for x in (*op.inputs, *op.outputs) if "?" in x.axes] == []
    assert t.warnings == ()
    assert t.unnamed == ()
    names_fit_sizes(t)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gpt_names_do_not_depend_on_sizes(norm):
    reference = every_name(gpt_trace(2, 5, 3, 7, 11, 13, 84, norm=norm))
    settings = [
        (4, 4, 4, 4, 16, 4, 16), (4, 4, 4, 4, 4, 4, 64), (16, 16, 4, 4, 16, 16, 16), (1, 1, 1, 1, 1, 1, 1),
        (1, 4, 1, 4, 4, 4, 4), (2, 1, 3, 7, 11, 13, 84), (3, 3, 3, 3, 9, 9, 9), (1, 5, 1, 7, 11, 5, 28),
    ]  # fmt: skip
    draw = random.Random(1)
    for _ in range(60):
        B, T, H, D = (draw.choice([1, 2, 3, 4, 4, 8]) for _ in range(4))
        settings.append(
            (B, T, H, D, draw.choice([H * D, T, 11, 4]), draw.choice([T, T + 3]), draw.choice([H * D, 4 * H * D, T]))
        )
    for setting in settings:
        t = gpt_trace(*setting, norm=norm)
        assert every_name(t) == reference, setting
        assert t.warnings == (), setting


def test_equal_runs_share_their_names_and_no_more_is_kept_than_a_bound(monkeypatch):
    monkeypatch.setattr(namer, "_CACHE_OPS", 100)
    namer._CACHE.clear()
    model = torch.nn.Linear(6, 6)
    x = torch.randn(2, 5, 6)
    first, second = (tracer.trace(model, x, axes=["B T C"]) for _ in range(2))
    assert first[0] is second[0]
    for n in range(60):
        assert len(tracer.trace(lambda x, n=n: (x + n).view(-1, 6), x)) == 2
        list(tracer.trace(lambda x, n=n: (x + n).view(-1, 6), x))
    assert sum(len(named.ops) for named in namer._CACHE.values()) <= 100


def test_equal_numbers_of_other_types_are_written_as_they_are():
    x = torch.zeros(2)
    runs = [tracer.trace(lambda x, n=n: x.masked_fill(x > 0, n), x) for n in (1, 1.0, True)]
    assert [repr(t[-1].args) for t in runs] == ["(1,)", "(1.0,)", "(True,)"]


def test_an_output_that_is_picked_has_the_name_and_the_others_none():
    x = torch.randn(2, 5, 6)

    def largest(x):
        y = x.max(dim=-1)[0]
        return y

    (op,) = tracer.trace(largest, x, axes=["B T C"])[:1]
    assert [info.variable for info in op.outputs] == ["y", None]
