"""Starts `remuda-watcher`, which kills what a process has started if that is killed or replaced by `exec`.

It is `src/watcher`: one for each process that starts workers, apart from all of them, so that nothing that stops or
kills them stops or kills it too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from remuda import _core
from remuda._backends.process.process_tree import owner_key
from remuda._system.forks import fork_safe_lock
from remuda.errors import RemudaError

_PROGRAM = Path(__file__).parents[2] / "remuda-watcher"
_OWNER, _WATCHER = 0, 1  # the bytes of a file that each of them holds a lock of


class _Watch:
    """The watch over this process: a file, of which this process locks one byte and its watcher another.

    When the owner's byte is free, a watcher kills what carries the key. So this process keeps its lock to its end,
    across watchers, and also if the start of one was interrupted: that watcher may still begin, and serves as well as
    another.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._fds = _core.Descriptors()
        self._fds.extend(map(partial(os.memfd_create, flags=os.MFD_CLOEXEC), ["remuda-owner"]))
        fcntl.lockf(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OWNER)
        self._starting: list[int] = []  # pids that are not reaped yet

    def start(self) -> None:
        """Raises BlockingIOError where the system allows no more processes."""
        try:
            self._start()
        except BaseException:
            self._await_starts()
            raise

    def _start(self) -> None:
        spawn = partial(
            os.posix_spawn,
            _PROGRAM,
            [os.fspath(_PROGRAM), self._key],
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self._fds[0], 0),
                *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)),
            ],
            setpgroup=0,  # Ctrl-C in the terminal is not for it
        )
        self._starting.extend(map(spawn, [dict(os.environ)]))  # no interrupt between starting it and knowing its pid
        code = self._await_starts()
        if self.is_alive():
            return
        if code == errno.EAGAIN:
            raise OSError(code, os.strerror(code))
        raise RemudaError(
            f"expected {_PROGRAM} to run and to watch over the workers, got its end; install remuda again"
        )

    def _await_starts(self) -> int:
        """Waits until those that were started go on as orphans; returns the last one's exit code."""
        code = 0
        while self._starting:
            with suppress(ChildProcessError):  # it is lost: SIGCHLD is ignored, or other code awaits all children
                code = os.waitstatus_to_exitcode(os.waitpid(self._starting[-1], 0)[1])
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


_watches: dict[int, _Watch] = {}  # by process id: a forked copy of this process has a watch of its own
_lock = fork_safe_lock()


def watch() -> None:
    """Starts a watcher if none runs. To be called before anything is started that carries the key."""
    pid = os.getpid()
    with _lock:
        if pid not in _watches:
            _watches[pid] = _Watch(owner_key())
        if not _watches[pid].is_alive():
            _watches[pid].start()
