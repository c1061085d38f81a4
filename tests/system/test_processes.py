"""CPU time of processes, read from /proc: of this process, and from fake files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from remuda._system.processes import CoresUsage, Usage, usage_of, usage_of_cores

TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def test_usage_is_read_from_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    numbers = " ".join(["0"] * 10 + ["150", "50"] + ["0"] * 20)
    (folder / "stat").write_text(f"7 (a name) with) S {numbers}")
    (folder / "schedstat").write_text("5000000000 250000000 17")
    assert usage_of(7, tmp_path) == Usage(200 * TICK, 0.25)


@pytest.mark.parametrize("pid", [None, 8])
def test_a_missing_process_has_no_usage(pid: int | None, tmp_path: Path) -> None:
    assert usage_of(pid, tmp_path) == Usage(0.0, 0.0)
    assert usage_of_cores([0], tmp_path) == CoresUsage(0.0, 0.0)


def test_only_the_given_cores_count(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    lines = ["cpu 999 0 0 0", "cpu0 10 20 30 4000 500 1 2 3 0 0", "cpu1 100 0 0 4000 0 0 0 0 0 0", "intr 1 2 3"]
    (tmp_path / "proc" / "stat").write_text("\n".join(lines))
    first, both = usage_of_cores([0], tmp_path), usage_of_cores([0, 1], tmp_path)
    assert (first.busy, first.stolen) == pytest.approx((63 * TICK, 3 * TICK))
    assert (both.busy, both.stolen) == pytest.approx((163 * TICK, 3 * TICK))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_the_usage_of_this_process_is_read() -> None:
    before = usage_of(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    after = usage_of(os.getpid())
    assert after.cpu - before.cpu >= 0.1 - 2 * TICK
    assert after.queued >= before.queued
    assert usage_of_cores(os.sched_getaffinity(0)).busy > 0
