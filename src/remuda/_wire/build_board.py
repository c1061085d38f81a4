"""The board of a pool that is being started: which envs are built, which are being built, and since when.

Workers write it, in a memory file without a name. The pool's process shows a progress bar of it, and `remuda top` finds
it among the descriptors of that process, as it finds an arena later. There is none any more when all envs are built.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

NAME = "remuda-start"  # as /proc shows its descriptor
VERSION = 1
_MAGIC = b"remuda: start\n\0\0"
_ENTRY = np.dtype([("begin", np.uint64), ("end", np.uint64), ("pid", np.uint64)])
_MOST_BYTES = 1 << 26
_LAST_STANDARD = 2


class NoBoardError(Exception):
    """A file is no board, or one that this remuda cannot read."""


@dataclass(frozen=True)
class BuildCard:
    """Whose envs are built.

    Attributes:
        owner, started: The pool's process: its id, and its start as the kernel has it; None where that is not known.
        name: The pool's.
        backend: Of its workers.
        envs_of_worker: How many envs each worker builds; of vector envs, each counts once.
        width: How many slots of the batch an env has.
        begin: When the start began, in ns of CLOCK_MONOTONIC.
        version: Of this format.
    """

    owner: int
    started: int | None
    name: str
    backend: str
    envs_of_worker: tuple[int, ...]
    width: int
    begin: int
    version: int = VERSION


@dataclass(frozen=True)
class EnvBuild:
    """How far one env is.

    Attributes:
        env_id: Of a vector env, its first.
        worker: The index of the worker that builds it.
        pid: Of the process that builds it; None before it has begun.
        seconds: That building has taken so far, or took; None before it has begun.
        is_built: Whether that is over.
    """

    env_id: int
    worker: int
    pid: int | None
    seconds: float | None
    is_built: bool


class BuildBoard:
    """Every env has an entry, which one worker writes. Who reads it sees each time whole, and may see it late.

    Attributes:
        card: Whose envs these are.
        fd: Of its memory file; -1 where there is none, so that nobody else finds it.
    """

    def __init__(self, card: BuildCard) -> None:
        """A new one, on which no env has begun."""
        self.card = card
        text = json.dumps(asdict(card)).encode()
        head = _MAGIC + len(text).to_bytes(8, "little")
        size = len(head) + _ENTRY.itemsize * sum(card.envs_of_worker) + len(text)
        self.fd = _memory_file()
        try:
            if self.fd >= 0:
                os.ftruncate(self.fd, size)
            self._map: mmap.mmap | None = mmap.mmap(self.fd, size)
        except BaseException:
            self.close_fd()
            raise
        self._map[: len(head)] = head
        self._map[size - len(text) :] = text
        self._entries = _entries(self._map, len(text))

    @classmethod
    def open(cls, fd: int, *, writes: bool) -> BuildBoard:
        """Somebody else's, by a descriptor that is the caller's.

        Raises:
            NoBoardError: It is none.
            OSError: It cannot be mapped.
        """
        size = os.fstat(fd).st_size
        if not len(_MAGIC) + 8 < size <= _MOST_BYTES:
            raise NoBoardError(f"it has {size} bytes")
        self = cls.__new__(cls)
        self.fd = -1
        self._map = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ)
        try:
            if self._map[: len(_MAGIC)] != _MAGIC:
                raise NoBoardError("it is no board")
            length = int.from_bytes(self._map[len(_MAGIC) : len(_MAGIC) + 8], "little")
            self.card = _card(self._map[size - length :] if length < size else b"")
            self._entries = _entries(self._map, length)
        except NoBoardError:
            self._map.close()
            raise
        return self

    def begin(self, place: int) -> None:
        """An env is being built from now on. `place`: its number, vector envs counted once."""
        entry = self._entries[place]
        entry["pid"], entry["end"] = os.getpid(), 0
        entry["begin"] = time.monotonic_ns()

    def end(self, place: int) -> None:
        """It is built."""
        self._entries[place]["end"] = time.monotonic_ns()

    def clear(self) -> None:
        """All are built anew."""
        self._entries[:] = 0

    @property
    def num_envs(self) -> int:
        return len(self._entries)

    @property
    def num_built(self) -> int:
        return int(np.count_nonzero(self._entries["end"]))

    def builds(self) -> list[EnvBuild]:
        """Of every env, in their order."""
        now, entries = time.monotonic_ns(), self._entries.tolist()
        workers = [worker for worker, count in enumerate(self.card.envs_of_worker) for _ in range(count)]
        return [
            EnvBuild(
                place * self.card.width,
                workers[place],
                pid if begin else None,
                ((end or now) - begin) / 1e9 if begin else None,
                bool(end),
            )
            for place, (begin, end, pid) in enumerate(entries)
        ]

    def close_fd(self) -> None:
        """Nobody else finds it any more."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def drop_descriptors(self) -> None:
        """In a forked child, to whom it is nothing. (The mapping has a descriptor of its own.)"""
        self.close()

    def close(self) -> None:
        """Lets go of all of it. Closing again does nothing."""
        self.close_fd()
        if self._map is not None:
            del self._entries
            self._map.close()
        self._map = None


def _memory_file() -> int:
    """A descriptor that is none of the standard ones, which the caller may have closed; -1 where there is none."""
    if not hasattr(os, "memfd_create"):
        return -1
    import fcntl  # which Windows has not

    fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    if fd > _LAST_STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LAST_STANDARD + 1)
    finally:
        os.close(fd)


def _entries(memory: mmap.mmap, tail: int) -> Any:
    """Between the head and the card, of `tail` bytes."""
    first = len(_MAGIC) + 8
    count, rest = divmod(len(memory) - first - tail, _ENTRY.itemsize)
    if rest:
        raise NoBoardError("its size is not that of so many envs")
    return np.frombuffer(memory, _ENTRY, count, first)


def _card(text: bytes) -> BuildCard:
    try:
        told: dict[str, Any] = json.loads(text)
        if told["version"] != VERSION:
            raise NoBoardError(f"it is of version {told['version']}, and this remuda knows version {VERSION}")
        return BuildCard(**{**told, "envs_of_worker": tuple(told["envs_of_worker"])})
    except (ValueError, TypeError, KeyError) as error:
        raise NoBoardError(f"it has no card ({type(error).__name__}: {error})") from error
