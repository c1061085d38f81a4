"""Infos that cost nothing until somebody looks.

Numeric keys arrive in columns (see InfoColumns), the rest as pickled bytes; dicts are built on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from remuda import _core
from remuda._wire.codec import SpaceCodec
from remuda._wire.layout import InfoColumn
from remuda._wire.pickling import Parts, load_from_env

_MAX_COLUMN_BYTES = 128  # of one value: room is dealt out to whoever comes first


class InfoColumns:
    """Which numeric info keys have a column. A key gets one when it is first seen, while there is room."""

    def __init__(self, room: int) -> None:
        self.columns: list[InfoColumn] = []
        self._keys: set[str] = set()
        self._seen: set[str] = set()  # also those without a column
        self._room, self._used = room, 0

    def assign(self, info: dict[str, Any], keys: Sequence[str]) -> list[InfoColumn]:
        """Gives columns to those of `keys` that have none yet, by their values in `info`; returns the new ones."""
        new = []
        for key in keys:
            column = self._column_for(key, info[key]) if key not in self._keys else None
            if column is not None and not self._meets_a_mask(key):
                self._keys.add(key)
                self._used += _room_for(column)
                self.columns.append(column)
                new.append(column)
        return new

    def _meets_a_mask(self, key: str) -> bool:
        """Whether the key, or its mask in Gymnasium's format, has a name that is in use: then their order counts."""
        self._seen.add(key)
        return f"_{key}" in self._seen or (key.startswith("_") and key[1:] in self._seen)

    def _column_for(self, key: str, value: Any) -> InfoColumn | None:
        kind = type(value)
        if kind in _PYTHON_NUMBERS:
            column = InfoColumn(key, kind, _PYTHON_NUMBERS[kind], (), self._used)
        elif isinstance(value, (np.number, np.bool_)) or (kind is np.ndarray and value.dtype.kind in "biuf"):
            column = InfoColumn(key, kind, value.dtype, value.shape, self._used)
        else:
            return None
        size = _room_for(column)
        fits = size <= _MAX_COLUMN_BYTES and self._used + size <= self._room
        return column if fits and len(self.columns) < _core.MAX_INFO_COLUMNS else None


_PYTHON_NUMBERS: dict[type, np.dtype[Any]] = {
    float: np.dtype(np.float64),
    int: np.dtype(np.int64),
    bool: np.dtype(np.bool_),
}


