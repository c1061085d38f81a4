"""Counts the time in which the pool's caller unpickles infos."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda._engine.running import Running


class UnpicklingMeter:
    """Adds the time of unpickling to the figures of a pool while the pool is open. A pickled copy does nothing.

    It refers weakly to the running pool, because batches outlive their pool, and the pool refers to the meter.
    """

    def __init__(self, running: Running | None = None) -> None:
        """`running`: the objects of the running pool. With None the meter does nothing."""
        self._running = None if running is None else weakref.ref(running)

    def note(self, nanoseconds: int) -> None:
        """Adds the nanoseconds that unpickling an info took."""
        running = None if self._running is None else self._running()
        if running is not None and running.is_there:
            running.hub.caller.note_unpickled(nanoseconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpicklingMeter, ()
