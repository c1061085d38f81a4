"""A pool of another process, read through the memory file that the process has open, without writing to it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from remuda._watch.pages import Page, View
from remuda._wire.build_board import BuildCard
from remuda._wire.card import Card, is_stopped, start_of

_DEFAULT_NAME = "remuda"
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # options of Python that are followed by a value


class SeenPool(ABC):
    """The base class of a pool that is read from another process, open or starting."""

    card: Card | BuildCard  # the description of the pool: its process and options.
    title: str  # the number of envs and workers, in words
    _WHEN_CLOSED: ClassVar[str]

    def __init__(self, fd: int) -> None:
        """`fd` is the descriptor of the memory file. The caller closes it."""
        self.file = _identity(os.fstat(fd))

    @abstractmethod
    def look(self) -> Any:
        """Takes a snapshot."""

    @abstractmethod
    def page(self, first: Any, last: Any, view: View) -> Page:
        """Returns the page for the screen. `first` and `last` are two snapshots, or one snapshot twice."""

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
    def _process_runs(self) -> bool:
        return start_of(self.pid) == self.card.started

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped, by SIGSTOP, Ctrl-Z or a debugger."""
        return is_stopped(self.pid)

    @property
    def is_open(self) -> bool:
        """Whether the process runs, and still has the pool's memory file open."""
        if not self._process_runs:
            return False
        try:
            return any(self._is_file(link) for link in Path(f"/proc/{self.pid}/fd").iterdir())
        except OSError:
            return False

    def _is_file(self, link: Path) -> bool:
        try:
            return _identity(link.stat()) == self.file
        except OSError:  # the file may have just been closed
            return False

    def end_in_words(self) -> str:
        """Returns the reason why the pool is not open, as text."""
        end = self._WHEN_CLOSED if self._process_runs else "is gone: the process has ended"
        return f"the pool {self.name} of process {self.pid} {end}"


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


@lru_cache(maxsize=64)  # cached: the name is shown even after the process has ended
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
