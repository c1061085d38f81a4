"""The wait for the shards of a pool to build their envs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

from remuda._cluster.driver.link import LinkState, ShardLink
from remuda._cluster.driver.receiver import Receiver
from remuda._cluster.ray.placement import Placement, in_words
from remuda._progress.bar import INTERVAL, BuildBar
from remuda._relay.log import logger
from remuda.errors import StartTimeoutError

_LOOK = 1.0  # seconds between two checks of the cluster.
_JOINING = 30.0  # seconds in which a machine with room for a shard may join a cluster without autoscaler


class StartWait:
    """Waits for shards to build their envs, and shows the progress if that takes long."""

    def __init__(
        self,
        links: Sequence[ShardLink],
        receiver: Receiver,
        placement: Placement,
        width: int,
        timeout: float | None,
    ) -> None:
        """`links`: those of all shards, for the bar. `width`: the number of envs that one factory builds."""
        self._links, self._receiver, self._placement, self._timeout = links, receiver, placement, timeout
        self._progress = BuildBar(env for link in links for env in link.share.env_ids[::width])
        self._began = time.monotonic()
        self._deadline = inf if timeout is None else self._began + timeout
        self._next_look = min(self._began + _LOOK, self._deadline)
        self._has_warned = False

    def await_reports(self, links: Sequence[ShardLink], on_loss: Callable[[ShardLink], None]) -> None:
        """Waits until these shards have built their envs. Calls `on_loss` for each shard that dies or fails.

        Raises StartTimeoutError after the timeout, or if no machine of the cluster can ever run a shard.
        """
        try:
            while building := [link for link in links if link.server is None]:
                self._handle_answers(building, on_loss)
        finally:
            self._progress.hide()

    def _handle_answers(self, building: Sequence[ShardLink], on_loss: Callable[[ShardLink], None]) -> None:
        for link in self._links:
            if link.server is not None:
                self._progress.missing.difference_update(link.share.env_ids)
        self._progress.show_builds()
        pause = min(INTERVAL, max(0.0, self._next_look - time.monotonic()))
        if not self._receiver.handle(pause) and time.monotonic() >= self._next_look:
            self._look(building)
        self._receiver.log()
        for link in building:
            if link.state is LinkState.GONE:
                on_loss(link)

    def _look(self, building: Sequence[ShardLink]) -> None:
        """Checks whether the pool may wait longer for the shards `building`."""
        now = time.monotonic()
        self._next_look = min(now + _LOOK, max(self._deadline, now))
        waiting = [link for link in building if link.state is LinkState.STARTING]
        shortage = self._placement.shortage() if waiting else None
        if now >= self._deadline:
            raise StartTimeoutError(
                f"expected all shards to build their envs within {self._timeout} s, got {len(building)} that had "
                f"not: {'; '.join(self._state_of(link, waiting, shortage) for link in building)}; give them more time "
                "with start_timeout="
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
        need = in_words(self._placement.bundle)
        return f"{shard} waits for {need}, and {shortage}" if shortage else f"{shard} waits for {need} to become free"