def _room_for(column: InfoColumn) -> int:
    size = column.dtype.itemsize * int(np.prod(column.shape, dtype=np.int64))
    return -(-size // 8) * 8  # whole words, so that every column is aligned


# Flags; (objects, info, new keys, terminal data), pickled unless the pool itself made it; and, of a row that the pool
# completed, (terminal observation, terminal info), pickled or not.
RawExtra: TypeAlias = "tuple[int, Parts | tuple[Any, ...] | None, Parts | tuple[Any, dict[str, Any]] | None]"


class Extras:
    """What of a batch is not in columns: pickled matter of some rows, unpickled when first asked for.

    Attributes:
        raw: As it came, by row.
    """

    def __init__(
        self, extras: dict[int, RawExtra] | None, blame: Callable[[int, Exception], Exception] | None = None
    ) -> None:
        """`blame`: makes what is to be raised when that of a row cannot be unpickled; None: what that raises is."""
        self.raw, self._blame = extras or {}, blame
        self._loaded: dict[int, tuple[list[Any], dict[str, Any] | None, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self.raw)

    def has_final(self, row: int) -> bool:
        return row in self.raw and bool(self.raw[row][0] & _core.HAS_FINAL)

    def objects(self, row: int) -> list[Any]:
        return self._load(row)[0]

    def info(self, row: int) -> dict[str, Any]:
        return self._load(row)[1] or {}

    def final(self, row: int) -> tuple[Any, dict[str, Any]]:
        """The terminal observation, or None where its column has it as it was; and the terminal info."""
        terminal = self.raw[row][2]  # of a row that the pool completed
        if isinstance(terminal, tuple):
            return terminal
        frozen = terminal or ([inline] if (inline := self._load(row)[2]) else None)
        final: tuple[Any, dict[str, Any]] = self._unpickle(row, frozen) if frozen else (None, {})
        return final

    def _load(self, row: int) -> tuple[list[Any], dict[str, Any] | None, Any]:
        if row not in self._loaded:
            parts = self.raw[row][1] if row in self.raw else None
            if parts is None:
                return [], None, None
            objects, info, _, final = parts if isinstance(parts, tuple) else self._unpickle(row, parts)
            self._loaded[row] = objects, info, final
        return self._loaded[row]

    def _unpickle(self, row: int, parts: Parts) -> Any:
        try:
            return load_from_env(parts)
        except Exception as error:
            if self._blame is None:
                raise
            raise self._blame(row, error) from error


class Infos(Sequence[dict[str, Any]]):
    """The infos of a batch: `infos[i]` is the dict of its i-th env, built when asked for.

    With same-step autoreset the info of an env whose episode has just ended is, as Gymnasium has it,
    `{"final_info": <its terminal info>, "final_obs": <its terminal observation>, **<the reset's info>}`.
    """

    def __init__(
        self,
        mask: np.ndarray[Any, Any],
        columns: Sequence[InfoColumn],
        arrays: Sequence[np.ndarray[Any, Any]],
        extras: Extras,
        final_obs: Callable[[int], Any] | None,
    ) -> None:
        """`final_obs`: builds the terminal observation of a row; None where no row has one."""
        self._mask, self._columns, self._arrays = mask, columns, arrays
        self._extras, self._final_obs = extras, final_obs

    def __len__(self) -> int:
        return len(self._mask)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return {**self._final(row), **self._from_columns(row), **self._extras.info(row)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Builds all of them, column by column: that is much cheaper than one by one."""
        infos: list[dict[str, Any]] = [{} for _ in range(len(self._mask))]
        for i, (column, array) in enumerate(zip(self._columns, self._arrays, strict=False)):
            rows = np.flatnonzero(self._mask & np.uint64(1 << i))
            for row, value in zip(rows.tolist(), _values(column, array, rows), strict=True):
                infos[row][column.key] = value
        for row in self._extras.raw:
            infos[row] = {**self._final(row), **infos[row], **self._extras.info(row)}
        return iter(infos)

    def __repr__(self) -> str:
        return f"Infos({list(self)!r})"

    def _from_columns(self, row: int) -> dict[str, Any]:
        bits = int(self._mask[row])
        return {
            column.key: _value(column, array, row)
            for i, (column, array) in enumerate(zip(self._columns, self._arrays, strict=False))
            if bits >> i & 1
        }

    def _final(self, row: int) -> dict[str, Any]:
        if not self._extras.has_final(row):
            return {}
        assert self._final_obs is not None  # an episode has ended
        return {"final_info": self._extras.final(row)[1], "final_obs": self._final_obs(row)}

    # -- Gymnasium's format ------------------------------------------------------------------------------

    def stack(self) -> dict[str, Any]:
        """The infos of all envs in the format of `gymnasium.vector`: for each key an array over the envs, and
        under `_key` a bool array that says which envs have it.

        The result equals what `gymnasium.vector.VectorEnv._add_info` makes of the dicts one by one.
        """
        if not self._extras:
            return self._stack_columns()
        stacked: dict[str, Any] = {}
        for i, info in enumerate(self):
            _add(stacked, info, i, len(self))
        return stacked

    def _stack_columns(self) -> dict[str, Any]:
        stacked: dict[str, Any] = {}
        for i, (column, array) in enumerate(zip(self._columns, self._arrays, strict=False)):
            present = (self._mask & np.uint64(1 << i)) != 0
            if not present.any():
                continue
            stacked[column.key] = _masked(column, array, present)
            stacked[f"_{column.key}"] = present
        return stacked


def _value(column: InfoColumn, array: np.ndarray[Any, Any], row: int) -> Any:
    """The value as the env gave it, of the same type."""
    if column.type is np.ndarray:
        return array[row].copy() if column.shape else np.array(array[row])
    value = array[row]
    return value.item() if column.type in _PYTHON_NUMBERS else value


def _values(column: InfoColumn, array: np.ndarray[Any, Any], rows: np.ndarray[Any, np.dtype[np.intp]]) -> Sequence[Any]:
    if column.type in _PYTHON_NUMBERS:
        numbers: list[Any] = array[rows].tolist()
        return numbers
    return [_value(column, array, row) for row in rows]


def _masked(column: InfoColumn, array: np.ndarray[Any, Any], present: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if column.type is np.bool_:  # no np.number: Gymnasium keeps these as objects
        objects = np.full(len(present), None, dtype=object)
        for i in np.flatnonzero(present):
            objects[i] = array[i]
        return objects
    if present.all():
        copied: np.ndarray[Any, Any] = array.copy()
        return copied
    masked = np.zeros_like(array)
    masked[present] = array[present]
    return masked


def _add(stacked: dict[str, Any], info: dict[str, Any], i: int, n: int) -> None:
    """Adds env i's info, by Gymnasium's rules: the first value of a key decides the dtype of its array."""
    for key, value in info.items():
        if isinstance(value, dict) and key != "final_obs":
            array = stacked.get(key, {})
            _add(array, value, i, n)
        else:
            array = stacked[key] if key in stacked else _empty_for(key, value, n)
            array[i] = value
        stacked[key] = array
        stacked.setdefault(f"_{key}", np.zeros(n, dtype=np.bool_))[i] = True


def _empty_for(key: str, value: Any, n: int) -> np.ndarray[Any, Any]:
    if key != "final_obs":
        if type(value) in _PYTHON_NUMBERS or isinstance(value, np.number):
            return np.zeros(n, dtype=type(value))
        if isinstance(value, np.ndarray):
            return np.zeros((n, *value.shape), dtype=value.dtype)
    return np.full(n, None, dtype=object)


def final_obs_reader(
    codec: SpaceCodec, arrays: Sequence[np.ndarray[Any, Any]] | None, extras: Extras
) -> Callable[[int], Any]:
    """A function that builds the terminal observation of one row; it shares nothing with the batch."""

    def read(row: int) -> Any:
        assert arrays is not None  # called only for rows that have one
        obs = extras.final(row)[0]
        return codec.build_one([array[row, ...] for array in arrays], []) if obs is None else obs

    return read
