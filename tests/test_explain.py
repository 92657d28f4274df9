"""Sentences: what each family says, and that over all models no sentence is empty, false in a size, or says a `?`."""

import re
import warnings
from itertools import product
from math import prod

import pytest
import test_situations
import torch
import torch.nn.functional as F
from attention_styles import RIGHT, WRONG, Parts
from einops import einsum, rearrange, reduce, repeat
from hf_models import DISTINCT
from hf_models import run as run_hf
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tracer.models import GPT, CausalConv, Encoder, EncoderDecoder, GPTConfig, RNNSeq2Seq, VisionTransformer
from tracer.records import Op, TensorInfo
from tracer.render.explain import explain
from tracer.render.storage import memory_sentence, view_rule
from tracer.render.words import groups_of, shape

SIZES = {"B": 2, "T": 5, "C": 21, "H": 3, "D": 7, "V": 11, "S": 4}


def told(call, *axes, **more):
    """Return the sentence of the last operation that a function of tensors with these axes runs."""
    inputs = [torch.randn([SIZES[a] for a in text.split()]) if isinstance(text, str) else text for text in axes]
    named = [text if isinstance(text, str) else " ".join("?" * text.ndim) for text in axes]
    trace = tracer.trace(call, *inputs, axes=named, sizes=SIZES, **more)
    return explain([op for op in trace if op.parent is None][-1])


# ---------------------------------------------------------------- what is said


