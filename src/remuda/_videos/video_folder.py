"""What the recorders of several envs, each in a process of its own perhaps, know of each other: files in one folder.

Nothing is locked: who renames a folder has it. So a recorder may be killed at any time, and the one of the env that is
built in its place goes on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VideoFolder:
    """Which episodes of which envs are recorded, and what has become of them.

    Attributes:
        folder: Where the videos go.
        scratch: A folder in it, for what they are made of.
        env_ids: The envs of a video, in the order of their tiles.
        trigger: Whether an episode is recorded, by its number.
        name_prefix: Of the videos' names.
        fps: Pictures a second; None: as the envs' metadata say.
    """

    folder: Path
    scratch: Path
    env_ids: tuple[int, ...]
    trigger: Callable[[int], bool]
    name_prefix: str
    fps: float | None = None

    def next_episode(self, env_id: int) -> int:
        """The number of the episode that this env begins now: 0, 1, ..., also when it has been built anew."""
        file = self.scratch / f"count-{env_id}"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            number = int.from_bytes(os.read(descriptor, 8), "little")
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, (number + 1).to_bytes(8, "little"))  # at once: whole, or not at all
        finally:
            os.close(descriptor)
        return number

    def reel(self, env_id: int, episode: int) -> Path:
        """Where the pictures go while the episode lasts."""
        return self.scratch / f"{env_id}-{episode}.reel"

    def open_reels(self, env_id: int) -> list[tuple[int, Path]]:
        """(episode, file) of what was not handed in."""
        files = self.scratch.glob(f"{env_id}-*.reel")
        return [(int(file.stem.partition("-")[2]), file) for file in files]

    def hand_in(self, env_id: int, episode: int, reel: Path) -> None:
        """This env's part of a video is whole."""
        folder = self.scratch / f"episode-{episode}"
        try:
            if self._is_claimed(episode):
                raise FileNotFoundError
            folder.mkdir(exist_ok=True)
            os.replace(reel, folder / str(env_id))
        except FileNotFoundError:  # the others have not waited for it, as its env was closed meanwhile
            reel.unlink(missing_ok=True)

    def leave(self, env_id: int) -> None:
        """This env is closed: nobody waits for it any more, unless it comes back."""
        (self.scratch / f"closed-{env_id}").touch()

    def come_back(self, env_id: int) -> None:
        (self.scratch / f"closed-{env_id}").unlink(missing_ok=True)

    def claim(self, env_id: int, episodes: Iterable[int]) -> list[tuple[int, Path]]:
        """(episode, folder) of those that are complete: the recorder of this env has them now, and makes the videos."""
        return [(episode, folder) for episode in episodes if (folder := self._claim_one(env_id, episode)) is not None]

    def claimed(self, env_id: int) -> list[tuple[int, Path]]:
        """What the recorder of this env has claimed, and not made."""
        mine = [(int(folder.name.split("-")[1]), folder) for folder in self.scratch.glob(f"making-*-{env_id}")]
        for episode, folder in mine:
            if self._is_settled(episode):
                self.settle(episode, folder)
        return [(episode, folder) for episode, folder in mine if folder.exists()]

    def settle(self, episode: int, folder: Path) -> None:
        """Removes the parts of a video that is there, or could not be made: parts that come later are dropped."""
        descriptor = os.open(self._settled, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.lseek(descriptor, episode, os.SEEK_SET)
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)
        shutil.rmtree(folder)

    def waiting(self) -> list[int]:
        """Episodes that somebody has handed in, and nobody has claimed."""
        return sorted(int(folder.name.partition("-")[2]) for folder in self.scratch.glob("episode-*"))

    def video(self, episode: int) -> Path:
        return self.folder / f"{self.name_prefix}-episode-{episode}.mp4"

    def _claim_one(self, env_id: int, episode: int) -> Path | None:
        folder, mine = self.scratch / f"episode-{episode}", self.scratch / f"making-{episode}-{env_id}"
        try:
            handed_in = {int(name) for name in os.listdir(folder)}
            missing = set(self.env_ids) - handed_in
            if any(not (self.scratch / f"closed-{one}").exists() for one in missing):
                return None
            folder.rename(mine)
        except FileNotFoundError:  # somebody else has it
            return None
        return mine

    def _is_claimed(self, episode: int) -> bool:
        """In this order: an episode is settled before its folder is removed."""
        return any(self.scratch.glob(f"making-{episode}-*")) or self._is_settled(episode)

    @property
    def _settled(self) -> Path:
        """A file with a byte for each episode: not zero, once it is settled."""
        return self.scratch / "settled"

    def _is_settled(self, episode: int) -> bool:
        try:
            with self._settled.open("rb", buffering=0) as file:
                file.seek(episode)
                return file.read(1) == b"x"
        except FileNotFoundError:
            return False
