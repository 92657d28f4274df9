"""Trace: what a run left, as a sequence of operations with named axes, and every way to read, show and keep it.

Holds no tensor but the output of the traced call. Names are worked out when they are first asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol, overload

from .costs import By, Peak, outermost, peak
from .diff import Diff
from .errors import TracerError
from .listings import Listing, listings
from .namer import Named, name_log
from .records import Line, Log, Op, Source, TensorInfo
from .render import costs, html, plan, player, serialise, svg, table, text
from .render.flow import flow_of
from .render.layout import Sheet, header_sizes, lines
from .render.memory import Picture, Sharing, picture, sharing
from .speech import say, say_count

__all__ = ["Recorder", "Trace"]


class Recorder(Protocol):
    """What a trace needs of the engine while its `with` block is open."""

    def name(self, x: Any, axes: str) -> None:
        """Give the axes of a live tensor by hand."""


class Trace(Sequence[Op]):
    """The operations of one run, in order: `len(t)`, `t[3]`, `t[2:5]`, `for op in t`.

    `t["scores"]` is the last tensor that was given to this variable.
    Readable at any time, also inside the `with tracer.record()` block that fills it.
    """

    _later: ClassVar[Callable[[str], Any]]
    """Loads a part that brings widgets with it, when it is asked for; set by the package's root, which alone may."""

    def __init__(self, log: Log | None = None, *, output: Any = None, device: str = "") -> None:
        self.output = output
        """What the traced call returned: the only thing that is kept alive."""
        self.device = device
        """The device that the run used, as text."""
        self._log = log
        self._sheet = Sheet((), device=device)
        self._state: object = None
        self._recorder: Recorder | None = None
        self._asked = ""
        self._known: tuple[Sheet, dict[str, tuple[TensorInfo, Op | None]]] = (self._sheet, {})

    @classmethod
    def from_ops(
        cls,
        ops: Sequence[Op],
        *,
        sizes: Mapping[str, int] | None = None,
        warnings: Sequence[str] = (),
        unnamed: Sequence[str] = (),
        failed: Op | None = None,
        device: str = "",
        names: Mapping[int, tuple[str, ...]] | None = None,
    ) -> "Trace":
        """Make a trace of operations that are named already; `names` as in `Log.caller_names`."""
        sheet = Sheet(tuple(ops), dict(sizes or {}), device, tuple(warnings), tuple(unnamed), failed, dict(names or {}))
        return cls._of(sheet)

    @classmethod
    def _of(cls, sheet: Sheet, output: Any = None) -> "Trace":
        trace = cls(output=output, device=sheet.device)
        trace._sheet = sheet
        return trace

    # ------------------------------------------------------------ naming, when first needed

    @property
    def _data(self) -> Sheet:
        """The named operations; named anew when the run has gone on since."""
        log = self._log
        if log is None:
            return self._sheet
        state = (
            len(log.events),
            len(log.facts),
            tuple(log.given.items()),
            len(log.notices),
            log.failure,
            log.returned,
            self.device,
        )
        if state != self._state:
            named: Named = name_log(log)
            self._sheet = Sheet(
                named.ops, named.sizes, self.device, named.warnings, named.unnamed, named.failed,
                dict(log.caller_names), log.returned,
            )  # fmt: skip
            self._state = state
        return self._sheet

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each symbol, declared or met: `{"B": 2, "T": 8, …}`."""
        return dict(self._data.sizes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the names show that sizes hide, and what the run itself had to say."""
        return self._data.warnings

    @property
    def unnamed(self) -> tuple[str, ...]:
        """Names of operations met that no rule covers."""
        return self._data.unnamed

    @property
    def failed(self) -> Op | None:
        """The operation that raised, with named inputs and no outputs; else None."""
        return self._data.failed

    # ------------------------------------------------------------ a sequence

    def __len__(self) -> int:
        return len(self._sheet.ops if self._log is None else self._log.events)  # counting needs no names

    def __iter__(self) -> Iterator[Op]:
        return iter(self._data.ops)

    @overload
    def __getitem__(self, key: int) -> Op: ...
    @overload
    def __getitem__(self, key: slice) -> "Trace": ...
    @overload
    def __getitem__(self, key: str) -> TensorInfo: ...
    def __getitem__(self, key: int | slice | str) -> "Op | Trace | TensorInfo":
        """Return an operation by position, a part of the trace, or the last tensor given to a variable.

        Raises:
            KeyError: no tensor was given to this variable; the names there are stand in the message.
        """
        if isinstance(key, str):
            return self._last(key)[0]
        if isinstance(key, slice):
            return self._part(self._data.ops[key])
        return self._data.ops[key]

    def __contains__(self, key: object) -> bool:
        return key in self._variables if isinstance(key, str) else key in self._data.ops

    def _part(self, ops: Sequence[Op], asked: str = "") -> "Trace":
        data = self._data
        names = {op.name for op in ops}
        unnamed = tuple(name for name in data.unnamed if name in names)
        part = Trace._of(Sheet(tuple(ops), data.sizes, self.device, data.warnings, unnamed, None, data.names))
        part._asked = asked
        return part

    # ------------------------------------------------------------ looking things up

    def find(self, name: str | None = None, module: str | None = None, variable: str | None = None) -> "Trace":
        """Return the operations that fit all that is given; none may fit.

        `name` is the operation's (`"matmul"`), `module` a path and all below it (`"blocks.0"`), `variable` what one of
        its outputs was assigned to.
        """
        ops = [
            op
            for op in self._data.ops
            if (name is None or op.name == name)
            and (not module or op.module == module or op.module.startswith(f"{module}."))
            and (variable is None or variable in self._assigned(op))
        ]
        asked = {"name": name, "module": module, "variable": variable}
        return self._part(ops, "" if ops else self._nothing({k: v for k, v in asked.items() if v is not None}))

    def _nothing(self, asked: Mapping[str, str]) -> str:
        """Say that nothing fits, and name what comes near."""
        known = {
            "name": {op.name for op in self},
            "module": {".".join(op.module.split(".")[:n]) for op in self for n in range(1, op.module.count(".") + 2)},
            "variable": set(self._variables),
        }
        near = [
            f"{k}={m!r}" for k, v in asked.items() if v not in known[k] for m in get_close_matches(v, known[k], n=1)
        ]
        text = say("No operation has {asked}.", asked=", ".join(f"{k}={v!r}" for k, v in asked.items()))
        return text + (say(" Near to it: {near}.", near=", ".join(near)) if near else "")

    def _assigned(self, op: Op) -> tuple[str, ...]:
        own = tuple(out.variable for out in op.outputs if out.variable)
        return own + self._data.names.get(op.index, ())

    @property
    def _variables(self) -> "dict[str, tuple[TensorInfo, Op | None]]":
        """The last tensor of each variable with the operation that made it; of an input, with None."""
        sheet = self._data
        if self._known[0] is not sheet:
            self._known = (sheet, _variables(sheet))
        return self._known[1]

    def _last(self, variable: str) -> tuple[TensorInfo, Op | None]:
        known = self._variables
        if variable in known:
            return known[variable]
        near = get_close_matches(variable, known, n=1)
        message = say("no tensor was given to a variable {name}. ", name=repr(variable))
        if near:
            message += say("Did you mean {near}? ", near=repr(near[0]))
        raise KeyError(message + say("Variables of this trace: {names}", names=", ".join(known) or "-"))

    def lines(self) -> list[Line]:
        """Return the operations grouped by the line of code that ran them, one group for each pass over the line."""
        return list(lines(self._data.ops))

    def table(self, rows: Mapping[str, "str | Sequence[str]"], module: str = "", caption: str = "") -> table.Table:
        """Return chosen tensors in one table: a label for each row, and the variable or variables it shows.

        A variable is looked for in `module` first, then in the whole trace. Variables of one row whose tensors are
        alike share a row; else each has its own.

        Raises:
            KeyError: a variable is not in the trace.

        Example:
            t.table({"q, k, v": ["q", "k", "v"], "scores": "scores", "loss": "loss"}, module="blocks.0.attn")
        """
        inside = self.find(module=module)
        found: list[table.Row] = []
        for what, names in rows.items():
            names = [names] if isinstance(names, str) else list(names)
            picked = [(n, *(inside if n in inside._variables else self)._last(n)) for n in names]
            found += table.rows(what, picked)
        return table.Table(tuple(found), caption)

    def diff(self, other: "Trace", *, names: tuple[str, str] = ("mine", "theirs")) -> Diff:
        """Return the steps in which this run and another differ; `names` is what the two are called when shown.

        Steps are matched by module, line and operation, where the code differs by operation and named shapes; a step
        that only `other` has is "added", one that only this run has is "gone".

        Example:
            d = yours.diff(reference, names=("yours", "reference"))
            print(d.sentence)

        Raises:
            TypeError: `other` is no Trace.
        """
        if not isinstance(other, Trace):
            text = "diff compares with another trace, t.diff(u); this is of type {kind}."
            raise TypeError(say(text, kind=type(other).__name__))
        a, b = ((*data.ops, data.failed) if data.failed else data.ops for data in (self._data, other._data))
        return Diff(a, b, names)

    # ------------------------------------------------------------ what it costs

    def costs(self, by: By = "operation") -> costs.CostTable:
        """Return what the run costs by `"operation"`, `"module"` or `"line"` of code, the most expensive first.

        Its `rows` are `Cost` records (FLOPs, bytes read, written and new); printed or shown in a notebook it is a table
        with bars. How FLOPs and bytes are counted: `tracer.costs`.

        Raises:
            ValueError: `by` is none of these.
        """
        return costs.table(self._data, by)

    @property
    def flops(self) -> int:
        """FLOPs of all products, 2·m·n·k each; the backward pass is not in it."""
        return sum(op.flops for op in outermost(self._data.ops))

    @property
    def bytes_read(self) -> int:
        """Bytes that the operations read; memory that two of them read counts twice."""
        return sum(op.bytes_read for op in outermost(self._data.ops))

    @property
    def bytes_written(self) -> int:
        """Bytes that the operations wrote, in place as well."""
        return sum(op.bytes_written for op in outermost(self._data.ops))

    @property
    def bytes_new(self) -> int:
        """Bytes of memory that results were given, freed or not."""
        return sum(op.bytes_new for op in outermost(self._data.ops))

    @property
    def peak(self) -> Peak:
        """The most bytes of activations alive at one time, and the operation at which they were: `t.peak.bytes`.

        What counts as alive is said in `tracer.costs.peak`: the least that the run needs, without gradients.
        """
        return peak(self._data.ops, self._data.returned)

    @overload
    def memory(self) -> Sharing: ...
    @overload
    def memory(self, op: int | Op) -> Picture: ...
    def memory(self, op: int | Op | None = None) -> Picture | Sharing:
        """Return what memory did in one operation, or which tensors of the run share one memory.

        `t.memory(8)`, or `t.memory(op)` with an operation of this trace, is a picture: the storage's cells in order,
        the tensor before and after, strides, and why a copy was made; its `svg` is the SVG text. `t.memory()` is a
        table of memories that several tensors share. Both print as text and show themselves in a notebook.

        Raises:
            IndexError: there is no operation at this place.
        """
        ops = self._data.ops
        if op is None:
            return sharing(ops)
        one = ops[op] if isinstance(op, int) else op
        return picture(one, [later for later in ops if later.index > one.index])

    # ------------------------------------------------------------ by hand

    def name(self, x: Any, axes: str) -> None:
        """Name a tensor's axes by hand, inside the `with tracer.record() as t:` block: `t.name(x, "B T C")`.

        Raises:
            TracerError: the block is not open.
        """
        if self._recorder is None:
            raise TracerError(
                "t.name(x, ...) works inside an open `with tracer.record() as t:` block; this run is over."
            )
        self._recorder.name(x, axes)

    # ------------------------------------------------------------ showing and keeping

    def to_text(self, fold: bool = True) -> str:
        """Return the trace as text by line of code; `fold` shows repeated blocks once."""
        return self._asked or text.to_text(self._data, fold)

    def to_html(self, fold: bool = True) -> str:
        """Return the trace as one offline HTML page: the player (`t.play()`), and under it the trace as a table.

        `fold` shows repeated blocks once and keeps them in reach. Without scripts the table is what shows.
        """
        return player.page(self._data, self._code(), fold)

    def play(self, fold: bool = True) -> Any:
        """Return the player: a widget that steps through the trace by operation or by line, with the code beside it.

        `fold` starts with repeated blocks folded away. Where no widget can live, a notebook shows the table instead.
        """
        data = player.pack(self._data, self._code(), fold)
        return Trace._later("player").Player(data, html.fragment(self._data, fold))

    def _code(self) -> dict[Source, Listing]:
        """Return the text around the lines that ran, as far as the files still have it."""
        data = self._data
        return listings((*data.ops, data.failed) if data.failed else data.ops)

    def to_svg(self, module: str = "", *, depth: int | None = None, width: float = 760.0) -> svg.Svg:
        """Return the run as a flow figure, one SVG: boxes for modules, named shapes on the lines between them.

        Addition by addition, the residual stream runs through it as a thick line. Repeated blocks are drawn once.

        Args:
            module: the path of the module to draw (`"blocks.0"`); all of the run without it.
            depth: how many levels of modules are opened; by itself it opens those with a residual addition.
            width: of the figure, in pixels; what is longer goes on in another row.

        Raises:
            ValueError: nothing ran in this module, or `depth` or `width` leave nothing to draw.
        """
        return svg.to_svg(self._picture(module, depth, width))

    def figure(self, module: str = "", *, depth: int | None = None, width: float = 760.0) -> Any:
        """Return the flow figure as a `matplotlib.figure.Figure`; arguments as in `to_svg`."""
        picture = self._picture(module, depth, width)
        return Trace._later("drawing").figure(picture, svg.to_svg(picture))

    def _picture(self, module: str, depth: int | None, width: float) -> plan.Picture:
        return plan.picture(flow_of(self._data, module, depth), header_sizes(self._data), width)

    def to_json(self) -> str:
        """Return the trace as JSON text for `from_json`; `output` is not part of it."""
        return serialise.to_json(self._data)

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Read a trace that `to_json` wrote; needs no torch and no model.

        Raises:
            TraceFileError: the text is not a saved trace, is damaged, or from an unknown version.
        """
        return cls._of(serialise.from_json(text))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        data = self._data
        parts = text.summary(data).split("   ")
        if data.warnings:
            parts.append(say_count("{n} warning", "{n} warnings", len(data.warnings)))
        return f"<Trace: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        if self._asked:
            return f"<p>{html.esc(self._asked)}</p>"
        return html.fragment(self._data)


def _variables(sheet: Sheet) -> dict[str, tuple[TensorInfo, Op | None]]:
    """Return the last tensor of each variable; parameters have paths for names (`wte.weight`) and are left out.

    A variable of the steps inside an operation counts only where the traced code has none of that name.
    """
    found: dict[str, tuple[TensorInfo, Op | None]] = {}
    inside: dict[str, tuple[TensorInfo, Op | None]] = {}
    made: set[int] = set()
    for op in sheet.ops:
        for info in op.inputs:
            if info.variable and info.id not in made and "." not in info.variable:
                found.setdefault(info.variable, (info, None))
        made.update(out.id for out in op.outputs)
        into = found if op.parent is None else inside
        into.update({out.variable: (out, op) for out in op.outputs if out.variable})
        by_caller = sheet.names.get(op.index, ())
        if len(by_caller) != len(op.outputs):
            by_caller = by_caller[:1] * len(op.outputs)
        found.update({name: (out, op) for out, name in zip(op.outputs, by_caller, strict=False)})
    return found | {name: known for name, known in inside.items() if name not in found}
