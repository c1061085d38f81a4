"""The process that a watched pool belongs to."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from remuda._wire.card import start_of

_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # options of Python that are followed by a value


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> int: ...


_DEFAULT = "remuda"  # of a pool that was given no name


def name_of(card: _Named) -> str:
    """The name that the pool was given, or else the program that has made it."""
    return card.name if card.name != _DEFAULT else _program(card.owner) or card.name


@lru_cache(maxsize=64)  # the name stays when the process has ended
def _program(pid: int) -> str:
    """The script, module or program that a process runs; empty where that is not told."""
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


class Owner:
    """Tells what has become of it, and of a file that it holds.

    Attributes:
        pid: Its process id.
        file: What tells the file from others.
    """

    def __init__(self, pid: int, started: int | None, file: os.stat_result) -> None:
        """`started`: when it was, so that no other process is taken for it."""
        self.pid, self.file = pid, (file.st_dev, file.st_ino)
        self._started = started

    @property
    def runs(self) -> bool:
        """Whether it has not ended. It may be stopped."""
        return start_of(self.pid) == self._started

    @property
    def is_stopped(self) -> bool:
        """Whether it is at a halt, by SIGSTOP, Ctrl-Z or a debugger."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False

    @property
    def has_file(self) -> bool:
        """Whether it runs, and has the file open."""
        if not self.runs:
            return False
        try:
            links = list(Path(f"/proc/{self.pid}/fd").iterdir())
        except OSError:
            return False
        return any(_identity(link) == self.file for link in links)

    def end_in_words(self, name: str, while_it_runs: str) -> str:
        """Why its pool of that name is there no more; `while_it_runs`: if the process has not ended."""
        end = while_it_runs if self.runs else "is gone: the process has ended"
        return f"the pool {name} of process {self.pid} {end}"


def _identity(link: Path) -> tuple[int, int] | None:
    try:
        file = link.stat()
    except OSError:
        return None
    return file.st_dev, file.st_ino
