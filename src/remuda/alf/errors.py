"""The engine's errors as RuntimeErrors, so that code for the errors of ALF's parallel envs catches them, too.

A failure in a worker of the original raises a ``RuntimeError`` ("ProcessEnvironment is interruptted") or an
``Exception`` with a traceback as text. If the worker is killed, the program waits forever. The errors here derive from
the engine's errors and from ``RuntimeError``.
"""

from __future__ import annotations

import remuda
from remuda._faces.translation import by_kind


class EnvError(remuda.EnvError, RuntimeError):
    """An env raised an exception, which is this error's cause. The env can be used again after a ``reset()``."""


class WorkerDiedError(remuda.WorkerDiedError, RuntimeError):
    """A worker process ended; see `pid`, `exitcode` and `env_ids`. Later steps and resets raise `BrokenPoolError`."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError):
    """An env missed a deadline of `faults`, and its worker was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """A worker wrote data that are not valid, and was killed."""


class RestartLimitError(remuda.RestartLimitError, RuntimeError):
    """An env failed more often than `faults` allows."""


class BrokenPoolError(remuda.BrokenPoolError, RuntimeError):
    """An env was lost to an earlier fault, which is this error's cause."""


class InvalidActionError(remuda.InvalidActionError, RuntimeError):
    """The number, structure, shape or dtype of the actions is wrong; nothing was sent. Also a ``ValueError``."""


class ClosedError(remuda.ClosedError, RuntimeError):
    """The parallel env was closed."""


translated = by_kind(
    *(EnvError, WorkerDiedError, EnvTimeoutError, CorruptReplyError, RestartLimitError, BrokenPoolError),
    *(InvalidActionError, ClosedError),
    name="environment",
)
"""Decorates functions that raise the engine's errors."""
