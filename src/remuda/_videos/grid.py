"""Makes one video of the episodes of several envs, each in its tile."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remuda._videos import picture_file

_Picture = np.ndarray[Any, np.dtype[np.uint8]]


class Tile:
    """The pictures of one env, one after another; after the end of its episode the last one, darkened."""

    def __init__(self, reel: Path) -> None:
        self._rest = picture_file.pictures(reel) if reel.exists() else iter(())
        self.picture: _Picture | None = next(self._rest, None)
        self.is_over = self.picture is None

    def advance(self) -> None:
        if self.is_over:
            return
        assert self.picture is not None
        following = next(self._rest, None)
        self.is_over = following is None
        self.picture = self.picture // 2 if following is None else following


def make_video(reels: Sequence[Path], path: Path, fps: float) -> None:
    """Writes a video that lasts until the longest episode is over; it gets its name when it is whole.

    `reels`: one for each tile, row by row; if the file is missing, its tile stays black. The tiles are as square as can
    be, wide rather than high.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter  # what Gymnasium writes videos with, too

    tiles = [Tile(reel) for reel in reels]
    height, width = (max(tile.picture.shape[axis] for tile in tiles if tile.picture is not None) for axis in (0, 1))
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    canvas = np.zeros((_even(rows * height), _even(columns * width), 3), np.uint8)
    unfinished = reels[0].with_suffix(".unfinished.mp4")
    with FFMPEG_VideoWriter(str(unfinished), (canvas.shape[1], canvas.shape[0]), fps) as writer:
        while not all(tile.is_over for tile in tiles):
            for number, tile in enumerate(tiles):
                _paint(canvas, tile.picture, number // columns * height, number % columns * width)
            writer.write_frame(canvas)
            for tile in tiles:
                tile.advance()
    os.replace(unfinished, path)


def _paint(canvas: _Picture, picture: _Picture | None, top: int, left: int) -> None:
    if picture is not None:
        canvas[top : top + picture.shape[0], left : left + picture.shape[1]] = picture


def _even(length: int) -> int:
    """Rounds up, because some players show only videos of even size."""
    return length + length % 2
