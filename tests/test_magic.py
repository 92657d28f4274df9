"""`%%trace` runs a cell as the shell would, and gives its trace."""

import asyncio
import threading

import pytest
import torch

from tracer import AxesError, Trace
from tracer.magic import _options

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
capture_output = pytest.importorskip("IPython.utils.capture").capture_output


@pytest.fixture
def shell():
    """A shell of its own, with the extension loaded."""
    shell = interactiveshell.InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.run_cell("%load_ext tracer\nimport torch")
    yield shell
    shell.reset()
    shell.run_line_magic("unload_ext", "tracer")
    interactiveshell.InteractiveShell.clear_instance()


def run(shell, cell):
    with capture_output() as out:
        result = shell.run_cell(cell, store_history=True)
    return result, out


def test_a_cell_runs_in_the_users_namespace(shell):
    result, _ = run(shell, '%%trace x="B T C" C=6 H=3\nx = torch.randn(2, 5, 6)\ny = x.mT\n')
    assert result.success and isinstance(result.result, Trace)
    assert [op.outputs[0].label for op in result.result] == ["[B, T, C]", "[B, C, T]"]
    assert result.result["y"].variable == "y"
    assert result.result[1].source.code == "y = x.mT" and result.result[1].source.line == 2
    assert shell.user_ns["y"].shape == (2, 6, 5)
    assert result.result.sizes == {"B": 2, "T": 5, "C": 6, "H": 3, "D": 2} or result.result.sizes["C"] == 6


def test_variables_from_an_earlier_cell(shell):
    run(shell, "x = torch.randn(2, 5, 6)")
    result, _ = run(shell, "%%trace x='B T C'\ny = x + 1")
    assert result.result[0].outputs[0].label == "[B, T, C]" and result.result.warnings == ()


def test_the_value_of_a_last_expression_is_shown(shell):
    _, out = run(shell, "%%trace\nx = torch.ones(3)\n'shown', x.sum().item()")
    assert "('shown', 3.0)" in out.stdout
    _, out = run(shell, "%%trace\nx = torch.ones(3)\n'hidden', x.sum().item();  # quiet")
    assert "hidden" not in out.stdout
    _, out = run(shell, "%%trace\nprint('printed')\n!echo from the system")
    assert "printed" in out.stdout


def test_an_exception_is_shown_with_its_explanation(shell):
    result, out = run(shell, '%%trace x="B T C"\nx = torch.randn(2, 5, 6)\ny = x @ x\n')
    assert isinstance(result.error_in_exec, RuntimeError)
    assert len(result.error_in_exec.trace) == 1
    assert "y = x @ x" in out.stdout and "[B, T, C]" in out.stdout
    assert "__torch_function__" not in out.stdout and "engine.py" not in out.stdout
    result, out = run(shell, "%%trace\n1 +")
    assert not result.success and "SyntaxError" in out.stdout + out.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x=B", "does not understand 'x=B'"),
        ('"B T C"', "does not understand"),
        ("C=4.5", "does not understand 'C=4.5'"),
        ("c=48", "c=48 is neither a size"),
        ("C=0", "sizes="),
        ('x="B ("', "bracket"),
        ('x="B T C" C=', "does not understand 'C='"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(shell, line, words):
    result, out = run(shell, f"%%trace {line}\nran = True")
    assert not result.success and "ran" not in shell.user_ns
    assert "UsageError" in type(result.error_in_exec).__name__
    assert words in str(result.error_in_exec)
    assert "Traceback" not in out.stdout + out.stderr


def test_a_top_level_await_is_refused(shell):
    result, _ = run(shell, "%%trace\nimport asyncio\nran = True\nawait asyncio.sleep(0)")
    assert "await" in str(result.error_in_exec) and "ran" not in shell.user_ns
    result, _ = run(shell, "%%trace\nasync def f():\n    await g()\nx = [1 for _ in 'ab']\n")
    assert result.success


def test_options():
    assert _options("") == ({}, {})
    assert _options("  x = 'B T'  D_k=3 y=\"\" ") == ({"x": "B T", "y": ""}, {"D_k": 3})
    assert _options('X="B" C=48') == ({"X": "B"}, {"C": 48})
    with pytest.raises(AxesError):
        _options("x='B T")


def test_axes_go_to_the_cells_own_variable_first(shell):
    run(shell, "def helper():\n    x = torch.zeros(3)\n    return x + 1")
    result, _ = run(shell, '%%trace x="B T"\nhelper()\nx = torch.randn(2, 5)\n')
    assert result.result[-1].outputs[0].label == "[B, T]"
    assert result.result[0].outputs[0].label == "[?=3]"


def test_a_cell_in_another_thread_with_a_loop(shell):
    async def main():
        return run(shell, "%%trace\ny = torch.ones(2) + 1")

    results = []
    worker = threading.Thread(target=lambda: results.append(asyncio.run(main())))
    worker.start()
    worker.join()
    assert len(results[0][0].result) == 2 and torch.equal(shell.user_ns["y"], torch.full((2,), 2.0))


def test_a_cell_that_is_no_python_shows_one_line(shell):
    result, out = run(shell, '%%trace x="B T C"\nx = torch.randn(2, 4, 6\n')
    assert not result.success
    assert "SyntaxError: '(' was never closed (line 1): x = torch.randn(2, 4, 6" in out.stdout + out.stderr
    assert "magic.py" not in out.stdout + out.stderr
