"""Deadlines that count only the time in which this process runs, and not the time in which it is frozen."""

from __future__ import annotations

from math import inf

from remuda import _core

_SLICE = 0.05  # seconds


class Deadline:
    """A deadline on the clock of `running_clock.hpp`.

    A caller that waits sleeps no longer than `slice()` at a time, and then checks whether the deadline `has_passed`.
    """

    def __init__(self, seconds: float | None) -> None:
        """`seconds`: from now; None: it never comes."""
        self._clock = _core.RunningClock()
        self._end = inf if seconds is None else self._clock.now(has_waited=False) + seconds

    def left(self) -> float:
        """Returns the seconds left; 0 if it has passed."""
        return max(0.0, self._end - self._clock.now(has_waited=False))

    def slice(self) -> float | None:
        """Returns the seconds for one sleep; None: no limit."""
        return None if self._end == inf else min(self.left(), _SLICE)

    def has_passed(self) -> bool:
        """Whether it has passed; to be called after a sleep."""
        return self._clock.now(has_waited=True) >= self._end
