"""The system's counters when a pool was made. They are subtracted from later readings of the counters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda._system.processes import Usage, usage_of, usage_of_cores


@dataclass(frozen=True)
class Origin:
    """The system's counters at the time a pool was made; all zero if they were not read.

    Times are in seconds. `busy` and `stolen` are those of the program's cores, as `MachineStats` has them.
    """

    when: float = 0.0  # when the counters were read, by CLOCK_MONOTONIC
    busy: float = 0.0
    own: float = 0.0  # CPU time of the program and its workers.
    queued: Mapping[str, float] = field(default_factory=dict)  # seconds in queues for cores, by process id as text
    stolen: float = 0.0
    caller: float = 0.0  # CPU time of the program alone

    @classmethod
    def now(cls, pids: Sequence[int | None], caller_pid: int) -> Origin:
        """Reads the counters. `pids`: the process id of each worker; None for a worker without a process."""
        usages = {pid: usage_of(pid) for pid in (caller_pid, *pids) if pid is not None}
        own = sum(usage.cpu for usage in usages.values())
        queued = {str(pid): usage.queued for pid, usage in usages.items()}
        cores = usage_of_cores(usable_cpus())
        return cls(time.monotonic(), cores.busy, own, queued, cores.stolen, usages[caller_pid].cpu)

    def queued_since(self, pid: int | None, usage: Usage) -> float:
        """Returns the seconds in which a process was queued since the pool was made, or since the process began."""
        return max(0.0, usage.queued - self.queued.get(str(pid), 0.0))


def usable_cpus() -> set[int]:
    """Returns the numbers of the cores that this process may use; an empty set if the system does not report them."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set()
