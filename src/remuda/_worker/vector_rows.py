"""Reads and writes the rows of a vector env's slots at once, and splits its infos into those of its single envs.

Gymnasium's vector envs return one dict of infos for all envs. It has an array over the envs under each key, or a dict
of such arrays, and under `_key` a mask of the envs that have the key. If the mask is missing, all envs have the key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from remuda import _core
from remuda._wire.info_columns import OF_THE_END, PYTHON_NUMBERS, InfoColumn
from remuda._wire.layout import Layout

Array: TypeAlias = np.ndarray[Any, Any]

# An array over envs does not show whether its numbers were Python's or NumPy's. Python's are likelier, so they are
# assumed.
_PYTHON_TYPES = {dtype: kind for kind, dtype in PYTHON_NUMBERS.items()}


class VectorRows:
    """Arrays over the columns of a pool; they keep the pool's memory alive.

    Attributes:
        infos: Splits infos, and writes them into their columns.
    """

    def __init__(self, layout: Layout, arena: _core.Arena) -> None:
        rows = layout.plan.rows
        self._n = layout.width
        fixed, _, self._obs, self._computed, self._final_obs = (
            [column.view(rows) for column in group] for group in layout.result_columns(arena)
        )
        self._reward, self._terminated, self._truncated, mask = fixed
        self.infos = VectorInfos(self._n, mask)
        self._actions: list[Any] = [column.view(layout.plan.action_rows) for column in layout.action_columns(arena)]

    def read_actions(self, row: int) -> list[Array]:
        """Returns the actions in n rows: an (n, *shape) array for each column, copied, because an env may keep it."""
        return [column[row : row + self._n].copy() for column in self._actions]

    def write_obs(self, row: int, leaves: Sequence[Array], computed: Sequence[Array]) -> None:
        """Writes n observations and computed columns. Each has, for each column, an (n, *shape) array of its dtype."""
        for columns, values in ((self._obs, leaves), (self._computed, computed)):
            for column, value in zip(columns, values, strict=True):
                column[row : row + self._n] = value

    def write_flags(self, row: int, reward: Any, terminated: Any, truncated: Any) -> None:
        """Writes the rewards and flags of n rows. Each argument is an array of n rows, or one value for all."""
        end = row + self._n
        self._reward[row:end], self._terminated[row:end], self._truncated[row:end] = reward, terminated, truncated

    def write_final_obs(self, row: int, sub_envs: Array, leaves: Sequence[Array]) -> None:
        """Writes terminal observations. `leaves`: for each column an array with a row for each of `sub_envs`."""
        for column, leaf in zip(self._final_obs, leaves, strict=True):
            column[row + sub_envs] = leaf


@dataclass(frozen=True)
class _Place:
    """The place of one key's values: an info column, its rows in memory, and its bit in the mask of a row."""

    column: InfoColumn
    rows: Array
    bit: np.uint64

    def takes(self, value: Any, n: int) -> bool:
        """Returns whether `value` has a value of exactly the column's type for each of n envs."""
        column = self.column
        return (
            type(value) is np.ndarray
            and value.dtype == column.dtype
            and value.shape == (n, *column.shape)
            and column.type is _type_of_one(value)
        )


@dataclass(frozen=True)
class SplitInfos:
    """The infos of one reset or step of a vector env, split into values with a column and others.

    Attributes:
        columns: The values for columns, and the envs that have them (None: all).
        rest: The other values, for each env; None if there are no others.
        wanted: For each env, the paths and values in its `rest` that may get a column; each key once.
    """

    columns: list[tuple[_Place, Array, Array | None]]
    rest: list[dict[str, Any]] | None
    wanted: list[list[tuple[tuple[str, ...], Any]]]


class VectorInfos:
    """Splits the infos of vector envs of n envs each. `mask`: by row, the bits of the info columns with a value."""

    def __init__(self, n: int, mask: Array) -> None:
        self._n, self._mask = n, mask
        self._places: dict[str, _Place] = {}
        self._asked: set[str] = set()

    def add_column(self, number: int, column: InfoColumn, rows: Array) -> None:
        """Adds an info column, with its number in the pool. Ignores columns for values of nested dicts."""
        if len(column.path) == 1:
            self._places[column.path[0]] = _Place(column, rows, np.uint64(1 << number))

    def split(self, infos: dict[str, Any], without: Collection[str] = ()) -> SplitInfos:
        """Splits infos into values with a column and others. Writes nothing. `without`: keys to ignore."""
        if not infos:
            return SplitInfos([], None, [])
        columns, rest = [], list[tuple[str, Any, Array | None]]()
        for key, value in infos.items():
            if key in without or _is_mask(key, infos):
                continue
            present = _present(infos, key, self._n)
            place = self._places.get(key)
            if place is not None and place.takes(value, self._n):
                columns.append((place, value, present))
            else:
                rest.append((key, value, present))
        return SplitInfos(columns, *self._split_rest(rest)) if rest else SplitInfos(columns, None, [])

    def _split_rest(
        self, rest: list[tuple[str, Any, Array | None]]
    ) -> tuple[list[dict[str, Any]], list[list[tuple[tuple[str, ...], Any]]]]:
        dicts: list[dict[str, Any]] = [{} for _ in range(self._n)]
        wanted: list[list[tuple[tuple[str, ...], Any]]] = [[] for _ in range(self._n)]
        for key, value, present in rest:
            sub_envs = range(self._n) if present is None else np.flatnonzero(present).tolist()
            for sub_env in sub_envs:
                dicts[sub_env][key] = value_of_sub_env(value, sub_env, self._n)
            if sub_envs and type(key) is str and key not in (*self._asked, *OF_THE_END) and _may_have_column(value):
                self._asked.add(key)
                wanted[sub_envs[0]].append(((key,), dicts[sub_envs[0]][key]))
        return dicts, wanted

    def write(self, infos: SplitInfos, row: int) -> None:
        """Writes the infos' values for columns into the rows of the envs, from `row` on."""
        end = row + self._n
        bits: Any = np.uint64(0)
        for place, values, present in infos.columns:
            place.rows[row:end] = values
            bits = bits | (place.bit if present is None else place.bit * present)
        self._mask[row:end] = bits


def value_of_sub_env(value: Any, sub_env: int, n: int) -> Any:
    """Returns one env's value from a value for n envs. The result shares no array with the other envs' values."""
    if isinstance(value, dict):
        return {
            key: value_of_sub_env(one, sub_env, n)
            for key, one in value.items()
            if not _is_mask(key, value) and ((mask := _present(value, key, n)) is None or mask[sub_env])
        }
    if isinstance(value, np.ndarray) and value.ndim >= 1 and len(value) == n:
        if value.dtype == object:
            return value[sub_env]
        if value.ndim > 1:
            return value[sub_env].copy()
        return value[sub_env].item() if value.dtype in _PYTHON_TYPES else value[sub_env]
    if isinstance(value, (list, tuple)) and len(value) == n:
        return value[sub_env]
    return value


def _type_of_one(array: Array) -> type:
    """Returns the type of one env's value in an array over envs."""
    return np.ndarray if array.ndim > 1 else _PYTHON_TYPES.get(array.dtype, array.dtype.type)


def _is_mask(key: Any, infos: dict[str, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def _present(infos: dict[str, Any], key: Any, n: int) -> Array | None:
    """Returns the mask of the envs that have this key; None if all have it."""
    mask = infos.get(f"_{key}")
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (n,) and not mask.all():
        return mask
    return None


def _may_have_column(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim >= 1 and value.dtype.kind in "biuf"
