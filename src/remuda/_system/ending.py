"""The end of an object that works in several threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from remuda import _core
from remuda.errors import RemudaError

_Result = TypeVar("_Result")
_Work = TypeVar("_Work")


class Ending(Generic[_Result]):
    """The end of an object that works in several threads: it happens once, after the work that was begun before.

    Only threads that no signal handler interrupts call these methods.
    """

    def __init__(self) -> None:
        self._first: dict[str, object] = {}  # the call of `run` that ends the object. `setdefault` decides atomically
        self._works: set[_core.Event] = set()  # the ends of the works that run
        self._ended = _core.Event()
        self._results: list[_Result] = []

    @property
    def has_begun(self) -> bool:
        return bool(self._first)

    def before(self, work: Callable[[], _Work]) -> _Work:
        """Returns `work()`, for whose end `run` waits. Raises RemudaError if `run` was called."""
        has_ended = _core.Event()
        self._works.add(has_ended)  # before the look at `has_begun`, which `run` sets before it looks at the works
        try:
            if self.has_begun:
                raise RemudaError("the pool was closed")
            return work()
        finally:
            self._works.discard(has_ended)
            has_ended.set()

    def run(self, end: Callable[[], _Result]) -> _Result | None:
        """Returns `end()`, called once all work has ended. Later calls wait for that, and return the same result.

        If `end` raises, its error is raised by the first call only. Later calls return None.
        """
        this_call = object()
        if self._first.setdefault("", this_call) is this_call:
            try:
                for work in list(self._works):
                    work.wait()
                self._results.append(end())
            finally:
                self._ended.set()
        self._ended.wait()
        return next(iter(self._results), None)
