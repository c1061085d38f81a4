"""Shows the progress of building a pool's envs, while its shards start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from remuda._cluster.driver.link import ShardLink
from remuda._progress import bar
from remuda._wording import name_some


class StartBar:
    """A progress bar in the terminal. It appears if shards take long to build their envs."""

    def __init__(self, links: Sequence[ShardLink], width: int) -> None:
        """`width`: the number of envs that one factory builds."""
        self._links, self._width = links, width
        self._bar = bar.Bar("building envs", self._count(links), bar.PATIENCE) if bar.is_watched() else None

    def wait_time(self, deadline: float | None) -> float | None:
        """Draws the bar if that is due. Returns the seconds until it is due again, or until the deadline."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if self._bar is None:
            return left
        pause = self._bar.show(self._built, self._missing)
        return pause if left is None else min(left, pause)

    def _built(self) -> int:
        return self._count([link for link in self._links if link.report is not None])

    def _missing(self) -> str:
        building = [link.share.shard for link in self._links if link.report is None]
        return f"waits for {name_some('shard', building)}"

    def _count(self, links: Sequence[ShardLink]) -> int:
        return sum(link.share.count for link in links) // self._width

    def __enter__(self) -> StartBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.hide()
