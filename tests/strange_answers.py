"""What people hand in as `split_heads(x, H)` besides answers: slips, loops, and code that reaches around itself.

Each stands with the status that a check must give, and words that its feedback must hold.
"""

import asyncio
import functools
import os
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
STRANGE: dict[str, tuple[Any, str, tuple[str, ...]]] = {}
ENDLESS: dict[str, Answer] = {}


def case(status: str, *words: str) -> Callable[[Answer], Answer]:
    def note(answer: Answer) -> Answer:
        STRANGE[answer.__name__] = answer, status, words
        return answer

    return note


def endless(answer: Answer) -> Answer:
    ENDLESS[answer.__name__] = answer
    return answer


def right(x: Tensor, H: int) -> Tensor:
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)


# ------------------------------------------------------------------ exceptions


@case(
    "error",
    "of inner: return q @ q",
    "called from line",
    "of nested: return inner(",
    "matmul failed",
    ".transpose(-2, -1)",
)
def nested(x: Tensor, H: int) -> Any:
    def inner(q: Tensor) -> Tensor:
        return q @ q

    return inner(right(x, H))


@case("error", "ZeroDivisionError", "of your code: return torch.stack")
def inside_a_comprehension(x: Tensor, H: int) -> Any:
    return torch.stack([x / (0 // 0) for _n in range(H)])


@case("error", "of wrong_call: return help(x, H)", "takes 1 positional argument but 2 were given")
def wrong_call(x: Tensor, H: int) -> Any:
    def help(a: Any) -> Any:
        return a

    return help(x, H)  # type: ignore[call-arg]


@case("error", "yours takes (x: ")
def too_few(x: Tensor) -> Any:
    return x


@case("error", "RecursionError: maximum recursion depth exceeded")
def recursive(x: Tensor, H: int) -> Any:
    return recursive(x, H)


@case("error", "NameError: name 'T' is not defined")
def unknown_name(x: Tensor, H: int) -> Any:
    return x.view(x.shape[0], T, H, -1)  # type: ignore[name-defined]  # noqa: F821


@case("error", "UnboundLocalError")
def assigned_later(x: Tensor, H: int) -> Any:
    y = y + x  # type: ignore[has-type]  # noqa: F821
    return y


@case("error", "SyntaxError: invalid syntax")
def bad_eval(x: Tensor, H: int) -> Any:
    return eval("x.view(") if H < 0 else eval("1 +* 2")


@case("error", "AssertionError: batch of 99?")
def asserts(x: Tensor, H: int) -> Any:
    assert x.shape[0] == 99, "batch of 99?"


@case("error", "SystemExit: bye")
def leaves(x: Tensor, H: int) -> Any:
    sys.exit("bye")


@case("error", "SystemExit")
def quits(x: Tensor, H: int) -> Any:
    quit()  # noqa: PLR1722


@case("error", "KeyboardInterrupt")
def interrupts(x: Tensor, H: int) -> Any:
    raise KeyboardInterrupt


@case("error", "GeneratorExit")
def generator_exit(x: Tensor, H: int) -> Any:
    raise GeneratorExit


@case("error", "BaseException: odd")
def base_exception(x: Tensor, H: int) -> Any:
    raise BaseException("odd")


@case("error", "ExceptionGroup: two")
def group(x: Tensor, H: int) -> Any:
    raise ExceptionGroup("two", [ValueError("a"), TypeError("b")])


@case("error", "CancelledError")
def cancelled(x: Tensor, H: int) -> Any:
    raise asyncio.CancelledError


@case("error", "ValueError: of another")
def from_another(x: Tensor, H: int) -> Any:
    try:
        return 1 / 0
    except ZeroDivisionError as error:
        raise ValueError("of another") from error


@case("error", "zzz…")
def long_message(x: Tensor, H: int) -> Any:
    raise ValueError("z" * 10_000)


@case("error", "StopIteration")
def stops(x: Tensor, H: int) -> Any:
    return next(iter(()))


@case("error", "a class: hand in an object of it")
class Splitter(torch.nn.Module):
    def forward(self, x: Tensor, H: int) -> Tensor:
        return right(x, H)


class _Wrong(torch.nn.Module):
    def forward(self, x: Tensor, H: int) -> Tensor:
        return x @ x


STRANGE["module"] = _Wrong(), "error", ("of forward: return x @ x", "C = ", "T = ")
STRANGE["lambda"] = (lambda x, H: x.no_such), "error", ("of your code", "no_such")
STRANGE["partial"] = functools.partial(lambda x, H, k: right(x, H) * k, k=1), "right", ()
STRANGE["a builtin"] = torch.add, "wrong", ("has the shape",)
STRANGE["a type"] = int, "error", ("class",)


# ------------------------------------------------------------------ odd results


@case("wrong", "gives back a generator", "Write `def` and `return`")
def generator(x: Tensor, H: int) -> Any:
    yield right(x, H)


@case("wrong", "gives back a coroutine", "Write `def` and `return`")
async def coroutine(x: Tensor, H: int) -> Any:
    return right(x, H)


@case("wrong", "gives back None", "`return`")
def returns_nothing(x: Tensor, H: int) -> Any:
    right(x, H)


@case("wrong", "2 values as tuple")
def two_values(x: Tensor, H: int) -> Any:
    return right(x, H), H


@case("wrong", "type ndarray")
def numpy_array(x: Tensor, H: int) -> Any:
    return right(x, H).numpy()


@case("wrong", "values as Size")
def only_the_shape(x: Tensor, H: int) -> Any:
    return right(x, H).shape


@case("wrong", "of type _Odd")
def an_object(x: Tensor, H: int) -> Any:
    return _Odd()


class _Odd:
    shape = property(lambda self: 1 / 0)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@case("right")
def a_subclass(x: Tensor, H: int) -> Any:
    return right(x, H).as_subclass(_Sub)


class _Sub(Tensor):
    pass


@case("error", "cannot be judged", "NestedTensor")
def nested_tensor(x: Tensor, H: int) -> Any:
    return torch.nested.nested_tensor([x[0], x[0]])


@case("wrong", "has the shape [1, 1, 3]")
def forgets_one_head(x: Tensor, H: int) -> Any:
    return right(x, H) if H > 1 else x


@case("right")
def with_gradient(x: Tensor, H: int) -> Any:
    return right(x.requires_grad_(), H) * 1


_BUFFER: dict[Any, Tensor] = {}


@case("right")
def one_buffer_for_all(x: Tensor, H: int) -> Any:
    made = _BUFFER.setdefault(right(x, H).shape, torch.zeros(right(x, H).shape))
    return made.copy_(right(x, H))


# ------------------------------------------------------------------ around the answer


@case("wrong", "changed its input x in place", "changed in place: x")
def in_place(x: Tensor, H: int) -> Any:
    x += 1
    return right(x - 1, H)


@case("wrong", "changed its input x in place")
def resized(x: Tensor, H: int) -> Any:
    made = right(x, H).clone()
    x.resize_(1)
    return made


@case("right", "and more", "line 11")
def prints_much(x: Tensor, H: int) -> Any:
    for line in range(5000):
        print("line", line)
    return right(x, H)


@case("wrong", "Your function printed:\nx is torch.Size", "<b>to stderr</b>")
def prints_little(x: Tensor, H: int) -> Any:
    print("x is", x.shape)
    print("<b>to stderr</b>", file=sys.stderr)
    return x


@case("right")
def seeds(x: Tensor, H: int) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    return right(x, H)


@case("right", "torch's default dtype")
def default_dtype(x: Tensor, H: int) -> Any:
    torch.set_default_dtype(torch.float64)
    return right(x, H)


@case("right", "torch's default device")
def default_device(x: Tensor, H: int) -> Any:
    torch.set_default_device("meta")
    return right(x, H)


@case("right", "the number of threads", "whether torch records gradients", "the folder")
def settings(x: Tensor, H: int) -> Any:
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    os.chdir("/")
    warnings.simplefilter("error")
    sys.setrecursionlimit(5000)
    return right(x, H)


@case("wrong", "has the shape", "torch.isclose", "Tensor.__eq__", "Tensor.clone")
def patches_torch(x: Tensor, H: int) -> Any:
    torch.isclose = lambda *args, **options: torch.tensor(True)  # type: ignore[assignment]
    torch.Tensor.__eq__ = lambda self, other: torch.tensor(True)  # type: ignore[assignment, method-assign]
    torch.Tensor.clone = lambda self: None  # type: ignore[assignment, method-assign, return-value]
    return x


@case("right", "builtins.len")
def patches_python(x: Tensor, H: int) -> Any:
    __builtins__["len"] = None  # type: ignore[index]
    return right(x, H)


# ------------------------------------------------------------------ code that does not end


@endless
def loop(x: Tensor, H: int) -> Any:
    while True:
        pass


@endless
def loop_in_a_helper(x: Tensor, H: int) -> Any:
    def search() -> int:
        i = 0
        while i < 10:
            x.sum()
        return i

    return search()


@endless
def catches_exceptions(x: Tensor, H: int) -> Any:
    while True:
        try:
            x @ x.mT
        except Exception:
            pass


@endless
def catches_all(x: Tensor, H: int) -> Any:
    while True:
        try:
            time.sleep(0.002)
        except BaseException:
            pass


@endless
def catches_bare(x: Tensor, H: int) -> Any:
    with torch.no_grad():
        while True:
            try:
                time.sleep(0.002)
            except:  # noqa: E722
                continue


@endless
def catches_twice(x: Tensor, H: int) -> Any:
    try:
        while True:
            try:
                time.sleep(0.002)
            except BaseException:
                pass
    except BaseException:
        pass
    while True:
        try:
            swallows()
        except BaseException:
            pass


def swallows() -> int:
    try:
        while True:
            time.sleep(0.002)
    finally:
        return 3  # noqa: B012


@endless
def suppresses(x: Tensor, H: int) -> Any:
    while True:
        with suppress(BaseException):
            time.sleep(0.002)


@endless
def sleeps(x: Tensor, H: int) -> Any:
    time.sleep(10_000)


@endless
def waits_for_a_lock(x: Tensor, H: int) -> Any:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@endless
def searches_text(x: Tensor, H: int) -> Any:
    return re.match(r"(a*)*b", "a" * 60)


@endless
def prints_for_ever(x: Tensor, H: int) -> Any:
    while True:
        print("still here")
