"""Programs on a cluster: the code of the pages, the example `ray_ppo.py`, and the progress bar at a pool's start."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import test_docs
from cluster.conftest import TwoNodes
from doc_pages import Reader
from pool_envs import make_gates
from watched import starting_program, terminal_of

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


@pytest.mark.parametrize("name", test_docs.ON_CLUSTERS)
def test_the_code_of_pages_runs_on_an_existing_cluster_or_starts_one(
    cluster: TwoNodes, name: str, tmp_path: Path
) -> None:
    address = "local" if name == "reference/ray.md" else cluster.address
    with Reader(test_docs.PATHS, address) as reader:
        test_docs.run_code(test_docs.ROOT / "docs" / name, reader, tmp_path)


def test_the_bar_counts_and_names_the_envs_of_shards(cluster: TwoNodes, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    where = f"Ray(shards=2, backend='serial', address={cluster.address!r})"
    code = starting_program([None, None, gate, None], f"dict(backend={where})").replace(", num_workers=4", "")
    with terminal_of(code, tmp_path) as shown:
        shown.await_text(
            lambda text: re.search(r"^building envs \S+ 2/4 \d:\d\d:\d\d waits for envs 2, 3 *$", text, re.M)
        )
        gate.let_pass()
        shown.await_text(lambda text: "built" in text and "building" not in text)
        shown.press("\n")
        assert shown.await_end()[0] == 0
