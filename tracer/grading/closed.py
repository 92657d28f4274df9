"""The grader's side of the closed process: starts it, bounds it, reads what it says. Nothing here believes it.

Output is read up to a cap, until the process ends or its time is over. What it sends are `Heard` records: data that
`marking` judges.
"""

import contextlib
import itertools
import json
import os
import secrets
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import TracerError
from ..speech import _
from .walls import WAYS, Room
from .wire import GOODBYE, Frames, TooMuch, WireError, frame

__all__ = ["Apart", "Bounds", "Ending", "Heard", "NotIsolated", "Nursery", "Unwalled"]

Ending = Literal["ran", "time-out", "crashed", "too much output", "garbled output", "not started"]
PACKAGE = Path(__file__).resolve().parent.parent
KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "TZ")  # of the environment, for the process that loads the libraries
START = 120  # seconds in which the libraries must be loaded


class NotIsolated(TracerError, RuntimeError):
    """This system cannot wall off what students hand in; the sentence says what is missing."""


@dataclass(frozen=True)
class Bounds:
    """What one notebook may use: seconds by the clock, seconds of CPU, MiB of memory, MiB of files."""

    seconds: float = 120
    memory: int = 2048
    disk: int = 64

    @property
    def one(self) -> float:
        """Seconds that one cell or one call may take before it is interrupted."""
        return self.seconds / 3


@dataclass
class Heard:
    """What came out of one notebook: how it ended, in a word and in detail; its messages, each with raw bytes."""

    ending: Ending
    detail: str = ""
    messages: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)


