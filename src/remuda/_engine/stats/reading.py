"""Makes a snapshot of a pool's figures, in any process that can read the pool's memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from remuda._engine.stats.figures import Figures, read_record
from remuda._engine.stats.origin import Origin
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.setup import PoolSetup, hosted_ids
from remuda._engine.stats.snapshot import CallerStats, EnvStats, WorkerStats
from remuda._system.cores import usable_cores
from remuda._system.processes import usage_of
from remuda._worker.memory import own_bytes


def read_stats(
    figures: Figures,
    setup: PoolSetup,
    pids: Sequence[int | None],
    caller_pid: int,
    origin: Origin,
    torch_threads: int | None = None,
) -> PoolStats:
    """Returns a snapshot of the figures. `pids`: the process id of each worker; None for a worker without a process."""
    began = int(figures.caller["began_ns"]) / 1e9
    seconds = figures.when - began if began else 0.0
    caller = usage_of(caller_pid)
    queued = [origin.queued_since(pid, usage_of(pid)) for pid in pids]
    return PoolStats(
        seconds=seconds,
        envs=tuple(_envs(figures, setup)),
        workers=tuple(_workers(figures, setup, seconds, pids, queued)),
        caller=_caller(
            figures,
            seconds=seconds,
            queued=origin.queued_since(caller_pid, caller),
            memory=caller.memory,
            cpu=max(0.0, caller.cpu - origin.caller),
            torch_threads=torch_threads,
        ),
        cores=usable_cores(),
        setup=setup,
        taken=figures.when,
    )


def torch_threads() -> int | None:
    """Returns how many threads PyTorch's operators use in this process; None if PyTorch is not imported."""
    get = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if get is None else int(get())


def _envs(figures: Figures, setup: PoolSetup) -> list[EnvStats]:
    width, made = setup.vector_size or 1, list[EnvStats]()
    for worker, ids in enumerate(hosted_ids(setup.envs_of_worker)):
        for env in ids:
            returns, lengths = figures.last_episodes(env)
            stats = read_record(
                EnvStats, figures.envs[env], env_id=env, worker=worker, returns=returns, lengths=lengths
            )
            if env % width:  # only the first env of a vector env has durations in shared memory
                first = made[env - env % width]
                stats = replace(stats, step=first.step, reset=first.reset)
            made.append(stats)
    return made


def _workers(
    figures: Figures, setup: PoolSetup, seconds: float, pids: Sequence[int | None], queued: Sequence[float]
) -> Iterator[WorkerStats]:
    has_processes = setup.backend == "process"
    for index, env_ids in enumerate(hosted_ids(setup.envs_of_worker)):
        doing, doing_env, since = figures.doing(index)
        yield read_record(
            WorkerStats,
            figures.meters[index],
            figures.workers[index],
            index=index,
            env_ids=env_ids,
            pid=pids[index],
            seconds=seconds,
            queued=queued[index],
            memory=_memory(pids[index], has_processes=has_processes),
            doing=doing,
            doing_env=doing_env,
            doing_since=max(0.0, figures.when - since) if doing else 0.0,
        )


def _memory(pid: int | None, *, has_processes: bool) -> int | None:
    if pid is None:
        return 0 if has_processes else None
    return own_bytes(pid)


def _caller(figures: Figures, **found: Any) -> CallerStats:
    """Returns the figures of the caller. `found`: the fields of the record that are not in shared memory."""
    stats: CallerStats = read_record(CallerStats, figures.caller, **found)
    sampled, sampled_seconds = int(figures.caller["sampled"]), int(figures.caller["gathering_ns"]) / 1e9
    estimate = sampled_seconds * stats.batches / sampled if sampled else 0.0
    return replace(stats, gathering=min(estimate, max(0.0, stats.seconds - stats.waiting)))
