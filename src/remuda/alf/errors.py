"""The engine's errors, to be caught where those of ALF's parallel envs were caught.

A failure in a worker of the original is a ``RuntimeError`` ("ProcessEnvironment is interruptted"), an ``Exception``
that holds a traceback as text, or no error at all: after the worker was killed, the program waits for ever. The errors
here are the engine's own, and ``RuntimeError`` too.
"""

from __future__ import annotations

import remuda
from remuda._faces.translation import by_kind


class EnvError(remuda.EnvError, RuntimeError):
    """An env raised. Its cause is the env's exception; the env can be used again after a ``reset()``."""


class WorkerDiedError(remuda.WorkerDiedError, RuntimeError):
    """A worker process ended: `pid`, `exitcode`, `env_ids`. The parallel env can only be closed."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError):
    """An env missed a deadline of `faults`, and its worker was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """A worker wrote data that are not valid, and was killed."""


class RestartLimitError(remuda.RestartLimitError, RuntimeError):
    """An env failed more often than `faults` allows."""


class BrokenPoolError(remuda.BrokenPoolError, RuntimeError):
    """An env was lost to an earlier fault, which is the cause."""


class InvalidActionError(remuda.InvalidActionError, RuntimeError):
    """Actions of another number, structure, shape or dtype; nothing was sent. A ``ValueError``, too."""


class ClosedError(remuda.ClosedError, RuntimeError):
    """The parallel env was closed."""


translated = by_kind(
    *(EnvError, WorkerDiedError, EnvTimeoutError, CorruptReplyError, RestartLimitError, BrokenPoolError),
    *(InvalidActionError, ClosedError),
    name="environment",
)
"""Decorates what raises the engine's errors."""
