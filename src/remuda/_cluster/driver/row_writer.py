"""Writes the rows of shards into the pool's memory, where a local worker would have written them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remuda import _core
from remuda._cluster.messages import Array, Rows
from remuda._engine.batches.infos import MadeEnd, MadeRow, RawRow, rows_of_env
from remuda._engine.startup.start import NEEDS_RESET, RESULTS, Counts, progress_of
from remuda._wire.info_columns import OF_THE_END, InfoColumn, InfoField
from remuda._wire.layout import Layout
from remuda._wire.pickling import dump, load

_REWARD, _TERMINATED, _TRUNCATED, _MASK, _FIRST_LEAF = range(5)  # of `Rows.columns`


class RowWriter:
    """Writes rows into the columns of a pool.

    Attributes:
        layout, arena: The layout of the pool, and its memory.
        actions: The columns of actions.
        progress: (num_envs, 8): the counts of each env.
        guards: The hub's guards of slots.
    """

    guards: _core.SlotGuards

    def __init__(self, layout: Layout, arena: _core.Arena) -> None:
        self.layout, self.arena = layout, arena
        columns, rows = layout.result_columns(arena), layout.plan.rows
        self._fixed = [column.view(rows) for column in columns.fixed]
        self._leaves = [column.view(rows) for column in (*columns.obs, *columns.computed)]
        self._num_state_leaves = len(self._leaves) - layout.step_columns  # step columns come last
        self._finals = [column.view(rows) for column in columns.final_obs]
        self.actions: list[Array] = [column.view(layout.plan.action_rows) for column in layout.action_columns(arena)]
        self.progress: Counts = progress_of(arena, layout)
        self._first_kept = layout.plan.first_kept_row
        # By the path of keys: the column's bit in the mask, the column, and its rows.
        self._infos: dict[tuple[str, ...], tuple[int, InfoColumn, Array]] = {}
        self._of_the_end = np.uint64(0)  # the mask bits of all columns for an episode's end

    # -- infos -------------------------------------------------------------------------------------------

    def add_info_columns(self, columns: Sequence[InfoColumn], first: int) -> None:
        """Adds columns of infos, which are numbered from `first` on."""
        for bit, column in enumerate(columns, first):
            view = self.layout.info_column(self.arena, column).view(self.layout.plan.rows)
            self._infos[column.path] = bit, column, view
            if column.path[0] in OF_THE_END:
                self._of_the_end |= np.uint64(1 << bit)

    def _target(self, field: InfoField) -> tuple[int, Array] | None:
        bit, column, view = self._infos.get(field.path, (0, None, None))
        if column is None or (column.type, column.dtype, column.shape) != (field.type, field.dtype, field.shape):
            return None
        assert view is not None
        return bit, view

    # -- rows --------------------------------------------------------------------------------------------

    def write(self, rows: Rows, at: Any, envs: Any, *, counts: bool, into_row: bool) -> dict[int, RawRow]:
        """Writes rows.

        Args:
            rows: The rows.
            at: An index of the places of the rows in the columns.
            envs: An index of the envs of the rows, by the numbers of the pool: a slice, or an array.
            counts: Whether the rows are new ones. Otherwise, they repeat the last ones.
            into_row: Whether the rows complete rows that end an episode. The rewards and flags of those stay.

        Returns: The data without a column, by row.
        """
        extras = dict(rows.extras or {})
        mask = self._write_infos(rows, at, extras)
        if into_row:
            self._fixed[_MASK][at] = (self._fixed[_MASK][at] & self._of_the_end) | mask
        else:
            for column in (_REWARD, _TERMINATED, _TRUNCATED):
                self._fixed[column][at] = rows.columns[column]
            self._fixed[_MASK][at] = mask
        leaves = self._leaves[: self._num_state_leaves] if into_row else self._leaves
        for view, leaf in zip(leaves, rows.columns[_FIRST_LEAF:], strict=not into_row):
            view[at] = leaf
        if not into_row and rows.finals is not None:
            for view, leaf in zip(self._finals, rows.finals, strict=True):
                view[at] = leaf
        if self.layout.keeps_last and counts:
            self._keep(at, envs, self.progress[envs, RESULTS] + np.uint64(1))
        return extras

    def _write_infos(self, rows: Rows, at: Any, extras: dict[int, RawRow]) -> Any:
        """Writes infos, and returns the mask of each row. Adds values without a column in this pool to `extras`."""
        if rows.infos is None:
            return np.uint64(0)
        theirs, mask = rows.columns[_MASK], np.zeros(len(rows.env_ids), np.uint64)
        left_over = np.uint64(0)
        for bit, (field, array) in enumerate(zip(rows.fields, rows.infos, strict=True)):
            target = self._target(field)
            if target is None:
                left_over |= np.uint64(1 << bit)
                continue
            mask |= ((theirs >> np.uint64(bit)) & np.uint64(1)) << np.uint64(target[0])
            target[1][at] = array
        for row in np.flatnonzero(theirs & left_over).tolist():
            extras[row] = self._with_dict(rows, row, theirs[row] & left_over, extras.get(row, (0, None, None)))
        return mask

    def _with_dict(self, rows: Rows, row: int, bits: np.uint64, raw: RawRow) -> RawRow:
        """Returns a row's data with the info values that have no column in this pool. Proposes columns for them."""
        reader = _core.InfoReader()
        for field in rows.fields:
            reader.add(field.path, field.type)
        info = reader.info(np.array([bits]), [array[row : row + 1] for array in rows.infos or ()], 0)
        flags, parts, terminal = raw
        objects, known, fields, final = _loaded(parts)
        wanted = [field for bit, field in enumerate(rows.fields) if int(bits) >> bit & 1]
        merged = objects, {**info, **(known or {})}, [*(fields or ()), *wanted], final
        return flags | _core.HAS_NEW_KEYS, dump(merged), terminal

    def _keep(self, at: Any, envs: Any, results: Array) -> None:
        """Copies rows to the place where the pool keeps them in case the shard dies (see `Plan.kept_row`)."""
        first, num_envs = self._first_kept, self.layout.num_envs
        kept: Any
        if isinstance(envs, slice) and (results == results[0]).all():  # the envs have equal numbers of rows
            first += num_envs * (int(results[0]) & 1)
            kept = slice(first + envs.start, first + envs.stop)
        else:
            ids = np.arange(envs.start, envs.stop) if isinstance(envs, slice) else envs
            kept = first + (results & np.uint64(1)).astype(np.int64) * num_envs + ids
        is_over = self.progress[envs, NEEDS_RESET] != 0
        for column in (_TERMINATED, _TRUNCATED):
            self._fixed[column][kept] = self._fixed[column][at] & is_over
        for view in self._leaves[: self._num_state_leaves]:
            view[kept] = view[at]
        self.progress[envs, RESULTS] = results

    def note_progress(self, first_env: int, progress: Counts) -> None:
        """Copies a shard's counts of its envs, except the number of rows, which the driver itself counts."""
        ours = self.progress[first_env : first_env + len(progress)]
        ours[:, :RESULTS], ours[:, RESULTS + 1 :] = progress[:, :RESULTS], progress[:, RESULTS + 1 :]


def flags_and_parts(raw: RawRow, vector_size: int | None) -> tuple[int, Any]:
    """Returns the flags of an env's row or rows, and their data outside the columns, with terminal observations."""
    flags, parts, terminal = raw
    kept = flags & (_core.HAS_FINAL | _core.HAS_NEW_KEYS)
    if terminal is None:
        return kept, parts
    if vector_size is None:
        return kept | _core.HAS_FINAL, _with_final(parts, terminal)
    rows = zip(rows_of_env(parts, vector_size), terminal, strict=True)
    return kept | _core.HAS_FINAL, tuple(_with_final(own, end) for (_, own), end in rows)


def _with_final(parts: Any, terminal: Any) -> MadeRow:
    return _loaded(parts)._replace(end=terminal if isinstance(terminal, MadeEnd) else bytes(terminal[0]))


def _loaded(parts: Any) -> MadeRow:
    if isinstance(parts, MadeRow):
        return parts
    objects, info, fields, end = load(parts) if parts else ([], None, [], None)
    return MadeRow(objects, info or {}, fields, end)
