"""Pickles the values in rows that have no column, and measures the cost of infos."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from remuda import _core
from remuda._wire.channel import Channel
from remuda._wire.exceptions import text_of
from remuda._wire.failures import dump_named, not_pickled
from remuda._wire.info_columns import field_of
from remuda._wire.pickling import Buffers, dump, dump_whole


class RowPickling:
    """The hooks by which a worker's loop pickles and sends the values in rows that have no column.

    `PoolStats` gets the time that infos take, and the key of the largest value. If an observation is pickled with an
    info, the info counts by its share of the bytes.
    """

    _loop: _core.WorkerLoop | None = None
    _largest, _share_of_infos = 0, 0.0  # the bytes of the largest measured row, and the info's share.
    _share_to_send = 0.0  # the share of the next row to send that is its info; 0 without an info

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def _get_loop(self) -> _core.WorkerLoop:
        assert self._loop is not None  # set, because only the loop calls the hooks
        return self._loop

    def freeze(self, obs: Any, info: dict[str, Any]) -> bytes:
        """Pickles a terminal observation and info, because the next reset may overwrite them."""
        begin = time.perf_counter_ns()
        try:
            whole = dump_whole((obs, info))
        except Exception as error:
            raise not_pickled("a terminal observation and info", (obs, info), error) from error
        if info:
            self._note_infos(begin, len(whole), info, is_alone=obs is None)
        return whole

    def pack(
        self,
        objects: list[Any],
        info: dict[str, Any] | None,
        wanted: list[tuple[tuple[str, ...], Any]] | None,
        final: bytes | None,
    ) -> Buffers:
        """Pickles the values in a row that have no column, as a tuple (objects, info, new fields, final).

        Args:
            objects: The leaves of its observation without columns.
            info: The values of its info without columns.
            wanted: Values of infos that may get a column, and their paths.
            final: The terminal observation and info, as `freeze` returned them.
        """
        begin = time.perf_counter_ns()
        fields = [field_of(path, value) for path, value in wanted] if wanted else []
        value = objects, info, [field for field in fields if field is not None], final
        parts = dump_named("an observation and an info", value, shown=2)
        if info:
            self._note_infos(begin, size_of(parts), info, is_alone=not objects)
        elif final is None:
            self._share_to_send = 0.0
        return parts

    def send(self, parts: Buffers) -> None:
        """Sends the pool a message that does not fit into the shared ring of bytes."""
        self._channel.send(parts)

    def send_row(self, parts: Buffers) -> None:
        """Sends the pickled values of rows, and counts the infos' share of the time that this takes."""
        begin = time.perf_counter_ns()
        self._channel.send(parts)
        self._get_loop().note_info(int(self._share_to_send * (time.perf_counter_ns() - begin)))

    def _note_infos(self, begin: int, size: int, info: Mapping[str, Any], *, is_alone: bool) -> None:
        """Counts the time that pickling an info took, and measures the info if it is much larger than before.

        Args:
            begin: The time of `perf_counter_ns` when pickling began.
            size: The bytes of the whole pickle.
            info: The values of the info without columns.
            is_alone: Whether no observation was pickled with it.
        """
        took = time.perf_counter_ns() - begin
        if size > 2 * self._largest:  # a high limit, because `_measure` pickles each value again
            self._largest = size
            with suppress(Exception):  # the step succeeds even if a value cannot be pickled alone
                self._measure(size, info)
        self._share_to_send = 1.0 if is_alone else self._share_of_infos
        self._get_loop().note_info(int(self._share_to_send * took))

    def _measure(self, size: int, info: Mapping[str, Any]) -> None:
        sizes = {key: size_of(dump(value)) for key, value in info.items()}
        self._share_of_infos = min(1.0, sum(sizes.values()) / size)
        largest = max(sizes, key=lambda key: sizes[key])
        self._get_loop().name_info(text_of(largest), sizes[largest])


def size_of(parts: Buffers) -> int:
    """Returns the bytes of all parts together."""
    return sum(memoryview(part).nbytes for part in parts)
