"""Gives methods the name of the public class that has them."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")


def owns_methods(cls: type[T]) -> type[T]:
    """A decorator of classes: `help()`, and errors about arguments, show inherited methods and properties as its own.

    Python names the class in which a function was written; so this one gets copies of them.
    """
    for name in dir(cls):
        inherited = getattr(cls, name)
        if name.startswith("_") or name in vars(cls):
            continue
        if isinstance(inherited, property):
            setattr(cls, name, inherited)
        elif isinstance(inherited, FunctionType):
            setattr(cls, name, _copy(inherited, f"{cls.__qualname__}.{name}"))
    return cls


def _copy(function: FunctionType, qualname: str) -> FunctionType:
    name, defaults = function.__name__, function.__defaults__
    copy = FunctionType(function.__code__, function.__globals__, name, defaults, function.__closure__)
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = qualname
    return copy
