"""A file of pictures: complete pictures can be read even if a crash has cut off the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from remuda._videos.picture_file import append, pictures


def test_pictures_are_read_in_order(tmp_path: Path) -> None:
    for shade in range(3):
        append(tmp_path / "reel", np.full((4, 5 + shade, 3), shade, np.uint8))
    found = list(pictures(tmp_path / "reel"))
    assert [picture.shape for picture in found] == [(4, 5, 3), (4, 6, 3), (4, 7, 3)]
    assert [int(picture.max()) for picture in found] == [0, 1, 2]


@pytest.mark.parametrize("left", [0, 1, 12, -20])
def test_a_picture_that_is_cut_off_is_left_out(left: int, tmp_path: Path) -> None:
    """`left` is how many bytes of the second picture remain; if negative, how many are missing."""
    append(tmp_path / "reel", np.full((4, 5, 3), 7, np.uint8))
    first = (tmp_path / "reel").stat().st_size
    append(tmp_path / "reel", np.full((4, 5, 3), 8, np.uint8))
    os.truncate(tmp_path / "reel", left + ((tmp_path / "reel").stat().st_size if left < 0 else first))
    assert [int(picture.max()) for picture in pictures(tmp_path / "reel")] == [7]
