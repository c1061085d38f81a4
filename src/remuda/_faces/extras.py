"""The pool's option `extras`, where a face puts something of its own around each env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def functions_of(extras: Any) -> dict[str, Callable[[Any], Any]]:
    """By name. What is no function is left for the pool to refuse."""
    if not isinstance(extras, Mapping):
        return {}
    given = {name: one[0] if _is_declared(one) else one for name, one in extras.items()}
    return {name: one for name, one in given.items() if callable(one)}


def with_functions(extras: Any, functions: Mapping[str, Callable[[Any], Any]]) -> Any:
    """The same option, with these functions in the place of those that it has, by name."""
    if not isinstance(extras, Mapping):
        return extras
    return {
        name: one if name not in functions else (functions[name], one[1]) if _is_declared(one) else functions[name]
        for name, one in extras.items()
    }


def _is_declared(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == 2
