"""Makes the data without a column of rows that no worker makes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from remuda._engine.batches.infos import KeptObjects, KeptObservation, MadeEnd, MadeRow, rows_of_env
from remuda._engine.running import Running


class PoolRows:
    """Makes rows from the last observations of envs that have failed. The core calls it when an outcome has such a row.

    Whoever makes a `PoolRows` keeps it as long as the pool runs.
    """

    def __init__(self, running: Running) -> None:
        self._running, self._layout = running, running.layout
        running.hub.callbacks.make_rows = partial(_make, weakref.ref(self))  # weak, because the hub would be in a cycle

    def __call__(self, first: int, infos: Sequence[dict[str, Any]] | None, is_terminal: bool) -> Any:
        """Returns the data as the hub keeps them: those of the env's one row, or a tuple of those of a vector env's.

        Args:
            first: The slot of the env, or the first slot of a vector env.
            infos: The info of each slot; None: empty ones.
            is_terminal: Whether the row has the terminal observation, and a reset completes it. Otherwise the row
                repeats the last observation.
        """
        make = self._terminal if is_terminal else self._repeated
        slots = self._layout.ids_with(first)
        each = tuple(make(slot, {} if infos is None else infos[i]) for i, slot in enumerate(slots))
        return each[0] if self._layout.vector_size is None else each

    def _repeated(self, slot: int, info: dict[str, Any]) -> MadeRow:
        return MadeRow(self._objects(slot), info)

    def _terminal(self, slot: int, info: dict[str, Any]) -> MadeEnd:
        codec = self._layout.observation
        if not codec.num_objects:
            return MadeEnd(None, info)
        row, _ = self._running.slots.last(slot)
        leaves = [column.read(row).copy() for column in self._layout.result_columns(self._running.arena).obs]
        return MadeEnd(KeptObservation(codec.nest, leaves, self._objects(slot)), info)

    def _objects(self, slot: int) -> list[Any] | KeptObjects:
        """Returns the values in a slot's last observation that have no column."""
        slots = self._layout.ids_with(slot)  # slot ids are env ids, because vector envs have no spares
        parts = self._running.slots.last(slots[0])[1]
        count = self._layout.observation.num_objects
        if not count:
            return []
        if parts is not None and self._layout.vector_size is not None:
            _, parts = rows_of_env(parts, len(slots))[slot - slots[0]]
        if parts is None:  # the env has failed in its first reset
            return [None] * count
        if isinstance(parts, MadeRow):
            return parts.objects
        return KeptObjects([bytes(part) for part in parts], count)


def _make(
    reference: weakref.ref[PoolRows], first: int, infos: Sequence[dict[str, Any]] | None, is_terminal: bool
) -> Any:
    rows = reference()
    assert rows is not None  # the engine keeps it
    return rows(first, infos, is_terminal)
