"""CPU time and memory of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda._bench.processes import (
    busy_seconds,
    cpu_seconds,
    mean_pss_mb,
    pss_bytes,
    total_cpu_seconds,
    wait_until_idle,
)

BURN = "import time\nwhile time.process_time() < 0.1: pass\nprint('done', flush=True)\ninput()"


@pytest.fixture
def burnt() -> Iterator[subprocess.Popen[str]]:
    """Starts a process that uses a tenth of a second of CPU and then waits."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process
        process.communicate("\n")


def test_cpu_time_of_another_process_is_read(burnt: subprocess.Popen[str]) -> None:
    assert cpu_seconds(burnt.pid) >= 0.1
    assert total_cpu_seconds([burnt.pid, burnt.pid]) >= 0.2


def test_cpu_time_of_this_process_is_read() -> None:
    before, now, after = time.process_time(), cpu_seconds(os.getpid()), time.process_time()
    assert before <= now <= after


def test_memory_of_another_process_is_read(burnt: subprocess.Popen[str]) -> None:
    size = pss_bytes(burnt.pid)
    assert size is not None
    assert size > 100_000
    assert mean_pss_mb([burnt.pid]) == pytest.approx(size / 1e6, rel=0.1)


def test_a_process_that_is_gone_costs_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cpu_seconds(gone.pid) == 0.0
    assert pss_bytes(gone.pid) is None
    assert mean_pss_mb([gone.pid]) is None


def test_pss_is_read_in_bytes(tmp_path: Path) -> None:
    rollup = tmp_path / "7" / "smaps_rollup"
    rollup.parent.mkdir()
    rollup.write_text("00-ff ---p 00000000 00:00 0 [rollup]\nRss:  99 kB\nPss:  12 kB\nPss_Dirty:  1 kB\n")
    assert pss_bytes(7, tmp_path) == 12 * 1024


def test_wait_until_idle_ends_when_cpu_time_stops_growing() -> None:
    readings = iter([0.0, 1.0, 2.0, 2.0])
    wait_until_idle(lambda: next(readings), limit=float("inf"))
    assert list(readings) == []


def test_wait_until_idle_ends_at_its_limit() -> None:
    readings = iter(range(1000))
    wait_until_idle(lambda: float(next(readings)), limit=0.05)
    assert next(readings) > 1


def test_busy_seconds_counts_all_programs_on_our_cpus(tmp_path: Path) -> None:
    ours = sorted(os.sched_getaffinity(0))
    other = max(ours) + 1
    busy, idle = "100 20 30 7000 800 4 5 6 50 0", "0 0 0 9000 0 0 0 0 0 0"
    lines = [f"cpu  {busy}", f"cpu{ours[0]} {busy}", *(f"cpu{cpu} {idle}" for cpu in ours[1:]), f"cpu{other} {busy}"]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("\n".join([*lines, "intr 1 2 3", ""]))
    assert busy_seconds(tmp_path) == pytest.approx((100 + 20 + 30 + 4 + 5 + 6) / os.sysconf("SC_CLK_TCK"))
    assert busy_seconds(tmp_path / "nowhere") == 0.0
    before = busy_seconds()
    while busy_seconds() <= before:  # this loop is busy
        pass
