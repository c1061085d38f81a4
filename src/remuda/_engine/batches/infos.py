"""The infos of a batch: dicts that are built when they are read.

Numbers arrive in columns (see InfoColumns), and the rest as pickled bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from remuda import _core
from remuda._error_frames import holds_nothing
from remuda._wire.codec import Nest, SpaceCodec, build
from remuda._wire.failures import raised
from remuda._wire.info_columns import PYTHON_NUMBERS, InfoColumn, InfoField
from remuda._wire.pickling import Buffers, load, unbundle
from remuda.errors import Fault

Path: TypeAlias = tuple[str, ...]


class InfoColumns:
    """The columns for numbers in infos. A number gets a column when its key first appears, while rows have room.

    Attributes:
        columns: The columns, in the order of their bits in the mask of a row.
    """

    def __init__(self, room: int) -> None:
        self.columns: list[InfoColumn] = []
        self._paths: set[Path] = set()  # the paths that have a column.
        self._leaves: set[Path] = set()  # the paths of all numbers so far, with or without a column.
        self._dicts: set[Path] = set()  # the paths of all dicts around numbers
        self._room, self._used = room, 0

    def assign(self, fields: Sequence[InfoField]) -> list[InfoColumn]:
        """Gives a column to each field with a new path, if there is room. Returns the new columns."""
        new = []
        for field in fields:
            if field.path in self._paths or self._clashes(field.path):
                continue
            if self._used + field.nbytes > self._room or len(self.columns) == _core.MAX_INFO_COLUMNS:
                continue
            column = InfoColumn(field.path, field.type, field.dtype, field.shape, self._used)
            self._paths.add(field.path)
            self._used += field.nbytes
            self.columns.append(column)
            new.append(column)
        return new

    def _clashes(self, path: Path) -> bool:
        """Returns whether a path must not have a column, because infos use one of its keys inconsistently.

        The key is a number in one info and a dict in another, or is also the mask of another key in Gymnasium's format.
        """
        above = [path[:depth] for depth in range(1, len(path))]
        self._leaves.add(path)
        self._dicts.update(above)
        is_both = path in self._dicts or not self._leaves.isdisjoint(above)
        return is_both or any(self._meets_a_mask(*key) for key in [*above, path])

    def _meets_a_mask(self, *path: str) -> bool:
        *above, key = path
        others = [f"_{key}", *([key[1:]] if key.startswith("_") else [])]
        return any((*above, other) in self._leaves or (*above, other) in self._dicts for other in others)


@dataclass(frozen=True)
class KeptObjects:
    """The values in a last observation that have no column, still pickled in the data of the row that had them.

    The thread that reads a batch unpickles them, because that may run code of the program.

    Attributes:
        parts: The data of the row.
        count: The number of values.
    """

    parts: list[bytes]
    count: int

    def load(self) -> list[Any]:
        """Returns the values; None for each if they cannot be unpickled."""
        try:
            objects = load(self.parts)[0]
        except Exception:  # the caller got this error when it read the observation in its batch
            return [None] * self.count
        return _opened(objects)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class KeptObservation:
    """A last observation with values that have no column.

    Attributes:
        nest: The structure of the observation, see `SpaceCodec`.
        leaves, objects: Its parts.
    """

    nest: Nest
    leaves: list[Any]
    objects: list[Any] | KeptObjects

    def load(self) -> Any:
        """Returns the observation."""
        return build(self.nest, self.leaves, _opened(self.objects))


def _opened(kept: Any) -> Any:
    """Returns a value, unpickled if the pool has kept it pickled."""
    return kept.load() if isinstance(kept, (KeptObjects, KeptObservation)) else kept


def _with_causes(info: dict[str, Any]) -> dict[str, Any]:
    """Returns an info that the program reads. If it has a fault, makes the causes of its error."""
    if isinstance(fault := info.get("fault"), Fault):
        raised(fault.error)
    return info


class MadeEnd(NamedTuple):
    """The data without a column of an episode's end that the pool has made, or that of a shard."""

    obs: Any  # the terminal observation; None if columns hold all of it
    info: dict[str, Any]


class MadeRow(NamedTuple):
    """The data without a column of a row that the pool has made, or that of a shard. Workers pickle the same fields."""

    objects: list[Any] | KeptObjects  # the values in the observation
    info: dict[str, Any]
    fields: list[Any] | None = None  # new keys of infos
    end: MadeEnd | bytes | None = None  # of the previous episode; bytes if a worker has pickled it


# The data of a row: (flags, its data, those of an end whose row the pool has completed). What is not made is pickled.
RawRow: TypeAlias = "tuple[int, Buffers | MadeRow | None, Buffers | MadeEnd | None]"


