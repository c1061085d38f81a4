"""Exceptions that cannot be pickled, unpickled or printed. Workers import this module by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool_envs import Hook


class TwoArguments(Exception):
    """An exception that cannot be built from its own message."""

    def __init__(self, code: int = 7, *, reason: str = "seven") -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


class NeedsArguments(Exception):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a generator")
        self.secret = (i for i in range(3))


class Unprintable(Exception):
    """An exception that raises in `str`."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Falsy(Exception):
    def __bool__(self) -> bool:
        return False


def raising(make: Callable[[], BaseException]) -> Hook:
    """Returns a hook that raises the result of `make()`."""

    def hook(*_: Any) -> Any:
        raise make()

    return hook
