"""Shows in a progress bar how many of a pool's envs are built, while its shards start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from remuda._cluster.station import Station
from remuda._progress import bar
from remuda._wording import name_some


class StartBar:
    """A bar that appears where shards take long to build their envs and somebody watches."""

    def __init__(self, stations: Sequence[Station], width: int) -> None:
        """`width`: of a vector env; it is built as one."""
        self._stations, self._width = stations, width
        self._bar = bar.Bar("building envs", self._count(stations), bar.PATIENCE) if bar.is_watched() else None

    def wait_time(self, deadline: float | None) -> float | None:
        """Draws it if it is time for that; returns the seconds until it is again, or until the deadline."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if self._bar is None:
            return left
        pause = self._bar.show(self._built, self._missing)
        return pause if left is None else min(left, pause)

    def _built(self) -> int:
        return self._count([station for station in self._stations if station.building is None])

    def _missing(self) -> str:
        building = [station.share.shard for station in self._stations if station.building is not None]
        return f"waits for {name_some('shard', building)}"

    def _count(self, stations: Sequence[Station]) -> int:
        return sum(station.share.count for station in stations) // self._width

    def __enter__(self) -> StartBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.hide()
