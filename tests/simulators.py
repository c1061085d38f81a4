"""Processes that an env may start, at various distances from its worker. Workers import this module by name."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

_WAITING = ["sleep", "100000"]


def in_the_group() -> int:
    return subprocess.Popen(_WAITING).pid


def leave_the_group() -> int:
    """Leaves a process in the old group, and moves the caller to the new group of the process with the returned pid."""
    in_the_group()
    other = os.posix_spawnp(_WAITING[0], _WAITING, os.environ, setpgroup=0)
    os.setpgid(0, other)
    return other


def in_a_session() -> int:
    return subprocess.Popen(_WAITING, start_new_session=True).pid


def as_a_daemon() -> int:
    """Starts a process in its own session. Its parent has ended."""
    return _daemon(lambda: os.execvp(_WAITING[0], _WAITING))


def as_a_copy() -> int:
    """Starts a daemon that never executes another program."""
    return _daemon(_wait)


def without_the_key() -> int:
    environment = {name: value for name, value in os.environ.items() if name != "REMUDA_WORKER_KEY"}
    return subprocess.Popen(_WAITING, start_new_session=True, env=environment).pid


def start_all() -> dict[str, int]:
    """Starts one process of each kind that must end with its worker. Returns the pids by kind."""
    kinds: list[Callable[[], int]] = [in_the_group, in_a_session, as_a_daemon, as_a_copy]
    return {kind.__name__: kind() for kind in kinds}


def _wait() -> None:
    while True:
        signal.pause()


def _daemon(become: Callable[[], None]) -> int:
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        second = os.fork()
        if second == 0:
            os.close(read)
            os.set_inheritable(write, False)
            if become is _wait:
                os.close(write)
            become()
        os.write(write, str(second).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(first, 0)
    with os.fdopen(read) as pipe:
        return int(pipe.read())  # until the pipe is closed, when the daemon executes its program
