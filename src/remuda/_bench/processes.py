"""The CPU time and memory of worker processes, and the CPU time of all other programs, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from remuda._system.cgroups import ROOT
from remuda._system.processes import usage_of_cores

_IDLE_SHARE = 0.02
_IDLE_WINDOW = 0.02


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of all threads of a process in seconds, or 0.0 if the process has ended."""
    clock = (~pid << 3) | 2  # the kernel's number for the process's CPU clock, which is more exact than /proc's ticks
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


def total_cpu_seconds(pids: Iterable[int]) -> float:
    return sum(map(cpu_seconds, pids))


def busy_seconds(root: Path = ROOT) -> float:
    """Returns the busy time of the CPUs that this process may run on, since the machine was started.

    It includes time that the host used for other virtual machines. 0.0: the system does not report it.
    """
    usage = usage_of_cores(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else (), root)
    return usage.busy + usage.stolen


def pss_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Returns a process's private memory and its share of shared memory (PSS), in bytes; None if it has ended."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    sizes = (line.split() for line in lines)
    return next((int(fields[1]) * 1024 for fields in sizes if fields[0] == "Pss:"), None)


def mean_pss_mb(pids: Iterable[int]) -> float | None:
    """Returns the mean proportional set size in MB (1e6 bytes), or None if no process can be read."""
    sizes = [size for size in map(pss_bytes, pids) if size is not None]
    return sum(sizes) / len(sizes) / 1e6 if sizes else None


def wait_until_idle(used: Callable[[], float], limit: float = 1.0) -> None:
    """Waits, at most ``limit`` seconds, until the CPU time that ``used`` returns no longer grows.

    Some pools spin for a while after their last step, which would slow the next contender down.
    """
    deadline = time.monotonic() + limit
    before = used()
    while time.monotonic() < deadline:
        time.sleep(_IDLE_WINDOW)
        now = used()
        if now - before < _IDLE_SHARE * _IDLE_WINDOW:
            return
        before = now
