"""A real browser on a real JupyterLab: fixtures `browser`, `page`, `watched` and `lab_at`.

A browser that is already installed is used. Without one the tests are skipped with the reason; in CI they fail.
Every page fails its test when it asks another machine for anything, or writes an error to its console.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
ARTEFACTS = ROOT / "test-artefacts"
HERE = {"localhost", "127.0.0.1"}
QUIET = [  # chromium itself asks nobody for anything
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "msedge"]
PLACES = {
    "darwin": [
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    ],
    "win32": [r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe"],
}
WINDOWS_FOLDERS = ["PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"]


# ------------------------------------------------------------------ the browser


def find_browser() -> str | None:
    """Return the path of an installed chromium, Chrome or Edge, or None."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    places = [Path(place) for place in PLACES.get(sys.platform, [])]
    if sys.platform == "win32":
        folders = [Path(os.environ[name]) for name in WINDOWS_FOLDERS if name in os.environ]
        places = [folder / place for folder in folders for place in places]
    return next(iter([*found, *(str(place) for place in places if place.exists())]), None)


def do_without(reason: str) -> None:
    """Skip on a laptop, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; in CI the browser tests must run", pytrace=False)
    pytest.skip(reason)


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture(scope="module")
def browser():
    """One headless browser for each file: while it is open, its event loop runs in this thread and no other can."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  (a test extra)
    except ImportError:
        do_without("playwright is not installed (it is in the extra 'test')")
    path = find_browser()
    if path is None:
        do_without("no chromium, Chrome or Edge was found in PATH or in the usual places")
    with sync_playwright() as playwright:
        arguments = [*QUIET, *(["--no-sandbox"] if is_root() else [])]
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        yield chromium
        chromium.close()


def is_local(url: str) -> bool:
    """Say whether an address stays on this machine (`data:`, `blob:` and `file:` do)."""
    parts = urlsplit(url)
    return parts.scheme in {"data", "blob", "about", "file"} or parts.hostname in HERE


class Watch:
    """What the pages of one context asked of other machines, and what they logged as errors."""

    def __init__(self, context) -> None:
        self.away: list[str] = []
        self.errors: list[str] = []
        context.on("request", lambda request: self._note(request.url))
        context.on("page", self._follow)

    def _note(self, url: str) -> None:
        if not is_local(url):
            self.away.append(url)

    def _follow(self, page) -> None:
        page.on("websocket", lambda socket: self._note(socket.url))
        page.on("console", lambda entry: self.errors.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))


