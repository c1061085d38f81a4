"""An open pool of another process, and its figures, also as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from remuda import _core
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.reading import Figures, Origin, read_stats
from remuda._engine.stats.snapshot import PoolSetup
from remuda._watch.seen_pool import SeenPool
from remuda._wire.card import Card, start_of

_OF_DURATIONS = ("count", "total", "mean", "p50", "p99", "max")


class OpenPool(SeenPool):
    """An open pool of another process. Its arena is mapped read-only."""

    card: Card

    def __init__(self, fd: int) -> None:
        """Raises NoCardError, OSError or RuntimeError if the file is not an arena that can be mapped."""
        super().__init__(fd)
        self.card = Card.read(fd)
        self._plan = _core.Plan(**self.card.plan)
        self._arena: _core.Arena | None = _core.Arena.attach(fd, self._plan.bytes, is_read_only=True)
        fields = {**self.card.setup, "envs_of_worker": tuple(self.card.setup["envs_of_worker"])}
        self._setup = setup = PoolSetup(**fields)
        self.title = f"{setup.num_envs} envs in {setup.num_workers} {setup.backend} workers"

    def look(self) -> PoolStats:
        """Returns a snapshot like `Pool.stats()`. The `pid` of a worker is None until it has built its envs."""
        assert self._arena is not None  # `look` is not called after `close`
        figures = Figures.read(self._arena, self._plan)
        is_own = self._setup.backend == "process"
        pids = [int(pid) if is_own and start_of(int(pid)) else None for pid in figures.meters["pid"]]
        return read_stats(figures, self._setup, pids, self.pid, Origin(**self.card.origin))

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

    def close(self) -> None:
        """Unmaps the arena."""
        self._arena = None


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
