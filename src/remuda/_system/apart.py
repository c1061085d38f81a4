"""Runs work in a thread of its own, where no signal handler interrupts it.

Python runs signal handlers in the main thread, and they may raise between any two steps. Code that must not be left
half done, such as the start of a process, runs in another thread while the main thread waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

from remuda import _core
from remuda._system.exiting import is_exiting, own_threads
from remuda._system.originals import thread as original
from remuda._system.own_thread import OwnThread

_Result = TypeVar("_Result")

_SLICE = 0.05  # seconds between two calls of `meanwhile`


def run_apart(
    work: Callable[[], _Result], cancel: Callable[[], object], meanwhile: Callable[[], object] | None = None
) -> _Result:
    """Returns `work()`, called in a thread of its own, or raises its error.

    Calls `meanwhile` every 50 ms in the calling thread. It may run code of the program, and raise to end the work.

    If a signal handler raises meanwhile, calls `cancel`, waits until `work` has ended, and raises the handler's error.
    `cancel` must make `work` end soon. A second interrupt ends this wait at once. Then `work` still runs, so it must
    use nothing that the caller frees.

    Calls `work` directly in a thread of a pool. It also does so if no thread can be started, as at the interpreter's
    exit.
    """
    if original.get_ident() in own_threads or is_exiting():
        return work()
    job = Job(partial(copy_context().run, work))
    thread = OwnThread(job.run, (), "remuda-apart")
    has_thread = True
    try:
        try:
            thread.start()
        except RuntimeError:
            if not thread.prevent():  # a signal handler has raised
                raise
            has_thread = False
        while not thread.join(None if meanwhile is None else _SLICE):
            if meanwhile is not None:
                meanwhile()
    except BaseException:
        cancel()
        thread.join()
        raise
    return job.result() if has_thread else work()


class Job(Generic[_Result]):
    """Work for another thread, and its outcome.

    Attributes:
        ended: Set when the work has ended.
    """

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._values: list[_Result] = []
        self._error: BaseException | None = None
        self.ended = _core.Event()

    def run(self) -> None:
        work = self._work
        del self._work  # the thread may keep this object
        try:
            self._values.append(work())
        except BaseException as error:
            # Without this frame, which refers to the error.
            self._error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        finally:
            self.ended.set()

    def result(self) -> _Result:
        """Returns the result of the work, which has ended, or raises its error. Call this once."""
        error, self._error = self._error, None
        if error is None:
            return self._values.pop()
        try:
            raise error
        finally:
            del error  # otherwise the error would refer to this frame, which refers to the error
