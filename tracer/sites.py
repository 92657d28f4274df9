"""Where an operation was called: the user's frame, its source line, and the variables that its statement assigns.

Frames of torch, einops, the standard library and this package are passed over. What a call site says is read once per
(code object, instruction) from the source text, and kept. Only code objects and instruction numbers are read from
frames, never their variables: reading `f_locals` can keep tensors alive.
"""

import ast
import linecache
import os
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from .records import Site, Source

__all__ = [
    "BOUNDARY", "LIBRARY", "Place", "caller_names", "in_layer", "is_library", "locate", "of_einops", "outwards",
    "stop_at", "trail",
]  # fmt: skip


class Place(Site):
    """A Site, and what only the engine needs to know of it.

    `element`: with `returned`, the place in the returned tuple, or None where the result is all that is returned.
    `calls`: what the user's own function returns there is the value of the expression. `nested`: the names are those of
    nested tuples, in one row. `simple`: at most one name, and nothing is returned.
    """

    __slots__ = ("calls", "element", "nested", "simple", "variants")

    def __init__(self, source: Source, code: CodeType, instruction: int, found: "Found") -> None:
        super().__init__(source, found.names, found.literals, found.returned, instruction, code.co_name)
        self.element, self.calls, self.nested = found.element, found.calls, found.nested
        self.simple = len(found.names) < 2 and not found.returned
        self.variants: dict[tuple[str, ...], Place] = {self.names: self}

    def named(self, names: tuple[str, ...]) -> "Place":
        """Return this site with other names; always the same object for the same names: equal runs have equal logs."""
        place = self.variants.get(names)
        if place is None:
            place = self.variants[names] = Place.__new__(Place)
            for slot in (*Site.__slots__, *Place.__slots__):
                setattr(place, slot, getattr(self, slot))
            place.names = names
        return place


LIBRARY: dict[int, Place] = {}
"""Stands in the table for code that is passed over."""
BOUNDARY: dict[int, Place] = {}
"""Stands in the table for code at which the walk ends: what called `trace` is not what called the operation."""

_sites: dict[int, dict[int, Place]] = {}  # id(code) -> instruction -> Place; by id, since code objects hash slowly
_layer_sites: dict[int, dict[int, Place]] = {}  # the same for the code of torch's layers
_codes: dict[int, CodeType] = {}  # keeps each of them alive, so that no id is used twice
_LIMIT = 50_000
_MOST_TREES = 8  # a tree takes some 100 kB; the functions that run at one time are few


# ------------------------------------------------------------------ walking the frames


def locate(frame: FrameType | None) -> tuple[Place | None, FrameType | None]:
    """Return the first site in the user's code, from `frame` outwards, and its frame.

    Where a layer of torch is traced by itself there is no such code: then the layer's own line counts. (None, None) if
    there is neither.
    """
    place, where = outwards(frame)
    return (place, where) if where is not None else in_layer(frame)


def outwards(frame: FrameType | None) -> tuple[Place | None, FrameType | None]:
    """As `locate`, in the user's code only."""
    known = _sites
    while frame is not None:
        sites = known.get(id(frame.f_code))
        if sites is LIBRARY:
            frame = frame.f_back
        elif sites is None:
            _learn(frame.f_code)
        elif sites is BOUNDARY:
            break
        else:
            place = sites.get(frame.f_lasti)
            if place is None:
                place = sites[frame.f_lasti] = _read(frame.f_code, frame.f_lasti)
            return place, frame
    return None, None


def in_layer(frame: FrameType | None) -> tuple[Place | None, FrameType | None]:
    """Return the site in the code of the outermost layer of torch, as deep inside it as its own file goes."""
    frames: list[FrameType] = []
    while frame is not None and _sites.get(id(frame.f_code)) is not BOUNDARY:
        if frame.f_code.co_filename.startswith(_LAYERS) and not frame.f_code.co_filename.endswith(_CALLING):
            frames.append(frame)
        frame = frame.f_back
    for inner in frames:
        code = inner.f_code
        if code.co_filename == frames[-1].f_code.co_filename:
            sites = _layer_sites.setdefault(id(code), {})  # library code is kept alive by `_codes`
            place = sites.get(inner.f_lasti)
            if place is None:
                place = sites[inner.f_lasti] = _read(code, inner.f_lasti)
            return place, inner
    return None, None


def caller_names(frame: FrameType | None, place: Place) -> tuple[str, ...]:
    """Return the variables that the statement of a caller gives to what `place`, in `frame`, returns; () if none."""
    element = place.element
    while frame is not None:
        caller, frame = outwards(frame.f_back)
        if caller is None or not caller.calls:
            return ()
        if caller.names:
            if element is None:
                return caller.names
            return caller.names[element : element + 1] if len(caller.names) > 1 and not caller.nested else ()
        if not caller.returned or (element is not None and caller.element is not None):
            return ()
        element = caller.element if element is None else element
    return ()


