"""Limits the time that a pool waits for its shards to start, and reports why each shard waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

from remuda._cluster.driver.link import LinkState, ShardLink
from remuda._cluster.ray.room import Room, in_words
from remuda._relay.log import logger
from remuda.errors import StartTimeoutError

_LOOK = 1.0  # seconds between two checks of the cluster.
_JOINING = 30.0  # seconds in which a machine with room for a shard may join a cluster without autoscaler


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

    def look(self, building: Sequence[ShardLink]) -> None:
        """Checks whether the pool may wait longer for the shards `building`.

        Raises StartTimeoutError after the timeout, or if no machine of the cluster can ever run a shard.
        """
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = min(now + _LOOK, max(self._deadline, now))
        waiting = [link for link in building if link.state is LinkState.STARTING]
        shortage = self._room.shortage() if waiting else None
        if now >= self._deadline:
            raise StartTimeoutError(
                f"expected all shards to build their envs within start_timeout={self._timeout} s, got {len(building)} "
                f"that had not: {'; '.join(self._state_of(link, waiting, shortage) for link in building)}"
            )
        if shortage is None:
            return
        if now >= self._began + _JOINING:
            raise StartTimeoutError(f"expected a cluster with room for each shard, but {shortage}")
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s, which a shard needs; waiting %.0f s for one to join", shortage, _JOINING)

    def _state_of(self, link: ShardLink, waiting: Sequence[ShardLink], shortage: str | None) -> str:
        shard = f"shard {link.share.shard}"
        if link not in waiting:
            return f"{shard} is still building its envs on node {link.node}"
        need = in_words(self._room.bundle)
        return f"{shard} waits for {need}, and {shortage}" if shortage else f"{shard} waits for {need} to become free"
