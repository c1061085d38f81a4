"""Statistics: the classes of what `Pool.stats` returns, and of `Pool.choice`."""

from __future__ import annotations

from remuda._engine.stats.choice import WorkerChoice
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import CallerStats, EnvStats, PoolSetup, WorkerStats
from remuda._engine.stats.verdict import Verdict

__all__ = [
    "CallerStats",
    "Durations",
    "EnvStats",
    "PoolSetup",
    "PoolStats",
    "Verdict",
    "WorkerChoice",
    "WorkerStats",
]
