"""``benchmarks/tensors.py`` prints a table for what can be measured here, and says what cannot."""

from __future__ import annotations

import argparse
import sys

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rollouts need Linux")


def lines_of(*only: str) -> list[str]:
    import tensors

    options = argparse.Namespace(only=only, num_workers=2, steps=4, seconds=0.0, rounds=1)
    return list(tensors.markdown(options))


def test_the_cpu_time_of_an_env_step() -> None:
    _, _, *rows, _, machine = lines_of("driver")
    assert [float(row.split(" | ")[1].removesuffix(" |")) > 0 for row in rows] == [True] * 4
    assert "CPU time has what this process spins" in machine


def test_tensors_and_rollouts_on_the_cpu() -> None:
    lines = lines_of("share", "assemble")
    assert [line.split(" | ")[0] for line in lines if "shared" in line] == [
        "| `torch.from_numpy(batch.obs)`: shared",
        '| `batch.to("cpu")`: seven columns, shared',
    ]
    assert any(line.startswith('| `pool.rollout` and `.to("cpu")`') for line in lines)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert lines_of("cuda")[0].startswith("There is no CUDA device here")
