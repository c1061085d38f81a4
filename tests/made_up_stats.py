"""Made-up snapshots of pools that never ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.stats import CallerStats, Durations, EnvStats, PoolSetup, PoolStats, WorkerStats

BATCHES = 1000
US = 1e-6


def snapshot(
    *,
    steps: Sequence[Durations],
    workers: int,
    waited: float,
    own: float = 0.0,
    gathering: float = 5 * US,
    resets: Sequence[Durations] = (),
    cpu: float = 1.0,
    queued: float = 0.0,
    cores: int = 2,
    batches: int = BATCHES,
    **setup: Any,
) -> PoolStats:
    """Returns a snapshot after some batches of one step of every env.

    Args:
        steps, resets: The durations of each env, over all batches.
    """
    resets = resets or [Durations()] * len(steps)
    share, rest = divmod(len(steps), workers)
    hosted = [share + (w < rest) for w in range(workers)]
    of_worker = [w for w, count in enumerate(hosted) for _ in range(count)]
    seconds = batches * (waited + own + gathering)
    envs = tuple(
        EnvStats(env, of_worker[env], step, reset, reset.count)
        for env, (step, reset) in enumerate(zip(steps, resets, strict=True))
    )

    def worker(index: int) -> WorkerStats:
        hosts = [env for env in envs if env.worker == index]
        return _worker(index, setup.get("vector_size") or 1, hosts, seconds, cpu, queued * batches)

    caller = CallerStats(seconds, batches, waited * batches, gathering * batches)
    return PoolStats(
        seconds, envs, tuple(map(worker, range(workers))), caller, cores, PoolSetup(tuple(hosted), **setup)
    )


def _worker(index: int, width: int, envs: Sequence[EnvStats], seconds: float, cpu: float, queued: float) -> WorkerStats:
    in_envs = sum(env.step.total + env.reset.total for env in envs[::width])
    steps = sum(env.step.count + env.reset.count for env in envs)
    ids = tuple(env.env_id for env in envs)
    return WorkerStats(index, ids, 1000 + index, seconds, steps, in_envs + queued, in_envs * cpu, queued)


def each(seconds: float, count: int = BATCHES) -> Durations:
    """Returns equal durations."""
    return Durations.of([seconds] * count)
