"""A file of the pictures of one episode. Each picture is written at once, so that a crash loses at most one."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def append(path: Path, picture: Any) -> None:
    """Appends a picture to the file.

    Raises:
        ValueError: It is not an array of shape (height, width, 3) and dtype uint8.
    """
    array = np.asarray(picture)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or not array.size:
        raise ValueError(
            f"expected render() to return a picture of shape (height, width, 3) and dtype uint8, got "
            f"{array.shape} and {array.dtype}; make the env with render_mode='rgb_array'"
        )
    np.save(packed := io.BytesIO(), array)
    with path.open("ab", buffering=0) as file:
        file.write(gzip.compress(packed.getvalue(), 1))  # level 1, the fastest, suffices: most pictures compress well


def pictures(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Yields the complete pictures of a file. The last one may be cut off."""
    at_the_end = EOFError, ValueError, gzip.BadGzipFile  # also raised by a picture that is cut off
    with gzip.open(path) as file, suppress(*at_the_end):
        while True:
            yield np.lib.format.read_array(file)
