"""A clean process that has loaded what notebooks import; it forks a closed child for each, and runs none itself.

Forking takes a hundredth of the time that loading torch takes. Each request comes with four file descriptors: the
request, where results go, a pipe whose closing ends the child (the grader holds its other end, so when the grader dies
so do the children), and where the end is reported. Between the two stands a watcher, which no notebook reaches.
"""

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from typing import Any

import einops
import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
import tqdm.auto

from .. import classroom, engine, explorer, models
from .walls import WAYS, Room, enter, prepare, tried
from .wire import GOODBYE, HEAD, frame
from .worker import run_notebook

__all__ = ["LOADED", "main", "readable", "serve"]

LOADED = (classroom, einops, engine, explorer, ipywidgets, models, np, plt, torch, tqdm.auto)
PACKAGE = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/share/fonts", "/usr/share/zoneinfo")
SINGLE = ("/etc/localtime", "/etc/ld.so.cache", "/etc/fonts")
FILES = 4096  # in a scratch folder


# ------------------------------------------------------------------ what a child may read


def readable() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that a notebook may read, Python's libraries and this package, and those below that it may not.

    A checkout around the package is not among them: its tests and its history hold answers.
    """
    prefixes = {os.path.realpath(one) for one in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    paths = [os.path.realpath(path) for path in (*sys.path, *sysconfig.get_paths().values()) if os.path.isdir(path)]
    libraries = [path for path in paths if _is_library(path, prefixes)]
    kept = {*libraries, *SYSTEM, *SINGLE, *_loaded(), str(PACKAGE)}
    copies = {str(PACKAGE), *(os.path.join(path, PACKAGE.name) for path in paths)}
    hidden = {os.path.join(copy, part) for copy in copies for part in ("lessons", "grading")}
    return tuple(path for path in kept if os.path.exists(path)), tuple(sorted(filter(os.path.isdir, hidden)))


def _is_library(path: str, prefixes: set[str]) -> bool:
    within = any(path.startswith(one + os.sep) for one in prefixes)
    own = Path(path) in PACKAGE.parents and Path(path).name not in {"site-packages", "dist-packages"}
    return not own and (within or Path(path).name in {"site-packages", "dist-packages"})


def _loaded() -> set[str]:
    """Return the files that are mapped into this process: shared libraries outside the usual folders."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    names = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return {name for name in names if name.startswith("/") and ".so" in name and os.path.isfile(name)}


# ------------------------------------------------------------------ one notebook


def _read_request(handle: int) -> tuple[dict[str, Any], bytes]:
    with open(handle, "rb") as file:
        file.seek(0)
        head, body = HEAD.unpack(file.read(HEAD.size))
        return json.loads(file.read(head)), file.read(body)


def _child(way: str, handles: tuple[int, int]) -> None:
    """Close everything, put up the walls, run; never returns."""
    request_handle, result = handles
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for standard in (1, 2):
            os.dup2(0, standard)
        kept = sorted((request_handle, result))
        for low, high in zip((2, *kept), (*kept, 1 << 16), strict=True):
            os.closerange(low + 1, high)
        request, body = _read_request(request_handle)
        room = Room(**request["room"])
        enter(way, room)
        _settle(os.getcwd())
        if request.get("probe"):
            text = tried(room, request["outside"])
            os.write(result, frame({"event": "tried", "open": text}, []))
        else:
            run_notebook(request, body, result)
        os._exit(0)
    except BaseException as error:
        with contextlib.suppress(OSError):
            line = traceback.format_exception_only(error)[-1].strip()
            os.write(result, frame({"event": "unready", "open": line[:300]}, []))
        os._exit(70)


def _settle(home: str) -> None:
    os.environ.update(HOME=home, TMPDIR=home, MPLCONFIGDIR=home)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)


def _watch(way: str, handles: list[int]) -> None:
    """Fork the child and wait: for its end, for the grader to let go, or for too much in its scratch folder."""
    request, result, life, status = handles
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    room = Room(**_read_request(os.dup(request))[0]["room"])
    prepare(way)
    pid = os.fork()
    if pid == 0:
        _child(way, (request, result))
    os.close(result)
    os.close(request)
    full, begun, ended = False, time.monotonic(), (0, 0)
    try:
        while not full and (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            pause = 0.01 if time.monotonic() - begun < 1 else 0.05
            if select.select([life], [], [], pause)[0]:  # the grader let go, or is gone
                break
            full = way == "landlock" and _holds_more(room)
    finally:
        if ended[0] == 0:
            os.kill(pid, signal.SIGKILL)
            ended = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        os.write(status, json.dumps({"code": os.waitstatus_to_exitcode(ended[1]), "full": full}).encode())
    os._exit(0)


def _holds_more(room: Room) -> bool:
    """Whether a scratch folder that lies on the disk holds more than it may: bytes, files, or too deep to look into."""
    total, count, folders = 0, 0, [room.scratch]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return True
            continue
        for entry in entries:
            with contextlib.suppress(OSError):  # gone in the meantime
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
        count += len(entries)
        if count > FILES or total > room.disk << 20:
            return True
    return False


# ------------------------------------------------------------------ serving


def serve(control: socket.socket) -> bool:
    """Fork a watcher and its child for each request, where one byte says which way; return whether the end was told."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the grader's
    while True:
        data, handles, _flags, _address = socket.recv_fds(control, 1, 4)
        if not data or data == GOODBYE:
            return bool(data)
        if os.fork() == 0:
            control.close()
            try:
                _watch(WAYS[data[0]], handles)
            except BaseException as error:  # such as no namespaces: say so where the child would have
                with contextlib.suppress(OSError):
                    line = traceback.format_exception_only(error)[-1].strip()
                    os.write(handles[1], frame({"event": "unready", "open": line[:300]}, []))
            finally:
                os._exit(71)
        for handle in handles:
            os.close(handle)


def main() -> None:
    """Serve on the socket that standard input is; remove the folder on the command line if the grader was killed."""
    with socket.socket(fileno=os.dup(0)) as control:
        control.sendall(json.dumps(readable()).encode() + b"\n")
        told = serve(control)
    if not told:
        time.sleep(0.5)  # watchers see it within a twentieth of a second
        shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
