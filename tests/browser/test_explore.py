"""The controls of `explore` in JupyterLab: keyboard, both modes, an impossible choice, and what must not happen."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.axe import violations

pytestmark = pytest.mark.timeout(60)

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
PANEL = ".tracer-explore"
SIZES = [(1280, 800), (1920, 1080), (360, 780)]


@dataclass(frozen=True)
class Case:
    """A notebook with controls for H and D; `rows(H, D)` are texts that its picture must then show."""

    path: Path
    rows: Callable[[int, int], list[str]]

    def __str__(self) -> str:
        return self.path.stem


CASES = [
    Case(HERE / "data" / "explore_toy.ipynb", lambda H, D: [f"[2, 5, {H * D}]", f"[2, 5, {3 * H * D}]"]),
    Case(NOTEBOOKS / "10_record_mingpt.ipynb", lambda H, D: [f"2·7·{H * D}", f"2·{H}·7·{D}"]),
]


@pytest.fixture(params=CASES, ids=str)
def case(request):
    """Each notebook with controls."""
    return request.param


def started(lab_at, case, theme="Light"):
    """Return the notebook's JupyterLab; in its copy a model that learns does so for a moment only."""
    lab = lab_at(case.path.parent)
    lab.set_theme(f"JupyterLab {theme}")
    copy = lab.folder / case.path.name
    text = copy.read_text(encoding="utf-8")
    copy.write_text(re.sub(r"\bsteps = \d+", "steps = 5", text), encoding="utf-8")
    return lab


@pytest.fixture
def lab(lab_at, case, page):
    """The notebook's JupyterLab, with the notebook open on `page` and all cells run."""
    lab = started(lab_at, case)
    lab.open(page, case.path.name)
    lab.run_all(page)
    return lab


def slider(page, name):
    """Return the slider of one axis, found as a screen reader finds it."""
    return page.locator(PANEL).first.get_by_role("slider", name=re.compile(rf"^{name}\b"))


def number(page, name):
    """Return the number field beside it."""
    return page.locator(PANEL).first.get_by_role("spinbutton", name=f"{name}, as a number")


def expect_rows(page, case, H, D):
    """Wait until the picture shows the sizes that belong to H and D."""
    picture = page.locator(".te-picture").first
    for text in case.rows(H, D):
        picture.get_by_text(text).first.wait_for()


def status(page):
    """Return the text of the live status."""
    return page.locator(".te-status").first.inner_text()


def wait_for(page, question):
    """Wait until the answer is true: the controls follow a moment after the picture."""
    end = time.monotonic() + 10
    while not question():
        assert time.monotonic() < end, "it did not come true in 10 s"
        page.wait_for_timeout(30)


def wait_for_status(page, text):
    """Wait until the live status says it."""
    page.locator(".te-status").first.filter(has_text=text).wait_for()


def test_the_sliders_are_moved_by_keyboard_and_the_real_code_runs_again(case, lab, page):
    H, D = int(slider(page, "H").input_value()), int(slider(page, "D").input_value())
    expect_rows(page, case, H, D)
    slider(page, "H").focus()
    page.keyboard.press("ArrowRight")
    expect_rows(page, case, H + 1, D)
    wait_for_status(page, f"C = H x D = {H + 1} x {D} = {(H + 1) * D}")
    wait_for(page, lambda: number(page, "H").input_value() == str(H + 1))
    slider(page, "D").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect_rows(page, case, H + 1, D - 2)
    number(page, "H").fill(str(H))
    expect_rows(page, case, H, D - 2)
    lab.screenshot(page, f"{case}-keyboard", PANEL)


def test_with_c_held_d_follows_and_the_parameter_count_stays(case, lab, page):
    number(page, "D").fill("16")
    number(page, "H").fill("3")
    expect_rows(page, case, 3, 16)
    wait_for_status(page, "3 x 16 = 48")
    before = page.locator(".te-figures b").first.inner_text()
    page.get_by_role("radio", name="C is held").check()
    wait_for_status(page, "C is held at 48: D = C / H = 48 / 3 = 16")
    slider(page, "H").focus()
    page.keyboard.press("ArrowRight")
    expect_rows(page, case, 4, 12)
    wait_for(page, lambda: number(page, "D").input_value() == "12")
    assert slider(page, "D").is_disabled()
    assert page.locator(".te-figures b").first.inner_text() == before
    assert "unchanged" in page.locator(".te-figures span").first.inner_text()
    lab.screenshot(page, f"{case}-held", PANEL)
    page.get_by_role("radio", name="C moves").check()
    wait_for_status(page, "C = H x D = 4 x 12 = 48")
    assert slider(page, "D").is_enabled()


