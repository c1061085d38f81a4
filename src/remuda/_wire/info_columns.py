"""The numbers of infos that may have a column, and those that have one: see core/shm/infos.hpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda import _core

OF_THE_END = ("final_info", "final_obs", "_final_info", "_final_obs")
"""Keys that get no column from an env: with same-step autoreset they belong to the end of an episode."""


@dataclass(frozen=True)
class InfoField:
    """A number or small array in infos that may have a column.

    Attributes:
        path: The keys that lead to it: `("episode", "r")` for `info["episode"]["r"]`. What an episode ended with in the
            row of its end, in same-step autoreset, is under "final_info" and "final_obs".
        type: Exactly that of its values.
        dtype, shape: Of the column's rows.
    """

    path: tuple[str, ...]
    type: type
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of a row, in whole words, so that every column is aligned."""
        size = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        return -(-size // 8) * 8


@dataclass(frozen=True)
class InfoColumn(InfoField):
    """A field that has a column."""

    offset: int  # within a row's room for infos


def field_of(path: tuple[str, ...], value: Any) -> InfoField | None:
    """Returns the field of a value; None if such values cannot have a column."""
    kind = type(value)
    if kind in PYTHON_NUMBERS:
        field = InfoField(path, kind, PYTHON_NUMBERS[kind], ())
    elif isinstance(value, (np.number, np.bool_)) and kind is value.dtype.type and value.dtype.kind in "biufc":
        field = InfoField(path, kind, value.dtype, ())
    elif kind is np.ndarray and value.dtype.kind in "biuf":
        field = InfoField(path, kind, value.dtype, value.shape)
    else:
        return None
    return field if field.nbytes <= _core.MAX_INFO_COLUMN_BYTES else None


PYTHON_NUMBERS: dict[type, np.dtype[Any]] = {
    float: np.dtype(np.float64),
    int: np.dtype(np.int64),
    bool: np.dtype(np.bool_),
}