@pytest.fixture
def watched(browser):
    """A page of 1280 x 800 and its Watch."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    watch = Watch(context)
    yield context.new_page(), watch
    context.close()


@pytest.fixture
def page(watched):
    """A page that must ask no other machine and log no error."""
    page, watch = watched
    yield page
    assert watch.away == [], "the page asked other machines"
    assert watch.errors == [], "the page logged errors"


# ------------------------------------------------------------------ JupyterLab


class Lab:
    """A JupyterLab server of its own on a copy of a folder; settings, runtime files and workspaces are its own too."""

    PROBE = "/api/status"
    """what a server answers as soon as it is up"""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home, self.token = home / "notebooks", home, secrets.token_hex(16)
        shutil.copytree(folder, self.folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.set_theme("JupyterLab Light")
        self._configure("apputils-extension/notification", fetchNews="false", checkForUpdates=False)
        self._configure("notebook-extension/tracker", windowingMode="none")
        self._log = (ARTEFACTS / "jupyterlab.log").open("ab")
        self._server = subprocess.Popen(self._command(), env=self._environment(), stdout=self._log, stderr=self._log)

    def _configure(self, plugin: str, **settings: object) -> None:
        path = self.home / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding="utf-8")

    def _command(self) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": urlsplit(self.address).port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.folder,
            "IdentityProvider.token": self.token,
            "LabApp.extension_manager": "readonly",
            "LabApp.workspaces_dir": self.home / "workspaces",
            "LabApp.user_settings_dir": self.home / "settings",
        }
        flags = ["--no-browser", *(["--allow-root"] if is_root() else [])]
        return [sys.executable, "-m", "jupyterlab", *flags, *(f"--{name}={value}" for name, value in options.items())]

    def _environment(self) -> dict[str, str]:
        own = {f"JUPYTER_{kind}_DIR": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
        own |= {"IPYTHONDIR": str(self.home / "ipython"), "OMP_NUM_THREADS": "1"}
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        return os.environ | own | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def ask(self, path: str, method: str = "GET") -> bool:
        """Send one request to the server; False where it does not answer."""
        headers = {"Authorization": f"token {self.token}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.address + path, method=method, headers=headers)):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait(self, seconds: float = 40) -> None:
        """Wait until the server answers."""
        end = time.monotonic() + seconds
        while not self.ask(self.PROBE):
            assert self._server.poll() is None, f"the server ended; see {self._log.name}"
            assert time.monotonic() < end, f"the server did not answer in {seconds} s; see {self._log.name}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Shut the server and its kernels down; terminate the process that was started here if it does not listen."""
        self.ask("/api/shutdown", "POST")
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._log.close()

    # -------------------------------------------------------------- what a test does with it

    def set_theme(self, name: str) -> None:
        """Choose the theme for pages opened from now on: `JupyterLab Light`, `JupyterLab Dark`."""
        self._configure("apputils-extension/themes", theme=name)

    def open(self, page, notebook: str, alone: bool = False) -> None:
        """Open a notebook in an empty workspace (`alone`: without side panels) and wait until its kernel is ready."""
        mode, workspace = "doc" if alone else "lab", secrets.token_hex(4)
        page.goto(f"{self.address}/{mode}/workspaces/{workspace}/tree/{quote(notebook)}?token={self.token}")
        wait_until_idle(page)

    def run_all(self, page) -> None:
        """Run all cells by the menu and wait until each has its number."""
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_function(ALL_NUMBERED)
        wait_until_idle(page)

    def count_cells(self, page) -> int:
        """Return how many cells the open notebook has."""
        return page.locator(".jp-Notebook-cell").count()

    def screenshot(self, page, name: str, of: str) -> Path:
        """Keep a picture of the page among the test artefacts, scrolled to the element that `of` selects."""
        page.locator(of).first.evaluate("node => node.scrollIntoView({block: 'start'})")
        path = ARTEFACTS / f"{name}.png"
        page.screenshot(path=path)
        return path


class Voila(Lab):
    """Voilà in the place of JupyterLab."""

    PROBE = "/"

    def _command(self):
        port = urlsplit(self.address).port
        return [
            sys.executable,
            "-m",
            "voila",
            str(self.folder),
            "--no-browser",
            f"--port={port}",
            "--Voila.ip=127.0.0.1",
        ]

    def stop(self):
        self._server.terminate()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._log.close()


# the toolbar says idle before there is a kernel; the status bar tells which kernel is idle
IDLE = r"() => /\(ipykernel\) \| Idle/.test(document.querySelector('#jp-main-statusbar')?.innerText ?? '')"
ALL_NUMBERED = r"""() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(node => node.innerText.trim());
    return prompts.length > 0 && prompts.every(text => /^\[\d+\]:$/.test(text));
}"""


def wait_until_idle(page) -> None:
    """Wait until the status bar names an idle kernel."""
    page.wait_for_function(IDLE)


@pytest.fixture(scope="session")
def lab_at(tmp_path_factory):
    """Give a function: folder of notebooks -> running Lab (one for each folder, stopped at the end)."""
    labs: dict[Path, Lab] = {}
    ARTEFACTS.mkdir(exist_ok=True)

    def start(folder: Path) -> Lab:
        if folder not in labs:
            labs[folder] = Lab(folder, tmp_path_factory.mktemp(re.sub(r"\W+", "-", folder.name)))
            labs[folder].wait()
        return labs[folder]

    yield start
    for lab in labs.values():
        lab.stop()
