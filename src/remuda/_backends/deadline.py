"""Deadlines that count only the time in which this process runs, not the time in which it is frozen."""

from __future__ import annotations

from math import inf

from remuda import _core

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
