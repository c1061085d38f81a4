"""Carries exceptions between processes, and makes `Failure`s from them."""

from __future__ import annotations

import os
import re
import reprlib
import signal
import sys
import sysconfig
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from remuda._wire import by_value
from remuda._wire.pickling import Buffers, dump, load
from remuda.errors import EnvError, Failure, InvalidEnvError, PickledException, RemoteTraceback, RemudaError


def text_of(value: Any, make: Callable[[Any], str] = str, otherwise: str | None = None) -> str:
    """Returns `make(value)`, the text of a user's object, as a plain `str`.

    If `make` raises an Exception, returns `otherwise`, or by default the name of the object's class.
    """
    try:
        return str.__str__(make(value))
    except Exception:
        return f"<{type(value).__qualname__}>" if otherwise is None else otherwise


def portable(error: BaseException) -> tuple[str, str, str, bytes | None]:
    """Returns (class, text, traceback, pickle) of an exception. The pickle is None unless it can be loaded.

    If Ctrl-C raises KeyboardInterrupt meanwhile, returns its parts instead.
    """
    try:
        if isinstance(error, RecursionError):
            text_of(error, _name_culprit)
        elif isinstance(error, TypeError):
            text_of(error, _name_old_reset)
        elif isinstance(error, ImportError) and not isinstance(error, RemudaError):
            text_of(error, _name_importer)
        return name_of(error), text_of(error, otherwise=_NO_TEXT), traceback_of(error), _pickle_exception(error)
    except KeyboardInterrupt as interrupt:
        return portable(interrupt)


def _name_culprit(error: RecursionError) -> str:
    """Adds the function that called itself without end to an error, whose text otherwise names none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-_REPEATED:]
    code, times = Counter(frame.f_code for frame in frames).most_common(1)[0]
    if times > 1:
        name = getattr(code, "co_qualname", code.co_name)  # new in Python 3.11
        missing = ", because it reads an attribute that the object does not have" * (code.co_name == "__getattr__")
        error.args = (f"{error}: {name} ({code.co_filename}:{code.co_firstlineno}) called itself without end{missing}",)
    return ""


def _name_old_reset(error: TypeError) -> str:
    """Adds the remedy to the error of an env whose `reset` lacks a parameter of Gymnasium's."""
    if lacking := _LACKS_PARAMETER.search(str(error)):
        old = ", and give step() five results: gym before 0.26 had no seed= and four results" * (lacking[1] == "seed")
        error.args = (f"{error}; write `def reset(self, *, seed=None, options=None)`{old}",)
    return ""


_LACKS_PARAMETER = re.compile(r"\breset\(\) got an unexpected keyword argument '(seed|options)'$")


def _name_importer(error: ImportError) -> str:
    """Adds the line that imports what is missing: the innermost in code of the user, or else in a library."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not frame.filename.startswith((_OURS, "<frozen "))]
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    of_user = [line for line in lines if not line.filename.startswith(libraries)]
    if lines:
        line = (of_user or lines)[-1]
        error.msg = f"{error} (imported at {line.filename}:{line.lineno})"
        error.args = (error.msg, *error.args[1:])
    return ""


_OURS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""
)  # the folder of this package's files


def _is_check(text: str) -> bool:
    """Returns whether the text of an exception is that of a check of this package."""
    return text.startswith("expected ")


def breaks_protocol(failure: Failure) -> bool:
    """Returns whether an env lacks a parameter or has returned an invalid value. A rebuilt env would do the same."""
    return _is_check(failure.message) or " got an unexpected keyword argument " in failure.message


_REPEATED = 50  # the number of innermost frames in which the function is looked for
_NO_TEXT = "<its text cannot be made>"


def name_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an exception as text, without the frames of this package that lead to the env's code.

    Those inside the env's code stay, unless they lead to one of this package's checks, whose text says everything.
    """
    otherwise = f"{name_of(error)}: <its traceback cannot be made>"
    return text_of(error, _format_traceback, otherwise)


def _format_traceback(error: BaseException) -> str:
    whole = traceback.TracebackException.from_exception(error, compact=True)
    todo: list[Any] = [whole]
    while todo:
        one = todo.pop()
        todo += [
            other for other in (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())) if other
        ]
        frames = one.stack
        others = [place for place, frame in enumerate(frames) if not frame.filename.startswith(_OURS)]
        inside = [] if _is_check(str(one)) else frames[others[-1] + 1 if others else 0 :]
        one.stack = traceback.StackSummary.from_list([*(frames[place] for place in others), *inside]) or None
    return "".join(whole.format())


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
