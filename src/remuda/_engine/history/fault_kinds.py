"""Finds the kind of a fault, the env that caused it, and the operation in which that env failed."""

from __future__ import annotations

from collections.abc import Sequence

from remuda import _core
from remuda.errors import (
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
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
}
_DEADLINES = {"reset": "reset_timeout", "call": "call_timeout", "close": "call_timeout", "build": "start_timeout"}


def deadline_of(op: _core.Op) -> str:
    """Returns the name of the option that limits the time of an operation."""
    return _DEADLINES.get(OPERATIONS[op], "step_timeout")


def forget_frames(error: BaseException) -> None:
    """Drops the traceback of an error that is kept, because its frames refer to the pool and keep its memory mapped."""
    error.__traceback__ = error.__context__ = None


def reason_of(error: RemudaError, envs: Sequence[int]) -> tuple[int, str]:
    """Returns (env, operation): the env that ended a worker or made its start fail, and what the env was doing."""
    if isinstance(error, WorkerDiedError):
        return envs[0] if error.where is None else error.where.env_id, error.operation
    if not isinstance(error, EnvError):
        return envs[0], "build"
    return (error.env_ids or envs)[0], error.failures[0].operation


_KINDS = {
    WorkerDiedError: "death",
    EnvTimeoutError: "timeout",
    StartTimeoutError: "timeout",
    CorruptReplyError: "corrupt",
    ShardDiedError: "death",
}


def kind_of(error: RemudaError) -> str:
    """Returns the kind of a fault: "death", "timeout", "corrupt" or "exception"."""
    return _KINDS.get(type(error), "exception")
