"""Whether the machine has the memory that a pool is about to reserve.

Reserving more shared memory than there is does not fail: the kernel kills somebody. So it is asked before.
"""

from __future__ import annotations

from pathlib import Path


def check_memory(needed: int, root: Path = Path("/")) -> None:
    """Raises MemoryError when fewer than `needed` bytes are available."""
    available = available_memory(root)
    if available is not None and needed > available:
        raise MemoryError(
            f"expected {needed / 2**20:.0f} MB of free memory for the pool's batches, got {available / 2**20:.0f} MB; "
            "use fewer envs, fewer frames or smaller observations"
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that may still be used: the machine's, and the container's where it has less. None: it does not say."""
    known = [n for n in (_machine(root), _container(root)) if n is not None]
    return min(known, default=None)


def _machine(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container(root: Path) -> int | None:
    """Inside a container its own control group is mounted as the root one."""
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        directory = root / "sys/fs/cgroup"
        allowed, used = _read(directory / limit).strip(), _read(directory / usage).strip()
        if allowed.isdigit() and used.isdigit():
            return max(0, int(allowed) - int(used))
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # another system, or not allowed to look
