"""The thread that handles the events of a pool's shards."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from remuda._system.own_thread import OwnThread

_END_SECONDS = 10.0  # seconds for the end of the thread


class Receiver:
    """Handles the events of a pool's shards in order: answers of actors, new commands, and requests of other threads.

    All state of the links, messengers and workers belongs to the thread that handles events. This is the thread that
    makes the pool, until `start`; then the receiver's own thread, until `stop`; then the thread that stops the pool.
    Every other thread calls `post`, except for the few methods and attributes that name other threads.

    The receiver's thread never enters the hub, and runs no code of the program, so it waits for no other thread.

    Attributes:
        post: Adds an event: a function that the thread calls. A function in C, so no signal handler interrupts it.
        wake_supervisor: Makes the supervisor look for logs, once there is a supervisor.
    """

    def __init__(self) -> None:
        self._events: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._logs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.post = self._events.put
        self.wake_supervisor: Callable[[], object] = _wake
        self._thread: OwnThread | None = None
        self._is_stopping = False

    def start(self, pass_on: Callable[[], float | None], name: str) -> None:
        """Starts the thread. `pass_on`: called after events; returns the seconds until it must be called again."""
        self._thread = OwnThread(self._run, (pass_on,), f"{name}-receiver")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for its end for a limited time. Can be called again."""
        self._is_stopping = True
        self.post(_wake)
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def handle(self, timeout: float | None) -> bool:
        """Waits for an event and handles it. Returns False if there is none within `timeout` seconds."""
        try:
            event = self._events.get(timeout=timeout)
        except Empty:
            return False
        event()
        return True

    def log_later(self, function: Callable[[], object]) -> None:
        """Keeps a function that writes to the log, because handlers of the log may use the pool."""
        self._logs.put(function)
        self.wake_supervisor()

    def has_logs(self) -> bool:
        """Whether `log_later` has kept functions."""
        return not self._logs.empty()

    def log(self, after_each: Callable[[], object] = lambda: None) -> None:
        """Calls the functions that `log_later` has kept. One other thread at a time may call this."""
        while self.has_logs():
            self._logs.get()()
            after_each()

    def _run(self, pass_on: Callable[[], float | None]) -> None:
        pause = None
        while not self._is_stopping:
            try:
                if self.handle(pause):
                    while not self._is_stopping and self.handle(0):
                        pass
                pause = None if self._is_stopping else pass_on()
            except Exception:  # a bug in remuda
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _wake() -> None:
    """Does nothing, as an event that ends the sleep of the thread."""
