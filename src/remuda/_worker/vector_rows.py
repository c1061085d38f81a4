"""Reads and writes the rows of a vector env's slots, which are neighbours, at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from remuda import _core
from remuda._wire.layout import Layout

Array: TypeAlias = "np.ndarray[Any, Any]"


class VectorRows:
    """Arrays over the columns of a pool. Whoever holds this keeps the pool's memory.

    Attributes:
        info_mask: (rows,) uint64: which info columns each row has filled.
    """

    def __init__(self, layout: Layout, arena: _core.Arena) -> None:
        rows = layout.plan.rows
        self._n = layout.width
        fixed, _, self._obs, self._computed, self._final_obs = (
            [column.view(rows) for column in group] for group in layout.result_columns(arena)
        )
        self._reward, self._terminated, self._truncated, self.info_mask = fixed
        self._actions: list[Any] = [column.view(layout.plan.action_rows) for column in layout.action_columns(arena)]

    def read_actions(self, row: int) -> list[Array]:
        """An (n, *shape) array for each column; copies, which an env may keep."""
        return [column[row : row + self._n].copy() for column in self._actions]

    def write_obs(self, row: int, leaves: Sequence[Array]) -> None:
        """`leaves`: an (n, *shape) array for each column, of its dtype."""
        for column, leaf in zip(self._obs, leaves, strict=True):
            column[row : row + self._n] = leaf

    def write_computed(self, row: int, values: Sequence[Array]) -> None:
        """`values`: the same for the computed columns."""
        for column, value in zip(self._computed, values, strict=True):
            column[row : row + self._n] = value

    def write_flags(self, row: int, reward: Any, terminated: Any, truncated: Any) -> None:
        """(n,) arrays, or one value for all."""
        end = row + self._n
        self._reward[row:end], self._terminated[row:end], self._truncated[row:end] = reward, terminated, truncated

    def write_final_obs(self, row: int, sub_envs: Array, leaves: Sequence[Array]) -> None:
        """`leaves`: for each column an array with a row for each of `sub_envs`, (m,) int."""
        for column, leaf in zip(self._final_obs, leaves, strict=True):
            column[row + sub_envs] = leaf
