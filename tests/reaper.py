"""Ends all processes that a test run has started when the run ends, even by `kill -9`. Then names the test that ran.

They are found in /proc by an environment variable that they inherit. Processes can leave their session, group and
parent, but keep their environment.
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


def start_reaper() -> subprocess.Popen[bytes] | None:
    """Starts a process that waits for the end of this one. Processes within a run, such as xdist's, need none."""
    if sys.platform != "linux" or VARIABLE in os.environ:
        return None
    os.environ[VARIABLE] = uuid.uuid4().hex
    command = [sys.executable, "-I", __file__, str(os.getpid())]
    return subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def note_test(reaper: subprocess.Popen[bytes] | None, nodeid: str) -> None:
    """Tells the reaper which test begins; "" means that it has ended."""
    if reaper is not None and reaper.stdin is not None:
        os.write(reaper.stdin.fileno(), f"{nodeid}\n".encode())


def processes_with(variable: str) -> list[int]:
    """Returns the running processes with this `NAME=value` in their environment."""
    entry = variable.encode()
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and entry in _environment(path)]


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # the process is gone, or belongs to another user


def _await_end(parent: int) -> str:
    """Waits for the end of the parent. Returns the name of the test that ran then; "" if none did."""
    latest = ""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return latest
    while os.getppid() == parent:  # otherwise the parent has ended, and its pid may have been reused
        ready = select.select([descriptor, 0], [], [])[0]
        if 0 in ready and (names := os.read(0, 1 << 16).decode()):
            latest = names.splitlines()[-1]
        elif descriptor in ready:
            break
    return latest


def _end_all() -> None:
    """Repeats until no process is left, because new ones may have been started meanwhile."""
    while found := [pid for pid in processes_with(f"{VARIABLE}={os.environ[VARIABLE]}") if pid != os.getpid()]:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the process has just ended


if __name__ == "__main__":
    test = _await_end(int(sys.argv[1]))
    _end_all()
    if test:
        print(f"the run ended within {test}", file=sys.stderr)