def trail(frame: FrameType | None, end: FrameType | None) -> tuple[tuple[int, ...], CodeType | None]:
    """Return how far a library call has come, and its function: the instructions of the frames inwards from `end`."""
    steps, code = [], None
    while frame is not None and frame is not end:
        steps.append(frame.f_lasti)
        code, frame = frame.f_code, frame.f_back
    return tuple(reversed(steps)), code


def of_einops(code: CodeType) -> bool:
    """Tell whether code is that of einops."""
    return _EINOPS is not None and code.co_filename.startswith(_EINOPS)


def is_library(code: CodeType) -> bool:
    """Tell whether code belongs to torch or another library whose lines are not shown."""
    sites = _sites.get(id(code))
    return (_learn(code) if sites is None else sites) is LIBRARY


def is_users(code: CodeType) -> bool:
    """Tell whether code is neither a library's nor a boundary of the walk."""
    return not is_library(code) and _sites.get(id(code)) is not BOUNDARY


def stop_at(code: CodeType) -> None:
    """Make `code` a boundary of the walk."""
    _codes[id(code)], _sites[id(code)] = code, BOUNDARY


def _learn(code: CodeType) -> dict[int, Place]:
    if len(_sites) > _LIMIT:  # code made at run time without end
        for key in [k for k, v in _sites.items() if v is not BOUNDARY]:
            del _sites[key], _codes[key]
    sites = LIBRARY if _passed_over(code.co_filename) else {}
    _codes[id(code)], _sites[id(code)] = code, sites
    return sites


def _folder(package: str) -> str | None:
    spec = find_spec(package)
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else None


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SHOWN = (*(_HERE + part + os.sep for part in ("models", "lessons")), _HERE + "opened.py")
_EINOPS = _folder("einops")
_FOLDERS = tuple(f for f in (_HERE, *map(_folder, ("torch", "functorch")), _EINOPS) if f)
_LAYERS = (_folder("torch") or os.sep) + os.path.join("nn", "modules", "")
_CALLING = (os.sep + "module.py", os.sep + "container.py")
"""Files of torch that only call layers."""
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = (_STANDARD + "site-packages" + os.sep, _STANDARD + "dist-packages" + os.sep)


def _passed_over(file: str) -> bool:
    if file.startswith(_SHOWN):
        return False
    if file.startswith(_FOLDERS) or file.startswith(("<eval_with_key>", "<frozen ")) or "torchinductor_" in file:
        return True
    return file.startswith(_STANDARD) and not file.startswith(_PACKAGES)


# ------------------------------------------------------------------ reading the source


class Found:
    """What the source says about one call."""

    __slots__ = ("calls", "element", "literals", "names", "nested", "returned")

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.literals: tuple[str, ...] = ()
        self.element: int | None = None
        self.returned, self.nested, self.calls = False, False, True


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CALL_BACK = frozenset("all any apply filter list map max min next partial reduce set sorted sum tuple zip".split())
"""Functions that call what they are given: their result is not the result of that call."""

_trees: dict[tuple[str, int, int], tuple[Sequence[str], ast.AST | None]] = {}
"""(file, first line, last line) -> the file's lines, and the tree of that stretch; those used last."""


def _read(code: CodeType, instruction: int) -> Place:
    span = next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    line = span[0] if span[0] is not None else code.co_firstlineno
    lines, tree = _source(code)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    found = Found()
    if tree is not None and None not in span:
        _describe(_chain(tree, span), found, lines)
    return Place(Source(code.co_filename, line, text), code, instruction, found)


def _source(code: CodeType) -> tuple[Sequence[str], ast.AST | None]:
    """Return the lines of a file and the tree of one function: that of a whole file would take megabytes."""
    file = code.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    first, last = 1, len(lines)
    if not code.co_name.startswith("<"):  # a lambda or a comprehension is only part of a statement
        first = code.co_firstlineno
        last = max((end or first for _, end, _, _ in code.co_positions()), default=first)
    known = _trees.pop((file, first, last), None)
    if known is None or known[0] is not lines:
        known = lines, _parse(lines, first, last) or (_parse(lines, 1, len(lines)) if first > 1 else None)
    _trees[file, first, last] = known  # the last in the row is the one that was used last
    if len(_trees) > _MOST_TREES:
        _trees.pop(next(iter(_trees)), None)
    return known


def _parse(lines: Sequence[str], first: int, last: int) -> ast.AST | None:
    """Return the tree of some lines, with the line numbers of the file; None if they are no whole statement."""
    part = lines[first - 1 : last]
    if not part:
        return None
    indented = part[0][:1] in " \t"
    try:
        tree = ast.parse(("if True:\n" if indented else "") + "".join(part))
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):  # SystemError: 3.11 inside greenlets
        return None
    return ast.increment_lineno(tree, first - 1 - indented)


