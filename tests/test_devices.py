"""The device that notebooks run on can be chosen, and a wrong choice is told clearly."""

import pytest
import torch

from tracer import TracerError, device, devices


def test_the_cpu_where_nothing_else_is_there(monkeypatch):
    monkeypatch.delenv("SHAPE_TRACER_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_present", lambda: [torch.device("cpu")])
    assert device() == torch.device("cpu")


def test_the_first_that_works(monkeypatch):
    monkeypatch.delenv("SHAPE_TRACER_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_present", lambda: [torch.device("cuda"), torch.device("mps"), torch.device("cpu")])
    monkeypatch.setattr(devices, "_works", lambda d: d.type == "mps")
    assert device().type == "mps"


def test_the_environment_decides(monkeypatch):
    monkeypatch.setenv("SHAPE_TRACER_DEVICE", " cpu ")
    assert device() == torch.device("cpu")
    for wrong, words in (("gpu", "is no device"), ("cuda:7", "does not work here")):
        monkeypatch.setenv("SHAPE_TRACER_DEVICE", wrong)
        with pytest.raises(TracerError, match=words) as e:
            device()
        assert "SHAPE_TRACER_DEVICE" in str(e.value) and "cpu" in str(e.value)
