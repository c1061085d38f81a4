"""A pool of another process that is still building its envs."""

from __future__ import annotations

import time
from typing import Any

from remuda._engine.stats.durations import span
from remuda._watch.seen_pool import SeenPool
from remuda._wire.build_board import BuildBoard, BuildCard, EnvBuild


class StartingPool(SeenPool):
    """A starting pool of another process, read from the board to which its workers write."""

    card: BuildCard

    def __init__(self, fd: int) -> None:
        """Raises NoBoardError, OSError or ValueError if the file is not a board that can be mapped."""
        super().__init__(fd)
        self._board = BuildBoard.open(fd, writes=False)
        self.card = card = self._board.card
        self.sizes = str(sum(card.envs_of_worker)), str(len(card.envs_of_worker))
        self.title = f"{self.sizes[0]} envs in {self.sizes[1]} {card.backend} workers, being started"

    def look(self) -> list[EnvBuild]:
        """Returns the builds of all envs, in this order: running (longest first), not begun, completed."""
        return sorted(self._board.builds(), key=lambda build: (build.is_built, -(build.seconds or 0.0)))

    def as_json(self, first: list[EnvBuild], last: list[EnvBuild]) -> dict[str, Any]:
        """Returns the state of each env in the snapshot `last`."""
        return {"name": self.name, "pid": self.pid, "starting": [vars(build) for build in last]}

    def close(self) -> None:
        """Unmaps the board."""
        self._board.close()

    def progress(self, builds: list[EnvBuild]) -> str:
        """Returns a sentence about the envs of a snapshot that are built and that are being built."""
        built = sum(build.is_built for build in builds)
        under_way = [build for build in builds if build.seconds is not None and not build.is_built]
        since = span((time.monotonic_ns() - self.card.begin) / 1e9)
        shares = f"{built} of {len(builds)} envs are built, {len(under_way)} are being built, for {since} so far"
        if not under_way:
            return shares if built else f"{shares}; its workers are being started: they import what they need first"
        in_factory = f"env {under_way[0].env_id} has been in its factory for {span(under_way[0].seconds or 0.0)}"
        return f"{shares}; {in_factory}: remuda stacks {self.pid} shows where it is"
