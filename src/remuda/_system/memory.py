"""Checks that the machine has the memory that a pool is about to reserve.

Reserving too much shared memory does not fail: the kernel kills a process later. So this checks before.
"""

from __future__ import annotations

import re
from pathlib import Path

from remuda._system.cgroups import ROOT, control_groups, read_number, read_text


def check_memory(
    needed: int,
    root: Path = ROOT,
    what: str = "the pool's batches",
    remedy: str = "use fewer envs, fewer frames or smaller observations",
) -> None:
    """Raises MemoryError if fewer than `needed` bytes are available. `what`, `remedy`: parts of the error's text."""
    if (tightest := available_memory(root)) is not None and needed > tightest[0]:
        available, where = tightest
        raise MemoryError(
            f"expected {needed / 2**20:.0f} MB of free memory for {what}, got {available / 2**20:.0f} MB "
            f"(as {where} has it); {remedy}"
        )


def available_memory(root: Path = ROOT) -> tuple[int, str] | None:
    """Returns the bytes that this process may still use, and the file that has this limit; None if it is unknown.

    It is the least room that the machine, or a control group, has.
    """
    rooms = []
    if match := re.search(r"^MemAvailable:\s*(\d+)", read_text(root / "proc/meminfo"), re.MULTILINE):
        rooms.append((int(match[1]) * 1024, str(root / "proc/meminfo")))
    for version, groups in control_groups("memory", root):
        limit, usage, total = _FILES[version]
        for group in groups:
            allowed, used = read_number(group / limit), read_number(group / usage)
            if allowed is not None and used is not None:
                rooms.append((max(0, allowed - max(0, used - _file_pages(group, total))), str(group / limit)))
    return min(rooms, default=None)


def addressable_bytes(root: Path = ROOT) -> int:
    """Returns the largest useful size of reserved addresses: the memory of the machine or of the control group, or a
    quarter of this process's limits on addresses and file lengths, whichever is least."""
    total = re.findall(r"^MemTotal:\s*(\d+)", read_text(root / "proc/meminfo"), re.MULTILINE)
    most = [_MOST_ADDRESSES, *(1024 * int(kilobytes) for kilobytes in total)]
    for version, groups in control_groups("memory", root):
        limits = [read_number(group / _FILES[version][0]) for group in groups]
        most += [limit for limit in limits if limit is not None]
    return min([*most, *(limit // 4 for limit in _limits_of_process())])


def _limits_of_process() -> list[int]:
    """Returns this process's limits on addresses and on file lengths, if they are set."""
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return []
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)]
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]


_MOST_ADDRESSES = 1 << 45  # well below the address space of a process

_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    2: ("memory.max", "memory.current", ""),
}


def _file_pages(group: Path, total: str) -> int:
    """Returns the bytes of cached files, which the kernel drops when memory is needed."""
    pages = re.findall(rf"^{total}(?:in)?active_file (\d+)$", read_text(group / "memory.stat"), re.MULTILINE)
    return sum(map(int, pages))
