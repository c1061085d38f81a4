"""Memory that a device is reading: held until the event behind its copy has completed."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from remuda._system.forks import fork_safe_lock, run_in_children


class Event(Protocol):
    """What of `torch.cuda.Event` is needed here."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class UnderWay:
    """Copies on one stream, which complete in their order. May be used by several threads."""

    def __init__(self) -> None:
        self._copies: deque[tuple[Event, Any]] = deque()
        self._lock = fork_safe_lock()  # a signal handler may copy something, too
        _all.append(self)

    def hold(self, memory: Any, until: Event) -> None:
        with self._lock:
            self._copies.append((until, memory))

    def let_go(self) -> None:
        """Of all that has been copied."""
        with self._lock:
            while self._copies and self._copies[0][0].query():
                self._copies.popleft()

    def finish(self) -> None:
        """Waits for all copies, and lets go."""
        with self._lock:
            while self._copies:
                self._copies[0][0].synchronize()
                self._copies.popleft()


_all: list[UnderWay] = []  # of this process: one for each device
run_in_children(_all.clear)  # the copies are the parent's, and a forked child may not call CUDA


def finish_all() -> None:
    """Waits for all copies, and lets go of the memory that they read: before that of a pool is to go."""
    for under_way in _all:
        under_way.finish()
