"""What the README says is so: its code runs, its sample is what a trace prints, its links lead somewhere."""

import linecache
import re
from pathlib import Path

import pytest
import torch

import tracer
from tracer.models import GPT, GPTConfig

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for i, block in enumerate(blocks):
        file = f"<README {i}>"  # variables are read off the source, so it has to be found
        linecache.cache[file] = (len(block), None, block.splitlines(True), file)
        exec(compile(block, file, "exec"), names)
    printed = capsys.readouterr().out
    sample = re.search(r"of what it prints .*?```\n(.*?)```", TEXT, re.DOTALL)
    assert "[B, T, C]" in printed
    assert sample is not None
    assert [line for line in sample[1].splitlines() if line.strip() not in printed] == []
    assert names["t"]["q"].label == "[B, H, T, D]"  # type: ignore[index]


def test_the_sample_is_what_a_trace_prints() -> None:
    model = GPT(GPTConfig(n_layer=1, n_head=3, n_embd=48, vocab_size=10, block_size=8)).eval()
    printed = str(tracer.trace(model, torch.zeros(2, 8, dtype=torch.long)))
    sample = re.search(r"by name\*\*:\n\n```\n(.*?)```", TEXT, re.DOTALL)
    assert sample is not None
    for line in sample[1].splitlines():
        assert line.strip() in printed, line


@pytest.mark.parametrize(("page", "least"), [("README.md", 4), ("notebooks/README.md", 2)])
def test_links_lead_somewhere(page: str, least: int) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert len(targets) >= least
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
