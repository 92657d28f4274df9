"""Why an operation failed, in named shapes, and what repairs it: the note that is added to the original exception.

Pure: works from the recorded operation and the exception's text. One small function, or one row of a table, for each
kind of mistake, found by the operation's name; what none of them knows is still told with its line and named shapes.
"""

from . import attention, general, lookups, products, views
from .core import Case, Finding, explain, known_names

__all__ = ["Case", "Finding", "attention", "explain", "general", "known_names", "lookups", "products", "views"]
