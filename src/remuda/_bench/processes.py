"""CPU time and memory of worker processes, and of all other programs meanwhile, read from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_IDLE_SHARE = 0.02
_IDLE_WINDOW = 0.02


def cpu_seconds(pid: int) -> float:
    """CPU time the process has used, all its threads, in seconds; 0.0 once it is gone."""
    clock = (~pid << 3) | 2  # the kernel's number for that process's CPU clock: exact, unlike /proc's ticks
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


def total_cpu_seconds(pids: Iterable[int]) -> float:
    return sum(map(cpu_seconds, pids))


def busy_seconds(proc: Path = Path("/proc")) -> float | None:
    """CPU time that anybody has used of the CPUs that we may run on, since the machine was started.

    None where the system does not tell. What the machine's host took for others counts too.
    """
    try:
        lines = (proc / "stat").read_text().splitlines()
        ours = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    ticks = 0
    for name, *fields in (line.split() for line in lines if line.startswith("cpu")):
        user, nice, system, _idle, _iowait, irq, softirq, steal = [int(field) for field in (*fields, *"00000000")][:8]
        ticks += user + nice + system + irq + softirq + steal if name in ours else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Proportional set size: private memory plus a fair share of what is shared. None once it is gone."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    sizes = (line.split() for line in lines)
    return next((int(fields[1]) * 1024 for fields in sizes if fields[0] == "Pss:"), None)


def mean_pss_mb(pids: Iterable[int]) -> float | None:
    """Mean PSS of the processes in MB (1e6 bytes), None if none of them can be read."""
    sizes = [size for size in map(pss_bytes, pids) if size is not None]
    return sum(sizes) / len(sizes) / 1e6 if sizes else None


def wait_until_idle(used: Callable[[], float], limit: float = 1.0) -> None:
    """Wait, at most ``limit`` seconds, until the CPU time that ``used`` reports stands still.

    Some pools spin for a while after their last step; without this the next contender would pay for it.
    """
    deadline = time.monotonic() + limit
    before = used()
    while time.monotonic() < deadline:
        time.sleep(_IDLE_WINDOW)
        now = used()
        if now - before < _IDLE_SHARE * _IDLE_WINDOW:
            return
        before = now
