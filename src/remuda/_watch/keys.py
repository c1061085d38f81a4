"""Reads single keys from a terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_KEY = re.compile(rb"\x1b[\[O][AB]|.", re.DOTALL)  # matches an arrow key, or one byte
_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_OTHERS = {b"\r": "enter", b"\n": "enter", b"\x1b": "escape", b"\t": "tab", b"\x03": "q"}
_NAMES = _ARROWS | _OTHERS


@contextmanager
def terminal_keys() -> Iterator[Keys]:
    """Yields the keys of standard input; no keys if it is not a terminal. Restores the terminal's mode."""
    fd = sys.stdin.fileno()
    if not os.isatty(fd):
        yield Keys([])
        return
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys([fd])
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Keys:
    """Reads pressed keys by name: "up", "down", "enter", "escape", "tab", or the character."""

    def __init__(self, fds: list[int]) -> None:
        """`fds` has the descriptor of a terminal, or is empty."""
        self._fds = fds

    def wait(self, seconds: float) -> list[str]:
        """Waits for keys, and returns their names; an empty list if none is pressed within these seconds."""
        ready = select.select(self._fds, [], [], seconds)[0]
        if not ready:
            return []
        data = os.read(ready[0], 1024)
        return names_of(data) if data else ["q"]  # no data: the terminal is gone, which counts as the key "q" (quit)


def names_of(data: bytes) -> list[str]:
    """Returns the names of keys, from the bytes that a terminal sends for them."""
    return [_NAMES.get(key) or key.decode("latin-1") for key in _KEY.findall(data)]
