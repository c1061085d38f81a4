"""Checks the limits of descriptors, processes, files and environment variables when a pool is started."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from remuda._system.cgroups import ROOT, control_groups, read_number
from remuda.errors import ResourceError

try:
    import resource
except ImportError:  # a system without these limits, and without worker processes
    resource = None  # type: ignore[assignment]

_PER_WORKER = 2  # the descriptors of a worker: its socket and its pidfd.
# The most other descriptors that are open at a time: the relay (2), the factories in memory, the watcher's file, the
# fork server's socket and pidfd, the reserve for searching /proc (3), the pool's memory, the file that describes it to
# workers; and 3 that are open only briefly: pipes of `subprocess`, a request too long for the server's socket.
_WHILE_STARTING = 14


def check_descriptors(workers: int, *, with_output: bool) -> None:
    """Raises ResourceError if this number of new worker processes needs more file descriptors than are free.

    `with_output`: whether each worker also has an output file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or (used := _open_descriptors()) is None:
        return
    needed, free = (_PER_WORKER + with_output) * workers + _WHILE_STARTING, max(0, soft - used)
    if needed > free:
        raise ResourceError(
            errno.EMFILE,
            f"expected {needed} free file descriptors for {workers} worker processes, got {free} "
            f"(of the {soft} that `ulimit -n` allows, {used} are open); {_remedy(used + needed, soft, hard)}",
        )


def _open_descriptors() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # without the descriptor that `listdir` opens
    except OSError:
        return None  # /proc is missing or no descriptor is left: code that needs a descriptor will raise


def _remedy(wanted: int, soft: int, hard: int) -> str:
    fewer = "use fewer workers (num_workers=...)"
    if hard != resource.RLIM_INFINITY and wanted > hard:
        return f"{fewer}, or have the hard limit of {hard} raised"
    return (
        f"raise the soft limit before you make the pool: `ulimit -n {wanted}`, or "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({wanted}, {hard})); or {fewer}"
    )


def check_file_length(needed: int) -> None:
    """Raises ResourceError if this process may not write a memory file of `needed` bytes.

    Without the check, the kernel would send SIGXFSZ, which ends a program that does not ignore it.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != resource.RLIM_INFINITY and needed > soft:
        raise ResourceError(
            errno.EFBIG,
            f"expected to write {needed} bytes of shared memory, got a limit of {soft} bytes for the length of files, "
            f"which includes shared memory (`ulimit -f`, hard limit {_told(hard)}); raise it before you make the pool, "
            "as with `ulimit -f unlimited`",
        )


@contextmanager
def naming_long_variables(environment: Mapping[str, str]) -> Iterator[None]:
    """Raises ResourceError, which names the longest variables, if a program cannot start with this environment."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        sizes = {name: len(os.fsencode(name + value)) for name, value in environment.items()}
        longest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        raise ResourceError(
            errno.E2BIG,
            f"expected environment variables with which a program can start, got {sum(sizes.values())} bytes, the most "
            f"in {', '.join(f'{name} ({sizes[name]})' for name in longest)}; Linux allows 131072 bytes for one, and a "
            "quarter of `ulimit -s` for all; shorten or delete some, or use the start method 'fork'",
        ) from error


def no_more_processes(error: OSError) -> ResourceError:
    """Returns the error for a fork that the system refused with EAGAIN."""
    soft, hard = (_told(limit) for limit in resource.getrlimit(resource.RLIMIT_NPROC))
    limits = f"`ulimit -u` allows this user {soft} (hard limit {hard}), threads counted"
    if (cgroup := _cgroup_limit()) is not None:
        limits += f"; its control group has {cgroup}"
    return ResourceError(
        errno.EAGAIN,
        f"expected to start a worker process, got {os.strerror(error.errno or errno.EAGAIN)!r}: the system allows no "
        f"more processes; {limits}; use fewer workers (num_workers=...), end other processes, or raise the limit",
    )


def _told(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else str(limit)


def _cgroup_limit(root: Path = ROOT) -> str | None:
    """Describes the process limit of this process's control groups that has the least room left."""
    found = []
    for group in (group for _, groups in control_groups("pids", root) for group in groups):
        most, current = read_number(group / "pids.max"), read_number(group / "pids.current")
        if most is not None and current is not None:
            found.append((most - current, f"{current} of {most} (in {group})"))
    return min(found)[1] if found else None
