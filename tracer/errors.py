"""The exceptions that Shape Tracer raises itself; imports nothing of the package.

Exceptions of the traced code are never replaced: they leave with their own type and a note added.
"""

__all__ = ["AxesError", "AxisMismatch", "BuildError", "TraceFileError", "TracerError"]


class TracerError(Exception):
    """Base class of every exception that the package raises on purpose."""


class AxesError(TracerError, ValueError):
    """An axes text cannot be read, or does not fit the tensor, parameter or variable it was given for."""


class AxisMismatch(TracerError, AssertionError):
    """A tensor does not have the axes that `check_axes` was asked to find."""


class BuildError(TracerError, ValueError):
    """A choice of sizes makes no model, for example heads that do not divide the width."""


class TraceFileError(TracerError, ValueError):
    """A text given to `Trace.from_json` is not a saved trace, or is from an unknown version."""
