"""The thread that supervises a pool."""

from __future__ import annotations

import weakref
from typing import Protocol

from remuda import _core
from remuda._relay.log import print_error_of_handler
from remuda._system.own_thread import OwnThread


class Attending(Protocol):
    """The object that handles the events of a pool."""

    def attend(self) -> None:
        """Handles all events that have occurred."""

    def tell(self) -> None:
        """Logs what is not logged yet."""


class SupervisorThread:
    """The thread that handles the events of a pool, also while the program does not call the pool.

    Python runs signal handlers in the main thread only, so they never interrupt this thread. It keeps nothing of the
    pool while it sleeps, so a pool that is dropped is collected.
    """

    def __init__(self, watch: _core.Watch, attending: Attending, name: str) -> None:
        """Starts the thread. `attending` is called whenever `watch` reports that there may be events."""
        self._watch = watch
        arguments = watch, weakref.ref(attending)
        self._thread = OwnThread(_run, arguments, f"{name}-supervisor")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Waits for its end, unless it is the calling thread, where a log handler closes the pool."""
        self._watch.close()
        if not self._thread.is_current:
            self._thread.join()


def _run(watch: _core.Watch, reference: weakref.ref[Attending]) -> None:
    is_open = True
    while is_open:
        is_open = watch.wait()
        attending = reference()
        if attending is None:
            return
        try:
            attending.attend() if is_open else attending.tell()
        except BaseException:  # of a log handler of the program
            print_error_of_handler()
            watch.wake()
        del attending
