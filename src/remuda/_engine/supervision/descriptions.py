"""Describes faults: makes the errors for dead workers, and a `Fault` for each env. All else reads these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remuda import _core
from remuda._backends.base import death_of, worker_of
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda.errors import (
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    Fault,
    RemudaError,
    ShardDiedError,
    StartTimeoutError,
    WorkerDiedError,
)

OPERATIONS = {
    _core.Op.RESET: "reset",
    _core.Op.STEP: "step",
    _core.Op.OBSERVE: "observe",
    _core.Op.MESSAGE: "call",
    _core.Op.CLOSE: "close",
    _core.Op.RESET_INTO_ROW: "reset",
    _core.Op.REBUILD: "build",
    _core.Op.PREPARE: "reset",
    _core.Op.RESUME: "build",
}
_DEADLINES = {"reset": "reset_timeout", "call": "call_timeout", "close": "call_timeout", "build": "start_timeout"}


def deadline_of(op: _core.Op) -> str:
    """Returns the name of the option that limits the time of an operation."""
    return _DEADLINES.get(OPERATIONS[op], "step_timeout")


_KINDS: dict[type[RemudaError], Any] = {
    WorkerDiedError: "death",
    EnvTimeoutError: "timeout",
    StartTimeoutError: "timeout",
    CorruptReplyError: "corrupt",
    ShardDiedError: "death",
}


def operation_of(error: RemudaError) -> str:
    """Returns the operation in which an env raised or ended its worker; "build" if the start of a worker failed."""
    if isinstance(error, EnvError):
        return error.failures[0].operation
    return error.operation if isinstance(error, WorkerDiedError) else "build"


class Descriptions:
    """Makes the errors that report the deaths of workers, and the `Fault` of each env that has failed.

    Attributes:
        tracker: The progress of each env.
    """

    def __init__(
        self, policy: FaultPolicy, running: Running, start_timeout: float | None, tracker: ProgressTracker
    ) -> None:
        self._policy, self._start_timeout, self.tracker = policy, start_timeout, tracker
        self._running, self._backend = running, running.backend

    # -- faults --------------------------------------------------------------------------------------------

    def fault(self, env: int, error: RemudaError, operation: str, *, shared: bool = False) -> Fault:
        """Returns the `Fault` of an env. `shared`: whether another env of its worker has caused it."""
        worker = worker_of(self._backend.workers, env)
        kind = _KINDS.get(type(error), "exception")
        shard, node = getattr(error, "shard", None), getattr(error, "node", None)  # of a ShardDiedError
        return Fault(env, worker.index, kind, operation, self.tracker.where(env), error, shared, shard, node)

    def faults(self, error: RemudaError, envs: Sequence[int]) -> list[Fault]:
        """Returns the faults of all envs of a worker that has failed. One of them, its cause, is not shared.

        `envs`: those that are not lost. If the cause is unknown, or was lost before, it is the first one.
        """
        named = error.env_ids if isinstance(error, EnvError) else ()
        if isinstance(error, WorkerDiedError) and error.where is not None:
            named = (error.where.env_id,)
        cause = named[0] if named and named[0] in envs else envs[0]
        return [self.fault(env, error, operation_of(error), shared=env != cause) for env in envs]

    # -- errors --------------------------------------------------------------------------------------------

    def death(self, index: int, make: Callable[..., RemudaError], *, closing: bool) -> RemudaError:
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
        return death_of(worker, *self.tracker.describe(env, operation), make)

    def of_closing(self, index: int) -> WorkerDiedError:
        """Returns the error for calls that a worker left unanswered because it closed its env and is to be replaced."""
        return death_of(self._backend.workers[index], "close", None, WorkerDiedError)

    def hang(self, index: int, env: int, op: _core.Op, stack: str) -> EnvTimeoutError:
        """Returns the error for an env that hangs in a thread. `stack`: the Python stack of the thread."""
        operation, where = self.tracker.describe(env, OPERATIONS[op])
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
