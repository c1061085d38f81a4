"""Keeps the latest faults of a pool, and what its workers went through, for traces."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from remuda._engine.running.changes import Changes
from remuda._engine.running.worker_state import WorkerState

_KEPT = 4096


@dataclass(frozen=True)
class StateChange:
    """A worker has entered a state.

    Attributes:
        at_ns: When, of CLOCK_MONOTONIC.
        worker, state: Which, and what.
    """

    at_ns: int
    worker: int
    state: WorkerState


@dataclass(frozen=True)
class FaultNote:
    """An env or its worker has failed.

    Attributes:
        at_ns: When the pool knew of it, of CLOCK_MONOTONIC.
        began_ns: When the env began with what it failed in; None when that is not known.
        worker, env: Whose; None for an env that is not known.
        kind: "death", "timeout", "exception" or "corrupt".
        operation: What the env was in.
        text: As it is told.
    """

    at_ns: int
    began_ns: int | None
    worker: int
    env: int | None
    kind: str
    operation: str
    text: str


class FaultHistory:
    """What has happened in a pool besides steps, the latest of it.

    Attributes:
        changes, faults: In the order of their times.
    """

    def __init__(self) -> None:
        self.changes: deque[StateChange] = deque(maxlen=_KEPT)
        self.faults: deque[FaultNote] = deque(maxlen=_KEPT)

    def note_state(self, worker: int, state: WorkerState) -> None:
        """At once."""
        self.changes.append(StateChange(time.monotonic_ns(), worker, state))

    def plan_state(self, worker: int, state: WorkerState, changes: Changes) -> None:
        """Together with the other changes."""
        changes.do(self.changes.append, StateChange(time.monotonic_ns(), worker, state))

    def plan_fault(
        self,
        worker: int,
        env: int | None,
        kind: str,
        operation: str,
        text: str,
        changes: Changes,
        *,
        began_ns: int | None = None,
    ) -> None:
        """The same, of a fault; see `FaultNote`."""
        note = FaultNote(time.monotonic_ns(), began_ns, worker, env, kind, operation, text)
        changes.do(self.faults.append, note)
