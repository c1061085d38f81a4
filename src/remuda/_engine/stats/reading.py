"""Makes a snapshot of a pool's figures; from any process that can read its memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from remuda._engine.stats.figures import Figures, durations_of
from remuda._engine.stats.origin import Origin, usable_cpus
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import CallerStats, EnvStats, MachineStats, Setup, WorkerStats
from remuda._system.cores import usable_cores
from remuda._system.processes import Usage, usage_of, usage_of_cores
from remuda._worker.memory import own_bytes


def read_stats(
    figures: Figures,
    setup: Setup,
    pids: Sequence[int | None],
    caller_pid: int,
    origin: Origin,
    torch_threads: int | None = None,
) -> PoolStats:
    """The snapshot, as of now.

    Args:
        figures: Copied a moment ago.
        setup: How the pool was made.
        pids: Of the workers; None for each that has no process now.
        caller_pid: Of the process whose pool it is.
        origin: What had been before the pool was.
        torch_threads: Of the caller; None where that is not known.
    """
    has_processes = setup.backend == "process"
    now, began = figures.when, int(figures.caller["began_ns"]) / 1e9
    seconds = now - began if began else 0.0
    usages, callers = [usage_of(pid) for pid in pids], usage_of(caller_pid)
    return PoolStats(
        seconds=seconds,
        envs=_envs(figures, setup),
        workers=tuple(
            _worker(
                figures, index, ids, pid, seconds, _memory(pid, has_processes), now, origin.queued_since(pid, usage)
            )
            for index, (ids, pid, usage) in enumerate(zip(_ids(setup), pids, usages, strict=True))
        ),
        caller=_caller(figures, seconds, callers, origin, caller_pid, torch_threads),
        machine=_machine(now, callers.cpu + sum(usage.cpu for usage in usages), origin),
        setup=setup,
        taken=now,
    )


def _memory(pid: int | None, has_processes: bool) -> int | None:
    if pid is None:
        return 0 if has_processes else None
    return own_bytes(pid)


def torch_threads() -> int | None:
    """How many threads PyTorch's operators use in this process; None where nothing has imported it."""
    get = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if get is None else int(get())


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
    memory: int | None,
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
        memory=memory,
        lost=(int(own["outage_ns"]) + int(own["rebuild_ns"])) / 1e9,
        pickling=int(own["info_ns"]) / 1e9,
        info_key=bytes(own["info_key"]).decode(errors="replace") or None,
        info_bytes=int(own["info_bytes"]),
        doing=doing,
        doing_env=env,
        doing_since=max(0.0, now - since) if doing else 0.0,
    )


def _caller(
    figures: Figures, seconds: float, usage: Usage, origin: Origin, pid: int, torch_threads: int | None
) -> CallerStats:
    figure = figures.caller
    batches, sampled, waiting = int(figure["batches"]), int(figure["sampled"]), int(figure["waited_ns"]) / 1e9
    estimate = int(figure["gathering_ns"]) / 1e9 * (batches / sampled if sampled else 0.0)
    return CallerStats(
        seconds=seconds,
        batches=batches,
        waiting=waiting,
        gathering=min(estimate, max(0.0, seconds - waiting)),
        queued=origin.queued_since(pid, usage),
        memory=usage.memory,
        unpickling=int(figure["unpickling_ns"]) / 1e9,
        cpu=max(0.0, usage.cpu - origin.caller),
        torch_threads=torch_threads,
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
