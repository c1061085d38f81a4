"""The files in one folder by which the recorders of several envs, perhaps in several processes, work together.

No lock is needed: a recorder claims the parts of a video by renaming their folder. So a recorder may be killed at any
time, and the recorder of the env that is built in its place continues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VideoFolder:
    """The episodes that are recorded of a group of envs, and the progress of their videos."""

    folder: Path  # for the videos
    scratch: Path  # a folder in it, for the parts of videos
    env_ids: tuple[int, ...]  # of a video, in the order of their tiles
    trigger: Callable[[int], bool]  # whether an episode is recorded, by its number
    name_prefix: str
    fps: float | None = None  # None: as the envs' metadata say

    def next_episode(self, env_id: int) -> int:
        """The number of the episode that this env begins now: 0, 1, ..., also when the env has been rebuilt."""
        with (self.scratch / f"count-{env_id}").open("ab", buffering=0) as file:  # with a byte for each episode
            number = file.tell()
            file.write(b"x")
        return number

    def reel(self, env_id: int, episode: int) -> Path:
        """The file for the pictures while the episode lasts."""
        return self.scratch / f"{env_id}-{episode}.reel"

    def open_reels(self, env_id: int) -> list[tuple[int, Path]]:
        """(episode, file) of the pictures that were not handed in."""
        files = self.scratch.glob(f"{env_id}-*.reel")
        return [(int(file.stem.partition("-")[2]), file) for file in files]

    def hand_in(self, env_id: int, episode: int, reel: Path) -> None:
        """Makes the pictures of an episode that is over this env's part of the video."""
        parts = self._parts(episode)
        try:
            # In this order: an episode is settled before its folder is removed.
            if any(self.scratch.glob(f"making-{episode}-*")) or self._is_settled(episode):
                raise FileNotFoundError
            parts.mkdir(exist_ok=True)
            os.replace(reel, parts / str(env_id))
        except FileNotFoundError:  # the others have not waited for it, as its env was closed meanwhile
            reel.unlink(missing_ok=True)

    def leave(self, env_id: int) -> None:
        """Notes that this env is closed: no video waits for it until it comes back."""
        self._closed(env_id).touch()

    def come_back(self, env_id: int) -> None:
        """Notes that this env is used again."""
        self._closed(env_id).unlink(missing_ok=True)

    def waiting(self) -> list[int]:
        """Episodes of which parts were handed in, and which no recorder has claimed."""
        return sorted(int(folder.name.partition("-")[2]) for folder in self.scratch.glob("episode-*"))

    def claim(self, env_id: int, episode: int) -> Path | None:
        """Returns the folder with the parts of a video that is complete, which the recorder of this env makes then.

        None: a part is missing, or another recorder has claimed it.
        """
        claimed = self.scratch / f"making-{episode}-{env_id}"
        try:
            handed_in = {int(name) for name in os.listdir(self._parts(episode))}
            if not all(self._closed(missing).exists() for missing in set(self.env_ids) - handed_in):
                return None
            self._parts(episode).rename(claimed)
        except FileNotFoundError:
            return None
        return claimed

    def claimed(self, env_id: int) -> Iterator[tuple[int, Path]]:
        """(episode, folder) of what the recorder of this env has claimed, and not made."""
        for folder in list(self.scratch.glob(f"making-*-{env_id}")):
            episode = int(folder.name.split("-")[1])
            if self._is_settled(episode):
                self.settle(episode, folder)
            else:
                yield episode, folder

    def settle(self, episode: int, folder: Path) -> None:
        """Removes the parts of a video that is made, or could not be made: parts that come later are dropped."""
        self._settled.touch()
        with self._settled.open("r+b", buffering=0) as file:
            file.seek(episode)
            file.write(b"x")
        shutil.rmtree(folder)

    def video(self, episode: int) -> Path:
        """The finished video."""
        return self.folder / f"{self.name_prefix}-episode-{episode}.mp4"

    def _parts(self, episode: int) -> Path:
        return self.scratch / f"episode-{episode}"

    def _closed(self, env_id: int) -> Path:
        return self.scratch / f"closed-{env_id}"

    @property
    def _settled(self) -> Path:
        """A file with a byte for each episode: not zero if the episode is settled."""
        return self.scratch / "settled"

    def _is_settled(self, episode: int) -> bool:
        try:
            with self._settled.open("rb", buffering=0) as file:
                file.seek(episode)
                return file.read(1) == b"x"
        except FileNotFoundError:
            return False