def rows_of_envs(raw: dict[int, Any], vector_size: int) -> dict[int, RawRow]:
    """Splits the data of vector envs into those of single rows. Keys of `raw`: the first row of each vector env."""
    rows = {}
    for first, (_, parts, terminals) in raw.items():
        for i, (flags, own) in enumerate(rows_of_env(parts, vector_size)):
            terminal = None if terminals is None else terminals[i]
            if flags or own is not None or terminal is not None:
                rows[first + i] = flags, own, terminal
    return rows


def rows_of_env(parts: Buffers | tuple[MadeRow, ...] | None, vector_size: int) -> list[tuple[int, Any]]:
    """Splits the data of a vector env into the flags and data of each row."""
    if isinstance(parts, tuple):
        return [(0 if own.end is None else _core.HAS_FINAL, own) for own in parts]
    if parts is None:
        return [(0, None)] * vector_size
    try:
        return [row or (0, None) for row in unbundle(parts, vector_size)]
    except ValueError:  # native code has overwritten the data: reading any of these rows raises
        return [(0, parts)] * vector_size


class PickledRows:
    """The data of a batch that columns do not hold, by row. A row is unpickled when it is first read.

    Attributes:
        raw: The data as they arrived, by row.
    """

    def __init__(
        self,
        raw: dict[int, RawRow],
        note_time: Callable[[int], None],
        blame: Callable[[int, Exception], Exception] | None = None,
    ) -> None:
        """Keeps the pickled data of rows.

        Args:
            raw: The data, by row.
            note_time: A function that counts the nanoseconds of unpickling an info.
            blame: Makes the error for a row that cannot be unpickled; None: the exception of `pickle` is raised.
        """
        self.raw, self._note_time, self._blame = raw, note_time, blame
        self._loaded: dict[int, tuple[list[Any], dict[str, Any], Any]] = {}

    @property
    def are_flags(self) -> bool:
        """Whether the rows consist of flags, without pickled data, because columns hold all infos."""
        return all(parts is None and terminal is None for _, parts, terminal in self.raw.values())

    def has_final(self, row: int) -> bool:
        return row in self.raw and bool(self.raw[row][0] & _core.HAS_FINAL)

    def objects(self, row: int) -> list[Any]:
        return self._load(row)[0]

    def info(self, row: int) -> dict[str, Any]:
        return self._load(row)[1]

    def final(self, row: int) -> tuple[Any, dict[str, Any]]:
        """Returns (terminal observation, terminal info) of a row; (None, {}) if columns hold them."""
        terminal = self.raw[row][2]  # not None if the pool has completed the row
        inline = None if isinstance(terminal, MadeEnd) else self._load(row)[2]
        for made in terminal, inline:  # the second, if the pool of a shard has completed the row
            if isinstance(made, MadeEnd):
                return _opened(made.obs), _with_causes(made.info)
        frozen = terminal or ([inline] if inline else None)
        final: tuple[Any, dict[str, Any]] = self._unpickle(row, frozen) if frozen else (None, {})
        return final

    def _load(self, row: int) -> tuple[list[Any], dict[str, Any], Any]:
        if row not in self._loaded:
            parts = self.raw[row][1] if row in self.raw else None
            if parts is None:
                return [], {}, None
            objects, info, _, final = parts if isinstance(parts, MadeRow) else self._unpickle(row, parts)
            self._loaded[row] = _opened(objects), _with_causes(info or {}), final
        return self._loaded[row]

    def _unpickle(self, row: int, parts: Buffers) -> Any:
        begin = time.perf_counter_ns()
        try:
            matter = load(parts)
        except Exception as error:
            if self._blame is None:
                raise
            raise self._blame(row, error) from error
        if matter[1]:  # rows without an info do not count
            self._note_time(time.perf_counter_ns() - begin)
        return matter


