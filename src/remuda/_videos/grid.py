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
    """What one env shows, picture after picture; when its episode is over, the last one, darkened."""

    def __init__(self, reel: Path) -> None:
        self._rest = picture_file.pictures(reel) if reel.exists() else iter(())
        self._next = next(self._rest, None)
        self.is_over = self._next is None
        self.picture: _Picture | None = self._next

    def advance(self) -> None:
        self._next = None if self.is_over else next(self._rest, None)
        if self._next is not None:
            self.picture = self._next
        elif not self.is_over:
            assert self.picture is not None
            self.is_over, self.picture = True, self.picture // 2


def shape_of(count: int) -> tuple[int, int]:
    """(rows, columns) of so many tiles: as square as can be, rather wide than high."""
    columns = math.ceil(math.sqrt(count))
    return math.ceil(count / columns), columns


def make_video(reel_files: Sequence[Path], path: Path, fps: float) -> None:
    """`reel_files`: one for each tile, row by row; where there is none its tile stays black.

    The video goes on until the longest episode is over. It has its name only when it is whole.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter  # what Gymnasium writes videos with, too

    tiles = [Tile(file) for file in reel_files]
    height, width = (max(tile.picture.shape[axis] for tile in tiles if tile.picture is not None) for axis in (0, 1))
    rows, columns = shape_of(len(tiles))
    canvas = np.zeros((_even(rows * height), _even(columns * width), 3), np.uint8)
    unfinished = reel_files[0].with_suffix(".unfinished.mp4")
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
    """What players everywhere can show is of even size."""
    return length + length % 2