VIEWS = {
    "view: splits C=21 into H=3 x D=7; nothing moves in memory": (lambda x: x.view(2, 5, 3, 7), "B T C"),
    "flatten: joins B=2 x T=5 into (B T)=10; nothing moves in memory": (lambda x: x.flatten(0, 1), "B T C"),
    "view: joins H=3 x D=7 into C=21; nothing moves in memory": (lambda x: x.view(2, 5, 21), "B T H D"),
    "view: reads T=5 x C=21 as 3 x 35; nothing moves in memory": (lambda x: x.view(2, 3, 35), "B T C"),
    "view: keeps the shape [B=2, T=5, C=21]; nothing moves in memory": (lambda x: x.view(2, 5, 21), "B T C"),
    "reshape: joins H=3 x D=7 into C=21; the numbers are copied to new memory": (
        lambda x: x.transpose(1, 2).reshape(2, 5, 21),
        "B H T D",
    ),
    "unsqueeze: adds an axis of size 1; nothing moves in memory": (lambda x: x.unsqueeze(1), "B T"),
    "squeeze: drops an axis of size 1; nothing moves in memory": (lambda x: x.unsqueeze(1).squeeze(1), "B T"),
    "transpose: swaps T=5 and H=3; nothing moves in memory": (lambda x: x.transpose(1, 2), "B T H D"),
    "permute: puts the axes [B=2, T=5, C=21] in the order [C=21, B=2, T=5]; nothing moves in memory": (
        lambda x: x.permute(2, 0, 1),
        "B T C",
    ),
    "expand: shows [1, T=5] again and again along 4: each repeat is the same memory; nothing moves in memory": (
        lambda x: x[None].expand(4, 5),
        "T",
    ),
    "contiguous: lays the entries of [C=21, T=5] out in the order of its axes; the numbers are copied to new memory": (
        lambda x: x.T.contiguous(),
        "T C",
    ),
    "contiguous: [T=5, C=21] stands in the order of its axes already; the very same tensor comes back": (
        lambda x: x.contiguous(),
        "T C",
    ),
    "rearrange: by the pattern 'b t (h d) -> b h t d', h=3: [B=2, T=5, C=21] becomes [B=2, H=3, T=5, D=7]; "
    "nothing moves in memory": (lambda x: rearrange(x, "b t (h d) -> b h t d", h=3), "B T C"),
    "repeat: by the pattern 't c -> b t c', b=4: [T=5, C=21] becomes [4, T=5, C=21]; nothing moves in memory": (
        lambda x: repeat(x, "t c -> b t c", b=4),
        "T C",
    ),
    "reduce: by the pattern 'b t c -> b c', mean: [B=2, T=5, C=21] becomes [B=2, C=21]": (
        lambda x: reduce(x, "b t c -> b c", "mean"),
        "B T C",
    ),
    "split: cuts C=21 into 3: 7, 7, 7; nothing moves in memory": (lambda x: x.split(7, dim=2), "B T C"),
    "getitem: takes entry 4 along T=5; nothing moves in memory": (lambda x: x[:, -1], "B T C"),
    "getitem: takes 3 of T=5; nothing moves in memory": (lambda x: x[:, 1:4], "B T C"),
    "getitem: takes entry 0 along B=2 and adds an axis of size 1; nothing moves in memory": (
        lambda x: x[0, None],
        "B T",
    ),
    "unbind: takes B=2 apart into 2 tensors, [T=5, C=21]; nothing moves in memory": (lambda x: x.unbind(), "B T C"),
    "cat: puts 2 tensors end to end: S=4 + T=5 is S+T=9; the numbers are copied to new memory": (
        lambda x, y: torch.cat([x, y], dim=1),
        "B S C",
        "B T C",
    ),
    "stack: lays 2 tensors [T=5] side by side along a new axis, 2; the numbers are copied to new memory": (
        lambda x: torch.stack([x, x]),
        "T",
    ),
    "pad: adds entries, 1 before and 2 after T=5": (lambda x: F.pad(x, (1, 2)), "B T"),
}
PRODUCTS = {
    "matmul: multiplies and adds up along D=7, for each of B=2 x H=3 x T=5 x S=4": (
        lambda q, k: q @ k.mT,
        "B H T D",
        "B H S D",
    ),
    "matmul: multiplies and adds up along D=7, for each of T=5 of q x T=5 of k": (lambda q, k: q @ k.T, "T D", "T D"),
    "einsum: multiplies and adds up along D=7, for each of B=2 x H=3 x T=5 x S=4": (
        lambda q, k: torch.einsum("bhtd,bhsd->bhts", q, k),
        "B H T D",
        "B H S D",
    ),
    "einsum: multiplies and adds up along C=21, for each of B=2 x T=5 x S=4": (
        lambda q, k: einsum(q, k, "b t c, b s c -> b t s"),
        "B T C",
        "B S C",
    ),
    "einsum: adds up T=5 x C=21, for each of B=2": (lambda x: torch.einsum("btc->b", x), "B T C"),
    "linear: makes V=11 out of C=21: each is a weighted sum of all 21, for each of B=2 x T=5": (
        F.linear,
        "B T C",
        "V C",
    ),
    "embedding: looks up one of the V=11 rows of the table: C=21 numbers, for each of 2 x 3": (
        lambda w, i: F.embedding(i, w),
        "V C",
        torch.tensor([[1, 2, 3], [3, 2, 1]]),
    ),
    "scaled_dot_product_attention: each of T=5 queries weighs S=4 keys by a softmax over products along D=7, and mixes "
    "their values, for each of B=2 x H=3": (
        F.scaled_dot_product_attention,
        "B H T D",
        "B H S D",
        "B H S D",
    ),
    "scaled_dot_product_attention: each of T=5 queries weighs T=5 keys by a softmax over products along D=7, and mixes "
    "their values, for each of B=2 x H=3, no query looks past its own place": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "B H T D",
    ),
    "conv1d: slides a window of 3 along T=5: each of 4 is a weighted sum of it over C=21": (
        lambda x: F.conv1d(x, torch.randn(4, 21, 3)),
        "B C T",
    ),
}
ENTRIES = {
    "add: adds x [B=2, T=5, C=21] and y [T=5, C=21] entry by entry; y [T=5, C=21] is used again along B=2": (
        lambda x, y: x + y,
        "B T C",
        "T C",
    ),
    "div: divides x [B=2, T=5] by 2.5 entry by entry": (lambda x: x / 2.5, "B T"),
    "rsub: subtracts x [B=2, T=5] from 1 entry by entry": (lambda x: 1 - x, "B T"),
    "add_: adds x [B=2, T=5] and 1 entry by entry; written over the memory that was there": (
        lambda x: x.add_(1),
        "B T",
    ),
    "pow: computes a power entry by entry, from x [B=2, T=5] and 2": (lambda x: x**2, "B T"),
    "gt: asks of each entry whether x [B=2, T=5] is more than 0": (lambda x: x > 0, "B T"),
    "gelu: computes gelu of each entry of x [B=2, T=5]": (lambda x: F.gelu(x, approximate="tanh"), "B T"),
    "clamp: brings each entry of x [B=2, T=5] up to 0 at least": (lambda x: x.clamp(min=0), "B T"),
    "masked_fill: writes -inf wherever mask [T=5, T=5] is True, and keeps the rest of [B=2, T=5, T=5]; the mask is "
    "used again along B=2": (
        lambda x, mask: x.masked_fill(mask, float("-inf")),
        "B T T",
        torch.ones(5, 5).triu(1).bool(),
    ),
    "where: takes from x [B=2, T=5] where [B=2, T=5] is True, and from y [B=2, T=5] where it is False: [B=2, T=5]": (
        lambda x, y: torch.where(x > y, x, y),
        "B T",
        "B T",
    ),
    "tril: keeps what is on and below diagonal 0 of T=5 x T=5, and writes 0 above it": (lambda x: x.tril(), "T T"),
    "dropout: leaves [B=2, T=5] as it is: dropout acts in training alone; the very same tensor comes back": (
        lambda x: F.dropout(x, 0.1, False),
        "B T",
    ),
    "dropout: sets each entry of [B=2, T=5] to 0 with probability 0.1, and divides the rest by 0.9": (
        lambda x: F.dropout(x, 0.1),
        "B T",
    ),
    "to: turns [B=2, T=5] from float32 into float64; the numbers are copied to new memory": (
        lambda x: x.to(torch.float64),
        "B T",
    ),
    "setitem: writes 0 into [B=2, T=5] at entry 1 of T=5; written over the memory that was there": (
        lambda x: x.__setitem__((slice(None), 1), 0),
        "B T",
    ),
    "softmax: turns the numbers along S=4 into weights that sum to 1, for each of B=2 x T=5": (
        lambda x: x.softmax(-1),
        "B T S",
    ),
    "layer_norm: shifts and scales the numbers along C=21 to mean 0 and variance 1, for each of B=2 x T=5": (
        lambda x: F.layer_norm(x, (21,)),
        "B T C",
    ),
    "rms_norm: divides the numbers along C=21 by their root mean square, for each of B=2 x T=5": (
        lambda x: F.rms_norm(x, (21,)),
        "B T C",
    ),
    "mean: takes the mean along T=5, for each of B=2 x C=21": (lambda x: x.mean(1), "B T C"),
    "sum: adds up the numbers along B=2 x T=5": (lambda x: x.sum(), "B T"),
    "argmax: finds the place of the largest number along V=11, for each of B=2": (lambda x: x.argmax(-1), "B V"),
    "topk: finds the 2 largest numbers along V=11, for each of B=2": (lambda x: x.topk(2), "B V"),
    "cumsum: adds up along T=5 as it goes: each entry is the sum of all up to its own, for each of B=2": (
        lambda x: x.cumsum(-1),
        "B T",
    ),
    "cross_entropy: takes minus the logarithm of the weight that a softmax over V=11 gives to the right one, for each "
    "of B=2, averaged to one number": (F.cross_entropy, "B V", torch.tensor([1, 2])),
    "mse_loss: takes the squared difference of [B=2, T=5] and [B=2, T=5] entry by entry, averaged to one number": (
        F.mse_loss,
        "B T",
        "B T",
    ),
    "gather: takes the entries along V=11 that the ids [2, 3] name: [2, 3]": (
        lambda x, i: x.gather(1, i),
        "B V",
        torch.tensor([[1, 2, 3], [3, 2, 1]]),
    ),
    "arange: counts from 0 up to, not including, 5: [5]": (lambda x: torch.arange(5), "T"),
    "zeros: makes [4, 5], all 0": (lambda x: torch.zeros(4, 5), "T"),
    "item: hands what one number holds over to Python": (lambda x: x.sum().item(), "T"),
}


