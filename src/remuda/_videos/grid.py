"""Makes one video of the episodes of several envs, each in its tile."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

from remuda._videos.picture_file import pictures


def make_video(reels: Sequence[Path], path: Path, fps: float) -> None:
    """Writes a video that lasts until the longest episode is over. The file is renamed to `path` when it is complete.

    `reels`: one for each tile, row by row. A tile without a file is black. When an episode is over, its tile shows the
    last picture, darkened. The grid has about as many columns as rows, and never fewer.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter  # the encoder that Gymnasium also uses

    frames = zip_longest(*(pictures(reel) if reel.exists() else () for reel in reels))
    first = next(frames, ())
    height, width = (max(picture.shape[axis] for picture in first if picture is not None) for axis in (0, 1))
    columns = math.ceil(math.sqrt(len(reels)))
    rows = math.ceil(len(reels) / columns)
    canvas = np.zeros((_even(rows * height), _even(columns * width), 3), np.uint8)
    unfinished, over = reels[0].with_suffix(".unfinished.mp4"), set[int]()
    with FFMPEG_VideoWriter(str(unfinished), (canvas.shape[1], canvas.shape[0]), fps) as writer:
        for frame in chain([first], frames):
            for tile, picture in enumerate(frame):
                top, left = tile // columns * height, tile % columns * width
                if picture is not None:
                    canvas[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
                elif tile not in over:
                    over.add(tile)
                    canvas[top : top + height, left : left + width] //= 2
            writer.write_frame(canvas)
    os.replace(unfinished, path)


def _even(length: int) -> int:
    """Rounds a length up to an even number, because some players show only videos of even size."""
    return length + length % 2