def test_an_impossible_choice_is_explained_and_the_picture_stays(case, lab, page):
    number(page, "D").fill("16")
    number(page, "H").fill("4")
    page.get_by_role("radio", name="C is held").check()
    wait_for_status(page, "C is held at 64")
    slider(page, "H").focus()
    page.keyboard.press("ArrowRight")
    wait_for_status(page, "64 / 5 is no whole number. H = 1, 2, 4 or 8 would do.")
    expect_rows(page, case, 4, 16)
    assert slider(page, "H").input_value() == "5"
    wait_for(page, lambda: number(page, "D").input_value() == "")
    assert "Traceback" not in page.locator(".jp-Notebook").inner_text()
    lab.screenshot(page, f"{case}-impossible", PANEL)
    page.keyboard.press("End")
    expect_rows(page, case, 8, 8)
    wait_for(page, lambda: "Not possible" not in status(page))


def test_letters_typed_at_the_controls_reach_no_shortcut(case, lab, page):
    cells = lab.count_cells(page)
    for field in [slider(page, "H"), number(page, "H"), page.get_by_role("radio", name="C moves")]:
        field.focus()
        for key in ["a", "b", "d", "d", "x", "m"]:
            page.keyboard.press(key)
    assert lab.count_cells(page) == cells
    assert page.locator(".jp-Dialog").count() == 0


def test_a_held_down_key_ends_at_the_last_value(case, lab, page):
    low, high = (int(slider(page, "H").get_attribute(end)) for end in ("min", "max"))
    D = int(slider(page, "D").input_value())
    slider(page, "H").focus()
    for _ in range(3):
        for key in [*["ArrowLeft"] * (high - low), *["ArrowRight"] * (high - low)]:
            page.keyboard.press(key)
    expect_rows(page, case, high, D)
    wait_for_status(page, f"{high} x {D} = {high * D}")
    wait_for(page, lambda: slider(page, "H").input_value() == number(page, "H").input_value() == str(high))


def test_after_a_restart_of_the_kernel_the_controls_say_so(case, lab, page):
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_role("menuitem", name="Restart Kernel…").click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    page.wait_for_timeout(1500)
    number(page, "H").fill("4")
    wait_for_status(page, "After a restart, run this cell again.")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_nothing_is_cut_off_at_any_width(lab_at, case, page, theme):
    lab = started(lab_at, case, theme)
    lab.open(page, case.path.name, alone=True)
    lab.run_all(page)
    panel = page.locator(PANEL).first
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        slider(page, "H").focus()
        lab.screenshot(page, f"{case}-{theme.lower()}-{width}", PANEL)
        controls = panel.locator(".te-controls")
        assert controls.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert panel.locator(".te-status").evaluate("node => node.scrollWidth <= node.clientWidth")


# ------------------------------------------------------------------ every argument of a builder

GPT = Case(HERE / "data" / "explore_gpt.ipynb", lambda H, D: [f"2·6·{H * D}", f"2·{H}·6·{D}"])


@pytest.fixture
def gpt(lab_at, page):
    """The page of the notebook in which everything about the reference GPT is a choice."""
    lab = started(lab_at, GPT)
    lab.open(page, GPT.path.name, alone=True)
    lab.run_all(page)
    lab.screenshot(page, "explore_gpt", PANEL)
    return page


def counted(page, label):
    """Return what stands beside the picture under a name: the number and its change."""
    return page.locator(".te-figures span").filter(has_text=label).first.inner_text().removeprefix(label).strip()


