"""Copies the figures in a pool's shared memory into NumPy arrays, and makes records of them.

This needs the memory alone, so it serves the pool's own process and others that watch the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.record import figures_of


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
        """Returns (operation, env, start) of a worker. Env None: the whole worker. (None, None, 0.0): the worker waits.

        The start is in seconds of CLOCK_MONOTONIC.
        """
        task, env = int(self.meters[worker]["task"]), int(self.meters[worker]["env"])
        op = (task & _OP_BITS) - 1
        if not 0 <= op < len(_DOING):
            return None, None, 0.0
        return _DOING[op], None if env == _core.WHOLE_WORKER else env, (task & ~_OP_BITS) / 1e9


def read_record(kind: type[Any], *rows: Any, **found: Any) -> Any:
    """Returns a record of the class `kind` with the figures in `rows`. `found`: the fields that are not in `rows`."""
    cells = {name: cell for row in rows for name, cell in zip(row.dtype.names, row.item(), strict=True)}
    for name, figure in figures_of(kind).items():
        if figure.cells:
            values = [_value(cell, cells[cell]) for cell in figure.cells]
            found[name] = values[0] if len(values) == 1 else sum(values)
    return kind(**found)


def _value(name: str, cell: Any) -> Any:
    """Converts a cell of shared memory: counts to Durations, bytes to text, and nanoseconds to seconds."""
    if isinstance(cell, tuple):
        total_ns, longest_ns, counts = cell
        return Durations(counts, total_ns / 1e9, longest_ns / 1e9)
    if isinstance(cell, bytes):
        return cell.decode(errors="replace") or None
    return cell / 1e9 if name.endswith("_ns") else cell
