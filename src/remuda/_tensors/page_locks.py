"""Page-locks the shared memory of pools, so that a GPU reads it without a copy by the host.

The permanent memory of an arena is locked when any of it is first copied to a GPU, and stays locked. The memory of
rollouts is temporary: each column is locked when it is first copied from, and all of the arena is unlocked before any
memory is returned to the system.
"""

from __future__ import annotations

import mmap
import os
import warnings
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from remuda import _core
from remuda._system.forks import fork_safe_lock
from remuda._tensors.cuda import finish_all, import_torch

_FOR_ALL_DEVICES = 1  # cudaHostRegisterPortable

Span = tuple[int, int]
"""The first address, and the one after the last."""

_arenas: dict[int, Locked] = {}  # the page-locked pieces of each arena, by the arena's address.
_changing = fork_safe_lock()  # reentrant, because a signal handler may also lock pages


def lock(array: Any) -> None:
    """Page-locks the memory around an array, if it lies in an arena. Warns once if the system refuses."""
    arena = _core.arena_of(array)
    if arena is None:
        return
    span = _span(array)
    locked = _arenas.get(arena.address)
    if locked is not None and locked.has(span):
        return
    with _changing:
        if arena.address not in _arenas:
            arena.before_end(partial(_end, arena.address, os.getpid()))
            _arenas[arena.address] = Locked(import_torch().cuda.cudart())
        error = _arenas[arena.address].add(arena, span)
    if error is not None:
        warnings.warn(
            f"the pool's shared memory could not be page-locked: {error}; copies to the GPU go on, but are slower, "
            "and calls wait for them",
            RuntimeWarning,
            stacklevel=2,
        )


def unlock(arena: _core.Arena) -> None:
    """Waits for all copies, and unlocks an arena before some of its memory is freed. Later copies lock it again.

    A pool does this when it reserves memory for more rollouts than before.
    """
    with _changing:
        if (locked := _arenas.get(arena.address)) is not None and locked.spans:
            finish_all()
            locked.clear()


def _end(address: int, owner: int) -> None:
    """Unlocks an arena. The last user of its memory calls this function before the memory is freed."""
    locked = _arenas.pop(address)
    if os.getpid() == owner:  # a forked child has locked nothing, and may not call CUDA
        locked.clear()


class Locked:
    """The page-locked pieces of one arena: whole pages, each locked once.

    CUDA does not copy memory that lies only partly in a piece, so adjacent pieces are merged.
    """

    def __init__(self, cudart: Any) -> None:
        """`cudart`: torch's handle of the CUDA runtime."""
        self.spans: list[Span] = []
        self.is_refused = False  # after the system has refused a lock, no more are tried
        self._cudart = cudart

    def has(self, span: Span) -> bool:
        """Whether there is nothing to lock: the span is locked, or the system has refused a lock."""
        return self.is_refused or any(first <= span[0] and span[1] <= end for first, end in self.spans)

    def add(self, arena: _core.Arena, span: Span) -> str | None:
        """Locks a span; returns an error of CUDA, or None."""
        if not self.spans:
            for pages in _whole_pages([(address, address + size) for address, size in arena.lasting]):
                if (error := self._register(pages)) is not None:
                    return error
        return None if self.has(span) else self._join(span)

    def _join(self, span: Span) -> str | None:
        [pages] = _whole_pages([span])
        if met := [one for one in self.spans if one[0] < pages[1] and pages[0] < one[1]]:
            finish_all()
        for one in met:
            self._unregister(one)
        first, end = zip(pages, *met, strict=True)
        return self._register((min(first), max(end)))

    def clear(self) -> None:
        for span in list(self.spans):
            self._unregister(span)

    def _register(self, span: Span) -> str | None:
        size = span[1] - span[0]
        error = self._cudart.cudaHostRegister(span[0], size, _FOR_ALL_DEVICES)
        if int(error):
            self.is_refused = True
            _forget_error()
            return f"{self._cudart.cudaGetErrorString(error)} ({(size >> 20) + 1} MB)"
        self.spans.append(span)
        return None

    def _unregister(self, span: Span) -> None:
        self._cudart.cudaHostUnregister(span[0])
        self.spans.remove(span)


def _span(array: Any) -> Span:
    """Returns the addresses of an array's memory; for a view, the addresses of the whole array."""
    whole = array.base if isinstance(array.base, np.ndarray) else array
    first = whole.__array_interface__["data"][0]
    if whole.flags.c_contiguous:
        return first, first + whole.nbytes
    steps = [(n - 1) * stride for n, stride in zip(whole.shape, whole.strides, strict=True) if n > 0]
    return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + whole.itemsize


def _whole_pages(spans: list[Span]) -> list[Span]:
    """Returns the pages of these spans, adjacent ones merged, so that no page is locked twice."""
    pages: list[Span] = []
    for first, end in spans:
        begin = first - first % mmap.PAGESIZE
        if pages and begin <= pages[-1][1]:
            begin = pages.pop()[0]
        pages.append((begin, end + -end % mmap.PAGESIZE))
    return pages


def _forget_error() -> None:
    """Clears CUDA's last error by launching a kernel. Otherwise the program's next launch would report the error."""
    with suppress(RuntimeError):
        import_torch().zeros(1, device="cuda").add_(1)
