"""The fixtures that every test relies on."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443), ("2001:db8::1", 80, 0, 0)])
def test_another_machine_is_out_of_reach(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as outward, pytest.raises(AssertionError, match="tried to connect"):
        outward.connect(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_within_reach(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect((host, server.getsockname()[1]))


def test_cpu_and_one_thread() -> None:
    assert not torch.cuda.is_available()
    assert torch.get_num_threads() == 1
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_golden_compares_and_updates(
    golden: Golden, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(golden.__globals__, "GOLDEN", tmp_path)  # type: ignore[attr-defined]
    monkeypatch.setattr(request.config.option, "update", False)
    with pytest.raises(AssertionError, match="is missing"):
        golden("part/name.txt", "x")
    monkeypatch.setattr(request.config.option, "update", True)
    golden("part/name.txt", "x\n축")
    monkeypatch.setattr(request.config.option, "update", False)
    golden("part/name.txt", "x\n축\n")
    with pytest.raises(AssertionError, match="differs"):
        golden("part/name.txt", "y")
