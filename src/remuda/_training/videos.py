"""Videos of chosen episodes of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path

from remuda import Pool, RemudaError
from remuda._videos.attached import detach, expect
from remuda._videos.recording import EveryNth
from remuda._videos.scratch_folder import new_scratch, remove_scratch
from remuda._videos.video_folder import VideoFolder

_NAME = "evaluation"
_PATIENCE = 5.0  # the most seconds to wait for envs after a failure, because an env may hang


class Videos:
    """Records chosen episodes. The worker of an episode's env writes the video when the episode is over.

    Attributes:
        written: The files, after `finish` has returned.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, episodes: Set[int]) -> None:
        """`episodes` are the numbers of the episodes to record. If there are none, `folder` may be None."""
        self._folder, self._chosen = folder, episodes
        self._ended: list[int] = []
        self._albums: dict[int, VideoFolder] = {}  # the video folder of each env
        self._scratch: Path | None = None
        self.written: tuple[Path, ...] = ()

    def attach(self, pool: Pool) -> None:
        """Prepares recording in the envs of a pool, and makes the folder for videos.

        Raises:
            ValueError: The envs do not render frames.
            OSError: The folder cannot be made.
        """
        self._pool = pool
        if self._folder is None or not self._chosen:
            return
        if pool.render_mode != "rgb_array":
            raise ValueError(f"expected envs with render_mode='rgb_array' for videos, got {pool.render_mode!r}")
        self._scratch = new_scratch(self._folder)
        for env in {episode % pool.num_envs for episode in self._chosen}:
            self._albums[env] = VideoFolder(Path(self._folder).absolute(), self._scratch, (env,), EveryNth(1), _NAME)

    def begin(self, episodes: Mapping[int, int]) -> None:
        """Makes envs, or the envs rebuilt in their place, record their next episodes, if these are chosen.

        `episodes` has the next episode of each env.
        """
        chosen = {env: episode for env, episode in episodes.items() if episode in self._chosen}
        if chosen:
            per_env = [(self._albums[env], env, episode) for env, episode in chosen.items()]
            self._pool.apply_async(expect, per_env_args=per_env, env_ids=list(chosen), about=_NAME).result()

    def note_end(self, episode: int) -> None:
        """Notes that an episode has ended without a fault. Its video is then one of the results."""
        if episode in self._chosen:
            self._ended.append(episode)

    def abandon(self) -> None:
        """Stops recording after a failure. Waits a few seconds for envs to finish their videos."""
        if self._scratch is not None:
            with suppress(RemudaError, TimeoutError):
                self._pool.apply_async(detach, env_ids=list(self._albums), about=_NAME).result(_PATIENCE)

    def finish(self) -> None:
        """Stops recording, and waits for the videos that are still being written."""
        if self._scratch is None:
            return
        self._pool.apply_async(detach, env_ids=list(self._albums), about=_NAME).result()
        files = [self._albums[episode % self._pool.num_envs].video(episode) for episode in self._ended]
        self.written = tuple(file for file in files if file.exists())

    def __enter__(self) -> Videos:
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the scratch folders. The evaluation has closed its own pool, so no worker writes to them."""
        if self._scratch is not None:
            remove_scratch(self._scratch)
