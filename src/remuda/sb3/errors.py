"""The engine's errors, to be caught where those of Stable-Baselines3's pipes were caught.

A worker of the original ends when its env raises, and the caller's use of the pipe to the worker fails: with the end of
the file, a connection reset, or a broken pipe. The errors here are all three, and the engine's own too.
"""

from __future__ import annotations

import remuda
from remuda._faces.translation import by_kind


class LostConnectionError(ConnectionResetError, BrokenPipeError, EOFError):
    """All errors that a program may have caught when the original's pipe to a worker failed."""


class EnvError(remuda.EnvError, LostConnectionError):
    """An env raised. Its cause is the env's exception; the env can be used again after a ``reset()``."""


class WorkerDiedError(remuda.WorkerDiedError, LostConnectionError):
    """A worker process ended: `pid`, `exitcode`, `env_ids`. The vector env can only be closed."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError):
    """An env missed a deadline of `faults`, and its worker was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """A worker wrote data that are not valid, and was killed."""


class RestartLimitError(remuda.RestartLimitError, LostConnectionError):
    """An env failed more often than `faults` allows."""


class BrokenPoolError(remuda.BrokenPoolError, LostConnectionError):
    """An env was lost to an earlier fault, which is the cause."""


class ClosedError(remuda.ClosedError, OSError):
    """The vector env was closed."""


translated = by_kind(
    *(EnvError, WorkerDiedError, EnvTimeoutError, CorruptReplyError, RestartLimitError, BrokenPoolError, ClosedError),
    name="vector env",
)
"""Decorates what raises the engine's errors."""
