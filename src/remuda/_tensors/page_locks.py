"""Page-locks the shared memory of pools, so that a GPU copies from it by itself."""

from __future__ import annotations

import mmap
import os
import threading
import warnings
from contextlib import suppress
from functools import partial
from typing import Any

from remuda import _core
from remuda._tensors.framework import import_torch

_FOR_ALL_DEVICES = 1  # cudaHostRegisterPortable


class PageLocks:
    """Page-locks each arena once, the first time that something in it is copied to a GPU, until its memory goes.

    Of an arena that has addresses for rollouts these are left out: their memory comes and goes.
    """

    def __init__(self) -> None:
        self._asked: set[int] = set()  # addresses of arenas that are page-locked, or cannot be
        self._asking = threading.Lock()

    def lock(self, array: Any) -> None:
        """Sees to it that the arena under an array, if there is one, is page-locked; warns once where it cannot be."""
        arena = _core.arena_of(array)
        if arena is None or arena.address in self._asked:
            return
        with self._asking:
            error = None if arena.address in self._asked else self._register(arena)
        if error is not None:
            warnings.warn(
                f"the pool's shared memory could not be page-locked: {error}; copies to the GPU go on, but are slower, "
                "and calls wait for them",
                RuntimeWarning,
                stacklevel=2,
            )

    def _register(self, arena: _core.Arena) -> str | None:
        """What is wrong, if anything is."""
        cudart, locked, error = import_torch().cuda.cudart(), list[int](), 0
        arena.before_end(partial(self._end, cudart, arena.address, locked, os.getpid()))
        self._asked.add(arena.address)
        for address, size in _whole_pages(arena.lasting):
            error = cudart.cudaHostRegister(address, size, _FOR_ALL_DEVICES)
            if int(error):
                _forget_error()
                return f"{cudart.cudaGetErrorString(error)} ({(size >> 20) + 1} MB)"
            locked.append(address)
        return None

    def _end(self, cudart: Any, address: int, locked: list[int], owner: int) -> None:
        """Called when the memory goes, by whoever has it last. `locked`: the beginnings of what is page-locked."""
        self._asked.discard(address)
        if os.getpid() == owner:  # a forked child may not call CUDA, nor has it locked anything
            for beginning in locked:
                cudart.cudaHostUnregister(beginning)


def _whole_pages(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(address, bytes) of the pages that these have a part in, those of neighbours as one: none is locked twice."""
    pages: list[tuple[int, int]] = []
    for address, size in stretches:
        first, end = address - address % mmap.PAGESIZE, address + size + -(address + size) % mmap.PAGESIZE
        if pages and first <= sum(pages[-1]):
            first = pages.pop()[0]
        pages.append((first, end - first))
    return pages


def _forget_error() -> None:
    """CUDA tells an error that was returned once more, to the next who launches a kernel: here, that is nobody."""
    with suppress(RuntimeError):
        import_torch().zeros(1, device="cuda").add_(1)


PAGE_LOCKS = PageLocks()
"""Of this process."""
