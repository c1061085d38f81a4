"""The description of a pool, in the memory file after the arena. Other processes need it to read the pool's figures.

The file of both has no name. Other processes find it among the descriptors of the pool's process. Therefore no file
remains if that process is killed, and only its user has access to the file.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from remuda._system.processes import stat_of

VERSION = 1
_HEADER = struct.Struct("<QQQ")  # the beginning of ArenaHeader in arena.hpp: magic, version, bytes
_MAGIC = 0x616475_6D6572
_MOST_BYTES = 1 << 20


class NoDescriptionError(Exception):
    """A file is not an arena, or has no description that this version of remuda can read."""


@dataclass(frozen=True)
class PoolDescription:
    """The description of a pool: its process, its name, and the arguments from which it was made.

    Attributes:
        owner, started: The id of the pool's process, and the kernel's start time of it, which distinguishes it from a
            later process with the same id.
        name: The name of the pool.
        setup: The arguments of `PoolSetup`.
        plan: The arguments of `_core.Plan`.
        origin: The arguments of `Origin`.
        version: The version of this format.
    """

    owner: int
    started: int
    name: str
    setup: Mapping[str, Any]
    plan: Mapping[str, Any]
    origin: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION

    def write(self, fd: int, at: int) -> None:
        """Writes the description into the file after the arena, which has `at` bytes."""
        text = json.dumps(asdict(self)).encode()
        os.pwrite(fd, text, at)
        os.ftruncate(fd, at + len(text))

    @classmethod
    def read(cls, fd: int) -> PoolDescription:
        """Reads the description of a file. Raises NoDescriptionError if the file has none."""
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise NoDescriptionError("it is empty")
        magic, _, size = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise NoDescriptionError("it is no arena")
        text = os.pread(fd, _MOST_BYTES, size)
        try:
            fields = json.loads(text)
            if fields["version"] != VERSION:
                version = fields["version"]
                raise NoDescriptionError(f"it is of version {version}, and this remuda supports version {VERSION}")
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise NoDescriptionError(f"it has no description ({type(error).__name__}: {error})") from error


def start_of(pid: int) -> int | None:
    """Returns the start time of a process, in ticks since boot; None if it has ended or is a zombie."""
    fields = stat_of(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger."""
    return stat_of(pid)[:1] in (["T"], ["t"])
