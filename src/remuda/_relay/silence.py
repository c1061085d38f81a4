"""Hides what a worker logs and prints while it does again what it has done before."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from remuda._relay.sender import RelayHandler

_STANDARD = (1, 2)


class Silence:
    """Hides the log records and the output of a worker process."""

    def __init__(self, handler: RelayHandler) -> None:
        self._handler = handler
        self._outputs: list[int] = []  # what descriptors 1 and 2 are, while it is silent

    def keep(self, is_silent: bool) -> None:
        """Begins to hide everything, or ends it."""
        self._handler.is_silent = is_silent
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a stream of the env's own, or none
                stream.flush()
        if is_silent and not self._outputs:
            self._outputs = [os.dup(fd) for fd in _STANDARD]
            null = os.open(os.devnull, os.O_WRONLY)
            for fd in _STANDARD:
                os.dup2(null, fd)
            os.close(null)
        elif not is_silent and self._outputs:
            for fd, output in zip(_STANDARD, self._outputs, strict=True):
                os.dup2(output, fd)
                os.close(output)
            self._outputs = []
