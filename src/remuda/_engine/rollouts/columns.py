"""The caller's own columns in a rollout. Checks their declarations and values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

ColumnType: TypeAlias = "npt.DTypeLike | tuple[npt.DTypeLike, tuple[int, ...]]"
Array: TypeAlias = "np.ndarray[Any, Any]"
Declared: TypeAlias = "dict[str, tuple[np.dtype[Any], tuple[int, ...]]]"

_NUMBERS = "biufc"  # the letters (`dtype.kind`) of the dtypes of numbers


def check_columns(columns: Any) -> Declared:
    """Returns the dtype and shape of each declared column.

    Raises:
        TypeError, ValueError: `columns` is not a mapping of names to dtypes or (dtype, shape).
    """
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(f"expected columns to be a mapping of names to dtypes, or None, got {columns!r}")
    if unnamed := [name for name in columns if not isinstance(name, str)]:
        raise TypeError(f"expected names of columns to be strings, got {unnamed[0]!r}")
    return {name: _check_column(name, column) for name, column in columns.items()}


def _check_column(name: str, column: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        dtype, shape = column if isinstance(column, tuple) else (column, ())
        empty = np.zeros((0, *shape), dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"expected columns[{name!r}] to be a dtype, or (dtype, shape), got {column!r}: {error}"
        ) from None
    return empty.dtype, empty.shape[1:]


class Columns:
    """The caller's own columns of a rollout: (T, n, ...) arrays by name.

    A declared column keeps its dtype. Any other column is created for its first array, with the same dtype and shape.
    If a later array needs a wider dtype (floats after ints), the column is widened.
    """

    def __init__(self, steps: int, num_envs: int, declared: Declared) -> None:
        self._steps, self._num_envs = steps, num_envs
        self._declared = set(declared)
        self.arrays: dict[str, Array] = {name: self._empty(*form) for name, form in declared.items()}

    def _empty(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        return np.zeros((self._steps, self._num_envs, *shape), dtype)

    def declare(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Creates a column if it does not exist. The column is never widened to another dtype."""
        if name not in self.arrays:
            self.arrays[name] = self._empty(dtype, shape)
        self._declared.add(name)

    def check(self, name: str, value: Any, rows: int) -> tuple[Array, Array]:
        """Returns a column (the old, a wider or a new one) for a value, and the value in the column's dtype.

        Raises:
            ValueError: The value has another number of rows, another shape than before, or does not fit into the dtype.
        """
        array = np.asarray(value)
        if array.ndim == 0 or len(array) != rows:
            raise ValueError(f"expected {name}= to have {rows} rows, one for each env, got the shape {array.shape}")
        column = self.arrays.get(name)
        if column is None:
            return self._empty(array.dtype, array.shape[1:]), array
        if array.shape[1:] != column.shape[2:]:
            raise ValueError(f"expected {name}= to have the shape {(rows, *column.shape[2:])}, got {array.shape}")
        if (cast := _cast(array, column.dtype)) is not None:
            return column, cast
        wider = None if name in self._declared else _common(array.dtype, column.dtype)
        if wider is None or (cast := _cast(array, wider)) is None or (widened := _cast(column, wider)) is None:
            raise ValueError(
                f"expected {name}= to fit into its column of dtype {column.dtype}, got {_misfit(array, column.dtype)} "
                f"(dtype {array.dtype}); declare another one: rollout(..., columns={{{name!r}: dtype}})"
            )
        return widened, cast


def _cast(array: Array, dtype: np.dtype[Any]) -> Array | None:
    """Returns the array in another dtype; None if its values do not fit. Floats may lose precision."""
    if array.dtype == dtype or dtype.kind == "O":
        return array.astype(dtype, copy=False)
    if not _is_kin(array.dtype, dtype):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # about values that do not fit: checked below
        cast = array.astype(dtype)
    if dtype.kind in "fc":
        is_kept = np.isfinite(cast) | ~np.isfinite(array)
    else:
        is_kept = cast == array
        if array.dtype.kind in "iu" and dtype.kind in "iu":  # NumPy compares uint64 with int64 as floats
            is_kept &= (cast < 0) == (array < 0)
    return cast if np.all(is_kept) else None


def _is_kin(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether values of dtype `one` may be cast to dtype `other`: numbers to numbers, others to their own kind only."""
    if one.kind in _NUMBERS and other.kind in _NUMBERS:
        return other.kind == "c" or one.kind != "c"
    return one.kind == other.kind and one.kind != "V"


def _common(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any] | None:
    """Returns a dtype that fits values of both dtypes; None if no dtype does."""
    kinds = {one.kind, other.kind}
    if len(kinds) > 1 and not kinds <= set(_NUMBERS):
        return None
    try:
        return np.promote_types(one, other)
    except TypeError:
        return None


def _misfit(array: Array, dtype: np.dtype[Any]) -> str:
    """Returns the first value of an array that does not fit into the dtype, as text."""
    values = array.reshape(-1)
    return next((repr(value) for value in values.tolist() if _cast(np.array([value], array.dtype), dtype) is None), "")
