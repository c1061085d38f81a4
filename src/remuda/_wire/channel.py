"""The socket between the pool and one worker, which carries whole messages of several buffers.

Only what is rare travels here: the start, requests, and what does not fit in shared memory.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from remuda import _core
from remuda._wire.pickling import Parts, dump, load

_HEAD = struct.Struct("<12sI")  # the mark of a message, and the number of its parts
_MARK, _MAX_PARTS = _core.MESSAGE_MARK, _core.MAX_MESSAGE_PARTS
_FD = struct.Struct("i")
_FD_TRIES = 1000  # a millisecond apart
_MOMENT_MS = 1  # for the other end to continue reading, while a message is posted


class NonsenseError(ConnectionError):
    """The bytes received are not a message: other code at the other end has written to the socket."""


class Channel(Protocol):
    """One end: `send` and `recv` whole messages. `recv` raises EOFError or ConnectionError if the other is gone."""

    def send(self, parts: Parts) -> None: ...
    def recv(self) -> Parts: ...


class SocketChannel:
    """A channel over a connected stream socket, which it owns.

    A write that would block reads meanwhile what the other end has written: two ends that both write
    a lot at the same time would wait for each other for ever otherwise.

    `post` and `recv_nowait` do not wait for the other end: they do what can be done, and go on with it when they are
    called again. One end uses either these or `send` and `recv`. The pool uses them while a worker starts; once its
    loop runs, the core's `MessageSocket` has the pool's end.

    A `recv` that is interrupted (by Ctrl-C) may be called again and goes on where it was; after an interrupted `send`
    or `post` the other end can make nothing of what follows.

    Attributes:
        peer: A pidfd of the process at the other end, where it may fork: its child keeps the socket open.
        deadline: Of `time.monotonic`, for `send` and `recv`: the other end counts as gone when it keeps us waiting for
            longer; None: never.
    """

    def __init__(self, sock: socket.socket, peer: int | None = None) -> None:
        sock.set_inheritable(False)  # after an exec it is, and programs that this process starts must not have it
        self._sock, self.peer = sock, peer
        self.deadline: float | None = None
        self._inbox = bytearray()  # read early, while we were writing
        self._outbox: deque[memoryview] = deque()  # posted and not yet written
        self._pieces: list[_Piece] = []  # of the message that we are reading

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def drop_descriptors(self) -> None:
        """Closes the copy in a forked child."""
        self.close()

    # -- messages --------------------------------------------------------------------------------------

    def send(self, parts: Parts) -> None:
        for piece in _pieces_of(parts):
            self._write(piece)

    def recv(self) -> list[memoryview]:
        return self._recv(None)

    def post(self, parts: Parts = ()) -> bool:
        """Sends a message, after those posted before, as far as the other end takes it. Returns whether some is left.

        What is left is copied: `parts` may change. Without `parts` it only continues with what is left.
        """
        fresh = deque(_pieces_of(parts) if parts else ())
        self._write_some(self._outbox)
        if not self._outbox:
            self._write_some(fresh)
        self._outbox.extend(memoryview(bytes(rest)) for rest in fresh)
        return bool(self._outbox)

    def recv_nowait(self) -> list[memoryview] | None:
        """Receives like `recv`, without waiting; None if the message is not complete yet."""
        try:
            return self._recv(0)
        except BlockingIOError:
            return None

    def _recv(self, timeout_ms: int | None) -> list[memoryview]:
        mark, count = _HEAD.unpack(self._piece(0, _HEAD.size, timeout_ms))
        if mark != _MARK:
            raise NonsenseError(f"expected a message that begins with {_MARK!r}, got {mark!r}")
        if count > _MAX_PARTS:
            raise NonsenseError(f"expected a message of at most {_MAX_PARTS} parts, got {count}")
        sizes = struct.unpack(f"<{count}Q", self._piece(1, 8 * count, timeout_ms))
        if sum(sizes) > _machine_bytes():
            raise NonsenseError(f"expected a message that fits into this machine's memory, got {sum(sizes)} bytes")
        parts = [self._piece(2 + i, size, timeout_ms) for i, size in enumerate(sizes)]
        self._pieces.clear()
        return parts

    def send_object(self, value: Any) -> None:
        self.send(dump(value))

    def recv_object(self) -> Any:
        return load(self.recv())

    # -- file descriptors ------------------------------------------------------------------------------

    def send_fds(self, fds: Sequence[int]) -> None:
        for tries_left in reversed(range(_FD_TRIES)):
            try:
                socket.send_fds(self._sock, [b"F"], list(fds))
                return
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or not tries_left:
                    raise
                time.sleep(0.001)  # the user has as many on their way as the limit of open files allows

    def recv_fds(self, count: int, most: int | None = None) -> list[int]:
        """Receives so many descriptors, or up to `most`. Raises EOFError if another number came."""
        # Not `socket.recv_fds`: every program that an env starts would inherit its descriptors.
        room = socket.CMSG_SPACE((most or count) * _FD.size)
        marker, ancillary, _, _ = self._sock.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
        fds = [
            fd
            for level, kind, data in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (fd,) in _FD.iter_unpack(data[: len(data) // _FD.size * _FD.size])
        ]
        if marker != b"F" or not count <= len(fds) <= (most or count):
            for fd in fds:
                os.close(fd)
            raise EOFError("the other end closed before it had passed its descriptors")
        return fds

    # -- bytes -----------------------------------------------------------------------------------------

    def _write(self, view: memoryview) -> None:
        while view:
            try:
                view = view[self._sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                    self._inbox += _some(self._sock.recv(1 << 16))

    def _write_some(self, pieces: deque[memoryview]) -> None:
        """Sends pieces as far as the other end takes them. While it reads, waits a moment before each next piece."""
        while pieces:
            try:
                pieces[0] = pieces[0][self._sock.send(pieces[0], socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                try:
                    self._wait(select.POLLOUT, _MOMENT_MS)
                except BlockingIOError:
                    return
            if not pieces[0]:
                pieces.popleft()

    def _piece(self, index: int, size: int, timeout_ms: int | None) -> memoryview:
        """Returns the index-th piece of the message, which an interrupted `recv` may have begun."""
        if index == len(self._pieces):
            self._pieces.append(_Piece(size))
        piece = self._pieces[index]
        while missing := piece.missing():
            self._fill(piece, missing, timeout_ms)
        return piece.data

    def _fill(self, piece: _Piece, missing: memoryview, timeout_ms: int | None) -> None:
        if early := self._inbox[: len(missing)]:
            missing[: len(early)] = early
            piece.counts.append(len(early))
            del self._inbox[: len(early)]
            return
        self._wait(select.POLLIN, timeout_ms)
        # One step for the interpreter, so that no signal handler runs between reading and noting how much.
        next(map(piece.counts.append, map(self._sock.recv_into, [missing])))
        _some(piece.counts[-1])

    def _wait(self, events: int, timeout_ms: int | None = None) -> int:
        """Waits until the socket is ready for one of `events`.

        Raises EOFError if the peer ends first, or the deadline passes; BlockingIOError after `timeout_ms`.
        """
        poller = select.poll()
        poller.register(self._sock, events)
        if self.peer is not None:
            poller.register(self.peer, select.POLLIN)
        left = None if self.deadline is None else max(0, min(self.deadline - time.monotonic(), 1e6) * 1000)
        ready = dict(poller.poll(left if timeout_ms is None else timeout_ms))
        if not ready and timeout_ms is not None:
            raise BlockingIOError
        if self._sock.fileno() not in ready:
            raise EOFError("the process at the other end has ended" if ready else "it keeps us waiting for too long")
        return ready[self._sock.fileno()]


class _Piece:
    """A part of a message that is being received."""

    def __init__(self, size: int) -> None:
        try:
            # Memory that is used only as bytes come in, because the size may be wrong.
            self.data: memoryview = np.empty(size, np.uint8).data
        except MemoryError:
            raise NonsenseError(f"expected a part of a message that there is memory for, got {size} bytes") from None
        self.counts: list[int] = []  # of the bytes that have come, read by read

    def missing(self) -> memoryview:
        return self.data[sum(self.counts) :]


def _pieces_of(parts: Parts) -> list[memoryview]:
    """Returns the bytes of a message: its head, with the size of each part, and the parts."""
    views = [memoryview(part).cast("B") for part in parts]
    head = _HEAD.pack(_MARK, len(views)) + struct.pack(f"<{len(views)}Q", *(view.nbytes for view in views))
    return [memoryview(head), *views]


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _some(received: Any) -> Any:
    if not received:
        raise EOFError("the other end closed the channel")
    return received


class LocalChannel:
    """The worker's end of a channel within a process, if the worker is a thread or the caller itself.

    Attributes:
        to_worker, from_worker: The queues, whose other ends the hub has.
    """

    def __init__(self) -> None:
        self.to_worker: SimpleQueue[Parts] = SimpleQueue()
        self.from_worker: SimpleQueue[Parts] = SimpleQueue()

    @property
    def queues(self) -> tuple[SimpleQueue[Parts], SimpleQueue[Parts]]:
        return self.to_worker, self.from_worker

    def send(self, parts: Parts) -> None:
        self.from_worker.put([bytearray(part) for part in parts])

    def recv(self) -> Parts:
        return self.to_worker.get()
