"""Numbers of which each has one holder on the machine at a time, for ports and displays."""

from __future__ import annotations

import _socket
import errno
import itertools
import os
import socket
import sys
import tempfile


class UniqueNumber:
    """The smallest number from 0 up that no other object holds, in any process of the machine.

    The system releases the number when the process ends, however it ends, unless a child that the process has forked
    still runs. On Linux, the number is a Unix socket with an abstract name, so containers share numbers only if they
    share a network, and with it their ports. Elsewhere it is a locked file in the directory for temporary files.

    Attributes:
        value: The number.
    """

    def __init__(self) -> None:
        """Takes a number. Raises OSError if the system has no descriptor for it."""
        self._holder: _Name | _File = _Name() if sys.platform == "linux" else _File()
        self.value = next(number for number in itertools.count() if self._holder.take(number))

    def release(self) -> None:
        """Releases the number. Releasing it again does nothing."""
        self._holder.release()

    def __del__(self) -> None:
        self.release()


class _Name:
    def __init__(self) -> None:
        self._socket = _socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # gevent does not replace this class

    def take(self, number: int) -> bool:
        try:
            self._socket.bind(b"\0remuda-unique-%d" % number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True

    def release(self) -> None:
        self._socket.close()


class _File:
    _fd: int | None = None

    def take(self, number: int) -> bool:
        import fcntl  # Windows has none

        path = os.path.join(tempfile.gettempdir(), f"remuda-unique-{number}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
