"""The tensors of one run as facts: numbers, shapes, strides and shared storage, and no tensor kept alive.

A tensor is known by `id` together with a weak reference, since ids are used again. Storage addresses are used again
too: they are compared only between tensors that are alive at that moment.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any
from weakref import ref as weak

import torch
from torch import Tensor, nn

from .records import Log, Memory, Ref

__all__ = ["PLAIN", "DisableTorchFunction", "Entry", "Ledger", "Made"]

PLAIN = frozenset((Tensor, nn.Parameter))
"""Types that can be asked at once; others go the careful way."""

DisableTorchFunction = torch._C.DisableTorchFunction
"""Inside it, no mode and no subclass sees what is asked of a tensor."""

Entry = tuple["weak[Tensor]", Ref, int | None, int | None]
"""What is known of a live tensor: its latest fact, and the address and the number of its storage at that fact."""

Made = tuple[tuple[Ref, ...], tuple[Memory | None, ...]]
"""The outputs of an operation, and how each came to its memory."""

_KEPT_ELEMENTS = 64
_REFS = Ref._pool
_NEW: tuple[Memory] = ("new",)
_VIEW: tuple[Memory] = ("view",)
_UNKNOWN = (None,)
_lock = RLock()


class Ledger:
    """Facts about every tensor that a run met or made."""

    def __init__(self, log: Log, keep_values: bool, introduce: Callable[[Tensor, int], None]) -> None:
        """`introduce` is told of each tensor that the run did not make, with the number of its first fact."""
        self.facts, self.values = log.facts, log.values
        self.keep_values, self.introduce = keep_values, introduce
        self.known: dict[int, Entry] = {}
        self.outside: dict[int, tuple[weak[Tensor], int]] = {}
        """storage address -> a tensor from outside the run, and its storage's number"""

    def close(self) -> None:
        """Forget the tensors, and whom to tell of them (a cycle that only the garbage collector would find)."""
        self.known.clear()
        self.outside.clear()
        self.introduce = lambda t, fact: None

    def find(self, t: Tensor) -> Ref | None:
        """Return the latest fact of a tensor, or None if the run has not met it."""
        entry = self.known.get(id(t))
        return entry[1] if entry is not None and entry[0]() is t else None

    def ref(self, t: Tensor) -> Ref:
        """Return the latest fact of a tensor; one that the run did not make gets its first."""
        return self.entry(t)[1]

    def entry(self, t: Tensor) -> Entry:
        """Return what is known of a tensor; one that the run did not make gets its first fact."""
        entry = self.known.get(id(t))
        if entry is None or entry[0]() is not t:
            self.introduce(t, self.first(t))
            entry = self.known[id(t)]
        return entry

    def first(self, t: Tensor) -> int:
        """Write down a tensor that the run did not make; return the number of its first fact."""
        live, number = weak(t), len(self.facts)
        try:
            if type(t) not in PLAIN:
                raise TypeError
            shape, stride, offset, address = t.shape, t.stride(), t.storage_offset(), t.untyped_storage()._cdata
            dtype, device = t.dtype, t.device
        except Exception:  # vmap, sparse and nested tensors raise when asked, with several types
            shape, stride, offset, address, dtype, device = _ask(t)
        storage: int | None = None if address is None else number
        if address in self.outside:
            other, owner = self.outside[address]
            if _address(other()) == address:
                storage = owner
        if storage == number:
            self.outside[address] = live, number
        self.facts.append((number, shape, stride, offset, storage, dtype, device))
        self.known[id(t)] = live, _ref(number), address, storage
        if self.keep_values:
            self._keep(t, number)
        return number

    def meet(
        self, held: Mapping[str, Any], kind: str, dot: str, sources: dict[int, tuple[str, str]]
    ) -> list[tuple[Tensor, int]]:
        """Write down the tensors that a module holds before any code of it runs; return those that are new here.

        Does what `first` does in one go for all: a call for each would cost as much as what it asks.
        """
        known, facts, outside, met = self.known, self.facts, self.outside, []
        for name, t in held.items():
            if type(t) not in PLAIN or id(t) in known:  # all others are met when they are used
                continue
            number = len(facts)
            sources[number] = kind, dot + name
            met.append((t, number))
            try:
                address = t.untyped_storage()._cdata
                plain = address not in outside and not self.keep_values
                if plain:
                    facts.append((number, t.shape, t.stride(), t.storage_offset(), number, t.dtype, t.device))
            except Exception:
                plain = False
            if plain:
                live = weak(t)
                outside[address] = live, number
                known[id(t)] = live, _ref(number), address, number
            else:
                self.first(t)
        return met

    def output(self, out: Tensor, inputs: Sequence[Entry], writes: bool) -> Made:
        """Write down the one tensor that an operation gave; `inputs` are its own."""
        known, facts = self.known, self.facts
        memory: tuple[Memory | None] = _NEW
        entry = known.get(id(out))
        if type(out) not in PLAIN or (entry is not None and entry[0]() is out):
            return self._special(out, inputs, writes)
        number = len(facts)
        storage: int | None = number
        try:
            address = out.untyped_storage()._cdata
            for _, _, other, owner in inputs:
                if other == address:
                    memory, storage = _VIEW, owner
                    break
                if other is None:  # it could not be asked, and may be the one
                    memory = _UNKNOWN
            facts.append((number, out.shape, out.stride(), out.storage_offset(), storage, out.dtype, out.device))
        except Exception:
            return self._special(out, inputs, writes)
        if self.keep_values:
            self._keep(out, number)
        try:
            ref = _REFS[number]
        except IndexError:
            ref = _ref(number)
        known[id(out)] = weak(out), ref, address, storage
        return ref.alone, memory

    def described(self, t: Tensor, dtype: torch.dtype, device: torch.device) -> Ref:
        """Write down a tensor that stands for one inside an operation; numbers have the type of what came out of it."""
        number = len(self.facts)
        dtype = dtype if t.is_floating_point() else t.dtype
        self.facts.append((number, t.shape, t.stride(), t.storage_offset(), None, dtype, device))
        self.known[id(t)] = weak(t), _ref(number), None, None
        return _ref(number)

    def _special(self, out: Tensor, inputs: Sequence[Entry], writes: bool) -> Made:
        """As `output`, for a tensor that is known already, and for one that may not answer."""
        shape, stride, offset, address, dtype, device = _ask(out)
        old = self.known.get(id(out))
        if old is not None and old[0]() is not out:
            old = None
        memory: Memory | None = None
        storage = None if old is None else old[3]
        if old is not None and any(e[0] is old[0] for e in inputs):
            memory = "in-place" if writes else "same"
            if writes and address is not None:  # x.data = y: x has y's memory from now on
                storage = next((e[3] for e in inputs if e[0] is not old[0] and e[2] == address), storage)
        elif address is not None:
            addresses = [e[2] for e in inputs]
            if address in addresses:
                memory, storage = "view", inputs[addresses.index(address)][3]
            elif old is None:
                memory = None if None in addresses else "new"
                storage = len(self.facts)
        fact = len(self.facts)
        number = fact if old is None else self.facts[old[1].fact][0]
        self.facts.append((number, shape, stride, offset, storage, dtype, device))
        ref = _ref(fact)
        self.known[id(out)] = weak(out), ref, address, storage
        if self.keep_values:
            self._keep(out, ref.fact)
        return ref.alone, (memory,)

    def _keep(self, t: Tensor, fact: int) -> None:
        if self.facts[fact][4] is None or t.device.type == "meta" or t.is_complex():
            return
        with torch.no_grad(), DisableTorchFunction():
            if t.numel() <= _KEPT_ELEMENTS:
                self.values[fact] = t.detach().cpu().tolist()


