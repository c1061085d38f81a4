"""Threads of the pools' own, which run no code of the program unless their target does.

Python runs signal handlers in the main thread, and they may raise between any two steps. Code that must not be left
half done, such as the start of a process, runs in another thread while the main thread waits (`run_apart`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from types import BuiltinFunctionType
from typing import Any, Generic, TypeVar

from remuda import _core
from remuda._system.interpreter import is_exiting, own_threads
from remuda._system.originals import thread as original

_Result = TypeVar("_Result")

_SLICE = 0.05  # seconds between two calls of `meanwhile`
_LAST_SECONDS = 1.0  # seconds for the last steps of a thread whose target has returned


def _has_threads() -> bool:
    """Returns whether `threading` starts threads, and not the greenlets of gevent or eventlet."""
    return isinstance(threading._start_new_thread, BuiltinFunctionType)  # type: ignore[attr-defined]


class Thread(threading.Thread):
    """A daemon thread whose start is never left half done.

    In `threading.Thread.start`, the exception of a signal handler can leave a thread that ends with a KeyError, or
    waits for ever. So another thread, which no signal handler interrupts, makes this call for the main thread.
    """

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._returned = _core.Event()  # set when the target has returned
        self._launched = _core.Event()
        self._is_launching = False
        self._refusal: BaseException | None = None

    def start(self) -> None:
        """Starts the thread. If a signal handler raises, the thread may start nevertheless."""
        if original.get_ident() != threading.main_thread().ident or not _has_threads():
            return super().start()
        self._is_launching = True
        original.start_new_thread(self._launch, ())
        self._launched.wait()
        if self._refusal is not None:
            raise self._refusal
        return None

    def has_started(self) -> bool:
        """Returns whether the thread was started, also by a `start` in which a signal handler has raised."""
        if self._is_launching:
            self._launched.wait(_LAST_SECONDS)  # limited, because that may have prevented the launch
        return self.ident is not None

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._returned.set()

    def await_end(self, seconds: float | None = None) -> bool:
        """Returns whether the target has returned within `seconds` (None: no limit). Then waits for the last steps.

        Before Python 3.13, an interrupt within `join` or `is_alive` may make a thread that runs count as stopped.
        """
        if not self._returned.wait(seconds):
            return False
        self.join(_LAST_SECONDS)
        return True

    def _launch(self) -> None:
        try:
            super().start()
        except BaseException as error:
            self._refusal = error
        finally:
            self._launched.set()


class OwnThread:
    """A thread of the operating system, also where gevent or eventlet have replaced threads by greenlets."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        self._target, self._args = target, args
        self._ended = _core.Event()  # set when the target has returned
        self._has_started = False
        self._verdict: dict[str, bool] = {}  # "runs": whether the target runs. `setdefault` decides that atomically
        self._thread = Thread(self._run, (), name) if _has_threads() else None
        self._ident: int | None = None
        if self._thread is not None:
            # Without the program's trace function (`threading.settrace`), which may wait for a lock of the program.
            self._thread.run = partial(_core.call_untraced, self._run)  # type: ignore[method-assign]

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError if the system allows no more threads."""
        if self._thread is None:
            original.start_new_thread(self._run, ())
        else:
            self._thread.start()
        self._has_started = True

    def prevent(self) -> bool:
        """Prevents that the target runs, after a `start` that has raised. Returns False if the target already runs."""
        return not self._verdict.setdefault("runs", False)

    def has_returned(self, seconds: float | None = None) -> bool:
        """Returns whether the target has returned within `seconds` (None: no limit), or will never run.

        Returns False at once if the thread is the calling thread. If a signal handler ends the wait, it can be
        repeated. The thread that starts this thread is the first to call this method: it prevents a target that was
        not started, or whose start was interrupted.
        """
        if not self._has_started and self.prevent():
            return True
        return self._ident != original.get_ident() and self._ended.wait(seconds)

    def join(self, seconds: float | None = None) -> bool:
        """Like `has_returned`, but also waits for the last steps of the thread."""
        if not self.has_returned(seconds):
            return False
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(_LAST_SECONDS)  # makes the calling thread known to `threading`
        return True

    def _run(self) -> None:
        if not self._verdict.setdefault("runs", True):
            return
        self._ident = original.get_ident()
        own_threads.add(self._ident)
        try:
            self._target(*self._args)
        finally:
            del self._target, self._args
            if self._thread is not None:
                del self._thread.run  # it refers to this object
            own_threads.discard(self._ident)
            self._ended.set()


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
