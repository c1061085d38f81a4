"""Reads the private memory of a process and its descendants, and checks it against a limit."""

from __future__ import annotations

import os
from pathlib import Path

from remuda._relay.log import logger

_PROC = Path("/proc")


def own_bytes(pid: int | None = None, proc: Path = _PROC) -> int:
    """Returns the bytes of anonymous memory, swapped out or not, of a process (None: this one) and its descendants.

    Mapped files and shared memory, such as a pool's, do not count. A process that has ended or that cannot be read
    counts as 0.
    """
    total, waiting = 0, [os.getpid() if pid is None else pid]
    while waiting:
        place = proc / str(waiting.pop())
        total += _bytes_of(place)
        waiting += _children(place)
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


def _bytes_of(place: Path) -> int:
    found = {"RssAnon": 0, "VmSwap": 0}
    for line in _text(place / "status").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return sum(found.values())


def _children(place: Path) -> list[int]:
    try:
        threads = os.listdir(place / "task")
    except OSError:
        return []
    return [int(pid) for thread in threads for pid in _text(place / "task" / thread / "children").split()]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
