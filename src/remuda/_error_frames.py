"""Clears the variables of an error's frames, because an error that a program keeps would keep shared memory alive."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def holds_nothing(method: Callable[P, T]) -> Callable[P, T]:
    """A decorator of methods: if a method raises an error, the error does not keep the method's variables alive.

    Tracebacks keep their lines. Only frames of this package lose their variables; frames of the caller's code keep them
    for a debugger.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _clear_frames(error)
            raise

    return call


def _clear_frames(error: BaseException) -> None:
    for frame in _frames(error):
        with suppress(RuntimeError):  # `clear` raises RuntimeError if the frame is still executing
            frame.clear()


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yields the frames of this package in the tracebacks of an error, its causes and its contexts."""
    package, todo, seen = __name__.partition(".")[0], [error], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        todo += [other for other in (one.__cause__, one.__context__) if other is not None]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                yield frame
