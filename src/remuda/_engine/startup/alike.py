"""Finds whether env factories build envs of one kind, so that the cost measured for one env holds for all."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_DEPTH = 10  # objects of one class count as equal if they are nested deeper than this.
_MOST_VALUES = 1000  # the largest number of values that are compared in a factory
_ATOMS = (bytes, type, BuiltinFunctionType, ModuleType)


def are_alike(env_fns: Sequence[Callable[[], Any]]) -> bool:
    """Whether factories are one function, or share their code and differ only in numbers (a seed, port or path).

    This is a guess; only speed depends on it.
    """
    first, *others = env_fns
    different = [env_fn for env_fn in others if env_fn is not first]
    return not different or all(_Kind().of(env_fn) == _Kind().of(first) for env_fn in different)


class _Kind:
    """Describes a value by nested tuples in which numbers are left out. Values of one kind have equal descriptions."""

    def __init__(self) -> None:
        self._seen = 0

    def of(self, value: Any, depth: int = _DEPTH) -> Any:
        self._seen += 1
        if value is None or isinstance(value, (bool, int, float, np.number)):
            return "number"
        if isinstance(value, str):
            return re.sub(r"\d+", "0", value)
        if isinstance(value, _ATOMS):
            return value
        if depth == 0 or self._seen > _MOST_VALUES:
            return type(value)
        return type(value), tuple(self.of(inside, depth - 1) for inside in islice(_insides(value), _MOST_VALUES))


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
            return [value.__code__, value.__defaults__, *map(_content, value.__closure__ or ())]
        case CodeType():
            return [value.co_code, value.co_names, value.co_consts]
        case _:
            return [getattr(value, "__dict__", None)]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
