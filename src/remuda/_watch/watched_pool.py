"""A pool of another process: its figures, its processes, and what its workers have written."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from remuda import _core
from remuda._engine.stats.figures import Figures
from remuda._engine.stats.origin import Origin
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.reading import read_stats
from remuda._engine.stats.setup import Setup
from remuda._watch.owner import Owner, name_of
from remuda._wire.card import Card, start_of


class WatchedPool:
    """Maps a pool's memory, to be read only.

    Attributes:
        card: How the pool was made.
        owner: Its process.
    """

    def __init__(self, card: Card, fd: int) -> None:
        """`fd`: the caller's, which is needed no longer. (Whoever looked for the pool would find it with us, too.)"""
        self.card, self.owner = card, Owner(card.owner, card.started, os.fstat(fd))
        plan = _core.Plan(**card.plan)
        self._arena: _core.Arena | None = _core.Arena.look_at(fd, plan.bytes)
        self._plan, self._setup = plan, _setup(card)

    @classmethod
    def open(cls, path: Path) -> WatchedPool:
        """Raises OSError or NoCardError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(Card.read(fd), fd)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        finally:
            os.close(fd)

    @property
    def is_open(self) -> bool:
        """Whether its process runs, and has not closed it."""
        return self.owner.has_file

    def end_in_words(self) -> str:
        """Of one that is not open any more."""
        return self.owner.end_in_words(name_of(self.card), "was closed")

    def stats(self) -> PoolStats:
        """As `Pool.stats()`; the workers' processes are those that have built their envs."""
        assert self._arena is not None  # it is not closed
        figures = Figures.read(self._arena, self._plan)
        is_own = self._setup.backend == "process"
        pids = [int(pid) if is_own and start_of(int(pid)) else None for pid in figures.meters["pid"]]
        return read_stats(figures, self._setup, pids, self.card.owner, Origin(**self.card.origin))

    def close(self) -> None:
        """Lets go of the memory."""
        self._arena = None


def output_of(pid: int | None, limit: int = 1 << 13) -> str | None:
    """The end of what a worker has written, where that goes into memory or a file; None where it goes elsewhere."""
    if pid is None:
        return None
    with suppress(OSError):
        fd = os.open(f"/proc/{pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                size = os.fstat(fd).st_size
                return os.pread(fd, limit, max(0, size - limit)).decode(errors="replace")
        finally:
            os.close(fd)
    return None


def _setup(card: Card) -> Setup:
    tuples = {
        "envs_of_worker": tuple(card.setup["envs_of_worker"]),
        "options": tuple(map(tuple, card.setup["options"])),
    }
    return Setup(**{**card.setup, **tuples})
