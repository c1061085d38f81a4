"""The thread that supervises a pool."""

from __future__ import annotations

import weakref
from typing import Protocol

from remuda import _core
from remuda._system.own_thread import OwnThread

_END_SECONDS = 10.0  # seconds for the end of the thread


class Attending(Protocol):
    """The object that handles the events of a pool."""

    def attend(self) -> None:
        """Handles all events that have occurred."""


class SupervisorThread:
    """The thread that handles the events of a pool, also while the program does not call the pool.

    Python runs signal handlers in the main thread only, so they never interrupt this thread. It keeps nothing of the
    pool while it sleeps, so a pool that is dropped is collected.
    """

    def __init__(self, watch: _core.Watch, attending: Attending, name: str) -> None:
        """`attending` is called whenever `watch` reports that there may be events, once the thread is started."""
        self._watch = watch
        arguments = watch, weakref.ref(attending)
        self._thread = OwnThread(_run, arguments, f"{name}-supervisor")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for its end. See `Stoppable`."""
        self._watch.close()
        self._thread.join(_END_SECONDS)


def _run(watch: _core.Watch, reference: weakref.ref[Attending]) -> None:
    while watch.wait():
        attending = reference()
        if attending is None:
            return
        attending.attend()
        del attending
