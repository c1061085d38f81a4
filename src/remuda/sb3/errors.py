"""The engine's errors as errors of pipes, so that code for Stable-Baselines3's pipes catches them, too.

A worker of the original ends when its env raises, and then the pipe to the worker fails with `EOFError`,
`ConnectionResetError` or `BrokenPipeError`. The errors here derive from all three, and from the engine's errors.
"""

from __future__ import annotations

import remuda
from remuda._faces.translation import by_kind


class LostConnectionError(ConnectionResetError, BrokenPipeError, EOFError):
    """The base of this module's errors: a subclass of every error that a failing pipe to a worker can raise."""


class EnvError(remuda.EnvError, LostConnectionError):
    """An env raised an exception, which is this error's cause. The env can be used again after a ``reset()``."""


class WorkerDiedError(remuda.WorkerDiedError, LostConnectionError):
    """A worker process ended; see `pid`, `exitcode` and `env_ids`. Later steps and resets raise `BrokenPoolError`."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError):
    """An env missed a deadline of `faults`, and its worker was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """A worker wrote data that are not valid, and was killed."""


class RestartLimitError(remuda.RestartLimitError, LostConnectionError):
    """An env failed more often than `faults` allows."""


class BrokenPoolError(remuda.BrokenPoolError, LostConnectionError):
    """An env was lost to an earlier fault, which is this error's cause."""


class ClosedError(remuda.ClosedError, OSError):
    """The vector env was closed."""


translated = by_kind(
    *(EnvError, WorkerDiedError, EnvTimeoutError, CorruptReplyError, RestartLimitError, BrokenPoolError, ClosedError),
    name="vector env",
)
"""Decorates functions that raise the engine's errors."""
