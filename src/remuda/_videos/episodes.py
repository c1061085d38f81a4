"""Numbers the episodes of an env, and chooses those to record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remuda._system.directories import make_writable


@dataclass(frozen=True)
class Episodes:
    """The episodes of one env. A hidden file has their number, so that a rebuilt env continues the count.

    Attributes:
        folder: The folder of the videos and of the hidden file.
        name: The beginning of the files' names.
        trigger: Returns whether the episode with a given number is recorded.
    """

    folder: Path
    name: str
    trigger: Callable[[int], bool]

    def start(self) -> Episodes:
        """Makes the folder, and starts the count at 0. Raises OSError if the folder cannot be made."""
        make_writable(self.folder, "folder")
        self._count.unlink(missing_ok=True)
        return self

    def next_video(self) -> Path | None:
        """Counts an episode. Returns the file for its video, or None if the episode is not recorded."""
        with self._count.open("ab", buffering=0) as file:  # the file has a byte for each episode
            episode = file.tell()
            file.write(b"x")
        return self.folder / f"{self.name}-episode-{episode}.mp4" if self.trigger(episode) else None

    @property
    def _count(self) -> Path:
        return self.folder / f".{self.name}.episodes"
