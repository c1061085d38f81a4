"""Waits for processes that start, for as long as the start may last."""

from __future__ import annotations

from collections.abc import Collection

from remuda._backends.deadline import Deadline
from remuda._backends.flag import Flag
from remuda._system.originals import select
from remuda.errors import RemudaError


class LateError(Exception):
    """The time for a start is over."""


class StartWait:
    """The waiting of one start, in which a thread blocks."""

    def __init__(self, timeout: float | None, unwanted: Flag) -> None:
        """Begins the time of the start.

        Args:
            timeout: The seconds for the start; None: no limit.
            unwanted: If it is set, the start ends with RemudaError.
        """
        self._deadline, self._unwanted = Deadline(timeout, is_beside=True), unwanted

    def __call__(self, fds: Collection[int], seconds: float | None = None) -> set[int]:
        """Waits until some of the descriptors are readable, and returns these; none after `seconds`.

        Raises LateError if the time for the start is over, and RemudaError if the start is unwanted.
        """
        poller, patience = select.poll(), Deadline(seconds)
        for fd in (*fds, self._unwanted.fileno()):
            poller.register(fd, select.POLLIN)
        while True:
            is_late, is_over = self._deadline.has_passed(), patience.has_passed()
            slices = [slice for one in (self._deadline, patience) if (slice := one.slice()) is not None]
            ready = {fd for fd, _ in poller.poll(min(slices) * 1000 if slices else None)}
            if self._unwanted.fileno() in ready:
                raise RemudaError("the pool was closed")
            if found := ready.intersection(fds):
                return found
            if is_late:
                raise LateError
            if is_over:
                return set()
