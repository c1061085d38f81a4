"""The engine's errors, to be caught where those of ALF's parallel envs were caught.

What fails in a worker of the original is a ``RuntimeError`` ("ProcessEnvironment is interruptted"), an ``Exception``
that holds a traceback as text, or nothing at all: where the worker was killed, the program waits for ever. The errors
here are the engine's own, and ``RuntimeError`` too.
"""

from __future__ import annotations

import remuda
from remuda._faces.translation import by_kind


class EnvError(remuda.EnvError, RuntimeError):
    """An env raised. Its cause is the env's exception; the env goes on after a ``reset()``."""


class WorkerDiedError(remuda.WorkerDiedError, RuntimeError):
    """A worker process ended: `pid`, `exitcode`, `env_ids`. The parallel env can only be closed."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError):
    """An env missed a deadline of `faults`, and its worker was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """What a worker wrote made no sense, and it was killed."""


class RestartLimitError(remuda.RestartLimitError, RuntimeError):
    """An env failed more often than `faults` bears."""


class BrokenPoolError(remuda.BrokenPoolError, RuntimeError):
    """An env was lost to an earlier fault; its cause tells how."""


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
