"""Starts the successors of dead workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from remuda._backends.base import Processes
from remuda._backends.waiting import Flag
from remuda._system.own_thread import OwnThread
from remuda.errors import RemudaError

_END_SECONDS = 10.0  # seconds for the end of all starts


class Successors:
    """Starts each successor in a thread of its own, which waits until the successor has built its envs.

    Attributes:
        start_timeout: The seconds for building the envs; None: no limit.
    """

    def __init__(self, processes: Processes, start_timeout: float | None, wake: Callable[[], None]) -> None:
        """`wake`: called with each new outcome."""
        self._processes, self.start_timeout, self._wake = processes, start_timeout, wake
        self._outcomes: deque[tuple[int, RemudaError | None]] = deque()
        self._threads: dict[int, OwnThread] = {}  # the latest thread of each worker
        self._stopping = Flag()

    def start(self, worker: int, at: float) -> None:
        """Begins to start the successor of a dead worker. `at`: the time of the start, of `time.monotonic`."""
        thread = OwnThread(self._start, (worker, at), f"remuda-start-{worker}")
        try:
            thread.start()
        except RuntimeError as error:  # the system allows no more threads
            return self._end(worker, RemudaError(f"worker {worker} could not be started: {error}"))
        self._threads[worker] = thread
        return None

    def outcomes(self) -> Iterator[tuple[int, RemudaError | None]]:
        """Yields (worker, error) for each start that has ended. `error`: why it failed; None if it succeeded."""
        while self._outcomes:
            yield self._outcomes.popleft()

    def stop(self) -> None:
        """Ends all starts, and the successors that have not joined the pool. See `Stoppable`.

        After an interrupt, the backend ends these successors, too.
        """
        self._stopping.set()
        end = time.monotonic() + _END_SECONDS
        have_ended = [thread.join(max(0.0, end - time.monotonic())) for thread in list(self._threads.values())]
        for worker, error in self.outcomes():
            if error is None:
                self._processes.kill(worker)
        if all(have_ended):
            self._stopping.close()

    def _start(self, worker: int, at: float) -> None:
        if self._stopping.wait(max(0.0, at - time.monotonic())):
            return
        outcome: RemudaError | None = None
        try:
            self._processes.start_successor(worker, self.start_timeout, self._stopping)
        except RemudaError as error:
            outcome = error
        except Exception as error:
            outcome = RemudaError(f"worker {worker} could not be started: {error}")
        if outcome is not None:
            outcome.__traceback__ = outcome.__context__ = None  # their frames keep the pool's memory mapped
        self._end(worker, outcome)

    def _end(self, worker: int, outcome: RemudaError | None) -> None:
        self._outcomes.append((worker, outcome))
        self._wake()
