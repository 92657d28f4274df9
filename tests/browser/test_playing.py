"""The player in the saved file and in JupyterLab: at every step, by keyboard alone, it agrees with the trace."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from handmade import Maker

import tracer
from tests.browser.axe import violations
from tests.browser.conftest import ARTEFACTS, Voila
from tracer.models import GPT, GPTConfig
from tracer.render import player as packed
from tracer.render.layout import Sheet
from tracer.result import Trace

pytestmark = pytest.mark.timeout(120)

DATA = Path(__file__).parent / "data"
SIZES = [(360, 780), (1280, 800), (1920, 1080)]

# What the player shows now, read from the page as a reader gets it.
SHOWN = """root => {
  const text = node => node?.innerText.replace(/\\s+/g, ' ').trim() ?? null;
  const box = node => [node.dataset.label, node.dataset.shape, text(node.querySelector('.tp-label'))];
  const line = root.querySelector('.tp-code [aria-current=step]');
  return {
    op: Number(root.dataset.op),
    where: text(root.querySelector('.tp-where')),
    file: text(root.querySelector('.tp-file')),
    line: line && Number(line.dataset.line),
    code: line && line.querySelector('code').textContent.trim(),
    ins: [...root.querySelectorAll('[data-role=in]')].map(box),
    outs: [...root.querySelectorAll('[data-role=out]')].map(box),
    says: text(root.querySelector('.tp-says')),
    chain: text(root.querySelector('.tp-chain [aria-current=step]')),
    row: text(root.querySelector('.tp-tree [aria-selected=true]')),
    named: [...root.querySelectorAll('canvas')].map(node => node.getAttribute('aria-label')),
  };
}"""

# Texts and pictures that lie on each other, reach outside of the page, or are wider than the box they stand in.
MISFITS = """root => {
  const parts = '.tp-head span, .tp-bar button, .tp-bar select, .tp-bar input, .tp-where, .tp-file, .tp-says, '
    + '.tp-memory, .tp-side h3, .tp-arrow, .tp-box figcaption, .tp-box canvas, .tp-missing, .tp-run > *, .tp-keys';
  const boxes = [...root.querySelectorAll(parts)].filter(e => e.checkVisibility() && e.getBoundingClientRect().width)
    .map(e => [e, e.getBoundingClientRect()]);
  const name = e => `${e.className || e.tagName}: ${e.innerText ?? ''}`;
  const bad = boxes.filter(([, r]) => r.left < -1 || r.right > innerWidth + 1).map(([e]) => `outside: ${name(e)}`);
  boxes.forEach(([e, a], i) => boxes.slice(i + 1).forEach(([f, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1 && !e.contains(f) && !f.contains(e)) bad.push(`overlap: ${name(e)} | ${name(f)}`);
  }));
  for (const e of root.querySelectorAll('.tp-canvas, .tp-says, .tp-head, .tp-bar, .tp-chain')) {
    if (e.scrollWidth > e.clientWidth + 1) bad.push(`cut off: ${name(e)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) bad.push('the page scrolls sideways');
  return bad;
}"""


def model_and_tokens():
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=3, n_embd=21, vocab_size=11, block_size=8)).eval()
    return model, torch.randint(0, 11, (2, 5))


@pytest.fixture(scope="module")
def trace():
    """The same run as in data/player.ipynb."""
    model, tokens = model_and_tokens()
    return tracer.trace(model, tokens)


def attend(q, k, v):
    """One query over three keys."""
    scores = k @ q / 2**0.5  # [S, D] @ [D] -> [S]
    weights = torch.softmax(scores, dim=-1)  # [S]
    out = weights @ v  # [S] @ [S, D] -> [D]
    return out


@pytest.fixture(scope="module")
def by_hand():
    """The example that can be worked out by hand, with its numbers."""
    k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return tracer.trace(attend, torch.tensor([1.0, 0.0]), k, k.clone(), axes=["D", "S D", "S D"], keep_values=True)


def moved(x):
    """One operation of each kind that is animated."""
    T = x.shape[1]
    q = x.view(2, T, 3, 4).transpose(1, 2)  # [B, T, C] -> [B, T, H, D] -> [B, H, T, D]
    scores = q @ q.transpose(-2, -1)  # [B, H, T, T]
    mask = torch.ones(T, T, dtype=torch.bool).triu(1)  # [T, T]
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)  # [B, H, T, T]
    parts = weights.split(1, dim=1)  # 3 x [B, 1, T, T]
    return torch.cat(parts, dim=1).sum(-1)  # [B, H, T]


ANIMATED = ["view", "transpose", "matmul", "masked_fill", "softmax", "split", "cat", "sum", "triu"]


@pytest.fixture(scope="module")
def animated():
    """A trace of `moved`, with the numbers of its small tensors."""
    torch.manual_seed(0)
    return tracer.trace(moved, torch.randn(2, 5, 12), axes=["B T C"], sizes={"C": 12, "H": 3, "D": 4}, keep_values=True)


def save(trace, tmp_path, page, **options):
    """Open the saved page of a trace, and return the player in it."""
    path = tmp_path / "trace.html"
    path.write_text(trace if isinstance(trace, str) else trace.to_html(**options), encoding="utf-8")
    page.goto(path.as_uri())
    player = page.locator(".tracer-player")
    player.locator(".tp-where", has_text="/").wait_for()
    return player


def shown(player):
    return player.evaluate(SHOWN)


def packed_text(text):
    return " ".join(text.split())


def expect_step(seen, op, trace):
    """Assert that line, shapes, boxes, sentence and row are those of one operation."""
    assert (seen["line"], seen["code"]) == (op.source.line, op.source.code)
    assert seen["file"].endswith(op.source.place)
    for boxes, infos in ((seen["ins"], op.inputs), (seen["outs"], op.outputs)):
        wanted = [(info.label, ",".join(map(str, info.shape))) for info in infos[:4]]
        assert [(label, shape) for label, shape, _ in boxes] == wanted
        assert all(text.endswith(label) for label, _, text in boxes)
    assert [text for *_, text in seen["outs"]] == [packed_text(f"{o.variable or ''} {o.label}") for o in op.outputs]
    assert seen["says"] and seen["says"].startswith(op.name)
    assert op.outputs[0].label in seen["chain"]
    assert seen["row"].endswith(op.outputs[0].label) and op.name in seen["row"]
    assert all(seen["named"]) and len(seen["named"]) == len(seen["ins"]) + len(seen["outs"])


def step_through(page, player, trace):
    """Press the arrow key from the first operation to the last, and compare at each."""
    page.keyboard.press("Home")
    for at, op in enumerate(trace):
        seen = shown(player)
        assert (seen["op"], seen["where"]) == (at, f"{at + 1} / {len(trace)}")
        expect_step(seen, op, trace)
        page.keyboard.press("ArrowRight")
    assert shown(player)["op"] == len(trace) - 1  # the last step is the last
    page.keyboard.press("ArrowLeft")
    assert shown(player)["op"] == len(trace) - 2


# ------------------------------------------------------------------ stepping


def test_the_saved_file_steps_through_the_whole_gpt_by_keyboard(page, trace, tmp_path):
    player = save(trace, tmp_path, page)
    player.get_by_role("button", name="Unfold all").press("Enter")
    step_through(page, player, trace)


def test_by_line_each_stop_is_a_line_with_all_its_operations_told(page, trace, tmp_path):
    player = save(trace, tmp_path, page, fold=False)
    page.keyboard.press("l")
    assert player.get_by_role("combobox", name="Steps").input_value() == "line"
    page.keyboard.press("Home")
    lines = trace.lines()
    for at, line in enumerate(lines):
        seen = shown(player)
        assert seen["where"] == f"{at + 1} / {len(lines)}"
        assert (seen["line"], seen["code"]) == (line.source.line, line.source.code)
        assert [box[0] for box in seen["outs"]] == [out.label for out in line.ops[-1].outputs]
        assert player.locator(".tp-says > span").count() == len(line.ops)
        assert seen["row"] == packed_text(line.source.code)
        page.keyboard.press("ArrowRight")


def test_a_fold_is_one_step_and_opens(page, trace, tmp_path):
    player = save(trace, tmp_path, page)
    (first, last, note) = packed.pack(trace._data, trace._code())["folds"][0]
    inside = [op for line in trace.lines()[first:last] for op in line.ops]
    total = len(trace) - len(inside) + 1
    page.keyboard.press("End")
    assert shown(player)["where"] == f"{total} / {total}"
    player.get_by_role("treeitem", name=note).click()
    player.get_by_role("tree").focus()
    page.keyboard.press("f")
    assert shown(player)["op"] == inside[0].index
    page.keyboard.press("f")
    seen = shown(player)
    assert "transformer.h.1" in seen["row"] and seen["says"].endswith("stepped over as one")
    assert seen["outs"][0][0] == inside[-1].outputs[0].label


def test_keys_buttons_and_the_slider_do_the_same(page, trace, tmp_path):
    player = save(trace, tmp_path, page, fold=False)
    for name, op in [("Next", 1), ("Next", 2), ("Back", 1), ("Last step", len(trace) - 1), ("First step", 0)]:
        player.get_by_role("button", name=name, exact=True).click()
        assert shown(player)["op"] == op
    page.keyboard.press("End")
    assert shown(player)["op"] == len(trace) - 1
    page.keyboard.press("Home")
    assert shown(player)["op"] == 0
    player.get_by_role("slider").fill("7")
    assert shown(player)["op"] == 7
    assert player.get_by_role("slider").get_attribute("aria-valuetext") == f"step 8 of {len(trace)}"


def test_it_plays_and_pauses_at_a_chosen_speed(page, by_hand, tmp_path):
    player = save(by_hand, tmp_path, page)
    player.get_by_role("combobox", name="Speed").select_option("4")
    player.evaluate("root => root.focus()")
    page.keyboard.press(" ")
    player.get_by_role("button", name="Pause").wait_for()
    player.locator(".tp-where", has_text="4 / 4").wait_for()
    player.get_by_role("button", name="Play").wait_for()  # it stops at the end by itself
    page.keyboard.press(" ")
    player.get_by_role("button", name="Pause").click()
    assert shown(player)["op"] < 3


def test_clicks_on_a_row_a_line_and_the_chain_jump(page, trace, tmp_path):
    player = save(trace, tmp_path, page)
    player.get_by_role("treeitem", name=re.compile("^k: transpose")).first.click()
    op = next(op for op in trace if op.name == "transpose" and op.variable == "k")
    expect_step(shown(player), op, trace)
    soft = next(op for op in trace if op.name == "softmax")
    player.locator(f".tp-code li[data-line='{soft.source.line}']").click()
    expect_step(shown(player), soft, trace)
    line = next(line for line in trace.lines() if line.ops[-1].variable == "v" and len(line.ops) == 2)
    player.locator(f".tp-code li[data-line='{line.source.line}']").click()
    while shown(player)["op"] != line.ops[0].index:  # it goes round: the block that comes next is folded away
        player.locator(f".tp-code li[data-line='{line.source.line}']").click()
    player.locator(".tp-chain button").nth(1).click()
    expect_step(shown(player), line.ops[1], trace)


def test_search_goes_from_hit_to_hit_and_opens_folds(page, trace, tmp_path):
    player = save(trace, tmp_path, page)
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    wanted = [op.index for op in trace if op.name == "softmax" or "softmax" in op.source.code]
    seen = []
    for n in range(len(wanted)):
        assert player.locator(".tp-hits").inner_text() == f"{n + 1} of {len(wanted)}"
        seen.append(shown(player)["op"])
        page.keyboard.press("Enter")
    assert seen == wanted
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("no such thing")
    assert player.locator(".tp-hits").inner_text() == "nothing found"


# ------------------------------------------------------------------ numbers, and what makes them


def test_the_example_shows_its_numbers_and_what_makes_each(page, by_hand, tmp_path):
    player = save(by_hand, tmp_path, page)
    page.keyboard.press("End")
    out = player.locator("[data-role=out] canvas")
    out.hover(position={"x": 25, "y": 40})
    told = player.locator(".tp-told")
    assert told.inner_text() == "out[0] = .802 is made from weights[:] = .401 .198 .401, v[:, 0] = 1 0 1"
    player.locator(".tp-says").hover()
    player.locator("[data-role=out] .tp-canvas").focus()
    for key, text in [("ArrowRight", "out[0] = .802"), ("ArrowRight", "out[1] = .599"), ("ArrowLeft", "out[0] = .802")]:
        page.keyboard.press(key)
        assert told.inner_text().startswith(text)
    page.keyboard.press("Escape")
    assert told.inner_text() == ""
    page.keyboard.press("ArrowLeft")  # and the arrows step again
    assert shown(player)["op"] == 2
    assert "[S]" in shown(player)["outs"][0][0]


def picture(player, role="out"):
    return player.locator(f"[data-role={role}] canvas").first.evaluate("node => node.toDataURL()")


def test_an_element_lights_what_makes_it(page, by_hand, tmp_path):
    page.emulate_media(reduced_motion="reduce")
    player = save(by_hand, tmp_path, page)
    page.keyboard.press("End")
    before = {role: picture(player, role) for role in ("in", "out")}
    player.locator("[data-role=out] canvas").hover(position={"x": 25, "y": 40})
    assert all(picture(player, role) != image for role, image in before.items())
    player.locator(".tp-says").hover()
    assert {role: picture(player, role) for role in before} == before


@pytest.mark.parametrize("name", ANIMATED)
def test_each_kind_moves_and_ends_where_it_stands_without_motion(page, animated, tmp_path, artefacts, name):
    at = next(op.index for op in animated if op.name == name)
    player = save(animated, tmp_path, page, fold=False)
    player.get_by_role("combobox", name="Speed").select_option("0.5")
    player.focus()
    page.keyboard.press("Home")
    for _ in range(at):
        page.keyboard.press("ArrowRight")
    stage = player.locator(".tp-stage")
    assert stage.get_attribute("data-moving") == "true"
    begin = picture(player)
    page.wait_for_timeout(350)
    player.screenshot(path=artefacts / f"player-{name}-moving.png")
    page.locator(".tp-stage[data-moving=false]").wait_for()
    end = picture(player)
    assert begin != end
    player.screenshot(path=artefacts / f"player-{name}.png")
    page.emulate_media(reduced_motion="reduce")
    page.keyboard.press("Home")
    for _ in range(at):
        page.keyboard.press("ArrowRight")
    assert stage.get_attribute("data-moving") == "false"
    assert picture(player) == end


# ------------------------------------------------------------------ how it looks, and who can use it


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nothing_overlaps_is_cut_off_or_scrolls_sideways(page, trace, animated, tmp_path, artefacts, size, theme):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    for name, one in (("gpt", trace), ("kinds", animated)):
        player = save(one, tmp_path, page)
        count = int(shown(player)["where"].split(" / ")[1])
        for at in range(count):
            assert player.evaluate(MISFITS) == [], f"step {at + 1} of {name}"
            if at in (10, 15):
                page.screenshot(path=artefacts / f"player-{name}-{at}-{size[0]}-{theme}.png", full_page=True)
            page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_no_serious_violation(page, trace, by_hand, tmp_path, width, theme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    player = save(by_hand, tmp_path, page)
    page.keyboard.press("End")
    assert violations(page) == []
    player = save(trace, tmp_path, page)
    page.keyboard.press("/")
    page.keyboard.type("view")
    assert violations(page) == []
    page.locator("#tracer-table > summary").click()
    page.keyboard.press("Escape")
    player.get_by_role("button", name="Unfold all").click()
    assert violations(page) == []


def test_focus_can_be_seen_on_all_that_takes_it(page, by_hand, tmp_path):
    player = save(by_hand, tmp_path, page)
    page.keyboard.press("End")
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.tagName + '.' + e.className, s.outlineStyle, parseFloat(s.outlineWidth)] }"
        )
        if found[0] == "BODY.":
            break
        assert found[1] != "none" and found[2] >= 1, found
        seen.add(found[0])
    assert {"DIV.tp-tree", "OL.tp-code", "INPUT.", "SELECT.", "BUTTON.", "DIV.tp-canvas"} <= seen
    assert player.locator("canvas").first.get_attribute("aria-label")


def test_where_a_name_stands_twice_the_picture_says_whose_each_is(page, trace, tmp_path):
    player = save(trace, tmp_path, page)
    page.keyboard.press("/")
    box = player.locator("[data-role=out]").first
    page.keyboard.press("Control+a")
    page.keyboard.type("masked_fill")
    assert "[B, H, T of q, T of k]" in box.locator("figcaption").inner_text()
    assert "[B, H, T of q, T of k]" in box.locator("canvas").get_attribute("aria-label")


# ------------------------------------------------------------------ texts that are no texts


@pytest.mark.parametrize("nasty", ["</script><script>hit()</script>", "<img src=x onerror=hit()>", "\"'`${hit()}&🙂"])
def test_hostile_names_show_as_text(page, tmp_path, nasty):
    m = Maker(file=nasty)
    x = replace(m.tensor("B T", nasty), label=f"[{nasty}]", dtype=nasty, axes=(nasty, "T"), origins=(nasty, "T"))
    m.op(nasty, [x, x], replace(x, id=77), (1, nasty), module=nasty, args=(nasty,))
    saved = packed.page(Sheet(tuple(m.ops), {nasty: 3}, nasty, (nasty,), (nasty,)), {})
    player = save(saved, tmp_path, page)
    page.evaluate("() => { window.hit = () => document.body.dataset.hit = 'yes' }")
    seen = shown(player)
    assert seen["code"] == nasty
    assert seen["outs"][0][2] == f"{nasty} [{nasty}]"
    player.get_by_role("tree").focus()
    page.keyboard.press("f")
    page.keyboard.press("f")
    page.wait_for_timeout(100)
    assert page.evaluate("document.body.dataset.hit") is None
    assert page.locator(".tracer-player img, .tracer-player script").count() == 0


def test_without_scripts_the_table_is_what_shows(browser, trace, tmp_path):
    path = tmp_path / "trace.html"
    path.write_text(trace.to_html(), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("table.st-t").first.is_visible()
    assert page.get_by_text("transformer.h.0.attn").first.is_visible()
    context.close()


def test_a_failed_run_steps_to_the_operation_that_failed(page, tmp_path):
    def broken(x):
        y = x * 2
        return y.view(7, 7)

    with pytest.raises(RuntimeError) as caught:
        tracer.trace(broken, torch.zeros(2, 3), axes=["B C"])
    player = save(caught.value.trace, tmp_path, page)
    page.keyboard.press("End")
    seen = shown(player)
    assert seen["code"] == "return y.view(7, 7)" and seen["outs"] == []
    assert seen["says"] == "Stopped here: view raised an error."


def test_an_empty_trace_opens(page, tmp_path):
    path = tmp_path / "trace.html"
    path.write_text(Trace.from_ops(()).to_html(), encoding="utf-8")
    page.goto(path.as_uri())
    page.locator(".tp-head", has_text="0 operations").wait_for()
    page.keyboard.press("ArrowRight")


# ------------------------------------------------------------------ JupyterLab


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_in_jupyterlab_it_steps_through_the_whole_gpt_and_no_key_gets_away(lab_at, page, trace, theme):
    lab = lab_at(DATA)
    lab.set_theme(f"JupyterLab {theme}")
    lab.open(page, "player.ipynb", alone=True)
    lab.run_all(page)
    player = page.locator(".tracer-player")
    player.locator(".tp-where", has_text="/").wait_for()
    cells = lab.count_cells(page)
    player.get_by_role("button", name="Unfold all").press("Enter")
    player.focus()
    if theme == "Light":
        step_through(page, player, trace)
    page.keyboard.press("Home")
    for _ in range(13):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(1100)
    lab.screenshot(page, f"player-lab-{theme.lower()}", ".tracer-player")
    for target in (player, player.get_by_role("tree"), player.locator(".tp-canvas").last, player.get_by_role("slider")):
        target.focus()
        for key in ("a", "b", "d", "d", "x", "m", "Enter"):
            page.keyboard.press(key)
    assert lab.count_cells(page) == cells
    assert page.locator(".jp-Dialog").count() == 0
    assert violations(page, ".tracer-player") == []
    assert page.locator(".shape-tracer").count() == 1 and not page.locator(".shape-tracer").is_visible()


# ------------------------------------------------------------------ Voilà


@pytest.fixture
def voila(tmp_path):
    """A running Voilà on the folder of notebooks."""
    ARTEFACTS.mkdir(exist_ok=True)
    started = Voila(DATA, tmp_path)
    try:
        started.wait()
        yield started
    finally:
        started.stop()


def test_in_voila_it_steps_through_the_whole_gpt(voila, watched, trace):
    """Voilà's own page asks a CDN for style sheets of icons, in vain here; the player asks for nothing."""
    page, watch = watched
    page.goto(f"{voila.address}/voila/render/player.ipynb")
    player = page.locator(".tracer-player")
    player.locator(".tp-where", has_text="/").wait_for()
    player.get_by_role("button", name="Unfold all").press("Enter")
    step_through(page, player, trace)
    voila.screenshot(page, "player-voila", ".tracer-player")
    assert violations(page, ".tracer-player") == []
    assert not [url for url in watch.away if not url.endswith(".min.css")]
    assert not [error for error in watch.errors if "tracer" in error or "player" in error]
