"""Reads the private memory of a process and its descendants, and checks it against a limit."""

from __future__ import annotations

import os
import re
from glob import glob
from pathlib import Path

from remuda._relay.log import logger
from remuda._system.cgroups import read_text


def own_bytes(pid: int | None = None, proc: Path = Path("/proc")) -> int:
    """Returns the bytes of anonymous memory, swapped out or not, of a process (None: this one) and its descendants.

    Mapped files and shared memory, such as a pool's, do not count. A process that has ended or that cannot be read
    counts as 0.
    """
    total, waiting = 0, [os.getpid() if pid is None else pid]
    while waiting:
        place = proc / str(waiting.pop())
        sizes = re.findall(r"^(?:RssAnon|VmSwap):\s*(\d+) kB", read_text(place / "status"), re.MULTILINE)
        total += 1024 * sum(map(int, sizes))
        waiting += [int(pid) for path in glob(f"{place}/task/*/children") for pid in read_text(Path(path)).split()]
    return total


def in_words(count: float) -> str:
    """Formats a number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def has_grown(worker: int, limit: int) -> bool:
    """Returns whether this process, a worker, and its descendants use more memory than `limit`. If so, logs that."""
    taken = own_bytes()
    if taken <= limit:
        return False
    text = "worker %d takes %s of memory, more than max_worker_memory, %s; it is replaced between two episodes"
    logger.warning(text, worker, in_words(taken), in_words(limit))
    return True
