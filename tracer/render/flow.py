"""From operations to a flow: boxes for modules and lines of code, and the tensors that run between them.

Nothing is drawn here. What is joined to what is read from the tensors' numbers in the trace; an addition is a residual
one where one operand was computed from the other, with a product on the way, and both have one shape.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby, pairwise
from typing import Literal

from ..records import Line, Op, TensorInfo
from ..speech import say, say_count
from .layout import Repeat, Sheet, block_of, fold, lines, operands, owner, plain, span_of

__all__ = ["Flow", "Net", "Node", "flow_of"]

Kind = Literal["box", "step", "add", "input", "output", "stopped", "from", "to"]
"""A module; a line of code; a residual addition; a tensor from outside; one that leaves; the operation that raised;
a tensor that goes on in another row."""


@dataclass(frozen=True)
class Node:
    """One box of the flow. `rows` are the operations inside that matter: a name, and a named shape or ""."""

    key: int
    kind: Kind
    title: str
    path: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    ops: tuple[Op, ...] = ()
    frame: str = ""
    """the numbered block that it belongs to, or "" where it stands in none"""
    main: int | None = None
    """the node that its first operand comes from, followed back from its result"""


@dataclass(frozen=True)
class Net:
    """One tensor: the node it comes from and the nodes that read it. `rail`: it is the residual stream."""

    source: int
    sinks: tuple[int, ...]
    info: TensorInfo
    rail: bool = False
    tensor: int = 0
    """the tensor's number; equal blocks share one"""

    @property
    def name(self) -> str:
        """The variable and the named shape: `q [B, H, T, D]`."""
        variable = self.info.variable
        return f"{variable} {self.info.label}" if variable and "." not in variable else self.info.label


@dataclass(frozen=True)
class Flow:
    """Nodes in the order in which they ran, and what runs between them."""

    title: str
    nodes: tuple[Node, ...] = ()
    nets: tuple[Net, ...] = ()
    spine: frozenset[int] = frozenset()
    """nodes on the main path: the residual stream where there is one"""
    starts: tuple[int, ...] = ()
    """the first node of each further stream (a decoder's beside an encoder's)"""
    notes: Mapping[str, str] = field(default_factory=dict)
    """what to say of a frame: the blocks that ran as it did"""
    empty: str = ""
    twice: tuple[str, ...] = ()
    """shapes in which a name stands twice, with whose each is: `scores [B, H, T of q, T of k]`"""

    @property
    def residual(self) -> bool:
        """Whether a residual stream was found."""
        return any(node.kind == "add" for node in self.nodes)

    def text(self) -> list[str]:
        """Return the flow in words: a line for each box, what it reads and what it gives."""
        if self.empty:
            return [self.empty]
        titles = {node.key: node.title for node in self.nodes}
        into: dict[int, list[str]] = {}
        out: dict[int, list[str]] = {}
        for net in self.nets:
            out.setdefault(net.source, []).append(net.name)
            for sink in net.sinks:
                stream = say(", the residual stream") if net.rail else ""
                into.setdefault(sink, []).append(
                    say("{tensor} from {box}", tensor=net.name, box=titles[net.source]) + stream
                )
        found, frame = [], ""
        for node in self.nodes:
            if node.frame != frame and (frame := node.frame):
                found.append(self.notes.get(frame) or frame)
            if node.kind not in ("input", "output"):
                reads, gives = ("; ".join(part.get(node.key, ["-"])) for part in (into, out))
                does = ", ".join(" ".join(filter(None, row)) for row in node.rows)
                box = f"{node.title} ({does})" if does and does != node.title else node.title
                found.append(say("{box}: {reads} -> {gives}", box=box, reads=reads, gives=gives))
        return [plain(line) for line in found]


