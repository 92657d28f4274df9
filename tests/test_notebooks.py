"""Every notebook, run from top to bottom in a kernel of its own; and the form of its cells.

Each notebook is run as it is; then for two other pairs of H and D, with right answers filled in and with wrong ones.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from tracer.lessons import exercises
from tracer.lessons.exercise import Exercise

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
LONGEST = 10
"""Lines of a code cell; the set-up and the answers' frames apart."""
NO_NETWORK = """
import socket

def _refuse(self, address, *_rest):
    raise OSError(f"a notebook asked another machine: {address!r}")

def _local_only(original):
    def connect(self, address):
        local = not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost")
        return original(self, address) if local else _refuse(self, address)
    return connect

socket.socket.connect = _local_only(socket.socket.connect)
socket.socket.connect_ex = _local_only(socket.socket.connect_ex)
"""
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


# ------------------------------------------------------------------ running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the notebooks' folder, with settings of its own, so that a run leaves nothing behind."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for kind in ("CONFIG", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{kind}_DIR", str(tmp_path / kind.lower()))
    copy = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", copy, ignore=shutil.ignore_patterns(".ipynb_checkpoints", ".tracer-*"))
    return copy


def read(path: Path) -> NotebookNode:
    """Read a notebook and check it against the format."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def with_parameters(notebook: NotebookNode, **values: Any) -> NotebookNode:
    """Put a cell after the one tagged `parameters` that sets those of the values which that cell sets."""
    at, cell = next((i, c) for i, c in enumerate(notebook.cells) if "parameters" in c.metadata.get("tags", []))
    lines = [f"{name} = {value!r}" for name, value in values.items() if re.search(rf"\b{name}\b.*=", cell.source)]
    notebook.cells.insert(at + 1, new_code_cell("\n".join(lines), metadata={"tags": ["injected-parameters"]}))
    return notebook


def answer_checks(notebook: NotebookNode, answer: str) -> list[Exercise]:
    """Fill in this attribute of each exercise as its answer, and return the exercises in the order of the cells."""
    known = {exercise.id: exercise for exercise in exercises()}
    asked = []
    for cell in notebook.cells:
        if found := re.search(r"lessons\.check\(\"(\w+)\", \w+\)$", cell.source):
            asked.append(known[found[1]])
            filled = f'lessons.check("{found[1]}", {{e.id: e for e in lessons.exercises()}}["{found[1]}"].{answer})'
            cell.source = cell.source[: found.start()] + filled
    return asked


def run(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Execute every cell and return the notebook with its outputs; an error in a cell is raised."""
    notebook.cells.insert(0, new_code_cell(NO_NETWORK))
    client = NotebookClient(
        notebook,
        timeout=60,
        raise_on_iopub_timeout=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute()


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """Go through the cells and their outputs."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from ((cell, output) for output in cell.outputs)


def printed(notebook: NotebookNode) -> str:
    """Return everything that the cells printed."""
    return "".join(output.text for _cell, output in outputs(notebook) if output.output_type == "stream")


def assert_quiet(notebook: NotebookNode) -> None:
    """No error and nothing on stderr, where warnings go."""
    loud = [
        (cell.source, output.get("evalue") or output.get("text"))
        for cell, output in outputs(notebook)
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert loud == []


@by_name
def test_runs_from_top_to_bottom_as_it_is(path: Path, folder: Path) -> None:
    notebook = run(read(path), folder)
    assert_quiet(notebook)
    assert "device: cpu" in printed(notebook)
    for said in SAYS.get(path.stem, ()):
        assert re.search(said, printed(notebook)), said
    if path.stem == "00_start_here":
        assert_what_the_first_notebook_says_of_its_run(notebook)
    if path.stem == "10_record_mingpt":
        assert_the_record_is_complete(notebook)


@pytest.mark.parametrize(("pair", "answer"), [((2, 8), "reference"), ((5, 4), "mistakes[0].wrong[0]")], ids=str)
@by_name
def test_runs_for_other_heads_with_answers_filled_in(
    path: Path, pair: tuple[int, int], answer: str, folder: Path
) -> None:
    H, D = pair
    notebook = with_parameters(read(path), H=H, D=D, steps=5)
    asked = answer_checks(notebook, answer)
    notebook = run(notebook, folder)
    assert_quiet(notebook)
    assert f"H = {H} heads of D = {D} make C = {H * D}" in printed(notebook)
    checks = (output for cell, output in outputs(notebook) if "lessons.check(" in cell.source)
    said = [output.data["text/html"] for output in checks if "text/html" in output.get("data", {})]
    assert len(said) == len(asked)
    for exercise, text in zip(asked, said, strict=True):
        assert exercise.id in text
        assert ("✓ Right" if answer == "reference" else exercise.mistakes[0].id) in text


def assert_what_the_first_notebook_says_of_its_run(notebook: NotebookNode) -> None:
    """Each `Explain` of notebook 00 that speaks of the cell above it is true of what that cell printed."""
    text = printed(notebook)
    assert "at spaces:     3" in text and "at characters: 10" in text and "at bytes:      26" in text
    assert "[1, 4, 21] + [2, 4, 21] -> [2, 4, 21]" in text and "both sentences got the same: True" in text
    with_positions, without = map(float, re.findall(r"at the last token: ([\d.e+-]+)", text))
    assert without < 1e-6 < 1e-5 < with_positions
    assert "q: [B, T, C] -> view [B, T, H, D] -> transpose [B, H, T, D]   # view, view" in text
    assert re.search(r"q unchanged: +False", text) and re.search(r"state dict unchanged: +True", text)
    pages = [
        str(output.data["text/html"]) for _cell, output in outputs(notebook) if "text/html" in output.get("data", {})
    ]
    warned = [page for page in pages if "1 warning" in page]
    assert len(warned) == 1 and "view cuts across axes" in warned[0]


def test_without_the_package_the_first_cell_says_one_sentence(folder: Path) -> None:
    notebook = read(NOTEBOOKS[0])
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:1]
    hide = "import sys\nsys.modules['tracer'] = None"
    notebook.cells.insert(0, new_code_cell(hide))
    with pytest.raises(CellExecutionError, match=r"ImportError|ModuleNotFoundError"):
        run(notebook, folder)
    said = [line for line in printed(notebook).splitlines() if line]
    assert len(said) == 1 and "not installed here" in said[0] and "README.md" in said[0]


def assert_the_record_is_complete(notebook: NotebookNode) -> None:
    """What notebook 10 says of its own run is true: it has learned to sort, and the record has all it announces."""
    text = printed(notebook)
    sorted_after = re.findall(r"sorted without a mistake: ([\d.]+)%", text)
    assert float(sorted_after[0]) < 1 and float(sorted_after[-1]) > 90
    assert "all names as before: True" in text
    assert "4 products" in text
    assert "matmul contracts D with T" in text
    tables = [str(o.data["text/html"]) for _cell, o in outputs(notebook) if "text/html" in o.get("data", {})]
    record = next(table for table in tables if "head output" in table)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", record)]
    for what, label, sizes in RECORD:
        at = cells.index(what)
        assert cells[at + 2 : at + 4] == [label, sizes]


SAYS = {
    "01_from_tokens_to_heads": [
        r"q \[4, 7\]  scores \[4, 4\]  out \[4, 7\]",
        r"values: the keys   \[\S+, 1\.0, \S+\]",
        r"scores symmetric\? True\n.*symmetric\?   False",
        r"k from its own rows: True",
        r"q of that head: True",
        r"turned \[2, 3, 4, 7\] +stride \(84, 7, 21, 1\) +same memory: True",
        r"view cuts across axes",
        r"the same memory: False\nRuntimeError: view size is not compatible",
    ],
    "02_scores": [
        r"key 2: cosine 0\.707, length 1\.414, dot product 1",
        r"weights \[\[0\.401 0\.198 0\.401\]\]",
        r"output  \[\[0\.802 0\.599\]\]",
        r"the product is the same: True",
        r"matmul contracts D with T",
        r"96 dot products",
        r"\[B, H, T, S\] \[2, 3, 4, 6\]",
        r"Repair: swap only the last two axes",
        r"the same as the product: True\nTrue",
    ],
    "03_scale_and_mask": [
        r"D =  64: variance   6\d\.\d, after dividing by sqrt\(D\): 1\.0",
        r"variance 256: largest weight 0\.9\d, its gradient 0\.0[45]",
        r"scaled after: .* sum 0\.25",
        r"row sums: \[0\.1  0\.21 0\.89 1\.  \]\ndivided by their sums, the right weights again: True",
        r"the same: True",
        r"-inf: future share of row 0 = 0\.000\n.*= 0\.000\n.*= 0\.892\n.*= 0\.892",
        r"moved at position: \[4, 5\]",
        r"adding -inf is the same as filling: True",
        r"nan.*\n.*0\.2500.*\n.*\[0\., 0\., 0\.\]",
        r"the softmax ran over another axis",
    ],
    "04_mixing_values": [
        r"product:  \[\[0\.802 0\.599\]\]\nby hand:  \[\[?0\.802 0\.599",
        r"largest value in each feature: True",
        r"the weights themselves: True",
        r"positions that moved: \[1, 2, 3, 4\]",
        r"same output: True",
        r"another sentence has the same weights: False",
    ],
    "05_output_projection": [
        r"reshape cuts across axes",
        r"before W_O: \[0, 1, 2, 3, 4, 5, 6\]\nfeatures moved after W_O:  21 of 21",
        r"sum over heads = joined product: True",
        r"C = 48, H = 8, D =  6:  9,408",
        r"C = 48, H = 8, D = 48:  74,928",
    ],
    "06_tokens_and_channels": [
        r"no mask   \[0, 1, 2, 3, 4, 5\]\n.*causal    \[2, 3, 4, 5\]\nMLP +\[2\]\nnorm +\[2\]",
        r"two layers are one: True",
        r"no mask   order .*: True\n.*causal .*: False\nMLP .*: True",
        r"T =    256 C =  64: T-by-T tables  40%  MLP  40%",
    ],
    "07_pre_and_post_norm": [
        r"pre  is one: True, is other: False\npost is one: False, is other: True",
        r"difference: 42 = 2C",
        r"pre:  out = x \+ parts: True\npost: out = x \+ parts: False",
    ],
    "08_positions": [
        r"new order: True\nwith a causal mask: False\nwith positions added: False",
        r"parameters: 2048 = 64 x 32\nIndexError",
        r"query at   5, key at   2, distance 3: score (-?\d\.\d+)\nquery at 105, key at 102, distance 3: score \1",
        r"same numbers: False\nsame, features reordered: True",
        r"learned     T = 32: 100%, T = 64:   \d%, T = 256:   \d%",
        r"sinusoidal  T = 32: 100%, T = 64: +\d%",
        r"rotary      T = 32: 100%, T = 64: +(100|9\d)%",
    ],
    "09_what_gpt_leaves_out": [
        r"decoder\.0\.cross +\[B, H, T, S\] = \[2, 2, 4, 6\]",
        r"GPT, token 2 .*\[2, 3\]\n.*\[2, 3\]\n.*\[0, 1, 2, 3\]",
        r"token 5 changed: states \[0, 1, 2, 3, 4, 5\]",
        r"source token 5 changed: outputs \[\]\n",
        r"prompt token 5 changed: outputs \[5, 6, 7, 8, 9\]",
    ],
}
"""What the text of a notebook says of its own run, at the sizes it comes with."""

RECORD = [
    ("x", "[B, T, C]", "2·7·48"),
    ("q, k, v", "[B, H, T, D]", "2·3·7·16"),
    ("score", "[B, H, T, T]", "2·3·7·7"),
    ("weight", "[B, H, T, T]", "2·3·7·7"),
    ("head output", "[B, H, T, D]", "2·3·7·16"),
    ("joined", "[B, T, C]", "2·7·48"),
    ("logits", "[B, T, V]", "2·7·10"),
    ("loss", "[]", "1"),
]


# ------------------------------------------------------------------ the form


@by_name
def test_code_cells_are_short(path: Path) -> None:
    for cell in read(path).cells:
        lines = [line for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#")]
        setup = "import tracer\n" in cell.source
        assert cell.cell_type != "code" or setup or len(lines) <= LONGEST, cell.source


@by_name
def test_nothing_but_the_source_is_stored(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert cell["metadata"].keys() <= {"nbgrader", "tags"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


@by_name
def test_the_first_code_cell_is_the_same_everywhere_and_says_where_to_get_the_package(path: Path) -> None:
    setup = next(cell.source for cell in read(path).cells if cell.cell_type == "code")
    first = next(cell.source for cell in read(NOTEBOOKS[0]).cells if cell.cell_type == "code")
    head = first[: first.index("import torch")]
    assert "except ImportError" in head and "README.md" in head
    assert "pip" not in head, "a name on a public index that is not ours must not be installed"
    assert setup.startswith(head.rstrip())
    assert setup.endswith('device = tracer.device()\nprint("device:", device)')


@by_name
def test_begins_with_a_claim_and_ends_with_summary_and_exercises(path: Path) -> None:
    first, *others = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    assert re.match(rf"# {path.stem[:2]} · .+\n\n\*\*.+\*\*\n", first)
    assert all(f"| {row} |" in first for row in ("After it you can", "You need", "Time"))
    headings = re.findall(r"^## (.+)$", "\n".join(others), re.MULTILINE)
    assert headings[-3:] == ["Summary", "Exercises", "Going further"]


@by_name
def test_the_teacher_has_a_page_for_it(path: Path) -> None:
    page = (path.parent / "README.md").read_text(encoding="utf-8")
    title = read(path).cells[0].source.splitlines()[0].removeprefix("# ")
    assert f"\n## {title}\n" in page
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    for part in ("Objective", "Presupposes", "Minutes", "Usual misconceptions", "Questions for the class", "Rubric"):
        assert f"**{part}" in section
