"""The states of a worker, and the table of the states that may follow each state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from remuda.errors import RemudaError


class WorkerState(Enum):
    """The state of a worker, as supervision sees it. docs/architecture.md shows the same states in a table.

    STARTING and JOINING last for one call. A worker that is found in one of them was interrupted there.
    """

    RUNNING = "serves its envs"
    CLOSING = "closes its env to be replaced; messages wait for its successor"
    KILLED = "was killed by the pool, which has not noted its death yet"
    VACANT = "is dead; its successor is not started yet"
    STARTING = "its successor is being started"
    BUILDING = "its successor builds the envs"
    JOINING = "its successor receives the state of the pool"
    GIVEN_UP = "could not be replaced; commands that waited are not dropped yet"
    LOST = "is dead and has no successor"


ABSENT = {WorkerState.VACANT, WorkerState.STARTING, WorkerState.BUILDING, WorkerState.JOINING}
"""The states of a worker that is between two processes."""

_DIED = {WorkerState.VACANT, WorkerState.LOST}
_NOT_REPLACED = {WorkerState.VACANT, WorkerState.GIVEN_UP}

FOLLOWERS: Mapping[WorkerState, set[WorkerState]] = {
    WorkerState.RUNNING: {WorkerState.CLOSING, WorkerState.KILLED, *_DIED},
    WorkerState.CLOSING: _DIED,
    WorkerState.KILLED: _DIED,
    WorkerState.VACANT: {WorkerState.STARTING, *_NOT_REPLACED},
    WorkerState.STARTING: {WorkerState.BUILDING, *_NOT_REPLACED},
    WorkerState.BUILDING: {WorkerState.JOINING, *_NOT_REPLACED},
    WorkerState.JOINING: {WorkerState.BUILDING, WorkerState.RUNNING, *_NOT_REPLACED},
    WorkerState.GIVEN_UP: {WorkerState.LOST},
    WorkerState.LOST: set(),
}


@dataclass(frozen=True)
class Life:
    """A worker's state, and the details that belong to it.

    Attributes:
        state: The state.
        deadline: CLOSING, BUILDING: the time at which it must be done, in seconds of running time.
        start_at: VACANT: the time at which its successor is started, in `time.monotonic()` seconds.
        vacant_by: VACANT: the time at which its successor is started even if its predecessor has not ended.
        cause: KILLED: makes the error of its death from the arguments of WorkerDiedError.
    """

    state: WorkerState = WorkerState.RUNNING
    deadline: float = inf
    start_at: float = 0.0
    vacant_by: float | None = None
    cause: Callable[..., RemudaError] | None = None

    def then(self, state: WorkerState, **details: Any) -> Life:
        """Returns the `Life` of the worker in the state `state`, which must be able to follow this one.

        Raises:
            RuntimeError: `FOLLOWERS` does not allow it. That is a bug of the pool.
        """
        if state not in FOLLOWERS[self.state]:
            raise RuntimeError(f"expected one of {FOLLOWERS[self.state]} after {self.state}, got {state}")
        return Life(state, **details)