def flow_of(sheet: Sheet, module: str = "", depth: int | None = None) -> Flow:
    """Return the flow of one module of a trace; of the whole trace for `""`.

    `depth` is how many levels of modules below it are opened; None: those that hold a residual addition, and the first.

    Raises:
        ValueError: no operation ran in this module; or `depth` is below 1.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise ValueError(
            say("depth={depth} opens no module. Give a whole number of at least 1, or leave it out.", depth=depth)
        )
    return _Reader(sheet, module, depth).flow()


# ---------------------------------------------------------------- what matters inside a box


_MATTERS = {
    *("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "embedding", "softmax", "log_softmax", "topk"),
    *("scaled_dot_product_attention", "multi_head_attention_forward", "layer_norm", "rms_norm", "batch_norm"),
    *("group_norm", "masked_fill", "masked_fill_", "gelu", "relu", "silu", "tanh", "sigmoid", "conv1d", "conv2d"),
    *("conv3d", "cat", "stack", "cross_entropy", "lstm", "gru", "rnn_tanh", "rnn_relu", "index_add_", "cumsum"),
    *("nll_loss", "mse_loss", "max_pool2d", "avg_pool2d", "rearrange", "reduce", "repeat"),
}
"""Operations that a box names first; others follow while there is room."""
_MOST_ROWS = 7
_MOST_NODES = 40


def _rows(ops: Sequence[Op]) -> tuple[tuple[str, str], ...]:
    """Return the operations that a box shows, equal neighbours counted; a last row says how many are left out."""
    shown = [op for op in ops if op.outputs and op.memory != "same"]
    if len(_counted(shown)) > _MOST_ROWS:
        shown = [op for op in shown if op.flops or op.name in _MATTERS] or shown
    rows = _counted(shown)
    if len(rows) > _MOST_ROWS:
        rows = rows[: _MOST_ROWS - 1]
    hidden = len([op for op in ops if op.outputs and op.memory != "same"]) - sum(n for _, _, n in rows)
    text = [(f"{n} x {name}" if n > 1 else name, label) for name, label, n in rows]
    return (*text, *([(say("and {n} more", n=hidden), "")] if hidden else []))


def _counted(ops: Sequence[Op]) -> list[tuple[str, str, int]]:
    pairs = [(op.name, op.outputs[0].label) for op in ops]
    return [(name, label, len(list(run))) for (name, label), run in groupby(pairs)]


def _again(repeat: Repeat) -> str:
    """Say which blocks a frame stands for."""
    names = [path for path, _ in repeat.others]
    if {*names} == {repeat.path}:
        return say_count("{path}, and {n} more time", "{path}, and {n} more times", len(names), path=repeat.path)
    return say("{path}, and the same again: {span}", path=repeat.path, span=span_of(names))


# ---------------------------------------------------------------- reading a trace


@dataclass
class _Group:
    """Operations that one box stands for."""

    kind: Kind
    path: str
    ops: list[Op]
    frame: str


class _Reader:
    """Reads one flow out of a trace, step by step."""

    def __init__(self, sheet: Sheet, module: str, depth: int | None) -> None:
        self.sheet, self.module, self.depth = sheet, module, depth
        self.scope = [op for op in sheet.ops if op.parent is None and self._inside(op.module)]
        if module and not self.scope and not (sheet.failed and self._inside(sheet.failed.module)):
            parts = [op.module.split(".") for op in sheet.ops if op.module]
            paths = {".".join(part[:n]): n for part in parts for n in range(1, len(part) + 1)}
            near = get_close_matches(module, paths, n=1) or sorted(path for path, n in paths.items() if n == 1)
            text = "no operation ran in module={module}. There are: {known}"
            raise ValueError(say(text, module=repr(module), known=", ".join(near) or "-"))
        self.called = {op.module for op in self.scope}
        self.same: dict[int, int] = {}
        self.frames: dict[int, str] = {}
        self.notes: dict[str, str] = {}
        self.ops = self._folded()
        self.adds = self._residual()
        self.open = self._opened()

    def _inside(self, path: str) -> bool:
        return not self.module or path == self.module or path.startswith(f"{self.module}.")

    # ------------------------------------------------------------ 1: repeated blocks, once

    def _folded(self) -> list[Op]:
        """Return the operations to show; tensors of a block that is left out stand for those of the block shown."""
        kept: list[Op] = []

        def walk(items: Iterable[Line | Repeat], frame: str) -> list[Op]:
            whole: list[Op] = []
            for item in items:
                if isinstance(item, Line):
                    whole += item.ops
                    kept.extend(item.ops)
                    self.frames.update({op.index: frame for op in item.ops})
                    continue
                own = frame or item.path
                self.notes.setdefault(own, _again(item))
                first = walk(item.first, own)
                whole += first
                for _, body in item.others:
                    others = [op for line in body for op in line.ops]
                    whole += others
                    for one, other in zip(first, others, strict=True):
                        self._stand_for(one, other)
            return whole

        walk(fold(lines(self.scope), self.module), "")
        kept.sort(key=lambda op: op.index)
        made = {out.id for op in kept for out in op.outputs if out.memory != "same"}
        self.same = {one: other for one, other in self.same.items() if one not in made}
        return kept

    def _stand_for(self, shown: Op, hidden: Op) -> None:
        for one, other in zip(shown.outputs, hidden.outputs, strict=True):
            if other.memory not in ("same", "in-place"):
                self.same[other.id] = one.id

    def _id(self, info: TensorInfo) -> int:
        found = info.id
        while found in self.same and self.same[found] != found:
            found = self.same[found]
        return found

    # ------------------------------------------------------------ 2: who made what

    def _made_by(self) -> list[list[tuple[int | None, TensorInfo]]]:
        """Return, for each operation, its operands with the place of the operation that made or last wrote each."""
        maker: dict[int, int] = {}
        writer: dict[int, int] = {}
        found: list[list[tuple[int | None, TensorInfo]]] = []
        for at, op in enumerate(self.ops):
            reads: list[tuple[int | None, TensorInfo]] = []
            data = len(operands(op))
            for i, info in enumerate(op.inputs):
                made = maker.get(self._id(info))
                if made is None and i >= data:
                    continue  # a weight; one that the run made itself is data like any other
                wrote = writer.get(info.storage) if info.storage is not None else None
                if made is not None and wrote is not None and wrote > made:
                    made = wrote
                elif made is None and wrote is not None:
                    made = wrote
                reads.append((made, info))
            found.append(reads)
            changed = op.outputs or op.inputs[:1]
            for info in changed:
                if info.memory == "same" and op.outputs:
                    continue
                maker[self._id(info)] = at
                if (info.memory == "in-place" or not op.outputs) and info.storage is not None:
                    writer[info.storage] = at
        return found

    # ------------------------------------------------------------ 3: residual additions

    def _residual(self) -> dict[int, int]:
        """Return the residual additions: index of the operation -> which operand is the stream."""
        self.reads = self._made_by()
        outside: dict[int, int] = {}
        size = len(self.ops)
        above: list[int] = []  # for each operation a set of bits: all operations and outside tensors it depends on
        products = 0
        found: dict[int, int] = {}

        def bits(made: int | None, info: TensorInfo) -> tuple[int, int]:
            """Return the bit of a tensor, and all that it depends on with it."""
            if made is None:
                bit = 1 << (size + outside.setdefault(self._id(info), len(outside)))
                return bit, bit
            return 1 << made, above[made] | 1 << made

        def roots(bit: int) -> Iterator[int]:
            """Yield a tensor and what it was before something was added: parallel branches read the stream early."""
            yield bit
            while bit < 1 << size and (stream := found.get(self.ops[bit.bit_length() - 1].index)) is not None:
                bit = bits(*self.reads[bit.bit_length() - 1][stream])[0]
                yield bit

        for at, op in enumerate(self.ops):
            own = [bits(made, info) for made, info in self.reads[at]]
            if op.name in ("add", "add_", "__iadd__", "__add__", "__radd__") and len(own) == 2:
                (a, all_a), (b, all_b) = own
                shapes = {(info.shape, info.label) for info in (*operands(op), *op.outputs[:1])}
                if len(shapes) == 1 and op.outputs and op.outputs[0].shape:
                    for stream, one, rest in ((0, a, all_b), (1, b, all_a)):
                        if any(rest & bit and self._product_between(bit, rest & products, above) for bit in roots(one)):
                            found[op.index] = stream
            above.append(0)
            for _, everything in own:
                above[at] |= everything
            if op.flops or op.name in _PRODUCTS:
                products |= 1 << at
        return found

    def _product_between(self, start: int, products: int, above: Sequence[int]) -> bool:
        while products:
            at = products.bit_length() - 1
            if above[at] & start:
                return True
            products ^= 1 << at
        return False

    # ------------------------------------------------------------ 4: which modules are opened

    def _opened(self) -> set[str]:
        opened = {self.module}
        if self.depth is not None:
            base = self.module.count(".") + 1 if self.module else 0
            for op in self.ops:
                parts = op.module.split(".")
                opened |= {".".join(parts[:n]) for n in range(base, min(base + self.depth, len(parts)))}
            return self._without_containers(opened)
        for op in self.ops:
            if op.index in self.adds:
                parts = op.module.split(".")
                opened |= {".".join(parts[:n]) for n in range(1, len(parts) + 1) if op.module}
        opened = self._without_containers(opened)
        while len(found := {self._box(op, opened) for op in self.ops}) == 1 and (only := found.pop()):
            opened.add(only)  # one box alone tells nothing
        return opened

    def _without_containers(self, opened: set[str]) -> set[str]:
        """Open what only holds modules (a ModuleDict) too: its parts are called apart, with other code between."""
        while True:
            parts: dict[str, list[set[str]]] = {}
            for path, run in groupby(self.ops, key=lambda op: self._box(op, opened)):
                parts.setdefault(path, []).append({op.module for op in run})
            more = {p for p, runs in parts.items() if p and not self._ran(p) and any(run != runs[0] for run in runs)}
            if not more:
                return opened
            opened = opened | more

    def _box(self, op: Op, opened: set[str]) -> str:
        """Return the module that stands as one box for an operation, or "" where it stands on its own."""
        parts = op.module.split(".") if op.module else []
        start = self.module.count(".") + 1 if self.module else 0
        for n in range(start + 1, len(parts) + 1):
            path = ".".join(parts[:n])
            if path not in opened and not (n < len(parts) and parts[n].isdigit() and not self._ran(path)):
                return path
        return ""

    def _ran(self, path: str) -> bool:
        return path in self.called

    # ------------------------------------------------------------ 5: boxes

    def _groups(self, by_line: bool) -> list[_Group]:
        found: list[_Group] = []
        last: object = None
        for op in self.ops:
            path = self._box(op, self.open)
            frame = self._frame(op)
            kind: Kind = "box" if path else "add" if op.index in self.adds else "step"
            key = (kind, path, frame, op.source if kind == "step" and by_line else None, op.module if not path else "")
            if kind == "add" or key != last:
                found.append(_Group(kind, path or op.module, [], frame))
            found[-1].ops.append(op)
            last = key if kind != "add" else None
        return [part for group in found for part in _calls(group)]

    def _frame(self, op: Op) -> str:
        if self.frames[op.index]:
            return self.frames[op.index]
        path = owner(op) if op.source else op.module
        block = block_of(path, self.module)
        return block if block in self.open else ""

    # ------------------------------------------------------------ 6: the flow

    def flow(self) -> Flow:
        """Put it together."""
        title = self.module or say("the whole run")
        if not self.ops and self.sheet.failed is None:
            return Flow(title, empty=say("No operation ran."))
        groups = self._groups(by_line=True)
        if len(groups) > _MOST_NODES:
            groups = self._groups(by_line=False)
        groups = [g for g in groups if not all(op.memory == "same" for op in g.ops)]
        if not groups and self.sheet.failed is None:
            return Flow(title, empty=say("Each operation returned its input as it was."))
        nodes, nets = self._joined(groups)
        nodes, nets, more = _loops(nodes, nets)
        nodes, nets = _without_dead_ends(nodes, nets, self._kept(nodes))
        nodes, nets = self._with_ends(nodes, nets)
        frames = {node.frame for node in nodes}
        notes = {path: note for path, note in (self.notes | more).items() if path in frames}
        spine, starts = _streams(nodes, nets)
        twice = _told_apart(op for node in nodes for op in node.ops)
        return Flow(title, tuple(nodes), tuple(nets), frozenset(spine), tuple(starts), notes, twice=twice)

    def _title(self, group: _Group) -> str:
        if group.kind == "add":
            return "+"
        if group.kind == "box":
            base = self.module or (group.frame if group.path.startswith(f"{group.frame}.") else "")
            return group.path.removeprefix(f"{base}.") if base else group.path
        names = list(dict.fromkeys(out.variable for op in group.ops for out in op.outputs if out.variable))
        return ", ".join(names[-3:]) or group.ops[-1].name

    def _joined(self, groups: Sequence[_Group]) -> tuple[list[Node], list[Net]]:
        """Return the boxes and every tensor between two of them, or into them from outside."""
        place = {op.index: at for at, op in enumerate(self.ops)}
        node_of: dict[int, int] = {}
        for key, group in enumerate(groups):
            node_of.update({place[op.index]: key for op in group.ops})
        nodes = [
            Node(key, g.kind, self._title(g), g.path, () if g.kind == "add" else _rows(g.ops), tuple(g.ops), g.frame)
            for key, g in enumerate(groups)
        ]
        ends: dict[tuple[int, int], list[int]] = {}
        infos: dict[tuple[int, int], TensorInfo] = {}
        rails: set[tuple[int, int]] = set()
        pills: dict[int, TensorInfo] = {}

        def read(at: int | None, info: TensorInfo, sink: int) -> tuple[int, int] | None:
            made = self._through(at, info, node_of)
            if made is None:
                if not _is_data(info):
                    return None
                pills.setdefault(self._id(info), info)
                net = (-1 - self._id(info), self._id(info))
            else:
                net = (node_of[made], self._id(info))
            if net[0] != sink:
                ends.setdefault(net, [])
                infos.setdefault(net, self._as_made(made, info))
                if sink not in ends[net]:
                    ends[net].append(sink)
            return net

        for at, op in enumerate(self.ops):
            if at not in node_of:
                continue
            for i, (made, info) in enumerate(self.reads[at]):
                found = read(made, info, node_of[at])
                if found and self.adds.get(op.index) == i:
                    rails.add(found)
        if self.sheet.failed is not None and self._inside(self.sheet.failed.module):
            nodes.append(self._failed(len(nodes)))
            last = {self._id(info): at for at, op in enumerate(self.ops) for info in op.outputs}
            for info in operands(self.sheet.failed):
                read(last.get(self._id(info)), info, nodes[-1].key)
        for key, node in enumerate(nodes):
            if node.kind == "add":
                out = (key, self._id(node.ops[0].outputs[0]))
                infos.setdefault(out, node.ops[0].outputs[0])
                ends.setdefault(out, [])
                rails.add(out)
        nodes = [replace(node, main=self._main(node, place, node_of)) for node in nodes]
        inputs = [Node(-1 - i, "input", _input_name(info)) for i, info in pills.items()]
        nets = [Net(n[0], tuple(sinks), infos[n], n in rails, n[1]) for n, sinks in ends.items()]
        return [*inputs, *nodes], nets

    def _main(self, node: Node, place: Mapping[int, int], node_of: Mapping[int, int]) -> int | None:
        """Return the node before this one on the way back from its result, by first operands; masks are passed by."""
        given = [op for op in node.ops if op.outputs and op.index in place]
        at = place[given[-1].index] if given else None
        while at is not None:
            data = [read for read in self.reads[at] if "bool" not in read[1].dtype] or self.reads[at]
            if self.adds.get(self.ops[at].index) is not None:
                data = data[self.adds[self.ops[at].index] :]
            if not data:
                return None
            made, info = data[0]
            made = self._through(made, info, node_of)
            if made is None:
                return -1 - self._id(info) if _is_data(info) else None
            if node_of[made] != node.key:
                return node_of[made]
            if made >= at:
                return None
            at = made
        return None

    def _through(self, at: int | None, info: TensorInfo, node_of: Mapping[int, int]) -> int | None:
        """Return the operation whose box gave a tensor; steps that stand in no box are passed over."""
        while at is not None and at not in node_of:
            reads = self.reads[at]
            at = reads[0][0] if reads else None
        return at

    def _as_made(self, made: int | None, info: TensorInfo) -> TensorInfo:
        """Return a tensor as its maker left it; a variable that the reader knows is kept where the maker had none."""
        if made is None:
            return info
        out = next((o for o in self.ops[made].outputs if o.id == info.id or self._id(o) == self._id(info)), info)
        return out if out.variable or not info.variable else replace(out, variable=info.variable)

    def _failed(self, key: int) -> Node:
        op = self.sheet.failed
        assert op is not None
        title = say("{name}: stopped here", name=op.name)
        return Node(key, "stopped", title, op.module, (), (op,), "")

    def _kept(self, nodes: Sequence[Node]) -> set[int]:
        """Return the boxes whose results leave: returned, read outside the module, or the last of all."""
        outer = {i.id for op in self.sheet.ops if op.parent is None and not self._inside(op.module) for i in op.inputs}
        wanted = {self._id(out) for op in self.scope for out in op.outputs if out.id in outer}
        returned = self.sheet.returned or frozenset()
        found = {nodes[-1].key} if nodes else set()
        for node in nodes:
            for out in (out for op in node.ops for out in op.outputs):
                if self._id(out) in wanted or (not self.module and out.storage in returned):
                    found.add(node.key)
        self.leaves = wanted
        return found

    def _with_ends(self, nodes: list[Node], nets: list[Net]) -> tuple[list[Node], list[Net]]:
        """Give what leaves the module, or the run, an end of its own."""
        returned = (self.sheet.returned or frozenset()) if not self.module else frozenset()
        by_source: dict[int, list[int]] = {}
        for i, net in enumerate(nets):
            by_source.setdefault(net.source, []).append(i)
        nets = list(nets)
        out: list[Node] = []
        key = max((node.key for node in nodes), default=0) + 1
        last = next((n.key for n in reversed(nodes) if n.kind not in ("input", "stopped")), None)
        for node in nodes:
            made = {self._id(o): o for op in node.ops for o in op.outputs} if node.kind != "stopped" else {}
            used = {self._id(nets[i].info): i for i in by_source.get(node.key, [])}
            ends = [i for i, o in made.items() if i in self.leaves or o.storage in returned]
            final = [self._id(node.ops[-1].outputs[0])] if node.key == last and node.ops[-1].outputs else []
            if self.sheet.failed is not None or (returned and ends):
                final = []
            for i in dict.fromkeys([*ends, *final]):
                if i in used and nets[used[i]].sinks and i not in self.leaves:
                    continue
                if returned and made[i].storage in returned and not _last_of_storage(i, made, self._id):
                    continue
                end = Node(key, "output", say("out"))
                if i in used:
                    net = nets[used[i]]
                    nets[used[i]] = replace(net, sinks=(*net.sinks, key))
                else:
                    nets.append(Net(node.key, (key,), made[i], tensor=i))
                out.append(end)
                key += 1
        return [*nodes, *out], [net for net in nets if net.sinks]


def _told_apart(ops: Iterable[Op], most: int = 4) -> tuple[str, ...]:
    """Return each shape whose axes need telling apart once, under the variable that has it first."""
    found: dict[str, str] = {}
    for out in (out for op in ops for out in op.outputs if any(out.origins)):
        label = f"[{', '.join(origin or axis for origin, axis in zip(out.origins, out.axes, strict=True))}]"
        if found.get(label, label) == label:
            found[label] = f"{out.variable} {label}" if out.variable else label
    return tuple(found.values())[:most]


_PRODUCTS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "conv1d", "conv2d", "conv3d"}
"""Products by name, for traces that were written without FLOPs."""


def _last_of_storage(key: int, made: Mapping[int, TensorInfo], number: object) -> bool:
    """Whether no later tensor of the same box is a view of the same memory."""
    keys = list(made)
    return not any(made[k].storage == made[key].storage for k in keys[keys.index(key) + 1 :])


def _is_data(info: TensorInfo) -> bool:
    """Tell data from parameters and buffers, which have paths for names, and from single numbers."""
    return "." not in (info.variable or "") and bool(info.shape)


def _input_name(info: TensorInfo) -> str:
    return info.variable or say("input")


def _calls(group: _Group) -> list[_Group]:
    """Cut a box in which one module was called, or one line passed over, several times in a row."""
    if group.kind == "add":
        return [group]
    signs = [(op.name, op.module, op.source, tuple(out.label for out in op.outputs)) for op in group.ops]
    for period in range(1, len(signs) // 2 + 1):
        whole = group.kind == "box" or group.ops[period - 1].variable  # a pass over a line ends in a variable
        if whole and len(signs) % period == 0 and signs[period:] == signs[:-period]:
            return [replace(group, ops=group.ops[i : i + period]) for i in range(0, len(signs), period)]
    return [group]


# ---------------------------------------------------------------- loops, dead ends


def _loops(nodes: list[Node], nets: list[Net]) -> tuple[list[Node], list[Net], dict[str, str]]:
    """Show a stretch of boxes that repeats three times or more (a recurrent cell) once, and say how often it ran."""
    signs = [(n.kind, n.title, n.path, n.rows) for n in nodes]
    into: dict[int, int] = {}
    frames: dict[int, str] = {}
    notes: dict[str, str] = {}
    at = 0
    while at < len(nodes):
        best = (0, 0)
        for period in range(1, min(24, (len(nodes) - at) // 3) + 1):
            count = 1
            while signs[at + period * count : at + period * (count + 1)] == signs[at : at + period]:
                count += 1
            if count >= 3 and period * (count - 1) > best[0] * (best[1] - 1) and nodes[at].kind != "input":
                best = (period, count)
        period, count = best
        shown = nodes[at : at + period]
        carried = _carried(nodes[at + period : at + 2 * period], {n.key for n in shown}, nets)
        if not period or (count == 3 and not carried):  # q, k, v through one helper are no loop
            at += 1
            continue
        frame = say("{what} … {n} times", what=shown[0].title, n=count)
        notes[frame] = frame + (say(", each going on with what the one before gave") if carried else "")
        frames.update({n.key: frame for n in shown})
        for i in range(period, period * count):
            into[nodes[at + i].key] = nodes[at + i % period].key
        at += period * count
    if not into:
        return nodes, nets, {}
    kept = [
        replace(n, frame=frames.get(n.key, n.frame), main=into.get(n.main, n.main) if n.main is not None else None)
        for n in nodes
        if n.key not in into
    ]
    order = {n.key: i for i, n in enumerate(kept)}
    merged: dict[tuple[int, int], Net] = {}
    names = {(net.source, net.name): net.tensor for net in reversed(nets)}
    for net in nets:
        source = into.get(net.source, net.source)
        hidden = net.source in into
        sinks = [s for s in net.sinks if s not in into] if not hidden else [into.get(s, s) for s in net.sinks]
        sinks = [s for s in sinks if order[s] > order[source] and not (hidden and s in frames)]
        tensor = names.get((source, net.name), net.tensor) if hidden else net.tensor
        out = merged.get((source, tensor))
        known = (*(out.sinks if out else ()),)
        merged[source, tensor] = replace(
            out or net,
            source=source,
            tensor=tensor,
            sinks=(*known, *(s for s in dict.fromkeys(sinks) if s not in known)),
        )
    return kept, [net for net in merged.values() if net.sinks or net.rail], notes


def _carried(second: Sequence[Node], first: set[int], nets: Iterable[Net]) -> bool:
    keys = {n.key for n in second}
    return any(net.source in first and keys & {*net.sinks} for net in nets)


def _without_dead_ends(nodes: list[Node], nets: list[Net], kept: set[int]) -> tuple[list[Node], list[Net]]:
    """Leave out steps whose results nothing reads (a mask that is only looked at), and inputs that only they read."""
    while True:
        used = {net.source for net in nets if net.sinks}
        dead = {n.key for n in nodes if n.kind in ("step", "input") and n.key not in used and n.key not in kept}
        dead -= {n.key for n in nodes if n.kind == "step" and not any(op.outputs for op in n.ops)}
        if not dead or len(dead) == len(nodes):
            return nodes, nets
        nodes = [n for n in nodes if n.key not in dead]
        nets = [replace(net, sinks=tuple(s for s in net.sinks if s not in dead)) for net in nets]
        nets = [net for net in nets if net.source not in dead and (net.sinks or net.rail)]


# ---------------------------------------------------------------- streams


def _streams(nodes: Sequence[Node], nets: Sequence[Net]) -> tuple[set[int], list[int]]:
    """Return the nodes on the main path, and the first node of each further stream, in order.

    Streams that ran one after another (an encoder's, then a decoder's) each get rows of their own; what is woven into
    another stream stays beside it.
    """
    by_key = {node.key: node for node in nodes}
    order = {node.key: i for i, node in enumerate(nodes)}
    into: dict[int, list[Net]] = {}
    for net in nets:
        for sink in net.sinks:
            into.setdefault(sink, []).append(net)

    def before(key: int) -> int | None:
        found = into.get(key, [])
        if by_key[key].kind == "add":
            return next((net.source for net in found if net.rail), None)
        main = by_key[key].main
        return main if main in by_key else found[0].source if found else None

    def back(key: int | None) -> list[int]:
        path: list[int] = []
        while key is not None and key not in path:
            path.append(key)
            key = before(key)
        return path

    inner = [n.key for n in nodes if n.kind not in ("input", "output")]
    adds = [key for key in inner if by_key[key].kind == "add"]
    if not adds:
        spine = set(back(inner[-1]))
        return spine | _after(inner[-1], nets, order), []
    paths = [back(adds[-1])]
    seen = set(paths[0])
    for key in reversed(adds):
        if key not in seen and not seen & {*(path := back(key))}:
            paths.append(path)
            seen |= {*path}
    spans = []
    for path in paths:
        ran = [order[key] for key in path if by_key[key].kind != "input"]
        spans.append((min(ran), max(ran), path))
    spans.sort(key=lambda span: span[0])
    apart = all(a[1] < b[0] for a, b in pairwise(spans))
    if not apart:
        spans = [(0, 0, paths[0])]
    spine = {key for span in spans for key in span[2]}
    ends = [*(first for first, _, _ in spans[1:]), len(nodes)]
    for (_, _, path), end in zip(spans, ends, strict=True):
        spine |= _after(path[0], nets, order, {n.key for n in nodes[end:]} | spine)
    return spine, [nodes[first].key for first, _, _ in spans[1:]]


def _after(key: int, nets: Sequence[Net], order: Mapping[int, int], stop: Collection[int] = ()) -> set[int]:
    """Return what follows the end of a stream: from box to box while each has one that reads it first."""
    found: set[int] = set()
    while True:
        sinks = [s for net in nets if net.source == key for s in net.sinks if order[s] > order[key]]
        if len(sinks) != 1 or sinks[0] in found or sinks[0] in stop:
            return found
        key = sinks[0]
        found.add(key)
