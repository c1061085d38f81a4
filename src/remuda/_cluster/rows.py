"""Results as they travel from a shard, and how those of several shards become one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Batch, _core
from remuda._engine.commands.batch import Source
from remuda._engine.running.infos import InfoColumns, Infos, PickledRows, RawRow
from remuda._wire.codec import SpaceCodec
from remuda._wire.info_columns import InfoField

Array = npt.NDArray[Any]
REWARD, TERMINATED, TRUNCATED, MASK, FIRST_LEAF = range(5)


@dataclass
class Rows:
    """One result from each of some envs.

    Attributes:
        env_ids: (n,) int64, as the whole pool has them.
        columns: (n, ...) arrays: reward, terminated, truncated, the mask of info columns or None, the observations, and
            the caller's own (`PoolOptions.extras`), which are kept and repeated with them.
        finals: The same of terminal observations; None: there are none.
        infos: Columns of infos; None: nobody has any.
        fields: What these columns are.
        extras: By row, what has no column.
    """

    env_ids: npt.NDArray[np.int64]
    columns: list[Any]
    finals: list[Array] | None = None
    infos: list[Array] | None = None
    fields: tuple[InfoField, ...] = ()
    extras: dict[int, RawRow] | None = None

    def __len__(self) -> int:
        return len(self.env_ids)

    @property
    def ends(self) -> npt.NDArray[np.bool_]:
        """(n,): whether an episode has ended."""
        ended: npt.NDArray[np.bool_] = self.columns[TERMINATED] | self.columns[TRUNCATED]
        return ended

    @property
    def leaves(self) -> list[Array]:
        """Observations, and the caller's own columns."""
        return self.columns[FIRST_LEAF:]

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        arrays = [*self.columns, *(self.finals or ()), *(self.infos or ())]
        return sum(array.nbytes for array in arrays if array is not None)

    def take(self, order: npt.NDArray[np.intp]) -> Rows:
        """These of the rows, in this order."""
        extras = None
        if self.extras is not None:
            extras = {new: self.extras[old] for new, old in enumerate(order.tolist()) if old in self.extras}
        return Rows(
            self.env_ids[order],
            [None if column is None else column[order] for column in self.columns],
            None if self.finals is None else [column[order] for column in self.finals],
            None if self.infos is None else [column[order] for column in self.infos],
            self.fields,
            extras or None,
        )


def ended_rows(env_ids: npt.NDArray[np.int64], leaves: Sequence[Array], extras: dict[int, RawRow]) -> Rows:
    """Results that the pool makes itself: the last observation once more, no reward, truncated."""
    n = len(env_ids)
    columns = [np.zeros(n), np.zeros(n, bool), np.ones(n, bool), None, *leaves]
    return Rows(env_ids, columns, extras=extras)


