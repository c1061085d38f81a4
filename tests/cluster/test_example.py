"""The example in `examples/` learns on a cluster that is there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from cluster.conftest import TwoNodes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_ppo_learns_by_its_address_alone(
    cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("ray_ppo")
    curve = example.main(["--address", cluster.address, "--steps", "20000"])
    assert max(curve[-4:]) > 40  # a policy that has learned nothing stays near 22
    output = capsys.readouterr().out
    assert "shard 0" in output and "shard 1" in output
