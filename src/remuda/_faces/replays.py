"""Videos of every episode of single envs, under names of a face's own, recorded as `record_video` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda._videos.album import Album
from remuda._videos.recorder import Recorder
from remuda._videos.recording import EveryNth, check_moviepy
from remuda._videos.scratch import new_scratch

__all__ = ["Album", "Recorder", "albums"]


def albums(folders: Sequence[str], name_prefix: str) -> list[Album]:
    """One for each env: every episode of it goes to `<folder>/<name_prefix>-<env>-episode-<k>.mp4`, k from 0 up.

    Raises:
        MissingFrameworkError: moviepy is not installed.
        OSError: A folder cannot be made.
    """
    check_moviepy()
    scratch, made = {folder: new_scratch(folder) for folder in dict.fromkeys(folders)}, list[Album]()
    for env, folder in enumerate(folders):
        its = scratch[folder] / str(env)
        its.mkdir()
        made.append(Album(Path(folder).absolute(), its, (env,), EveryNth(1), f"{name_prefix}-{env}"))
    return made