def _environment() -> dict[str, str]:
    """Return the environment of the process that loads the libraries: nothing of the grader's but where things lie."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return kept | {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *(path for path in sys.path if _is_library(path))]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
    }


def _is_library(path: str) -> bool:
    return Path(path).name in {"site-packages", "dist-packages"} and os.path.isdir(path)


# ------------------------------------------------------------------ reading what comes


def _listen(result: int, status: int, until: float, heard: Heard, stopped: threading.Event) -> bytes:
    """Read messages from one pipe and the watcher's last word from another until both end, or time is up."""
    frames, word = Frames(), b""
    with selectors.DefaultSelector() as selector:
        for handle in (result, status):
            selector.register(handle, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0 or stopped.is_set():
                heard.ending = "time-out"
                return word
            for key, _events in selector.select(min(left, 0.5)):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                elif key.fd == result:
                    heard.messages += frames.feed(data)
                else:
                    word = (word + data)[:4096]
    return word


def _broken(error: WireError) -> Ending:
    return "too much output" if isinstance(error, TooMuch) else "garbled output"


def _conclude(heard: Heard, code: int | None, full: bool = False) -> None:
    """Say how a run ended, unless that is known."""
    if heard.ending != "ran":
        return
    first, last = (heard.messages[place][0] if heard.messages else {} for place in (0, -1))
    if first.get("event") in {None, "unready"}:  # what is handed in runs only after "begun"
        heard.ending, heard.detail = "not started", str(first.get("open", ""))
    elif full:
        heard.ending, heard.detail = "crashed", _("its files are larger than they may be")
    elif last.get("event") != "end" or code != 0:
        said = (
            _("the process ended with code {code}") if (code or 0) >= 0 else _("the process was ended by signal {code}")
        )
        heard.ending, heard.detail = "crashed", said.format(code=abs(code or 0))


# ------------------------------------------------------------------ walled off


class Nursery:
    """Runs notebooks behind walls, from any thread; one clean process that has loaded the libraries forks them.

    Use it as a context: at its end every process and every folder it made is gone. `ways` are the walls to try, the
    first that holds is taken; raises NotIsolated where none does.
    """

    def __init__(self, ways: Sequence[str] = WAYS) -> None:
        self.ways, self.way = ways, ""

    def __enter__(self) -> "Nursery":
        if sys.platform != "linux":
            raise NotIsolated(
                _("Notebooks can be walled off on Linux only, and this system is {system}.").format(system=sys.platform)
            )
        self._home = tempfile.mkdtemp(prefix="shape-tracer-")
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-m", f"{__package__}.zygote", self._home]
        with theirs, open(os.path.join(self._home, "said"), "wb") as said:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=said,
                stderr=said,
                env=_environment(),
                cwd="/",
                start_new_session=True,
            )
        try:
            self._readable, self._hidden = self._greeting()
            self._choose()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _greeting(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Wait until the libraries are loaded; return the paths that may be read, and those below that may not."""
        self._control.settimeout(START)
        data = b""
        while not data.endswith(b"\n"):
            try:
                piece = self._control.recv(1 << 16)
            except OSError:  # it is late, or gone
                piece = b""
            if not piece:
                said = Path(self._home, "said").read_text(encoding="utf-8", errors="replace").strip()
                text = _("The process that is to run notebooks did not start: {reason}")
                raise NotIsolated(text.format(reason=said.split("\n")[-1][-300:]))
            data += piece
        self._control.settimeout(None)
        readable, hidden = json.loads(data)
        return tuple(readable), tuple(hidden)

    def _choose(self) -> None:
        """Take the first walls that hold here."""
        reasons = []
        for way in self.ways:
            self.way = way
            reason = self.holds()
            if not reason:
                return
            reasons.append(f"{way}: {reason}")
        text = _("This system cannot wall off what students hand in ({reasons}).")
        raise NotIsolated(text.format(reasons="; ".join(reasons)))

    def holds(self) -> str:
        """Return which wall does not hold here, in English, or an empty text; nothing handed in runs."""
        request = {"probe": True, "outside": os.getpid(), "cells": [], "exercises": {}}
        heard = self.run(request, [], Bounds(seconds=30))
        return str(heard.messages[0][0].get("open")) if heard.messages else heard.detail or heard.ending

    def stop(self) -> None:
        """End all that runs now, soon; what `run` returns then means nothing."""
        self._stopped.set()

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            self._control.sendall(GOODBYE)
        self._control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, request: Mapping[str, Any], buffers: Sequence[bytes], bounds: Bounds) -> Heard:
        """Run one request and return what was heard; the process and its folder are gone afterwards."""
        heard = Heard("ran")
        try:
            scratch = tempfile.mkdtemp(dir=self._home)
        except OSError as error:
            return Heard("not started", str(error))
        room = Room(self._readable, self._hidden, scratch, bounds.memory, int(bounds.seconds) + 1, bounds.disk)
        try:
            with tempfile.TemporaryFile() as file:
                file.write(frame({**request, "room": asdict(room)}, list(buffers)))
                file.flush()
                self._run(file.fileno(), time.monotonic() + bounds.seconds, heard)
        except OSError as error:  # no room for the request, or the process that forks is gone: not the notebook's doing
            return Heard("not started", str(error))
        finally:
            _remove(scratch)
        return heard

    def _run(self, request: int, until: float, heard: Heard) -> None:
        with _Pipe() as result, _Pipe() as status, _Pipe() as life:
            with self._lock:
                handles = [request, result.write, life.read, status.write]
                socket.send_fds(self._control, [bytes([WAYS.index(self.way)])], handles)
            result.close(result.write)
            status.close(status.write)
            life.close(life.read)
            told: dict[str, Any] = {}
            try:
                told = json.loads(_listen(result.read, status.read, until, heard, self._stopped) or b"{}")
            except WireError as error:
                heard.ending, heard.detail = _broken(error), str(error)
            life.close(life.write)  # whatever happened: the watcher ends the process now
            while os.read(status.read, 4096):  # and is gone itself when its end is closed; no notebook holds that
                pass
        _conclude(heard, told.get("code"), told.get("full", False))


def _remove(folder: str) -> None:
    """Remove a scratch folder, also where folders in it cannot be listed, or lie deeper than Python goes."""
    names = (f"{secrets.token_hex(8)}{number}" for number in itertools.count())
    with contextlib.suppress(OSError):
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in list(os.scandir(entry.path)):  # what lies deeper is moved up
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, 0o700)
                    os.rename(inner.path, os.path.join(folder, next(names)))
                os.rmdir(entry.path)
        os.rmdir(folder)


class _Pipe:
    """A pipe whose ends are closed once each, at the latest where the `with` ends."""

    def __enter__(self) -> "_Pipe":
        self.read, self.write = os.pipe()
        self._open = {self.read, self.write}
        return self

    def close(self, handle: int) -> None:
        """Close one end."""
        self._open.discard(handle)
        os.close(handle)

    def __exit__(self, *_error: object) -> None:
        for handle in tuple(self._open):
            self.close(handle)


# ------------------------------------------------------------------ without walls


class Unwalled:
    """Runs notebooks in processes of their own, without walls: for systems without them, when the teacher says so."""

    way = "none"

    def __enter__(self) -> "Unwalled":
        return self

    def stop(self) -> None:
        """Nothing: each run ends with its time."""

    def __exit__(self, *_error: object) -> None:
        return None

    def run(self, request: Mapping[str, Any], buffers: Sequence[bytes], bounds: Bounds) -> Heard:
        """Run one request and return what was heard; time and output are bounded, nothing else is."""
        heard = Heard("ran")
        with tempfile.TemporaryDirectory(prefix="shape-tracer-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "request")
            path.write_bytes(frame(dict(request), list(buffers)))
            command = [sys.executable, "-m", f"{__package__}.worker", str(path)]
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=os.environ | _environment(), cwd=folder,
            ) as process:  # fmt: skip
                begun = threading.Event()
                reader = threading.Thread(target=_read_all, args=(process, heard, begun), daemon=True)
                reader.start()
                begun.wait(START)
                reader.join(bounds.seconds)
                if reader.is_alive():
                    heard.ending = "time-out"
                process.kill()
        _conclude(heard, process.returncode)
        return heard


def _read_all(process: "subprocess.Popen[bytes]", heard: Heard, begun: threading.Event) -> None:
    """Read messages until the output ends, or is too much; set `begun` at the first."""
    frames = Frames()
    assert process.stdout is not None, "standard output is a pipe"
    with contextlib.suppress(ValueError):  # closed at the time-out
        while data := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            try:
                heard.messages += frames.feed(data)
            except WireError as error:
                heard.ending, heard.detail = _broken(error), str(error)
                return
            finally:
                begun.set()
    begun.set()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


Apart = Nursery | Unwalled
