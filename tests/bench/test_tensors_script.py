"""``benchmarks/tensors.py`` prints a table, and names the cases that this machine cannot measure."""

from __future__ import annotations

import sys

import pytest
from bench_fakes import session

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rollouts need Linux")


def lines_of(*only: str) -> list[str]:
    import tensors

    short = session(0.0, only=only, num_workers=2)
    return [*tensors.markdown(short), *short.left_out]


def test_the_cpu_time_of_env_steps_is_printed() -> None:
    _, _, *rows, _, machine = lines_of("driver")
    assert [float(row.split(" | ")[1].removesuffix(" |")) > 0 for row in rows] == [True] * 4
    assert "CPU time includes the spinning of this process" in machine


def test_shared_tensors_on_the_cpu_are_measured() -> None:
    lines = lines_of("share")
    assert [line.split(" | ")[0] for line in lines if "shared" in line] == [
        "| `torch.from_numpy(batch.obs)`: shared",
        '| `batch.to("cpu")`: seven columns, shared',
    ]


def test_a_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert lines_of("cuda")[-1].startswith("cuda: there is no CUDA device here")
