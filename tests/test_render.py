"""What is shown: lines, chains, folding, text, HTML, tables, colours, saved files. Operations are written by hand."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from eyes import BLIND, contrast, lab, linear
from handmade import SIZES, Maker, attention, gpt
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.errors import TraceFileError
from tracer.records import Op, Slice, TensorInfo
from tracer.render import html, layout, text
from tracer.render.colours import AXIS_COLOURS, axis_colour
from tracer.render.layout import Repeat, Sheet, chains, fold, lines
from tracer.render.serialise import from_json, to_json

HOSTILE = [
    '<script>alert("1")</script>',
    "a & 'b' \"c\"",
    "👩\u200d👩\u200d👧 나는 사과를",
    "</style><img src=x onerror=alert(1)>",
    "\x1b[2J\r\n\u202e",
]


def sheet(ops: tuple[Op, ...], **more: Any) -> Sheet:
    return Sheet(ops, SIZES, "cpu", **more)


def chain_texts(m: Maker) -> list[str]:
    """Return the chains of operations that stand on one line."""
    (line,) = lines(m.ops)
    return [text.chain_text(chain) for chain in chains(line)]


# ---------------------------------------------------------------- whole traces


def test_gpt_as_text(golden: Callable[[str, str], None]) -> None:
    warning = "model.py:21: view cuts across axes: [B, T, C] -> [B, H, T, D]\n(in transformer.h.0.attn)"
    shown = text.to_text(sheet(gpt(3), warnings=(warning,), unnamed=("roll",)))
    golden("gpt.txt", shown)


def test_notation_of_attention() -> None:
    m = Maker()
    attention(m, m.tensor("B T C", "x"), "attn")
    shown = text.to_text(sheet(tuple(m.ops))).splitlines()
    told = {line.split("   #")[0].strip() for line in shown}
    for chain in [
        "x: [B, T, C] -> linear [B, T, 3C] -> split 3 x [B, T, C]",
        "q: [B, T, C] -> view [B, T, H, D] -> transpose [B, H, T, D]",
        "k: [B, H, T, D] -> transpose [B, H, D, T]",
        "scores: [B, H, T, D] @ [B, H, D, T] -> [B, H, T, T] -> div [B, H, T, T]",
        "that is [B, H, T of q, T of k]",
        "scores: [B, H, T, T] -> masked_fill([1, 1, T, T]) [B, H, T, T]",
        "heads: [B, H, T, T] @ [B, H, T, D] -> [B, H, T, D]",
        "heads: [B, H, T, D] -> transpose [B, T, H, D] -> contiguous [B, T, H, D] -> view [B, T, C]",
        "out: [B, T, C] -> linear [B, T, C]",
    ]:
        assert chain in told
    assert [line.split("   # ")[1] for line in shown if "contiguous [" in line] == ["view, copy, view"]


def test_nothing_is_folded_on_request() -> None:
    folded, whole = (text.to_text(sheet(gpt(3)), folded) for folded in (True, False))
    assert "transformer.h.1-2: as transformer.h.0" in folded
    assert whole.count("q: [B, T, C] -> view") == 3 == folded.count("q: [B, T, C] -> view") + 2


def test_an_empty_trace() -> None:
    assert text.to_text(sheet(())) == "0 operations   cpu\n"
    assert "0 operations" in html.fragment(sheet(()))


def test_a_failed_operation_is_shown_last() -> None:
    m = Maker()
    q, k = m.tensor("B H T D", "q"), m.tensor("B H T D", "k")
    m.op("matmul", [q, k], [], (25, "scores = q @ k"), module="attn")
    shown = text.to_text(sheet((), failed=m.ops[0]))
    assert shown.endswith(
        "Stopped here: matmul raised an error.\n"
        "    attn   model.py:25   scores = q @ k\n"
        "    matmul([B, H, T, D], [B, H, T, D])"
    )
    assert "Stopped here: matmul raised an error." in html.fragment(sheet((), failed=m.ops[0]))


# ---------------------------------------------------------------- lines of code


def at(m: Maker, code: str, *ops: tuple[str, str | None], module: str = "", line: int = 1) -> None:
    """Add operations of one line: each with its name and the variable of its output."""
    x = m.tensor("B T C", "x")
    for name, variable in ops:
        x = m.op(name, [x], m.tensor("B T C", variable, memory="new"), (line, code), module=module)


@pytest.mark.parametrize(
    ("module", "code", "owner"),
    [
        ("h.0.attn.c_attn", "q, k, v = self.c_attn(x).split(C, dim=2)", "h.0.attn"),
        ("h.0.ln_1", "x = x + self.attn(self.ln_1(x))", "h.0"),
        ("transformer.drop", "x = self.transformer.drop(tok_emb + pos_emb)", ""),
        ("mlp.net.2", "return self.net(x)", "mlp"),
        ("mlp.act", "return 0.5 * x * (1 + torch.tanh(u))", "mlp.act"),
        ("layers.3", "x = layer(x)", "layers.3"),
        ("", "y = model(x)", ""),
    ],
)
def test_whose_line_it_is(module: str, code: str, owner: str) -> None:
    m = Maker()
    at(m, code, ("linear", None), module=module)
    assert layout.owner(m.ops[0]) == owner


def test_a_line_run_twice_in_a_row_is_two_lines() -> None:
    m = Maker()
    for _ in range(3):
        at(m, "k = self.l(x[:, t]); cache.append(k); a = q @ k", ("getitem", None), ("linear", "k"), ("matmul", "a"))
    assert [len(line.ops) for line in lines(m.ops)] == [3, 3, 3]


def test_one_statement_with_equal_operations_is_one_line() -> None:
    m = Maker()
    at(m, "y = x + x + x", ("add", None), ("add", None), ("add", "y"))
    assert [len(line.ops) for line in lines(m.ops)] == [3]


def test_a_loop_cut_short_keeps_its_passes() -> None:
    m = Maker()
    for _ in range(2):
        at(m, "while (x * x).sum() > 1: x = x / 2", ("mul", None), ("sum", None), ("div", "x"))
    at(m, "while (x * x).sum() > 1: x = x / 2", ("mul", None), ("sum", None))
    assert [len(line.ops) for line in lines(m.ops)] == [3, 3, 2]


def test_returning_to_a_line_is_a_new_line() -> None:
    m = Maker()
    for line, code in ((1, "x = x + f(x)"), (2, "return x.relu()"), (1, "x = x + f(x)")):
        at(m, code, ("add", None), line=line)
    assert [line.source.line for line in lines(m.ops) if line.source] == [1, 2, 1]


def test_the_same_line_in_two_modules_is_two_lines() -> None:
    m = Maker()
    for i in range(2):
        at(m, "return self.fc(x)", ("linear", None), module=f"h.{i}.fc")
    assert [line.module for line in lines(m.ops)] == ["h.0", "h.1"]


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/me/attention.py", "attention.py:41"),
        ("C:\\me\\attention.py", "attention.py:41"),
        ("/tmp/ipykernel_12/3456.py", "cell:41"),
        ("<ipython-input-3-abc>", "cell:41"),
        ("<stdin>", "<stdin>:41"),
    ],
)
def test_places(file: str, shown: str) -> None:
    m = Maker(file=file)
    at(m, "x = x + 1", ("add", "x"), line=41)
    assert layout.place(m.ops[0].source) == shown
    assert layout.place(None) == "line unknown"


# ---------------------------------------------------------------- chains


def test_a_gate_needs_two_chains_and_the_result_stands_below() -> None:
    m = Maker()
    code = (1, "return self.w2(F.silu(self.w1(x)) * self.w3(x))")
    x = m.tensor("B T C", "x")
    gate = m.op("silu", [m.op("linear", [x], m.tensor("B T M", memory="new"), code)], m.tensor("B T M"), code)
    up = m.op("linear", [x], m.tensor("B T M", memory="new"), code)
    both = m.op("mul", [gate, up], m.tensor("B T M", memory="new"), code)
    m.op("linear", [both], m.tensor("B T C", memory="new"), code)
    assert chain_texts(m) == [
        "x: [B, T, C] -> linear [B, T, M]",
        "x: [B, T, C] -> linear [B, T, M] -> silu [B, T, M] * [B, T, M] -> [B, T, M] -> linear [B, T, C]",
    ]


def test_a_product_without_a_name() -> None:
    m = Maker()
    w, v = m.tensor("B H T T", "weights"), m.tensor("B H T D", "v")
    m.op("matmul", [w, v], m.tensor("B H T D"), (1, "return weights @ v"))
    assert chain_texts(m) == ["[B, H, T, T] @ [B, H, T, D] -> [B, H, T, D]"]


def test_broadcasting_shows_both_sides() -> None:
    m = Maker()
    tok, pos = m.tensor("B T C", "tok"), m.tensor("T C", "pos")
    m.op("add", [tok, pos], m.tensor("B T C", "x"), (1, "x = tok + pos"))
    assert chain_texts(m) == ["x: [B, T, C] + [T, C] -> [B, T, C]"]


def test_a_tensor_made_from_nothing() -> None:
    m = Maker()
    pos = m.op("arange", [], m.tensor("T"), (1, "pos = torch.arange(T)[None]"))
    m.op("getitem", [pos], m.tensor("1 T", "pos"), (1, "pos = torch.arange(T)[None]"))
    assert chain_texts(m) == ["pos: arange [T] -> getitem [1, T]"]


def test_addmm_is_a_product() -> None:
    m = Maker()
    bias, x, w = m.tensor("3C", "self.bias"), m.tensor("(B T) C", "x"), m.tensor("C 3C", "w")
    m.op("addmm", [bias, x, w], m.tensor("(B T) 3C", "y"), (1, "y = torch.addmm(self.bias, x, w)"))
    assert chain_texts(m) == ["y: [(B T), C] @ [C, 3C] -> [(B T), 3C]"]


def test_other_operands_stand_in_brackets() -> None:
    m = Maker()
    k = [m.tensor("B H S D", "past"), *(m.tensor("B H T D", name) for name in ("a", "b", "c", "d"))]
    m.op("cat", k, m.tensor("B H ? D", "k", shape=(2, 3, 33, 7)), (1, "k = torch.cat([past, a, b, c, d], 2)"))
    assert chain_texts(m) == [
        "past: [B, H, S, D] -> cat(a [B, H, T, D], b [B, H, T, D], c [B, H, T, D], 1 more) [B, H, ?=33, D]"
    ]


def test_results_of_different_shapes_and_of_none() -> None:
    m = Maker()
    x = m.tensor("B T C", "x")
    m.op("max", [x], [m.tensor("B T"), m.tensor("B T")], (1, "x.max(-1)"))
    m.op("lstm", [x, x], [m.tensor("B T C"), m.tensor("1 B C")], (1, "x.max(-1)"))
    m.op("item", [x], [], (1, "x.max(-1)"))
    assert chain_texts(m) == [
        "x: [B, T, C] -> max 2 x [B, T]",
        "x: [B, T, C] -> lstm [B, T, C], [1, B, C]",
        "x: [B, T, C] -> item",
    ]


def test_the_modules_own_tensors_are_named_as_in_its_code() -> None:
    m = Maker()
    mask = m.tensor("1 1 ? ?", "blocks.0.attn.bias", shape=(1, 1, 8, 8))
    m.op("getitem", [mask], m.tensor("1 1 T T", "mask"), (1, "mask = self.bias[:, :, :T, :T]"), module="blocks.0.attn")
    assert chain_texts(m) == ["self.bias: [1, 1, ?=8, ?=8] -> getitem [1, 1, T, T]"]


def test_opened_steps_stand_apart_and_deeper() -> None:
    m = Maker()
    q = m.tensor("B H T D", "q")
    code = (1, "y = F.scaled_dot_product_attention(q, k, v)")
    m.op("scaled_dot_product_attention", [q, q, q], m.tensor("B H T D", "y", memory="new"), code)
    m.op("matmul", [q, q], m.tensor("B H T T", memory="new"), code, parent=0)
    shown = text.to_text(sheet(tuple(m.ops)))
    assert "\n        [B, H, T, D] @ [B, H, T, D] -> [B, H, T, T]\n" in shown + "\n"


@pytest.mark.parametrize(
    ("name", "memory", "word"),
    [
        ("view", "view", "view"),
        ("reshape", "new", "copy"),
        ("contiguous", "same", "same"),
        ("add_", "in-place", "in-place"),
        ("softmax", "new", "new"),
        ("softmax", None, "unknown"),
    ],
)
def test_memory_words(name: str, memory: Any, word: str) -> None:
    m = Maker()
    m.op(name, [m.tensor("T")], m.tensor("T", memory=memory))
    assert layout.memory_word(m.ops[0]) == word
    assert word in layout.MEMORY_WORDS


# ---------------------------------------------------------------- folding


def folded(*paths: str, change: int | None = None) -> list[str]:
    """Return how a run of blocks is shown: paths of lines, and the notes; block number `change` differs."""
    m = Maker()
    for i, path in enumerate(paths):
        at(m, "x = x + 1", ("add" if i != change else "sub", "x"), module=path)

    def shown(items: Any) -> list[str]:
        return [w for i in items for w in ([*shown(i.first), i.note] if isinstance(i, Repeat) else [i.module])]

    return shown(fold(lines(m.ops)))


def test_equal_blocks_are_folded() -> None:
    assert folded("h.0", "h.1", "h.2") == ["h.0", "h.1-2: as h.0 (2 operations)"]
    assert folded("h.0.a", "h.1.a") == ["h.0.a", "h.1: as h.0 (1 operation)"]


def test_a_block_that_differs_is_shown() -> None:
    shown = folded("h.0", "h.1", "h.2", "h.3", change=0)
    assert shown == ["h.0", "h.1", "h.2-3: as h.1 (2 operations)"]
    assert folded("h.0", "h.1", "h.2", change=1) == ["h.0", "h.1", "h.2"]


def test_only_neighbours_in_order_are_folded() -> None:
    assert folded("h.0", "h.2") == ["h.0", "h.2"]
    assert folded("h.0", "g.1") == ["h.0", "g.1"]
    assert folded("h.0", "out", "h.1") == ["h.0", "out", "h.1"]


def test_experts_inside_blocks_are_folded_inside() -> None:
    paths = [f"h.{i}.experts.{e}" for i in range(2) for e in range(3)]
    assert folded(*paths) == [
        "h.0.experts.0",
        "h.0.experts.1-2: as h.0.experts.0 (2 operations)",
        "h.1: as h.0 (3 operations)",
    ]


def kinds(names: str, *, paths: str = "h.{}", variable: str = "x") -> list[str]:
    """Fold blocks that run one operation each: `names` has a letter for each block, `a` is an add, `s` a sub."""
    m = Maker()
    for i, letter in enumerate(names):
        at(m, "x = x + 1", ({"a": "add", "s": "sub"}[letter], variable.format(i)), module=paths.format(i))
    return [i.note if isinstance(i, Repeat) else i.module for i in fold(lines(m.ops))]


def test_blocks_of_two_kinds_that_take_turns_are_folded() -> None:
    assert kinds("asasas") == ["h.2-5: as h.0-1 (4 operations)"]
    assert kinds("aasaas") == ["h.3-5: as h.0-2 (3 operations)"]
    assert kinds("asas a".replace(" ", "")) == ["h.2-3: as h.0-1 (2 operations)", "h.4"]
    assert kinds("as") == ["h.0", "h.1"]


def test_equal_blocks_within_a_turn_are_folded_there() -> None:
    m = Maker()
    for i in range(6):
        at(m, "x = x + 1", ("sub" if i % 3 == 2 else "add", "x"), module=f"h.{i}")
    (turn,) = fold(lines(m.ops))
    assert isinstance(turn, Repeat) and turn.note == "h.3-5: as h.0-2 (3 operations)"
    inner, last = turn.first
    assert isinstance(inner, Repeat) and inner.note == "h.1: as h.0 (1 operation)"
    assert not isinstance(last, Repeat) and last.module == "h.2"


def test_a_layer_that_is_used_again_is_folded() -> None:
    m = Maker()
    for _ in range(3):
        at(m, "x = self.norm(x)", ("layer_norm", "x"), module="h.0")
        at(m, "x = x + 1", ("add", "x"), module="h.0")
    assert [i.note for i in fold(lines(m.ops)) if isinstance(i, Repeat)] == ["h.0, 2 more times: as h.0 (4 operations)"]


@pytest.mark.parametrize(
    "change",
    [{"variable": "y"}, {"memory": "view"}, {"stride": (1, 2, 10)}, {"dtype": "torch.float16"}, {"device": "meta"}],
)
def test_a_block_that_differs_in_one_thing_is_shown(change: dict[str, Any]) -> None:
    m = Maker()
    for i in range(2):
        out = {"variable": "x", "memory": "new", **(change if i else {})}
        m.op("add", [m.tensor("B T C", "x")], m.tensor("B T C", **out), (1, "x = x + 1"), module=f"h.{i}")
    assert len(fold(lines(m.ops))) == 2


def test_no_operation_is_lost_in_folds() -> None:
    """What is shown and what the notes count are all there are."""
    ops = gpt(5)

    def count(items: Any) -> int:
        inside = [line for i in items if isinstance(i, Repeat) for _, body in i.others for line in body]
        shown = sum(count(i.first) if isinstance(i, Repeat) else len(i.ops) for i in items)
        return shown + sum(len(line.ops) for line in inside)

    folds = [i for i in fold(lines(ops)) if isinstance(i, Repeat)]
    assert count(fold(lines(ops))) == len(ops)
    assert folds[0].note == "transformer.h.1-4: as transformer.h.0 (108 operations)"  # 4 x 27


def test_other_sizes_are_not_folded() -> None:
    m = Maker()
    for i, shape in enumerate([(2, 5, 21), (2, 6, 21)]):
        x = m.tensor("B T C", "x", shape=shape)
        m.op("add", [x], m.tensor("B T C", "x", shape=shape), (1, "x = x + 1"), module=f"h.{i}")
    assert len(fold(lines(m.ops))) == 2


# ---------------------------------------------------------------- sizes above the trace


def test_sizes_of_symbols_in_use_in_the_order_of_the_glossary() -> None:
    assert text.summary(sheet(gpt(1))) == "38 operations   cpu   B=2 T=5 C=21 H=3 D=7 M=84 V=11"


def test_a_size_that_changes_is_a_range() -> None:
    m = Maker()
    for n in (1, 2, 3):
        m.op("relu", [m.tensor("T D", shape=(n, 7))], m.tensor("T D", shape=(n, 7)))
    assert text.summary(sheet(tuple(m.ops))) == "3 operations   cpu   T=1..3 D=7"


# ---------------------------------------------------------------- HTML


class Reader(HTMLParser):
    """Reads a page: text, tags, and whether they nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("br", "meta"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1] == "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def test_a_fragment_has_tables_with_headers_and_no_script_or_link() -> None:
    page = html.fragment(sheet(gpt(3), warnings=("look",)))
    read = Reader(page)
    tags = [tag for tag, _ in read.tags]
    assert {"table", "caption", "details", "summary", "th"} <= set(tags)
    assert not {"script", "link", "img", "iframe", "a", "object"} & set(tags)
    assert all(attrs.get("scope") in ("col", "row", "rowgroup") for tag, attrs in read.tags if tag == "th")
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    assert not re.search(r"https?:|url\(|@import", page)


