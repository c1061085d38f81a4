"""The serial backend: envs are stepped in the calling thread, for debugging and as the reference for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda import _core
from remuda._backends.local import LocalBackend, LocalWorker
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults


class SerialBackend(LocalBackend):
    """Builds and steps the envs in the caller's thread, one after another, whenever the caller waits."""

    def __init__(self) -> None:
        super().__init__()
        self._loops: list[_core.WorkerLoop] = []

    def run_in(self, worker: LocalWorker, work: Callable[[], Any]) -> Any:
        return work()

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        for worker in self.workers:
            worker.host.interrupts = self.interrupts
            self._loops.append(worker.host.start(layout, arena, defaults.for_successor(worker.env_ids)))

    def watch(self, hub: _core.Hub) -> None:
        hub.callbacks.pump = self._pump

    def _pump(self) -> None:
        for loop, worker in zip(self._loops, self.workers, strict=True):
            worker.alive = not loop.run_available()

    def stop(self, timeout: float) -> None:
        for worker in self.workers:
            worker.close()
        self._loops = []

    def abandon(self) -> None:
        self.stop(0)
