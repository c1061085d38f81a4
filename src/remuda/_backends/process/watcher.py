"""Starts `remuda-watcher`, which kills the workers of a process that was killed or replaced by `exec`.

Its source is `src/watcher`. Each process that starts workers has one watcher. It runs in its own session, so signals
that stop or kill the owner or its workers do not reach it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

from remuda import _core
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
    ends, across watchers, and also if the start of a watcher was interrupted, because that watcher may still begin.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._fds = _core.Descriptors()
        self._fds.extend(map(partial(os.memfd_create, flags=os.MFD_CLOEXEC), ["remuda-owner"]))
        fcntl.lockf(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OWNER)
        self._starting: list[int] = []  # pids of started processes that are not reaped yet

    def start(self) -> None:
        """Starts a watcher. Raises BlockingIOError if the system allows no more processes."""
        spawn = partial(
            os.posix_spawn,
            _PROGRAM,
            [os.fspath(_PROGRAM), self._key],
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self._fds[0], 0),
                *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)),
            ],
            setpgroup=0,  # Ctrl-C in the terminal must not reach the watcher
            setsigmask=signal.valid_signals(),  # a signal to every process of a job must not end it
        )
        # The watcher needs no long variable, and with a very long one it could not start.
        variables = {name: value for name, value in os.environ.items() if len(value) < _LONG}
        try:
            with naming_long_variables(variables):
                self._starting.extend(map(spawn, [variables]))  # no interrupt comes before the pid is stored
            code = self._await_starts()
        except FileNotFoundError as missing:
            raise RemudaError(
                f"expected the program {_PROGRAM}, got no such file; install remuda again; to a frozen program, add "
                "this file, as `pyinstaller --collect-all remuda` does"
            ) from missing
        except BaseException:
            self._await_starts()
            raise
        if self.is_alive():
            return
        if code == errno.EAGAIN:
            raise OSError(code, os.strerror(code))
        raise RemudaError(
            f"expected {_PROGRAM} to run and to watch over the workers, got its end; install remuda again"
        )

    def _await_starts(self) -> int:
        """Waits until the started processes have forked their watchers; returns the last one's exit code."""
        code = 0
        while self._starting:
            with suppress(ChildProcessError):  # no exit code: SIGCHLD is ignored, or other code waits for all children
                end = os.waitid(os.P_PID, self._starting[-1], os.WEXITED)  # gevent replaces `waitpid`
                code = 0 if end is None else end.si_status
            self._starting.pop()
        return code

    def is_alive(self) -> bool:
        with suppress(BlockingIOError, PermissionError):
            try:
                fcntl.lockf(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WATCHER)
            finally:
                fcntl.lockf(self._fds[0], fcntl.LOCK_UN, 1, _WATCHER)
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
