"""Starts `remuda-watcher`, which kills the workers of a process that was killed or replaced by `exec`.

Its source is `src/watcher`. Each process that starts workers has one watcher. It runs in its own session, so signals
that stop or kill the owner or its workers do not reach it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posix
import signal
from contextlib import suppress
from pathlib import Path

from remuda._backends.process.process_tree import owner_key
from remuda._system.forks import fork_safe_lock
from remuda._system.limits import naming_long_variables
from remuda.errors import RemudaError

_PROGRAM = Path(__file__).parents[2] / "remuda-watcher"
_LONG = 1 << 14  # characters of a long variable
_OWNER, _WATCHER = 0, 1  # the bytes of the file that the owner and its watcher lock


class _Watch:
    """The watch over this process: a file of which this process locks one byte and its watcher another.

    If the owner's byte is free, the watcher kills all processes with the key. So this process holds its lock until it
    ends, across watchers.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._fd = os.memfd_create("remuda-owner", os.MFD_CLOEXEC)
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OWNER)

    def start(self) -> None:
        """Starts a watcher. Raises BlockingIOError if the system allows no more processes."""
        # The watcher needs no long variable, and with a very long one it could not start.
        variables = {name: value for name, value in os.environ.items() if len(value) < _LONG}
        try:
            with naming_long_variables(variables):
                pid = posix.posix_spawn(  # not the function in `os`, which gevent replaces
                    _PROGRAM,
                    [os.fspath(_PROGRAM), self._key],
                    variables,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, self._fd, 0),
                        *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)),
                    ],
                    setpgroup=0,  # Ctrl-C in the terminal must not reach the watcher
                    setsigmask=signal.valid_signals(),  # a signal to every process of a job must not end it
                )
        except FileNotFoundError as missing:
            raise RemudaError(
                f"expected the program {_PROGRAM}, got no such file; install remuda again; to a frozen program, add "
                "this file, as `pyinstaller --collect-all remuda` does"
            ) from missing
        code = 0
        with suppress(ChildProcessError):  # no exit code: SIGCHLD is ignored, or other code waits for all children
            end = posix.waitid(os.P_PID, pid, os.WEXITED)
            code = 0 if end is None else end.si_status
        if self.is_alive():
            return
        if code == errno.EAGAIN:
            raise OSError(code, os.strerror(code))
        raise RemudaError(
            f"expected {_PROGRAM} to run and to watch over the workers, got its end; install remuda again"
        )

    def is_alive(self) -> bool:
        with suppress(BlockingIOError, PermissionError):
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WATCHER)
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _WATCHER)
            return False
        return True


_watches: dict[int, _Watch] = {}  # by process id: a forked child has a watch of its own
_lock = fork_safe_lock()


def watch() -> None:
    """Starts this process's watcher if it does not run. Call this before starting a process with `owner_key`."""
    pid = os.getpid()
    with _lock:
        if pid not in _watches:
            _watches[pid] = _Watch(owner_key())
        if not _watches[pid].is_alive():
            _watches[pid].start()