def test_a_fragment_says_what_the_text_says() -> None:
    read = Reader(html.fragment(sheet(gpt(3), warnings=("look here",)))).text
    for words in [
        "q = q.view(B, T, H, D).transpose(1, 2)",
        "[B, H, T, D]",
        "2·3·5·7",
        "that is [B, H, T of q, T of k]",
    ]:
        assert words in read
    for words in ["1 warning", "look here", "transformer.h.1-2: as transformer.h.0", "copy", "B = 2"]:
        assert words in read


def test_attention_as_html(golden: Callable[[str, str], None]) -> None:
    m = Maker()
    attention(m, m.tensor("B T C", "x"), "attn")
    body = re.sub(r"<style>.*?</style>", "", html.fragment(sheet(tuple(m.ops))))
    golden("attention.html", re.sub(r"(</?(?:table|tbody|tr|td|div|thead|caption|dl)\b)", r"\n\1", body))


def test_a_page_is_one_document() -> None:
    page = html.whole_page("a trace", html.fragment(sheet(gpt(1))))
    assert page.startswith("<!doctype html>\n<html lang=")
    assert Reader(page.removeprefix("<!doctype html>\n")).tags[0][0] == "html"


@pytest.mark.parametrize("nasty", HOSTILE)
def test_any_text_shows_as_text(nasty: str) -> None:
    m = Maker(file=nasty)
    x = replace(m.tensor("B T", nasty), label=nasty, dtype=nasty, device=nasty, axes=(nasty, "T"), origins=(nasty, "T"))
    m.op(nasty, [x, x], replace(x, id=77), (1, nasty), module=nasty, args=(nasty,))
    data = Sheet(tuple(m.ops), {nasty: 3}, nasty, (nasty,), (nasty,), m.ops[0])
    read = Reader(html.fragment(data))
    assert layout.plain(nasty.replace("\r\n", "")) in read.text.replace("\\r\\n", "")
    assert not {"script", "img"} & {tag for tag, _ in read.tags}
    assert "</style><" not in html.fragment(data).split("</style>", 1)[1]
    assert all(c.isprintable() or c in "\n\u200d" for c in text.to_text(data))


