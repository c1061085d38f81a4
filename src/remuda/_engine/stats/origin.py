"""The system's counters when a pool was made. They are subtracted from later readings of the counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda._system.processes import Usage, usage_of


@dataclass(frozen=True)
class Origin:
    """The system's counters at the time a pool was made, in seconds; all zero if they were not read."""

    caller: float = 0.0  # CPU time of the program
    queued: Mapping[str, float] = field(default_factory=dict)  # the time in queues for cores, by process id as text

    @classmethod
    def now(cls, pids: Sequence[int | None], caller_pid: int) -> Origin:
        """Reads the counters. `pids`: the process id of each worker; None for a worker without a process."""
        usages = {pid: usage_of(pid) for pid in (caller_pid, *pids) if pid is not None}
        return cls(usages[caller_pid].cpu, {str(pid): usage.queued for pid, usage in usages.items()})

    def queued_since(self, pid: int | None, usage: Usage) -> float:
        """Returns the seconds in which a process was queued since the pool was made, or since the process began."""
        return max(0.0, usage.queued - self.queued.get(str(pid), 0.0))
