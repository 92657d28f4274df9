"""`python -m tracer COMMAND`: each command is added by the part it belongs to."""

import argparse
from collections.abc import Sequence

from .grading.command import add_command as add_grade

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tracer")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_grade(commands)
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))
