"""Translates the engine's errors into those that users of DI-engine catch."""

from __future__ import annotations

from remuda._faces.translation import caused, own_exception
from remuda.errors import (
    BrokenPoolError,
    EnvError,
    EnvTimeoutError,
    RemudaError,
    RestartLimitError,
    WorkerDiedError,
)


def translate(error: RemudaError, max_retry: int) -> Exception:
    """Returns the exception to raise instead of ``error``, which is its cause.

    A failed reset becomes a ``RuntimeError`` with the number of attempts, and a failed step the env's own exception. A
    dead worker becomes an ``EOFError``, as in the original; if it missed a deadline, a ``TimeoutError``. Mistakes of
    the caller are returned unchanged.
    """
    if isinstance(error, BrokenPoolError) and isinstance(error.__cause__, RestartLimitError):
        error = error.__cause__  # the earlier error that made the pool lose the env
    if isinstance(error, EnvError):
        return _of_env(error, max_retry)
    if isinstance(error, EnvTimeoutError) and error.operation != "reset":
        return error
    if isinstance(error, WorkerDiedError):
        is_reset = error.operation == "reset"
        return caused(_reset_failed(error.env_ids, max_retry, error) if is_reset else EOFError(str(error)), error)
    if isinstance(error, RestartLimitError):
        return caused(RuntimeError(str(error)), error)
    if isinstance(error, BrokenPoolError):
        return caused(EOFError(str(error)), error)
    return error


def _of_env(error: EnvError, max_retry: int) -> Exception:
    failure = error.failures[0]
    if failure.operation == "reset":
        return caused(_reset_failed(error.env_ids, max_retry, failure.exception or failure.message), error)
    return own_exception(error, failure)


def _reset_failed(env_ids: tuple[int, ...], max_retry: int, latest: object) -> RuntimeError:
    who = ", ".join(map(str, env_ids))
    return RuntimeError(f"Env {who} reset has exceeded max retries({max_retry}), and the latest exception is: {latest}")
