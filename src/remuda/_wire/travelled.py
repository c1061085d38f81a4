"""Functions and classes of the program's `__main__` that have arrived in this process by value."""

from __future__ import annotations

import itertools
import weakref
from types import FunctionType
from typing import Any


class Travelled:
    """A register of arrived functions and classes, and of the globals that came with the functions.

    It refers to them weakly, so a function that is called once, for example by `pool.call`, is freed afterwards.
    """

    def __init__(self) -> None:
        self._named: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._functions: weakref.WeakValueDictionary[int, FunctionType] = weakref.WeakValueDictionary()
        self._count = itertools.count()

    def add(self, value: Any, name: str | None) -> None:
        """Adds a function or class, which is `__main__.<name>` in the program; None: it has no name there."""
        if name is not None:
            self._named[name] = value
        if isinstance(value, FunctionType):
            self._functions[next(self._count)] = value

    def find(self, name: str) -> Any:
        """Returns the object of a name. Raises KeyError if it has not arrived."""
        if (value := self._named.get(name)) is not None:
            return value
        for _, function in sorted(self._functions.items(), reverse=True):  # the last one to arrive comes first
            if name in function.__globals__:
                return function.__globals__[name]
        raise KeyError(name)


travelled = Travelled()
