"""The socket between the pool and one worker, which carries whole messages of several buffers.

It carries only rare messages: the start, requests, and data that does not fit in shared memory.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from remuda import _core
from remuda._system.originals import select, time
from remuda._system.sockets import Socket, send_fds
from remuda._wire.pickling import Buffers

_HEAD = struct.Struct("<12sI")  # the head of a message: a mark, and the number of buffers
_MARK = _core.MESSAGE_MARK
_FD = struct.Struct("i")
_FD_TRIES = 1000  # the number of tries to send descriptors, a millisecond apart.
_MOMENT_MS = 1  # the milliseconds that `post` waits for room in a full socket


class NonsenseError(ConnectionError):
    """The bytes received are not a message, because other code in the other process has written to the socket."""


class Channel(Protocol):
    """One end of a connection for messages. `recv` raises EOFError or ConnectionError if the other end is gone."""

    def send(self, parts: Buffers) -> None: ...
    def recv(self) -> Buffers: ...


class SocketChannel:
    """A channel over a connected stream socket, which it owns.

    A write that would block reads the other end's data meanwhile. Otherwise two ends that both write large messages
    would wait for each other.

    `post` and `recv_nowait` do not wait for the other end: each call continues as far as possible. One end uses either
    these or `send` and `recv`. The pool uses them while a worker starts. Once the worker's loop runs, the core's
    `MessageSocket` has the pool's end.

    After an interrupt (Ctrl-C), another call of `recv` continues where the interrupted one stopped. After an
    interrupted `send` or `post`, the other end cannot read later messages.

    Attributes:
        peer: A pidfd of the process at the other end, if that may fork, because its child keeps the socket open.
    """

    def __init__(self, sock: Socket, peer: int | None = None) -> None:
        os.set_inheritable(sock.fileno(), False)  # programs that this process starts must not inherit the socket
        self._sock, self.peer = sock, peer
        self._inbox = bytearray()  # the bytes that arrived while this end wrote
        self._outbox: deque[memoryview] = deque()  # data of `post` that is not written yet
        self._pieces: list[_Piece] = []  # the buffers of the message that is being read

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def drop_descriptors(self) -> None:
        """Closes a forked child's copy of the socket."""
        self.close()

    # -- messages --------------------------------------------------------------------------------------

    def send(self, parts: Buffers) -> None:
        for piece in _pieces_of(parts):
            self._write(piece)

    def recv(self) -> list[memoryview]:
        return self._recv(None)

    def post(self, parts: Buffers = ()) -> bool:
        """Sends the part of a message that the other end accepts now. Returns whether a part remains to be sent.

        The rest is copied, so `parts` may change. The next call sends it first; a call without `parts` sends only it.
        """
        fresh = deque(_pieces_of(parts) if parts else ())
        self._write_some(self._outbox)
        if not self._outbox:
            self._write_some(fresh)
        self._outbox.extend(memoryview(bytes(rest)) for rest in fresh)
        return bool(self._outbox)

    def recv_nowait(self) -> list[memoryview] | None:
        """Receives a message like `recv`, but does not wait. Returns None if the message is not complete yet."""
        try:
            return self._recv(0)
        except BlockingIOError:
            return None

    def _recv(self, timeout_ms: int | None) -> list[memoryview]:
        mark, count = _HEAD.unpack(self._piece(0, _HEAD.size, timeout_ms))
        if mark != _MARK:
            raise NonsenseError(f"expected a message that begins with {_MARK!r}, got {mark!r}")
        sizes = struct.unpack(f"<{count}Q", self._piece(1, 8 * count, timeout_ms))
        parts = [self._piece(2 + i, size, timeout_ms) for i, size in enumerate(sizes)]
        self._pieces.clear()
        return parts

    # -- file descriptors ------------------------------------------------------------------------------

    def send_fds(self, fds: Sequence[int]) -> None:
        for tries_left in reversed(range(_FD_TRIES)):
            try:
                send_fds(self._sock, b"F", fds)
                return
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or not tries_left:
                    raise
                time.sleep(0.001)  # this user has sent too many descriptors that are not yet received

    def recv_fds(self, count: int) -> list[int]:
        """Receives `count` file descriptors. Raises EOFError if more or fewer arrive."""
        # `socket.recv_fds` is not used: programs that an env starts would inherit the descriptors that it returns.
        room = socket.CMSG_SPACE(count * _FD.size)
        marker, ancillary, _, _ = self._sock.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
        fds = [
            fd
            for level, kind, data in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (fd,) in _FD.iter_unpack(data[: len(data) // _FD.size * _FD.size])
        ]
        if marker != b"F" or len(fds) != count:
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
        """Sends the pieces that the other end accepts. If the socket is full, waits briefly for room."""
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
        """Returns a buffer of the arriving message. An earlier, interrupted call may have read some of the bytes."""
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
        # One call reads the bytes and counts them, so no signal handler runs between read and count.
        next(map(piece.counts.append, map(self._sock.recv_into, [missing])))
        _some(piece.counts[-1])

    def _wait(self, events: int, timeout_ms: int | None = None) -> int:
        """Waits until the socket is ready for one of `events`.

        Raises EOFError if the peer ends first; BlockingIOError after `timeout_ms`.
        """
        poller = select.poll()
        poller.register(self._sock, events)
        if self.peer is not None:
            poller.register(self.peer, select.POLLIN)
        ready = dict(poller.poll(timeout_ms))
        if not ready:
            raise BlockingIOError
        if self._sock.fileno() not in ready:
            raise EOFError("the process at the other end has ended")
        return ready[self._sock.fileno()]


class _Piece:
    """A buffer of a message that is being received."""

    def __init__(self, size: int) -> None:
        self.data: memoryview = np.empty(size, np.uint8).data
        self.counts: list[int] = []  # the number of bytes that each read returned

    def missing(self) -> memoryview:
        return self.data[sum(self.counts) :]


def _pieces_of(parts: Buffers) -> list[memoryview]:
    """Returns the buffers of a message: a head with the sizes of the parts, and then the parts."""
    views = [memoryview(part).cast("B") for part in parts]
    head = _HEAD.pack(_MARK, len(views)) + struct.pack(f"<{len(views)}Q", *(view.nbytes for view in views))
    return [memoryview(head), *views]


def _some(received: Any) -> Any:
    if not received:
        raise EOFError("the other end closed the channel")
    return received


class LocalChannel:
    """The worker's end of a channel, for a worker in the pool's process: a thread, or the caller itself.

    Attributes:
        to_worker, from_worker: The queues. The hub has their other ends.
    """

    def __init__(self) -> None:
        self.to_worker: SimpleQueue[Buffers] = SimpleQueue()
        self.from_worker: SimpleQueue[Buffers] = SimpleQueue()

    @property
    def queues(self) -> tuple[SimpleQueue[Buffers], SimpleQueue[Buffers]]:
        return self.to_worker, self.from_worker

    def send(self, parts: Buffers) -> None:
        self.from_worker.put([bytearray(part) for part in parts])

    def recv(self) -> Buffers:
        return self.to_worker.get()
