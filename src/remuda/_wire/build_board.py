"""The board of a pool that is being started. It shows when the building of each env began and ended.

Workers write to it in an unnamed memory file. The pool's process shows a progress bar from it. `remuda top` finds it
among the descriptors of that process, like the arena later. It is closed when all envs are built.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from remuda._system.limits import check_file_length

NAME = "remuda-start"  # the name of the board's descriptor in /proc
VERSION = 1
_MAGIC = b"remuda: start\n\0\0"
_ENTRY = np.dtype([("begin", np.uint64), ("end", np.uint64), ("pid", np.uint64)])
_MOST_BYTES = 1 << 26
_LAST_STANDARD = 2


class NoBoardError(Exception):
    """A file is not a board, or this version of remuda cannot read it."""


@dataclass(frozen=True)
class BuildCard:
    """Describes the pool that is being started.

    Attributes:
        owner, started: The id of the pool's process, and the kernel's start time of it; None if unknown.
        name: The name of the pool.
        backend: The backend of its workers.
        envs_of_worker: The number of envs that each worker builds; a vector env counts once.
        width: The number of slots of an env.
        begin: The time when the start began, in ns of CLOCK_MONOTONIC.
        version: The version of this format.
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
    """The progress of building one env.

    Attributes:
        env_id: The env; the first one of a vector env.
        worker: The index of the worker that builds it.
        pid: The process that builds it; None before building begins.
        seconds: The duration of building so far, or in total; None before building begins.
        is_built: Whether it is built.
    """

    env_id: int
    worker: int
    pid: int | None
    seconds: float | None
    is_built: bool


class BuildBoard:
    """A board with an entry for each env, which the env's worker writes. Readers may see entries late.

    Attributes:
        card: Describes the pool.
        fd: The descriptor of its memory file; -1 without a file, so that other processes cannot find it.
    """

    def __init__(self, card: BuildCard) -> None:
        """Makes a board on which the building of no env has begun."""
        self.card = card
        text = json.dumps(asdict(card)).encode()
        head = _MAGIC + len(text).to_bytes(8, "little")
        size = len(head) + _ENTRY.itemsize * sum(card.envs_of_worker) + len(text)
        self.fd = _memory_file()
        try:
            if self.fd >= 0:
                check_file_length(size)
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
        """Opens a board that another process has made. The caller still owns the descriptor.

        Raises:
            NoBoardError: The file is not a board.
            OSError: The file cannot be mapped.
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
        """Notes that the building of an env begins. `place`: the env's number, if each vector env counts as one."""
        entry = self._entries[place]
        entry["pid"], entry["end"] = os.getpid(), 0
        entry["begin"] = time.monotonic_ns()

    def end(self, place: int) -> None:
        """Notes that an env is built."""
        self._entries[place]["end"] = time.monotonic_ns()

    def clear(self) -> None:
        """Marks all envs as not built, before they are built again."""
        self._entries[:] = 0

    @property
    def num_envs(self) -> int:
        return len(self._entries)

    @property
    def num_built(self) -> int:
        return int(np.count_nonzero(self._entries["end"]))

    def builds(self) -> list[EnvBuild]:
        """Returns the progress of building each env, in order."""
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
        """Closes the memory file, so that other processes no longer find the board."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def drop_descriptors(self) -> None:
        """Closes a forked child's copies of the board's descriptors: of the file and of its mapping."""
        self.close()

    def close(self) -> None:
        """Closes the file and the mapping. Closing again does nothing."""
        self.close_fd()
        if self._map is not None:
            del self._entries
            self._map.close()
        self._map = None


def _memory_file() -> int:
    """Returns the descriptor of a new memory file, never 0, 1 or 2; -1 if the system has no memory files."""
    if not hasattr(os, "memfd_create"):
        return -1
    import fcntl  # Windows does not have this module

    fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    if fd > _LAST_STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LAST_STANDARD + 1)
    finally:
        os.close(fd)


def _entries(memory: mmap.mmap, tail: int) -> Any:
    """Returns the board's entries, which are between the head of the board and the last `tail` bytes, the card."""
    first = len(_MAGIC) + 8
    count, rest = divmod(len(memory) - first - tail, _ENTRY.itemsize)
    if rest:
        raise NoBoardError("its size is not that of so many envs")
    return np.frombuffer(memory, _ENTRY, count, first)


def _card(text: bytes) -> BuildCard:
    try:
        fields: dict[str, Any] = json.loads(text)
        if fields["version"] != VERSION:
            raise NoBoardError(f"it is of version {fields['version']}, and this remuda supports version {VERSION}")
        return BuildCard(**{**fields, "envs_of_worker": tuple(fields["envs_of_worker"])})
    except (ValueError, TypeError, KeyError) as error:
        raise NoBoardError(f"it has no card ({type(error).__name__}: {error})") from error
