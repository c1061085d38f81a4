"""Carries exceptions between processes, and makes `Failure`s from them."""

from __future__ import annotations

import reprlib
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, TypeAlias

from remuda._wire import by_value
from remuda._wire.exceptions import complete, is_check, name_of, text_of, traceback_of
from remuda._wire.pickling import Buffers, dump, load
from remuda.errors import EnvError, Failure, InvalidEnvError, PickledException, RemoteTraceback, RemudaError


def portable(error: BaseException) -> tuple[str, str, str, bytes | None]:
    """Returns (class, text, traceback, pickle) of an exception. The pickle is None unless it can be loaded.

    If Ctrl-C raises KeyboardInterrupt meanwhile, returns its parts instead.
    """
    try:
        complete(error)
        text = text_of(error, otherwise="<its text cannot be made>")
        return name_of(error), text, traceback_of(error), _pickle_exception(error)
    except KeyboardInterrupt as interrupt:
        return portable(interrupt)


def breaks_protocol(failure: Failure) -> bool:
    """Returns whether an env lacks a parameter or has returned an invalid value. A rebuilt env would do the same."""
    return is_check(failure.message) or " got an unexpected keyword argument " in failure.message


def _pickle_exception(error: BaseException) -> bytes | None:
    spec = getattr(sys.modules.get(type(error).__module__), "__spec__", None)
    if getattr(spec, "_initializing", False) and threading.current_thread() is not threading.main_thread():
        return None  # pickling waits for the import of the class's module, which may wait for this thread
    try:
        pickled: bytes = by_value.dumps(error)
        loaded = load([pickled])
    except Exception:  # it cannot be pickled or loaded: only its text is sent
        return None
    return pickled if type(loaded) is type(error) or type(error).__module__ == "__main__" else None


Interrupts: TypeAlias = dict["int | None", BaseException]
"""The exceptions of signal handlers, by the env that the caller's thread was running. They are not pickled."""

INTERRUPT = b""  # in the place of a pickled exception, if that is in `Interrupts`


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception from code in the main thread is Ctrl-C, or comes from one of the present signal handlers."""
    if isinstance(error, KeyboardInterrupt):
        return True
    codes = set(map(_code_of, map(signal.getsignal, signal.valid_signals())))
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> Any:
    """Returns the code of a signal handler; None if it has none, as the default handler of SIGINT."""
    handler = getattr(handler, "func", handler)  # of a `functools.partial`
    method = getattr(handler, "__call__", None)  # noqa: B004 - the code of an object's method is needed
    return getattr(handler, "__code__", None) or getattr(method, "__code__", None)


def load_failure(parts: Buffers, interrupts: Interrupts | None = None) -> Failure:
    """Loads a `Failure` from the message that the worker's `EnvHost.describe` made, except the exception in it."""
    # The message consists of plain data, so only an interrupt can raise here; the caller can call this again.
    slot, worker, operation, name, message, text, pickled = load(parts)
    exception: BaseException | PickledException | None
    exception = (interrupts or {}).get(slot) if pickled == INTERRUPT else pickled and PickledException(pickled, text)
    return Failure(slot, worker, operation, exception, name, message, text)


def pickled_exception(failure: Failure) -> bytes | None:
    """Returns the pickled exception of a failure; None if it has none, or one that cannot be pickled."""
    exception = failure._exception
    if isinstance(exception, PickledException):
        return exception.pickled
    return None if exception is None else portable(exception)[3]


def dump_named(what: str, value: Any, shown: int | None = None) -> Buffers:
    """Pickles `value` like `dump`. Errors name the value `what`, and show its first `shown` elements; None: all."""
    try:
        return dump(value)
    except Exception as error:
        raise not_pickled(what, value if shown is None else value[:shown], error) from error


def not_pickled(what: str, value: Any, error: Exception) -> TypeError:
    """Returns an error that shows the whole value that cannot be pickled. Pickle's error names only a type in it."""
    return TypeError(f"expected {what} that can be pickled, got {text_of(value, reprlib.repr)} ({text_of(error)})")


def not_loaded(env_id: int | None, worker: int, operation: str, what: str, error: Exception) -> Failure:
    """Returns the failure of an env that has sent data that cannot be unpickled here."""
    message = f"expected {what} that can be unpickled in the pool's process, got one that cannot: {text_of(error)}"
    return Failure(env_id, worker, operation, error, name_of(error), message, traceback_of(error))


def build_error(failures: Sequence[Failure]) -> Exception:
    """Returns an InvalidEnvError if a factory did not return an env, otherwise an EnvError with all failures."""
    for failure in failures:
        if failure.type_name == _INVALID_ENV:
            error = InvalidEnvError(failure.message)
            error.__cause__ = RemoteTraceback(failure.traceback)
            return error
    return EnvError(failures)


_INVALID_ENV = f"{InvalidEnvError.__module__}.{InvalidEnvError.__qualname__}"


def raised(error: BaseException) -> BaseException:
    """Returns an error that is about to be raised in the program's thread. Makes its causes, by reading them."""
    one: BaseException | None = error
    while isinstance(one, RemudaError):
        one = one.__cause__
    return error
