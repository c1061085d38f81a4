"""The states of a worker, and the table of the states that may follow each state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from remuda.errors import RemudaError


class WorkerState(Enum):
    """The state of a worker, as supervision sees it. docs/architecture.md shows the same states in a table."""

    RUNNING = "serves its envs"
    CLOSING = "closes its envs to be replaced; messages wait for its successor"
    KILLED = "was killed by the pool, which has not noted its death yet"
    ABSENT = "is dead; its successor is being started"
    LOST = "is dead and has no successor"


FOLLOWERS: Mapping[WorkerState, set[WorkerState]] = {
    WorkerState.RUNNING: {WorkerState.CLOSING, WorkerState.KILLED, WorkerState.ABSENT, WorkerState.LOST},
    WorkerState.CLOSING: {WorkerState.ABSENT, WorkerState.LOST},
    WorkerState.KILLED: {WorkerState.ABSENT, WorkerState.LOST},
    WorkerState.ABSENT: {WorkerState.RUNNING, WorkerState.ABSENT, WorkerState.LOST},
    WorkerState.LOST: set(),
}


@dataclass(frozen=True)
class Life:
    """A worker's state, and the details that belong to it.

    Attributes:
        state: The state.
        cause: KILLED, and CLOSING after a fault: makes the error of its death from the arguments of WorkerDiedError.
    """

    state: WorkerState = WorkerState.RUNNING
    cause: Callable[..., RemudaError] | None = None

    def then(self, state: WorkerState, cause: Callable[..., RemudaError] | None = None) -> Life:
        """Returns the `Life` of the worker in the state `state`, which must be able to follow this one.

        Raises:
            RuntimeError: `FOLLOWERS` does not allow it. That is a bug of the pool.
        """
        if state not in FOLLOWERS[self.state]:
            raise RuntimeError(f"expected one of {FOLLOWERS[self.state]} after {self.state}, got {state}")
        return Life(state, cause)
