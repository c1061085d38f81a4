"""Reports the death of a worker: what it was doing to which env, and why it died."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda import _core
from remuda._backends.base import death_of
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running.fault_kinds import OPERATIONS, deadline_of
from remuda._engine.running.progress import ProgressTracker
from remuda._engine.running.running import Running
from remuda.errors import EnvError, EnvTimeoutError, Failure, RemudaError, WorkerDiedError


class DeathReports:
    """Makes the errors that tell of deaths."""

    def __init__(
        self, policy: FaultPolicy, running: Running, start_timeout: float | None, tracker: ProgressTracker
    ) -> None:
        self._policy, self._start_timeout = policy, start_timeout
        self._running, self._backend, self._tracker = running, running.backend, tracker

    def error(
        self,
        index: int,
        orphaned: Sequence[int],
        make: Callable[..., RemudaError],
        *,
        awaited: bool,
        closing: bool,
    ) -> RemudaError:
        """The error that tells of a worker's death.

        Args:
            index: The worker.
            orphaned: Its slots that wait for a result.
            make: Makes the error, of the arguments of WorkerDiedError.
            awaited: Somebody waits for its answer to a call.
            closing: The pool closes.
        """
        worker = self._backend.workers[index]
        op, env = self._running.workers.doing(index)
        if op is None and orphaned:  # it had work, but did not come to it
            op, env = self._running.slots.last_op(orphaned[0]), self._running.slots.env_of(orphaned[0])
        asked = "close" if closing else "call" if awaited else "nothing"
        operation = asked if op is None else OPERATIONS[op]
        if env is None:
            return death_of(worker, operation, None, make)
        return death_of(worker, *self._tracker.tell(env, operation), make)

    def of_closing(self, index: int) -> WorkerDiedError:
        """The end of a worker that has closed its env to be replaced: an error for what else it was asked."""
        return death_of(self._backend.workers[index], "close", None, WorkerDiedError)

    def missed_deadline(self, op: _core.Op, stack: str) -> Callable[..., EnvTimeoutError]:
        """Makes the error of a worker that was killed because it took too long for this. `stack`: what it was in."""
        name = deadline_of(op)
        limit = self._start_timeout if name == "start_timeout" else getattr(self._policy, name)
        assert limit is not None  # or nobody would have missed it

        def make(**context: Any) -> EnvTimeoutError:
            error = EnvTimeoutError(**context)
            error.deadline, error.limit, error.stack = name, limit, stack
            return error

        return make


@dataclass(frozen=True)
class Raised:
    """Why a worker was killed: its env has raised and cannot be built anew in it, once for each slot of that env."""

    failures: list[Failure]

    def __call__(self, **_: Any) -> EnvError:
        return EnvError(self.failures)
