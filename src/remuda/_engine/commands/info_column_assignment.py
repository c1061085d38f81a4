"""Configures how the hub makes batches, and assigns columns to new numbers in infos."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from remuda import _core
from remuda._engine.batches.batch import Batch, Source
from remuda._engine.batches.infos import InfoColumns, MadeRow, RawRow
from remuda._engine.commands.exchange import Exchange
from remuda._engine.running import Running
from remuda._wire.info_columns import InfoColumn
from remuda._wire.pickling import dump, load
from remuda._wire.requests import AddInfoColumns
from remuda.errors import BrokenPoolError


class Listener(Protocol):
    """A part of a face that follows the results of a pool, whichever call receives them."""

    def note(self, batch: Batch) -> None:
        """Called with each batch before it is returned."""

    def forget(self, env_ids: Sequence[int]) -> None:
        """Called before results of these envs are dropped."""


class InfoColumnAssignment:
    """Configures how the hub makes batches, and assigns a column to each number in infos when it first appears.

    Attributes:
        source: The data that all batches share.
    """

    def __init__(self, running: Running, infos: InfoColumns, exchange: Exchange, extras: tuple[str, ...]) -> None:
        """`extras`: the names of the caller's own columns, which batches have too."""
        self._running, self._layout = running, running.layout
        self._infos, self._exchange = infos, exchange
        self._reader = _core.InfoReader()  # reads numbers from the columns of `infos`.
        self._announced = [0] * len(running.backend.workers)  # the number of columns that were sent to each worker
        self._advise_at = 0
        self._advise: Callable[[], Callable[[], None] | None] = lambda: None
        self._listener: Callable[[], Listener | None] = lambda: None
        observation = running.layout.observation
        self.source = Source(
            observation,
            self._reader,
            running.layout.vector_size,
            running.layout.worker_of,
            extras,
            partial(_note_unpickling, weakref.ref(running)),  # weak, because batches outlive their pool
        )
        look = partial(_look, weakref.ref(self))  # a strong reference would be a cycle, through the hub
        running.hub.set_batches(Batch, self.source, look, observation.is_single_column)

    @property
    def info_columns(self) -> list[InfoColumn]:
        """The info columns that exist so far, in the order of their bits in the mask of a row."""
        return self._infos.columns

    def advise_at(self, number: int, advise: Callable[[], Callable[[], None] | None]) -> None:
        """At the batch with this number (from 1), calls `advise`, and then the function that it returns, if any."""
        self._advise_at, self._advise = number, advise
        self._look_later()

    def listen(self, listener: Callable[[], Listener | None]) -> None:
        """Calls the listener for each later batch. `listener`: returns it, or None if it is gone."""
        self._listener = listener
        self._look_later()

    def forget(self, env_ids: Sequence[int]) -> None:
        """Tells the listener that results of these envs are about to be dropped."""
        if (listener := self._listener()) is not None:
            listener.forget(env_ids)

    def _look_later(self) -> None:
        """Chooses the next batch for `look`: the very next one if there is a listener."""
        next_number = self._running.hub.caller.batches + 1
        self._running.hub.callbacks.look_at = self._advise_at if self._listener() is None else next_number

    def look(self, batch: Batch) -> None:
        """Handles a batch with new keys in infos, or with the number that `_look_later` chose. The hub calls this."""
        self._look_later()
        self._give_columns(batch._rows_matter())
        if (listener := self._listener()) is not None:
            listener.note(batch)
        if self._running.hub.caller.batches == self._advise_at and (advise := self._advise()) is not None:
            advise()

    def _give_columns(self, raw: dict[int, RawRow]) -> None:
        """Assigns columns to new numbers in the infos of rows. Workers then write these numbers into the columns."""
        for flags, parts, _ in raw.values():
            if flags & _core.HAS_NEW_KEYS and parts is not None and not isinstance(parts, MadeRow):
                with suppress(Exception):  # if a value cannot be unpickled, reading the info raises the error later
                    _, _, fields, _ = load(parts)
                    self._infos.assign(fields)
        if min(self._announced) < len(self._infos.columns):
            self._announce()

    def _announce(self) -> None:
        """Announces new columns first to their readers in this process, then to the workers, which write them.

        If a signal handler raises in between, the next call continues with the missing ones.
        """
        columns = self._infos.columns
        for column in columns[self._reader.num_columns :]:
            self._reader.add(column.path, column.type)
        for column in columns[self._running.hub.frames.num_info_columns :]:
            self._running.hub.add_info_column(self._layout.info_column(self._running.arena, column))
        for worker, first in enumerate(self._announced):
            if first < len(columns):
                with suppress(BrokenPoolError):  # a dead worker needs no columns
                    self._exchange.notify(worker, dump(AddInfoColumns(columns[first:], first)))
                self._announced[worker] = len(columns)


def _look(maker: weakref.ref[InfoColumnAssignment], batch: Batch) -> None:
    if (there := maker()) is not None:
        there.look(batch)


def _note_unpickling(running: weakref.ref[Running], nanoseconds: int) -> None:
    """Adds the time of unpickling an info to the figures of a pool that is still open."""
    if (there := running()) is not None and there.is_there:
        there.hub.caller.note_unpickled(nanoseconds)
