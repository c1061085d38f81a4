"""Makes the errors for dead workers. An error names the operation, its env, and the cause of death."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda import _core
from remuda._backends.base import death_of
from remuda._engine.history.fault_kinds import OPERATIONS, deadline_of
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda.errors import EnvTimeoutError, RemudaError, WorkerDiedError


class DeathReports:
    """Makes the errors that report the deaths of workers."""

    def __init__(
        self, policy: FaultPolicy, running: Running, start_timeout: float | None, tracker: ProgressTracker
    ) -> None:
        self._policy, self._start_timeout = policy, start_timeout
        self._running, self._backend, self._tracker = running, running.backend, tracker

    def error(self, index: int, make: Callable[..., RemudaError], *, closing: bool) -> RemudaError:
        """Returns the error for the death of a worker. It names a command only if the worker had begun it.

        Args:
            index: The worker.
            make: Makes the error from the arguments of WorkerDiedError.
            closing: The pool is closing.
        """
        worker = self._backend.workers[index]
        op, env = self._running.workers.doing(index)
        operation = OPERATIONS[op] if op is not None else "close" if closing else "nothing"
        if env is None:
            return death_of(worker, operation, None, make)
        return death_of(worker, *self._tracker.describe(env, operation), make)

    def of_closing(self, index: int) -> WorkerDiedError:
        """Returns the error for calls that a worker left unanswered because it closed its env and is to be replaced."""
        return death_of(self._backend.workers[index], "close", None, WorkerDiedError)

    def hang(self, index: int, env: int, op: _core.Op, stack: str) -> EnvTimeoutError:
        """Returns the error for an env that hangs in a thread. `stack`: the Python stack of the thread."""
        operation, where = self._tracker.describe(env, OPERATIONS[op])
        make = self.missed_deadline(op, stack)
        return make(worker=index, pid=None, exitcode=None, env_ids=(env,), operation=operation, where=where)

    def missed_deadline(self, op: _core.Op, stack: str) -> Callable[..., EnvTimeoutError]:
        """Returns a function that makes the error for a worker late for a deadline. `stack`: its Python stack."""
        name = deadline_of(op)
        limit, name = (self._start_timeout, name) if name == "start_timeout" else self._policy._reported(name)
        assert limit is not None  # without a limit there is no deadline

        def make(**context: Any) -> EnvTimeoutError:
            error = EnvTimeoutError(**context)
            error.deadline, error.limit, error.stack = name, limit, stack
            return error

        return make
