"""What ``enable_save_replay`` comes to: envs that save replays of their own are told to, others are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from ding.envs import BaseEnv, DingEnvWrapper
from ding.utils.render_helper import get_env_fps, render_env

from remuda._faces.replays import Recorder, VideoFolder, video_folders

_NAME = "rl-video"  # as DI-engine has it
# That none have written for their env: it raises, or is for gym's recorder, which knows no env of Gymnasium's.
_NOT_THEIRS = (BaseEnv.enable_save_replay, DingEnvWrapper.enable_save_replay)


def saves_its_own(env: Any) -> bool:
    """Return whether an env's class has its own way: StarCraft's, say, writes replays that its game plays back."""
    method = getattr(type(env), "enable_save_replay", None)
    return method is not None and method not in _NOT_THEIRS


def replays_of(env: Any, paths: Sequence[str | None]) -> list[str | VideoFolder | None]:
    """Return for each env the path that it is told, or where it is recorded.

    Args:
        env: one like all of them.
        paths: a folder for each; none is ``None``, or all are.

    Raises:
        MissingFrameworkError: they are to be recorded, and moviepy is not installed.
        OSError: a folder cannot be made.
    """
    folders = [path for path in paths if path is not None]
    if len(folders) < len(paths) or saves_its_own(env):
        return list(paths)
    return list(video_folders(folders, _NAME))


def recorder_of(current: Callable[[], Any], video_folder: VideoFolder) -> Recorder:
    """Return the recorder of an env, in its worker.

    Args:
        current: returns the env as it is: a failed reset may put another in its place.
        video_folder: where its episodes go.
    """
    inner = getattr(current(), "_env", None)
    metadata = getattr(inner, "metadata", None) or {}
    fps = metadata.get("render_fps") or (None if inner is None else get_env_fps(inner))
    return Recorder(video_folder, video_folder.env_ids[0], lambda: _picture_of(current()), fps)


def _picture_of(env: Any) -> Any:
    """Return a picture of an env that wraps one: of Gymnasium, made with ``render_mode="rgb_array"``, or of gym."""
    inner = env._env
    return inner.render() if isinstance(inner, gymnasium.Env) else render_env(inner, "rgb_array")
