"""What the player is given: every operation, line and shape of the trace, packed small; and the page around it."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from handmade import SIZES, Maker, attention, gpt

import tracer
from tracer import player as widget
from tracer.listings import Listing, listings
from tracer.models import GPT, GPTConfig
from tracer.records import Source
from tracer.render import layout, player, text
from tracer.render.layout import Sheet
from tracer.result import Trace

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'&<!--",
    "\u2028🙂 각",
    "{n} {count}",
]


def pack(trace: Trace, folded: bool = True) -> dict[str, Any]:
    return json.loads(json.dumps(player.pack(trace._data, trace._code(), folded)))


def operations(packed: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the packed operations in order: how each looks, and its module."""
    run = packed["run"]
    return [(packed["looks"][run[i]], packed["modules"][run[i + 1]]) for i in range(0, len(run), 2)]


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A small GPT on real numbers: 2 layers, all sizes distinct."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=21, vocab_size=11, block_size=8)).eval()
    return tracer.trace(model, torch.randint(0, 11, (2, 5)))


# ------------------------------------------------------------------ what is packed


def test_every_operation_is_there_with_its_named_shapes(trace: Trace) -> None:
    packed = pack(trace)
    found = operations(packed)
    assert len(found) == len(trace)
    for op, (look, module) in zip(trace, found, strict=True):
        assert (look["name"], module) == (op.name, op.module)
        for infos, ids in ((op.inputs, look["in"]), (op.outputs, look["out"])):
            shown = [packed["tensors"][i] for i in ids]
            assert [(t["label"], tuple(t["shape"])) for t in shown] == [(i.label, i.shape) for i in infos[:4]]
            assert [tuple(t["stride"]) for t in shown] == [i.stride for i in infos[:4]]
        assert [packed["tensors"][i]["name"] for i in look["out"]] == [o.variable or "" for o in op.outputs]
        assert look["says"].startswith(op.name) and look["memory"]


def test_every_line_is_there_with_its_chains(trace: Trace) -> None:
    packed = pack(trace)
    flat = packed["lines"]
    lines = trace.lines()
    assert len(flat) == 3 * len(lines)
    for line, row, module, count in zip(lines, flat[::3], flat[1::3], flat[2::3], strict=True):
        look = packed["rows"][row]
        assert (packed["modules"][module], count) == (line.module, len(line.ops))
        listing, number, code, _place = packed["sources"][look["at"]]
        assert line.source and (number, code) == (line.source.line, line.source.code)
        *_, numbers, texts = packed["listings"][listing]
        assert texts[numbers.index(number)].strip() == code
        said = [" ".join([start, *(step for _, step in steps)]) for start, steps, _, _ in look["chains"]]
        assert [" ".join(s.split()) for s in said] == [
            " ".join(text.chain_text(c).split()) for c in layout.chains(line)
        ]


def test_blocks_that_repeat_are_written_once(trace: Trace) -> None:
    packed = pack(trace)
    ((first, last, note),) = packed["folds"]
    assert note == next(item.note for item in layout.fold(trace.lines()) if isinstance(item, layout.Repeat))
    assert {line.module.split(".")[2] for line in trace.lines()[first:last]} == {"1"}
    assert pack(trace, folded=False)["folds"] == []
    one = Trace.from_ops(gpt(1), sizes=SIZES)
    many = Trace.from_ops(gpt(40), sizes=SIZES)
    grown = len(player.json_html(pack(many))) - len(player.json_html(pack(one)))
    assert grown / (len(many) - len(one)) < 60  # bytes for each operation more


def test_kept_numbers_are_packed_in_order_and_with_what_json_lacks() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = k @ q / 2**0.5  # [S, D] @ [D] -> [S]
        weights = scores.softmax(-1)
        out = weights @ v  # [S] @ [S, D] -> [D]
        return out

    k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    t = tracer.trace(attend, torch.tensor([1.0, 0.0]), k, k.clone(), axes=["D", "S D", "S D"], keep_values=True)
    packed = pack(t)
    values = {tensor["name"] or tensor["label"]: tensor["values"] for tensor in packed["tensors"]}
    assert values["q"] == [1, 0]
    assert values["weights"] == pytest.approx([0.401, 0.198, 0.401], abs=5e-4)
    assert values["out"] == pytest.approx([0.802, 0.599], abs=5e-4)
    assert player._flat([[1.0, float("-inf")], [float("nan"), True]]) == [1, "-inf", "nan", 1]
    assert player._flat([1 + 2j]) == ["(1+2j)"]


