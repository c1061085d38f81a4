"""The live view of pools: reads their figures every now and then, and follows the keys."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from remuda._engine.stats.pool_stats import PoolStats
from remuda._watch import start_page
from remuda._watch.dump import dump
from remuda._watch.finding import NotFoundError, find
from remuda._watch.keys import Keys
from remuda._watch.pages import Row, View, rows
from remuda._watch.screen import draw, draw_start
from remuda._watch.starting_pool import StartingPool
from remuda._watch.watched_pool import WatchedPool

_LATE = 5  # so many looks make up what was of late


class Top:
    """Shows pools one at a time, until the user leaves or there is none any more.

    One that is being started is followed into what becomes of it.
    """

    def __init__(self, pools: Sequence[WatchedPool | StartingPool], console: Console, interval: float) -> None:
        """`interval`: seconds between two looks. The pools are closed when they have ended; see `close`."""
        self._pools, self._console, self._interval = list(pools), console, interval
        self._view, self._notice = View(), ""
        self._seen: deque[PoolStats] = deque(maxlen=_LATE)

    def run(self, keys: Keys) -> str:
        """Returns what there is to be told at the end; empty where the user has left."""
        with Live(console=self._console, screen=True, auto_refresh=False, transient=True) as live:
            self._look()
            while True:
                live.update(self.frame(), refresh=True)
                deadline = time.monotonic() + self._interval
                while pressed := keys.wait(max(0.0, deadline - time.monotonic())):
                    if "q" in pressed:
                        return ""
                    for key in pressed:
                        self._press(key)
                    live.update(self.frame(), refresh=True)
                if ended := self._drop_those_that_ended():
                    if not self._pools:
                        return ended
                    self._notice = ended
                self._look()

    def frame(self) -> RenderableType:
        """The whole screen, as of the last look."""
        number = f" ({self._number} of {len(self._pools)})" if len(self._pools) > 1 else ""
        pool = self._pools[0]
        if isinstance(pool, StartingPool):
            return draw_start(pool, number, self._view.cursor, self._console, self._notice)
        return draw(pool, number, self._seen[-1], self._late(), self._view, self._console, self._notice)

    def close(self) -> None:
        """Lets go of the pools."""
        for pool in self._pools:
            pool.close()

    @property
    def _number(self) -> int:
        order = sorted(self._pools, key=lambda pool: (pool.card.owner, id(pool)))
        return order.index(self._pools[0]) + 1

    def _look(self) -> None:
        pool = self._pools[0]
        if isinstance(pool, WatchedPool):
            self._seen.append(pool.stats())

    def _late(self) -> PoolStats:
        first, last = self._seen[0], self._seen[-1]
        return last if first is last else last - first

    def _press(self, key: str) -> None:
        self._notice = ""
        if key == "tab":
            self._pools.append(self._pools.pop(0))
            self._begin()
        elif key == "j":
            self._save()
        else:
            self._view = self._view.press(key, self._rows())

    def _rows(self) -> list[Row]:
        pool = self._pools[0]
        return start_page.rows(pool.builds()) if isinstance(pool, StartingPool) else rows(self._late(), self._view)

    def _begin(self) -> None:
        """With another pool."""
        self._view = View()
        self._seen.clear()
        self._look()

    def _save(self) -> None:
        pool = self._pools[0]
        path = Path(f"remuda-top-{pool.card.owner}-{time.strftime('%H%M%S')}.json")
        try:
            path.write_text(json.dumps(self._dumped(pool), indent=2) + "\n")
            self._notice = f"written: {path}"
        except OSError as error:
            self._notice = f"{path} could not be written: {error.strerror}"

    def _dumped(self, pool: WatchedPool | StartingPool) -> dict[str, Any]:
        return start_page.dump(pool) if isinstance(pool, StartingPool) else dump(pool, self._seen[-1], self._late())

    def _drop_those_that_ended(self) -> str:
        """What there is to be told of them."""
        shown, told = self._pools[0], ""
        for pool in [pool for pool in self._pools if not pool.is_open]:
            told = pool.end_in_words()
            self._pools.remove(pool)
            pool.close()
            if isinstance(pool, StartingPool) and (those := self._what_became_of(pool)):
                self._pools[:0], told = those, ""
        if self._pools and self._pools[0] is not shown:
            self._begin()
        return told

    def _what_became_of(self, pool: StartingPool) -> list[WatchedPool | StartingPool]:
        """Pools of its process that are not shown yet."""
        try:
            found = find(pool.card.owner)
        except NotFoundError:
            return []
        shown = {one.owner.file for one in self._pools}
        fresh = [one for one in found.all if one.owner.file not in shown]
        for one in found.all:
            if one not in fresh:
                one.close()
        return fresh
