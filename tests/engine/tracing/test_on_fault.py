"""`trace_on_fault=`: a trace of the events before each fault."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv, HookedEnv
from programs import kill, step_until_restarted
from traces import load, names, slices

import remuda
from remuda import EnvError, Pool

ACTIONS = np.zeros(2, np.int64)


def raises_in_step_3(env: Any, _: Any) -> None:
    if env.total_steps % 3 == 0:
        raise ValueError("broken")


FNS = [CountingEnv, lambda: HookedEnv(step=raises_in_step_3)]


@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_a_fault_writes_a_trace_and_logs_its_path(
    faults: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any = {"backend": "serial", "num_workers": 1, "faults": faults, "trace_on_fault": tmp_path / "traces"}
    with Pool(FNS, **options) as pool, caplog.at_level(logging.WARNING):
        pool.reset()
        for _ in range(2):
            with remuda.span("before"):
                pool.step(ACTIONS)
        if faults == "raise":
            with pytest.raises(EnvError):
                pool.step(ACTIONS)
        else:
            pool.step(ACTIONS)
        (path,) = (tmp_path / "traces").iterdir()
    assert path.name.endswith("-1-env-1-exception.json")
    assert [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
    assert names(path, "span") == ["before"] * 2
    assert len(names(path, "batch")) == 3
    assert [event["name"] for event in load(path)["traceEvents"] if event["ph"] == "i"] == ["exception env 1"]


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_each_death_writes_a_trace(tmp_path: Path) -> None:
    with Pool([CountingEnv] * 2, faults="restart", trace_on_fault=tmp_path) as pool:
        pool.reset()
        for _ in range(2):
            pid = kill(pool, 0)
            step_until_restarted(pool, 0, pid)
    paths = sorted(tmp_path.iterdir())
    assert [path.name.split("-", 2)[2] for path in paths] == ["1-env-0-death.json", "2-env-0-death.json"]
    assert "restart" in {event["cat"] for event in slices(paths[1])}


def test_a_trace_that_cannot_be_written_is_logged_and_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "traces"
    with Pool(FNS, backend="serial", num_workers=1, faults="restart", trace_on_fault=directory) as pool:
        directory.rmdir()
        pool.reset()
        for _ in range(3):
            pool.step(ACTIONS)
    assert "the trace of a fault could not be written" in caplog.text


def test_a_pool_writes_at_most_20_traces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    faults = remuda.FaultPolicy("restart", max_restarts=100)
    with Pool(FNS, backend="serial", num_workers=1, faults=faults, trace_on_fault=tmp_path) as pool:
        pool.reset()
        for _ in range(100):
            pool.step(ACTIONS)
    assert len(list(tmp_path.iterdir())) == 20
    assert caplog.text.count("it is the last of 20 of this pool") == 1


def test_trace_on_fault_must_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected trace_on_fault to be a directory or None, got 3"):
        Pool(FNS, backend="serial", trace_on_fault=3)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        Pool(FNS, backend="serial", trace_on_fault=tmp_path / "file")
