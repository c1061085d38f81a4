"""Checks whether directories and files that options name can be written to."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def make_writable(directory: str | os.PathLike[str], option: str) -> Path:
    """Makes the directory if needed. Returns its absolute path, because the working directory may change later.

    Raises:
        OSError: It cannot be made or written to. The message names the option.
    """
    path = Path(directory).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        raise unusable(option, "a directory", directory, error) from error
    return path


def unusable(option: str, expected: str, given: str | os.PathLike[str], error: OSError) -> OSError:
    """Returns an error of the same class that names the option whose directory cannot be made or written to."""
    return OSError(
        error.errno,
        f"expected {option} to be {expected} that can be made and written to, got {os.fspath(given)!r} "
        f"({error.strerror}: {error.filename})",
    )


def writable_file(path: str | os.PathLike[str], what: str) -> Path:
    """Returns the absolute path of a file that can be written later, in any working directory.

    Raises:
        OSError: It is a directory, or its parent is missing or cannot be written to.
    """
    absolute = Path(path).absolute()
    if absolute.is_dir():
        raise IsADirectoryError(f"expected the name of a file for {what}, got the directory {absolute}")
    if not absolute.parent.is_dir():
        raise FileNotFoundError(f"expected a directory for {what} that is there, got {absolute.parent}; make it first")
    if not os.access(absolute.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"expected a directory for {what} that can be written to, got {absolute.parent}")
    return absolute
