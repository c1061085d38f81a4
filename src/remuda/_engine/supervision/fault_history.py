"""Keeps the latest faults of a pool and the latest states of its workers, for traces."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from remuda import _core

_KEPT = 4096


@dataclass(frozen=True)
class StateChange:
    """A note that a worker entered a state.

    Attributes:
        at_ns: The time, of CLOCK_MONOTONIC.
        worker, state: The index of the worker, and its new state.
    """

    at_ns: int
    worker: int
    state: _core.WorkerState


@dataclass(frozen=True)
class FaultNote:
    """A note that an env or its worker failed.

    Attributes:
        at_ns: The time at which the pool received the fault, of CLOCK_MONOTONIC.
        began_ns: The time at which the failed operation began; None if it is unknown.
        worker, env: The index of the worker, and the env; None if the env is unknown.
        kind: "death", "timeout", "exception" or "corrupt".
        operation: The operation of the env that failed.
        text: The message of the error.
    """

    at_ns: int
    began_ns: int | None
    worker: int
    env: int | None
    kind: str
    operation: str
    text: str


class FaultHistory:
    """The latest faults of a pool, and the latest state changes of its workers.

    Attributes:
        changes, faults: The events in the order of their times.
    """

    def __init__(self) -> None:
        self.changes: deque[StateChange] = deque(maxlen=_KEPT)
        self.faults: deque[FaultNote] = deque(maxlen=_KEPT)

    def note_state(self, worker: int, state: _core.WorkerState) -> None:
        """Records a new state of a worker."""
        self.changes.append(StateChange(time.monotonic_ns(), worker, state))

    def note_fault(
        self,
        worker: int,
        env: int | None,
        kind: str,
        operation: str,
        text: str,
        *,
        began_ns: int | None = None,
    ) -> None:
        """Records a fault. The arguments are those of `FaultNote`."""
        self.faults.append(FaultNote(time.monotonic_ns(), began_ns, worker, env, kind, operation, text))