def test_what_a_result_reads_is_packed_for_each_result() -> None:
    t = tracer.trace(lambda x: x.split(3, dim=1), torch.zeros(2, 6), axes=["B C"])
    (look, _) = operations(pack(t))[0]
    assert look["kind"] == "cut"
    first, second = (result[0] for result in look["reads"])
    assert first in ([0, 1], [0, [1, 0]]) and second == [0, [1, -3]]


def test_whose_an_axis_is_stands_with_the_tensor(trace: Trace) -> None:
    tensors = {t["name"]: t for t in pack(trace)["tensors"]}
    assert tensors["scores"]["origins"] == ["", "", "T of q", "T of k"]
    assert tensors["q"]["origins"] is None


def test_many_results_are_counted_not_drawn() -> None:
    t = tracer.trace(lambda x: x.unbind(0), torch.zeros(7, 2), axes=["B C"])
    (look, _) = operations(pack(t))[0]
    assert (len(look["out"]), look["more"]) == (4, [0, 3])


def test_an_operation_that_failed_is_the_last_step() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.view(7, 7)

    with pytest.raises(RuntimeError) as caught:
        tracer.trace(broken, torch.zeros(2, 3), axes=["B C"])
    t = caught.value.trace  # type: ignore[attr-defined]
    *_, (look, _) = operations(pack(t))
    assert (look["name"], look["out"], look["says"]) == ("view", [], "Stopped here: view raised an error.")
    assert len(operations(pack(t))) == len(t) + 1
    assert "</html>" in t.to_html()


def test_a_part_of_a_trace_keeps_its_numbers(trace: Trace) -> None:
    part = trace.find(name="matmul")
    assert pack(part)["numbers"] == [op.index for op in part]
    assert pack(trace)["numbers"] is None


def test_an_empty_trace_is_a_page_too() -> None:
    assert "0 operations" in Trace.from_ops(()).to_html()


# ------------------------------------------------------------------ the code beside it


def test_the_whole_function_stands_beside_the_line(trace: Trace) -> None:
    found = listings(trace)
    source = next(op.source for op in trace if op.name == "masked_fill")
    assert source
    listing = found[source]
    assert listing.name == "forward" and listing.lines[0][1].startswith("def forward(")
    assert dict(listing.lines)[source.line].strip() == source.code


@pytest.mark.parametrize("now", [None, "x = 1\n", "def f(x):\n    return x + 2  # another\n", "def f(:\n"])
def test_a_file_that_changed_is_not_shown(tmp_path: Path, now: str | None) -> None:
    """What the trace itself knows stands there instead; a wrong line is never lit."""
    m = Maker(file=str(tmp_path / "model.py"))
    m.op("relu", [m.tensor("B T")], m.tensor("B T"), (2, "return x.relu()"))
    m.op("relu", [m.tensor("B T")], m.tensor("B T"), (5, "y = x.relu()"))
    if now is not None:
        (tmp_path / "model.py").write_text(now, encoding="utf-8")
    found = listings(m.ops)
    assert {s.lines for s in found.values()} == {((2, "return x.relu()"), (5, "y = x.relu()"))}


def test_of_a_long_function_the_lines_around_those_that_ran_are_shown(tmp_path: Path) -> None:
    code = "def f(x):\n" + "".join(f"    x = x + {n}\n" for n in range(2, 900))
    (tmp_path / "long.py").write_text(code, encoding="utf-8")
    m = Maker(file=str(tmp_path / "long.py"))
    m.op("add", [m.tensor("B T")], m.tensor("B T"), (500, "x = x + 500"))
    (listing,) = listings(m.ops).values()
    assert [n for n, _ in listing.lines] == list(range(495, 506))
    assert listing.lines[5] == (500, "x = x + 500")


def test_code_with_magics_is_shown_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text("%matplotlib inline\nx = y.relu()\n", encoding="utf-8")
    m = Maker(file=str(tmp_path / "cell.py"))
    m.op("relu", [m.tensor("B T")], m.tensor("B T", "x"), (2, "x = y.relu()"))
    assert list(listings(m.ops).values()) == [
        Listing(str(tmp_path / "cell.py"), "", ((1, "%matplotlib inline"), (2, "x = y.relu()")))
    ]


# ------------------------------------------------------------------ the page


