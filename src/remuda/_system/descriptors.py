"""Owns file descriptors: what is forgotten, or interrupted, leaves none open."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableSequence


class Descriptors(list[int]):
    """Descriptors that are closed with the list, when nobody refers to it any more.

    A signal handler that raises may come between any two steps of the interpreter, so also between opening a descriptor
    and noting its number. Therefore they are put here by the one that opens them::

        fds.extend(map(os.memfd_create, [name], [flags]))
    """

    __slots__ = ()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        while self:
            close(self.pop())


def close_all(fds: MutableSequence[int]) -> None:
    """Those that are in it, each once: who is interrupted may call it again."""
    while fds:
        os.close(fds.pop())
