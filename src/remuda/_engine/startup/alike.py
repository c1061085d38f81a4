"""Finds whether env factories build envs of one kind, so that the cost measured for one env holds for all."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from remuda._wire.culprit import content_of

_DEPTH = 10  # objects of one class count as equal if they are nested deeper than this.
_MOST_VALUES = 1000  # the largest number of values that are compared in a factory
_NUMBERS = (type(None), bool, int, float, np.number)
_ATOMS = (bytes, type, BuiltinFunctionType, ModuleType)


def are_alike(env_fns: Sequence[Callable[[], Any]]) -> bool:
    """Whether factories are one function, or share their code and differ only in numbers (a seed, port or path).

    This is a guess; only speed depends on it.
    """
    first, *others = env_fns
    return all(one is first or _are_of_one_kind(one, first, count()) for one in others)


def _are_of_one_kind(one: Any, other: Any, seen: Iterator[int], depth: int = _DEPTH) -> bool:
    """Whether two values differ only in numbers. `seen` counts the values that were compared."""
    is_too_much = next(seen) >= _MOST_VALUES
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _ATOMS):
        return bool(one == other)
    if isinstance(one, str):
        return re.sub(r"\d+", "0", one) == re.sub(r"\d+", "0", other)
    if depth == 0 or is_too_much:
        return True
    parts, others = _insides(one), _insides(other)
    pairs = zip(parts, others, strict=False)
    return len(parts) == len(others) and all(_are_of_one_kind(*pair, seen, depth - 1) for pair in pairs)


def _insides(value: Any) -> Sequence[Any]:  # noqa: PLR0911 - one line for each type
    """Returns the parts of a value in which two values of its type may differ."""
    match value:
        case list() | tuple():
            return value
        case dict():
            return [*value.keys(), *value.values()]
        case np.ndarray():
            return [value.shape, str(value.dtype)]
        case functools.partial():
            return [value.func, value.args, value.keywords]
        case MethodType():
            return [value.__func__, value.__self__]
        case FunctionType():
            return [value.__code__, value.__defaults__, *map(content_of, value.__closure__ or ())]
        case CodeType():
            return [value.co_code, value.co_names, value.co_consts]
        case _:
            return [getattr(value, "__dict__", None)]
