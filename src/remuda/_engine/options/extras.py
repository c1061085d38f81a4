"""Checks the option `extras`, and returns the columns that it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space

from remuda._wire.codec import ColumnSpec, SpaceCodec
from remuda._wire.computed import NUMBERS, Computed, ExtraFn, StepColumn, path_of

Declared: TypeAlias = "Space[Any] | tuple[int | Sequence[int], Any]"
Extras: TypeAlias = Mapping[str, "ExtraFn | tuple[ExtraFn, Declared] | StepColumn"]

# Names that batches and rollouts use already, and that no column of the caller's own may have.
_TAKEN = ("obs", "rewards", "terminations", "truncations", "final_obs", "infos", "env_ids", "actions")


def check_extras(extras: Extras | None) -> tuple[Computed, ...]:
    """Returns the columns that the option `extras` describes: in its order, but step columns last.

    Raises:
        TypeError, ValueError: The option is invalid.
    """
    if extras is None:
        return ()
    if not isinstance(extras, Mapping):
        raise TypeError(f"expected extras to be a dict of functions by name, or None, got {extras!r}")
    return tuple(sorted((_read(name, given) for name, given in extras.items()), key=lambda column: column.of_step))


def _read(name: Any, given: Any) -> Computed:
    if not isinstance(name, str) or not name:
        raise TypeError(f"expected the names of extras to be strings, got {name!r}")
    if name in _TAKEN:
        raise ValueError(f"expected another name than {name!r} in extras, which a batch has already")
    of_step = isinstance(given, StepColumn)
    pair = _parts_of(given) if isinstance(given, StepColumn) else given
    function, declared = pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, None)
    if not callable(function):
        raise TypeError(
            f"expected {path_of(name)} to be a function of an env, a pair of one and a space or (shape, dtype), or a "
            f"StepColumn, got {given!r}"
        )
    return Computed(name, function, None if declared is None else _read_declared(path_of(name), declared), of_step)


def _parts_of(column: StepColumn) -> Any:
    """Returns the function of a step column, with its declaration if it has one."""
    is_found = column.shape is None and column.dtype is None
    return column.function if is_found else (column.function, (column.shape, column.dtype))


def _read_declared(path: str, declared: Any) -> ColumnSpec:
    if isinstance(declared, Space):
        codec = SpaceCodec(declared)
        if not codec.is_single_column:
            raise ValueError(f"expected the space of {path} to be one array of numbers, got {declared}; name several")
        return ColumnSpec(path, codec.columns[0].dtype, codec.columns[0].shape)
    if not isinstance(declared, tuple) or len(declared) != 2:
        raise TypeError(f"expected {path} to be declared by a gymnasium.Space or (shape, dtype), got {declared!r}")
    shape, dtype = declared
    try:
        shape, dtype = np.empty(shape, np.bool_).shape, np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"expected {path} to be declared by (shape, dtype), got {declared!r} ({error})") from None
    if dtype.kind not in NUMBERS:
        raise ValueError(f"expected {path} to be of numbers, got the dtype {dtype}")
    return ColumnSpec(path, dtype, shape)
