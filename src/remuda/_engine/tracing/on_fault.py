"""Writes a trace of the last minute whenever an env fails, as the option `trace_on_fault` requests."""

from __future__ import annotations

import logging
import os
import re
import time
import weakref
from pathlib import Path
from typing import Any

from remuda._engine.running.changes import Sayings
from remuda._engine.tracing.perfetto import write_trace
from remuda._engine.tracing.spans import LISTENERS, SpanBuffer
from remuda._engine.tracing.tracer import PoolTracer

_NUM_EVENTS = 1 << 17
_SECONDS = 60
_MAX_FILES = 20


class FaultTraces:
    """Writes the traces of one pool's faults. It never raises, because a full disk must not break a pool.

    Attributes:
        sayings: The texts to be logged.
    """

    def __init__(self, tracer: PoolTracer, directory: Path) -> None:
        self.sayings = Sayings()
        self._tracer, self._directory, self._written = tracer, directory, 0
        self._last: Any = None  # the latest fault that has a trace
        self._spans = SpanBuffer(_NUM_EVENTS)
        LISTENERS.append(self._spans)
        self._forget_spans = weakref.finalize(self, LISTENERS.remove, self._spans)  # even if the pool is never closed
        tracer.listen(_NUM_EVENTS, self._close)

    @property
    def is_due(self) -> bool:
        """Whether there are faults for which no trace was written."""
        faults = self._tracer.fault_history.faults
        return bool(faults) and faults[-1] is not self._last

    def write(self) -> None:
        """Writes one trace for all faults that occurred together."""
        if not self.is_due:
            return
        fault = self._last = self._tracer.fault_history.faults[-1]
        if self._written >= _MAX_FILES:
            return
        self._written += 1
        place = f"worker-{fault.worker}" if fault.env is None else f"env-{fault.env}"
        path = self._directory / f"trace-{os.getpid()}-{self._written}-{place}-{re.sub(r'[^a-z]', '', fault.kind)}.json"
        since = time.monotonic_ns() - _SECONDS * 10**9
        try:
            write_trace(path, [self._tracer.history().since(since)], self._spans.since(since))
        except Exception as error:
            text = f"the trace of a fault could not be written to {path}: {type(error).__name__}: {error}"
            self.sayings.add(logging.ERROR, text)
            return
        last = f"; it is the last of {_MAX_FILES} of this pool" if self._written == _MAX_FILES else ""
        self.sayings.add(logging.WARNING, f"{path} is a trace of what came before the fault{last}")

    def _close(self) -> None:
        self._forget_spans()
        self._tracer.leave(self._close)
