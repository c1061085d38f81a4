"""Copies the figures of shards into the pool's memory, where `Pool.stats` and `remuda top` read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from remuda import _core
from remuda._cluster.driver.link import ShardLink
from remuda._cluster.messages import Figures
from remuda._engine.running import Running
from remuda._engine.stats.reading import STRUCTS

_OF_THE_POOL = {"Env": ("faults",), "Worker": ("restarts", "memory_renewals", "outage_ns")}
"""Figures that the pool counts, too. Its own counts are added to those of the shard."""
_TIMES = ("absent_since_ns", "outage_since_ns")
"""Figures of workers that are times of another machine's clock. They are 0 here."""


class FigureMirror:
    """Writes the figures of shards into the memory of their pool."""

    def __init__(self, running: Running) -> None:
        self._running = running
        plan = running.layout.plan
        self._places = {"Env": plan.env_figures, "Worker": plan.worker_figures}
        self._latest = {  # the latest figures of the shards
            "Env": np.zeros(running.layout.num_envs, STRUCTS["Env"]),
            "Worker": np.zeros(len(running.backend.workers), STRUCTS["Worker"]),
        }

    def update(self, figures: Iterable[tuple[ShardLink, Figures]]) -> None:
        """Copies the figures of shards into the pool's memory."""
        for link, (envs, workers, meters) in figures:
            first = link.workers[0].index
            self._write("Env", link.share.first, np.frombuffer(envs, STRUCTS["Env"]))
            figures_of_workers = np.frombuffer(workers, STRUCTS["Worker"]).copy()
            for name in _TIMES:
                figures_of_workers[name] = 0
            self._write("Worker", first, figures_of_workers)
            for index, meter in enumerate(np.frombuffer(meters, STRUCTS["Meter"])):
                place = self._view("Meter", self._running.layout.plan.meter(first + index), 1)
                for name in ("steps", "busy_ns", "cpu_ns"):  # not task times: these have another machine's clock
                    place[name] = meter[name]

    def _write(self, kind: str, first: int, figures: Any) -> None:
        places = slice(first, first + len(figures))
        memory, latest = self._view(kind, self._places[kind], places.stop)[places], self._latest[kind][places]
        own = {name: memory[name] - latest[name] for name in _OF_THE_POOL[kind]}
        memory[:] = latest[:] = figures
        for name, counts in own.items():
            memory[name] += counts

    def _view(self, kind: str, offset: int, count: int) -> Any:
        size = STRUCTS[kind].itemsize
        column: _core.Column = self._running.arena.column(np.dtype(np.uint8), [size], offset)
        return column.view(count).view(STRUCTS[kind])[:, 0]
