"""From a raw log to operations with named axes: one pass of rules, then what could not be known at once is solved.

Needs no torch and no tensors. Names that become known late reach back to every earlier operation that mentions them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .costs import bytes_of, flops_of, traffic
from .errors import AxesError
from .naming import Space, Term
from .records import Call, Log, Op, Ref, Site, Slice, TensorInfo
from .rules import Axis, Step, Tensor, find_rule
from .speech import say

__all__ = ["Named", "name_log"]

VIEW_LIKE = frozenset(
    "view reshape transpose permute contiguous swapaxes movedim mT T t unsqueeze squeeze flatten clone".split()
)
"""Operations after which a tensor still is "q" to a reader."""
TRANSPOSED = frozenset({"t", "T", "mT", "transpose"})
"""Operations after which a parameter still is one: `x @ weight.T` is a learned map."""


@dataclass(frozen=True, slots=True)
class Named:
    """The readable result: `failed` is the call that raised, with named inputs; `sizes`: all declared or met."""

    ops: tuple[Op, ...]
    warnings: tuple[str, ...]
    unnamed: tuple[str, ...]
    failed: Op | None
    sizes: Mapping[str, int]


_CACHE_OPS = 10_000
"""Operations kept in all; about 20 MB."""


class _Cache(OrderedDict[Any, Named]):
    """Results by the signature of their logs, those used last; `ops` counts their operations."""

    ops = 0

    def keep(self, key: Any, named: Named) -> None:
        self[key] = named
        self.ops += len(named.ops)
        while self.ops > _CACHE_OPS:
            self.ops -= len(self.popitem(last=False)[1].ops)

    def clear(self) -> None:
        super().clear()
        self.ops = 0


_CACHE = _Cache()


def name_log(log: Log) -> Named:
    """Name every axis of a log. Two runs that left equal logs share one result."""
    key = _signature(log)
    found = _CACHE.get(key) if key is not None else None
    if found is None:
        found = _Namer(log).run()
        if key is not None and len(found.ops) <= _CACHE_OPS:
            _CACHE.keep(key, found)
    elif key is not None:
        _CACHE.move_to_end(key)
    return found


def _signature(log: Log) -> Any:
    """Return a hashable value that is equal for logs that must be named alike, or None."""
    if log.values:
        return None
    kinds = tuple([tuple(map(type, e[1])) for e in log.events])  # 1, 1.0 and True are equal, but not written alike
    key = (
        tuple(log.events), kinds, tuple(log.facts), tuple(log.sources.items()), tuple(log.given.items()),
        tuple(log.sizes.items()), tuple(log.notices), log.failure, tuple(log.work.items()),
    )  # fmt: skip
    try:
        hash(key)
    except TypeError:
        return None
    return key


class _Namer:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.space = Space(log.sizes)
        self.tensors: dict[int, Tensor] = {}
        self.variables: dict[int, str | None] = {}  # fact -> the variable it has when it is made or first met
        self.latest: dict[int, str] = {}  # tensor number -> its last variable
        self.unnamed: dict[str, None] = {}
        self.notices: list[tuple[Site | None, str, Callable[[], str | None]]] = []
        self.inside: set[int] = set()  # facts of what steps inside another operation made
        self.calls: list[int] = []  # operations whose steps were seen running (einops)
        self.whole: dict[int, str] = {}  # fact -> the variable that the whole operation's statement gives it
        self.names: dict[int, str] = {}
        self.infos: dict[int, TensorInfo] = {}
        self.bytes: dict[int, int] = {}  # id of a TensorInfo -> its bytes

    def run(self) -> Named:
        self.inside = {r.fact for event in self.log.events if event[7] is not None for r in event[3]}
        views = [self._event(i, *event) for i, event in enumerate(self.log.events)]
        failed = self._failure()
        self.space.solve()
        ops = tuple(
            self._op(i, event, view) for i, (event, view) in enumerate(zip(self.log.events, views, strict=True))
        )
        if self.calls:
            ops = self._summed(ops)
        bad = None
        if failed is not None:
            f = failed[0]
            bad = self._op(len(ops), (f.call, f.args, f.kwargs, (), (), f.site, f.module, None), failed[1])
        warnings = tuple(dict.fromkeys([*self.log.notices, *self._warnings()]))
        sizes = {k: v for k, v in {**self.space.seen, **self.space.sizes}.items() if "/" not in k}
        return Named(ops, warnings, tuple(self.unnamed), bad, sizes)

    # ------------------------------------------------------------ the pass

    def _event(
        self, index: int, call: Call, args: Any, kwargs: Any, outs: tuple[Ref, ...], memory: Any, site: Site | None,
        module: str, parent: Any,
    ) -> list[int]:  # fmt: skip
        """Run one rule and remember its outputs' axes; return the facts of its tensor arguments."""
        inputs = [r.fact for r in _refs((args, tuple(v for _, v in kwargs)))]
        facts = self.log.facts
        shapes = tuple([facts[r.fact][1] for r in outs])
        names = self._assigned(site, len(outs))
        if parent is None and outs and all(r.fact in self.inside for r in outs):  # named by the steps inside
            self.calls.append(index)
            self._view((args, kwargs))
            self.whole.update({r.fact: name for r, name in zip(outs, names, strict=True) if name})
            return inputs
        names = [name or self.whole.get(r.fact) for r, name in zip(outs, names, strict=True)]
        step = Step(
            self.space, call.name, self._view(args), {k: self._view(v) for k, v in kwargs}, shapes,
            site.literals if site else (), site.source.code if site else "",
        )  # fmt: skip
        results = self._apply(step)
        given = [self.tensors[f] for f in inputs]
        constant = all(t.constant for t in given)
        for ref, axes, name in zip(outs, results, names, strict=True):
            owner = name or (given[0].owner if given and call.name in VIEW_LIKE else None)
            role = given[0].role if given and call.name in TRANSPOSED else ""
            self._made(ref.fact, axes, constant, owner, name, role)
        for text in step.notices if parent is None else ():  # the steps inside say what their operation has said
            self.notices.append((site, module, text))
        return inputs

    def _apply(self, step: Step) -> list[list[Axis]]:
        rule = find_rule(step.name)
        found = None
        if rule is None:
            if step.outs:
                self.unnamed[step.name] = None
        else:
            try:
                found = rule(step)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                found = None  # arguments of a form that the rule does not know: nothing is said about the axes
            if found is None and step.outs:
                self.unnamed[step.name] = None
        if found is None:
            for tensor in step.tensors():
                for axis in tensor.axes if tensor.role == "parameter" else ():
                    self.space.disown(axis.term)
        out: list[list[Axis]] = []
        for i, shape in enumerate(step.outs):
            axes = found[i] if found is not None and i < len(found) else None
            if axes is None or len(axes) != len(shape):
                out.append(step.fresh(shape))
            else:
                out.append([a if a.size == n else step.fresh([n])[0] for a, n in zip(axes, shape, strict=True)])
        return out

    def _made(
        self, fact: int, axes: list[Axis], constant: bool, owner: str | None, name: str | None, role: str
    ) -> None:
        number, shape, _, _, _, dtype, _ = self.log.facts[fact]
        text = self.log.given.get(fact)
        if text is not None:
            constant = False
            for i, term in enumerate(self._read(fact, text, shape)):
                if term.var is None and axes[i].term.var is not None:
                    self.space.unify(axes[i].term, term)
                axes[i] = axes[i] if term.var is not None else Axis(term, axes[i].origin, axes[i].soft)
        if name is None:
            name = self.latest.get(number)
        else:
            self.latest[number] = name
        self.variables[fact] = name
        self.tensors[fact] = Tensor(shape, axes, constant=constant, owner=owner or name, role=role, dtype=str(dtype))

    def _read(self, fact: int, text: str, shape: tuple[int, ...]) -> list[Term]:
        try:
            return self.space.read(text, shape)
        except AxesError as error:
            what = self.log.sources.get(fact, ("", ""))[1] or "a tensor"
            self.log_notice(say("axes of {what}: {error}", what=what, error=error))
            return [self.space.fresh(n) for n in shape]

    def log_notice(self, text: str) -> None:
        self.notices.append((None, "", lambda: text))

    def _first_met(self, fact: int) -> Tensor:
        """A tensor that the run did not make: an input, a parameter, a buffer, or one from outside."""
        number, shape, _, _, _, dtype, _ = self.log.facts[fact]
        role, name = self.log.sources.get(fact, ("constant", ""))
        text = self.log.given.get(fact)
        if text is not None:
            axes = [Axis(t) for t in self._read(fact, text, shape)]
        elif role == "parameter":
            axes = [Axis(self.space.feature(n)) for n in shape]
        else:
            axes = [Axis(self.space.fresh(n)) for n in shape]
        owner = name.rpartition(".")[2] if role == "input" and name else None
        self.variables[fact] = name or None
        if name:
            self.latest.setdefault(number, name)
        fixed = role in ("parameter", "buffer")
        return Tensor(shape, axes, constant=fixed, owner=owner, role=role, dtype=str(dtype))

    def _view(self, value: Any) -> Any:
        """Return recorded arguments with each Ref replaced by its tensor."""
        kind = type(value)
        if kind is Ref:
            found = self.tensors.get(value.fact)
            if found is None:
                found = self.tensors[value.fact] = self._first_met(value.fact)
            return found
        if kind is tuple:
            return tuple([self._view(v) for v in value])
        if kind is Slice:
            return Slice(*(self._view(v) for v in value))
        return value

    def _assigned(self, site: Site | None, count: int) -> list[str | None]:
        """Return the variable of each output."""
        names = site.names if site is not None else ()
        if len(names) == count:
            return [name or None for name in names]  # "" stands for an output that the statement leaves unnamed
        if len(names) == 1:
            return [names[0]] * count
        return [None] * count

    def _failure(self) -> "tuple[Any, list[int]] | None":
        f = self.log.failure
        if f is None:
            return None
        inputs = [r.fact for r in _refs((f.args, tuple(v for _, v in f.kwargs)))]
        self._view(f.args)
        self._view(tuple(v for _, v in f.kwargs))
        return f, inputs

    # ------------------------------------------------------------ the result

    def _name(self, term: Term) -> str:
        found = self.names.get(id(term))
        if found is None:
            found = self.names[id(term)] = self.space.name(term)
        return found

    def _met(self, fact: int) -> TensorInfo:
        """Return a tensor as an input: the record it has as an output, or one without a memory kind."""
        found = self.infos.get(fact)
        if found is None:
            found = self.infos[fact] = self._info(fact, None)
        return found

    def _made_by(self, fact: int, memory: Any) -> TensorInfo:
        """Return a tensor as an output; later operations that read it show the same record."""
        made = self.infos[fact] = self._info(fact, memory)
        return made

    def _info(self, fact: int, memory: Any) -> TensorInfo:
        number, shape, stride, offset, storage, dtype, device = self.log.facts[fact]
        shape = tuple(shape)  # torch.Size shows itself as such
        tensor = self.tensors[fact]
        names = tuple([self._name(a.term) for a in tensor.axes])
        origins: tuple[str | None, ...] = (None,) * len(names)
        if len(set(names)) < len(names):
            twice = [n for n in names if names.count(n) > 1]
            origins = tuple(
                f"{n} of {a.origin}" if n in twice and n not in "1?" and a.origin else None
                for n, a in zip(names, tensor.axes, strict=True)
            )
        return TensorInfo(
            id=number,
            shape=shape,
            axes=names,
            label="[" + ", ".join([n if n != "?" else f"?={s}" for n, s in zip(names, shape, strict=True)]) + "]",
            variable=self.variables.get(fact),
            dtype=str(dtype).removeprefix("torch."),
            device=str(device),
            stride=stride,
            contiguous=None if stride is None else _contiguous(shape, stride),
            storage=storage,
            offset=offset,
            memory=memory,
            origins=origins,
            values=self.log.values.get(fact),
        )

    def _op(self, index: int, event: tuple[Any, ...], inputs: list[int]) -> Op:
        call, args, kwargs, outs, memory, site, module, parent = event
        ins = tuple([self._met(f) for f in inputs])
        outputs = tuple([self._made_by(r.fact, m) for r, m in zip(outs, memory, strict=True)])
        work, held = self.log.work.get(index, (0, 0))
        moved = traffic(call.name, args, ins, outputs, self._size, self.log.facts)
        return Op(
            index=index,
            name=call.name,
            inputs=ins,
            outputs=outputs,
            args=_printable(args, kwargs),
            module=module,
            source=site.source if site is not None else None,
            flops=work or flops_of(call.name, ins, outputs, args, kwargs, self._shape),
            bytes_read=moved.read + held,
            bytes_written=moved.written,
            bytes_new=moved.new,
            parent=parent,
        )

    def _summed(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Return the operations with what the steps cost in the place of what their call seems to."""
        sums: dict[int, dict[str, Any]] = {
            call: dict.fromkeys(("flops", "bytes_read", "bytes_written", "bytes_new"), 0) for call in self.calls
        }
        for op in ops:
            if op.parent in sums:
                for name in (total := sums[op.parent]):
                    total[name] += getattr(op, name)
        return tuple([replace(op, **sums[op.index]) if op.index in sums else op for op in ops])

    def _shape(self, ref: Ref) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.log.facts[ref.fact][1]
        return shape

    def _size(self, info: TensorInfo) -> int:
        found = self.bytes.get(id(info))
        if found is None:
            found = self.bytes[id(info)] = bytes_of(info)
        return found

    def _warnings(self) -> list[str]:
        """Write each warning once, however many blocks run its line."""
        seen: dict[tuple[str, str], str] = {}
        for site, module, make in self.notices:
            text = make()
            if text is None:
                continue
            where = f"{site.source.place}: " if site is not None else ""
            code = f"  [{site.source.code}]" if site is not None and site.source.code else ""
            inside = say(" (in {module})", module=module) if module else ""
            seen.setdefault((where, text), f"{where}{text}{inside}{code}")
        return list(seen.values())


def _contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride), strict=True):
        if n != 1 and s != expected:
            return 0 in shape
        expected *= n
    return True


def _refs(values: tuple[Any, ...]) -> list[Ref]:
    """Return every Ref in nested tuples, in order."""
    found: list[Ref] = []
    for v in values:
        if type(v) is Ref:
            found.append(v)
        elif isinstance(v, tuple):
            found += _refs(v)
    return found


def _printable(args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Return the arguments that are no tensors, as they would be written."""
    while args and args[-1] is None:
        args = args[:-1]
    plain = [_plain(a) for a in args if not _only_tensors(a)]
    return (*plain, *(f"{k}={_plain(v)}" for k, v in kwargs if not (k in _INTERNAL or v is None or _only_tensors(v))))


_INTERNAL = frozenset("_stacklevel norm_type scale_grad_by_freq sparse size_average reduce".split())
"""Keywords that torch's own layers pass along; nobody wrote them."""


def _only_tensors(value: Any) -> bool:
    return type(value) is Ref or (type(value) is tuple and bool(value) and all(type(v) is Ref for v in value))


def _plain(value: Any) -> Any:
    if type(value) is Slice:
        start, stop, step = ("" if v is None else str(_plain(v)) for v in value)
        return f"{start}:{stop}" + (f":{step}" if step else "")
    if type(value) is Ref:
        return "tensor"
    if value is Ellipsis:
        return "..."
    if type(value) is tuple:
        return tuple(_plain(v) for v in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value).removeprefix("torch.")
