"""The states of a pool's workers. Their changes are kept for traces."""

from __future__ import annotations

from typing import Any

from remuda._engine.changes import Changes
from remuda._engine.history.fault_history import FaultHistory
from remuda._engine.history.worker_state import Life, WorkerState


class WorkerStates:
    """The states of a pool's workers, by index."""

    def __init__(self, num_workers: int, history: FaultHistory) -> None:
        self._lives, self._history = [Life()] * num_workers, history

    def __getitem__(self, worker: int) -> Life:
        return self._lives[worker]

    def state(self, worker: int) -> WorkerState:
        """Returns the state of a worker, without the details in its `Life`."""
        return self._lives[worker].state

    def enter(self, worker: int, state: WorkerState, **details: Any) -> None:
        """Changes the state of a worker at once."""
        self._lives[worker] = self._lives[worker].then(state, **details)
        self._history.note_state(worker, state)

    def plan(self, worker: int, state: WorkerState, changes: Changes, **details: Any) -> None:
        """Adds a change of a worker's state to `changes`, which make it later."""
        changes.do(self._lives.__setitem__, worker, self._lives[worker].then(state, **details))
        self._history.plan_state(worker, state, changes)

    def among(self, *states: WorkerState) -> dict[int, Life]:
        """Returns the `Life` of each worker that is in one of these states, by the worker's index."""
        return {worker: life for worker, life in enumerate(self._lives) if life.state in states}
