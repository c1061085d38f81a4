"""Counts the time in which the pool's caller unpickles infos."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda._engine.running.running import Running


class UnpicklingMeter:
    """Adds to the figures of a pool for as long as that is open. A pickled copy counts nothing.

    It refers weakly to what runs, because batches outlive their pool, and the pool refers to it.
    """

    def __init__(self, running: Running | None = None) -> None:
        """`running`: of the pool; None: nothing is counted."""
        self._running = None if running is None else weakref.ref(running)

    def note(self, nanoseconds: int) -> None:
        """An info was unpickled."""
        running = None if self._running is None else self._running()
        if running is not None and running.is_there:
            running.hub.caller.note_unpickled(nanoseconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpicklingMeter, ()
