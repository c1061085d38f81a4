"""Pictures of an episode in a file: each compressed, and written at once, so that a crash cuts off one at most."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_HEAD = struct.Struct("<III")  # height, width, bytes that follow


def append(path: Path, picture: Any) -> None:
    """One more picture.

    Raises:
        ValueError: It is none: (height, width, 3) uint8.
    """
    array = np.asarray(picture)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or not array.size:
        raise ValueError(
            f"expected render() to return a picture of shape (height, width, 3) and dtype uint8, got "
            f"{array.shape} and {array.dtype}; make the env with render_mode='rgb_array'"
        )
    packed = zlib.compress(array.tobytes(), 1)  # what is rendered is mostly of one colour
    with path.open("ab", buffering=0) as file:
        file.write(_HEAD.pack(*array.shape[:2], len(packed)) + packed)


def pictures(path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """All that are whole, one after another."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            height, width, size = _HEAD.unpack(head)
            if len(packed := file.read(size)) < size:
                return
            yield np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width, 3)
