"""Other places than JupyterLab: Voilà as a class-room page, Notebook 7, and an exported page without any script."""

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from tests.browser.axe import violations
from tests.browser.conftest import ARTEFACTS, ROOT, Lab, Voila, is_root

pytestmark = pytest.mark.timeout(120)

DATA = Path(__file__).parent / "data"
NOTEBOOK = "explore_gpt.ipynb"


class Notebook7(Lab):
    """Notebook 7 in the place of JupyterLab."""

    def _command(self):
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": urlsplit(self.address).port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.folder,
            "IdentityProvider.token": self.token,
        }
        flags = ["--no-browser", *(["--allow-root"] if is_root() else [])]
        return [sys.executable, "-m", "notebook", *flags, *(f"--{name}={value}" for name, value in options.items())]


@pytest.fixture
def server(request, tmp_path):
    """A running server of the class that the test asks for."""
    ARTEFACTS.mkdir(exist_ok=True)
    started = request.param(DATA, tmp_path)
    try:
        started.wait()
        yield started
    finally:
        started.stop()


def move_heads(page, H):
    """Move the slider of H by one step, by keyboard, and wait until picture and status have followed."""
    slider = page.locator(".tracer-explore").first.get_by_role("slider", name="H heads")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".te-status").first.filter(has_text=f"C = H x D = {H + 1} x 16").wait_for()
    page.locator(".te-picture").first.get_by_text(f"2·{H + 1}·6·16").first.wait_for()


@pytest.mark.parametrize("server", [Voila], indirect=True)
def test_voila_is_a_class_room_page(server, watched):
    """It shows prose, controls and pictures without code cells; the controls re-run the model.

    Voilà's own page asks a CDN for two style sheets of icons, which the browser here does not get: all works without.
    """
    page, watch = watched
    page.goto(f"{server.address}/voila/render/{NOTEBOOK}")
    page.locator(".te-picture table").first.wait_for()
    page.get_by_role("img", name="transformer.h.0.attn, head 0").wait_for()
    move_heads(page, 3)
    server.screenshot(page, "voila", ".tracer-explore")
    assert page.get_by_text("tracer.explore(build").count() == 0
    assert violations(page, ".tracer-explore") == []
    for width in (360, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        server.screenshot(page, f"voila-{width}", ".tracer-explore")
        panel = page.locator(".te-controls").first
        assert panel.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert {re.sub(r"@.*/", "/", url) for url in watch.away} <= {
        "https://cdn.jsdelivr.net/npm//all.min.css",
        "https://cdn.jsdelivr.net/npm//v4-shims.min.css",
    }
    assert not [error for error in watch.errors if "tracer" in error or "explore" in error]


@pytest.mark.parametrize("server", [Notebook7], indirect=True)
def test_notebook_7_runs_the_controls(server, watched):
    page, watch = watched
    page.goto(f"{server.address}/notebooks/{NOTEBOOK}?token={server.token}")
    page.locator(".jp-NotebookKernelStatus-fade").wait_for(state="attached")  # it has said that the kernel is idle
    page.locator(".jp-CodeCell").first.wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".te-picture table").first.wait_for()
    cells = server.count_cells(page)
    move_heads(page, 3)
    for key in ["a", "d", "d", "m"]:
        page.keyboard.press(key)
    assert server.count_cells(page) == cells
    server.screenshot(page, "notebook-7", ".tracer-explore")
    assert watch.away == []
    assert not [error for error in watch.errors if "tracer" in error or "explore" in error]


@pytest.fixture(scope="module")
def exported():
    """The notebook, executed and exported by nbconvert."""
    notebook = nbformat.read(DATA / NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=60, raise_on_iopub_timeout=True).execute(
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    )
    page, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    return page


@pytest.mark.parametrize("size", [(360, 780), (1280, 800)], ids=str)
def test_an_exported_page_shows_pictures_and_tables_without_scripts(browser, exported, tmp_path, size, artefacts):
    path = tmp_path / "exported.html"
    path.write_text(exported, encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.goto(path.as_uri())
    still = page.locator("div[class^=tracer-still]")
    assert still.get_by_text("C = H x D = 3 x 16 = 48").is_visible()
    assert still.get_by_text("KV cache: 9.22 kB").is_visible()
    assert still.locator("table").first.is_visible()
    assert page.get_by_role("img", name="transformer.h.0.attn, head 2").is_visible()
    assert page.get_by_text("[B, H, T, T]").first.is_visible()
    assert page.get_by_text("나는").first.is_visible()
    page.screenshot(path=artefacts / f"exported-{size[0]}.png", full_page=True)
    for picture in page.locator(".shape-tracer").all():
        assert picture.evaluate("node => node.scrollWidth <= node.clientWidth")
    context.close()