class Joiner:
    """Makes one batch of the results of several shards. Each of these knows info columns of its own."""

    def __init__(self, codec: SpaceCodec, worker_of: Callable[[int], int], extras: tuple[str, ...] = ()) -> None:
        """`extras`: the names of the caller's own columns."""
        self._num_leaves = len(codec.columns)
        self._columns = InfoColumns(1 << 30)  # there is no row of shared memory to fit into
        self._places: dict[tuple[str, ...], tuple[int, InfoField]] = {}
        self._reader = _core.InfoReader()
        self._source = Source(codec, self._reader, None, worker_of, extras)

    def batch(self, rows: Rows) -> Batch:
        """Of what `join` has made."""
        columns, infos = rows.columns, rows.infos
        if infos is None and columns[MASK] is not None:
            columns = [*columns[:MASK], None, *columns[FIRST_LEAF:]]
        end = FIRST_LEAF + self._num_leaves
        return Batch(self._source, rows.env_ids, columns[:end], rows.finals, columns[end:] or None, infos, rows.extras)

    def join(self, parts: Sequence[Rows]) -> Rows:
        """One after another, in arrays of its own."""
        if len(parts) == 1:
            return self._writeable(self._translated(parts[0]))
        parts = [self._translated(part) for part in parts]
        columns = [np.concatenate([part.columns[i] for part in parts]) for i in range(MASK)]
        has_infos = any(part.infos is not None for part in parts)
        mask = np.concatenate([_mask_of(part) for part in parts]) if has_infos else None
        leaves = [np.concatenate([part.columns[i] for part in parts]) for i in range(FIRST_LEAF, len(parts[0].columns))]
        return Rows(
            np.concatenate([part.env_ids for part in parts]),
            [*columns, mask, *leaves],
            self._join_finals(parts),
            self._join_infos(parts) if has_infos else None,
            tuple(self._columns.columns),
            _join_extras(parts),
        )

    def _join_finals(self, parts: Sequence[Rows]) -> list[Array] | None:
        if all(part.finals is None for part in parts):
            return None
        n = self._num_leaves
        finals = [part.leaves[:n] if part.finals is None else part.finals for part in parts]  # no end: it means nothing
        return [np.concatenate(leaves) for leaves in zip(*finals, strict=True)]

    def _join_infos(self, parts: Sequence[Rows]) -> list[Array]:
        return [
            np.concatenate([_info_column(part, i, column) for part in parts])
            for i, column in enumerate(self._columns.columns)
        ]

    # -- info columns ------------------------------------------------------------------------------------

    def _translated(self, rows: Rows) -> Rows:
        """The same with our columns; what cannot have one here, in its dicts."""
        if rows.infos is None:
            return rows
        self._learn(rows.fields)
        places = [self._place(field) for field in rows.fields]
        if None in places:
            return _with_dicts(rows)
        mask, infos = np.zeros(len(rows), np.uint64), [None] * len(self._columns.columns)
        for bit, (place, array) in enumerate(zip(places, rows.infos, strict=True)):
            assert place is not None
            here = (rows.columns[MASK] >> np.uint64(bit)) & np.uint64(1)
            mask |= here << np.uint64(place)
            infos[place] = array  # type: ignore[call-overload]
        filled = [
            np.zeros((len(rows), *column.shape), column.dtype) if array is None else array
            for array, column in zip(infos, self._columns.columns, strict=True)
        ]
        columns = [*rows.columns[:MASK], mask, *rows.leaves]
        return Rows(rows.env_ids, columns, rows.finals, filled, tuple(self._columns.columns), rows.extras)

    def _learn(self, fields: Sequence[InfoField]) -> None:
        new = [field for field in fields if field.path not in self._places]
        for column in self._columns.assign(new) if new else ():
            self._places[column.path] = len(self._places), column
            self._reader.add(column.path, column.type)

    def _place(self, field: InfoField) -> int | None:
        place, known = self._places.get(field.path, (None, None))
        if known is None or (known.type, known.dtype, known.shape) != (field.type, field.dtype, field.shape):
            return None
        return place

    def _writeable(self, rows: Rows) -> Rows:
        """What lies in Ray's object store is nobody's to write to."""
        own = [a if a is None or a.flags.writeable else a.copy() for a in rows.columns]
        infos = rows.infos
        if infos is not None and len(infos) < self._reader.num_columns:
            raise AssertionError("a batch has all info columns that are known")
        return Rows(rows.env_ids, own, rows.finals, infos, rows.fields, rows.extras)


def _mask_of(rows: Rows) -> Array:
    mask = rows.columns[MASK]
    return np.zeros(len(rows), np.uint64) if mask is None or rows.infos is None else mask


def _info_column(rows: Rows, i: int, column: InfoField) -> Array:
    if rows.infos is None or i >= len(rows.infos):
        return np.zeros((len(rows), *column.shape), column.dtype)
    return rows.infos[i]


def _join_extras(parts: Sequence[Rows]) -> dict[int, RawRow] | None:
    extras, first = dict[int, RawRow](), 0
    for part in parts:
        extras.update({first + row: extra for row, extra in (part.extras or {}).items()})
        first += len(part)
    return extras or None


def _with_dicts(rows: Rows) -> Rows:
    """Infos as dicts, where a number in them has another form than the same one of another shard."""
    reader = _core.InfoReader()
    for field in rows.fields:
        reader.add(field.path, field.type)
    infos = list(Infos(rows.columns[MASK], reader, rows.infos, PickledRows({}), None))
    extras = dict(rows.extras or {})
    for row, info in enumerate(infos):
        if not info:
            continue
        flags, parts, terminal = extras.get(row, (0, None, None))
        own = PickledRows({0: (flags, parts, terminal)})
        final = None if parts is None or isinstance(parts, tuple) else own._load(0)[2]
        extras[row] = flags, (own.objects(0), {**info, **own.info(0)}, None, final), terminal
    columns = [*rows.columns[:MASK], None, *rows.leaves]
    return Rows(rows.env_ids, columns, rows.finals, None, (), extras)
