"""The numbers in infos: those that may have a column, and those that have one. See core/shm/infos.hpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda import _core

OF_THE_END = ("final_info", "final_obs", "_final_info", "_final_obs")
"""Keys of an env that get no column, because same-step autoreset uses them for the end of an episode."""


@dataclass(frozen=True)
class InfoField:
    """A number or small array in infos that may have a column.

    Attributes:
        path: The keys that lead to it: `("episode", "r")` for `info["episode"]["r"]`. With same-step autoreset, the
            last info and observation of an episode are under "final_info" and "final_obs".
        type: The exact type of its values.
        dtype, shape: The dtype and shape of the column's rows.
    """

    path: tuple[str, ...]
    type: type
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes for the value in a row, rounded up to whole words, so that every column is aligned."""
        size = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        return -(-size // 8) * 8


@dataclass(frozen=True)
class InfoColumn(InfoField):
    """A field that has a column."""

    offset: int  # the place of the value in a row's bytes for infos


def field_of(path: tuple[str, ...], value: Any) -> InfoField | None:
    """Returns the `InfoField` for a value in infos; None if such a value cannot have a column."""
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
