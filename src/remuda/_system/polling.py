"""Waits for descriptors."""

from __future__ import annotations

from collections.abc import Iterable

from remuda._system.originals import select

_MOST_SECONDS = 1e6  # the most seconds for `poll`, which takes milliseconds as an int


def wait_readable(fds: Iterable[int], seconds: float | None) -> bool:
    """Waits `seconds` (None: no limit) until one of the descriptors is readable. Returns whether one is."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else max(0, min(seconds, _MOST_SECONDS)) * 1000))
