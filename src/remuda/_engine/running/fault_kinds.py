"""Names the kind of a fault, the env that was its reason, and what was being done to that."""

from __future__ import annotations

from collections.abc import Sequence

from remuda import _core
from remuda.errors import (
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    RemudaError,
    StartTimeoutError,
    WorkerDiedError,
)

OPERATIONS = {
    _core.Op.RESET: "reset",
    _core.Op.STEP: "step",
    _core.Op.OBSERVE: "observe",
    _core.Op.MESSAGE: "call",
    _core.Op.CLOSE: "close",
    _core.Op.REVIVE: "reset",
    _core.Op.REBUILD: "build",
    _core.Op.PREPARE: "reset",
}
_DEADLINES = {"reset": "reset_timeout", "call": "call_timeout", "close": "call_timeout", "build": "start_timeout"}


def deadline_of(op: _core.Op) -> str:
    """The name of the limit that is missed by what takes too long."""
    return _DEADLINES.get(OPERATIONS[op], "step_timeout")


def forget_frames(error: BaseException) -> None:
    """Whoever keeps a fault must not keep what the frames that raised it know: us, and the memory of the pool."""
    error.__traceback__ = error.__context__ = None


def reason_of(error: RemudaError, envs: Sequence[int]) -> tuple[int, str]:
    """Which env of a worker that is gone, or could not come, was the reason, and what was done to it."""
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
}


def kind_of(error: RemudaError) -> str:
    return _KINDS.get(type(error), "exception")
