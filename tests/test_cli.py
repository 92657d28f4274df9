"""`python -m tracer`: commands, their files, their exit status; bad input is one sentence, no traceback of ours."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import tracer
from tracer import Trace, cli
from tracer.samples import SAMPLES

BUILDER = """
import torch
from torch import nn

def build(H=2, D=3, wide: bool = False):
    C = H * D
    return nn.Linear(C, 2 * C if wide else C), torch.randn(2, 5, C)

def named(H=2):
    return (lambda x, y: x + y), {"x": torch.ones(2, H), "y": torch.ones(2, H)}

def needs(H):
    return None

def broken():
    raise RuntimeError("no such thing\\nand more")

def one():
    return nn.Linear(2, 2)

def fails():
    return (lambda a, b: a.relu() @ b), (torch.ones(2, 5), torch.ones(2, 5))

number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a builder in it, as the working directory."""
    (tmp_path / "my_builder.py").write_text(BUILDER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_builder", raising=False)
    return tmp_path


def call(*words: str) -> int:
    try:
        return cli.main(words)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


# ------------------------------------------------------------------ trace


@pytest.mark.parametrize("name", SAMPLES)
def test_each_reference_model_is_traced_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", name) == 0
    out = capsys.readouterr().out
    assert "operations   cpu   B=2" in out and "!" not in out and "?" not in out


def test_sizes_and_choices_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", "GPT", "--H", "5", "--D=7", "--norm", "post", "--T", "4") == 0
    out = capsys.readouterr().out
    assert "B=2 T=4 C=35 H=5 D=7" in out
    assert call("trace", "--H", "5", "GPT", "--D", "7", "--norm", "post", "--T", "4") == 0
    assert capsys.readouterr().out == out


def test_a_part_and_unfolded(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", "GPT", "--module", "transformer.h.1.mlp") == 0
    assert capsys.readouterr().out.startswith("4 operations")
    assert call("trace", "GPT", "--L", "3") == 0
    folded = capsys.readouterr().out
    assert call("trace", "GPT", "--L", "3", "--unfolded") == 0
    assert "as transformer.h.0" in folded and len(capsys.readouterr().out) > 2 * len(folded)


@pytest.mark.parametrize("source", ["my_builder:build", "my_builder.py:build"])
def test_a_builder_of_ones_own(source: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", source, "--H", "3", "--wide", "true", "--axes", "B T C", "--sizes", "C=9 H=3") == 0
    assert "linear [B, T, 2C]" in capsys.readouterr().out


def test_a_builder_that_names_its_inputs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", "my_builder:named") == 0
    assert "1 operation" in capsys.readouterr().out


def test_a_failing_model_is_explained(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trace", "my_builder:fails") == 1
    done = capsys.readouterr()
    assert "relu" in done.out and "Stopped here" in done.out
    assert done.err.startswith("RuntimeError: ") and "Traceback" not in done.err
    assert call("export", "my_builder:fails", "--svg", "s.svg", "--handout", "h.pdf") == 1
    assert "stopped here" in Path("s.svg").read_text(encoding="utf-8")


# ------------------------------------------------------------------ export


def test_every_form_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["t.txt", "t.html", "t.svg", "t.json", "t.pdf"]
    options = ["--text", "--html", "--svg", "--json", "--handout"]
    words = [word for pair in zip(options, files, strict=True) for word in pair]
    assert call("export", "GPT", "--H", "3", "--D", "7", *words) == 0
    done = capsys.readouterr()
    assert done.out.split() == files and done.err == ""
    t = Trace.from_json(Path("t.json").read_text(encoding="utf-8"))
    assert t.sizes["C"] == 21
    assert Path("t.txt").read_text(encoding="utf-8").rstrip("\n") == str(t)
    assert Path("t.svg").read_text(encoding="utf-8") == t.to_svg()
    assert Path("t.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Path("t.pdf").read_bytes().startswith(b"%PDF")


def test_a_saved_trace_is_exported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, inputs = SAMPLES["Block"](H=3, D=7)
    Path("run.json").write_text(tracer.trace(model, *inputs).to_json(), encoding="utf-8")
    assert call("export", "run.json", "--svg", "-", "--module", "attn", "--depth", "1", "--width", "640") == 0
    root = ElementTree.fromstring(capsys.readouterr().out)
    assert root.get("width") == "640" and root[0].text == "attn"


# ------------------------------------------------------------------ bad input


BAD = {
    "nothing to do": ((), "command"),
    "no such command": (("draw",), "draw"),
    "no source": (("trace",), "source"),
    "a name in lower case": (("trace", "gpt"), "Did you mean GPT?"),
    "no such model": (("trace", "Zebra"), "VisionTransformer"),
    "no such size": (("trace", "GPT", "--Z", "3"), "it takes: --B, --T, --H"),
    "no value": (("trace", "GPT", "--H", "--D", "3"), "--H has no value"),
    "no size at all": (("trace", "GPT", "--H", "0"), "at least 1"),
    "a size that is a word": (("trace", "GPT", "--H", "many"), "GPT raised"),
    "odd name": (("trace", "GPT", "--a-b", "3"), "--a-b is no option"),
    "no such module": (("trace", "GPT", "--module", "transformer.h.7"), "transformer.h.1"),
    "no such module in a figure": (("export", "GPT", "--svg", "-", "--module", "x"), "no operation ran in module='x'"),
    "nothing to write": (("export", "GPT"), "--handout"),
    "no PDF": (("export", "GPT", "--handout", "x.txt"), ".pdf"),
    "no folder": (("export", "GPT", "--svg", "nowhere/x.svg"), "nowhere/x.svg cannot be written"),
    "no folder for a sheet": (("export", "GPT", "--handout", "nowhere/x.pdf"), "cannot be written"),
    "depth": (("export", "GPT", "--svg", "-", "--depth", "0"), "depth=0"),
    "depth as a word": (("export", "GPT", "--svg", "-", "--depth", "x"), "--depth"),
    "width": (("export", "GPT", "--svg", "-", "--width", "5"), "Give 240 or more"),
    "no file": (("export", "no.json", "--svg", "-"), "no.json cannot be read"),
    "no trace": (("export", "bad.json", "--svg", "-"), "bad.json: "),
    "sizes for a saved trace": (("trace", "bad.json", "--H", "3"), "for a model"),
    "axes": (("trace", "my_builder:build", "--axes", "B T"), "axes"),
    "sizes": (("trace", "my_builder:build", "--sizes", "C=x"), "C=48,H=3"),
    "no module": (("trace", "nowhere_at_all:f"), "nowhere_at_all"),
    "no builder's file": (("trace", "nowhere.py:f"), "there is no file nowhere.py"),
    "no function": (("trace", "my_builder:f"), "has no function f"),
    "no function in the file": (("trace", "my_builder.py:f"), "has no function f"),
    "a number": (("trace", "my_builder:number"), "has no function number"),
    "needs a size": (("trace", "my_builder:needs"), "also needs --H"),
    "one thing": (("trace", "my_builder:one"), "return model, inputs"),
    "a builder that raises": (("trace", "my_builder:broken"), "raised RuntimeError: no such thing"),
    "no answers": (("check", "nowhere.py"), "nowhere.py cannot be read"),
    "no answers in it": (("check", "my_builder.py"), "no name that is an exercise"),
    "no such exercise": (("check", "my_builder.py", "split_head"), "Did you mean split_heads?"),
    "answers as a list": (("check", "list.json"), "names and answers"),
    "answers that are no JSON": (("check", "broken.json"), "is not JSON"),
    "a notebook": (("check", "x.ipynb"), "notebook"),
    "answers that raise": (("check", "raises.py"), "raises.py raised ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text("{}", encoding="utf-8")
    Path("list.json").write_text("[]", encoding="utf-8")
    Path("broken.json").write_text("{", encoding="utf-8")
    Path("raises.py").write_text("1 / 0", encoding="utf-8")
    words, told = BAD[case]
    assert call(*words) == 2
    done = capsys.readouterr()
    assert told in done.err and done.out == ""
    assert len(done.err.strip().splitlines()) == 1 and "Traceback" not in done.err


# ------------------------------------------------------------------ check


ANSWERS = """
def split_heads(x, H):
    B, T, C = x.shape
    return x.view(B, T, H, C // H).transpose(1, 2)
"""


def test_answers_are_checked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("answers.py").write_text(ANSWERS, encoding="utf-8")
    assert call("check", "answers.py") == 0
    assert "Right" in capsys.readouterr().out
    Path("answers.py").write_text(ANSWERS.replace(".view(B, T, H, C // H).transpose(1, 2)", ".view(B, H, T, C // H)"),
                                  encoding="utf-8")  # fmt: skip
    assert call("check", "answers.py", "split_heads") == 1
    assert "Not yet" in capsys.readouterr().out


def test_answers_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("answers.json").write_text(json.dumps({"scores_shape": "B H T T"}), encoding="utf-8")
    status = call("check", "answers.json")
    assert "scores_shape" in capsys.readouterr().out and status in (0, 1)


def test_exercises_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("check") == 0
    assert "split_heads" in capsys.readouterr().out


# ------------------------------------------------------------------ as a program


def test_another_command_is_added_by_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(subparsers: Any) -> None:
        parser = subparsers.add_parser("another")
        parser.add_argument("folder")
        parser.set_defaults(run=lambda arguments: print(arguments.folder) or 3)

    monkeypatch.setattr(cli, "COMMANDS", (*cli.COMMANDS, add))
    assert call("another", "hand-ins") == 3
    assert capsys.readouterr().out == "hand-ins\n"


def test_help_says_that_a_builder_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("export", "--help") == 0
    assert "it is YOUR code and is run as it is" in " ".join(capsys.readouterr().out.split())


def test_as_a_program_into_a_closed_pipe() -> None:
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "tracer", "trace", "GPT", "--L", "40", "--unfolded"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == ""
    assert program.returncode == 0