def test_known_symbols_bear_their_colour_in_every_label() -> None:
    assert html.label_html("[B, (H D), 3C, ?=48]") == (
        '[<b class="st-a-B">B</b>, (<b class="st-a-H">H</b> <b class="st-a-D">D</b>), 3<b class="st-a-C">C</b>, ?=48]'
    )
    light, dark = axis_colour("H")
    assert f".st-a-H{{color:{light};color:light-dark({light},{dark})}}" in html.style(["(H D)"])


# ---------------------------------------------------------------- colours

LIGHT_PAGES, DARK_PAGES = ("#ffffff", "#f3f3f3"), ("#111111", "#222222", "#383838")
CORE = "BTSCHD"


@pytest.mark.parametrize("symbol", [*AXIS_COLOURS, "D_k", "tokens", "?", "1"])
def test_every_colour_can_be_read_as_text(symbol: str) -> None:
    light, dark = axis_colour(symbol)
    assert min(contrast(light, page) for page in LIGHT_PAGES) >= 4.5
    assert min(contrast(dark, page) for page in DARK_PAGES) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", BLIND)
def test_colours_stay_apart_for_everybody(eyes: str, theme: int) -> None:
    seen = {s: lab(BLIND[eyes] @ linear(pair[theme])) for s, pair in AXIS_COLOURS.items()}
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in combinations(seen, 2)}
    assert min(d for (a, b), d in apart.items() if a in CORE and b in CORE) >= 17
    assert min(apart.values()) >= 5


