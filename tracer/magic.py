"""The cell magic: `%load_ext tracer`, then `%%trace x="B T C" C=48 H=3 D=16` runs a cell and shows its trace.

Knows IPython only through the shell that loads it: importing the package must not bring IPython with it.
"""

import ast
import re
import sys
from typing import Any

from .engine import Recording, new_recorder
from .errors import AxesError
from .result import Trace

__all__ = ["load_ipython_extension"]

_OPTION = re.compile(r"""\s*(?P<name>[^\W\d]\w*)\s*=\s*(?:"(?P<a>[^"]*)"|'(?P<b>[^']*)'|(?P<size>\d+)(?=\s|$))""")


def load_ipython_extension(ipython: Any) -> None:
    """Register `%%trace` with the running shell; called by `%load_ext tracer`."""

    def trace(line: str, cell: str) -> Trace:
        """Run the cell and show its trace: `%%trace x="B T C" C=48` names the axes of a variable, and sizes."""
        __tracebackhide__ = True
        return _run(ipython, line, cell)

    ipython.register_magic_function(trace, magic_kind="cell", magic_name="trace")


def _run(shell: Any, line: str, cell: str) -> Trace:
    __tracebackhide__ = True
    try:
        axes, sizes = _options(line)
        recorder = new_recorder(sizes, False, False)
        recorder.watch(axes)
    except AxesError as error:
        raise _usage_error(str(error)) from None
    try:
        text = shell.transform_cell(cell)
        name = shell.compile.cache(text, shell.execution_count, raw_code=cell)
        tree = shell.transform_ast(ast.parse(text, filename=name))
    except SyntaxError as error:  # raised from here, IPython would show its own frames and ours with it
        raise _usage_error(f"SyntaxError: {error.msg} (line {error.lineno}): {(error.text or '').strip()}") from None
    if any(map(_awaits, tree.body)):
        raise _usage_error(
            "%%trace cannot run a cell that awaits at its top level: call `await` inside a function, or leave %%trace "
            "out and use `with tracer.record() as t:`."
        )
    codes = _compiled(shell, tree, name, quiet=_ends_with_semicolon(text))
    with Recording(recorder, shell.user_ns, (name, "<module>")) as found:
        for code in codes:
            exec(code, shell.user_global_ns, shell.user_ns)
    return found


def _options(line: str) -> tuple[dict[str, str], dict[str, int]]:
    """Read `x="B T C" C=48`: a quoted text names the axes of a variable, a number is the size of a symbol."""
    axes: dict[str, str] = {}
    sizes: dict[str, int] = {}
    position = 0
    while line[position:].strip():
        match = _OPTION.match(line, position)
        if match is None:
            raise AxesError(
                f'%%trace does not understand {line[position:].strip()!r}: write x="B T C" for the axes of a variable '
                "and C=48 for a size."
            )
        name, text = match["name"], match["a"] if match["a"] is not None else match["b"]
        if text is not None:
            axes[name] = text
        elif name[0].isupper():
            sizes[name] = int(match["size"])
        else:
            raise AxesError(
                f"%%trace: {name}={match['size']} is neither a size (a capital letter, such as C=48) nor the axes of a "
                f'variable (a text in quotes, such as {name}="B T C").'
            )
        position = match.end()
    return axes, sizes


def _compiled(shell: Any, tree: ast.Module, name: str, quiet: bool) -> list[Any]:
    """Compile as the shell would: the value of a last expression is displayed, unless a semicolon follows it."""
    body, last = tree.body, []
    shows = shell.ast_node_interactivity in ("last_expr", "last", "all", "last_expr_or_assign")
    if shows and not quiet and body and isinstance(body[-1], ast.Expr):
        body, last = body[:-1], body[-1:]
    codes = [shell.compile(ast.Module(body, []), name, "exec")] if body else []
    return codes + [shell.compile(ast.Interactive([node]), name, "single") for node in last]


def _ends_with_semicolon(text: str) -> bool:
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "").endswith(";")


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    if isinstance(node, ast.comprehension) and node.is_async:
        return True
    return any(map(_awaits, ast.iter_child_nodes(node)))


def _usage_error(text: str) -> Exception:
    """Return IPython's own error for a magic that was called wrongly: shown as one line, without a traceback."""
    kind: type[Exception] = getattr(sys.modules.get("IPython.core.error"), "UsageError", AxesError)
    return kind(text)
