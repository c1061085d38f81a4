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


def writable_file(path: str | os.PathLike[str], what: str) -> Path:
    """The absolute path of a file that can be written later, wherever the program goes until then.

    Raises:
        OSError: It is a directory, or its directory is missing, or cannot be written to.
    """
    absolute = Path(path).absolute()
    if absolute.is_dir():
        raise IsADirectoryError(f"expected the name of a file for {what}, got the directory {absolute}")
    if not absolute.parent.is_dir():
        raise FileNotFoundError(f"expected a directory for {what} that is there, got {absolute.parent}; make it first")
    if not os.access(absolute.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"expected a directory for {what} that can be written to, got {absolute.parent}")
    return absolute
