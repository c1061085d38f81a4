"""Pickles functions and classes by value, as cloudpickle does, but keeps the file name of their code.

It also pickles what scripts often have and cloudpickle refuses: cached functions and properties, and functions of
`functools.singledispatch`. Locks and ctypes structures of a script are pickled by name: each worker has a lock of its
own, and runs the definition of a structure.
"""

from __future__ import annotations

import functools
import io
import itertools
import sys
import threading
import weakref
from collections import ChainMap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, ClassVar

import cloudpickle

from remuda._system.interpreter import globals_of_main


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


def dumps(value: Any) -> bytes:
    """Pickles like `cloudpickle.dumps`."""
    file = io.BytesIO()
    Pickler(file, 5).dump(value)
    return file.getvalue()


def _is_importable(value: Any) -> bool:
    """Whether another process can find a function or class by its module and name."""
    found: Any = sys.modules.get(getattr(value, "__module__", ""))
    for name in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is value and value.__module__ != "__main__"


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles like cloudpickle, with the differences that the module's docstring names."""

    dispatch_table: ClassVar[Any]

    def reducer_override(self, value: Any) -> Any:
        reduced = super().reducer_override(value)
        if reduced is NotImplemented or not isinstance(value, (type, FunctionType)):
            return reduced
        if isinstance(value, FunctionType) and hasattr(value, "_clear_cache") and hasattr(value, "registry"):
            registry = dict(value.registry)
            return functools.singledispatch, (registry[object],), registry, None, None, _register_all
        if value.__module__ != "__main__":
            return reduced
        own: str = value.__qualname__
        name = own if globals_of_main().get(own) is value else None
        if name is not None and type(value).__module__ == "_ctypes":
            return _of_main, (name,)  # cloudpickle cannot copy a structure
        make, arguments, *rest = reduced
        return (_arrive, (make, arguments, name), *rest)


def _arrive(make: Callable[..., Any], arguments: tuple[Any, ...], name: str | None) -> Any:
    """Makes a function or class of the program's `__main__`."""
    value = make(*arguments)
    travelled.add(value, name)
    return value


def _reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    """Keeps the file name of code, which cloudpickle drops since 3.1.3, so that tracebacks show source lines."""
    _, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_of_file, (code.co_filename, *arguments)


def _code_of_file(filename: str, *arguments: Any) -> CodeType:
    return CodeType(*arguments).replace(co_filename=filename)


def _reduce_cached(cached: Any) -> Any:
    if _is_importable(cached):
        return cached.__reduce__()
    return _cached, (cached.__wrapped__, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_cached_property(cached: functools.cached_property[Any]) -> Any:
    return functools.cached_property, (cached.func,), {"attrname": cached.attrname}


def _register_all(function: Any, registry: dict[type, Callable[..., Any]]) -> None:
    for kind, version in registry.items():
        function.register(kind, version)


def _reduce_lock(lock: Any) -> tuple[Callable[..., Any], tuple[str, Callable[[], Any]]]:
    """Pickles a lock of the script by name. Refuses any other lock, because a copy would not lock the original."""
    for name, value in list(globals_of_main().items()):
        if value is lock:
            return _lock_of_main, (name, threading.Lock if type(lock) is type(threading.Lock()) else threading.RLock)
    raise TypeError(f"cannot pickle {type(lock).__qualname__!r} object")


def _lock_of_main(name: str, make: Callable[[], Any]) -> Any:
    return vars(sys.modules["__main__"]).setdefault(name, make())


def _of_main(name: str) -> Any:
    return getattr(sys.modules["__main__"], name)


Pickler.dispatch_table = ChainMap(
    {
        CodeType: _reduce_code,
        functools.cached_property: _reduce_cached_property,
        type(functools.lru_cache(int)): _reduce_cached,
        type(threading.Lock()): _reduce_lock,
        type(threading.RLock()): _reduce_lock,
    },
    cloudpickle.Pickler.dispatch_table,
)
