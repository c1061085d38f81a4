"""Reads the kernel's figures of processes and cores: time on cores, and time waiting for a core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from remuda._system.cgroups import ROOT, read_text

_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
# Fields of a line in /proc/stat: user, nice, system, irq, softirq; and steal.
_BUSY, _STOLEN = (1, 2, 3, 6, 7), (8,)


@dataclass(frozen=True)
class Usage:
    """The CPU time and waiting time of a process; zeros if unknown.

    Attributes:
        cpu: Seconds of CPU time of all its threads, to a hundredth.
        queued: Seconds in which its main thread was ready to run but had no core.
    """

    cpu: float = 0.0
    queued: float = 0.0


def usage_of(pid: int | None, root: Path = ROOT) -> Usage:
    """Returns the usage of a process; zeros if `pid` is None. ``root`` is the directory that holds ``proc``."""
    if pid is None:
        return Usage()
    fields, queued = stat_of(pid, root), read_text(root / "proc" / str(pid) / "schedstat").split()
    cpu = (int(fields[11]) + int(fields[12])) * _TICK if len(fields) > 12 else 0.0
    return Usage(cpu, int(queued[1]) / 1e9 if len(queued) > 1 else 0.0)


def stat_of(pid: int, root: Path = ROOT) -> list[str]:
    """Returns the fields of /proc/<pid>/stat from the state on; empty if the process is gone.

    `man 5 proc_pid_stat` numbers these fields from 3.
    """
    _, _, rest = read_text(root / "proc" / str(pid) / "stat").rpartition(")")  # a name may contain parentheses
    return rest.split()


@dataclass(frozen=True)
class CoresUsage:
    """The total busy and stolen time of some cores, in seconds since boot; zeros if unknown.

    Attributes:
        busy: Seconds in which they were busy.
        stolen: Seconds in which the host of this virtual machine ran something else on them.
    """

    busy: float = 0.0
    stolen: float = 0.0


def usage_of_cores(cpus: Iterable[int], root: Path = ROOT) -> CoresUsage:
    """Returns the total usage of the cores `cpus`. ``root`` is the directory that holds ``proc``."""
    names = {f"cpu{cpu}" for cpu in cpus}
    lines = [line.split() for line in read_text(root / "proc" / "stat").splitlines() if line.startswith("cpu")]
    ours = [fields for fields in lines if fields[0] in names]
    return CoresUsage(_seconds(ours, _BUSY), _seconds(ours, _STOLEN))


def _seconds(lines: Iterable[list[str]], which: tuple[int, ...]) -> float:
    return sum(sum(int(fields[i]) for i in which if i < len(fields)) for fields in lines) * _TICK
