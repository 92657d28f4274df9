"""The function mode that writes a Log: one event for each torch function, as the user called it.

`hooks` puts it in place, tells it which module runs, and takes it away. All methods that run beside the traced code
catch their own errors: an operation that cannot be recorded must still run.
"""

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import unwrap
from operator import index
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any
from weakref import ref as weak

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode

from .calls import CALLS, READS, call_of, inplace_position
from .declared import Input, axes_of, bind, checked, default_axes, has, match_axes, sizes_of
from .errors import AxesError
from .ledger import PLAIN, DisableTorchFunction, Entry, Ledger, Made
from .naming import parse_axes
from .opened import BOXES
from .paths import Root
from .patterns import FUNCTIONS, Group, gather, said_by
from .records import Call, Failure, Log, Ref, Slice
from .sites import Place, caller_names, in_layer, is_library, locate, of_einops, outwards, trail
from .speech import say
from .stumbles import stumble

__all__ = ["GuestRecorder", "Recorder", "set_stack", "stack", "tidy"]

_ATOMS = frozenset(
    (
        *(int, float, bool, complex, str),
        type(None),
        type(...),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    )
)
"""Types of arguments that are kept as they are."""
_LONGEST = 64
"""Longer lists of plain values (data for `torch.tensor`) are kept as their length alone."""

_MOST_HELD, _DEEPEST = 10_000, 5
"""How many objects of a result, and how deep inside each other, are looked through for tensors."""

_CONSTANT = ("constant", "")
Frozen = tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]
Running = tuple[nn.Module, str, int, int]
"""A module whose forward runs: its path, the number of its first event, and whether its code is a library's."""
_OUTSIDE = (None, "", 0, 0)
_EINOPS = 2


