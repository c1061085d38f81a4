"""Reads the figures of the kernel on processes and cores: time on cores, time waiting for one, memory."""

from __future__ import annotations

import mmap
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
    """The usage of a process; zeros, or None, if not known.

    Attributes:
        cpu: Seconds of CPU time of all its threads, to a hundredth.
        queued: Seconds in which its main thread was ready to run, and had no core.
        memory: Bytes of it that are in memory, those it shares with others counted.
    """

    cpu: float = 0.0
    queued: float = 0.0
    memory: int | None = None


def usage_of(pid: int | None, root: Path = ROOT) -> Usage:
    """Returns the usage of a process; zeros for None. ``root`` is the directory that holds ``proc``."""
    if pid is None:
        return Usage()
    folder = root / "proc" / str(pid)
    pages = read_text(folder / "statm").split()
    memory = int(pages[1]) * mmap.PAGESIZE if len(pages) > 1 else None
    queued = read_text(folder / "schedstat").split()
    return Usage(_cpu_seconds(folder), int(queued[1]) / 1e9 if len(queued) > 1 else 0.0, memory)


def stat_of(pid: int) -> list[str]:
    """Returns what the kernel says of a process in /proc/<pid>/stat, from its state on; empty if it is gone.

    `man 5 proc_pid_stat` numbers these fields from 3.
    """
    return _fields(ROOT / "proc" / str(pid))


def _fields(folder: Path) -> list[str]:
    _, _, rest = read_text(folder / "stat").rpartition(")")  # a program's name may have anything in it
    return rest.split()


def _cpu_seconds(folder: Path) -> float:
    fields = _fields(folder)
    return (int(fields[11]) + int(fields[12])) * _TICK if len(fields) > 12 else 0.0


@dataclass(frozen=True)
class CoresUsage:
    """The usage of some cores together, in seconds since the machine's start; zeros if not known.

    Attributes:
        busy: In which they ran something.
        stolen: In which they would have, had the host of this virtual machine not run something else.
    """

    busy: float = 0.0
    stolen: float = 0.0


def usage_of_cores(cpus: Iterable[int], root: Path = ROOT) -> CoresUsage:
    """`cpus`: their numbers. ``root`` is the directory that holds ``proc``."""
    names = {f"cpu{cpu}" for cpu in cpus}
    lines = [line.split() for line in read_text(root / "proc" / "stat").splitlines() if line.startswith("cpu")]
    ours = [fields for fields in lines if fields[0] in names]
    return CoresUsage(_seconds(ours, _BUSY), _seconds(ours, _STOLEN))


def _seconds(lines: Iterable[list[str]], which: tuple[int, ...]) -> float:
    return sum(sum(int(fields[i]) for i in which if i < len(fields)) for fields in lines) * _TICK
