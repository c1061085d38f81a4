"""Implements ``enable_save_replay``. An env that overrides it saves its own replays; other envs are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from ding.envs import BaseEnv, DingEnvWrapper
from ding.utils.render_helper import get_env_fps, render_env

from remuda._videos.episodes import Episodes
from remuda._videos.recording import check_moviepy
from remuda._videos.video_recorder import VideoRecorder

# Inherited versions of `enable_save_replay`, which are not used: they raise, or need gym's recorder, which does
# not support Gymnasium.
_INHERITED = (None, BaseEnv.enable_save_replay, DingEnvWrapper.enable_save_replay)


def replays_of(env: Any, num_envs: int, paths: Sequence[str] | None) -> Sequence[str | Episodes | None]:
    """Returns for each env a path if it saves its own replays, its `Episodes` if it is recorded, else ``None``.

    Args:
        env: One of the envs, which are alike.
        num_envs: The number of envs.
        paths: A folder for each env; ``None``: no replays are saved.

    Raises:
        MissingFrameworkError: Envs must be recorded, and moviepy is not installed.
        OSError: A folder cannot be made.
    """
    if paths is None:
        return [None] * num_envs
    if getattr(type(env), "enable_save_replay", None) not in _INHERITED:
        return paths
    check_moviepy()
    return [  # with DI-engine's own prefix of file names
        Episodes(Path(path).absolute(), f"rl-video-{i}", lambda _: True).start() for i, path in enumerate(paths)
    ]


def recorder_of(current: Callable[[], Any], episodes: Episodes) -> VideoRecorder:
    """Returns a recorder of an env. Runs in the env's worker.

    Args:
        current: Returns the current env, which a failed reset may replace.
        episodes: The episodes of the env.
    """
    inner = getattr(current(), "_env", None)
    metadata = getattr(inner, "metadata", None) or {}
    fps = metadata.get("render_fps") or (None if inner is None else get_env_fps(inner))
    return VideoRecorder(lambda: _picture_of(current()), fps, episodes.next_video)


def _picture_of(env: Any) -> Any:
    """Returns a picture of an env that wraps an env of gym, or one of Gymnasium with ``render_mode="rgb_array"``."""
    inner = env._env
    return inner.render() if isinstance(inner, gymnasium.Env) else render_env(inner, "rgb_array")
