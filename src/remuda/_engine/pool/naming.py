"""Makes inherited methods appear in `help()` and errors as methods of the public class that inherits them."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")


def owns_methods(cls: type[T]) -> type[T]:
    """A class decorator: `help()` and errors about arguments show inherited methods and properties as the class's own.

    Python shows the class that defines a function, so the decorated class gets copies of inherited functions.
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
    del copy.__wrapped__  # type: ignore[attr-defined]  # `copy` does not wrap the inherited function
    vars(copy).update(vars(function))  # a decorated function's own `__wrapped__`, from which `help()` reads parameters
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = qualname
    return copy
