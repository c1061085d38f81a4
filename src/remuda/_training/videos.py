"""Videos of chosen episodes of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path

from remuda import Pool, RemudaError
from remuda._videos.attaching import detach, expect

_NAME = "evaluation"
_PATIENCE = 5.0  # the most seconds to wait for envs after a failure, because an env may hang


class Videos:
    """Records chosen episodes, in the workers of their envs.

    Attributes:
        written: The files, after `finish` has returned.
    """

    def __init__(self, pool: Pool, folder: str | os.PathLike[str] | None, episodes: Set[int]) -> None:
        """Makes the folder.

        Args:
            pool: The pool of the envs.
            folder: The folder; None if there are no episodes to record.
            episodes: The numbers of the episodes to record.

        Raises:
            ValueError: The envs do not render frames.
            OSError: The folder cannot be made.
        """
        self._pool, self._folder, self._chosen = pool, Path(folder or "").absolute(), episodes
        self._envs = sorted({episode % pool.num_envs for episode in episodes})
        self._told: set[int] = set()  # the envs that record their next episode, however late it begins
        self._ended: list[int] = []
        self.written: tuple[Path, ...] = ()
        if episodes:
            if pool.render_mode != "rgb_array":
                raise ValueError(f"expected envs with render_mode='rgb_array' for videos, got {pool.render_mode!r}")
            pool._engine.rendering.note_request()
            self._folder.mkdir(parents=True, exist_ok=True)

    def begin(self, episodes: Mapping[int, int]) -> None:
        """Makes envs, or the envs rebuilt in their place, record their next episodes, if these are chosen.

        `episodes` has the next episode of each env. If it is not chosen, an env that is rebuilt later records nothing.
        """
        chosen = {env for env, episode in episodes.items() if episode in self._chosen}
        if envs := sorted(chosen | (self._told & episodes.keys())):
            per_env = [(self._video(episodes[env]) if env in chosen else None,) for env in envs]
            self._pool.apply_async(expect, per_env_args=per_env, env_ids=envs, about=_NAME).result()
        self._told = (self._told - episodes.keys()) | chosen

    def note_end(self, episode: int) -> None:
        """Notes that an episode has ended without a fault. Its video is then one of the results."""
        if episode in self._chosen:
            self._ended.append(episode)

    def abandon(self) -> None:
        """Stops recording after a failure. Waits a few seconds for envs to drop their videos."""
        with suppress(RemudaError, TimeoutError):
            self._detach(_PATIENCE)

    def finish(self) -> None:
        """Stops recording."""
        self._detach(None)
        self.written = tuple(file for file in map(self._video, self._ended) if file.exists())

    def _detach(self, timeout: float | None) -> None:
        if self._envs:
            self._pool.apply_async(detach, env_ids=self._envs, about=_NAME).result(timeout)

    def _video(self, episode: int) -> Path:
        return self._folder / f"{_NAME}-episode-{episode}.mp4"
