"""Runs work in a thread of its own, where no signal handler interrupts it.

Python runs signal handlers in the main thread, and they may raise between any two steps. Code that must not be left
half done, such as the start of a process, runs in another thread while the main thread waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, TypeVar

from remuda._system.exiting import is_exiting
from remuda._system.originals import thread as original
from remuda._system.own_thread import OwnThread

_Result = TypeVar("_Result")


def run_apart(work: Callable[[], _Result], cancel: Callable[[], object]) -> _Result:
    """Returns `work()`, called in a thread of its own, or raises its error.

    If a signal handler raises meanwhile, calls `cancel`, waits until `work` has ended, and raises the handler's error.
    Further interrupts do not shorten this wait. `cancel` must make `work` end soon.

    Calls `work` directly in a thread other than the main thread, which no signal handler interrupts. It also does so if
    no thread can be started, as at the interpreter's exit.
    """
    if threading.current_thread() is not threading.main_thread() or is_exiting():
        return work()
    job = _Job(work)
    try:
        is_started = job.start()
        if is_started:
            job.wait()
    except BaseException:
        cancel()
        job.wait_out()
        raise
    return job.result() if is_started else work()


class _Job(Generic[_Result]):
    """Work that a thread runs, and its outcome."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work, self._context = work, copy_context()
        self._claim = original.allocate_lock()  # held by the thread that runs the work, or by the caller that gave up
        self._values: list[_Result] = []
        self._error: BaseException | None = None
        self._thread = OwnThread(self._run, (), "remuda-apart")

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._values.append(self._context.run(self._work))
        except BaseException as error:
            # Without this frame, which refers to the error.
            self._error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)

    def start(self) -> bool:
        """Starts the thread. Returns False if the system allows no more threads; then the work will not begin."""
        try:
            self._thread.start()
        except RuntimeError:
            if not self._claim.acquire(blocking=False):  # a signal handler has raised
                raise
            return False
        return True

    def wait(self) -> None:
        """Waits until the work has ended. After an interrupt, this can be called again."""
        self._thread.join()

    def wait_out(self) -> None:
        """Waits until the work has ended, or prevents its begin if the start of the thread was interrupted."""
        if self._claim.acquire(blocking=False):
            return
        has_ended = False
        while not has_ended:
            with suppress(BaseException):
                self.wait()
                has_ended = True

    def result(self) -> _Result:
        error, self._error = self._error, None
        if error is None:
            return self._values.pop()
        try:
            raise error
        finally:
            del error  # otherwise the error would refer to this frame, which refers to the error
