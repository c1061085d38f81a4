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


class Farewell(Exception):
    """An exception that raises SystemExit when it is unpickled."""

    def __reduce__(self) -> Any:
        return _quit, ()


def _quit() -> Any:
    raise SystemExit(9)


def raising(make: Callable[[], BaseException]) -> Hook:
    """Returns a hook that raises the result of `make()`."""

    def hook(*_: Any) -> Any:
        raise make()

    return hook


class TextRaises(Exception):
    def __str__(self) -> str:
        raise SystemExit("its text")

    __repr__ = __str__


class ClassRaises(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit("its class")


class NotesRaise(Exception):
    @property
    def __notes__(self) -> Any:
        raise SystemExit("its notes")


class PicklingRaises(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit("its pickling")


class UnpicklingRaises(Exception):
    def __reduce__(self) -> Any:
        return _end, (SystemExit,)


class OddText(Exception):
    """An exception with a text of a str subclass that raises SystemExit when it is unpickled."""

    def __str__(self) -> str:
        return _Text("odd")


class _Text(str):
    def __reduce__(self) -> Any:
        return _end, (SystemExit,)


EVIL = {
    kind.__name__: kind for kind in (TextRaises, ClassRaises, NotesRaise, PicklingRaises, UnpicklingRaises, OddText)
}


class EndsWhoUnpickles:
    def __init__(self, error: type[BaseException] = SystemExit) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _end, (self.error,)


def _end(error: type[BaseException]) -> None:
    raise error
