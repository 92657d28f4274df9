"""Right answers in other styles than the reference's, one module for each lesson: `RIGHT` by the exercise's id.

Each must be accepted; the functions among them that have a name are also mutated.
"""

import importlib
import pkgutil
from typing import Any

RIGHT: dict[str, list[Any]] = {}
for found in pkgutil.iter_modules(__path__):
    RIGHT.update(importlib.import_module(f"{__name__}.{found.name}").RIGHT)
