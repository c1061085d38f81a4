"""The engine's errors, to be caught where ML-Agents' are, and what an env's failure is raised as."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)

import remuda
from remuda.errors import Fault, RemudaError

P = ParamSpec("P")
T = TypeVar("T")
Error = TypeVar("Error", bound=RemudaError)

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


_KINDS: dict[type[RemudaError], type[RemudaError]] = {
    kind.__bases__[0]: kind for kind in (WorkerDiedError, EnvTimeoutError, CorruptReplyError, ClosedError)
}


def translated(function: Callable[P, T]) -> Callable[P, T]:
    """Raises the engine's errors as those of this module, with the same attributes and the same cause."""

    @functools.wraps(function)
    def translating(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RemudaError as error:
            raise _translate(error) from error.__cause__

    return translating


def error_of(fault: Fault) -> BaseException:
    """What an env's failure is raised as: its own exception, or that its worker died."""
    error = fault.error
    original = error.failures[0].exception if isinstance(error, remuda.EnvError) else None
    if isinstance(original, Exception):  # not what would end the program, such as an env's sys.exit
        return original
    return _translate(error)


def _translate(error: RemudaError) -> RemudaError:
    kind = _KINDS.get(type(error))
    return error if kind is None else _as(kind, error)


def _as(kind: type[Error], error: RemudaError) -> Error:
    """Past the constructors, each of which has arguments of its own."""
    told = kind.__new__(kind, *error.args)
    told.args = error.args
    told.__dict__.update(error.__dict__)
    told.__cause__ = error.__cause__
    return told
