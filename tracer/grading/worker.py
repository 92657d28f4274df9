"""Runs one notebook's cells in the closed process, calls what they hand in, and sends what came out.

All that is here can be tampered with by the cells it runs, so nothing here judges. `check` records an answer; a
function is called at once on the inputs that came with the request, and its results leave as plain numbers. What is
right, and why, is not in this process.
"""

import ast
import asyncio
import builtins
import contextlib
import inspect
import json
import linecache
import os
import random
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from IPython.core.inputtransformer2 import TransformerManager

from .wire import HEAD, Reader, frame, write_tree

__all__ = ["Desk", "Lessons", "Sender", "exercises_of", "main", "run_notebook"]

LINES = 300  # characters of one sentence


class Sender:
    """Writes messages to the grader."""

    def __init__(self, handle: int, write: Callable[[int, bytes], int] = os.write) -> None:
        self.handle, self.write = handle, write

    def send(self, header: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send one message whole."""
        data = frame(header, buffers or [])
        while data:
            data = data[self.write(self.handle, data) :]


class TooLong(Exception):
    """A cell or an answer took longer than one of them may."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TooLong in what runs inside after some seconds; without alarms the grader's limit is the only one."""

    def stop(number: int, frame: Any) -> None:
        raise TooLong(f"stopped after {seconds:g} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------ what the cells see of tracer.lessons


class _Noted:
    """What `check` and its neighbours return here: a line of text."""

    def __init__(self, text: str) -> None:
        self.text = self.message = text
        self.status, self.mistake, self.notes = "not attempted", None, ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class _Listed(types.SimpleNamespace):
    """An exercise as a learner may see it: what is asked, not what is right."""

    text: str

    def __str__(self) -> str:
        return self.text


class Lessons(types.ModuleType):
    """Stands for `tracer.lessons`: `check` hands in, `exercises` lists what is asked, nothing else is there."""

    def __init__(self, check: Callable[[str, Any], object], catalogue: list[dict[str, Any]]) -> None:
        super().__init__("tracer.lessons")
        self.__path__: list[str] = []
        self.check = check
        self.exercises = lambda: tuple(_Listed(**facts) for facts in catalogue)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: _Noted("not while grading")


class _Shell:
    """Stands for `get_ipython()`: line magics and shell commands do nothing, some cell magics run their cell."""

    _RUN = frozenset({"time", "trace", "capture", "timeit", "prun"})

    def __init__(self, run: Callable[[str], None]) -> None:
        self._run = run

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run the cell of a magic that only looks on; skip one that means another language or a file."""
        if name in self._RUN:
            self._run(cell)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


# ------------------------------------------------------------------ answers


@dataclass
class Desk:
    """Takes answers and sends them on, as they stand when `check` is called."""

    sender: Sender
    exercises: dict[str, Any]  # id -> {"kind": ..., "names": [...], "cases": [(arguments, buffers), ...]}
    seconds: float

    def check(self, id: str, answer: Any = None) -> _Noted:
        """Record one answer; the last that is no placeholder counts."""
        if answer is NotImplementedError or isinstance(answer, NotImplementedError):
            answer = None  # a placeholder too
        if isinstance(id, str) and id in self.exercises:
            exercise = self.exercises[id]
            handed = self._function(exercise, answer) if exercise["kind"] == "function" else self._plain(answer)
            self.sender.send({"event": "answer", "id": id, **handed[0]}, handed[1])
        return _Noted("handed in")

    def _plain(self, answer: Any) -> tuple[dict[str, Any], list[bytes]]:
        buffers: list[bytes] = []
        return {"value": write_tree(answer, buffers)}, buffers

    def _function(self, exercise: dict[str, Any], answer: Any) -> tuple[dict[str, Any], list[bytes]]:
        if not callable(answer):
            return self._plain(answer)
        problem = _signature_problem(answer, exercise["names"])
        if problem is not None:
            return {"signature": problem}, []
        buffers: list[bytes] = []
        calls: list[dict[str, Any]] = []
        for case in exercise["cases"]:
            late = bool(calls) and calls[-1].get("trouble", {}).get("type") == TooLong.__name__
            one = calls[-1] if late else self._call(answer, case, exercise["gradients"], buffers)
            calls.append(one)  # a loop without end runs once
        return {"calls": calls, "hollow": _is_hollow(answer), "placeholder": _has_placeholder(answer)}, buffers

    def _call(
        self, answer: Callable[..., Any], case: tuple[Any, bytes], gradients: bool, buffers: list[bytes]
    ) -> dict[str, Any]:
        tree, body = case
        args = Reader(body, functions=True).value(tree)
        mine: list[bytes] = []
        try:
            with _at_most(self.seconds):
                value = answer(*args)
                told = {"value": write_tree(value, mine), "args": write_tree(tuple(args), mine)}
                if gradients:
                    told["gradients"] = write_tree(_gradients(answer, Reader(body, functions=True).value(tree)), mine)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return {"trouble": _trouble(error)}
        buffers += mine
        return told


def _gradients(answer: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    """Return the gradients of a result's sum of squares; none for an answer outside autograd."""
    floats = [arg.requires_grad_() for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point()]
    with contextlib.suppress(Exception), torch.enable_grad():  # the result alone has come out well
        value = answer(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return list(torch.autograd.grad(value.square().sum(), floats, allow_unused=True))
    return []


def _signature_problem(answer: Callable[..., Any], names: list[str]) -> str | None:
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):
        return None
    try:
        signature.bind(*names)
    except TypeError:
        return str(signature)[:LINES]
    return None


def _is_hollow(answer: Any) -> bool:
    """Whether a function's body holds no more than `...`, `pass` or a docstring."""
    code = getattr(answer, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    rest = [one for one in code.co_consts if one is not None and one is not ... and one != answer.__doc__]
    return not rest and not code.co_names and not code.co_freevars and len(code.co_varnames) <= code.co_argcount


def _has_placeholder(answer: Any) -> bool:
    try:
        return any(line.strip() == "..." for line in inspect.getsource(answer).splitlines())
    except (OSError, TypeError, SyntaxError, ValueError):
        return False


def _trouble(error: BaseException) -> dict[str, Any]:
    """Return an exception as texts: its type, its first line, the innermost line of the notebook it came from."""
    frames = traceback.extract_tb(error.__traceback__, limit=-200)
    theirs = next((one for one in reversed(frames) if one.filename.startswith("<cell ")), None)
    name = "" if theirs is None else theirs.name if theirs.name.isidentifier() else theirs.filename[1:-1]
    try:
        text = str(error).strip().split("\n")[0]
    except Exception:  # an exception class of the notebook's own with a broken __str__
        text = ""
    notes = getattr(error, "__notes__", None)
    texts = [note[:2000] for note in notes[:3] if isinstance(note, str)] if isinstance(notes, list) else []
    ours = theirs is not None and frames[-1] is theirs  # raised in the notebook, not by a missing kernel in torch
    return {
        "type": type(error).__name__[:60],
        "text": text[:LINES],
        "name": name[:60],
        "line": 0 if theirs is None else theirs.lineno,
        "code": ((theirs.line or "") if theirs is not None else "")[:LINES],
        "unfinished": type(error) is NotImplementedError and ours,
        "notes": texts,
    }


# ------------------------------------------------------------------ cells


def _run_cell(source: str, name: str, space: dict[str, Any]) -> None:
    """Run one cell's Python, with `await` at its top level as notebooks have it."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, space))
    else:
        exec(code, space)


def run_notebook(request: dict[str, Any], body: bytes, handle: int) -> None:
    """Run the cells of a request in order and send what they hand in; a cell that fails does not end the run.

    `request` has the cells' sources, the exercises with their inputs (`body` holds the numbers), and the seconds that
    one cell or one call may take. `handle` is the file descriptor to write to.
    """
    sender = Sender(handle)
    desk = Desk(sender, exercises_of(request["exercises"], body), request["seconds"])
    lessons = Lessons(desk.check, request["catalogue"])
    sys.modules["tracer.lessons"] = lessons
    sys.modules["tracer"].lessons = lessons  # type: ignore[attr-defined]
    _begin()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    space = vars(main)
    transform = TransformerManager().transform_cell  # type: ignore[no-untyped-call]
    space["get_ipython"] = lambda: _Shell(lambda cell: _run_cell(transform(cell), "<cell magic>", space))
    space["display"] = lambda *things, **options: None
    sender.send({"event": "begun"})
    for number, source in enumerate(request["cells"], 1):
        try:
            with _at_most(request["seconds"]):
                _run_cell(transform(source), f"<cell {number}>", space)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            sender.send({"event": "failed", "cell": number, "trouble": _trouble(error)})
    sender.send({"event": "end"})


def exercises_of(given: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Cut the request's buffer into the cases of its exercises."""
    place, found = 0, {}
    for id, exercise in given.items():
        cases = []
        for tree, size in exercise["cases"]:
            cases.append((tree, body[place : place + size]))
            place += size
        found[id] = exercise | {"cases": cases}
    return found


def _begin() -> None:
    """Begin as a fresh kernel does: the same random numbers for all, gradients on, nobody to ask."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_grad_enabled(True)

    def nobody(prompt: object = "") -> str:
        raise EOFError("nobody is there to answer while grading")

    builtins.input = nobody


def main() -> None:
    """Run the request in the file that is named on the command line, without walls; results go to standard output."""
    data = Path(sys.argv[1]).read_bytes()
    head, _body = HEAD.unpack_from(data)
    handle = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    run_notebook(json.loads(data[HEAD.size : HEAD.size + head]), data[HEAD.size + head :], handle)
    os._exit(0)


if __name__ == "__main__":
    main()
