"""Deadlines in time in which this process ran: what the whole job was frozen for makes nobody late."""

from __future__ import annotations

from math import inf

from remuda import _core

_SLICE = 0.05  # seconds


class Deadline:
    """The end of somebody's time, on the clock of `running_clock.hpp`.

    Who waits for it sleeps no longer than `slice()` at a time, and then asks again whether it `has_passed`.
    """

    def __init__(self, seconds: float | None) -> None:
        """`seconds`: from now; None: it never comes."""
        self._clock = _core.RunningClock()
        self._end = inf if seconds is None else self._clock.now(has_waited=False) + seconds

    def left(self) -> float:
        """Seconds, 0 when it has passed."""
        return max(0.0, self._end - self._clock.now(has_waited=False))

    def slice(self) -> float | None:
        """Seconds for one sleep; None: it may be as long as it likes."""
        return None if self._end == inf else min(self.left(), _SLICE)

    def has_passed(self) -> bool:
        """To be asked after a sleep."""
        return self._clock.now(has_waited=True) >= self._end
