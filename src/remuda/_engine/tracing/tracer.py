"""Notes what happens in a pool, for the traces that are being made of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from remuda import _core
from remuda._engine.running.fault_history import FaultHistory
from remuda._engine.running.running import Running
from remuda._engine.tracing.history import EVENT, History, TracedWorker


class PoolTracer:
    """Has the hub note what it does while somebody listens. It keeps nothing of the pool's memory.

    Attributes:
        fault_history: What else has happened in the pool.
        is_open: Whether the pool is not closed yet.
    """

    def __init__(self, name: str, running: Running, history: FaultHistory) -> None:
        self.fault_history, self.is_open = history, True
        self._name, self._running = name, weakref.ref(running)
        self._workers = tuple(
            TracedWorker(worker.index, worker.name, tuple(worker.env_ids)) for worker in running.backend.workers
        )
        self._log: _core.TraceLog | None = None
        self._listeners: list[Callable[[], None]] = []  # each is called before the end
        _tracers.add(self)

    def listen(self, num_events: int, before_end: Callable[[], None]) -> None:
        """From now on the latest `num_events` are there; `before_end` is called when the pool is about to close."""
        if self._log is None:
            self._log = _core.TraceLog(num_events)
            self._set_log(self._log)
        else:
            self._log.grow(num_events)
        self._listeners.append(before_end)

    def leave(self, before_end: Callable[[], None]) -> None:
        """Nobody listens any more on whose behalf that was to be called."""
        self._listeners.remove(before_end)
        if not self._listeners:
            self._set_log(None)
            self._log = None

    def history(self) -> History:
        """All that there is."""
        events = np.frombuffer(b"" if self._log is None else self._log.events(), EVENT)
        return History(
            self._name, self._workers, events, tuple(self.fault_history.changes), tuple(self.fault_history.faults)
        )

    def close(self) -> None:
        """The pool is about to close."""
        self.is_open = False
        for before_end in list(self._listeners):
            before_end()

    def _set_log(self, log: _core.TraceLog | None) -> None:
        running = self._running()
        if running is not None and running.is_there:
            running.hub.set_trace(log)


_tracers: weakref.WeakSet[PoolTracer] = weakref.WeakSet()


def open_pools() -> list[PoolTracer]:
    """Of all pools of this process that are open."""
    return [tracer for tracer in _tracers if tracer.is_open]
