"""Records the events of pools until a trace is stopped, and writes them into a file."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections import deque
from pathlib import Path
from types import TracebackType

from remuda._engine.options.checks import int_from
from remuda._engine.tracing.perfetto import write_trace
from remuda._engine.tracing.spans import LISTENERS, TracedSpan
from remuda._engine.tracing.tracer import Events, PoolTracer
from remuda._system.directories import writable_file
from remuda.errors import StateError

NUM_EVENTS = 1 << 19


class Trace:
    """A trace that is being recorded. `remuda.trace` and `Pool.trace` return it.

    It ends with its `with` block, or when you call `stop`. A trace that is never stopped is written when the program
    ends. It has steps, resets, waits, faults and restarts of the pools, and the spans of `remuda.span`.

    Attributes:
        path: Its file, which is written at the end.
    """

    def __init__(self, path: str | os.PathLike[str], events: int, pool: PoolTracer | None = None) -> None:
        """Begins the recording. `pool`: the only pool to trace; None: all pools of the process, later ones included."""
        if pool is not None and not pool.is_open:
            raise StateError("expected an open pool to trace, got one that is closed")
        self.path, self._num_events = writable_file(path, "the trace"), int_from(1)("events", events)
        self._begin_ns, self._owner = time.monotonic_ns(), os.getpid()
        self._of_all, self._is_stopped = pool is None, False
        self._pools: list[PoolTracer] = []
        self._ended: list[tuple[PoolTracer, Events]] = []  # the events of pools that are closed
        self._spans: deque[TracedSpan] = deque(maxlen=self._num_events)
        for tracer in [tracer for tracer in _tracers if tracer.is_open] if pool is None else [pool]:
            self._add(tracer)
        LISTENERS.append(self._spans.append)
        if self._of_all:
            _of_all_pools.append(self)
        atexit.register(self.stop)

    def stop(self) -> Path:
        """Ends the recording, writes the file, and returns the file's path. Stopping again does nothing.

        Raises:
            OSError: The file cannot be written.
        """
        if self._is_stopped or os.getpid() != self._owner:  # a forked copy must not write the file
            return self.path
        self._is_stopped = True
        atexit.unregister(self.stop)
        LISTENERS.remove(self._spans.append)
        if self._of_all:
            _of_all_pools.remove(self)
        for tracer in list(self._pools):
            self._end(tracer)
        write_trace(self.path, self._begin_ns, self._ended, self._spans.copy())
        return self.path

    def _add(self, tracer: PoolTracer) -> None:
        self._pools.append(tracer)
        tracer.listen(self._num_events, self._end)

    def _end(self, tracer: PoolTracer) -> None:
        """Ends the recording of a pool."""
        self._ended.append((tracer, tracer.events(self._begin_ns)))
        self._pools.remove(tracer)
        tracer.leave(self._end)

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Trace into {self.path}, {'written' if self._is_stopped else 'being recorded'}>"


_of_all_pools: list[Trace] = []  # the traces that record all pools
_tracers: weakref.WeakSet[PoolTracer] = weakref.WeakSet()  # those of all pools


def trace(path: str | os.PathLike[str], *, events: int = NUM_EVENTS) -> Trace:
    """Records the events of all pools of this process, those of faces and later ones included.

        with remuda.trace("run.json"):
            train()

    Open the file with Perfetto (https://ui.perfetto.dev) or Chrome (chrome://tracing). `Pool.trace` records one pool.
    Workers report these data anyway, so recording costs well below 1 % of the steps a second.

    Args:
        path: The file; compressed if it ends in ".gz".
        events: The number of latest events to keep of each pool, and of spans: 64 bytes each. A batch makes one event
            for the caller and one for each env that takes longer than 20 us, or for each run of faster envs.

    Returns: The `Trace`, which has begun.

    Raises:
        ValueError: `events` is not an int from 1 up.
        OSError: The directory of the file does not exist, or cannot be written to.
    """
    return Trace(path, events)


def note_new_pool(tracer: PoolTracer) -> None:
    """Adds a new pool to the traces that record all pools, those that begin later included."""
    _tracers.add(tracer)
    for each in _of_all_pools:
        each._add(tracer)
