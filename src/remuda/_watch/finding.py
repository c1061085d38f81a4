"""Finds the running pools of this user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from remuda._watch.open_pool import OpenPool
from remuda._wire.pool_description import NoDescriptionError, start_of

_NAME = "/memfd:remuda"  # the name of an arena's memory file in /proc


class NotFoundError(Exception):
    """No pool was found, for the reason in the message."""


def find(pid: int | None = None) -> list[OpenPool]:
    """Returns the running pools of one process, or of all processes of this user.

    Pools of one process are in the order of their creation.

    Raises:
        NotFoundError: There is no pool, or the process is another user's.
    """
    if pid is None:
        pools = [pool for one in _own_processes() for pool in _pools_of(one)]
        advice = "expected a program with an open remuda.Pool, found none of this user's on this machine"
    else:
        _check_is_ours(pid)
        pools = list(_pools_of(pid))
        advice = f"expected a process with an open remuda.Pool, got {pid}, which has none"
    if not pools:
        raise NotFoundError(advice)
    return pools


def _check_is_ours(pid: int) -> None:
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        raise NotFoundError(f"expected a running process, got {pid}, and there is none") from None
    if owner != os.geteuid():
        raise NotFoundError(f"expected a process of this user, got {pid}, which belongs to user {owner}")


def _own_processes() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # the process may have just ended
            if entry.name.isdecimal() and entry.stat().st_uid == os.geteuid():
                yield int(entry.name)


def _pools_of(pid: int) -> Iterator[OpenPool]:
    try:
        links = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda link: int(link.name))
    except OSError:
        return
    started, files = start_of(pid), set[tuple[int, int]]()
    for link in links:
        if (pool := _seen_through(link)) is None:
            continue
        is_copy = (pool.description.owner, pool.description.started) != (pid, started)  # an inherited descriptor.
        if not is_copy and pool.file not in files:  # else another descriptor of the same pool was found before
            files.add(pool.file)
            yield pool


def _seen_through(link: Path) -> OpenPool | None:
    """Maps the pool behind a descriptor of its memory file. Returns None if it is no pool, or cannot be read."""
    # The file may have just been closed or truncated, or another version of remuda may have written it.
    with suppress(OSError, RuntimeError, ValueError, NoDescriptionError):
        if os.readlink(link).removesuffix(" (deleted)") == _NAME:
            fd = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return OpenPool(fd)
            finally:
                os.close(fd)  # closed at once: while it is open, other searches find the pool in this process, too
    return None
