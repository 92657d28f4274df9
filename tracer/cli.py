"""`python -m tracer`: trace a model, export a trace, check a file of answers. Arguments in, files and text out.

Another command is added by one line in `COMMANDS`: a function that takes the subparsers and gives its parser a `run`
(parsed arguments in, exit status out). 0: done; 1: the traced code failed, or an answer is not right; 2: bad input.
"""

import argparse
import inspect
import json
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from tqdm import tqdm

from . import handout, lessons
from .engine import trace
from .errors import TracerError
from .grading.command import add_command as _add_grade
from .render import svg
from .result import Trace
from .samples import SAMPLES
from .speech import _, say

__all__ = ["COMMANDS", "main"]

Subparsers = argparse._SubParsersAction
_TAKES_SIZES = ("trace", "export")
_FLAGS = {"--expand", "--unfolded", "--help"}
_VALUES = {
    *("--module", "--depth", "--axes", "--sizes", "--width", "--title"),
    *("--text", "--html", "--svg", "--json", "--handout"),
}
"""Options of the commands that take a builder; every other `--name value` goes to it."""


class BadInput(TracerError):
    """What was asked for cannot be done; the message is one sentence for the person at the keyboard."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, say("{command}: {message}. See {command} --help.", command=self.prog, message=message) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words, choices = _split(list(sys.argv[1:] if argv is None else argv))
    parser = _Parser(
        prog="python -m tracer", allow_abbrev=False,
        description=_("Every tensor operation of a PyTorch model as it really ran, with its axes by name."),
    )  # fmt: skip
    subparsers = parser.add_subparsers(dest="command", metavar=_("command"), required=True, parser_class=_Parser)
    for add in COMMANDS:
        add(cast("Subparsers[argparse.ArgumentParser]", subparsers))
    arguments = parser.parse_args(words)
    if choices:
        arguments.choices = choices
    try:
        return int(arguments.run(arguments))
    except BadInput as error:
        print(f"python -m tracer {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _split(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Take out what is meant for a builder, `--H 3` or `--H=3`, wherever it stands."""
    if not words or words[0] not in _TAKES_SIZES:
        return words, []
    kept, choices, at = [words[0]], [], 1
    while at < len(words):
        word, after = words[at], words[at + 1 : at + 2]
        name, equals, value = word.partition("=")
        takes = name not in _FLAGS and not equals and bool(after) and not after[0].startswith("--")
        if not word.startswith("--") or name in _FLAGS | _VALUES:
            kept += [word, *(after if takes and name in _VALUES else [])]
            takes = takes and name in _VALUES
        else:
            choices.append((name[2:], value if equals else after[0] if takes else ""))
        at += 1 + takes
    return kept, choices


# ------------------------------------------------------------------ what is traced


