"""Facts about this Python interpreter."""

from __future__ import annotations

import sys


def has_gil() -> bool:
    """Returns whether only one thread at a time runs Python code. In a free-threaded Python that may change, because
    importing some extension modules enables the GIL."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and newer
    return is_enabled is None or bool(is_enabled())
