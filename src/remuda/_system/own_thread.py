"""Threads of the pools' own, which run no code of the program, except its log handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

from remuda._system.exiting import own_threads
from remuda._system.originals import thread as original

_SLICE = 0.05  # seconds of a wait, because a signal that comes just before a wait is handled only after it


class OwnThread:
    """A thread of the operating system, also where gevent or eventlet have replaced threads by greenlets."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        self._target, self._args = target, args
        self._running = original.allocate_lock()  # held until the target has returned
        self._running.acquire()
        self._thread: threading.Thread | None = None
        self._ident: int | None = None
        if isinstance(threading._start_new_thread, BuiltinFunctionType):  # type: ignore[attr-defined]  # not replaced
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return self._ident == original.get_ident()

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError if the system allows no more threads."""
        if self._thread is None:
            original.start_new_thread(self._run, ())
        else:
            self._thread.start()

    def join(self) -> None:
        """Waits for the end of the target, which was started. If a signal handler ends the wait, it can be repeated."""
        while not self._running.acquire(timeout=_SLICE):
            pass
        self._running.release()
        if self._thread is not None:  # not earlier, because an interrupted join may take the thread for ended
            self._thread.join()

    def _run(self) -> None:
        self._ident = original.get_ident()
        own_threads.add(self._ident)
        try:
            self._target(*self._args)
        finally:
            del self._target, self._args
            own_threads.discard(self._ident)
            self._running.release()