def test_a_colour_means_an_axis_everywhere() -> None:
    assert axis_colour("3C") == axis_colour("C") == axis_colour("C/2")
    assert len(set(AXIS_COLOURS.values())) == len(AXIS_COLOURS)
    assert axis_colour("my_axis") == axis_colour("my_axis") != axis_colour("?")


# ---------------------------------------------------------------- saved traces


def rich_sheet() -> Sheet:
    m = Maker()
    x = replace(m.tensor("B T", "x", origins=("B of x", None)), values=[[1.0, float("-inf")], [float("nan"), 2]])
    x = replace(x, values=[[1.0, float("-inf")], [0.5, 2]])
    odd = replace(m.tensor("B T", '나 "<b>'), stride=None, contiguous=None, storage=None, offset=None)
    m.op(
        "getitem", [x], [odd], (3, "y = x[0:5, ...]"), args=(Slice(0, 5, None), "...", (1, 2), True, None, float("inf"))
    )
    m.op("sum", [x], [m.tensor("", shape=())], parent=0)
    return Sheet(tuple(m.ops), {"B": 2}, "cpu", ("careful",), ("roll",), m.ops[0], {1: ("a", "b")})


def test_what_is_saved_comes_back() -> None:
    for data in (rich_sheet(), sheet(gpt(2)), sheet(())):
        assert from_json(to_json(data)) == data


