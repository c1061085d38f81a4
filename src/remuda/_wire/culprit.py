"""Finds the object that prevents a value from being pickled, for error messages."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from remuda._wire import by_value


def culprit(value: Any) -> str:
    """Returns a description such as "a TextIOWrapper, global LOG of make_env".

    Args:
        value: A value that `by_value.dumps` refuses. Its parts are searched along one path.
    """
    path: list[str] = []
    seen = {id(value)}
    while part := next((part for part in _parts(value) if id(part[1]) not in seen and _fails(part[1])), None):
        label, value = part
        seen.add(id(value))
        path.append(label)
    return ", ".join([f"a {type(value).__name__}", *reversed(path)])


def _fails(value: Any) -> bool:
    try:
        by_value.dumps(value)
    except Exception:
        return True
    return False


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields a description and the object of each part that is pickled with a value."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, FunctionType):
        for used in _global_names(value.__code__):
            if used in value.__globals__:
                yield f"global {used} of {name}", value.__globals__[used]
        for used, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"variable {used} of {name}", content_of(cell)
        yield f"the defaults of {name}", [value.__defaults__, value.__kwdefaults__]
    elif isinstance(value, MethodType):
        yield f"the object of {name}", value.__self__
    elif isinstance(value, functools.partial):
        yield "the function of a partial", value.func
        yield "the arguments of a partial", [value.args, value.keywords]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"item {key!r}", item
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, item in enumerate(value):
            yield f"item {i}", item
    elif hasattr(value, "__dict__"):
        for used, attribute in vars(value).items():
            yield f"attribute {used} of {name}", attribute


def _global_names(code: CodeType) -> Iterator[str]:
    """Yields the names of the globals that a function and the functions in it may use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def content_of(cell: Any) -> Any:
    """Returns the value of a closure's variable; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
