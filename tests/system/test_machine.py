"""The description of the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from remuda._system.machine import cpu_model


@pytest.mark.parametrize(
    ("cpuinfo", "model"), [("model name\t: Fast One\nmodel name\t: Fast One\n", "Fast One"), ("", platform.machine())]
)
def test_the_cpu_model_is_read_from_cpuinfo(tmp_path: Path, cpuinfo: str, model: str) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    assert cpu_model(path) == model
