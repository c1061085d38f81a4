"""The figures that lie in a pool's shared memory, as NumPy has them: what `read_figures` copies, named.

It needs the memory alone, so it serves the pool's own process and others that look on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core
from remuda._engine.stats.durations import BUCKETS, Durations

# src/core/shm/figures.hpp, and Meter in plan.hpp
_DURATIONS = np.dtype([("total_ns", "u8"), ("longest_ns", "u8"), ("counts", "u8", BUCKETS)])
_EPISODE = np.dtype([("reward", "f8"), ("steps", "u8")])
_EPISODES = 16
_ENV = np.dtype(
    [
        ("steps", _DURATIONS),
        ("resets", _DURATIONS),
        ("episodes", "u8"),
        ("faults", "u8"),
        ("unused", "u8", 6),
        ("last", _EPISODE, _EPISODES),
    ]
)
_WORKER = np.dtype(
    [
        ("idle", _DURATIONS),
        ("restarts", "u8"),
        ("memory_renewals", "u8"),
        ("outage_ns", "u8"),
        ("rebuild_ns", "u8"),
        ("info_ns", "u8"),
        ("info_bytes", "u8"),
        ("info_key", "S64"),
        ("unused", "u8", 2),
    ]
)
_METER = np.dtype(
    [
        ("steps", "u8"),
        ("busy_ns", "u8"),
        ("cpu_ns", "u8"),
        ("task", "u8"),
        ("env", "u4"),
        ("pid", "u4"),
        ("unused", "u4", 6),
    ]
)
_CALLER = np.dtype(
    [
        ("began_ns", "u8"),
        ("batches", "u8"),
        ("waited_ns", "u8"),
        ("sampled", "u8"),
        ("gathering_ns", "u8"),
        ("unpickling_ns", "u8"),
        ("unused", "u8", 2),
    ]
)
_TASK_BITS = 15  # of a task: the op, plus 1; the rest is when it began
_DOING = ("reset", "step", "observe", "call", "close", "reset", "build", "reset")  # by op


@dataclass(frozen=True)
class Figures:
    """Copies of what is counted, one entry for each env, for each worker, and for the caller.

    `when`: they were made, in seconds of CLOCK_MONOTONIC.
    """

    envs: NDArray[Any]
    workers: NDArray[Any]
    meters: NDArray[Any]
    caller: Any
    when: float

    @classmethod
    def read(cls, arena: _core.Arena, plan: _core.Plan) -> Figures:
        """`plan`: what lies where in the arena."""
        envs, workers, meters, caller, now = _core.read_figures(arena, plan)
        return cls(
            np.frombuffer(envs, _ENV),
            np.frombuffer(workers, _WORKER),
            np.frombuffer(meters, _METER),
            np.frombuffer(caller, _CALLER)[0],
            now / 1e9,
        )

    def last_episodes(self, env: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns and lengths of an env's last episodes, the latest last. One less than there is room for is told: the
        oldest may be written over just now."""
        episodes, last = int(self.envs[env]["episodes"]), self.envs[env]["last"]
        told = [last[n % _EPISODES] for n in range(max(0, episodes - _EPISODES + 1), episodes)]
        return tuple(float(one["reward"]) for one in told), tuple(int(one["steps"]) for one in told)

    def doing(self, worker: int) -> tuple[str | None, int | None, float]:
        """What a worker does, to which env, and since when, in seconds of CLOCK_MONOTONIC; None: nothing."""
        task, env = int(self.meters[worker]["task"]), int(self.meters[worker]["env"])
        op = (task & _TASK_BITS) - 1
        if not 0 <= op < len(_DOING):
            return None, None, 0.0
        return _DOING[op], None if env == _core.WHOLE_WORKER else env, (task & ~_TASK_BITS) / 1e9


def durations_of(entry: Any) -> Durations:
    """Of one entry's durations."""
    return Durations(entry["counts"].astype(np.int64), int(entry["total_ns"]) / 1e9, int(entry["longest_ns"]) / 1e9)
