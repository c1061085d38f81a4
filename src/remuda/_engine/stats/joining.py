"""Joins the snapshots of a pool's shards into one of the whole pool."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.setup import Setup, hosted_ids
from remuda._engine.stats.snapshot import CallerStats, EnvStats, MachineStats, WorkerStats


@dataclass(frozen=True)
class ShardStats:
    """The figures of one shard."""

    first_env: int  # its number in the whole
    envs_of_worker: tuple[int, ...]
    stats: PoolStats | None  # None if the shard is lost
    restarts: int = 0  # of the shard; they count as restarts of its first worker

    @property
    def workers(self) -> tuple[WorkerStats, ...]:
        """Its workers; a lost shard's have done nothing."""
        if self.stats is not None:
            return self.stats.workers
        return tuple(WorkerStats(worker, ids) for worker, ids in enumerate(hosted_ids(self.envs_of_worker)))

    @property
    def envs(self) -> tuple[EnvStats, ...]:
        """Its envs; a lost shard's have done nothing."""
        if self.stats is not None:
            return self.stats.envs
        return tuple(EnvStats(env, worker.index) for worker in self.workers for env in worker.env_ids)


def join_stats(
    shards: Sequence[ShardStats], batches: int, waited: float, options: tuple[tuple[str, str], ...] = ()
) -> PoolStats:
    """Returns the snapshot of the whole. `batches` and `waited` are the caller's, `options` those of the whole pool."""
    known = [shard.stats for shard in shards if shard.stats is not None]
    caller = CallerStats(max((stats.seconds for stats in known), default=0.0), batches, waited)
    workers = tuple(_workers(shards))
    setup = replace(
        known[0].setup if known else Setup(()),
        envs_of_worker=tuple(len(worker.env_ids) for worker in workers),
        is_chosen=True,  # how many workers a shard has is its own affair, and each has its own number of cores
        parts=1,
        options=options,
        needs_processes=True,
        spare="",
    )
    machine = sum((stats.machine for stats in known), MachineStats(cores=0))
    return PoolStats(caller.seconds, tuple(_envs(shards)), workers, caller, machine, setup, time.monotonic())


def _workers(shards: Sequence[ShardStats]) -> Iterator[WorkerStats]:
    """Yields all workers, numbered in the whole."""
    pairs = [(shard, worker) for shard in shards for worker in shard.workers]
    for index, (shard, worker) in enumerate(pairs):
        yield replace(
            worker,
            index=index,
            env_ids=tuple(env + shard.first_env for env in worker.env_ids),
            doing_env=None if worker.doing_env is None else worker.doing_env + shard.first_env,
            restarts=worker.restarts + (shard.restarts if worker.index == 0 else 0),
        )


def _envs(shards: Sequence[ShardStats]) -> Iterator[EnvStats]:
    """Yields all envs, numbered in the whole."""
    first_worker = 0
    for shard in shards:
        for env in shard.envs:
            yield replace(env, env_id=shard.first_env + env.env_id, worker=first_worker + env.worker)
        first_worker += len(shard.envs_of_worker)
