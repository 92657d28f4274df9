"""One pure rule per operation family: names and arguments of the inputs in, names of the outputs out."""

from . import indexing, pointwise, products, recurrent, reductions, views, windows
from .core import RULES, Axes, Axis, Rule, Step, Tensor, find_rule, rule

__all__ = [
    "RULES",
    "Axes",
    "Axis",
    "Rule",
    "Step",
    "Tensor",
    "find_rule",
    "indexing",
    "pointwise",
    "products",
    "recurrent",
    "reductions",
    "rule",
    "views",
    "windows",
]
