"""Closes file descriptors that belong together."""

from __future__ import annotations

import os
from collections.abc import MutableSequence


def close_all(fds: MutableSequence[int]) -> None:
    """Those that are in it, each once: who is interrupted may call it again."""
    while fds:
        os.close(fds.pop())