@pytest.mark.parametrize("sentence", [*VIEWS, *PRODUCTS, *ENTRIES])
def test_what_is_said(sentence):
    call, *axes = {**VIEWS, **PRODUCTS, **ENTRIES}[sentence]
    assert told(call, *axes) == sentence


def test_axes_that_are_contracted_by_mistake_are_both_named():
    op = tracer.trace(lambda x, y: x @ y, torch.randn(2, 7), torch.randn(7, 5), axes=["B D", "T C"])[-1]
    assert explain(op) == "matmul: multiplies and adds up along D=7 against T=7, for each of B=2 x C=5"


def test_an_operation_that_nobody_described_is_told_by_its_shapes():
    assert told(torch.linalg.matrix_exp, "T T") == "linalg_matrix_exp: makes [T=5, T=5] from [T=5, T=5]"


def test_heads_of_one_are_split_off_and_an_axis_that_is_written_as_1_is_added():
    one = {"C": 7, "H": 1, "D": 7}
    x = torch.randn(2, 5, 7)

    def heads(x):
        B, T, _ = x.shape
        H, D = 1, 7
        return x.view(B, T, H, D)

    def unit(x):
        B, T, C = x.shape
        return x.view(B, T, 1, C)

    split, added = (tracer.trace(f, x, axes=["B T C"], sizes=one)[-1] for f in (heads, unit))
    assert "H" in split.outputs[0].axes and "1" in added.outputs[0].axes
    assert explain(split) == "view: splits C=7 into H=1 x D=7; nothing moves in memory"
    assert explain(added) == "view: adds an axis of size 1; nothing moves in memory"


