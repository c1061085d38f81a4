"""An open pool of another process, read through the memory file that the process has open, without writing to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from remuda import _core
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.reading import Figures, Origin, read_stats
from remuda._engine.stats.snapshot import PoolSetup
from remuda._wire.pool_description import PoolDescription, is_stopped, start_of

_DEFAULT_NAME = "remuda"
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # options of Python that are followed by a value
_OF_DURATIONS = ("count", "total", "mean", "p50", "p99", "max")


class OpenPool:
    """An open pool of another process. Its arena is mapped read-only, as long as this object exists.

    Attributes:
        file: The device and number of the memory file.
        description: The description of the pool: its process and options.
    """

    def __init__(self, fd: int) -> None:
        """`fd`: the descriptor of the memory file, which the caller closes.

        Raises NoDescriptionError, OSError or RuntimeError if the file is not an arena that can be mapped.
        """
        file = os.fstat(fd)
        self.file = file.st_dev, file.st_ino
        self.description = PoolDescription.read(fd)
        self._plan = _core.Plan(**self.description.plan)
        self._arena = _core.Arena.attach(fd, self._plan.bytes, is_read_only=True)
        fields = {**self.description.setup, "envs_of_worker": tuple(self.description.setup["envs_of_worker"])}
        self._setup = PoolSetup(**fields)

    @property
    def pid(self) -> int:
        """The pid of the process that owns the pool."""
        return self.description.owner

    @property
    def name(self) -> str:
        """The pool's name; if it has none, the program that made the pool."""
        name = self.description.name
        return name if name != _DEFAULT_NAME else _program(self.pid) or name

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped, by SIGSTOP, Ctrl-Z or a debugger."""
        return is_stopped(self.pid)

    def look(self) -> PoolStats:
        """Returns a snapshot like `Pool.stats()`. The `pid` of a worker is None until it has built its envs."""
        figures = Figures.read(self._arena, self._plan)
        is_own = self._setup.backend == "process"
        pids = [int(pid) if is_own and start_of(int(pid)) else None for pid in figures.meters["pid"]]
        return read_stats(figures, self._setup, pids, self.pid, Origin(**self.description.origin))

    def as_json(self, first: PoolStats, last: PoolStats) -> dict[str, Any]:
        """Returns the figures of the snapshot `last`, and their differences from the snapshot `first`."""
        late = between(first, last)
        return {
            "name": self.name,
            "pid": self.pid,
            "is_stopped": self.is_stopped,
            "setup": asdict(last.setup),
            "verdict": {"cause": late.verdict.cause, "text": late.verdict.text},
            "so_far": _figures(last),
            "late": _figures(late),
        }


def between(first: PoolStats, last: PoolStats) -> PoolStats:
    """Returns the difference of two snapshots; the snapshot itself if both are the same."""
    return last if first is last else last - first


def _figures(stats: PoolStats) -> dict[str, Any]:
    return {
        "seconds": stats.seconds,
        "envs": [_flat(vars(env)) for env in stats.envs],
        "workers": [_flat(vars(worker)) for worker in stats.workers],
        "caller": asdict(stats.caller),
    }


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _durations(value) if isinstance(value, Durations) else value for name, value in values.items()}


def _durations(durations: Durations) -> dict[str, float]:
    return {name: getattr(durations, name) for name in _OF_DURATIONS}


def _program(pid: int) -> str:
    """Returns the script, module or program that a process runs; "" if /proc does not show it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "")
        if word == "-c":
            break
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return Path(word).name
    return Path(words[0]).name
