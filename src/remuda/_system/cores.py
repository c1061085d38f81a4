"""Counts the CPU cores that this process may use: its affinity mask, limited by its control group's quota.

A container limited to 1.5 cores on a 64-core machine still sees 64 in its affinity mask, so both are read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence, Set
from pathlib import Path

from remuda._system.cgroups import ROOT, control_groups, read_text


def usable_cores(root: Path = ROOT) -> int:
    """Returns the number of cores that the process may use, at least 1; a quota of 1.5 cores counts as 2.

    ``root`` is the directory that holds ``proc`` and ``sys``.
    """
    allowed = usable_cpus()
    quota = cpu_quota(root)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def whole_cores(root: Path = ROOT) -> int:
    """Returns the number of cores that the process may keep busy all the time; a quota of 1.5 cores counts as 1.

    ``root`` is the directory that holds ``proc`` and ``sys``.
    """
    quota = cpu_quota(root)
    return usable_cpus() if quota is None else min(usable_cpus(), math.floor(quota))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Returns the CPU time that the control groups allow, in cores; None without a limit.

    Limits nest: a group may use no more than any group above it, so the tightest one counts.
    """
    quotas = []
    for version, groups in control_groups("cpu", root):
        for group in groups:
            if version == 2:
                limit, period = [*read_text(group / "cpu.max").split(), "", ""][:2]
            else:
                limit, period = (read_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
            if limit.isdigit():  # not "max", or -1: no limit
                quotas.append(int(limit) / int(period or 100_000))
    return min(quotas, default=None)


def usable_cpus() -> int:
    """Returns the number of cores that the process may run on, without regard to quotas."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_for(worker: int, pins: bool | tuple[frozenset[int], ...], near: Sequence[frozenset[int]]) -> Set[int]:
    """Returns the cores to pin a worker to.

    Args:
        worker: The number of the worker.
        pins: The sets of cores, which workers take in rotation; or True: each worker gets one core. Workers with the
            same near cores get these cores in rotation.
        near: The best cores, by worker. If none of them may be used, any core is used.
    """
    if not isinstance(pins, bool):
        return pins[worker % len(pins)]
    allowed = os.sched_getaffinity(0)
    cores = sorted(allowed & near[worker] or allowed)
    turn = sum(other == near[worker] for other in near[:worker])
    return {cores[turn % len(cores)]}
