"""The wait for the shards of a pool to build their envs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

from remuda._cluster.driver.link import LinkState, ShardLink
from remuda._cluster.ray import actors
from remuda._cluster.ray.placement import Placement, in_words
from remuda._progress import bar
from remuda._relay.log import logger
from remuda._wording import name_some
from remuda.errors import StartTimeoutError

_LOOK = 1.0  # seconds between two checks of the cluster.
_JOINING = 30.0  # seconds in which a machine with room for a shard may join a cluster without autoscaler


class StartWait:
    """Waits for shards to build their envs. A progress bar appears in the terminal if that takes long."""

    def __init__(self, links: Sequence[ShardLink], placement: Placement, width: int, timeout: float | None) -> None:
        """`links`: those of all shards, for the bar. `width`: the number of envs that one factory builds."""
        self._links, self._placement, self._width, self._timeout = links, placement, width, timeout
        self._bar = bar.Bar("building envs", self._count(links), bar.PATIENCE) if bar.is_watched() else None
        self._began = time.monotonic()
        self._deadline = inf if timeout is None else self._began + timeout
        self._next_look = min(self._began + _LOOK, self._deadline)
        self._has_warned = False

    def next_answers(self, building: Sequence[ShardLink]) -> list[tuple[ShardLink, actors.Ref]]:
        """Waits for answers of the shards `building`. Returns each answer's shard and reference; none after a while.

        Raises StartTimeoutError after the timeout, or if no machine of the cluster can ever run a shard.
        """
        pause = max(0.0, self._next_look - time.monotonic())
        if self._bar is not None:
            pause = min(pause, self._bar.show(self._built, self._missing))
        refs = {ref: link for link in building for ref in link.refs}
        done = actors.wait(list(refs), 1, pause)
        if not done and time.monotonic() >= self._next_look:
            self._look(building)
        return [(refs[ref], ref) for ref in done]

    def _look(self, building: Sequence[ShardLink]) -> None:
        """Checks whether the pool may wait longer for the shards `building`."""
        now = time.monotonic()
        self._next_look = min(now + _LOOK, max(self._deadline, now))
        waiting = [link for link in building if link.state is LinkState.STARTING]
        shortage = self._placement.shortage() if waiting else None
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
        need = in_words(self._placement.bundle)
        return f"{shard} waits for {need}, and {shortage}" if shortage else f"{shard} waits for {need} to become free"

    # -- the bar -----------------------------------------------------------------------------------------

    def _built(self) -> int:
        return self._count([link for link in self._links if link.report is not None])

    def _missing(self) -> str:
        building = [link.share.shard for link in self._links if link.report is None]
        return f"waits for {name_some('shard', building)}"

    def _count(self, links: Sequence[ShardLink]) -> int:
        return sum(link.share.count for link in links) // self._width

    def hide_bar(self) -> None:
        if self._bar is not None:
            self._bar.hide()
