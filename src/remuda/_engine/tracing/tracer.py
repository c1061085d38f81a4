"""Records the events of one pool, for the traces that listen to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from remuda import _core
from remuda._engine.running import Running
from remuda._engine.supervision.fault_history import FaultHistory

# The dtype of the core's `TraceEvent`; see trace_log.hpp.
_TIMES, _NUMBERS = "begin end inner_begin inner_end", "kind worker env count op flags inner_env unused"
EVENT = np.dtype([*((name, "u8") for name in _TIMES.split()), *((name, "u4") for name in _NUMBERS.split())])

Events: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class PoolTracer:
    """Records the events of a pool's hub while a trace listens. Keeps no reference to the pool's memory.

    Attributes:
        name: The pool's name.
        workers: The name and the envs of each worker.
        fault_history: The other events of the pool.
        is_open: Whether the pool is not closed yet.
    """

    def __init__(self, name: str, running: Running, history: FaultHistory) -> None:
        self.fault_history, self.is_open = history, True
        self.name, self._running = name, weakref.ref(running)
        self.workers = [
            f"{worker.name} ({envs_text(worker.env_ids[0], len(worker.env_ids))})" for worker in running.backend.workers
        ]
        self._log: _core.TraceLog | None = None
        self._listeners: list[Callable[[PoolTracer], None]] = []  # the functions to call before the pool closes

    def listen(self, num_events: int, before_end: Callable[[PoolTracer], None]) -> None:
        """Records the latest `num_events` from now on, and calls `before_end` when the pool is about to close."""
        if self._log is None:
            self._log = _core.TraceLog(num_events)
            self._set_log(self._log)
        else:
            self._log.grow(num_events)
        self._listeners.append(before_end)

    def leave(self, before_end: Callable[[PoolTracer], None]) -> None:
        """Removes the listener that `listen` has added with this function."""
        self._listeners.remove(before_end)
        if not self._listeners:
            self._set_log(None)
            self._log = None

    def events(self, begin_ns: int) -> Events:
        """Returns the events after `begin_ns` in the order of arrival, those that began before and ended after it too.

        (n,) of the dtype `EVENT`.
        """
        events = np.frombuffer(b"" if self._log is None else self._log.events(), EVENT)
        return events[events["end"] > begin_ns]

    def close(self) -> None:
        """Notifies the listeners that the pool is about to close."""
        self.is_open = False
        for before_end in list(self._listeners):
            before_end(self)

    def _set_log(self, log: _core.TraceLog | None) -> None:
        running = self._running()
        if running is not None and running.is_there:
            running.hub.set_trace(log)


def envs_text(first: int, count: int) -> str:
    """Returns the ids of neighbouring envs as text, such as "env 3" or "envs 0-3"."""
    return f"env {first}" if count == 1 else f"envs {first}-{first + count - 1}"
