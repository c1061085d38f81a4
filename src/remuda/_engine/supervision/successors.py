"""Starts the successors of dead workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from remuda._backends.base import Processes
from remuda._backends.flag import Flag
from remuda._engine.history.fault_kinds import forget_frames
from remuda._system.own_thread import OwnThread
from remuda._worker.env_report import Reports
from remuda.errors import RemudaError


class Successors:
    """Starts each successor in a thread of its own, which waits until the successor has built its envs.

    Attributes:
        start_timeout: The seconds for building the envs; None: no limit.
    """

    def __init__(self, processes: Processes, start_timeout: float | None, wake: Callable[[], None]) -> None:
        """`wake`: called with each new outcome."""
        self._processes, self.start_timeout, self._wake = processes, start_timeout, wake
        self._outcomes: deque[tuple[int, Reports | RemudaError]] = deque()
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

    def outcomes(self) -> Iterator[tuple[int, Reports | RemudaError]]:
        """Yields (worker, outcome) for each start that has ended: the reports of the envs, or why there is none."""
        while self._outcomes:
            yield self._outcomes.popleft()

    def stop(self) -> None:
        """Ends all starts, and the successors that have not joined the pool."""
        self._stopping.set()
        for thread in self._threads.values():
            thread.join()
        for worker, outcome in self.outcomes():
            if not isinstance(outcome, RemudaError):
                self._processes.kill(worker)
        self._stopping.close()

    def _start(self, worker: int, at: float) -> None:
        if self._stopping.wait(max(0.0, at - time.monotonic())):
            return
        outcome: Reports | RemudaError
        try:
            outcome = self._processes.start_successor(worker, self.start_timeout, self._stopping)
        except RemudaError as error:
            outcome = error
        except Exception as error:
            outcome = RemudaError(f"worker {worker} could not be started: {error}")
        if isinstance(outcome, RemudaError):
            forget_frames(outcome)
        self._end(worker, outcome)

    def _end(self, worker: int, outcome: Reports | RemudaError) -> None:
        self._outcomes.append((worker, outcome))
        self._wake()