def _add_source(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(SAMPLES)
    parser.add_argument(
        "source",
        help=_(
            "a saved trace (FILE.json); a builder, module:function or file.py:function, which returns the model and "
            "its inputs: it is YOUR code and is run as it is; or a reference model: {names}. Sizes and choices follow "
            "as --H 3 --D 7"
        ).format(names=names),
    )
    parser.add_argument("--axes", action="append", metavar='"B T C"', help=_("axes of an input, once for each tensor"))
    parser.add_argument("--sizes", metavar="C=48,H=3", help=_("sizes of letters, where the model does not say them"))
    parser.add_argument("--expand", action="store_true", help=_("show the steps inside fused calls"))
    parser.add_argument("--module", default="", metavar="PATH", help=_("only this module, such as transformer.h.0"))
    parser.set_defaults(choices=[])


def _trace(arguments: argparse.Namespace) -> tuple[Trace, int]:
    """Return the trace that was asked for, and 1 where its code failed (what it did until then is in the trace)."""
    source = arguments.source
    if source.endswith(".json") or (":" not in source and Path(source).is_file()):
        if arguments.choices or arguments.axes or arguments.sizes or arguments.expand:
            raise BadInput(_("a saved trace has ran already: --axes, --sizes, --expand and sizes are for a model."))
        return _saved(source), 0
    model, inputs = _built(source, _values(arguments.choices))
    more: dict[str, Any] = {"axes": arguments.axes, "sizes": _sizes(arguments.sizes), "expand": arguments.expand}
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (_tuple(inputs), {})
    try:
        with torch.no_grad():
            return trace(model, *args, **more, **kwargs), 0
    except TracerError as error:
        raise BadInput(str(error)) from None
    except Exception as error:  # whatever the traced code raises: told with what was seen until then
        found = getattr(error, "trace", None)
        if not isinstance(found, Trace):
            raise BadInput(_told(error)) from None
        print("\n".join([_told(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        return found, 1


def _saved(path: str) -> Trace:
    try:
        return Trace.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(say("{path} cannot be read: {why}.", path=path, why=_reason(error))) from None
    except TracerError as error:
        raise BadInput(f"{path}: {error}") from None


def _built(source: str, choices: dict[str, Any]) -> tuple[Any, Any]:
    """Call a builder or a reference model's own."""
    if ":" in source:
        build = _found(source)
    elif source in SAMPLES:
        build = SAMPLES[source]
    else:
        near = [name for name in SAMPLES if name.lower() == source.lower()] or get_close_matches(source, SAMPLES, n=1)
        hint = say(" Did you mean {near}?", near=near[0]) if near else ""
        text = "{source} is no file, no builder (module:function) and no reference model.{hint} There are: {names}."
        raise BadInput(say(text, source=source, hint=hint, names=", ".join(SAMPLES)))
    _check(build, source, choices)
    torch.manual_seed(0)
    try:
        made = build(**choices)
    except Exception as error:  # the user's code, or sizes that make no model
        raise BadInput(say("{source} raised {error}", source=source, error=_told(error))) from None
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise BadInput(
            say("{source} returns two things, the model and its inputs: return model, inputs.", source=source)
        )
    model, inputs = made
    return model.eval() if source in SAMPLES else model, inputs


def _found(source: str) -> Callable[..., Any]:
    """Import what `module:function` or `file.py:function` names; its code runs with all that it does."""
    where, _colon, name = source.rpartition(":")
    sys.path.insert(0, os.getcwd())
    try:
        if where.endswith(".py"):
            found = runpy.run_path(where).get(name)
        else:
            found = pkgutil.resolve_name(source)
    except FileNotFoundError:
        raise BadInput(say("there is no file {path}.", path=where)) from None
    except AttributeError:
        found = None
    except (ImportError, ValueError) as error:
        raise BadInput(say("{source} cannot be imported: {why}.", source=source, why=str(error).rstrip("."))) from None
    except Exception as error:  # the user's module failed while it was read
        raise BadInput(say("{source} raised {error}", source=where, error=_told(error))) from None
    if not callable(found):
        raise BadInput(say("{where} has no function {name}.", where=where, name=name))
    return cast(Callable[..., Any], found)


def _check(build: Callable[..., Any], source: str, choices: Mapping[str, Any]) -> None:
    """Say which choices a builder does not take, and which it needs."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    taken = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in choices:
        if name not in taken:
            listed = ", ".join(f"--{one}" for one in taken) or "-"
            raise BadInput(
                say("{source} takes no --{name}; it takes: {listed}.", source=source, name=name, listed=listed)
            )
    missing = [name for name in taken if parameters[name].default is inspect.Parameter.empty and name not in choices]
    if missing:
        listed = ", ".join(f"--{one}" for one in missing)
        raise BadInput(say("{source} also needs {listed}.", source=source, listed=listed))


def _values(choices: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Read `3` as a number, `true` as True, and everything else as text."""
    found: dict[str, Any] = {}
    for name, text in choices:
        if not name.isidentifier():
            raise BadInput(say("--{name} is no option and no name of a size. See --help.", name=name))
        if not text:
            raise BadInput(say("--{name} has no value: give one, as in --{name} 3.", name=name))
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _sizes(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.replace(",", " ").split()]
    try:
        return {name: int(size) for name, _equals, size in pairs if name.isidentifier() or int("")}
    except ValueError:
        raise BadInput(
            say("--sizes {given} is not read: give letters with whole numbers, C=48,H=3.", given=text)
        ) from None


def _tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _told(error: BaseException) -> str:
    """Return an exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# ------------------------------------------------------------------ trace


def _add_trace(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("trace", allow_abbrev=False, help=_("run a model once and print its trace"))
    _add_source(parser)
    parser.add_argument("--unfolded", action="store_true", help=_("print repeated blocks each"))
    parser.set_defaults(run=_run_trace)


def _run_trace(arguments: argparse.Namespace) -> int:
    found, status = _trace(arguments)
    print(_part(found, arguments.module).to_text(fold=not arguments.unfolded))
    return status


def _part(found: Trace, module: str) -> Trace:
    part = found.find(module=module) if module else found
    if module and not len(part):
        raise BadInput(part.to_text())
    return part


# ------------------------------------------------------------------ export


def _add_export(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "export", allow_abbrev=False, help=_("write a trace as text, page, figure, JSON or printable sheet")
    )
    _add_source(parser)
    for name, what in (
        ("text", _("the trace as text; - is the screen")),
        ("html", _("one offline page")),
        ("svg", _("the flow figure")),
        ("json", _("the trace, to be read again")),
        ("handout", _("the printable shape sheet, A4 as PDF")),
    ):
        parser.add_argument(f"--{name}", metavar=_("FILE"), help=what)
    parser.add_argument("--depth", type=int, help=_("how many levels of modules the figure opens"))
    parser.add_argument("--width", type=float, default=760.0, help=_("of the figure, in pixels (default: 760)"))
    parser.add_argument("--title", default="", help=_("above the sheet"))
    parser.set_defaults(run=_run_export)


def _run_export(arguments: argparse.Namespace) -> int:
    wanted = {name: path for name in ("text", "html", "svg", "json", "handout") if (path := getattr(arguments, name))}
    if not wanted:
        raise BadInput(_("say what to write: --text, --html, --svg, --json or --handout, each with a file."))
    if not wanted.get("handout", ".pdf").lower().endswith(".pdf"):
        raise BadInput(_("--handout writes PDF: give a file that ends with .pdf."))
    with tqdm(total=1 + len(wanted), disable=None, leave=False, file=sys.stderr) as bar:
        bar.set_description(_("run"))
        found, status = _trace(arguments)
        bar.update()
        for name, path in wanted.items():
            bar.set_description(name)
            _write(found, name, path, arguments)
            bar.update()
    for path in wanted.values():
        if path != "-":
            print(path)
    return status


def _write(found: Trace, name: str, path: str, arguments: argparse.Namespace) -> None:
    """Write one form of a trace to a file, or to the screen."""
    whole = {"text": Trace.to_text, "html": Trace.to_html, "json": Trace.to_json}
    try:
        if name in whole:
            text = whole[name](_part(found, arguments.module))
        else:
            picture = found._picture(arguments.module, arguments.depth, arguments.width)
            text = svg.to_svg(picture)
    except ValueError as error:
        raise BadInput(str(error)) from None
    try:
        if name == "handout":
            sheet = _part(found, arguments.module)._data
            handout.save(sheet, picture, path, arguments.title or _named(arguments))
        elif path == "-":
            print(text, end="" if text.endswith("\n") else "\n")
        else:
            Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(say("{path} cannot be written: {why}.", path=path, why=_reason(error))) from None


def _named(arguments: argparse.Namespace) -> str:
    return f"{Path(arguments.source).name} {arguments.module}".strip()


# ------------------------------------------------------------------ check


def _add_check(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "check",
        help=_("check a file of answers to the exercises of the notebooks"),
        description=_(
            "Runs a Python file, YOUR code as it is, and checks each name in it that is an exercise: "
            "`split_heads` is a function or a value called so. A JSON file holds names and answers. Without a file it "
            "lists the exercises."
        ),
    )
    parser.add_argument("file", nargs="?", help=_("answers.py or answers.json"))
    parser.add_argument("exercises", nargs="*", help=_("only these exercises"))
    parser.set_defaults(run=_run_check)


def _run_check(arguments: argparse.Namespace) -> int:
    known = {one.id: one for one in lessons.exercises()}
    if arguments.file is None:
        for one in known.values():
            print(f"{one.notebook}  {one.id}")
        return 0
    for name in arguments.exercises:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = say(" Did you mean {near}?", near=near[0]) if near else ""
            raise BadInput(say("there is no exercise {name}.{hint}", name=name, hint=hint))
    answers = _answers(arguments.file)
    asked = arguments.exercises or [name for name in known if name in answers]
    if not asked:
        text = "{file} has no name that is an exercise; `python -m tracer check` lists them."
        raise BadInput(say(text, file=arguments.file))
    found = [lessons.check(name, answers.get(name)) for name in tqdm(asked, disable=None, leave=False, file=sys.stderr)]
    print("\n\n".join(map(str, found)))
    return 0 if all(one.status == "right" for one in found) else 1


def _answers(path: str) -> dict[str, Any]:
    """Return the names of a file of answers."""
    try:
        if path.endswith(".json"):
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise BadInput(
                    say('{path} is not a list of names and answers: {{"scores_shape": "B H T T"}}.', path=path)
                )
            return found
        if path.endswith(".ipynb"):
            raise BadInput(_("a notebook checks itself when it is run; give a Python file or a JSON file of answers."))
        return runpy.run_path(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(say("{path} cannot be read: {why}.", path=path, why=_reason(error))) from None
    except json.JSONDecodeError as error:
        raise BadInput(say("{path} is not JSON: {why}.", path=path, why=error)) from None
    except BadInput:
        raise
    except Exception as error:  # the learner's own code
        raise BadInput(say("{path} raised {error}", path=path, error=_told(error))) from None


COMMANDS: tuple[Callable[["Subparsers[argparse.ArgumentParser]"], None], ...] = (
    _add_trace,
    _add_export,
    _add_check,
    _add_grade,
)
"""Each adds one command, in the order of the help."""
