"""The controls of `explore` in JupyterLab: keyboard, both modes, an impossible choice, and what must not happen."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

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
    before = page.locator(".te-figures").first.inner_text()
    page.get_by_role("radio", name="C is held").check()
    wait_for_status(page, "C is held at 48: D = C / H = 48 / 3 = 16")
    slider(page, "H").focus()
    page.keyboard.press("ArrowRight")
    expect_rows(page, case, 4, 12)
    wait_for(page, lambda: number(page, "D").input_value() == "12")
    assert slider(page, "D").is_disabled()
    assert page.locator(".te-figures").first.inner_text() == before
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
