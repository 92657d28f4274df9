"""Shape Tracer: every tensor operation of a model as it really ran, with its axes by name."""

from typing import Any

from . import lessons, models
from .checks import check_axes
from .devices import device
from .engine import record, trace
from .errors import AxesError, AxisMismatch, BuildError, TraceFileError, TracerError
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
    "models",
    "record",
    "trace",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the controls when they are first asked for: they bring ipywidgets with them."""
    if name == "explore":
        from .explorer import explore  # noqa: PLC0415

        return explore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
