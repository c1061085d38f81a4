"""Decides how long a pool waits for its shards to start, and says which shard waits for what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

from remuda._cluster import actors
from remuda._cluster.room import Room, in_words
from remuda._cluster.station import Station
from remuda._relay.log import logger
from remuda.errors import StartTimeoutError

_LOOK = 1.0  # seconds between two looks at the cluster
_JOINING = 30.0  # seconds for a machine to join a cluster without autoscaler, if no machine has what a shard needs


class StartWait:
    """The wait for shards to build their envs.

    Attributes:
        next_look: The time of `time.monotonic` at which `look` is due.
    """

    def __init__(self, room: Room, timeout: float | None) -> None:
        self._room, self._timeout = room, timeout
        self._began = time.monotonic()
        self._deadline = inf if timeout is None else self._began + timeout
        self._has_warned = False
        self.next_look = min(self._began + _LOOK, self._deadline)

    def look(self, building: Sequence[Station]) -> None:
        """Checks whether to go on waiting for these shards.

        Raises StartTimeoutError after the timeout, or if no machine of the cluster can ever run a shard.
        """
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = min(now + _LOOK, max(self._deadline, now))
        waiting = [station for station in building if not actors.wait([station.located], 1, 0)]
        shortage = self._room.shortage() if waiting else None
        if now >= self._deadline:
            raise StartTimeoutError(
                f"expected all shards to build their envs within start_timeout={self._timeout} s, got {len(building)} "
                f"that had not: {'; '.join(self._state_of(station, waiting, shortage) for station in building)}"
            )
        if shortage is None:
            return
        if now >= self._began + _JOINING:
            raise StartTimeoutError(f"expected a cluster with room for each shard, but {shortage}")
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s, which a shard needs; waiting %.0f s for one to join", shortage, _JOINING)

    def _state_of(self, station: Station, waiting: Sequence[Station], shortage: str | None) -> str:
        shard = f"shard {station.share.shard}"
        if station not in waiting:
            return f"{shard} is still building its envs{_place_of(station)}"
        need = in_words(self._room.bundle)
        return f"{shard} waits for {need}, and {shortage}" if shortage else f"{shard} waits for {need} to become free"


def _place_of(station: Station) -> str:
    try:
        return f" on node {actors.get(station.located)}"
    except actors.Lost as error:
        return f" (its actor is gone: {error})"
