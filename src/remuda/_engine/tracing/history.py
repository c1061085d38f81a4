"""The data of a trace: the events of pools, workers and the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda._engine.running.fault_history import FaultNote, StateChange

# The core's `TraceEvent`, see trace_log.hpp.
_TIMES, _NUMBERS = "begin end inner_begin inner_end", "kind worker env count op flags inner_env unused"
EVENT = np.dtype([*((name, "u8") for name in _TIMES.split()), *((name, "u4") for name in _NUMBERS.split())])
RESULT, BATCH, WAIT = range(3)
NOBODY = 0xFFFFFFFF


@dataclass(frozen=True)
class TracedWorker:
    """A worker's names in a trace."""

    index: int
    name: str
    env_ids: tuple[int, ...]


@dataclass(frozen=True)
class TracedSpan:
    """A named part of the program; see `remuda.span`. Times are those of CLOCK_MONOTONIC."""

    name: str
    thread: int  # the number that the system has for it
    begin_ns: int
    end_ns: int
    raised: str = ""  # the class of the exception that ended it


@dataclass(frozen=True, eq=False)
class History:
    """The events of one pool, and the states and faults of its workers."""

    name: str
    workers: tuple[TracedWorker, ...]
    events: np.ndarray[Any, Any]  # (n,) of `EVENT`, in the order in which the pool noticed them
    changes: Sequence[StateChange] = ()
    faults: Sequence[FaultNote] = ()

    def since(self, begin_ns: int) -> History:
        """Returns what had not ended by then."""
        return replace(
            self,
            events=self.events[self.events["end"] > begin_ns],
            changes=[change for change in self.changes if change.at_ns > begin_ns],
            faults=[fault for fault in self.faults if fault.at_ns > begin_ns],
        )