def _ref(number: int) -> Ref:
    if number >= len(_REFS):
        with _lock:  # two threads that add to the pool at once could give two the same number
            Ref.at(number + 1000)
    return _REFS[number]


# ------------------------------------------------------------------ the careful way


def _ask(t: Tensor) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return shape, stride, offset, storage address, dtype and device; -1 for a length, None for all else not told."""
    with DisableTorchFunction():
        shape = _or_none(lambda: tuple(t.shape))
        if shape is None:
            shape = tuple(_or_none(lambda i=i: t.size(i)) for i in range(t.dim()))  # type: ignore[misc]
        shape = tuple(n if type(n) is int else -1 for n in shape)
        address = _address(t)
        stride = _or_none(t.stride) if address is not None else None
        if stride is not None and any(type(n) is not int for n in stride):
            stride = None
        offset = _or_none(t.storage_offset) if stride is not None else None
        return shape, stride, offset, address, t.dtype, t.device


def _or_none(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # the kinds of tensors that can't answer raise several types
        return None


def _address(t: Tensor | None) -> int | None:
    """Return the address of a live tensor's storage; None where it is hidden."""
    if t is None:
        return None
    with DisableTorchFunction():
        try:
            return int(t.untyped_storage()._cdata)
        except Exception:
            return None
