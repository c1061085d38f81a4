"""A pool of another process, read through the memory file that the process has open, without writing to it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from remuda._wire.build_board import BuildCard
from remuda._wire.card import Card, is_stopped

_DEFAULT_NAME = "remuda"
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # options of Python that are followed by a value


class SeenPool(ABC):
    """The base class of a pool that is read from another process, open or starting."""

    card: Card | BuildCard  # the description of the pool: its process and options.
    title: str  # the number of envs and workers, in words

    def __init__(self, fd: int) -> None:
        """`fd` is the descriptor of the memory file. The caller closes it."""
        file = os.fstat(fd)
        self.file = file.st_dev, file.st_ino

    @abstractmethod
    def look(self) -> Any:
        """Takes a snapshot."""

    @abstractmethod
    def as_json(self, first: Any, last: Any) -> dict[str, Any]:
        """Returns all figures of two snapshots, for a JSON file."""

    @abstractmethod
    def close(self) -> None:
        """Unmaps the memory. Closing again does nothing."""

    @property
    def pid(self) -> int:
        """The pid of the process that owns the pool."""
        return self.card.owner

    @property
    def name(self) -> str:
        """The pool's name; if it has none, the program that made the pool."""
        return self.card.name if self.card.name != _DEFAULT_NAME else _program(self.pid) or self.card.name

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped, by SIGSTOP, Ctrl-Z or a debugger."""
        return is_stopped(self.pid)


def _program(pid: int) -> str:
    """Returns the script, module or program that a process runs; "" if /proc does not show it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "")
        if word == "-c":
            break
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return Path(word).name
    return Path(words[0]).name