class Reader(HTMLParser):
    """Collects tags, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")
            assert not dict(attrs).get("src")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


@pytest.mark.parametrize("nasty", HOSTILE)
def test_any_text_stays_text_in_the_page(nasty: str) -> None:
    m = Maker(file=nasty)
    x = replace(m.tensor("B T", nasty), label=nasty, dtype=nasty, device=nasty, axes=(nasty, "T"), origins=(nasty, "T"))
    m.op(nasty, [x, x], replace(x, id=77), (1, nasty), module=nasty, args=(nasty,))
    page = player.page(Sheet(tuple(m.ops), {nasty: 3}, nasty, (nasty,), (nasty,)), {})
    reader = Reader(page)
    assert reader.tags.count("script") == 2 and "img" not in reader.tags
    packed = json.loads(reader.scripts[0])
    shown = layout.plain(nasty)
    assert packed["modules"] == [shown]
    assert packed["tensors"][0]["name"] == packed["looks"][0]["name"] == packed["sources"][0][2] == shown
    assert packed["warnings"] == ["\n".join(map(layout.plain, nasty.splitlines()))]


def test_the_table_is_there_without_scripts(trace: Trace) -> None:
    """It is open as long as no script closes it."""
    page = trace.to_html()
    assert '<details id="tracer-table" open>' in page
    body = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for op in trace:
        assert all(layout.concrete(out) in body for out in op.outputs)


def test_a_page_of_gpt3_is_small(artefacts: Path) -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig.named("gpt3")).eval()
    t = tracer.trace(model, torch.zeros(1, 2048, dtype=torch.long, device="meta"))
    page = t.to_html()
    (artefacts / "gpt3.html").write_text(page, encoding="utf-8")
    assert len(t) > 2500
    assert len(page.encode()) <= 2_000_000
    assert len(player.json_html(pack(t))) < 150_000


def test_labels_are_looked_up_when_the_page_is_made(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sentence stands in the scripts: with another language, the words of the page are that language's."""
    monkeypatch.setattr(player, "say", lambda text, **values: f"«{text.format(**values)}»")
    words = pack(trace)["words"]
    assert words["next"] == "«Next»" and words["found"] == "«{n} of {count}»"
    quoted = [re.findall(r'"([^"\n]*)"|`([^`\n]*)`', line) for line in player.script().splitlines()]
    texts = {a or b for line in quoted for a, b in line}
    assert [t for t in texts if re.search(r"[A-Z][a-z]+ [a-z]+ [a-z]+", t)] == []


def test_scripts_use_no_word_that_is_not_given() -> None:
    used = set(re.findall(r"\bwords\.(\w+)", player.script()))
    assert used == set(player.WORDS)


# ------------------------------------------------------------------ the widget


def test_play_is_the_same_player(trace: Trace) -> None:
    shown = trace.play()
    assert isinstance(shown, widget.Player)
    assert {k: v for k, v in shown.trace.items() if k != "still"} == player.pack(trace._data, trace._code())
    assert repr(shown).startswith("<Player: ") and f"{len(trace)} operations" in repr(shown)


def test_where_no_widget_lives_the_table_shows(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[dict[str, str]] = []
    monkeypatch.setattr(widget, "display", lambda data, **_: outputs.append(data))
    trace.play()._ipython_display_()
    live, still = outputs
    assert "application/vnd.jupyter.widget-view+json" in live and "text/html" not in live
    assert 'class="st-t"' in still["text/html"] and "<script" not in still["text/html"]


# ------------------------------------------------------------------ the parts that need no page


def node() -> str:
    """Return node, or the one that playwright brings with it."""
    spec = find_spec("playwright")
    driver = Path(spec.origin).parent / "driver" / "node" if spec and spec.origin else None
    found = shutil.which("node") or (str(driver) if driver and driver.exists() else None)
    if found is None:
        pytest.skip("node is not installed: the scripts' own tests need it")
    return found


def test_the_scripts_parts_by_themselves(tmp_path: Path) -> None:
    """tests/widget/*.mjs, by node's own test runner."""
    for folder in (ROOT / "tracer" / "widget", ROOT / "tests" / "widget"):
        shutil.copytree(folder, tmp_path / folder.name, dirs_exist_ok=True)
    shutil.move(tmp_path / "widget", tmp_path / "all")
    (tmp_path / "all" / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    command = [node(), "--test", "--test-reporter=tap", *map(str, sorted((tmp_path / "all").glob("*.test.mjs")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE)


def test_the_script_of_the_page_is_one_valid_module(tmp_path: Path) -> None:
    (tmp_path / "player.mjs").write_text(player.script(), encoding="utf-8")
    done = subprocess.run([node(), "--check", tmp_path / "player.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"^(import|export (?!default))", player.script(), re.MULTILINE)


def test_attention_by_hand_has_sentences_for_all_steps() -> None:
    m = Maker()
    attention(m, m.tensor("B T C", "x"), "attn")
    packed = pack(Trace.from_ops(tuple(m.ops), sizes=SIZES))
    assert all(look["says"] and look["kind"] for look, _ in operations(packed))
    assert Source("/home/me/model.py", 20, "").place in {source[3] for source in packed["sources"]}
