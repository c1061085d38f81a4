"""Progress bars, for what takes longer than somebody likes to wait without a word."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

PATIENCE = 2.0  # seconds before a bar shows that nobody has asked for
clock: Callable[[], float] = time.monotonic


class Progress:
    """What is told of the episodes; this one shows nothing."""

    def note_round(self) -> None:
        """The envs have made a step."""

    def note_episode(self) -> None:
        """One more is done."""


class Bar(Progress):
    """A bar on stderr that appears after a while."""

    def __init__(self, episodes: int, after: float) -> None:
        """`after`: seconds."""
        self._episodes, self._done, self._due = episodes, 0, clock() + after
        self._bars: Any = None
        self.note_round()

    def note_round(self) -> None:
        if self._bars is None and clock() >= self._due:
            self._bars = _bars()
            self._task = self._bars.add_task("", total=self._episodes, completed=self._done)
            self._bars.start()

    def note_episode(self) -> None:
        self._done += 1
        if self._bars is not None:
            self._bars.update(self._task, completed=self._done)

    def stop(self) -> None:
        if self._bars is not None:
            self._bars.stop()


@contextmanager
def progress_of(episodes: int, shown: bool | None) -> Iterator[Progress]:
    """What to tell of the episodes while the block runs.

    Args:
        episodes: How many there will be.
        shown: True: a bar at once. None: a bar where it takes longer, stderr is a terminal and rich is installed.

    Raises:
        ImportError: It is True, and rich is not installed.
    """
    if shown is False or (shown is None and not _has_watcher()):
        yield Progress()
        return
    bar = Bar(episodes, 0.0 if shown else PATIENCE)
    try:
        yield bar
    finally:
        bar.stop()


def _has_watcher() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and find_spec("rich") is not None


def _bars() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
    except ModuleNotFoundError as missing:
        raise ImportError(
            "progress=True needs rich, which is not installed: pip install rich", name="rich"
        ) from missing
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Bars(*columns, console=Console(stderr=True))
