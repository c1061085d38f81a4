"""A file of the pictures of one episode. Each is compressed and written at once: a crash cuts off one at most."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def append(path: Path, picture: Any) -> None:
    """Adds a picture.

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
        file.write(gzip.compress(packed.getvalue(), 1))  # most pictures are mostly of one colour


def pictures(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Yields the pictures that are whole."""
    at_the_end = EOFError, ValueError, gzip.BadGzipFile  # which may be in a picture that is cut off
    with gzip.open(path) as file, suppress(*at_the_end):
        while True:
            yield np.lib.format.read_array(file)
