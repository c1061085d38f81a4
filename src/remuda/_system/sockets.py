"""Sockets between processes, and waits for them, which no setting or patch of the program changes.

`socket.setdefaulttimeout` gives each new socket a timeout, and gevent and eventlet replace `socket.socket`. So these
sockets are of its base class, and their mode is set explicitly.
"""

from __future__ import annotations

import _socket
import array
import socket
from collections.abc import Iterable
from typing import TypeAlias

from remuda._system.originals import select

Socket: TypeAlias = _socket.socket

_MOST_SECONDS = 1e6  # the most seconds for `poll`, which takes milliseconds as an int


def socket_pair(kind: int = socket.SOCK_STREAM) -> tuple[Socket, Socket]:
    """Returns two connected sockets that block. Programs that this process starts do not inherit them."""
    pair = _socket.socketpair(socket.AF_UNIX, kind)
    for sock in pair:
        sock.setblocking(True)
    return pair


def open_socket(fd: int) -> Socket:
    """Returns the socket of a descriptor, which it owns. It blocks."""
    sock = Socket(fileno=fd)
    sock.setblocking(True)
    return sock


def send_fds(sock: Socket, data: bytes, fds: Iterable[int], flags: int = 0) -> None:
    """Sends data and descriptors as one message."""
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))], flags)


def wait_readable(fds: Iterable[int], seconds: float | None) -> bool:
    """Waits `seconds` (None: no limit) until one of the descriptors is readable. Returns whether one is."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else max(0, min(seconds, _MOST_SECONDS)) * 1000))
