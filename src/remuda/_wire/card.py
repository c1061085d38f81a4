"""The card of a pool: the description that other processes need to read its figures. It lies behind the arena.

The file of both has no name; other processes find it among the descriptors of the pool's process, while that runs. So
nothing is left behind when it is killed, and only its user has access to it.
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


class NoCardError(Exception):
    """A file is not an arena, or has no card that this version of remuda can read."""


@dataclass(frozen=True)
class Card:
    """How a pool was made.

    Attributes:
        owner, started: The pool's process: its id, and its start as the kernel has it, so that no other process is
            taken for it.
        name: The pool's.
        setup: What `Setup` takes.
        plan: What `_core.Plan` takes.
        origin: What `Origin` takes.
        version: Of this format.
    """

    owner: int
    started: int
    name: str
    setup: Mapping[str, Any]
    plan: Mapping[str, Any]
    origin: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION

    def write(self, fd: int, at: int) -> None:
        """Writes the card behind the arena, which has `at` bytes."""
        text = json.dumps(asdict(self)).encode()
        os.pwrite(fd, text, at)
        os.ftruncate(fd, at + len(text))

    @classmethod
    def read(cls, fd: int) -> Card:
        """Raises NoCardError."""
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise NoCardError("it is empty")
        magic, _, size = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise NoCardError("it is no arena")
        text = os.pread(fd, _MOST_BYTES, size)
        try:
            fields = json.loads(text)
            if fields["version"] != VERSION:
                raise NoCardError(f"it is of version {fields['version']}, and this remuda knows version {VERSION}")
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise NoCardError(f"it has no card ({type(error).__name__}: {error})") from error


def start_of(pid: int) -> int | None:
    """Returns when a process was started, in ticks since the machine's start; None if it has ended or is a zombie."""
    fields = stat_of(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal ("T") or a debugger ("t")."""
    return stat_of(pid)[:1] in (["T"], ["t"])
