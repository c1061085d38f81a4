"""Reads keys from a terminal, one by one and without waiting for a line's end."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCES = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_SINGLE = {b"\r": "enter", b"\n": "enter", b"\x1b": "escape", b"\t": "tab", b"\x03": "q"}


@contextmanager
def terminal_keys() -> Iterator[Keys]:
    """The keys of standard input, if that is a terminal, which is as before afterwards."""
    fd = sys.stdin.fileno()
    if not os.isatty(fd):
        yield Keys(None)
        return
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Keys:
    """Names the keys that are pressed: "up", "down", "enter", "escape", "tab", or the character."""

    def __init__(self, fd: int | None) -> None:
        """`fd`: of a terminal; None: there are none."""
        self._fd = fd

    def wait(self, seconds: float) -> list[str]:
        """Those that are pressed until then; as soon as there are any."""
        fds = [] if self._fd is None else [self._fd]
        if not select.select(fds, [], [], seconds)[0] or self._fd is None:
            return []
        data = os.read(self._fd, 1024)
        return names_of(data) if data else ["q"]  # the terminal is gone


def names_of(data: bytes) -> list[str]:
    """Of what a terminal sends for keys."""
    names = []
    while data:
        length = 3 if data[:3] in _SEQUENCES else 1
        part, data = data[:length], data[length:]
        names.append(_SEQUENCES.get(part) or _SINGLE.get(part) or part.decode("latin-1"))
    return names
