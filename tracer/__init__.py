"""Shape Tracer: every tensor operation of a model as it really ran, with its axes by name."""

from importlib import import_module
from typing import Any

from .checks import check_axes
from .devices import device
from .engine import record, trace
from .errors import AxesError, AxisMismatch, BuildError, TraceFileError, TracerError
from .magic import load_ipython_extension
from .records import Line, Op, Source, TensorInfo
from .result import Trace

__all__ = [
    "AxesError",
    "AxisMismatch",
    "BuildError",
    "Line",
    "Op",
    "Source",
    "TensorInfo",
    "Trace",
    "TraceFileError",
    "TracerError",
    "check_axes",
    "device",
    "explore",
    "lessons",
    "load_ipython_extension",
    "models",
    "record",
    "trace",
]
__version__ = "0.1.0"


_LATER = {"explore": "explorer", "lessons": "lessons", "models": "models"}
"""What is loaded when it is first asked for, and from where: the controls bring ipywidgets with them."""


def _load(part: str) -> Any:
    return import_module(f".{part}", __name__)


Trace._later = _load


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _load(_LATER[name])
    return found.explore if name == "explore" else found
