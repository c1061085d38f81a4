"""From what the hub hands out to batches."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda import _core
from remuda._backends.host import EnvHost, Request
from remuda._backends.pickling import Parts, dump, load
from remuda._engine.batch import Batch
from remuda._engine.exchange import Exchange
from remuda._engine.infos import InfoColumns
from remuda.errors import BrokenPoolError

if TYPE_CHECKING:
    from remuda._engine.start import Started


class BatchMaker:
    """Makes a pool's batches, and gives a column to each numeric key of infos when it first comes up.

    Attributes:
        made: How many batches.
    """

    def __init__(self, parts: Started, infos: InfoColumns, exchange: Exchange) -> None:
        self.made = 0
        self._hub, self._layout, self._arena = parts.hub, parts.layout, parts.arena
        self._infos, self._exchange = infos, exchange
        self._num_workers = len(parts.backend.workers)

    def make(self, taken: tuple[Any, ...], all_ids: np.ndarray[Any, Any]) -> Batch:
        """`taken`: from the hub. `all_ids`: what a whole frame has a row for each of."""
        slots, columns, finals, info_arrays, extras = taken
        if extras is not None:
            self._give_columns(extras)
        self.made += 1
        return Batch(
            all_ids if slots is None else slots,
            self._layout.observation,
            columns,
            finals,
            self._infos.columns,
            info_arrays,
            extras,
        )

    def _give_columns(self, extras: dict[int, tuple[int, Parts, Any]]) -> None:
        """From now on the workers use them."""
        new = []
        for flags, parts, _ in extras.values():
            if flags & _core.HAS_NEW_KEYS:
                with suppress(Exception):  # what cannot be unpickled here is an error for whoever reads it
                    _, info, keys, _ = load(parts)
                    new += self._infos.assign(info, keys)
        if not new:
            return
        for column in new:
            self._hub.add_info_column(self._layout.info_column(self._arena, column))
        parts = dump(Request(EnvHost.add_info_columns, (new,)))
        for worker in range(self._num_workers):
            with suppress(BrokenPoolError):  # the dead need no columns
                self._exchange.tell(worker, parts)

    def release(self) -> None:
        """Lets go of the shared memory."""
        del self._hub, self._arena
