"""Threads of the pools' own, which run no code of the program unless their target does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType
from typing import Any

from remuda import _core
from remuda._system.exiting import own_threads
from remuda._system.originals import thread as original

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
