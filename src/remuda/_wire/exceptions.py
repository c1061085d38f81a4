"""Texts of exceptions: adds what Python leaves out of them, and formats their tracebacks."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from remuda.errors import RemudaError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the folder of this package
_REPEATED = 50  # the number of innermost frames in which a function that calls itself is looked for
_LACKS_PARAMETER = re.compile(r"\breset\(\) got an unexpected keyword argument '(seed|options)'$")


def text_of(value: Any, make: Callable[[Any], str] = str, otherwise: str | None = None) -> str:
    """Returns `make(value)`, the text of a user's object, as a plain `str`.

    If `make` raises an Exception, returns `otherwise`, or by default the name of the object's class.
    """
    try:
        return str.__str__(make(value))
    except Exception:
        return f"<{type(value).__qualname__}>" if otherwise is None else otherwise


def complete(error: BaseException) -> None:
    """Adds to the text of an exception what helps to find its cause, if Python's text lacks it."""
    if isinstance(error, RecursionError):
        text_of(error, _name_culprit)
    elif isinstance(error, TypeError):
        text_of(error, _name_old_reset)
    elif isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and error.name is not None):
        text_of(error, _name_importer)


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


def _name_importer(error: ImportError) -> str:
    """Adds the line that imports what is missing: the innermost in code of the user, or else in a library."""
    if isinstance(error, RemudaError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not frame.filename.startswith((_OURS, "<frozen "))]
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    of_user = [line for line in lines if not line.filename.startswith(libraries)]
    if lines:
        line = (of_user or lines)[-1]
        error.msg = f"{error} (imported at {line.filename}:{line.lineno})"
        error.args = (error.msg, *error.args[1:])
    return ""


def is_check(text: str) -> bool:
    """Returns whether the text of an exception is that of a check of this package."""
    return text.startswith("expected ")


def name_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an exception as text. It begins with the frames of code that is not this package's.

    Frames of this package follow only if that code has called them, and not if one of this package's checks failed.
    """
    otherwise = f"{name_of(error)}: <its traceback cannot be made>"
    return text_of(error, _format_traceback, otherwise)


def _format_traceback(error: BaseException) -> str:
    whole = traceback.TracebackException.from_exception(error, compact=True)
    todo: list[Any] = [whole]
    while todo:
        one = todo.pop()
        todo += filter(None, (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())))
        frames = one.stack
        others = [place for place, frame in enumerate(frames) if not frame.filename.startswith(_OURS)]
        inside = [] if is_check(str(one)) else frames[others[-1] + 1 if others else 0 :]
        one.stack = traceback.StackSummary.from_list([*(frames[place] for place in others), *inside]) or None
    return "".join(whole.format())