def test_all_controls_have_names_and_re_run_the_model_by_keyboard(gpt):
    panel = gpt.locator(PANEL).first
    for name, shown in [("T positions", "2·7·48"), ("B batch", "3·7·48"), ("L layers", "transformer.h.1-2")]:
        panel.get_by_role("slider", name=name).focus()
        gpt.keyboard.press("ArrowRight")
        panel.locator(".te-picture").get_by_text(shown).first.wait_for()
    wait_for_status(gpt, "T = 7; B = 3; L = 3; norm = pre; positions = learned; how = steps; bias = True")
    for name, key, value in [("norm", "p", "post"), ("positions", "r", "rotary"), ("how", "f", "fused")]:
        panel.get_by_role("combobox", name=re.compile(rf"^{name}\b")).focus()
        gpt.keyboard.press(key)
        wait_for_status(gpt, f"{name} = {value}")
    panel.locator(".te-picture").get_by_text("scaled_dot_product_attention").first.wait_for()
    panel.get_by_role("switch", name="bias").focus()
    gpt.keyboard.press("Space")
    wait_for_status(gpt, "bias = False")


def test_costs_stand_beside_the_picture_against_the_setting_before(gpt):
    """2 layers x keys and values x [B, T, C] x 4 bytes = 2 x 2 x 2 x 6 x 48 x 4 = 9.22 kB."""
    assert counted(gpt, "KV cache") == "9.22 kB"
    flops = counted(gpt, "FLOPs")
    number(gpt, "L").fill("4")
    wait_for(gpt, lambda: counted(gpt, "KV cache") == "18.4 kB before: 9.22 kB (+100%)")
    assert f"before: {flops}" in counted(gpt, "FLOPs")
    assert "before" in counted(gpt, "Parameters")
    assert "before" in counted(gpt, "New memory")
    number(gpt, "L").fill("99")
    gpt.keyboard.press("Tab")
    wait_for_status(gpt, "L goes from 1 to 6 here; 99 is outside.")
    assert counted(gpt, "KV cache") == "18.4 kB before: 9.22 kB (+100%)"


def test_what_differs_is_marked_and_what_stays_is_not_drawn_anew(gpt):
    picture = gpt.locator(".te-picture").first
    assert picture.locator(".te-changed").count() == 0
    picture.evaluate("node => { node.querySelector('table').kept = true }")
    gpt.get_by_role("radio", name="C is held").first.check()
    number(gpt, "H").fill("4")
    expect_rows(gpt, GPT, 4, 12)
    assert picture.evaluate("node => node.querySelector('table').kept") is True
    marked = picture.locator(".te-changed").all_inner_texts()
    assert any("2·4·6·12" in text for text in marked)
    assert not any("2·6·48" in text and "[B, T, C]" in text for text in marked)
    assert "They part at" in gpt.locator(".te-difference").first.inner_text()
    first = {text for text in marked if text}
    number(gpt, "H").fill("3")
    expect_rows(gpt, GPT, 3, 16)
    assert not first & set(picture.locator(".te-changed").all_inner_texts())


def test_axe_finds_nothing_serious_in_controls_and_pictures(gpt):
    assert violations(gpt, PANEL) == []
    number(gpt, "T").fill("99")
    gpt.keyboard.press("Tab")
    wait_for_status(gpt, "T goes from 1 to 32 here; 99 is outside.")
    assert violations(gpt, PANEL) == []
    assert violations(gpt, ".st-heat") == []
    gpt.locator(PANEL).first.get_by_role("slider", name="B batch").evaluate("node => node.labels[0].remove()")
    assert any("label" in found for found in violations(gpt, PANEL)), "axe sees a control without a name"


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_all_controls_fit_at_any_width(lab_at, page, theme):
    lab = started(lab_at, GPT, theme)
    lab.open(page, GPT.path.name, alone=True)
    lab.run_all(page)
    number(page, "L").fill("3")
    page.locator(".te-difference").first.filter(has_text="They part at").wait_for()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        lab.screenshot(page, f"explore_gpt-{theme.lower()}-{width}", PANEL)
        for part in (".te-controls", ".te-status"):
            assert page.locator(part).first.evaluate("node => node.scrollWidth <= node.clientWidth"), part
        maps = page.locator(".st-heat").last
        assert maps.evaluate("node => node.scrollWidth <= node.clientWidth")
        lab.screenshot(page, f"maps-lab-{theme.lower()}-{width}", ".st-layer")
