"""A process that `subprocess` has started for us: its end, and how it ended."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from select import POLLIN, poll

from remuda import _core


def children() -> list[int]:
    """Of our main thread, to whom orphans come, too; none where the kernel does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


class Child:
    """Watched through a process descriptor, so that its exit code is told truly or not at all.

    `Popen.wait` says 0 where nobody is told of exit codes: where SIGCHLD is ignored, or somebody waits for all
    children.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        pidfds = _core.Descriptors()
        try:
            pidfds.extend(map(os.pidfd_open, [process.pid]))
        except BaseException:
            process.kill()
            process.wait()
            raise
        self._pidfds = pidfds
        self._exitcode: int | None = None

    def close(self) -> None:
        """Whether it has ended is not asked any more."""
        self._pidfds.close()

    def has_ended(self, seconds: float | None = 0) -> bool:
        """Whether it ends within `seconds` (None: for ever); then it is no zombie any more."""
        if self._process.returncode is None and self._is_readable(seconds):
            code = _core.reap_group(self._pidfds[0], self.pid, 0)
            if self._exitcode is None:  # another thread may have been faster
                self._exitcode = _core.exit_code_of(self._pidfds[0]) if code is None else code
            self._process.returncode = 0  # it has been reaped: `subprocess` need not ask for its exit code
        return self._process.returncode is not None

    @property
    def exitcode(self) -> int | None:
        """None while it runs, or where it cannot be learned; negative for a signal."""
        return self._exitcode

    def kill(self) -> None:
        if not self.has_ended():
            self._process.kill()

    def _is_readable(self, seconds: float | None) -> bool:
        poller = poll()
        poller.register(self._pidfds[0], POLLIN)
        return bool(poller.poll(None if seconds is None else seconds * 1000))
