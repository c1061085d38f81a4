"""Records a video of every episode of an env, like `record_video` but with a face's file names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda._videos.recorder import Recorder
from remuda._videos.recording import EveryNth, check_moviepy
from remuda._videos.scratch_folder import new_scratch
from remuda._videos.video_folder import VideoFolder

__all__ = ["Recorder", "VideoFolder", "video_folders"]


def video_folders(folders: Sequence[str], name_prefix: str) -> list[VideoFolder]:
    """Returns a video folder for each env. Episode k becomes `<folder>/<name_prefix>-<env>-episode-<k>.mp4`.

    Raises:
        MissingFrameworkError: moviepy is not installed.
        OSError: A folder cannot be made.
    """
    check_moviepy()
    scratch, made = {folder: new_scratch(folder) for folder in dict.fromkeys(folders)}, list[VideoFolder]()
    for env, folder in enumerate(folders):
        scratch_of_env = scratch[folder] / str(env)
        scratch_of_env.mkdir()
        made.append(VideoFolder(Path(folder).absolute(), scratch_of_env, (env,), EveryNth(1), f"{name_prefix}-{env}"))
    return made
