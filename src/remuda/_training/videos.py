"""Videos of chosen episodes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from remuda import Pool

_NAME = "evaluation"
_FPS = 30  # where the envs do not say


class Videos:
    """Keeps the frames of chosen episodes while they are played, and writes each to a file at its end.

    Attributes:
        written: The files so far.
    """

    def __init__(
        self, pool: Pool, folder: str | os.PathLike[str] | None, episodes: Iterable[int], num_episodes: int
    ) -> None:
        """`folder`: None for no videos at all.

        Raises:
            ValueError: An episode that there is not; envs that do not render frames, or reset before they can.
            ImportError: moviepy is not installed.
        """
        self._pool, self._folder = pool, folder
        self._frames: dict[int, list[np.ndarray[Any, Any]]] = {}
        self._chosen = set(episodes) if folder is not None else set[int]()
        self.written: tuple[Path, ...] = ()
        if not self._chosen:
            return
        if unknown := [episode for episode in self._chosen if episode not in range(num_episodes)]:
            raise ValueError(f"expected video_episodes from 0 to {num_episodes - 1}, got {sorted(unknown)}")
        if pool.render_mode != "rgb_array":
            raise ValueError(f"expected envs with render_mode='rgb_array' for videos, got {pool.render_mode!r}")
        if pool.autoreset == "same_step":
            raise ValueError(
                "expected another autoreset than 'same_step', where the last picture of an episode is lost"
            )
        if not _has_moviepy():
            raise ImportError("videos need moviepy, which is not installed: pip install moviepy")

    def show(self, episodes: Mapping[int, int]) -> None:
        """`episodes`: which one each of these envs is in. What a chosen one looks like now is its next frame."""
        shown = {env: episode for env, episode in episodes.items() if episode in self._chosen}
        if not shown:
            return
        for episode, frame in zip(shown.values(), self._pool.call("render", env_ids=list(shown)), strict=True):
            self._frames.setdefault(episode, []).append(np.asarray(frame))

    def drop(self, episode: int) -> None:
        """It will be played again."""
        self._frames.pop(episode, None)

    def write(self, episode: int) -> None:
        """It is over."""
        if episode not in self._chosen or self._folder is None:
            return
        from gymnasium.utils.save_video import save_video

        folder, fps = Path(self._folder), int(self._pool.metadata.get("render_fps") or _FPS)
        folder.mkdir(parents=True, exist_ok=True)
        frames: list[Any] = self._frames.pop(episode)
        save_video(
            frames, str(folder), episode_trigger=lambda _: True, fps=fps, name_prefix=_NAME, episode_index=episode
        )
        self.written += (folder / f"{_NAME}-episode-{episode}.mp4",)


def _has_moviepy() -> bool:
    try:
        import_module("moviepy")  # which Gymnasium writes videos with
    except ModuleNotFoundError:
        return False
    return True
