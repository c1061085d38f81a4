"""Records the events of one pool, for the traces that listen to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda import _core
from remuda._engine.history.fault_history import FaultHistory, FaultNote, StateChange
from remuda._engine.running import Running

# The dtype of the core's `TraceEvent`; see trace_log.hpp.
_TIMES, _NUMBERS = "begin end inner_begin inner_end", "kind worker env count op flags inner_env unused"
EVENT = np.dtype([*((name, "u8") for name in _TIMES.split()), *((name, "u4") for name in _NUMBERS.split())])


@dataclass(frozen=True)
class TracedWorker:
    """The index, name and envs of a worker in a trace."""

    index: int
    name: str
    env_ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class History:
    """The events of one pool, and the states and faults of its workers."""

    name: str
    workers: tuple[TracedWorker, ...]
    events: np.ndarray[Any, Any]  # (n,) of the dtype `EVENT`, in the order of arrival
    changes: Sequence[StateChange] = ()
    faults: Sequence[FaultNote] = ()

    def since(self, begin_ns: int) -> History:
        """Returns the history after `begin_ns`, including events that began before this time and ended after it."""
        return replace(
            self,
            events=self.events[self.events["end"] > begin_ns],
            changes=[change for change in self.changes if change.at_ns > begin_ns],
            faults=[fault for fault in self.faults if fault.at_ns > begin_ns],
        )


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
