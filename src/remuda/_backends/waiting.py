"""Deadlines, flags and waits of backends. A deadline counts only the time in which this process is not frozen."""

from __future__ import annotations

import os
from collections.abc import Collection
from math import inf

from remuda import _core
from remuda._system.forks import register_holder
from remuda._system.originals import select
from remuda._system.sockets import wait_readable
from remuda.errors import RemudaError

_SLICE = 0.05  # seconds


class Deadline:
    """A deadline on a clock that stands still while this process is frozen (`running_clock.hpp`).

    A caller that waits sleeps no longer than `slice()` at a time, and then checks whether the deadline `has_passed`.
    """

    def __init__(self, seconds: float | None, *, is_beside: bool = False) -> None:
        """Begins the time.

        Args:
            seconds: The time from now; None: the deadline never passes.
            is_beside: Whether it is the deadline of another process, which runs while a thread of this one waits for
                the GIL.
        """
        self._clock, self._is_beside = _core.RunningClock(), is_beside
        self._end = inf if seconds is None else self._now(has_waited=False) + seconds

    def left(self) -> float:
        """Returns the seconds left; 0 if the deadline has passed."""
        return max(0.0, self._end - self._now(has_waited=False))

    def slice(self) -> float | None:
        """Returns the most seconds to sleep before the next check of the deadline; None: no limit."""
        return None if self._end == inf else min(self.left(), _SLICE)

    def has_passed(self) -> bool:
        """Whether the deadline has passed. Call this after each sleep."""
        return self._now(has_waited=True) >= self._end

    def _now(self, *, has_waited: bool) -> float:
        return self._clock.now(has_waited, self._is_beside)


class Flag:
    """An event that a thread can await together with descriptors: `fileno` is readable once it is set."""

    def __init__(self) -> None:
        self._fds = _core.Descriptors(map(os.eventfd, [0]))
        register_holder(self)

    def fileno(self) -> int:
        return self._fds[0]

    def set(self) -> None:
        """Sets the flag. Does nothing if it is closed."""
        for fd in self._fds:
            os.eventfd_write(fd, 1)

    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, seconds: float | None) -> bool:
        """Returns whether the flag is set within `seconds`; None: no limit."""
        return wait_readable([self.fileno()], seconds)

    def close(self) -> None:
        self._fds.close()

    def drop_descriptors(self) -> None:
        """Closes a forked child's copy of the descriptor."""
        self.close()


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
