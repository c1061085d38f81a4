"""The example `ray_ppo.py` learns on an existing cluster."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.conftest import TwoNodes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_ppo_learns_with_only_the_address_given(
    cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    curve = importlib.import_module("ray_ppo").main(["--address", cluster.address, "--steps", "20000"])
    assert max(curve[-4:]) > 40  # an untrained policy stays near 22
    output = capsys.readouterr().out
    assert "shard 0" in output and "shard 1" in output


def test_ppo_with_a_recurrent_policy_runs_in_a_trial_of_tune(cluster: TwoNodes, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="Ray Tune is not installed")
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "HOME": str(tmp_path)}  # for the results of Ray Tune
    command = [sys.executable, str(EXAMPLES / "ray_ppo.py"), "--trial", "--recurrent", "--steps", "8000"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    learned = re.search(r"the trial has learned: mean return ([\d.]+)", output)
    assert learned is not None and float(learned[1]) > 10
