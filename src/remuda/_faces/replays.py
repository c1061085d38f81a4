"""Records a video of every episode of an env, like `record_video` but with a face's file names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda._videos.episodes import Episodes
from remuda._videos.recorder import Recorder
from remuda._videos.recording import check_moviepy

__all__ = ["Episodes", "Recorder", "episodes_in"]


def episodes_in(folders: Sequence[str], name_prefix: str) -> list[Episodes]:
    """Returns the episodes of each env. Episode k becomes `<folder>/<name_prefix>-<env>-episode-<k>.mp4`.

    Raises:
        MissingFrameworkError: moviepy is not installed.
        OSError: A folder cannot be made.
    """
    check_moviepy()
    return [
        Episodes(Path(folder).absolute(), f"{name_prefix}-{env}", lambda _: True).start()
        for env, folder in enumerate(folders)
    ]
