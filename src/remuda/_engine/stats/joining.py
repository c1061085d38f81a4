"""Makes one snapshot of several: of pools that are shards of one, and whose caller is somewhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import CallerStats, EnvStats, MachineStats, Setup, WorkerStats


@dataclass(frozen=True)
class ShardStats:
    """What one shard has done.

    Attributes:
        first_env: The number of its first env in the whole.
        envs_of_worker: How many envs each of its workers hosts.
        stats: Its own snapshot; None where it is gone, and has taken its figures along.
        restarts: How often it was built anew, which counts as its first worker's.
    """

    first_env: int
    envs_of_worker: tuple[int, ...]
    stats: PoolStats | None
    restarts: int = 0


def join_stats(
    shards: Sequence[ShardStats], batches: int, waited: float, options: tuple[tuple[str, str], ...] = ()
) -> PoolStats:
    """The snapshot of the whole. Cores and what they were busy with are those of all shards together.

    Args:
        shards: In order.
        batches: That the caller has received.
        waited: Seconds that he has waited for.
        options: Of the whole pool, as `Setup` has them.
    """
    known = [shard.stats for shard in shards if shard.stats is not None]
    setup = known[0].setup if known else Setup(())
    caller = CallerStats(max((stats.seconds for stats in known), default=0.0), batches, waited)
    machine = MachineStats(
        sum(stats.machine.cores for stats in known),
        sum(stats.machine.busy for stats in known),
        sum(stats.machine.own for stats in known),
        max((stats.machine.seconds for stats in known), default=0.0),
        sum(stats.machine.stolen for stats in known),
    )
    envs, workers = list[EnvStats](), list[WorkerStats]()
    for shard in shards:
        first_worker = len(workers)
        workers += _workers(shard, first_worker)
        envs += _envs(shard, first_worker)
    counts = tuple(count for shard in shards for count in shard.envs_of_worker)
    # How many workers a shard has is its own affair, and each has its own number of cores.
    joined = replace(
        setup, envs_of_worker=counts, is_chosen=True, parts=1, options=options, needs_processes=True, spare=""
    )
    return PoolStats(caller.seconds, tuple(envs), tuple(workers), caller, machine, joined, time.monotonic())


def _workers(shard: ShardStats, first: int) -> list[WorkerStats]:
    ids, at = [], shard.first_env
    for count in shard.envs_of_worker:
        ids.append(tuple(range(at, at + count)))
        at += count
    each = [WorkerStats(0, ()) for _ in ids] if shard.stats is None else list(shard.stats.workers)
    each[0] = replace(each[0], restarts=each[0].restarts + shard.restarts)
    return [
        replace(
            worker,
            index=first + number,
            env_ids=its,
            doing_env=None if worker.doing_env is None else worker.doing_env + shard.first_env,
        )
        for number, (worker, its) in enumerate(zip(each, ids, strict=True))
    ]


def _envs(shard: ShardStats, first_worker: int) -> list[EnvStats]:
    if shard.stats is not None:
        return [
            replace(env, env_id=shard.first_env + env.env_id, worker=first_worker + env.worker)
            for env in shard.stats.envs
        ]
    worker_of = [worker for worker, count in enumerate(shard.envs_of_worker) for _ in range(count)]
    return [EnvStats(shard.first_env + i, first_worker + worker) for i, worker in enumerate(worker_of)]
