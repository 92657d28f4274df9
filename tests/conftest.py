"""What every test gets: one thread, no GPU, no network beyond this machine, golden files, a folder for artefacts."""

import os

# Before torch is imported, and handed on to every child process.
os.environ.update(
    OMP_NUM_THREADS="1",
    CUDA_VISIBLE_DEVICES="",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    JUPYTER_PLATFORM_DIRS="1",
    PYDEVD_DISABLE_FILE_VALIDATION="1",
)

import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

torch.set_num_threads(1)
hypothesis.settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
hypothesis.settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files anew instead of comparing with them")


class NetworkUsed(AssertionError):
    """A test tried to reach another machine."""


def is_local(address: Any) -> bool:
    """Tell whether a socket's address lies on this machine."""
    if not isinstance(address, tuple):  # the path of a Unix socket
        return True
    host = str(address[0]).partition("%")[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no socket of this process reach another machine."""

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: Any) -> Any:
            if not is_local(address):
                raise NetworkUsed(f"a test tried to connect to {address!r}")
            return original(self, address)

        return connect

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Begin with one thread and gradients on, whatever the test before did."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(True)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, as in a terminal and a kernel; a run in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return `golden(name, text)`: text must equal tests/golden/name; with --update it is written there."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        assert path.exists(), f"tests/golden/{name} is missing: run the test once with --update, and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), (
            f"differs from tests/golden/{name}; if meant, run with --update"
        )

    return compare


@pytest.fixture
def artefacts() -> Path:
    """Return the folder for what people should look at after a run: screenshots, pages. Not under version control."""
    folder = ROOT / "test-artefacts"
    folder.mkdir(exist_ok=True)
    return folder
