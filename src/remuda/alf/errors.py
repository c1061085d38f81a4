"""The engine's errors, to be caught where those of ALF's parallel envs were caught.

What fails in a worker of the original is a ``RuntimeError`` ("ProcessEnvironment is interruptted"), an ``Exception``
that holds a traceback as text, or nothing at all: where the worker was killed, the program waits for ever. The errors
here are the engine's own, and ``RuntimeError`` too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import remuda
from remuda.errors import RemudaError

P = ParamSpec("P")
T = TypeVar("T")
Error = TypeVar("Error", bound=RemudaError)


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


_KINDS: dict[type[RemudaError], type[RemudaError]] = {
    kind.__bases__[0]: kind
    for kind in (
        EnvError,
        WorkerDiedError,
        EnvTimeoutError,
        CorruptReplyError,
        RestartLimitError,
        BrokenPoolError,
        InvalidActionError,
        ClosedError,
    )
}


def translated(function: Callable[P, T]) -> Callable[P, T]:
    """Raises the engine's errors as those of this module, with the same attributes and the same cause."""

    @functools.wraps(function)
    def translating(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RemudaError as error:
            kind = _KINDS.get(type(error))
            if kind is None:
                raise
            raise _as(kind, error) from error.__cause__

    return translating


def _as(kind: type[Error], error: RemudaError) -> Error:
    """Past the constructors, each of which has arguments of its own."""
    told = kind.__new__(kind, *error.args)
    told.args = error.args
    told.__dict__.update(error.__dict__)
    return told
