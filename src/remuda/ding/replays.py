"""Implements ``enable_save_replay``: envs with a method of their own save replays themselves, others are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from ding.envs import BaseEnv, DingEnvWrapper
from ding.utils.render_helper import get_env_fps, render_env

from remuda._faces.replays import Recorder, VideoFolder, video_folders

# DI-engine's own methods raise, or use gym's recorder, which does not support envs of Gymnasium.
_INHERITED = (None, BaseEnv.enable_save_replay, DingEnvWrapper.enable_save_replay)


def replays_of(env: Any, num_envs: int, paths: Sequence[str] | None) -> Sequence[str | VideoFolder | None]:
    """Returns for each env the path for its own method, or the folder that its videos go to; ``None``: neither.

    Args:
        env: One of the envs, which are alike.
        num_envs: The number of envs.
        paths: A folder for each; ``None``: no replays are saved.

    Raises:
        MissingFrameworkError: Envs are to be recorded, and moviepy is not installed.
        OSError: A folder cannot be made.
    """
    if paths is None:
        return [None] * num_envs
    if getattr(type(env), "enable_save_replay", None) not in _INHERITED:
        return paths
    return video_folders(paths, "rl-video")  # the name that DI-engine uses


def recorder_of(current: Callable[[], Any], video_folder: VideoFolder) -> Recorder:
    """Returns the recorder of an env, in its worker.

    Args:
        current: Returns the present env: a failed reset may replace it.
        video_folder: The folder for its episodes.
    """
    inner = getattr(current(), "_env", None)
    metadata = getattr(inner, "metadata", None) or {}
    fps = metadata.get("render_fps") or (None if inner is None else get_env_fps(inner))
    return Recorder(video_folder, video_folder.env_ids[0], lambda: _picture_of(current()), fps)


def _picture_of(env: Any) -> Any:
    """Returns a picture of an env that wraps one of Gymnasium, made with ``render_mode="rgb_array"``, or of gym."""
    inner = env._env
    return inner.render() if isinstance(inner, gymnasium.Env) else render_env(inner, "rgb_array")
