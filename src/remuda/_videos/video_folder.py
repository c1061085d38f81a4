"""The files through which the recorders of several envs, often in several processes, make videos together.

No lock is needed: a recorder claims the parts of a video by renaming their folder. A recorder may therefore be killed
at any time, and the recorder of the rebuilt env continues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VideoFolder:
    """The files of a group of envs: the recorded episodes, and the progress of their videos."""

    folder: Path  # the folder for the videos.
    scratch: Path  # the folder inside `folder` for the parts of videos.
    env_ids: tuple[int, ...]  # the envs of a video, in the order of their tiles.
    trigger: Callable[[int], bool]  # returns whether the episode with this number is recorded
    name_prefix: str
    fps: float | None = None  # the frame rate; None: the rate in the envs' metadata

    def next_episode(self, env_id: int) -> int:
        """Counts an episode of this env, and returns its number from 0 up. Rebuilt envs continue the count."""
        with (self.scratch / f"count-{env_id}").open("ab", buffering=0) as file:  # the file has a byte for each episode
            number = file.tell()
            file.write(b"x")
        return number

    def reel(self, env_id: int, episode: int) -> Path:
        """Returns the file for the pictures of an episode, until `hand_in` moves it."""
        return self.scratch / f"{env_id}-{episode}.reel"

    def open_reels(self, env_id: int) -> list[tuple[int, Path]]:
        """Returns (number, file) for each episode of this env with pictures that were not handed in."""
        files = self.scratch.glob(f"{env_id}-*.reel")
        return [(int(file.stem.partition("-")[2]), file) for file in files]

    def hand_in(self, env_id: int, episode: int, reel: Path) -> None:
        """Moves the pictures of an episode that has ended to the parts of its video."""
        parts = self._parts(episode)
        try:
            # Checked in this order, because `settle` marks the episode before it removes the folder `making-...`.
            if any(self.scratch.glob(f"making-{episode}-*")) or self._is_settled(episode):
                raise FileNotFoundError
            parts.mkdir(exist_ok=True)
            os.replace(reel, parts / str(env_id))
        except FileNotFoundError:  # the env was closed meanwhile, and the video was made without this part
            reel.unlink(missing_ok=True)

    def leave(self, env_id: int) -> None:
        """Notes that this env is closed: until `come_back`, no video waits for its pictures."""
        self._closed(env_id).touch()

    def come_back(self, env_id: int) -> None:
        """Notes that this env is used again, so that videos wait for its pictures."""
        self._closed(env_id).unlink(missing_ok=True)

    def waiting(self) -> list[int]:
        """Returns the episodes with parts of a video that no recorder has claimed."""
        return sorted(int(folder.name.partition("-")[2]) for folder in self.scratch.glob("episode-*"))

    def claim(self, env_id: int, episode: int) -> Path | None:
        """Claims a video with all its parts for the recorder of this env, and returns the folder of the parts.

        Returns None if a part is missing, or if another recorder has claimed the video.
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
        """Yields (episode, folder) of the videos that a recorder of this env has claimed and not finished."""
        for folder in list(self.scratch.glob(f"making-*-{env_id}")):
            episode = int(folder.name.split("-")[1])
            if self._is_settled(episode):
                self.settle(episode, folder)
            else:
                yield episode, folder

    def settle(self, episode: int, folder: Path) -> None:
        """Removes the parts of a video that was written or has failed. Parts that are handed in later are dropped."""
        self._settled.touch()
        with self._settled.open("r+b", buffering=0) as file:
            file.seek(episode)
            file.write(b"x")
        shutil.rmtree(folder)

    def video(self, episode: int) -> Path:
        """Returns the file of the finished video."""
        return self.folder / f"{self.name_prefix}-episode-{episode}.mp4"

    def _parts(self, episode: int) -> Path:
        return self.scratch / f"episode-{episode}"

    def _closed(self, env_id: int) -> Path:
        return self.scratch / f"closed-{env_id}"

    @property
    def _settled(self) -> Path:
        """The file with a byte for each episode: not zero if the video of the episode was written or failed."""
        return self.scratch / "settled"

    def _is_settled(self, episode: int) -> bool:
        try:
            with self._settled.open("rb", buffering=0) as file:
                file.seek(episode)
                return file.read(1) == b"x"
        except FileNotFoundError:
            return False
