"""What has happened in a pool, as a trace tells it: the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda._engine.running.fault_history import FaultNote, StateChange

# The core's `TraceEvent`, see trace_log.hpp.
EVENT = np.dtype(
    [
        ("begin", np.uint64),
        ("end", np.uint64),
        ("inner_begin", np.uint64),
        ("inner_end", np.uint64),
        ("kind", np.uint32),
        ("worker", np.uint32),
        ("env", np.uint32),
        ("count", np.uint32),
        ("op", np.uint32),
        ("flags", np.uint32),
        ("inner_env", np.uint32),
        ("unused", np.uint32),
    ]
)
RESULT, BATCH, WAIT = range(3)
NOBODY = 0xFFFFFFFF


@dataclass(frozen=True)
class TracedWorker:
    """A worker as a trace names it."""

    index: int
    name: str
    env_ids: tuple[int, ...]


@dataclass(frozen=True)
class TracedSpan:
    """Something that the program did, by the name that it gave that; see `remuda.span`.

    Attributes:
        name: Of it.
        thread: The number that the system has for its thread.
        begin_ns, end_ns: Of CLOCK_MONOTONIC.
        raised: The class of the exception that ended it; empty when none did.
    """

    name: str
    thread: int
    begin_ns: int
    end_ns: int
    raised: str = ""


@dataclass(frozen=True, eq=False)
class History:
    """What has happened in one pool.

    Attributes:
        name: The pool's.
        workers: Its workers.
        events: (n,) of `EVENT`, in the order in which the pool took notice of them.
        changes, faults: What its workers went through.
    """

    name: str
    workers: tuple[TracedWorker, ...]
    events: np.ndarray[Any, Any]
    changes: Sequence[StateChange] = ()
    faults: Sequence[FaultNote] = ()

    def since(self, begin_ns: int) -> History:
        """What had not ended by then."""
        return replace(
            self,
            events=self.events[self.events["end"] > begin_ns],
            changes=[change for change in self.changes if change.at_ns > begin_ns],
            faults=[fault for fault in self.faults if fault.at_ns > begin_ns],
        )
