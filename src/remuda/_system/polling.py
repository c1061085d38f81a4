"""Waits for descriptors."""

from __future__ import annotations

import select
from collections.abc import Iterable

_MOST_SECONDS = 1e6  # `poll` takes an int of milliseconds


def wait_readable(fds: Iterable[int], seconds: float | None) -> bool:
    """Waits until one of the descriptors is readable, or for so many seconds (None: no limit). Whether one is."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else max(0, min(seconds, _MOST_SECONDS)) * 1000))
