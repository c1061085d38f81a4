"""The engine's errors as subclasses of ML-Agents' errors, and the exception for the failure of an env."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import cloudpickle
from mlagents_envs import exception as unity
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)

import remuda
from remuda._faces.translation import by_kind
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


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """A worker was killed because its reply was invalid."""


class ClosedError(remuda.ClosedError, UnityCommunicationException):  # type: ignore[misc]
    """The manager was closed."""


translated = by_kind(WorkerDiedError, EnvTimeoutError, CorruptReplyError, ClosedError, name="manager")
"""Decorates functions that raise the engine's errors."""


def error_of(fault: Fault) -> BaseException:
    """Returns the exception to raise for a fault: the env's own exception, or the error about its worker."""
    error = fault.error
    original = error.failures[0].exception if isinstance(error, remuda.EnvError) else None
    if isinstance(original, Exception):  # not a SystemExit, which would end the program
        return original
    return translated.of(error)


@contextmanager
def unity_exceptions_that_travel() -> Iterator[None]:
    """Replaces a Unity exception that cannot be pickled by an exception of its nearest base class in ML-Agents.

    The manager decides by the exception's class whether it restarts the worker.
    """
    try:
        yield
    except UnityException as error:
        if _can_travel(error):
            raise
        raise _nearest(error) from error


def _can_travel(error: UnityException) -> bool:
    try:
        return type(pickle.loads(cloudpickle.dumps(error))) is type(error)
    except Exception:  # raised for example if the error refers to a lock, which cannot be pickled
        return False


def _nearest(error: UnityException) -> UnityException:
    kind = next(each for each in type(error).__mro__ if getattr(unity, each.__name__, None) is each)
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be made"
    return kind.__new__(kind, f"{type(error).__qualname__}: {text}")  # constructors may have other arguments
