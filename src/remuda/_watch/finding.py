"""Finds the running pools of this user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from remuda._watch.starting_pool import StartingPool
from remuda._watch.watched_pool import WatchedPool
from remuda._wire.build_board import NAME, NoBoardError
from remuda._wire.card import NoCardError, start_of

_ARENA, _BOARD = "/memfd:remuda", f"/memfd:{NAME}"  # as /proc shows their descriptors

_Kind = TypeVar("_Kind", StartingPool, WatchedPool)


class NotFoundError(Exception):
    """There is no pool to be looked at; says why."""


@dataclass
class Found:
    """Pools, those of one process in the order of their making.

    Attributes:
        starting: Those whose envs are still being built.
        pools: Those that are open.
    """

    starting: list[StartingPool] = field(default_factory=list)
    pools: list[WatchedPool] = field(default_factory=list)

    @property
    def all(self) -> list[StartingPool | WatchedPool]:
        return [*self.starting, *self.pools]

    def close(self) -> None:
        """Lets go of all of them."""
        for pool in self.all:
            pool.close()


def find(pid: int | None = None) -> Found:
    """The pools of a process, or of all of this user's.

    Raises:
        NotFoundError: There is none, or the process is another user's.
    """
    found = Found()
    if pid is not None:
        _check_is_ours(pid)
        _add_those_of(pid, found)
        if not found.all:
            raise NotFoundError(f"expected a process with an open remuda.Pool, got {pid}, which has none")
        return found
    for one in _own_processes():
        _add_those_of(one, found)
    if not found.all:
        raise NotFoundError("expected a program with an open remuda.Pool, found none of this user's on this machine")
    return found


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


def _add_those_of(pid: int, found: Found) -> None:
    try:
        links = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda link: int(link.name))
    except OSError:
        return
    started, boards = start_of(pid), set[tuple[int, int]]()
    for link in links:
        with suppress(OSError, NoCardError, NoBoardError):  # it was closed just now, or is of another version
            match os.readlink(link).removesuffix(" (deleted)"):
                case name if name == _ARENA:
                    _add_if_its(pid, started, WatchedPool.open(link), found.pools)
                case name if name == _BOARD:
                    file = link.stat()
                    if (file.st_dev, file.st_ino) not in boards:  # its mapping has a descriptor, too
                        boards.add((file.st_dev, file.st_ino))
                        _add_if_its(pid, started, StartingPool.open(link), found.starting)


def _add_if_its(pid: int, started: int | None, pool: _Kind, those: list[_Kind]) -> None:
    """A copy, in a child of its process, is none."""
    if (pool.card.owner, pool.card.started) == (pid, started):
        those.append(pool)
    else:
        pool.close()
