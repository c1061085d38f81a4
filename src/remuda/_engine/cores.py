"""How many CPU cores this process may use: its affinity mask, cut down to its control group's quota.

A container limited to 1.5 cores on a 64-core machine still sees 64 in its affinity mask, so both are asked.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_V2_MOUNTS = ("", "unified")  # alone on the machine, or beside version 1


def usable_cores(root: Path = Path("/")) -> int:
    """Number of cores the process may use, at least 1; a quota of 1.5 cores counts as 2.

    ``root`` is the directory that holds ``proc`` and ``sys``.
    """
    allowed = _affinity()
    quota = cpu_quota(root)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of CPU time the control groups allow, None without a limit.

    Limits nest: a group may use no more than any group above it, so the tightest one counts.
    """
    quotas = (_v2_quota(group) if is_v2 else _v1_quota(group) for group, is_v2 in _groups(root))
    return min((quota for quota in quotas if quota is not None), default=None)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _groups(root: Path) -> Iterator[tuple[Path, bool]]:
    """Every directory that may limit this process's CPU time, and whether it speaks version 2."""
    for controllers, group in _memberships(root):
        is_v2 = not controllers
        mounts = _V2_MOUNTS if is_v2 else (controllers, "cpu")
        if is_v2 or "cpu" in controllers.split(","):
            for mount in dict.fromkeys(mounts):
                for directory in _upwards(root / "sys/fs/cgroup" / mount, group):
                    yield directory, is_v2


def _memberships(root: Path) -> Iterator[tuple[str, str]]:
    """(controllers, group) of each hierarchy; the controllers of version 2 are an empty string."""
    text = _read(root / "proc/self/cgroup") or ""
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        yield controllers, group


def _upwards(mount: Path, group: str) -> Iterator[Path]:
    """The group's directory and all above it, up to the mount.

    Inside a container the path may name a group of the host that is not mounted; the mount itself is then
    the container's own group.
    """
    parts = [part for part in group.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _v2_quota(group: Path) -> float | None:
    limit, _, period = (_read(group / "cpu.max") or "max").partition(" ")
    return None if limit.strip() == "max" else int(limit) / int(period or 100_000)


def _v1_quota(group: Path) -> float | None:
    limit = int(_read(group / "cpu.cfs_quota_us") or -1)
    period = int(_read(group / "cpu.cfs_period_us") or 100_000)
    return limit / period if limit > 0 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None  # a controller that is not mounted sets no limit
