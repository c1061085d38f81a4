"""A worker's life: the states it goes through, and the table of which may follow which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from remuda.errors import RemudaError


class WorkerState(Enum):
    """What a worker is doing, as far as its pool is concerned. The same table is drawn in docs/architecture.md.

    STARTING and JOINING last for one call: a worker that is found in one of them was interrupted there.
    """

    RUNNING = "serves its envs"
    CLOSING = "closes its env to be replaced; messages wait for its successor"
    KILLED = "was killed by the pool, which has not noted its death yet"
    VACANT = "is dead; its successor is not started yet"
    STARTING = "its successor is being started"
    BUILDING = "its successor builds the envs"
    JOINING = "its successor is being told what it needs"
    GIVEN_UP = "could not be replaced; commands that waited are not dropped yet"
    LOST = "is dead and has no successor"


ABSENT = {WorkerState.VACANT, WorkerState.STARTING, WorkerState.BUILDING, WorkerState.JOINING}
"""A worker is between two processes."""

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
    """A worker's state, with what belongs to it.

    Attributes:
        state: What the worker is doing.
        deadline: CLOSING, BUILDING: when it must be done, in seconds of running time.
        start_at: VACANT: when its successor is to be started, in `time.monotonic()` seconds.
        vacant_by: VACANT: when its successor is started even if its predecessor has not ended yet.
        cause: KILLED: makes the error that tells why, of the arguments of WorkerDiedError.
    """

    state: WorkerState = WorkerState.RUNNING
    deadline: float = inf
    start_at: float = 0.0
    vacant_by: float | None = None
    cause: Callable[..., RemudaError] | None = None

    def then(self, state: WorkerState, **details: Any) -> Life:
        """The next state of its life.

        Raises:
            RuntimeError: The table does not have it. That is a bug of the pool.
        """
        if state not in FOLLOWERS[self.state]:
            raise RuntimeError(f"expected one of {FOLLOWERS[self.state]} after {self.state}, got {state}")
        return Life(state, **details)
