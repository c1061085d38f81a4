"""A snapshot of a watched pool as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._watch.owner import name_of
from remuda._watch.watched_pool import WatchedPool

_QUANTILES = ("count", "total", "mean", "p50", "p99", "max")


def dump(pool: WatchedPool, so_far: PoolStats, late: PoolStats) -> dict[str, Any]:
    """All figures. `so_far`: since the pool was made. `late`: the difference that is shown."""
    return {
        "name": name_of(pool.card),
        "pid": pool.card.owner,
        "is_stopped": pool.owner.is_stopped,
        "setup": asdict(so_far.setup),
        "verdict": {"cause": late.verdict.cause, "text": late.verdict.text, "code": late.verdict.code},
        "so_far": _figures(so_far),
        "late": _figures(late),
    }


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
    return {name: getattr(durations, name) for name in _QUANTILES}
