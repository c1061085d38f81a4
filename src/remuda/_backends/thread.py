"""Workers that are threads, for envs that spend their time in code that releases the GIL, and for Python without it."""

from __future__ import annotations

import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Set
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from remuda import _core
from remuda._backends.local import LocalBackend, LocalWorker
from remuda._backends.waiting import Deadline
from remuda._system.cores import cores_for
from remuda._system.interpreter import has_gil
from remuda._system.own_thread import Job, Thread
from remuda._wire.layout import Layout
from remuda._worker.env_report import close_or_warn
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import EnvTimeoutError

_FAREWELL = 1.0  # seconds for running steps to end, which cannot be ended from outside


class ThreadBackend(LocalBackend):
    """Builds, steps and closes each env in the thread of its worker."""

    def __init__(self, *, pins: bool | tuple[frozenset[int], ...] = False) -> None:
        """`pins`: the cores on which threads are kept, see `cores_for`; False: any."""
        super().__init__()
        self.threads, self._pins = self, pins
        self._runners: list[_Runner] = []  # by worker
        # An interrupt between two steps of a start leaves a backend that no pool owns yet.
        weakref.finalize(self, _abandon, self._runners, os.getpid()).atexit = False

    def run_in(self, worker: LocalWorker, work: Callable[[], Any]) -> Any:
        if worker.index == len(self._runners):
            self._runners.append(_Runner(worker))
        return self._runners[worker.index].call(work)

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        anywhere = [frozenset[int]()] * len(self.workers)
        for worker, runner in zip(self.workers, self._runners, strict=True):
            cores = cores_for(worker.index, self._pins, anywhere) if self._pins else None
            runner.begin(worker.host.start(layout, arena, defaults.for_successor(worker.env_ids)), cores)

    def watch(self, hub: _core.Hub) -> None:
        pass

    def stop(self, timeout: float) -> None:
        is_idle = all(runner.loop is None for runner in self._runners)  # then the envs are only to be closed
        self._end(None if is_idle else max(timeout, _FAREWELL))

    def _end(self, timeout: float | None) -> None:
        self.has_ended = True
        for runner in self._runners:
            runner.stop()
        deadline = Deadline(timeout)
        for thread in [thread for runner in self._runners for thread in (runner.thread, runner.relief)]:
            # An env may close the pool in a worker's thread. An interrupt may have prevented a thread's start.
            if thread is threading.current_thread() or not thread.has_started():
                continue
            while not thread.await_end(deadline.slice()) and not deadline.has_passed():
                pass
        self._runners.clear()

    def abandon(self) -> None:
        # A thread cannot be ended from outside. A late thread closes its envs when the running step or factory returns.
        # If the interpreter has ended before that, the thread sleeps until the process ends (see interpreter.cpp).
        self._end(_FAREWELL)

    # -- threads that hang -------------------------------------------------------------------------------

    def stack(self, worker: int) -> str:
        return self._runners[worker].stack()

    def relieve(self, worker: int, task: int, error: EnvTimeoutError) -> None:
        self._runners[worker].relieve(task, error)

    def hung(self, worker: int) -> dict[int, EnvTimeoutError]:
        return self.workers[worker].host.hung


def _abandon(runners: list[_Runner], owner: int) -> None:
    """Makes the threads of a backend that was dropped end. A forked copy of the owner has none of them."""
    for runner in runners if os.getpid() == owner else ():
        runner.stop()


class _Runner:
    """A worker's thread, which builds the envs, runs the loop and closes the envs.

    If an env hangs in that thread, another one takes the loop over.

    Attributes:
        loop: The worker's loop; None until the envs are built.
        thread: The thread that runs the loop.
        relief: The latest thread that was started to take the loop over; at first, `thread`.
    """

    def __init__(self, worker: LocalWorker) -> None:
        self.loop: _core.WorkerLoop | None = None
        self._worker = worker
        self._cores: Set[int] | None = None  # the cores to keep the threads on; None: any.
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()  # for `thread`, before it runs the loop
        self._left: SimpleQueue[Any] = SimpleQueue()  # for `thread`: the env that it must close after it lost the loop
        self.thread = self.relief = self._make(self._serve, self._left)

    def call(self, work: Callable[[], Any]) -> Any:
        """Returns `work()`, called in the thread. If a signal handler interrupts the caller, the call goes on."""
        job = Job(work)
        if not self.thread.has_started():
            self.thread.start()
        self._tasks.put(job.run)
        job.ended.wait()
        return job.result()

    def begin(self, loop: _core.WorkerLoop, cores: Set[int] | None) -> None:
        """Starts the loop in the thread, and keeps the thread on these cores, unless None."""
        self.loop, self._cores = loop, cores
        self._pin(self.thread)
        self._tasks.put(None)

    def stop(self) -> None:
        """Makes the thread close the envs and end, after the call of an env that it is in."""
        if self.loop is not None:
            self.loop.stop()
        self._tasks.put(None)

    def _make(self, target: Callable[..., None], *args: Any) -> Thread:
        # A daemon, so that an env that never returns cannot prevent the interpreter's exit.
        return Thread(target, args, self._worker.name)

    def _pin(self, thread: Thread) -> None:
        if self._cores is not None and thread.native_id is not None:
            with suppress(OSError):  # the thread has ended, or may not use these cores any more
                os.sched_setaffinity(thread.native_id, self._cores)

    def stack(self) -> str:
        """Returns the Python stack of the thread, the last call first; empty if it cannot be read.

        Without the GIL the thread may change its frames while they are read, which could crash the process.
        """
        if not has_gil():
            return ""
        frame, calls = sys._current_frames().get(self.thread.ident or 0), []
        for one, line in () if frame is None else traceback.walk_stack(frame):
            if one.f_code is _Runner._run.__code__:
                break
            calls.append(f'File "{one.f_code.co_filename}", line {line} in {one.f_code.co_name}')
        return "\n".join(calls)

    def relieve(self, task: int, error: EnvTimeoutError) -> None:
        """Starts a thread that takes the loop over, if the other one still hangs in `task`. It reports `error`."""
        if self.relief is self.thread or not self.relief.is_alive():
            self.relief = self._make(self._take_over, task, error)
            self.relief.start()
            self._pin(self.relief)

    def _serve(self, left: SimpleQueue[Any]) -> None:
        while (task := self._tasks.get()) is not None:
            task()
        self._run(left)

    def _run(self, left: SimpleQueue[Any]) -> None:
        has_loop = True
        try:
            has_loop = self.loop is None or self.loop.run()
        finally:
            if has_loop:
                self._worker.close()  # the loop has closed the envs, unless the pool was abandoned
        if not has_loop:
            close_or_warn(left.get(), "an env that was left in a hung thread raised in close")

    def _take_over(self, task: int, error: EnvTimeoutError) -> None:
        assert self.loop is not None  # only a thread that runs the loop is relieved
        env = self.loop.take_over(task)
        if env is None:  # the call has returned meanwhile
            return
        others, self._left = self._left, SimpleQueue()
        self.thread = self.relief
        others.put(self._worker.host.leave(env, error))
        self._run(self._left)
