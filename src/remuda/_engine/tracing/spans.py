"""`remuda.span`: names parts of the program, for traces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class TracedSpan:
    """A part of the program that `remuda.span` has named. Times are those of CLOCK_MONOTONIC."""

    name: str
    thread: int  # the system's id of the thread
    begin_ns: int
    end_ns: int
    raised: str = ""  # the class of the exception that ended the span


LISTENERS: list[Callable[[TracedSpan], None]] = []
"""The functions of traces that are called with each span."""


class Span(ContextDecorator):
    """A named part of the program: the context manager that `span` returns."""

    __slots__ = ("_begin_ns", "_name")

    def __init__(self, name: str) -> None:
        self._name, self._begin_ns = name, 0

    def _recreate_cm(self) -> Span:
        """Returns a new span for each call of a decorated function."""
        return Span(self._name)

    def __enter__(self) -> Span:
        self._begin_ns = time.monotonic_ns() if LISTENERS else 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begin_ns and LISTENERS:
            raised = "" if kind is None else kind.__name__
            span = TracedSpan(self._name, threading.get_native_id(), self._begin_ns, time.monotonic_ns(), raised)
            for listener in LISTENERS:
                listener(span)


def span(name: str) -> Span:
    """Names a block of the program, or a function: traces show it beside the pool's steps and waits.

        >>> import remuda
        >>> with remuda.span("update"):
        ...     pass
        >>> @remuda.span("collect")
        ... def collect(): ...

    Spans may be nested, and each thread has a line of its own. While nothing is traced a span costs less than a
    microsecond.

    Args:
        name: Its name in traces.

    Returns:
        A context manager, which may decorate functions too.

    Raises:
        TypeError: `name` is not a str.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a span to be a str, got {name!r}")
    return Span(name)
