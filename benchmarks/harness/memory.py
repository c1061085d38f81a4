"""The memory of worker processes, from /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


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
