"""Records the events of one pool, for the traces that listen to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from remuda import _core
from remuda._engine.running.fault_history import FaultHistory
from remuda._engine.running.running import Running
from remuda._engine.tracing.history import EVENT, History, TracedWorker


class PoolTracer:
    """Records the events of a pool's hub while a trace listens. Keeps no reference to the pool's memory.

    Attributes:
        fault_history: The other events of the pool.
        is_open: Whether the pool is not closed yet.
    """

    def __init__(self, name: str, running: Running, history: FaultHistory) -> None:
        self.fault_history, self.is_open = history, True
        self._name, self._running = name, weakref.ref(running)
        self._workers = tuple(
            TracedWorker(worker.index, worker.name, tuple(worker.env_ids)) for worker in running.backend.workers
        )
        self._log: _core.TraceLog | None = None
        self._listeners: list[Callable[[], None]] = []  # the functions to call before the pool closes
        _tracers.add(self)

    def listen(self, num_events: int, before_end: Callable[[], None]) -> None:
        """Records the latest `num_events` from now on, and calls `before_end` when the pool is about to close."""
        if self._log is None:
            self._log = _core.TraceLog(num_events)
            self._set_log(self._log)
        else:
            self._log.grow(num_events)
        self._listeners.append(before_end)

    def leave(self, before_end: Callable[[], None]) -> None:
        """Removes the listener that `listen` has added with this function."""
        self._listeners.remove(before_end)
        if not self._listeners:
            self._set_log(None)
            self._log = None

    def history(self) -> History:
        """Returns all events that were recorded."""
        events = np.frombuffer(b"" if self._log is None else self._log.events(), EVENT)
        return History(
            self._name, self._workers, events, tuple(self.fault_history.changes), tuple(self.fault_history.faults)
        )

    def close(self) -> None:
        """Notifies the listeners that the pool is about to close."""
        self.is_open = False
        for before_end in list(self._listeners):
            before_end()

    def _set_log(self, log: _core.TraceLog | None) -> None:
        running = self._running()
        if running is not None and running.is_there:
            running.hub.set_trace(log)


_tracers: weakref.WeakSet[PoolTracer] = weakref.WeakSet()


def open_pools() -> list[PoolTracer]:
    """Returns the tracers of all open pools of this process."""
    return [tracer for tracer in _tracers if tracer.is_open]