# ---------------------------------------------------------------- why memory moved


def last(call, *shapes, axes=None):
    return tracer.trace(call, *(torch.randn(s) for s in shapes), axes=axes, sizes=SIZES)[-1]


def test_reshape_says_which_stride_rule_fails_with_the_numbers():
    op = last(lambda x: x.transpose(1, 2).reshape(2, 5, 21), (2, 3, 5, 7), axes=["B H T D"])
    assert op.inputs[0].stride == (105, 7, 35, 1)
    assert memory_sentence(op) == (
        "840 bytes of new memory are taken. A view cannot do it: joining H=3 with D=7 needs the stride of H=3 to be "
        "7 x 1 = 7, the size times the stride of what follows, and it is 35. Strides before (105, 7, 35, 1), after "
        "(105, 21, 1): contiguous, the entries stand in the order of the axes."
    )


def test_the_other_kinds_of_memory():
    said = {
        "view": last(lambda x: x.T, (5, 21), axes=["T C"]),
        "same": last(lambda x: x.contiguous(), (5, 21), axes=["T C"]),
        "in-place": last(lambda x: x.add_(1), (5, 21), axes=["T C"]),
        "new": last(lambda x: x + 1, (5, 21), axes=["T C"]),
        "copy": last(lambda x: x.T.contiguous(), (5, 21), axes=["T C"]),
        "none": last(lambda x: x.sum().item(), (5,), axes=["T"]),
    }
    assert {kind: memory_sentence(op) for kind, op in said.items()} == {
        "view": "Shares the memory of x [T=5, C=21]: nothing moves. Strides before (21, 1), after (1, 21): not "
        "contiguous, the entries do not stand one after another in the order of the axes.",
        "same": "The very same tensor comes back: nothing is read, moved or written.",
        "in-place": "The numbers are written over those of x [T=5, C=21]: no new memory is taken, and every tensor "
        "that shares it changes too.",
        "new": "420 bytes of new memory are taken. Strides (21, 1): contiguous, the entries stand in the order of the "
        "axes.",
        "copy": "420 bytes of new memory are taken. The order of the axes asks for strides (5, 1), and they were "
        "(1, 21): so the entries are laid out anew. Strides before (1, 21), after (5, 1): contiguous, the entries "
        "stand in the order of the axes.",
        "none": "No tensor comes out, and no memory is taken.",
    }


