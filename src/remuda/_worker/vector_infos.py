"""Splits the infos of a vector env into what single envs would have said.

Gymnasium's vector envs return one dict for all: under a key an array over the envs, or a dict of such, and under `_key`
which envs have it at all. Where that mask is missing, all have it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda._wire.info_columns import OF_THE_END, InfoColumn

# An array over envs does not tell Python's numbers from NumPy's: of the two the likelier.
_PYTHON_TYPES: dict[np.dtype[Any], type] = {
    np.dtype(np.float64): float,
    np.dtype(np.int64): int,
    np.dtype(np.bool_): bool,
}


@dataclass(frozen=True)
class _Place:
    """Where the values of a key go that has a column."""

    column: InfoColumn
    rows: np.ndarray[Any, Any]
    bit: np.uint64

    def takes(self, value: Any, n: int) -> bool:
        """Whether `value` has one for each of n envs that is of exactly the column's type."""
        column = self.column
        return (
            type(value) is np.ndarray
            and value.dtype == column.dtype
            and value.shape == (n, *column.shape)
            and column.type is _type_of_one(value)
        )


@dataclass(frozen=True)
class Told:
    """The infos of one reset or step.

    Attributes:
        columns: The values that go into columns, and which envs have them (None: all).
        rest: What does not, for each env; None when there is nothing of the kind.
        wanted: For each env, the paths and values of those of its `rest` that may get a column; told once each.
    """

    columns: list[tuple[_Place, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]
    rest: list[dict[str, Any]] | None
    wanted: list[list[tuple[tuple[str, ...], Any]]]


class VectorInfos:
    """Deals out the infos of vector envs of n envs each. `mask`: of all rows, which info columns they have filled."""

    def __init__(self, n: int, mask: np.ndarray[Any, Any]) -> None:
        self._n, self._mask = n, mask
        self._places: dict[str, _Place] = {}
        self._asked: set[str] = set()

    def add_column(self, number: int, column: InfoColumn, rows: np.ndarray[Any, Any]) -> None:
        """`number`: of the column among all of the pool; those of dicts within infos are not used here."""
        if len(column.path) == 1:
            self._places[column.path[0]] = _Place(column, rows, np.uint64(1 << number))

    def take_apart(self, infos: dict[str, Any], without: Collection[str] = ()) -> Told:
        """Nothing is written yet. `without`: keys that are somebody else's."""
        if not infos:
            return Told([], None, [])
        columns, rest = [], list[tuple[str, Any, np.ndarray[Any, Any] | None]]()
        for key, value in infos.items():
            if key in without or _is_mask(key, infos):
                continue
            present = _present(infos, key, self._n)
            place = self._places.get(key)
            if place is not None and place.takes(value, self._n):
                columns.append((place, value, present))
            else:
                rest.append((key, value, present))
        return Told(columns, *self._deal_out(rest)) if rest else Told(columns, None, [])

    def _deal_out(
        self, rest: list[tuple[str, Any, np.ndarray[Any, Any] | None]]
    ) -> tuple[list[dict[str, Any]], list[list[tuple[tuple[str, ...], Any]]]]:
        dicts: list[dict[str, Any]] = [{} for _ in range(self._n)]
        wanted: list[list[tuple[tuple[str, ...], Any]]] = [[] for _ in range(self._n)]
        for key, value, present in rest:
            sub_envs = range(self._n) if present is None else np.flatnonzero(present).tolist()
            for sub_env in sub_envs:
                dicts[sub_env][key] = of_sub_env(value, sub_env, self._n)
            if sub_envs and type(key) is str and key not in (*self._asked, *OF_THE_END) and _may_have_column(value):
                self._asked.add(key)
                wanted[sub_envs[0]].append(((key,), dicts[sub_envs[0]][key]))
        return dicts, wanted

    def write(self, told: Told, row: int) -> None:
        """Fills the columns of the envs' rows, which begin with this one."""
        end = row + self._n
        bits: Any = np.uint64(0)
        for place, values, present in told.columns:
            place.rows[row:end] = values
            bits = bits | (place.bit if present is None else place.bit * present)
        self._mask[row:end] = bits


def of_sub_env(value: Any, sub_env: int, n: int) -> Any:
    """What one of n envs has said under a key; it shares nothing with the others' but what is one for all."""
    if isinstance(value, dict):
        return {
            key: of_sub_env(one, sub_env, n)
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


def _type_of_one(array: np.ndarray[Any, Any]) -> type:
    """Of the value that one env has in an array over envs."""
    return np.ndarray if array.ndim > 1 else _PYTHON_TYPES.get(array.dtype, array.dtype.type)


def _is_mask(key: Any, infos: dict[str, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def _present(infos: dict[str, Any], key: Any, n: int) -> np.ndarray[Any, Any] | None:
    """Which envs have this key; None for all."""
    mask = infos.get(f"_{key}")
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (n,) and not mask.all():
        return mask
    return None


def _may_have_column(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim >= 1 and value.dtype.kind in "biuf"
