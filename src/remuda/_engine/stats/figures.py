"""The figures in a pool's shared memory: copies of them as NumPy arrays, and records made of those.

This needs the memory alone, so it serves the pool's own process and others that watch the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core
from remuda._engine.stats.durations import BUCKETS, Durations
from remuda._engine.stats.record import figures_of


def _layout(counters: str, *before: tuple[Any, ...], after: tuple[tuple[Any, ...], ...] = ()) -> np.dtype[Any]:
    """Returns the layout of a struct that has 64-bit counters between other members."""
    return np.dtype([*before, *((name, "u8") for name in counters.split()), *after])


# The structs of src/core/shm/figures.hpp, and Meter in plan.hpp.
_EPISODES = 16
_DURATIONS = _layout("total_ns longest_ns", after=(("counts", "u8", BUCKETS),))
_EPISODE = np.dtype([("reward", "f8"), ("steps", "u8")])
_ENV = _layout(
    "episodes faults",
    ("steps", _DURATIONS),
    ("resets", _DURATIONS),
    after=(("unused", "u8", 6), ("last", _EPISODE, _EPISODES)),
)
_WORKER = _layout(
    "restarts memory_renewals outage_ns rebuild_ns info_ns info_bytes",
    ("idle", _DURATIONS),
    after=(("info_key", "S64"), ("unused", "u8", 2)),
)
_METER = _layout("steps busy_ns cpu_ns task", after=(("env", "u4"), ("pid", "u4"), ("unused", "u4", 6)))
_CALLER = _layout("began_ns batches waited_ns sampled gathering_ns unpickling_ns", after=(("unused", "u8", 2),))

_OP_BITS = 15  # of a task: the op, plus 1; the other bits are the time at which it began
_DOING = ("reset", "step", "observe", "call", "close", "reset", "build", "reset")  # by op


@dataclass(frozen=True)
class Figures:
    """Copies of what is counted, one entry for each env, for each worker, and for the caller.

    `when`: the time of the copies, in seconds of CLOCK_MONOTONIC.
    """

    envs: NDArray[Any]
    workers: NDArray[Any]
    meters: NDArray[Any]
    caller: Any
    when: float

    @classmethod
    def read(cls, arena: _core.Arena, plan: _core.Plan) -> Figures:
        """Copies the figures. `plan` is that of the arena."""
        envs, workers, meters, caller, now = _core.read_figures(arena, plan)
        return cls(
            np.frombuffer(envs, _ENV),
            np.frombuffer(workers, _WORKER),
            np.frombuffer(meters, _METER),
            np.frombuffer(caller, _CALLER)[0],
            now / 1e9,
        )

    def last_episodes(self, env: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns the sums of rewards and the lengths of an env's last episodes, the latest last.

        They are one fewer than there is room for: the worker may be writing over the oldest one.
        """
        episodes, last = int(self.envs[env]["episodes"]), self.envs[env]["last"]
        kept = [last[n % _EPISODES] for n in range(max(0, episodes - _EPISODES + 1), episodes)]
        return tuple(float(one["reward"]) for one in kept), tuple(int(one["steps"]) for one in kept)

    def doing(self, worker: int) -> tuple[str | None, int | None, float]:
        """Returns what a worker does, to which env, and since when, in seconds of CLOCK_MONOTONIC; None: nothing."""
        task, env = int(self.meters[worker]["task"]), int(self.meters[worker]["env"])
        op = (task & _OP_BITS) - 1
        if not 0 <= op < len(_DOING):
            return None, None, 0.0
        return _DOING[op], None if env == _core.WHOLE_WORKER else env, (task & ~_OP_BITS) / 1e9


def read_record(kind: type[Any], *rows: Any, **found: Any) -> Any:
    """Returns a record of the figures in some rows, which share no name. `found` are the other fields."""
    cells = {name: cell for row in rows for name, cell in zip(row.dtype.names, row.item(), strict=True)}
    for name, figure in figures_of(kind).items():
        if figure.cells:
            values = [_value(cell, cells[cell]) for cell in figure.cells]
            found[name] = values[0] if len(values) == 1 else sum(values)
    return kind(**found)


def _value(name: str, cell: Any) -> Any:
    """Returns durations; a text without the zeros behind it; a number, ns as seconds."""
    if isinstance(cell, tuple):
        total_ns, longest_ns, counts = cell
        return Durations(counts, total_ns / 1e9, longest_ns / 1e9)
    if isinstance(cell, bytes):
        return cell.decode(errors="replace") or None
    return cell / 1e9 if name.endswith("_ns") else cell
