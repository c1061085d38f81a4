"""Shows the progress of a pool's start: to its caller in a progress bar, and to other processes in a `BuildBoard`."""

from __future__ import annotations

import os
import time
from types import TracebackType

from remuda._backends.base import BuildProgress
from remuda._engine.options.settings import Settings
from remuda._engine.stats.durations import span
from remuda._progress import bar
from remuda._wire.build_board import BuildBoard, BuildCard, EnvBuild
from remuda._wire.card import start_of
from remuda._worker.worker_info import worker_info


class StartProgress(BuildProgress):
    """The progress of one pool's start. A progress bar appears if the start takes long and a terminal shows it."""

    def __init__(self, settings: Settings) -> None:
        num_envs = settings.num_envs // settings.width
        is_watched = bar.is_watched() and worker_info() is None  # no bar in workers, which share one terminal
        self._bar = bar.Bar("building envs", num_envs, bar.PATIENCE) if is_watched else None
        self._begin = time.monotonic_ns()

    def begin(self, settings: Settings) -> None:
        """Makes a new `BuildBoard`, to which the pool's workers write while they build all envs."""
        before = self.board
        card = BuildCard(
            os.getpid(),
            start_of(os.getpid()),
            settings.name,
            settings.backend,
            tuple(count // settings.width for count in settings.envs_of_worker()),
            settings.width,
            self._begin,
        )
        try:
            self.board = BuildBoard(card)
        except OSError:  # no descriptor is free: a later call that needs one raises
            self.board = None
        if before is not None:
            before.close()  # after the new board was made, so that `remuda top` always finds a board

    def show(self, *, at_once: bool = False) -> float | None:
        if self._bar is None or self.board is None:
            return None
        board = self.board
        return self._bar.show(lambda: board.num_built, lambda: slowest_in_words(board.builds()), at_once=at_once)

    def hide(self) -> None:
        if self._bar is not None:
            self._bar.hide()

    def _close_board(self) -> None:
        if self.board is not None:
            self.board.close()
        self.board = None

    def __enter__(self) -> StartProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        self._close_board()


def slowest_in_words(builds: list[EnvBuild]) -> str:
    """Returns a text that names the env with the longest build so far."""
    begun = [build for build in builds if build.seconds is not None]
    if not begun:
        return "workers start"
    slowest = max(begun, key=lambda build: build.seconds or 0.0)
    return f"slowest: env {slowest.env_id}, {span(slowest.seconds or 0.0)}{'' if slowest.is_built else ' so far'}"
