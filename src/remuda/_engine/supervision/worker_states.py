"""The states of a pool's workers. Their changes are kept for traces."""

from __future__ import annotations

from collections.abc import Callable

from remuda._engine.history.fault_history import FaultHistory
from remuda._engine.history.worker_state import Life, WorkerState
from remuda.errors import RemudaError


class WorkerStates:
    """The states of a pool's workers, by index."""

    def __init__(self, num_workers: int, history: FaultHistory) -> None:
        self._lives, self._history = [Life()] * num_workers, history

    def __getitem__(self, worker: int) -> WorkerState:
        return self._lives[worker].state

    def cause(self, worker: int) -> Callable[..., RemudaError] | None:
        """Returns the cause for which the pool has killed a worker; None if it has not."""
        return self._lives[worker].cause

    def enter(self, worker: int, state: WorkerState, cause: Callable[..., RemudaError] | None = None) -> None:
        """Changes the state of a worker. `cause`: see `Life`."""
        self._lives[worker] = self._lives[worker].then(state, cause)
        self._history.note_state(worker, state)
