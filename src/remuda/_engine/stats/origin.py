"""What the system's own counters showed when a pool was made: they are older than the pool, and go on counting."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda._system.processes import Usage, usage_of, usage_of_cores


@dataclass(frozen=True)
class Origin:
    """Those counters; all zero where nobody has looked.

    Attributes:
        when: That was, in seconds of CLOCK_MONOTONIC; 0.0: never.
        busy, stolen: Seconds in which the program's cores had been busy, and would have been but for the host.
        own: Seconds of CPU time of the program and its workers.
        caller: The same, of the program alone.
        queued: How long the program and each worker had stood in line for a core, by process id; as texts, for JSON.
    """

    when: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    queued: Mapping[str, float] = field(default_factory=dict)
    stolen: float = 0.0
    caller: float = 0.0

    @classmethod
    def now(cls, pids: Sequence[int | None], caller_pid: int) -> Origin:
        """`pids`: of the workers; None for each that has no process."""
        usages = {pid: usage_of(pid) for pid in (caller_pid, *pids) if pid is not None}
        own = sum(usage.cpu for usage in usages.values())
        queued = {str(pid): usage.queued for pid, usage in usages.items()}
        cores = usage_of_cores(usable_cpus())
        return cls(time.monotonic(), cores.busy, own, queued, cores.stolen, usages[caller_pid].cpu)

    def queued_since(self, pid: int | None, usage: Usage) -> float:
        """Of a process that may be younger than the pool."""
        return max(0.0, usage.queued - self.queued.get(str(pid), 0.0))


def usable_cpus() -> set[int]:
    """The numbers of the cores that this process may use; none where that is not told."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set()
