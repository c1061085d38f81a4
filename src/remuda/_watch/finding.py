"""Finds the running pools of this user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from remuda._watch.watched_pool import WatchedPool
from remuda._wire.card import NoCardError, start_of

_ARENA = "/memfd:remuda"  # as /proc shows its descriptor


class NotFoundError(Exception):
    """There is no pool to be looked at; says why."""


def find_pools(pid: int | None = None) -> list[WatchedPool]:
    """The pools of a process, or of all of this user's; those of one process in the order of their making.

    Raises:
        NotFoundError: There is none, or the process is another user's.
    """
    if pid is not None:
        _check_is_ours(pid)
        if not (pools := list(_pools_of(pid))):
            raise NotFoundError(f"expected a process with an open remuda.Pool, got {pid}, which has none")
        return pools
    pools = [pool for one in _own_processes() for pool in _pools_of(one)]
    if not pools:
        raise NotFoundError("expected a program with an open remuda.Pool, found none of this user's on this machine")
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
        with suppress(OSError):  # it ended just now
            if entry.name.isdecimal() and entry.stat().st_uid == os.geteuid():
                yield int(entry.name)


def _pools_of(pid: int) -> Iterator[WatchedPool]:
    try:
        links = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda link: int(link.name))
    except OSError:
        return
    for link in links:
        with suppress(OSError, NoCardError):  # it was closed just now, or is of another version
            if os.readlink(link).removesuffix(" (deleted)") == _ARENA:
                pool = WatchedPool.open(link)
                if (pool.card.owner, pool.card.started) == (pid, start_of(pid)):  # and no copy, in a child of it
                    yield pool
                else:
                    pool.close()
