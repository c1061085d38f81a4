"""Does the work of finalizers in threads that may block.

The garbage collector may call a finalizer (`weakref.finalize`, `__del__`) in any thread and between any two steps,
whatever locks the thread holds. So finalizers take no lock, join no thread and log nothing: they call `hand_over`.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from _queue import SimpleQueue  # the original, which gevent does not replace
from collections.abc import Callable

from remuda import _core
from remuda._system.forks import run_in_children
from remuda._system.interpreter import is_exiting
from remuda._system.originals import thread, time
from remuda._system.own_thread import OwnThread

_PATIENCE = 1.0  # seconds for a work, before the next one begins beside it
_EXIT_SECONDS = 5.0  # seconds at the interpreter's exit for the works that are not done


class _Work:
    """Something to do, in a thread of its own."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._has_begun = _core.Event()
        self._thread: OwnThread | None = None

    def begin(self) -> None:
        own = OwnThread(self.run, (), "finalizer of remuda")
        try:
            own.start()
            self._thread = own
        except RuntimeError:  # the system allows no more threads, or the interpreter exits
            self.run()
        self._has_begun.set()

    def run(self) -> None:
        function = self._function
        del self._function
        try:
            function()
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def is_done(self, seconds: float) -> bool:
        """Returns whether the work is done within `seconds`, twice at most."""
        return self._has_begun.wait(seconds) and (self._thread is None or self._thread.has_returned(seconds))

    def join(self, seconds: float) -> bool:
        """Returns whether the work is done and its thread has ended within `seconds`, twice at most."""
        return self._has_begun.wait(seconds) and (self._thread is None or self._thread.join(seconds))


class _Finalizers:
    """The works of this process, and the thread that begins them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forgets all works and the thread, of which a forked child has neither."""
        self.queue: SimpleQueue[_Work | None] = SimpleQueue()
        self.ended = _core.Event()
        self.works: set[_Work] = set()  # those that may not be done, and the last one
        self.has_thread = False

    def serve(self) -> None:
        while (work := self.queue.get()) is not None:
            self.works.difference_update([work for work in list(self.works) if work.is_done(0)])
            work.begin()
            work.is_done(_PATIENCE)  # a stuck work does not hold up the next one
            del work
        self.ended.set()


_finalizers = _Finalizers()


def prepare() -> None:
    """Starts this process's thread for `hand_over`. Call it before making an object with a finalizer.

    Raises RuntimeError if the system allows no more threads.
    """
    if not _finalizers.has_thread:
        weakref.finalize(_finalizers, int)  # the function that calls finalizers at exit must run second
        atexit.register(_end)
        thread.start_new_thread(_finalizers.serve, ())  # it lasts until the exit, so `threading` does not list it
        _finalizers.has_thread = True  # last: after an interrupt, a second thread does no harm


def hand_over(function: Callable[[], object]) -> None:
    """Makes a thread call the function soon. The main thread calls it at once if the interpreter exits."""
    if is_exiting() and threading.current_thread() is threading.main_thread():
        function()
        return
    work = _Work(function)
    _finalizers.works.add(work)
    _finalizers.queue.put(work)  # a function in C, which a finalizer may call within another call of it


def await_all(seconds: float = _EXIT_SECONDS) -> bool:
    """Returns whether all that was handed over is done within `seconds`, also what is handed over meanwhile."""
    end = time.monotonic() + seconds
    while works := [work for work in list(_finalizers.works) if not work.join(0)]:
        if not works[0].join(max(0.0, end - time.monotonic())):
            return False
    return True


def _end() -> None:
    """Waits at the interpreter's exit for what was handed over, and ends the thread."""
    if await_all() and _finalizers.has_thread:
        _finalizers.has_thread = False
        _finalizers.queue.put(None)
        _finalizers.ended.wait(_EXIT_SECONDS)


run_in_children(_finalizers.forget)