@st.composite
def strided(draw):
    """Return a tensor with a stride of some kind, and sizes that it could be viewed as."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    x = torch.arange(prod(sizes)).reshape(sizes).permute(draw(st.permutations(range(len(sizes)))))
    if draw(st.booleans()) and x.shape[0] > 1:
        x = x[:: draw(st.integers(1, 2))]
    total, new = x.numel(), []
    while total > 1 and len(new) < 4:
        n = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
        new.append(n)
        total //= n
    return x, tuple([*new, total])


def info(x, new=None):
    sizes = tuple(x.shape) if new is None else new
    return TensorInfo(
        0, sizes, ("?",) * len(sizes), "", None, "int64", "cpu", x.stride() if new is None else None, None, 0, 0, None,
        (None,) * len(sizes),
    )  # fmt: skip


@given(strided())
def test_the_stride_rule_is_named_exactly_where_a_view_fails(drawn):
    x, new = drawn
    try:
        x.view(new)
        fails = False
    except RuntimeError:
        fails = True
    rule = view_rule(info(x), info(x, new))
    assert bool(rule) == fails
    numbers = re.search(r"to be (\d+) x (\d+) = (\d+), .* it is (\d+)\.", rule)
    if numbers:
        n, s, wanted, stride = map(int, numbers.groups())
        assert n * s == wanted != stride
        assert stride in x.stride() and s in x.stride() and n in x.shape


@given(strided())
def test_the_axes_of_a_group_become_each_other(drawn):
    """Within a group the old indices together count as the new ones together; so `splits C into H x D` is true."""
    x, new = drawn
    groups = groups_of(info(x), info(x, new))
    assert all(x.shape[i] == 1 for i in set(range(x.ndim)) - {i for ours, _ in groups for i in ours})
    for before, after in zip(product(*map(range, x.shape)), product(*map(range, new)), strict=True):
        for ours, theirs in groups:
            counts = []
            for index, sizes, axes in ((before, x.shape, ours), (after, new, theirs)):
                number = 0
                for i in axes:
                    number = number * sizes[i] + index[i]
                counts.append(number)
            assert counts[0] == counts[1]


# ---------------------------------------------------------------- over all models


def false_words(op: Op) -> list[str]:
    """Return what a sentence says that the operation does not show: a name, a size, a shape."""
    infos = (*op.inputs, *op.outputs)
    pairs = {f"{a}={n}" for i in infos for a, n in zip(i.axes, i.shape, strict=True)}
    shapes = {shape(i) for i in infos}
    strides = {f"({', '.join(map(str, i.stride))})" for i in infos if i.stride is not None}
    strides |= {f"({', '.join(str(prod(i.shape[k + 1 :])) for k in range(len(i.shape)))})" for i in infos}
    found = []
    for sentence in (explain(op), memory_sentence(op)):
        plain = re.sub(r"by the pattern '[^']*'[^:]*:", "", sentence)
        for name in sorted({i.variable for i in infos if i.variable}, key=len, reverse=True):
            plain = plain.replace(f"{name} ", "")
        for size in re.finditer(r"=-?\d+", plain):
            said = plain[: size.end()]
            found += [] if any(re.search(rf"(^|[ \[]){re.escape(p)}$", said) for p in pairs) else [sentence]
        found += [sentence for text in re.findall(r"\[[^\]]*\]", plain) if text not in shapes]
        found += [sentence for text in re.findall(r"\([\d, ]*\)", plain) if text not in strides]
        found += [sentence] if "?" in plain or "{" in plain or not plain.strip() else []
    if not explain(op).startswith(f"{op.name}: ") or len(explain(op)) < len(op.name) + 8:
        found.append(explain(op))
    return found


def check(trace):
    assert len(trace) > 0
    assert [words for op in trace for words in false_words(op)] == []


def test_the_check_finds_a_false_word(monkeypatch):
    op = last(lambda x: x.view(2, 5, 3, 7), (2, 5, 21), axes=["B T C"])
    assert false_words(op) == []
    for wrong in (
        "view: splits C=22 into H=3",
        "view: splits D=21 into",
        "view: makes [B=2]",
        "view: (5, 4)",
        "view: ?",
    ):
        monkeypatch.setitem(globals(), "explain", lambda op, wrong=wrong: wrong + " and more words")
        assert false_words(op) != []


IDS = torch.randint(0, 11, (2, 5))


def gpt(**more):
    base = {"n_layer": 1, "n_head": 4, "n_embd": 24, "vocab_size": 11, "block_size": 9} | more
    return GPT(GPTConfig(**base)), (IDS, IDS)


REFERENCE = {
    "gpt": gpt,
    "fused": lambda: gpt(how="fused"),
    "einops": lambda: gpt(how="einops"),
    "llama": lambda: gpt(n_kv_head=2, positions="rotary", norm_type="rms", activation="swiglu", bias=False),
    "mixtral": lambda: gpt(n_kv_head=2, positions="rotary", norm_type="rms", activation="swiglu", n_expert=4),
    "post": lambda: gpt(norm="post", positions="sinusoidal"),
    "encoder": lambda: (Encoder(n_layer=1, n_head=3, n_embd=24, vocab_size=11, block_size=9), (IDS,)),
    "encoder_decoder": lambda: (EncoderDecoder(n_layer=1, n_head=3, n_embd=24, vocab_size=11), (IDS, IDS[:, :4])),
    "vision": lambda: (
        VisionTransformer((4, 6), 2, n_class=3, n_layer=1, n_head=2, n_embd=8),
        (torch.randn(2, 1, 4, 6),),
    ),
    "rnn": lambda: (RNNSeq2Seq(8, 11, attention=True), (IDS, IDS)),
    "conv": lambda: (CausalConv(8, 11), (IDS,)),
    "mha": lambda: (torch.nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), (torch.randn(2, 5, 12),)),
    "lstm": lambda: (torch.nn.LSTM(6, 4, batch_first=True, bidirectional=True), (torch.randn(2, 5, 6),)),
    "norms": lambda: (
        torch.nn.Sequential(torch.nn.Conv2d(3, 8, 2), torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8)),
        (torch.randn(2, 3, 5, 5),),
    ),
}


@pytest.mark.parametrize("expand", [False, True], ids=["closed", "opened"])
@pytest.mark.parametrize("name", REFERENCE)
def test_reference_models(name, expand):
    torch.manual_seed(0)
    model, inputs = REFERENCE[name]()
    check(tracer.trace(model, *inputs, expand=expand))


@pytest.mark.parametrize("sizes", [(2, 5, 6, 7), (2, 4, 1, 4)], ids=str)
@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_attention_styles(name, sizes):
    B, T, H, D = sizes
    style = RIGHT.get(name) or WRONG[name][0]
    parts = Parts(H, D, T, 3 if name == "grouped" and H % 3 == 0 else None)
    x = torch.randn(B, T, H * D)
    try:
        trace = tracer.trace(lambda x: parts(style, x), x, axes=["B T C"])
    except (RuntimeError, ValueError, IndexError) as error:  # a mistake, or a style, that these sizes do not bear
        trace = error.trace
        assert explain(trace.failed).startswith(f"{trace.failed.name}: ")
    check(trace)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in test_situations.CASES if "compiled" not in name])
def test_situations_of_all_kinds(name):
    build = test_situations.CASES[name][0]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, inputs = build()
        try:
            trace = tracer.trace(model, *inputs)
        except Exception as error:  # the situation is one of failing
            trace = error.trace
    assert [words for op in trace for words in false_words(op)] == []


SOME = ("gpt2", "gpt_neox", "llama", "mixtral", "falcon", "xlnet", "t5", "whisper", "mamba", "swin", "phi3", "bloom")
"""Models that differ in kind; all the others run the same operations."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SOME)
def test_hugging_face_models(name):
    pytest.importorskip("transformers", reason="transformers is not installed: its models are not traced")
    check(run_hf(name, DISTINCT, "sdpa"))
