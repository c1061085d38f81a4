"""Videos of chosen episodes of an evaluation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path

from remuda import Pool, RemudaError
from remuda._videos.album import Album
from remuda._videos.attached import detach, expect
from remuda._videos.recording import EveryNth, new_scratch

_NAME = "evaluation"


class Videos:
    """Has chosen episodes recorded where their envs live, and each written when it is over.

    Attributes:
        written: The files, when `finish` has returned.
    """

    def __init__(self, pool: Pool, folder: str | os.PathLike[str] | None, episodes: Set[int]) -> None:
        """`episodes`: none for no videos at all, for which there may be no folder.

        Raises:
            ValueError: Envs that do not render frames.
            OSError: The folder cannot be made.
        """
        self._pool, self._chosen = pool, episodes
        self._ended: list[int] = []
        self._albums: dict[int, Album] = {}  # by env
        self._scratch: Path | None = None
        self.written: tuple[Path, ...] = ()
        if folder is None or not episodes:
            return
        if pool.render_mode != "rgb_array":
            raise ValueError(f"expected envs with render_mode='rgb_array' for videos, got {pool.render_mode!r}")
        self._scratch = new_scratch(folder)
        for env in {episode % pool.num_envs for episode in self._chosen}:
            self._albums[env] = Album(Path(folder).absolute(), self._scratch, (env,), EveryNth(1), _NAME)

    def begin(self, episodes: Mapping[int, int]) -> None:
        """`episodes`: which one each of these envs begins with its next reset. Those built anew are told, too."""
        chosen = {env: episode for env, episode in episodes.items() if episode in self._chosen}
        if chosen:
            told = [(self._albums[env], env, episode) for env, episode in chosen.items()]
            self._pool.apply_async(expect, per_env_args=told, env_ids=list(chosen), about=_NAME).result()

    def note_end(self, episode: int) -> None:
        """It is over, and counts."""
        if episode in self._chosen:
            self._ended.append(episode)

    def abandon(self) -> None:
        """Lets go of the envs without waiting for anything: the evaluation has failed."""
        if self._scratch is not None:
            with suppress(RemudaError):
                self._pool.apply_async(detach, env_ids=list(self._albums), about=_NAME)

    def finish(self) -> None:
        """Lets go of the envs, and waits for what is still being written."""
        if self._scratch is None:
            return
        try:
            self._pool.apply_async(detach, env_ids=list(self._albums), about=_NAME).result()
            files = [self._albums[episode % self._pool.num_envs].video(episode) for episode in self._ended]
            self.written = tuple(file for file in files if file.exists())
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
