"""The names of modules, parameters and buffers, seen from the outermost module that the traced code called.

Modules are held by weak reference: code inside a recorded block may make and drop them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import ref as weak

from torch import Tensor, nn

from .declared import axes_of

__all__ = ["Root", "own"]

_SEARCHED = 1000
"""Longer containers hold data, not modules."""


class Root:
    """One outermost module: the paths of the modules inside it, and the names and axes of what they own."""

    def __init__(self, module: nn.Module, meet: Callable[[nn.Module, str], None]) -> None:
        """`meet` is told of each module that is added, with the prefix of what is inside it."""
        self.module, self.meet = weak(module), meet
        self.paths: dict[int, str] = {}
        self.declaring: set[int] = set()
        """modules that may have an `axes` attribute"""
        self._unasked: deque[tuple[str, weak[nn.Module]]] = deque()
        """those not yet asked for it, outermost first, with the prefix of what is inside them"""
        self._silent: dict[type, bool] = {}
        """class -> whether it has no `axes` attribute"""
        self._owned: dict[int, tuple[str, str, weak[nn.Module], str]] | None = None
        self._axes: dict[str, str] = {}

    def add(self, module: nn.Module, path: str) -> None:
        """Go through a module and all inside it; of several paths the first stays."""
        paths, kind, members = self.paths, type(module), module.__dict__
        paths[id(module)] = path
        dot = f"{path}." if path else ""
        silent = self._silent.get(kind)
        if silent is None:
            silent = self._silent[kind] = not hasattr(kind, "axes")
        if not silent or "axes" in members:
            self.declaring.add(id(module))
            self._unasked.append((dot, weak(module)))
        self.meet(module, dot)
        for key, part in own(module, "module"):
            if part is not None and id(part) not in paths:
                self.add(part, dot + key)

    def path(self, module: nn.Module, above: Sequence[tuple[nn.Module, str]]) -> str:
        """Return the path of a module that no module has registered; `above` are those that are running.

        One in a plain list or dict is named after it (`mods.0`), one that sits nowhere after its caller.
        """
        for parent, prefix in reversed(above):
            place = _search(vars(parent), module, 0)
            if place is not None:
                place = place.removeprefix("_modules.")  # a part that was added while running
                path = f"{prefix}.{place}" if prefix else place
                self.add(module, path)
                return path
        return above[-1][1] if above else ""

    def owner_of(self, t: Tensor, running: nn.Module | None) -> tuple[str, str] | None:
        """Return ("parameter" or "buffer", its qualified name), or None for a tensor that no module owns.

        Most tensors belong to the module that is `running`.
        """
        path = None if running is None else self.paths.get(id(running))
        if path is not None and running is not None:
            for kind in ("parameter", "buffer"):
                for key, member in own(running, kind):
                    if member is t:
                        return kind, f"{path}.{key}" if path else key
        return self._search_owner(t)

    def _search_owner(self, t: Tensor) -> tuple[str, str] | None:
        if self._owned is None:
            self._owned = {}
            for path, module in _all(self.module(), "", {}):
                dot, holder = (f"{path}." if path else ""), weak(module)
                for kind in ("parameter", "buffer"):
                    for key, member in own(module, kind):
                        if member is not None:
                            self._owned.setdefault(id(member), (kind, dot + key, holder, key))
        entry = self._owned.get(id(t))
        if entry is None:
            return None
        kind, name, holder, key = entry
        held = holder()  # the id of a dropped tensor may have passed to another one
        if held is None or dict(own(held, kind)).get(key) is not t:
            return None
        return kind, name

    def axes_of(self, name: str, t: Tensor) -> str | None:
        """Return the axes that the outermost module to say so declares for a parameter or buffer."""
        while name not in self._axes and self._unasked:
            dot, holder = self._unasked.popleft()
            for inner, text in axes_of(holder()).items():
                self._axes.setdefault(dot + inner, text)
        if name not in self._axes and self._axes:  # tied weights may be declared under their other name
            owner = self._search_owner(t)
            name = name if owner is None else owner[1]
        return self._axes.get(name)


def own(module: nn.Module, kind: str) -> Iterable[tuple[str, Any]]:
    """Return names and values of a module's own parameters, buffers or modules; a scripted one keeps them in C++.

    An attribute of a module costs far more than a look into its `__dict__`.
    """
    held = module.__dict__.get(_HELD[kind])
    return (getattr(module, _HELD[kind]) if held is None else held).items()  # type: ignore[no-any-return]


_HELD = {"parameter": "_parameters", "buffer": "_buffers", "module": "_modules"}


def _all(module: nn.Module | None, path: str, seen: dict[int, None]) -> Iterator[tuple[str, nn.Module]]:
    if module is not None and id(module) not in seen:
        seen[id(module)] = None
        yield path, module
        for key, part in module._modules.items():
            yield from _all(part, f"{path}.{key}" if path else key, seen)


def _search(value: Any, module: nn.Module, depth: int) -> str | None:
    """Return where in nested plain containers a module sits, such as `mods.0`, or None."""
    if depth > 3 or not isinstance(value, dict | list | tuple) or len(value) > _SEARCHED:
        return None
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if item is module:
            return str(key)
        inner = _search(item, module, depth + 1)
        if inner is not None:
            return f"{key}.{inner}"
    return None
