"""Facts about this Python interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process
from typing import Any


def has_gil() -> bool:
    """Returns whether only one thread at a time runs Python code. In a free-threaded Python that may change, because
    importing some extension modules enables the GIL."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and newer
    return is_enabled is None or bool(is_enabled())


def is_importing_main() -> bool:
    """Returns whether this process runs definitions of another process's `__main__`, so must not start processes."""
    return bool(getattr(current_process(), "_inheriting", False))


@contextmanager
def importing_main() -> Iterator[None]:
    """Runs the block as `multiprocessing` imports `__main__` in its children: meanwhile no process may be started."""
    process: Any = current_process()
    before = is_importing_main()
    process._inheriting = True
    try:
        yield
    finally:
        process._inheriting = before
