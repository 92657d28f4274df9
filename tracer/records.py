"""What was recorded, as plain data: no tensors, no torch.

`Log` is the raw notebook that the engine writes while the model runs; `Op` and `TensorInfo` are what a reader
gets after the axes have been named. Naming is left to `namer`, showing to `render`.
"""

from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Literal, NamedTuple

from .speech import _

__all__ = ["Call", "Fact", "Failure", "Line", "Log", "Op", "Ref", "Site", "Slice", "Source", "TensorInfo"]

Memory = Literal["view", "same", "in-place", "new"]


# ------------------------------------------------------------------ what a reader sees


@dataclass(frozen=True, slots=True)
class Source:
    """Where an operation was called: `file`, `line` (from 1), and the text of that line, stripped."""

    file: str
    line: int
    code: str

    @property
    def place(self) -> str:
        """Short text: `attention.py:41`, or `cell:3` in a notebook."""
        path = PureWindowsPath(self.file) if "\\" in self.file else PurePosixPath(self.file)
        in_notebook = path.parent.name.startswith("ipykernel_") or path.name.startswith("<ipython-input")
        return f"{_('cell') if in_notebook else path.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as it stood at one operation.

    `id` and `storage` are numbers within the trace (two tensors with one `storage` share memory); `offset` and
    `stride` are in elements. `axes` has a name for each entry of `shape`, `?` where none can be known. `origins`
    tells whose an axis is where a name stands twice (`"T of q"`), else None. `memory` says what the operation
    that made it did; None for a tensor from outside the run, and where storage cannot be asked.
    """

    id: int
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    label: str
    variable: str | None
    dtype: str
    device: str
    stride: tuple[int, ...] | None
    contiguous: bool | None
    storage: int | None
    offset: int | None
    memory: Memory | None
    origins: tuple[str | None, ...]
    values: Any = None


@dataclass(frozen=True, slots=True)
class Op:
    """One tensor operation, under the name the user wrote.

    `args` are its non-tensor arguments, printable, keywords as `"dim=-1"`. `module` is the path of the module whose
    forward called it (`""` for the model itself). `flops` counts 2·m·n·k for products, 0 for other operations
    (`costs.flops_of`); `bytes_read`, `bytes_written`: memory it must touch, 0 for a view (`costs.traffic`);
    `bytes_new` is memory newly taken by the outputs. `parent` is the index of the operation that
    this one was opened from; it stands before the steps inside it. Those of einops ran as they stand here. Those of an
    opened kernel or layer tell what it computes, without having run: their `memory` is None and they took no memory.
    """

    index: int
    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    args: tuple[Any, ...]
    module: str
    source: Source | None
    flops: int
    bytes_read: int
    bytes_written: int
    bytes_new: int
    parent: int | None = None

    @property
    def variable(self) -> str | None:
        """Name of the variable that the first output was assigned to, or None."""
        return self.outputs[0].variable if self.outputs else None

    @property
    def memory(self) -> Memory | None:
        """Memory kind of the first output, or None."""
        return self.outputs[0].memory if self.outputs else None


@dataclass(frozen=True, slots=True)
class Line:
    """The operations that one pass over one source line ran, in order. `source` is None where it is not known."""

    source: Source | None
    module: str
    ops: tuple[Op, ...]


# ------------------------------------------------------------------ what the engine writes


class Call:
    """One torch function, once per process: `name` is what the user wrote; compared by identity."""

    __slots__ = ("inplace", "name", "skip")

    def __init__(self, name: str, skip: bool = False, inplace: bool = False) -> None:
        """`skip`: never recorded (`.shape`, `.dtype`); `inplace`: writes into its first tensor."""
        self.name, self.skip, self.inplace = name, skip, inplace

    def __repr__(self) -> str:
        return f"Call({self.name})"


class Ref:
    """Stands for a tensor in recorded arguments: `Ref.at(i)` is fact number `i` of the log; compared by identity.

    `alone` is the tuple that holds this one: the outputs of most operations.
    """

    __slots__ = ("alone", "fact")
    _pool: ClassVar["list[Ref]"] = []

    def __init__(self, fact: int) -> None:
        self.fact, self.alone = fact, (self,)

    @classmethod
    def at(cls, fact: int) -> "Ref":
        """Return the one Ref of this number (so that equal logs are equal)."""
        pool = cls._pool
        while len(pool) <= fact:
            pool.append(cls(len(pool)))
        return pool[fact]

    def __repr__(self) -> str:
        return f"Ref({self.fact})"


class Slice(NamedTuple):
    """A slice in recorded arguments (Python 3.11's own is not hashable)."""

    start: Any
    stop: Any
    step: Any


class Fact(NamedTuple):
    """One appearance of a tensor: an in-place operation gives the same `tensor` (number of its first fact) a new one.

    The engine stores plain tuples in this order, for speed. `dtype` and `device` are torch's objects or text; both
    are shown by `str`. `stride`, `offset`, `storage` are None where they can't be asked.
    """

    tensor: int
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int | None
    storage: int | None
    dtype: Any
    device: Any


class Site:
    """One call in the user's code, once per (code object, instruction); compared by identity.

    `names`: what the statement assigns the result to: `("q",)`, `("q", "k", "v")` when a tuple is unpacked, or `()`.
    `literals`: text of the call's arguments, or of the entries of an index, as written (`("B", "T", "1", "C")`), or ()
    where the source is unknown.
    `returned`: the result is what the function returns, so the caller's statement may name it.
    `instruction` orders the calls of one line; `function` is the name of the function the line stands in.
    """

    __slots__ = ("function", "instruction", "literals", "names", "returned", "source")

    def __init__(
        self,
        source: Source,
        names: tuple[str, ...] = (),
        literals: tuple[str, ...] = (),
        returned: bool = False,
        instruction: int = 0,
        function: str = "",
    ) -> None:
        self.source, self.names, self.literals = source, names, literals
        self.returned, self.instruction, self.function = returned, instruction, function


class Failure(NamedTuple):
    """The call that raised: as in an event, without outputs, and the exception's type name and text."""

    call: Call
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    site: Site | None
    module: str
    error: str
    message: str


@dataclass
class Log:
    """Everything one run left behind, free of tensors.

    `events` holds plain tuples `(call, args, kwargs, outputs, memory, site, module, parent)`: args with each tensor
    replaced by its `Ref` (lists become tuples, slices `Slice`), kwargs as `((name, value), ...)`, `outputs` a tuple of
    Refs, `memory` a tuple with one kind (or None) for each output, `site` a Site or None, `module` a path, `parent`
    an event's index or None.
    """

    events: list[tuple[Any, ...]] = field(default_factory=list)
    facts: list[tuple[Any, ...]] = field(default_factory=list)
    sources: dict[int, tuple[str, str]] = field(default_factory=dict)
    """first fact of a tensor not made in the run -> ("input" | "parameter" | "buffer" | "constant", its name or "")"""
    given: dict[int, str] = field(default_factory=dict)
    """fact -> axes text, from `axes=`, `t.name`, `model.axes`"""
    caller_names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """event -> variables that the CALLER's statement gave its returned result (for `t[...]`, not `op.variable`)"""
    sizes: dict[str, int] = field(default_factory=dict)
    work: dict[int, tuple[int, int]] = field(default_factory=dict)
    """event of a module that ran as one operation -> its FLOPs, and the bytes of the parameters inside it"""
    returned: frozenset[int] | None = None
    """storages of the tensors in what the call returned; None where nobody says what is a result"""
    values: dict[int, Any] = field(default_factory=dict)
    """fact -> nested lists of numbers, with keep_values"""
    notices: list[str] = field(default_factory=list)
    """things the engine has to say about the run itself; shown among the warnings"""
    failure: Failure | None = None
