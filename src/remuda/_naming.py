"""Makes inherited methods appear in `help()` and errors as methods of the public class that inherits them."""

from __future__ import annotations

import functools
import inspect
from types import CellType, FunctionType
from typing import TypeVar

T = TypeVar("T")


def owns_methods(cls: type[T]) -> type[T]:
    """A class decorator: `help()` and errors about arguments show remuda's inherited methods as the class's own.

    Python shows the class that defines a function, so the decorated class gets copies of inherited functions.
    """
    for name in dir(cls):
        inherited = inspect.getattr_static(cls, name)
        is_shown = not name.startswith("_") or name == "__reduce__"
        if not is_shown or name in vars(cls):
            continue
        function = inherited.fget if isinstance(inherited, property) else inherited
        if not isinstance(function, FunctionType) or not function.__module__.startswith("remuda."):
            continue
        if isinstance(inherited, FunctionType):
            inherited = _copy(inherited, f"{cls.__qualname__}.{name}")
        setattr(cls, name, inherited)
    return cls


def _copy(function: FunctionType, qualname: str) -> FunctionType:
    """Returns a copy with another qualified name. A decorated function is copied together with the function within."""
    closure, within = function.__closure__ or (), getattr(function, "__wrapped__", None)
    if isinstance(within, FunctionType):
        renamed = _copy(within, qualname)
        closure = tuple(CellType(renamed) if cell.cell_contents is within else cell for cell in closure)
        within = renamed
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(copy, within or function)
    if within is None:
        del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = qualname
    return copy
