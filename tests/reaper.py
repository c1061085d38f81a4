"""Ends what a run of the tests has started as soon as the run has ended, however that was: `kill -9` too.

Whatever tests start inherits a variable of its environment, and is found by that in /proc: sessions, process groups and
parents can be left, and the environment stays.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

VARIABLE = "REMUDA_TEST_RUN"


def watch_over_this_run() -> subprocess.Popen[bytes] | None:
    """Starts a process that waits for the end of this one. One of a run's own (xdist's) is watched over already."""
    if sys.platform != "linux" or VARIABLE in os.environ:
        return None
    os.environ[VARIABLE] = uuid.uuid4().hex
    nowhere = subprocess.DEVNULL
    command = [sys.executable, "-I", __file__, str(os.getpid())]
    return subprocess.Popen(command, start_new_session=True, stdin=nowhere, stdout=nowhere, stderr=nowhere)


def who_has(variable: str) -> list[int]:
    """The processes that were started with this `NAME=value` in their environment, as far as they run."""
    entry = variable.encode()
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and entry in _environment(path)]


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone meanwhile, or not ours


def _await_end(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    if os.getppid() == parent:  # else it had ended, and the number may be somebody else's
        select.select([descriptor], [], [])


def _end_all() -> None:
    """Until nobody is left: who was started meanwhile is found the next time."""
    while found := [pid for pid in who_has(f"{VARIABLE}={os.environ[VARIABLE]}") if pid != os.getpid()]:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended just now


if __name__ == "__main__":
    _await_end(int(sys.argv[1]))
    _end_all()
