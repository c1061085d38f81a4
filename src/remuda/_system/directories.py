"""Directories that options name."""

from __future__ import annotations

import os
from pathlib import Path


def make_writable(directory: str | os.PathLike[str], option: str) -> Path:
    """The directory, which is there afterwards; absolute, for the program may go elsewhere later.

    Raises:
        OSError: It cannot be made, or not be written to.
    """
    path = Path(directory).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"expected a directory for {option} that can be written to, got {path}")
    return path
