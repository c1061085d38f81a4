"""Workers that are threads, for envs that spend their time in code that releases the GIL, and for Python without it."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from remuda import _core
from remuda._backends.deadline import Deadline
from remuda._backends.local import LocalBackend, LocalWorker, close_all
from remuda._system.cores import core_for
from remuda._system.interpreter import has_gil
from remuda._wire.layout import Layout
from remuda._worker.env_report import close_or_warn
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import EnvTimeoutError

_FAREWELL = 1.0  # seconds for running steps to end when the pool is abandoned


class ThreadBackend(LocalBackend):
    """Builds the envs in the caller's thread, and steps each in the thread of its worker."""

    def __init__(self, *, pins: bool = False) -> None:
        """`pins`: whether each thread is kept on one core."""
        super().__init__()
        self.threads, self._pins = self, pins
        self._runners: list[_LoopRunner] = []  # by worker

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        anywhere = [frozenset[int]()] * len(self.workers)
        for worker in self.workers:
            loop = worker.host.start(layout, arena, defaults.for_successor(worker.env_ids))
            core = core_for(worker.index, anywhere) if self._pins else None
            self._runners.append(_LoopRunner(worker, loop, core))

    def watch(self, hub: _core.Hub) -> None:
        pass

    def stop(self, timeout: float) -> None:
        for runner in self._runners:
            runner.loop.stop()
        deadline = Deadline(timeout)
        for thread in [thread for runner in self._runners for thread in (runner.thread, runner.relief)]:
            if thread is threading.current_thread():  # Python's collector may run this in a worker's thread
                continue
            thread.join(deadline.slice())
            while thread.is_alive() and not deadline.has_passed():
                thread.join(deadline.slice())
        if not self._runners:  # no thread was started, so no loop closes the envs
            close_all(self.workers)
        self._runners = []

    def abandon(self) -> None:
        # A thread cannot be ended from outside. A late thread closes its envs when the running step returns. If the
        # interpreter has ended before that, the thread sleeps until the process ends (see finalizing.cpp).
        self.stop(_FAREWELL)

    # -- threads that hang -------------------------------------------------------------------------------

    def stack(self, worker: int) -> str:
        return self._runners[worker].stack()

    def relieve(self, worker: int, task: int, error: EnvTimeoutError) -> None:
        self._runners[worker].relieve(task, error)

    def hung(self, worker: int) -> dict[int, EnvTimeoutError]:
        return self.workers[worker].host.hung


class _LoopRunner:
    """Runs the loop of a worker in a thread. If an env hangs in that thread, another one takes the loop over.

    Attributes:
        loop: The worker's loop.
        thread: The thread that runs the loop.
        relief: The latest thread that was started to take the loop over; at first, `thread`.
    """

    def __init__(self, worker: LocalWorker, loop: _core.WorkerLoop, core: int | None) -> None:
        """`core`: the core to keep the threads on; None: any."""
        self.loop, self._worker, self._core = loop, worker, core
        self._left: SimpleQueue[Any] = SimpleQueue()  # for `thread`: the env that it must close after it lost the loop
        self.thread = self.relief = self._start(self._run, self._left)

    def _start(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        # A daemon, so that an env that never returns cannot prevent the interpreter's exit.
        thread = threading.Thread(target=target, args=args, name=self._worker.name, daemon=True)
        thread.start()
        if self._core is not None and thread.native_id is not None:
            with suppress(OSError):  # the thread has ended, or may not use this core any more
                os.sched_setaffinity(thread.native_id, {self._core})
        return thread

    def stack(self) -> str:
        """Returns the Python stack of the thread, the last call first; empty if it cannot be read.

        Without the GIL the thread may change its frames while they are read, which could crash the process.
        """
        if not has_gil():
            return ""
        frame, calls = sys._current_frames().get(self.thread.ident or 0), []
        for one, line in () if frame is None else traceback.walk_stack(frame):
            if one.f_code is _LoopRunner._run.__code__:
                break
            calls.append(f'File "{one.f_code.co_filename}", line {line} in {one.f_code.co_name}')
        return "\n".join(calls)

    def relieve(self, task: int, error: EnvTimeoutError) -> None:
        """Starts a thread that takes the loop over, if the other one still hangs in `task`. It reports `error`."""
        if self.relief is self.thread or not self.relief.is_alive():
            self.relief = self._start(self._take_over, task, error)

    def _run(self, left: SimpleQueue[Any]) -> None:
        has_loop = True
        try:
            has_loop = self.loop.run()
        finally:
            if has_loop:
                self._worker.host.close_quietly()  # the loop has closed the envs, unless the pool was abandoned
                self._worker.alive = False
        if not has_loop:
            close_or_warn(left.get(), "an env that was left in a hung thread raised in close")

    def _take_over(self, task: int, error: EnvTimeoutError) -> None:
        env = self.loop.take_over(task)
        if env is None:  # the call has returned meanwhile
            return
        others, self._left = self._left, SimpleQueue()
        self.thread = threading.current_thread()
        others.put(self._worker.host.leave(env, error))
        self._run(self._left)
