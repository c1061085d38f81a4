"""The progress bar of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from remuda._progress import bar


class Progress:
    """What is told of the episodes; this one shows nothing."""

    def note_round(self) -> None:
        """The envs have made a step."""

    def note_episode(self) -> None:
        """One more is done."""


class Counted(Progress):
    """A bar on stderr that appears after a while."""

    def __init__(self, episodes: int, after: float) -> None:
        """`after`: seconds."""
        self._done, self._bar = 0, bar.Bar("episodes", episodes, after, stays=True)
        self.note_round()

    def note_round(self) -> None:
        self._bar.show(lambda: self._done)

    def note_episode(self) -> None:
        self._done += 1

    def stop(self) -> None:
        self._bar.finish(self._done)


@contextmanager
def progress_of(episodes: int, shown: bool | None) -> Iterator[Progress]:
    """What to tell of the episodes while the block runs.

    Args:
        episodes: How many there will be.
        shown: True: a bar at once. None: a bar where it takes longer, and somebody watches; see `bar.is_watched`.

    Raises:
        MissingFrameworkError: It is True, and rich is not installed.
    """
    if shown is False or (shown is None and not bar.is_watched()):
        yield Progress()
        return
    counted = Counted(episodes, 0.0 if shown else bar.PATIENCE)
    try:
        yield counted
    finally:
        counted.stop()