class Recorder(TorchFunctionMode):
    """Writes down what one block of code does. `log` fills as the code runs."""

    def __init__(self, sizes: Mapping[str, int], expand: bool, keep_values: bool) -> None:
        super().__init__()
        self.log = Log(sizes=dict(sizes))
        self.expand, self.closed = expand, False
        self.device, self.thread = "", threading.get_ident()
        self.events = self.log.events
        self.ledger = Ledger(self.log, keep_values, self._introduce)
        self.known = self.ledger.known
        self.path, self.in_library = "", 0
        """of the module that runs: its path, and whether its code is a library's"""
        self.stack: list[Running] = []
        self.root: Root | None = None
        self.roots: dict[int, Root] = {}
        self.declared: nn.Module | None = None
        """the module whose inputs `declare` has taken"""
        self.libraries: dict[type, int] = {}
        """class of modules -> 0 for a user's code, 1 for a library's, 2 for that of einops"""
        self.wanted: dict[str, str] = {}
        """variable -> axes text that no tensor has got yet"""
        self.arriving: str | None = None
        """name of the argument that is being introduced"""
        self.earlier: dict[int, tuple[weak[Tensor], str]] = {}
        """tensors that had a variable before the block"""
        self.block = ("", "")
        self.failed: tuple[int, Failure] | None = None
        self.spent: list[Any] = []
        """hooks of compiled modules that have done their work"""
        self.groups: list[Group] = []
        """operations that one call of einops ran"""
        self.last: tuple[int, Place | None, tuple[int, ...]] = (-1, None, ())
        """the last event that came through library code, and how far that code was"""

    # ------------------------------------------------------------ operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_dynamo_compiling():  # torch.compile reads this method too, and must find nothing here but the call
            return func(*args, **(kwargs or {}))
        try:
            call = CALLS[func]
        except (KeyError, TypeError):
            call = call_of(func)
        if call.skip or self.closed:
            return func(*args, **kwargs) if kwargs else func(*args)
        inputs: list[Entry] = []
        frozen = self.before(args, kwargs, inputs)
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except Exception as error:
            self.fail(call, frozen, error, sys._getframe(1))
            raise
        self.after(func, call, frozen, inputs, out, sys._getframe(1))
        if self.expand and call.name in BOXES:
            self.open(call, args, kwargs or {})
        return out

    def before(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, inputs: list[Entry]) -> Frozen:
        """Return the arguments as plain data, read before the call can change them; list their tensors in `inputs`."""
        frozen: list[Any] = []
        known = self.known
        try:
            for a in args:
                kind = type(a)
                if kind in PLAIN:
                    entry = known.get(id(a))
                    if entry is None or entry[0]() is not a:
                        entry = self.ledger.entry(a)
                    inputs.append(entry)
                    frozen.append(entry[1])
                elif kind in _ATOMS:
                    frozen.append(a)
                else:
                    frozen.append(self._freeze(a, inputs))
            if kwargs:
                named = []
                for k, v in kwargs.items():
                    named.append((k, v if type(v) in _ATOMS else self._freeze(v, inputs)))
                return tuple(frozen), tuple(named)
        except Exception as error:
            self.lost(error)
        return tuple(frozen), ()

    def _freeze(self, value: Any, inputs: list[Entry]) -> Any:
        kind = type(value)
        if kind in PLAIN or isinstance(value, Tensor):
            entry = self.ledger.entry(value)
            inputs.append(entry)
            return entry[1]
        if isinstance(value, tuple | list):
            if len(value) > _LONGEST and not isinstance(value[0], Tensor):
                return f"{kind.__name__} of {len(value)}"
            return tuple([v if type(v) in _ATOMS else self._freeze(v, inputs) for v in value])
        if kind is slice:
            start, stop, step = value.start, value.stop, value.step
            if type(stop) in _ATOMS and type(start) in _ATOMS and type(step) in _ATOMS:
                return Slice(start, stop, step)
            return Slice(*self._freeze((start, stop, step), inputs))
        if isinstance(value, dict):
            return tuple([(k, self._freeze((v,), inputs)[0]) for k, v in value.items()])
        return _plain(value)

    def after(self, func: Any, call: Call, frozen: Frozen, inputs: list[Entry], out: Any, frame: FrameType) -> None:
        """Write the event of a call that has returned `out`; `frame` called it."""
        try:
            if type(out) is Tensor:
                outs, memory = self.ledger.output(out, inputs, call.inplace)
                if memory[0] == "same" and _writes(func, frozen):
                    memory = ("in-place",)
            else:
                outs, memory = self._outputs(call, inputs, out)
                if not outs and call.name not in READS:
                    return
            place, where = outwards(frame)
            if where is None:
                place, where = in_layer(frame)
            quiet = self.in_library or where is frame or not (place is None or place.names or of_einops(frame.f_code))
            if place is not None and not (place.simple and quiet):
                place = self._named(place, frame, where, out)
            self.events.append((call, frozen[0], frozen[1], outs, memory, place, self.path, None))
        except Exception as error:
            self.lost(error)

    def _outputs(self, call: Call, inputs: list[Entry], out: Any) -> Made:
        """Write down the tensors in a result that is not simply one."""
        if out is None and call.inplace and inputs and not call.name.startswith("_"):  # x[0] = 0 returns nothing
            out = inputs[0][0]()
        made = [self.ledger.output(t, inputs, call.inplace) for t in _leaves(out) if isinstance(t, Tensor)]
        return tuple([outs[0] for outs, _ in made]), tuple([memory[0] for _, memory in made])

    def open(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Write down the steps inside the operation that ended just now, run on stand-ins that hold no numbers."""
        number = len(self.events) - 1
        if number < 0 or self.events[number][0] is not call:
            return
        stand_ins: list[Tensor] = []
        try:
            with DisableTorchFunction():
                args, kwargs = self._stand_in(args, stand_ins), self._stand_in(kwargs, stand_ins)
            with only(_Inside(self, number)), torch.no_grad():
                notice = BOXES[call.name](*args, **kwargs)
            if isinstance(notice, str) and notice:
                self.note(notice)
        except Exception as error:
            del self.events[number + 1 :]
            self.note(say("{name} could not be opened: {error}", name=call.name, error=str(error) or repr(error)))

    def _stand_in(self, value: Any, made: list[Tensor]) -> Any:
        """Return arguments with a tensor on the meta device for each tensor, under which the ledger knows the same."""
        if isinstance(value, Tensor):
            _, ref, _, storage = self.ledger.entry(value)
            double = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
            self.known[id(double)] = weak(double), ref, None, storage
            made.append(double)  # alive until the box is closed: its id must not pass to another tensor
            return double
        if isinstance(value, list | tuple):
            return type(value)([self._stand_in(v, made) for v in value])
        if isinstance(value, dict):
            return {k: self._stand_in(v, made) for k, v in value.items()}
        return value

    def fail(self, call: Call, frozen: Frozen, error: Exception, frame: FrameType) -> None:
        """Remember a call that raised, as plain data; it counts only if this exception ends the block."""
        try:
            failure = Failure(call, *frozen, locate(frame)[0], self.path, type(error).__name__, str(error))
            self.failed = id(error), failure
        except Exception as broken:
            self.lost(broken)

    def blame(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Find what ended the block: the remembered call, if `error` came out of it, else a line beside a tensor."""
        at = traceback
        while at is not None and at.tb_frame.f_code is not _HANDLER:
            at = at.tb_next
        if at is not None and self.failed is not None and self.failed[0] == id(error):
            self.log.failure = self.failed[1]
            return
        try:
            with DisableTorchFunction():
                paths = self.root.paths if self.root is not None else {}
                self.log.failure = stumble(error, traceback, self._met_as, self.events, paths)
        except Exception as broken:
            self.lost(broken)

    def _met_as(self, t: Tensor, name: str) -> Ref:
        """Return the latest fact of a tensor; one that is new here is known by this name."""
        self.arriving = name
        try:
            return self.ledger.ref(t)
        finally:
            self.arriving = None

    def lost(self, error: Exception) -> None:
        """Say that something could not be recorded; the traced code goes on."""
        self.note(f"An operation could not be recorded: {type(error).__name__}: {error}")

    def note(self, text: str) -> None:
        """Add a notice, once."""
        if text not in self.log.notices:
            self.log.notices.append(text)

    # ------------------------------------------------------------ variables

    def _named(self, place: Place, frame: FrameType, where: FrameType | None, out: Any) -> Place:
        """Return the site with the names that fit this output, and note what a caller's statement names it."""
        number = len(self.events)
        if where is not frame and not self.in_library:
            self._follow(place, *trail(frame, where), number)
        if place.returned:
            names = _fit(caller_names(where, place), out)
            if names:
                self.log.caller_names[number] = names
        return place.named(_fit(place.names, out)) if len(place.names) > 1 else place

    def _follow(self, place: Place, steps: tuple[int, ...], code: CodeType | None, number: int) -> None:
        """Of several operations inside one call of library code, only the last has the variable's name."""
        last, last_place, last_steps = self.last
        name = code.co_name if code is not None and of_einops(code) else ""
        further = steps > last_steps or name == "unpack" or (name == "pack" and steps == last_steps)  # these two loop
        goes_on = last_place is place and last == number - 1 and further
        if goes_on:
            self._rename(last, place.named(()))
            self.log.caller_names.pop(last, None)
        if name in FUNCTIONS:
            first = self.groups.pop().first if goes_on and self.groups else number
            self.groups.append(Group(name, first, number))
        self.last = number, place, steps

    def _rename(self, number: int, place: Place) -> None:
        event = self.events[number]
        self.events[number] = (*event[:5], place, *event[6:])

    def _settle(self, first: int, output: Any) -> None:
        """Of the operations inside one call of a library module, only those whose result it returns have a name."""
        place, _ = locate(sys._getframe())
        if place is None or not (place.names or place.returned):
            return
        labels: dict[Ref | None, str] = {}
        for leaf, name in zip(_leaves(output), _spread(place.names, output), strict=True):
            if isinstance(leaf, Tensor):
                labels[self.ledger.find(leaf)] = name
        for number in range(first, len(self.events)):
            site, outs = self.events[number][5], self.events[number][3]
            if site is None or site.variants is not place.variants:
                continue
            names = tuple([labels.get(ref, "") for ref in outs])
            self._rename(number, place.named(names if any(names) else ()))
            if not any(ref in labels for ref in outs):
                self.log.caller_names.pop(number, None)

    # ------------------------------------------------------------ modules

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A module's forward begins."""
        stack, kind, key = self.stack, type(module), id(module)
        library = self.libraries.get(kind)
        if library is None:
            library = self.libraries[kind] = _has_library_code(kind)
        new = not stack and self._find_root(module)
        root = self.root
        assert root is not None
        path = root.paths.get(key)
        if path is None:
            with DisableTorchFunction():
                path = root.path(module, [(m, p) for m, p, _, _ in stack])
        stack.append((module, path, len(self.events), library))
        self.path, self.in_library = path, library
        if len(stack) == 1:
            if module is not self.declared:
                self._announce(module, args, new)
        elif key in root.declaring and any(map(self._is_fresh, args)):
            self._announce(module, args, False)

    def leave(self, module: nn.Module, output: Any) -> None:
        """A module's forward has ended, also by an exception."""
        stack = self.stack
        if not stack or stack[-1][0] is not module:  # what lies above was left without a word (KeyboardInterrupt)
            while stack and any(running[0] is module for running in stack) and stack[-1][0] is not module:
                stack.pop()
            if not stack or stack[-1][0] is not module:
                return
        _, _, first, library = stack.pop()
        _, self.path, _, self.in_library = stack[-1] if stack else _OUTSIDE
        if library:
            ran = len(self.events) - first
            if ran and library == _EINOPS:
                self.groups = [g for g in self.groups if g.first < first]  # a layer may hold others
                self.groups.append(Group(type(module).__name__, first, len(self.events) - 1, said_by(module)))
            if ran > 1 and not self.in_library:
                self._settle(first, output)

    def _meet(self, module: nn.Module, dot: str) -> None:
        """Write down the parameters and buffers of a module before any code of it runs."""
        members, root = module.__dict__, self.root  # a module's attributes cost far more
        said = self.earlier or (root is not None and root.declaring)
        for kind, held in (("parameter", members.get("_parameters")), ("buffer", members.get("_buffers"))):
            if held:  # those of a scripted module are in C++
                met = self.ledger.meet(held, kind, dot, self.log.sources)
                for t, fact in met if said else ():
                    self._introduce(t, fact, self.log.sources[fact])

    def _find_root(self, module: nn.Module) -> bool:
        """Make `root` the outermost module that `module` belongs to; tell whether it was not seen before."""
        for root in (self.roots.get(id(module)), *self.roots.values()):
            if root is not None and root.module() is not None and id(module) in root.paths:
                self.root = root
                return False
        self.root = self.roots[id(module)] = Root(module, self._meet)
        with DisableTorchFunction():
            self.root.add(module, "")
        self.log.sizes = {**sizes_of(module), **self.log.sizes}
        return True

    # ------------------------------------------------------------ what is known of tensors before they are met

    def declare(self, target: Any, inputs: Sequence[Input], axes: Any) -> None:
        """Take what is said about the inputs of a call that is about to be made.

        Raises:
            AxesError: `axes` does not fit.
        """
        module = target if isinstance(target, nn.Module) else getattr(target, "__self__", None)
        owned: dict[str, Tensor] = {}
        texts: dict[int, str] = {}
        if isinstance(module, nn.Module):
            self._find_root(module)
            texts = self._declared(module, inputs)
            if isinstance(axes, Mapping):
                owned = {**dict(module.named_buffers()), **dict(module.named_parameters())}
            self.declared = module if module is target else None
        if axes is None and not texts:
            texts = {id(t): text for t, text in default_axes(inputs)}
        pairs = [] if axes is None else match_axes(axes, inputs, owned)
        texts.update((id(t), text) for t, text in pairs)
        for i in inputs:
            self._register(i, texts.get(id(i.tensor)))
        for t, text in pairs:
            self.log.given[self.ledger.ref(t).fact] = text

    def _declared(self, module: nn.Module, inputs: Sequence[Input]) -> dict[int, str]:
        """Return what a module declares about its inputs; what does not fit becomes a notice."""
        declared = axes_of(module) if has(module, "axes") else {}
        texts: dict[int, str] = {}
        for i in inputs:
            text = self._fitting(declared.get(i.name), i.tensor, f"{type(module).__name__}.axes[{i.name!r}]")
            if text is not None:
                texts.setdefault(id(i.tensor), text)
        return texts

    def _fitting(self, text: str | None, t: Tensor, what: str) -> str | None:
        try:
            return None if text is None else checked(text, t, what)
        except AxesError as error:
            self.note(str(error))
            return None

    def _register(self, i: Input, text: str | None, named: bool = True) -> None:
        """Introduce an argument, `named` after its parameter; that of a library module (`input`) tells nothing."""
        self.arriving = i.name if named else None
        ref = self.ledger.ref(i.tensor)
        self.arriving = None
        if text is not None:
            self.log.given.setdefault(ref.fact, text)

    def _announce(self, module: nn.Module, args: tuple[Any, ...], new: bool) -> None:
        """Take what a module that was called declares about its inputs.

        A tensor that the run itself made is named so only at the first call (`new`): generation calls its model with
        longer and longer inputs.
        """
        with DisableTorchFunction():
            inputs = bind(module.forward, args, {})
            texts = self._declared(module, inputs)
            fresh = [i for i in inputs if self._is_fresh(i.tensor)]
            if new and not texts:
                texts = {id(t): text for t, text in default_axes(fresh)}
            for i in inputs:
                ref, text = self.ledger.find(i.tensor), texts.get(id(i.tensor))
                if ref is None:
                    self._register(i, text, named=not self.stack[-1][3])
                elif text is not None and (new or ref.fact in self.log.sources):
                    self.log.given.setdefault(ref.fact, text)

    def _is_fresh(self, value: Any) -> bool:
        return isinstance(value, Tensor) and self.ledger.find(value) is None

    def _introduce(self, t: Tensor, fact: int, owner: tuple[str, str] | None = None) -> None:
        """Say where a tensor comes from that the run did not make, and which axes were declared for it."""
        root, text = self.root, None
        if owner is None and self.arriving is not None:
            owner = "input", self.arriving
        if owner is None and root is not None:
            owner = root.owner_of(t, self.stack[-1][0] if self.stack else None)
        if root is not None and root.declaring and owner is not None and owner[0] != "input":
            text = self._fitting(root.axes_of(owner[1], t), t, owner[1])
        if self.earlier:
            earlier = self.earlier.pop(id(t), None)
            if earlier is not None and earlier[0]() is t:
                owner = owner or ("input", earlier[1])
                if earlier[1] in self.wanted:
                    text = self._fitting(self.wanted.pop(earlier[1]), t, earlier[1])
        self.log.sources[fact] = owner or _CONSTANT
        if text is not None:
            self.log.given[fact] = text

    # ------------------------------------------------------------ names given in a block

    def watch(self, axes: Mapping[str, str] | None) -> None:
        """Give axes to variables by name.

        Raises:
            AxesError: a text cannot be read.
        """
        if axes is not None and not isinstance(axes, Mapping):
            raise AxesError(f'axes= is {axes!r}. Give a dict by variable name: {{"x": "B T C"}}.')
        for name, text in (axes or {}).items():
            if not isinstance(text, str):
                raise AxesError(f'axes for {name}: {text!r} is not a text. Write one name for each axis: "B T C".')
            parse_axes(text)
            self.wanted[name] = text

    def look_for(self, namespace: Mapping[str, Any], block: tuple[str, str]) -> None:
        """Remember which tensors have a variable before the block, and the file and name of its code."""
        self.block = block
        for name, value in list(namespace.items()):
            if isinstance(value, Tensor) and not name.startswith("_"):
                old = self.earlier.get(id(value))
                if old is None or (name in self.wanted and old[1] not in self.wanted):
                    self.earlier[id(value)] = weak(value), name

    def name(self, x: Any, axes: str) -> None:
        """Give the axes of a live tensor by hand.

        Raises:
            AxesError: the text cannot be read, or names another number of axes.
        """
        if not isinstance(x, Tensor):
            raise AxesError(f"t.name(x, axes) names a tensor; x is of type {type(x).__name__}.")
        text = checked(axes, x, "x")
        self.log.given[self.ledger.ref(x).fact] = text

    def _name_variables(self) -> None:
        """Give the wanted axes to the first tensor that got each variable, in the block's own code if there is one."""
        for mine in (True, False):
            for number, event in enumerate(self.events):
                if not self.wanted:
                    return
                place, outs = event[5], event[3]
                if place is not None and (not mine or (place.source.file, place.function) == self.block):
                    for names in (place.names, () if mine else self.log.caller_names.get(number, ())):
                        for name, ref in zip(names, outs, strict=False):
                            if name in self.wanted:
                                self._name_variable(name, ref, self.wanted.pop(name))
        for name in self.wanted:
            self.note(
                f"axes for {name}: no operation in the block gave a tensor to a variable of that name. A tensor from "
                f'before the block is named by hand, inside it: t.name({name}, "{self.wanted[name]}").'
            )

    def _name_variable(self, name: str, ref: Ref, text: str) -> None:
        shape = self.log.facts[ref.fact][1]
        if len(parse_axes(text)) == len(shape):
            self.log.given.setdefault(ref.fact, text)
        else:
            self.note(f'axes for {name}: "{text}" does not fit its shape [{", ".join(map(str, shape))}].')

    # ------------------------------------------------------------ the end

    def returned(self, output: Any) -> None:
        """Remember which memory the call returned."""
        try:
            refs = [self.ledger.find(t) for t in _held(output)]
        except Exception:  # an object of the user's that cannot be looked into
            return
        storages = [self.log.facts[ref.fact][4] for ref in refs if ref is not None]
        self.log.returned = frozenset([s for s in storages if s is not None])

    def close(self) -> None:
        """Forget every tensor and module; the log stays."""
        if self.closed:
            return
        self.closed = True
        if self.groups:
            gather(self.log, self.groups)
        if self.wanted:
            self._name_variables()
        self._find_device()
        self.ledger.close()
        for held in (self.stack, self.roots, self.libraries, self.earlier):
            held.clear()
        self.root = self.declared = None

    def _find_device(self) -> None:
        """Take the device of the first parameter, else of the first input, else of the first tensor."""
        facts, sources = self.log.facts, self.log.sources
        for kind in ("parameter", "input"):
            for fact, source in sources.items():
                if source[0] == kind:
                    self.device = str(facts[fact][6])
                    return
        self.device = str(facts[0][6]) if facts else ""


class GuestRecorder(Recorder):
    """A recorder above other function modes: these must not see the questions that it asks of tensors."""

    def before(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, inputs: list[Entry]) -> Frozen:
        """As in Recorder."""
        with DisableTorchFunction():
            return super().before(args, kwargs, inputs)

    def after(self, func: Any, call: Call, frozen: Frozen, inputs: list[Entry], out: Any, frame: FrameType) -> None:
        """As in Recorder."""
        with DisableTorchFunction():
            super().after(func, call, frozen, inputs, out, frame)


class _Inside(TorchFunctionMode):
    """Writes the steps inside an opened operation into the log of its recorder."""

    def __init__(self, recorder: Recorder, parent: int) -> None:
        super().__init__()
        self.recorder, self.parent, self.path = recorder, parent, recorder.events[parent][6]
        self.dtype, self.device = recorder.log.facts[recorder.events[parent][3][0].fact][5:7]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call, recorder = call_of(func), self.recorder
        frozen = recorder.before(args, kwargs, [])
        out = func(*args, **(kwargs or {}))
        made = [t for t in _leaves(out) if isinstance(t, Tensor)]
        if call.skip or not made:
            return out
        place, _ = outwards(sys._getframe(1))
        if place is not None:
            place = place.named(_fit(place.names, out))
        refs = tuple([recorder.ledger.described(t, self.dtype, self.device) for t in made])
        recorder.events.append((call, *frozen, refs, (None,) * len(refs), place, self.path, self.parent))
        return out


@contextmanager
def only(mode: TorchFunctionMode) -> Iterator[None]:
    """Run a block under one function mode alone."""
    others = stack()
    set_stack([mode])
    try:
        yield
    finally:
        set_stack(others)


def stack() -> list[TorchFunctionMode]:
    """Return this thread's function modes, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def set_stack(modes: Sequence[TorchFunctionMode]) -> None:
    """Put these function modes in the place of those of this thread."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for m in modes:
        torch._C._push_on_torch_function_stack(m)


_HANDLER = Recorder.__torch_function__.__code__


def tidy(traceback: TracebackType | None) -> None:
    """Take the recorders' frames out of a traceback: it ends at the user's line, as without tracing."""
    while traceback is not None and traceback.tb_next is not None:
        if traceback.tb_next.tb_frame.f_code is _HANDLER:
            traceback.tb_next = traceback.tb_next.tb_next
        else:
            traceback = traceback.tb_next


def _has_library_code(kind: type[nn.Module]) -> int:
    forward: Any = getattr(kind, "forward", None)  # a script's class has none
    code = getattr(unwrap(forward), "__code__", None)  # @torch.no_grad() wraps a user's forward
    if code is not None and of_einops(code):
        return _EINOPS
    return code is None or is_library(code)


# ------------------------------------------------------------------ plain data


def _plain(value: Any) -> Any:
    """Return a short text, or a plain number, for an argument of any other type."""
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(value)
    kind = type(value)
    if hasattr(kind, "__index__"):
        try:
            return index(value)
        except Exception:  # objects of torch's scripts say that they have every operator
            return kind.__name__
    return getattr(value, "__name__", None) or kind.__name__


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in nested tuples, lists and dicts, in order."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _held(output: Any) -> Iterator[Tensor]:
    """Yield the tensors in a result: in tuples, lists, dicts, and in the attributes of objects inside (a cache)."""
    todo, seen = [(output, 0)], {id(output)}
    while todo and len(seen) < _MOST_HELD:
        value, depth = todo.pop()
        inside: Iterable[Any] = ()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            inside = value
        elif isinstance(value, dict):
            inside = dict.values(value)
        elif depth < _DEEPEST and not isinstance(value, nn.Module | ModuleType | type):
            inside = _attributes(value).values()
        fresh = [item for item in inside if type(item) not in _ATOMS and id(item) not in seen]
        seen.update(map(id, fresh))
        todo += [(item, depth + 1) for item in fresh]


def _attributes(value: Any) -> dict[str, Any]:
    """Return what an object holds, without running code of its own."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _spread(names: tuple[str, ...], value: Any) -> tuple[str, ...]:
    """Return a name, or "", for each leaf of a value that a statement assigns to `names`."""
    count = sum(1 for _ in _leaves(value))
    if len(names) == 1:
        return names * count
    if "" in names:  # one was picked: y = f(x)[1]
        names = (names + ("",) * count)[:count]
    return names if len(names) == count and not isinstance(value, Tensor) else ("",) * count


def _fit(names: tuple[str, ...], value: Any) -> tuple[str, ...]:
    """Return the names for the tensors in a value, all or none; one name may stand for all."""
    if len(names) < 2:
        return names
    spread = _spread(names, value)
    fitting = tuple([n for n, leaf in zip(spread, _leaves(value), strict=True) if isinstance(leaf, Tensor)])
    return fitting if any(fitting) else ()


def _writes(func: Any, frozen: Frozen) -> bool:
    """Tell whether a call that returned its own input was told to write into it: `out=`, `inplace=True`."""
    args, kwargs = frozen
    for name, value in kwargs:
        if name == "out" or (name == "inplace" and value is True):
            return True
    position = inplace_position(func)
    return position is not None and position < len(args) and args[position] is True
