"""Starts `remuda-watcher`, which kills what a process has started when that is killed or replaced by `exec`.

It is `src/watcher`: one for each process that starts workers, apart from all of them, so that nothing that stops or
kills them stops or kills it too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from remuda.errors import RemudaError

_PROGRAM = Path(__file__).parents[2] / "remuda-watcher"
_OWNER, _WATCHER = 0, 1  # the bytes of a file that each of them holds a lock of


class _Watcher:
    """Watches this process, and kills what carries its key."""

    def __init__(self, key: str) -> None:
        self._fd = os.memfd_create("remuda-owner", os.MFD_CLOEXEC)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OWNER)
            code = subprocess.Popen(
                [_PROGRAM, key, str(self._fd)],
                pass_fds=[self._fd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).wait()  # it goes on as nobody's child
            if not self.is_alive():
                if code == errno.EAGAIN:
                    raise OSError(code, os.strerror(code))  # the system allows no more processes
                raise RemudaError(
                    f"expected {_PROGRAM} to run and to watch over the workers, got its end; install remuda anew"
                )
        except BaseException:
            self.release()
            raise

    def is_alive(self) -> bool:
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WATCHER)
            return False
        return True

    def release(self) -> None:
        """Where it does not run: otherwise it takes this for our end."""
        os.close(self._fd)


# By the process that they are of: a forked copy has others.
_keys: dict[int, str] = {}
_watchers: dict[int, _Watcher] = {}
_lock = threading.RLock()


def owner_key() -> str:
    """What all workers of this process, and whatever they start, carry in their environment."""
    return _keys.setdefault(os.getpid(), new_key())


def new_key() -> str:
    """A key that nobody else has or will have; of one length, and it tells people whose it is."""
    return f"{os.getpid():010d}-{secrets.token_hex(16)}"


def watch() -> None:
    """Before anything is started that carries the key. Starts another watcher where there is none any more."""
    pid = os.getpid()
    with _lock:
        if (watcher := _watchers.get(pid)) is not None:
            if watcher.is_alive():
                return
            watcher.release()
            del _watchers[pid]
        _watchers[pid] = _Watcher(owner_key())
