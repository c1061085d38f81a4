"""Waits for processes that start, for as long as the start may last."""

from __future__ import annotations

from collections.abc import Collection

from remuda._backends.deadline import Deadline
from remuda._backends.flag import Flag
from remuda._progress.bar import BuildBar
from remuda._relay.receiver import Relay
from remuda._system.originals import select
from remuda.errors import RemudaError


class LateError(Exception):
    """The time for a start is over."""


class StartWait:
    """The waiting of one start, in which a thread blocks. Meanwhile it shows progress and passes on log records."""

    def __init__(
        self, timeout: float | None, unwanted: Flag, relay: Relay | None = None, progress: BuildBar | None = None
    ) -> None:
        """Begins the time of the start.

        Args:
            timeout: The seconds for the start; None: no limit.
            unwanted: If it is set, the start ends with RemudaError.
            relay: The receiver of log records, if no other thread drains it.
            progress: The progress bar, if there is one.
        """
        self._deadline, self._unwanted, self._relay, self._progress = Deadline(timeout), unwanted, relay, progress

    def __call__(self, fds: Collection[int], seconds: float | None = None) -> set[int]:
        """Waits until some of the descriptors are readable, and returns these; none after `seconds`.

        Raises LateError if the time for the start is over, and RemudaError if the start is unwanted.
        """
        poller, patience = select.poll(), Deadline(seconds)
        for fd in (*fds, self._unwanted.fileno(), *([] if self._relay is None else [self._relay.fileno()])):
            poller.register(fd, select.POLLIN)
        while True:
            is_late, is_over = self._deadline.has_passed(), patience.has_passed()
            ready = {fd for fd, _ in poller.poll(self._milliseconds(patience))}
            if self._unwanted.fileno() in ready:
                raise RemudaError("the pool was closed")
            if self._relay is not None:
                self._relay.drain()
            if found := ready.intersection(fds):
                return found
            if is_late:
                raise LateError
            if is_over:
                return set()

    def _milliseconds(self, patience: Deadline) -> float | None:
        slices = [slice for one in (self._deadline, patience) if (slice := one.slice()) is not None]
        seconds = min(slices, default=None)
        if self._progress is not None:
            seconds = self._progress.show(seconds)
        return None if seconds is None else seconds * 1000
