"""The messages between a fork server or a template and its client. Each is one packet, so no receiver waits for a part.

owner                                       server
  <- Answer                                   the server has what all workers need
  Preload(module)                ->
  Fork(...), its descriptors     ->           forks a worker
  Reap(pids)                     ->
  <- Answer, one for each, in order
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from remuda import _core
from remuda._system.sockets import Socket, send_fds

_INLINE = b"I"
_FILE = b"F"  # the first byte of a packet if the message is in the file of the first descriptor.
_MAX_INLINE = 1 << 12  # the most bytes of a packet, so that many fit into the buffer of the socket
_MAX_FDS = 4

Failed: TypeAlias = "tuple[str, str, str, bytes | None]"  # an exception, as `portable` returns it


@dataclass(frozen=True)
class Fork:
    """A request to fork a worker. The worker's socket, standard output and error are sent along as descriptors.

    Attributes:
        worker: The index of the worker, which finds what it inherits in a template.
    """

    worker: int
    owner: int
    environment: dict[str, str]
    directory: str | None
    path: list[str]
    argv: list[str]
    doing = "forking a worker"


@dataclass(frozen=True)
class Reap:
    """A request to reap workers that have ended. The answer has their exit codes."""

    pids: tuple[int, ...]
    doing = "reaping workers"


@dataclass(frozen=True)
class Preload:
    """A request to import a module for all later workers."""

    module: str
    path: list[str]

    @property
    def doing(self) -> str:
        return f"importing {self.module}"


@dataclass(frozen=True)
class Module:
    """A file that the server has imported a module from, with its time and size at the import."""

    name: str
    path: str
    mtime_ns: int
    size: int


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        value: For a `Fork`, the pid; a pidfd is sent with it. For a `Reap`, the exit codes by pid.
        error: The exception, in a form that can be sent.
        imported: Modules that are new since the last answer.
    """

    value: Any = None
    error: Failed | None = None
    imported: tuple[Module, ...] = ()


Request: TypeAlias = "Fork | Reap | Preload"


def send(sock: Socket, message: Any, fds: Iterable[int] = ()) -> None:
    """Sends a message and descriptors. The caller still owns the descriptors."""
    send_pickled(sock, pickle.dumps(message), fds)


def send_pickled(sock: Socket, data: bytes, fds: Iterable[int]) -> None:
    """Sends a pickled message and descriptors. If it raises the OSError of `socket.sendmsg`, nothing was sent."""
    if len(data) <= _MAX_INLINE:
        return send_fds(sock, _INLINE + data, fds)
    with open(os.memfd_create("message of remuda", os.MFD_CLOEXEC), "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        return send_fds(sock, _FILE, [file.fileno(), *fds])


def receive(sock: Socket) -> tuple[Any, _core.Descriptors]:
    """Receives a message that has come, and its descriptors.

    Raises EOFError if the other end is gone, BlockingIOError if nothing has come, OSError (EMFILE) if no descriptor was
    free, so that the message is lost, and the OSError of `socket.recvmsg`.
    """
    space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(1 + _MAX_INLINE, space, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    fds = _core.Descriptors(chain.from_iterable(array.array("i", sent) for _, _, sent in ancillary))
    if flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if not data:
        raise EOFError("the other end is gone")
    if data[:1] == _INLINE:
        return pickle.loads(memoryview(data)[1:]), fds
    with open(fds.take_first(), "rb", buffering=0) as file:  # `readall`, because `read` stops at 2 GiB
        file.seek(0)
        return pickle.loads(file.readall()), fds
