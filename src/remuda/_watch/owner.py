"""The process that a watched pool belongs to."""

from __future__ import annotations

import os
from pathlib import Path

from remuda._wire.card import start_of


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
