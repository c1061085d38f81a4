"""Workers that are threads, for envs that spend their time in code that releases the GIL, and for Python without it."""

from __future__ import annotations

import threading

from remuda import _core
from remuda._backends.deadline import Deadline
from remuda._backends.local import LocalBackend, LocalWorker, close_all
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults

_FAREWELL = 1.0  # seconds for running steps to end when the pool is abandoned


class ThreadBackend(LocalBackend):
    """Builds the envs in the caller's thread, and steps each in the thread of its worker."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: list[threading.Thread] = []
        self._loops: list[_core.WorkerLoop] = []

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        for worker in self.workers:
            loop = worker.host.start(layout, arena, defaults.for_successor(worker.env_ids))
            # Daemons, so that an env that never returns cannot prevent the interpreter's exit.
            thread = threading.Thread(target=_run, args=(worker, loop), name=worker.name, daemon=True)
            self._threads.append(thread)
            self._loops.append(loop)
            thread.start()

    def watch(self, hub: _core.Hub) -> None:
        pass

    def stop(self, timeout: float) -> None:
        for loop in self._loops:
            loop.stop()
        deadline = Deadline(timeout)
        for thread in self._threads:
            if thread is threading.current_thread():  # Python's collector may run this in a worker's thread
                continue
            thread.join(deadline.slice())
            while thread.is_alive() and not deadline.has_passed():
                thread.join(deadline.slice())
        if not self._threads:  # no thread was started, so no loop closes the envs
            close_all(self.workers)
        self._loops = []

    def abandon(self) -> None:
        # A thread cannot be ended from outside. A late thread closes its envs when the running step returns. If the
        # interpreter has ended before that, the thread sleeps until the process ends (see finalizing.cpp).
        self.stop(_FAREWELL)


def _run(worker: LocalWorker, loop: _core.WorkerLoop) -> None:
    try:
        loop.run()
    finally:
        worker.host.close_quietly()  # the loop has closed the envs, unless the pool was abandoned
        worker.alive = False