def test_a_saved_trace_is_plain_json_with_a_version() -> None:
    saved = json.loads(to_json(rich_sheet()))
    assert (saved["format"], saved["version"]) == ("shape-tracer", 1)
    assert "Infinity" not in to_json(rich_sheet())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as JSON"),
        ("[1, 2", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"format": NaN}', "cannot be read as JSON"),
        ("[]", "the file should be an object"),
        ("{}", 'the file has no "format"'),
        ('{"format": "other"}', 'its "format" is not "shape-tracer"'),
        ('{"format": "shape-tracer", "version": 2}', "version 2 of the format; this release reads version 1"),
        ('{"format": "shape-tracer", "version": "1"}', "should be a whole number from 0"),
        ('{"format": "shape-tracer", "version": 1}', 'has no "sources"'),
    ],
)
def test_what_is_no_trace_is_refused(text: str, message: str) -> None:
    with pytest.raises(TraceFileError, match=re.escape(message)):
        from_json(text)


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    return [path, *(p for key, value in inner for p in paths(value, (*path, key)))]


SAVED = json.loads(to_json(rich_sheet()))
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.just(10**30), st.floats(0, 1), st.text(max_size=3),
    st.just([]), st.just({}), st.just([[]]), st.just({"float": "x"}), st.just({"slice": [1]}), st.just({"float": []}),
)  # fmt: skip


