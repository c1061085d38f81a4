"""A pool of another process that is still building its envs."""

from __future__ import annotations

import time
from typing import Any

from remuda._engine.stats.durations import span
from remuda._watch.pages import Page, Row, View
from remuda._watch.seen_pool import SeenPool
from remuda._wire.build_board import BuildBoard, BuildCard, EnvBuild

_HEADINGS = ("env", "worker", "pid", "state", "takes")
_KEYS = "q quit  up down  tab next pool  j JSON"
_LATE = 3  # a build is late after this multiple of the time of the slowest completed build.
_LEAST_LATE = 1.0  # a build of fewer seconds is never late


class StartingPool(SeenPool):
    """A starting pool of another process, read from the board to which its workers write."""

    card: BuildCard
    _WHEN_CLOSED = "is no longer being started"

    def __init__(self, fd: int) -> None:
        """Raises NoBoardError, OSError or ValueError if the file is not a board that can be mapped."""
        super().__init__(fd)
        self._board = BuildBoard.open(fd, writes=False)
        self.card = card = self._board.card
        num_envs, num_workers = sum(card.envs_of_worker), len(card.envs_of_worker)
        self.title = f"{num_envs} envs in {num_workers} {card.backend} workers, being started"

    def look(self) -> list[EnvBuild]:
        """Returns the builds of all envs, in this order: running (longest first), not begun, completed."""
        return sorted(self._board.builds(), key=lambda build: (build.is_built, -(build.seconds or 0.0)))

    def page(self, first: list[EnvBuild], last: list[EnvBuild], view: View) -> Page:
        """Returns the page for the snapshot `last`. `first` and `view` have no effect."""
        slowest = max((build.seconds or 0.0 for build in last if build.is_built), default=float("inf"))
        late = max(_LEAST_LATE, _LATE * slowest)
        rows = [
            Row(build.env_id, _texts(build), is_late=not build.is_built and (build.seconds or 0.0) > late)
            for build in last
        ]
        return Page(self._summary(last), _KEYS, _HEADINGS, rows)

    def as_json(self, first: list[EnvBuild], last: list[EnvBuild]) -> dict[str, Any]:
        """Returns the state of each env in the snapshot `last`."""
        return {"name": self.name, "pid": self.pid, "starting": [vars(build) for build in last]}

    def close(self) -> None:
        """Unmaps the board."""
        self._board.close()

    def _summary(self, builds: list[EnvBuild]) -> tuple[str, str]:
        built = sum(build.is_built for build in builds)
        under_way = [build for build in builds if build.seconds is not None and not build.is_built]
        since = span((time.monotonic_ns() - self.card.begin) / 1e9)
        shares = f"{built} of {len(builds)} envs are built, {len(under_way)} are being built, for {since} so far"
        if not under_way:
            return shares, "" if built else "its workers are being started: they import what they need first"
        in_factory = f"env {under_way[0].env_id} has been in its factory for {span(under_way[0].seconds or 0.0)}"
        return shares, f"{in_factory}: remuda stacks {self.pid} shows where it is"


def _texts(build: EnvBuild) -> tuple[str, ...]:
    if build.seconds is None:
        state, takes = "has not begun", "-"
    else:
        state, takes = "is built" if build.is_built else "is being built", span(build.seconds)
    return str(build.env_id), str(build.worker), str(build.pid or "-"), state, takes
