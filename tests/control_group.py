"""A control group of version 1, in which a test limits or freezes real processes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest


class ControlGroup:
    """A new control group. Skips the test if this process may not make one."""

    def __init__(self, controller: str) -> None:
        self._path = Path(f"/sys/fs/cgroup/{controller}/remuda-test-{os.getpid()}")
        try:
            self._path.mkdir()
        except OSError as error:
            pytest.skip(f"no control group of {controller} can be made here: {error}")

    def add(self, *pids: int) -> None:
        for pid in pids:
            (self._path / "cgroup.procs").write_text(str(pid))

    def set(self, name: str, value: str) -> None:
        """Sets a value, and waits until it is in effect."""
        (self._path / name).write_text(value)
        while (self._path / name).read_text().strip() != value:
            pass

    def remove(self) -> None:
        for pid in (self._path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it has just ended
                (self._path.parent / "cgroup.procs").write_text(pid)
        self._path.rmdir()
