"""The engine's errors as subclasses of ML-Agents' errors, and the exception for the failure of an env."""

from __future__ import annotations

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)

import remuda
from remuda._faces.translation import by_kind, original_of
from remuda.errors import Fault

RESTARTABLE = (
    UnityCommunicationException,
    UnityTimeOutException,
    UnityEnvironmentException,
    UnityCommunicatorStoppedException,
)
"""A worker is restarted after these errors, within its quota. Others are bugs, which a restart does not fix."""


class WorkerDiedError(remuda.WorkerDiedError, UnityCommunicationException):  # type: ignore[misc]  # it has no types
    """A worker process ended or was killed; see `pid`, `exitcode` and `worker`."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError, UnityTimeOutException):  # type: ignore[misc]
    """A worker missed a deadline of `faults`, and was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError, UnityCommunicationException):  # type: ignore[misc]
    """A worker was killed because its reply was invalid."""


class ClosedError(remuda.ClosedError, UnityCommunicationException):  # type: ignore[misc]
    """The manager was closed."""


translated = by_kind(WorkerDiedError, EnvTimeoutError, CorruptReplyError, ClosedError, name="manager")
"""Decorates functions that raise the engine's errors."""


def error_of(fault: Fault) -> BaseException:
    """Returns the exception to raise for a fault: the env's own exception, or the error about its worker."""
    error = fault.error
    original = original_of(error.failures[0]) if isinstance(error, remuda.EnvError) else None
    return translated.of(error) if original is None else original
