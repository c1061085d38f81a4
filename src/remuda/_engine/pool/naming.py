"""Methods under the name of the class that its users know."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")


def owns_methods(cls: type[T]) -> type[T]:
    """A decorator of classes: errors about the arguments of inherited methods name this class, and not its base.

    Python names the class in which a function was written; so this one gets copies of them.
    """
    for name in dir(cls):
        function = getattr(cls, name)
        if name.startswith("_") or name in vars(cls) or not isinstance(function, FunctionType):
            continue
        copy = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
        functools.update_wrapper(copy, function)
        del copy.__wrapped__  # type: ignore[attr-defined]
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, copy)
    return cls
