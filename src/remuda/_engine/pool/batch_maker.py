"""Makes batches of what the hub hands out, and gives columns to numbers in infos that are new."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from remuda import _core
from remuda._engine.pool.batch import Batch
from remuda._engine.pool.exchange import Exchange
from remuda._engine.pool.infos import InfoColumns, rows_of_envs
from remuda._engine.startup.running import Running
from remuda._wire.pickling import Parts, dump, load_from_env
from remuda._wire.requests import AddInfoColumns
from remuda.errors import BrokenPoolError


class BatchMaker:
    """Makes a pool's batches, and gives a column to each number in infos when it first comes up.

    Attributes:
        made: How many batches.
    """

    def __init__(self, running: Running, infos: InfoColumns, exchange: Exchange) -> None:
        self.made = 0
        self._running, self._layout = running, running.layout
        self._infos, self._exchange = infos, exchange
        self._reader = _core.InfoReader()  # of the columns in `infos`
        self._announced = [0] * len(running.backend.workers)  # how many columns each was told of, or its predecessor

    def make(self, taken: tuple[Any, ...], all_ids: np.ndarray[Any, Any]) -> Batch:
        """`taken`: from the hub. `all_ids`: what a whole frame has a row for each of."""
        slots, columns, finals, info_arrays, extras = taken
        if extras is not None:
            if self._layout.vector_size is not None:
                extras = rows_of_envs(extras, self._layout.vector_size)
            self._give_columns(extras)
        self.made += 1
        return Batch(
            all_ids if slots is None else slots,
            self._layout.observation,
            columns,
            finals,
            self._reader,
            info_arrays,
            extras,
            self._layout.worker_of,
        )

    def _give_columns(self, extras: dict[int, tuple[int, Parts, Any]]) -> None:
        """From now on the workers use them."""
        for flags, parts, _ in extras.values():
            if flags & _core.HAS_NEW_KEYS:
                with suppress(Exception):  # what cannot be unpickled here is an error for whoever reads it
                    _, _, fields, _ = load_from_env(parts)
                    self._infos.assign(fields)
        if min(self._announced) < len(self._infos.columns):
            self._announce()

    def _announce(self) -> None:
        """Tells all the columns that they do not know yet: who reads them first, then each worker, who writes them.

        Where this is interrupted, the next time begins with what is missing.
        """
        columns = self._infos.columns
        for column in columns[self._reader.num_columns :]:
            self._reader.add(column.path, column.type)
        for column in columns[self._running.hub.num_info_columns :]:
            self._running.hub.add_info_column(self._layout.info_column(self._running.arena, column))
        for worker, first in enumerate(self._announced):
            if first < len(columns):
                with suppress(BrokenPoolError):  # the dead need no columns
                    self._exchange.tell(worker, dump(AddInfoColumns(columns[first:], first)))
                self._announced[worker] = len(columns)
