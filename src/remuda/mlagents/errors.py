"""The engine's errors, to be caught where ML-Agents' are, and what an env's failure is raised as."""

from __future__ import annotations

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)

import remuda
from remuda._faces.translation import Translation
from remuda.errors import Fault

RESTARTABLE = (
    UnityCommunicationException,
    UnityTimeOutException,
    UnityEnvironmentException,
    UnityCommunicatorStoppedException,
)
"""After these a worker is restarted, as far as its quota goes; anything else is a bug that a restart would not mend."""


class WorkerDiedError(remuda.WorkerDiedError, UnityCommunicationException):  # type: ignore[misc]  # it has no types
    """A worker process ended, whoever killed it: `pid`, `exitcode`, `worker`."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError, UnityTimeOutException):  # type: ignore[misc]
    """A worker missed a deadline of `faults`, and was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """What a worker wrote made no sense, and it was killed."""


class ClosedError(remuda.ClosedError, UnityCommunicationException):  # type: ignore[misc]
    """The manager was closed."""


translated = Translation(WorkerDiedError, EnvTimeoutError, CorruptReplyError, ClosedError)
"""Decorates what raises the engine's errors."""


def error_of(fault: Fault) -> BaseException:
    """What an env's failure is raised as: its own exception, or that its worker died."""
    error = fault.error
    original = error.failures[0].exception if isinstance(error, remuda.EnvError) else None
    if isinstance(original, Exception):  # not what would end the program, such as an env's sys.exit
        return original
    told = translated.of(error)
    told.__cause__ = error.__cause__
    return told
