"""The directory that the traces of faults are written to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from remuda._system.directories import make_writable


def trace_directory(trace_on_fault: Any) -> Path | None:
    """What the pool's option `trace_on_fault` means; the directory is there afterwards.

    Raises:
        TypeError: It is no directory.
        OSError: The directory cannot be made, or not be written to.
    """
    if trace_on_fault is None:
        return None
    if not isinstance(trace_on_fault, (str, os.PathLike)):
        raise TypeError(f"expected trace_on_fault to be a directory or None, got {trace_on_fault!r}")
    return make_writable(trace_on_fault, "trace_on_fault")
