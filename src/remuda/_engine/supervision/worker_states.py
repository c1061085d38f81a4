"""The lives of a pool's workers: which state each is in, and the changes as they are made, noted for traces."""

from __future__ import annotations

from typing import Any

from remuda._engine.running.changes import Changes
from remuda._engine.running.fault_history import FaultHistory
from remuda._engine.running.worker_state import Life, WorkerState


class WorkerStates:
    """The lives of a pool's workers, by index."""

    def __init__(self, num_workers: int, history: FaultHistory) -> None:
        self._lives, self._history = [Life()] * num_workers, history

    def __getitem__(self, worker: int) -> Life:
        return self._lives[worker]

    def state(self, worker: int) -> WorkerState:
        return self._lives[worker].state

    def enter(self, worker: int, state: WorkerState, **details: Any) -> None:
        """At once."""
        self._lives[worker] = self._lives[worker].then(state, **details)
        self._history.note_state(worker, state)

    def plan(self, worker: int, state: WorkerState, changes: Changes, **details: Any) -> None:
        """Together with the other changes."""
        changes.do(self._lives.__setitem__, worker, self._lives[worker].then(state, **details))
        self._history.plan_state(worker, state, changes)

    def among(self, *states: WorkerState) -> dict[int, Life]:
        """The workers that are in one of these states."""
        return {worker: life for worker, life in enumerate(self._lives) if life.state in states}
