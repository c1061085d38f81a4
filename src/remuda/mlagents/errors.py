"""The engine's errors, to be caught where ML-Agents' are, and what an env's failure is raised as."""

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
"""After these a worker is restarted, as far as its quota goes; anything else is a bug that a restart would not mend."""


class WorkerDiedError(remuda.WorkerDiedError, UnityCommunicationException):  # type: ignore[misc]  # it has no types
    """A worker process ended, whoever killed it: `pid`, `exitcode`, `worker`."""


class EnvTimeoutError(remuda.EnvTimeoutError, WorkerDiedError, UnityTimeOutException):  # type: ignore[misc]
    """A worker missed a deadline of `faults`, and was killed."""


class CorruptReplyError(remuda.CorruptReplyError, WorkerDiedError):
    """What a worker wrote made no sense, and it was killed."""


class ClosedError(remuda.ClosedError, UnityCommunicationException):  # type: ignore[misc]
    """The manager was closed."""


translated = by_kind(WorkerDiedError, EnvTimeoutError, CorruptReplyError, ClosedError, name="manager")
"""Decorates what raises the engine's errors."""


def error_of(fault: Fault) -> BaseException:
    """What an env's failure is raised as: its own exception, or that its worker died."""
    error = fault.error
    original = error.failures[0].exception if isinstance(error, remuda.EnvError) else None
    if isinstance(original, Exception):  # not what would end the program, such as an env's sys.exit
        return original
    return translated.of(error)


@contextmanager
def unity_exceptions_that_travel() -> Iterator[None]:
    """In a worker: raises a Unity exception that cannot be pickled as the nearest of ML-Agents' own classes.

    Whether to restart is decided by the class, in the manager's process, which a pickle alone can carry there.
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
    except Exception:  # it holds a lock, its constructor wants other arguments, ...
        return False


def _nearest(error: UnityException) -> UnityException:
    kind = next(each for each in type(error).__mro__ if getattr(unity, each.__name__, None) is each)
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be made"
    return kind.__new__(kind, f"{type(error).__qualname__}: {text}")  # past constructors with arguments of their own
