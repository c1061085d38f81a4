"""Opens files of traces, which may be compressed, and writes them whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def open_trace(path: Path) -> IO[Any]:
    """Opens a trace as text; unpacks it if its name ends in ".gz"."""
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


@contextmanager
def written_whole(path: Path) -> Iterator[IO[Any]]:
    """Gives a file for text, which takes its place when it is written; compressed if its name ends in ".gz".

    Raises OSError, which names the file.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(part, "wt", compresslevel=4) if path.suffix == ".gz" else part.open("w") as file:
            yield file
        part.replace(path)
    except OSError as error:
        if error.filename is None:  # writing to a full disk raises an error without a name
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)