@settings(max_examples=500)
@given(st.sampled_from(paths(SAVED)), JUNK)
def test_a_damaged_trace_is_refused_or_can_be_shown(path: tuple[Any, ...], junk: Any) -> None:
    data = json.loads(json.dumps(SAVED))
    if path:
        node = data
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = junk
    try:
        found = from_json(json.dumps(data if path else junk))
    except TraceFileError:
        return
    assert isinstance(text.to_text(found), str)
    Reader(html.fragment(found))
    assert from_json(to_json(found)) == found


@pytest.mark.parametrize("path", [p for p in paths(SAVED) if p and isinstance(p[-1], str)])
def test_a_missing_field_is_refused(path: tuple[Any, ...]) -> None:
    if path[0] in ("sizes", "names") and len(path) > 1:
        return  # any number of entries will do
    data = json.loads(json.dumps(SAVED))
    node = data
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    with pytest.raises(TraceFileError):
        from_json(json.dumps(data))


def test_operations_out_of_order_are_refused() -> None:
    data = json.loads(json.dumps(SAVED))
    data["ops"].reverse()
    with pytest.raises(TraceFileError, match="not in order"):
        from_json(json.dumps(data))


def test_reading_and_showing_need_no_torch() -> None:
    code = (
        "import sys, importlib.util, types\n"
        "sys.modules['torch'] = None\n"
        "package = types.ModuleType('tracer'); package.__path__ = ['tracer']; sys.modules['tracer'] = package\n"
        "from tracer.result import Trace\n"
        "from tracer import advice, checks\n"
        "t = Trace.from_json(sys.stdin.read()); print(len(t), len(t.to_html()) > 1000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=to_json(sheet(gpt(1))), capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "38 True\n")


def test_labels_are_kept_as_saved() -> None:
    (op,) = from_json(to_json(sheet(gpt(1)[:1]))).ops
    assert isinstance(op.outputs[0], TensorInfo)
    assert op.outputs[0].label == "[T]"
