"""Reads a pool's figures out of shared memory, and makes a snapshot of them.

This needs the memory alone, so it serves the pool's own process and others that watch the pool.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import CallerStats, EnvStats, PoolSetup, WorkerStats, hosted_ids
from remuda._system.cores import usable_cores
from remuda._system.processes import usage_of
from remuda._worker.memory import own_bytes


def _dtypes() -> dict[str, np.dtype[Any]]:
    """Returns the NumPy dtypes of the core's structs for figures, by the struct's name."""
    structs: dict[str, Any] = {}
    for name, (fields, size) in _core.figure_structs().items():
        formats = [
            (structs.get(kind, kind), count) if count > 1 else structs.get(kind, kind) for _, kind, count, _ in fields
        ]
        names, offsets = [field[0] for field in fields], [field[3] for field in fields]
        structs[name] = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
    return structs


STRUCTS = _dtypes()
_EPISODES = STRUCTS["Env"]["last"].shape[0]

_OP_BITS = 15  # the bits of a `task` that hold its op plus 1; the others hold its start time.
_DOING = ("reset", "step", "observe", "call", "close", "reset", "build", "reset")  # the name of each op


@dataclass(frozen=True)
class Figures:
    """Copies of all counters: one entry for each env, one for each worker, and one for the caller.

    `when`: the time of the copies, in seconds of CLOCK_MONOTONIC.
    """

    envs: NDArray[Any]
    workers: NDArray[Any]
    meters: NDArray[Any]
    caller: Any
    when: float

    @classmethod
    def read(cls, arena: _core.Arena, plan: _core.Plan) -> Figures:
        """Copies the figures out of an arena. `plan`: the layout of the arena."""
        envs, workers, meters, caller, now = _core.read_figures(arena, plan)
        return cls(
            np.frombuffer(envs, STRUCTS["Env"]),
            np.frombuffer(workers, STRUCTS["Worker"]),
            np.frombuffer(meters, STRUCTS["Meter"]),
            np.frombuffer(caller, STRUCTS["Caller"])[0],
            now / 1e9,
        )

    def last_episodes(self, env: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns (sums of rewards, lengths) of an env's last episodes, the latest last.

        They are one fewer than there is room for: the worker may be writing over the oldest one.
        """
        episodes, last = int(self.envs[env]["episodes"]), self.envs[env]["last"]
        kept = [last[n % _EPISODES] for n in range(max(0, episodes - _EPISODES + 1), episodes)]
        return tuple(float(one["reward"]) for one in kept), tuple(int(one["steps"]) for one in kept)

    def doing(self, worker: int) -> tuple[str | None, int | None, float]:
        """Returns (operation, env, seconds since its start) of a worker; (None, None, 0.0) if the worker waits.

        Env None: the whole worker.
        """
        if absent := self.since(self.workers[worker]["absent_since_ns"]):
            return "rebuild", None, absent
        task, env = int(self.meters[worker]["task"]), int(self.meters[worker]["env"])
        op = (task & _OP_BITS) - 1
        if not 0 <= op < len(_DOING):
            return None, None, 0.0
        return _DOING[op], None if env == _core.WHOLE_WORKER else env, self.since(task & ~_OP_BITS)

    def since(self, start_ns: int) -> float:
        """Returns the seconds since a time of CLOCK_MONOTONIC; 0.0 for the time 0, which stands for none."""
        return max(0.0, self.when - int(start_ns) / 1e9) if start_ns else 0.0


@dataclass(frozen=True)
class Origin:
    """The system's counters at the time a pool was made, in seconds; all zero if they were not read."""

    caller: float = 0.0  # CPU time of the program
    queued: Mapping[str, float] = field(default_factory=dict)  # the time in queues for cores, by process id as text

    @classmethod
    def now(cls, pids: Sequence[int | None], caller_pid: int) -> Origin:
        """Reads the counters. `pids`: the process id of each worker; None for a worker without a process."""
        queued = {str(pid): usage_of(pid).queued for pid in pids if pid is not None}
        return cls(usage_of(caller_pid).cpu, queued)

    def queued_since(self, pid: int | None) -> float:
        """Returns the seconds in which a worker was queued since the pool was made, or since its process began."""
        return max(0.0, usage_of(pid).queued - self.queued.get(str(pid), 0.0))


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
    hosted = hosted_ids(setup.envs_of_worker)
    no_memory = 0 if setup.backend == "process" and not setup.is_remote else None
    return PoolStats(
        seconds=seconds,
        envs=tuple(_env(figures, env, worker, setup) for worker, ids in enumerate(hosted) for env in ids),
        workers=tuple(
            _worker(
                figures,
                worker,
                env_ids=ids,
                pid=pid,
                seconds=seconds,
                queued=origin.queued_since(pid),
                memory=no_memory if pid is None else own_bytes(pid),
            )
            for worker, (ids, pid) in enumerate(zip(hosted, pids, strict=False))
        ),
        caller=_caller(figures, seconds, caller_pid, origin, torch_threads),
        cores=usable_cores(),
        setup=setup,
        taken=figures.when,
    )


def torch_threads() -> int | None:
    """Returns how many threads PyTorch's operators use in this process; None if PyTorch is not imported."""
    get = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if get is None else int(get())


def _env(figures: Figures, env: int, worker: int, setup: PoolSetup) -> EnvStats:
    row = figures.envs[env]
    timed = figures.envs[env - env % setup.width]  # only the first env of a vector env has durations
    returns, lengths = figures.last_episodes(env)
    return EnvStats(
        env_id=env,
        worker=worker,
        step=_durations(timed["steps"]),
        reset=_durations(timed["resets"]),
        episodes=int(row["episodes"]),
        returns=returns,
        lengths=lengths,
        faults=int(row["faults"]),
    )


def _worker(figures: Figures, index: int, **known: Any) -> WorkerStats:
    row, meter = figures.workers[index], figures.meters[index]
    doing, doing_env, since = figures.doing(index)
    return WorkerStats(
        **known,
        index=index,
        steps=int(meter["steps"]),
        busy=int(meter["busy_ns"]) / 1e9,
        cpu=int(meter["cpu_ns"]) / 1e9,
        idle=_durations(row["idle"]),
        restarts=int(row["restarts"]),
        memory_renewals=int(row["memory_renewals"]),
        lost=(int(row["outage_ns"]) + int(row["rebuild_ns"])) / 1e9 + figures.since(row["outage_since_ns"]),
        pickling=int(row["info_ns"]) / 1e9,
        info_key=row["info_key"].decode(errors="replace") or None,
        info_bytes=int(row["info_bytes"]),
        doing=doing,
        doing_env=doing_env,
        doing_since=since,
    )


def _caller(figures: Figures, seconds: float, pid: int, origin: Origin, threads: int | None) -> CallerStats:
    row = figures.caller
    batches, sampled, waiting = int(row["batches"]), int(row["sampled"]), int(row["waited_ns"]) / 1e9
    gathering = int(row["gathering_ns"]) / 1e9 * batches / sampled if sampled else 0.0  # an estimate
    return CallerStats(
        seconds=seconds,
        batches=batches,
        waiting=waiting,
        gathering=min(gathering, max(0.0, seconds - waiting)),
        unpickling=int(row["unpickling_ns"]) / 1e9,
        cpu=max(0.0, usage_of(pid).cpu - origin.caller),
        torch_threads=threads,
    )


def _durations(row: Any) -> Durations:
    return Durations(row["counts"], int(row["total_ns"]) / 1e9, int(row["longest_ns"]) / 1e9)