def _chain(tree: ast.AST, span: Any) -> list[ast.AST]:
    """Return the nodes from the module down to the expression at `span` (first line, last line, first and last column).

    Python gives a method call that is spread over lines the position of the method's name on.
    """
    start, end = (span[0], span[2]), (span[1], span[3])
    chain, best = [tree], 0
    node: ast.AST | None = tree
    while node is not None:
        node = next((c for c in _children(node) if _start(c) <= start and end <= _end(c)), None)
        if node is not None:
            chain.append(node)
            if _end(node) == end and start in (_start(node), _method_start(node)):
                best = len(chain)
    return chain[:best]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        elif not isinstance(child, ast.expr_context | ast.operator):
            yield from _children(child)  # arguments, comprehensions, match cases have no position


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def _method_start(node: ast.AST) -> tuple[int, int] | None:
    attribute = node.func if isinstance(node, ast.Call) else node
    if not isinstance(attribute, ast.Attribute):
        return None
    line, column = _end(attribute)
    return line, column - len(attribute.attr.encode())


def _describe(chain: list[ast.AST], found: Found, lines: Sequence[str]) -> None:
    if not chain:
        return
    node = chain.pop()
    if isinstance(node, ast.Call):
        found.calls = not (isinstance(node.func, ast.Name) and node.func.id in _CALL_BACK)
        arguments: list[tuple[str, ast.expr]] = [("", a) for a in node.args]
        arguments += [(f"{k.arg}=" if k.arg else "**", k.value) for k in node.keywords]
        found.literals = tuple(name + _text(value, lines) for name, value in arguments)
    elif isinstance(node, ast.Subscript):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found.literals = tuple(_text(i, lines) for i in index)
    function = next((n for n in reversed(chain) if isinstance(n, _FUNCTIONS)), None)
    if isinstance(node, ast.AugAssign):
        _assign(found, node.target, None)
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store):
        _assign(found, node, None)  # q, k, v = x: a tensor is taken apart
    else:
        _destination(node, chain, found)
    if found.names and isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        _return_later(found, function)


def _destination(node: ast.AST, chain: list[ast.AST], found: Found) -> None:
    """Follow the value outwards, through the nodes of `chain`, to the statement that takes it."""
    element: int | None = None
    while chain:
        inner, node = node, chain.pop()
        if isinstance(node, ast.IfExp) and inner is not node.test:
            continue
        if isinstance(node, ast.Tuple | ast.List) and element is None:
            if any(isinstance(e, ast.Starred) for e in node.elts):
                return
            element = next(i for i, e in enumerate(node.elts) if e is inner)
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and inner is node.value:
            _assign(found, node.targets[0] if isinstance(node, ast.Assign) else node.target, element)
        elif isinstance(node, ast.Return) or (isinstance(node, ast.Lambda) and inner is node.body):
            found.returned, found.element = True, element
        elif isinstance(node, ast.Subscript) and inner is node.value and element is None:
            _pick(found, node, chain[-1])
        return


def _return_later(found: Found, function: ast.AST) -> None:
    """See whether the function returns the variables that were assigned: `out = weights @ v`, then `return out`."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            elements = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            names = tuple(e.id if isinstance(e, ast.Name) else "" for e in elements)
            if names == found.names:
                found.returned = True
            elif len(found.names) == 1 and found.names[0] in names:
                found.returned, found.element = True, names.index(found.names[0])
        elif not isinstance(node, _FUNCTIONS):
            todo.extend(ast.iter_child_nodes(node))


def _assign(found: Found, target: ast.expr, element: int | None) -> None:
    """Note the variables that an assignment gives to a value, or to one element of a tuple of values."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else None
    if element is not None:
        if parts is None or element >= len(parts) or any(isinstance(e, ast.Starred) for e in parts):
            return
        target = parts[element]
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else None
    found.names = _names(target)
    found.nested = any(not isinstance(e, ast.Name) for e in parts or ())


def _names(target: ast.expr) -> tuple[str, ...]:
    """Return the variables of an assignment target in order; () if any part of it is no plain variable."""
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Tuple | ast.List):
        parts = [_names(e) for e in target.elts]
        return tuple(n for p in parts for n in p) if all(parts) else ()
    return ()


def _pick(found: Found, subscript: ast.Subscript, statement: ast.AST) -> None:
    """Name one result of several: `y = f(x)[1]` gives ("", "y", ""), where "" is no name."""
    index = subscript.slice.value if isinstance(subscript.slice, ast.Constant) else None
    if type(index) is int and index >= 0 and isinstance(statement, ast.Assign):
        target = statement.targets[0]
        if statement.value is subscript and isinstance(target, ast.Name):
            found.names = ("",) * index + (target.id, "")


def _text(node: ast.expr, lines: Sequence[str]) -> str:
    """Return an expression as it was written, on one line."""
    (first, start), (last, end) = _start(node), _end(node)
    rows = [line.encode() for line in lines[first - 1 : last]]
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return " ".join(row.decode().strip() for row in rows)