class Infos(Sequence[dict[str, Any]]):
    """The infos of a batch: `infos[i]` is the dict of its i-th env, built when it is read.

    With same-step autoreset the info of an env whose episode has just ended has Gymnasium's form:
    `{"final_info": <its terminal info>, "final_obs": <its terminal observation>, **<the reset's info>}`.
    """

    def __init__(
        self,
        mask: np.ndarray[Any, Any],
        reader: _core.InfoReader,
        arrays: list[Any] | None,
        pickled: PickledRows,
        final_obs: Callable[[int], Any] | None,
    ) -> None:
        """Keeps the columns and the pickled data of a batch.

        Args:
            mask: (n,) uint64: a bit for each info column that a row has filled.
            reader: Reads these columns.
            arrays: The columns; None if no row has any.
            pickled: The data that have no columns.
            final_obs: Builds the terminal observation of a row if no info column has it; None if no row has one.
        """
        self._mask, self._reader, self._arrays = mask, reader, arrays
        self._pickled, self._final_obs = pickled, final_obs

    def __len__(self) -> int:
        return len(self._mask)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    @holds_nothing
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return list(map(self.__getitem__, range(*index.indices(len(self)))))
        row = range(len(self))[index]
        info: dict[str, Any] = self._reader.info(self._mask, self._arrays, row)
        if row in self._pickled.raw:
            self._complete(info, row)
        return info

    @holds_nothing
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Builds the dicts of all envs at once, which is much cheaper than one by one."""
        infos: list[dict[str, Any]] = self._reader.infos(self._mask, self._arrays)
        for row in self._pickled.raw:
            self._complete(infos[row], row)
        return iter(infos)

    def __repr__(self) -> str:
        return f"Infos({list(self)!r})"

    def _complete(self, info: dict[str, Any], row: int) -> None:
        """Adds the entries that have no column to the info of a row."""
        if self._pickled.has_final(row):
            assert self._final_obs is not None  # set in batches that have a row with terminal data
            if "final_info" not in info:
                info["final_info"] = self._pickled.final(row)[1]
            if "final_obs" not in info:
                info["final_obs"] = self._final_obs(row)
        info.update(self._pickled.info(row))

    # -- infos in Gymnasium's format ---------------------------------------------------------------------

    @holds_nothing
    def stack(self) -> dict[str, Any]:
        """Returns the infos of all envs in the format of `gymnasium.vector`.

        For each key there is an array over the envs, and under `_key` a bool array: True for envs that have the key.
        The result equals what `gymnasium.vector.VectorEnv._add_info` makes of the dicts one by one.

        Raises:
            EnvError: A value in an info cannot be unpickled in this process.
        """
        if self._pickled.are_flags:
            columns: dict[str, Any] = self._reader.stack(self._mask, self._arrays, self._final_observations())
            return columns
        stacked: dict[str, Any] = {}
        for i, info in enumerate(self):
            _add(stacked, info, i, len(self))
        return stacked

    def _final_observations(self) -> dict[int, Any] | None:
        """Returns the terminal observation of each row that has one, by row; None if no row has one."""
        return {row: self[row]["final_obs"] for row in self._pickled.raw if self._pickled.has_final(row)} or None


def _add(stacked: dict[str, Any], info: dict[str, Any], i: int, n: int) -> None:
    """Adds the info of env i to `stacked` by Gymnasium's rules: the first value of a key decides its array's dtype."""
    for key, value in info.items():
        if isinstance(value, dict) and key != "final_obs":
            array = stacked.get(key, {})
            _add(array, value, i, n)
        else:
            array = stacked[key] if key in stacked else _empty_for(key, value, n)
            if isinstance(value, Fault):  # other envs may have numbers of their own under this key
                array = array.astype(object)
            array[i] = value
        stacked[key] = array
        stacked.setdefault(f"_{key}", np.zeros(n, dtype=np.bool_))[i] = True


def _empty_for(key: str, value: Any, n: int) -> np.ndarray[Any, Any]:
    if key != "final_obs":
        if type(value) in PYTHON_NUMBERS or isinstance(value, np.number):
            return np.zeros(n, dtype=type(value))
        if isinstance(value, np.ndarray):
            return np.zeros((n, *value.shape), dtype=value.dtype)
    return np.full(n, None, dtype=object)


def stack_rollout(
    reader: _core.InfoReader,
    mask: np.ndarray[Any, Any],
    arrays: list[Any],
    raw: dict[int, RawRow],
    shape: tuple[int, int],
    note_time: Callable[[int], None],
) -> dict[str, Any]:
    """Returns the numbers in the infos of a rollout, in the format of `Infos.stack`: arrays (steps, envs, ...).

    `mask`, `arrays` and `raw` have steps * envs rows; `note_time` is that of `PickledRows`.
    """
    stacked: dict[str, Any] = reader.stack(mask, arrays if mask.any() else None, None)
    loaded = PickledRows(raw, note_time)
    for row in raw:
        info = dict(loaded.info(row))
        if loaded.has_final(row) and (terminal := loaded.final(row)[1]):
            info["final_info"] = terminal
        _add(stacked, _numbers_of(info), row, len(mask))
    return _reshaped(stacked, shape)


def _numbers_of(info: dict[str, Any]) -> dict[str, Any]:
    """Returns those entries of an info that are numbers, arrays of numbers, or dicts of these."""
    numbers: dict[str, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            if inner := _numbers_of(value):
                numbers[key] = inner
        elif type(value) in PYTHON_NUMBERS or getattr(value, "dtype", np.dtype(object)).kind in "biufc":
            numbers[key] = value
    return numbers


def _reshaped(stacked: dict[str, Any], shape: tuple[int, int]) -> dict[str, Any]:
    return {
        key: _reshaped(value, shape) if isinstance(value, dict) else value.reshape(*shape, *value.shape[1:])
        for key, value in stacked.items()
        if isinstance(value, dict) or value.dtype != object
    }


def final_obs_of(codec: SpaceCodec, arrays: Sequence[np.ndarray[Any, Any]], pickled: PickledRows, row: int) -> Any:
    """Builds the terminal observation of a row, which shares no memory with the batch."""
    obs = pickled.final(row)[0]
    return codec.build_one([array[row, ...] for array in arrays], []) if obs is None else obs
