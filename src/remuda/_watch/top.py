"""The live view of pools: takes snapshots at intervals, and handles keys."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from remuda._watch.finding import NotFoundError, find
from remuda._watch.keys import Keys
from remuda._watch.pages import Page, View
from remuda._watch.screen import draw
from remuda._watch.seen_pool import SeenPool
from remuda._watch.starting_pool import StartingPool

_LATE = 5  # figures of the last seconds cover this number of snapshots


class Top:
    """The live view, which shows one pool at a time until the user quits or no pool is left.

    The list has only pools that are not closed: pools that have ended are closed and removed, and a starting pool
    is replaced by the pool that was started. `interval`: the seconds between two snapshots.
    """

    def __init__(self, pools: list[SeenPool], console: Console, interval: float) -> None:
        self._pools, self._console, self._interval = pools, console, interval
        self._view, self._notice = View(), ""
        self._seen: deque[Any] = deque(maxlen=_LATE)

    def run(self, keys: Keys) -> str:
        """Shows the live view. Returns the reason why the last pool has ended; "" if the user has quit."""
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
                if ended := self._drop_ended():
                    if not self._pools:
                        return ended
                    self._notice = ended
                self._look()

    def frame(self) -> RenderableType:
        """Returns the whole screen for the last snapshot."""
        pool, number = self._pools[0], ""
        if len(self._pools) > 1:
            order = sorted(self._pools, key=lambda one: (one.pid, id(one)))
            number = f" ({order.index(pool) + 1} of {len(order)})"
        title = f"remuda top  {pool.name}, process {pool.pid}{number}: {pool.title}"
        return draw(title, self._page(), self._view.cursor, self._console, self._notice)

    def _page(self) -> Page:
        return self._pools[0].page(self._seen[0], self._seen[-1], self._view)

    def _look(self) -> None:
        self._seen.append(self._pools[0].look())

    def _press(self, key: str) -> None:
        self._notice = ""
        if key == "tab":
            self._pools.append(self._pools.pop(0))
            self._show_first()
        elif key == "j":
            self._save()
        else:
            self._view = self._view.press(key, self._page().rows)

    def _show_first(self) -> None:
        self._view = View()
        self._seen.clear()
        self._look()

    def _save(self) -> None:
        pool = self._pools[0]
        path = Path(f"remuda-top-{pool.pid}-{time.strftime('%H%M%S')}.json")
        try:
            path.write_text(json.dumps(pool.as_json(self._seen[0], self._seen[-1]), indent=2) + "\n")
            self._notice = f"written: {path}"
        except OSError as error:
            self._notice = f"{path} could not be written: {error.strerror}"

    def _drop_ended(self) -> str:
        """Removes pools that have ended, and returns the reason why the last of them ended.

        Returns "" if no pool has ended, or if the last one was a starting pool that is open now.
        """
        shown, ended = self._pools[0], ""
        for pool in [pool for pool in self._pools if not pool.is_open]:
            ended = pool.end_in_words()
            self._pools.remove(pool)
            pool.close()
            if isinstance(pool, StartingPool) and (successors := self._new_pools_of(pool.pid)):
                self._pools[:0], ended = successors, ""
        if self._pools and self._pools[0] is not shown:
            self._show_first()
        return ended

    def _new_pools_of(self, pid: int) -> list[SeenPool]:
        """Finds pools of a process that are not shown yet."""
        try:
            found = find(pid)
        except NotFoundError:
            return []
        shown = {pool.file for pool in self._pools}
        for pool in found:
            if pool.file in shown:
                pool.close()
        return [pool for pool in found if pool.file not in shown]
