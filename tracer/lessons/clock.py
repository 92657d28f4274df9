"""A time limit on a learner's code, which ends the code and keeps the kernel.

In the main thread of a Unix system a timer's signal raises in the running code; elsewhere another thread asks the
interpreter to raise. On Unix code that catches everything is stopped too: see `_Watch`. What cannot be stopped is one
call into C that neither returns nor looks for signals, such as `sum(itertools.count())` or a product of huge
matrices: Python runs no line before it returns. Then the kernel has to be restarted.
"""

import ctypes
import dis
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeVar

from .frames import Place, is_theirs, place

__all__ = ["OutOfTime", "in_time"]

NEVER = sys.maxsize
AGAIN = 0.2  # seconds until code that caught the exception is stopped once more

Result = TypeVar("Result")


class OutOfTime(BaseException):
    """The time is over. No `Exception`: most code that catches things lets it pass."""


class _Watch:
    """Ends one call of `work` once its time is over. `where` is the learner's line that was running then, if one was.

    A ring raises OutOfTime in the running code. Where that was caught, the code is traced from then on: OutOfTime is
    raised at an instruction that no `except` protects in any of the learner's functions that are running, or, if
    there is none between two rings, at one that the fewest protect.
    """

    def __init__(self) -> None:
        self.over, self.rings, self.now, self.least = False, 0, False, NEVER
        self.where: Place | None = None

    def ring(self, frame: FrameType | None) -> None:
        """Do what the class says, in the code that runs `frame`."""
        if self.over:
            return
        self.rings += 1
        callers = list(_callers(frame))
        theirs = [caller for caller in callers if is_theirs(caller.f_code.co_filename)]
        self.where = self.where or _line(frame)
        self.now = self.rings % 2 == 1
        if theirs and not self.now:
            self._trace(theirs)
        elif not any(caller.f_code is _Watch._step.__code__ for caller in callers):
            raise OutOfTime  # in `_step` it would end the tracing: there `now` does it

    def _trace(self, theirs: list[FrameType]) -> None:
        for frame in theirs:
            frame.f_trace, frame.f_trace_opcodes = self._step, True
        self.least = NEVER
        sys.settrace(self._step)

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.over or not is_theirs(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        theirs = [caller for caller in _callers(frame) if is_theirs(caller.f_code.co_filename)]
        strict = self.rings % 4 > 1
        guards = sum(_guards(caller.f_code, caller.f_lasti, strict) for caller in theirs)
        self.least = min(self.least, guards)
        if event in ("line", "opcode") and (not guards or (self.now and guards == self.least)):
            self.now = False
            sys.setprofile(self._go_on)  # raising ends the tracing: begin anew where this function is left
            raise OutOfTime
        return self._step

    def _go_on(self, frame: FrameType, event: str, arg: Any) -> None:
        sys.setprofile(None)
        if not self.over:
            self._trace([caller for caller in _callers(frame) if is_theirs(caller.f_code.co_filename)])


def _line(frame: FrameType | None) -> Place | None:
    """Return the innermost of the learner's lines that are running."""
    theirs = (caller for caller in _callers(frame) if is_theirs(caller.f_code.co_filename))
    return next((place(caller.f_code, caller.f_lineno) for caller in theirs), None)


def in_time(seconds: float, work: Callable[[], Result], late: Callable[[Place | None], Result]) -> Result:
    """Return `work()`, or `late(line)` when it was not ready in time; `line` is the learner's line that was running."""
    watch, tracing, profiling = _Watch(), sys.gettrace(), sys.getprofile()
    alarm = _by_signal if _signals_work() else _by_thread
    try:
        with alarm(seconds, watch):
            try:
                return work()
            finally:
                watch.over = True
    except OutOfTime:
        return late(watch.where)
    finally:
        if sys.gettrace() is not tracing:
            sys.settrace(tracing)
        if sys.getprofile() is not profiling:
            sys.setprofile(profiling)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not in_time.__code__:
        yield frame
        frame = frame.f_back


# ------------------------------------------------------------------ two ways to be woken


def _signals_work() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def _by_signal(seconds: float, watch: _Watch) -> Iterator[None]:
    """Ring by a timer of the system; a timer that someone else has set goes on afterwards."""
    before = signal.signal(signal.SIGALRM, lambda _number, frame: watch.ring(frame))
    began = time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - began)), again)


@contextmanager
def _by_thread(seconds: float, watch: _Watch) -> Iterator[None]:
    """Ring from another thread: the interpreter raises here between two steps of Python.

    A loop that catches BaseException around nearly all it does goes on: there is no tracing from another thread.
    """
    ident, done, lock = threading.get_ident(), threading.Event(), threading.Lock()
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def wait() -> None:
        pause = seconds
        while not done.wait(pause):
            pause = AGAIN
            with lock:
                if not watch.over:
                    watch.where = watch.where or _line(sys._current_frames().get(ident))
                    throw(ctypes.c_ulong(ident), ctypes.py_object(OutOfTime))

    threading.Thread(target=wait, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            watch.over = True
        done.set()
        throw(ctypes.c_ulong(ident), None)  # one that has not come yet


# ------------------------------------------------------------------ what protects an instruction


def _guards(code: CodeType, at: int, strict: bool) -> int:
    """Return how many handlers of the same function an exception raised at this instruction may be held up by.

    An `except` holds it. `with` and `finally` usually go on raising; `strict` counts them too.
    """
    table, catching, passing = _handlers(code)
    seen: list[int] = []
    while True:
        target = next((to for start, end, to in table if start <= at < end), None)
        if target is None or target in seen:
            break
        seen.append(target)
        at = target
    return len(catching.intersection(seen)) + strict * len(passing.intersection(seen))


@lru_cache(maxsize=256)
def _handlers(code: CodeType) -> tuple[list[tuple[int, int, int]], set[int], set[int]]:
    """Return the protected ranges with the places they lead to, those of an `except`, and those of another kind."""
    listing = dis.Bytecode(code)
    entries: Any = getattr(listing, "exception_entries", ())
    table = [(entry.start, entry.end, entry.target) for entry in entries]
    steps = list(listing)
    number = {step.offset: place for place, step in enumerate(steps)}
    written = {to for _start, _end, to in table if steps[number[to]].opname == "PUSH_EXC_INFO"}
    catching = {target for target in written if _is_except(steps[number[target] + 1 :])}
    return table, catching, written - catching


def _is_except(steps: list[dis.Instruction]) -> bool:
    """Whether a handler is that of an `except`: it asks for a type, or drops what was raised."""
    for step in steps:
        if step.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            return True
        if step.opname in ("RERAISE", "POP_EXCEPT", "WITH_EXCEPT_START"):
            break
    return steps[0].opname == "POP_TOP"
