"""The data from which a trace is written: the events of pools and workers, and the spans of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda._engine.running.fault_history import FaultNote, StateChange

# The dtype of the core's `TraceEvent`; see trace_log.hpp.
_TIMES, _NUMBERS = "begin end inner_begin inner_end", "kind worker env count op flags inner_env unused"
EVENT = np.dtype([*((name, "u8") for name in _TIMES.split()), *((name, "u4") for name in _NUMBERS.split())])
RESULT, BATCH, WAIT = range(3)
NOBODY = 0xFFFFFFFF


@dataclass(frozen=True)
class TracedWorker:
    """The index, name and envs of a worker in a trace."""

    index: int
    name: str
    env_ids: tuple[int, ...]


@dataclass(frozen=True)
class TracedSpan:
    """A part of the program that `remuda.span` has named. Times are those of CLOCK_MONOTONIC."""

    name: str
    thread: int  # the system's id of the thread
    begin_ns: int
    end_ns: int
    raised: str = ""  # the class of the exception that ended the span


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
