"""Makes a snapshot of a pool's figures; from any process that can read its memory."""

from __future__ import annotations

from collections.abc import Sequence

from remuda._engine.stats.figures import Figures, durations_of
from remuda._engine.stats.origin import Origin, usable_cpus
from remuda._engine.stats.pool_stats import CallerStats, EnvStats, MachineStats, PoolStats, Setup, WorkerStats
from remuda._system.cores import usable_cores
from remuda._system.processes import Usage, usage_of, usage_of_cores


def read_stats(
    figures: Figures, setup: Setup, pids: Sequence[int | None], caller_pid: int, origin: Origin
) -> PoolStats:
    """The snapshot, as of now.

    Args:
        figures: Copied a moment ago.
        setup: How the pool was made.
        pids: Of the workers; None for each that has no process now.
        caller_pid: Of the process whose pool it is.
        origin: What had been before the pool was.
    """
    now, began = figures.when, int(figures.caller["began_ns"]) / 1e9
    seconds = now - began if began else 0.0
    usages, callers = [usage_of(pid) for pid in pids], usage_of(caller_pid)
    return PoolStats(
        seconds=seconds,
        envs=_envs(figures, setup),
        workers=tuple(
            _worker(figures, index, ids, pid, seconds, usage, now, origin.queued_since(pid, usage))
            for index, (ids, pid, usage) in enumerate(zip(_ids(setup), pids, usages, strict=True))
        ),
        caller=_caller(figures, seconds, callers, origin.queued_since(caller_pid, callers)),
        machine=_machine(now, callers.cpu + sum(usage.cpu for usage in usages), origin),
        setup=setup,
    )


def _ids(setup: Setup) -> list[tuple[int, ...]]:
    """The envs of each worker."""
    ids, first = [], 0
    for count in setup.envs_of_worker:
        ids.append(tuple(range(first, first + count)))
        first += count
    return ids


def _envs(figures: Figures, setup: Setup) -> tuple[EnvStats, ...]:
    width, envs = setup.vector_size or 1, []
    for worker, ids in enumerate(_ids(setup)):
        for env in ids:
            if env % width == 0:  # what is timed is a whole vector env
                first = figures.envs[env]
                step, reset = durations_of(first["steps"]), durations_of(first["resets"])
            entry, (returns, lengths) = figures.envs[env], figures.last_episodes(env)
            episodes, faults = int(entry["episodes"]), int(entry["faults"])
            envs.append(EnvStats(env, worker, step, reset, episodes, returns, lengths, faults))
    return tuple(envs)


def _worker(
    figures: Figures,
    index: int,
    ids: tuple[int, ...],
    pid: int | None,
    seconds: float,
    usage: Usage,
    now: float,
    queued: float,
) -> WorkerStats:
    meter, own = figures.meters[index], figures.workers[index]
    doing, env, since = figures.doing(index)
    return WorkerStats(
        index=index,
        env_ids=ids,
        pid=pid,
        seconds=seconds,
        steps=int(meter["steps"]),
        busy=int(meter["busy_ns"]) / 1e9,
        cpu=int(meter["cpu_ns"]) / 1e9,
        queued=queued,
        idle=durations_of(own["idle"]),
        restarts=int(own["restarts"]),
        memory_renewals=int(own["memory_renewals"]),
        memory=usage.memory,
        doing=doing,
        doing_env=env,
        doing_since=max(0.0, now - since) if doing else 0.0,
    )


def _caller(figures: Figures, seconds: float, usage: Usage, queued: float) -> CallerStats:
    figure = figures.caller
    batches, sampled, waiting = int(figure["batches"]), int(figure["sampled"]), int(figure["waited_ns"]) / 1e9
    estimate = int(figure["gathering_ns"]) / 1e9 * (batches / sampled if sampled else 0.0)
    return CallerStats(
        seconds=seconds,
        batches=batches,
        waiting=waiting,
        gathering=min(estimate, max(0.0, seconds - waiting)),
        queued=queued,
        memory=usage.memory,
    )


def _machine(now: float, own: float, origin: Origin) -> MachineStats:
    cores = usage_of_cores(usable_cpus())
    return MachineStats(
        cores=usable_cores(),
        busy=max(0.0, cores.busy - origin.busy),
        own=max(0.0, own - origin.own),
        seconds=max(0.0, now - origin.when),
        stolen=max(0.0, cores.stolen - origin.stolen),
    )
