"""The socket between the pool and one worker: whole messages of several buffers.

Only what is rare travels here: the start, requests, and what does not fit in shared memory.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from remuda._backends.pickling import Parts, dump, load

_HEAD = struct.Struct("<12sI")  # by which a message is known, and how many parts it has
_MARK = b"remuda: msg\n"


class NonsenseError(ConnectionError):
    """What came is no message: somebody else at the other end has written to our socket."""


class Channel(Protocol):
    """One end: `send` and `recv` whole messages. `recv` raises EOFError or ConnectionError if the other is gone."""

    def send(self, parts: Parts) -> None: ...
    def recv(self) -> Parts: ...


class SocketChannel:
    """A channel over a connected stream socket, which it owns.

    A write that would block reads meanwhile what the other end has written: two ends that both write
    a lot at the same time would wait for each other for ever otherwise.

    A `recv` that is interrupted (by Ctrl-C) may be called again and goes on where it was; after an interrupted `send`
    the other end can make nothing of what follows.

    Attributes:
        deadline: Of `time.monotonic`: the other end counts as gone when it keeps us waiting for longer; None: never.
    """

    def __init__(self, sock: socket.socket, peer: int | None = None) -> None:
        """`peer`: a pidfd of the process at the other end, where it may fork: its child keeps the socket open."""
        self._sock, self._peer = sock, peer
        self.deadline: float | None = None
        self._inbox = bytearray()  # read early, while we were writing
        self._pieces: list[_Piece] = []  # of the message that we are reading

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    # -- messages --------------------------------------------------------------------------------------

    def send(self, parts: Parts) -> None:
        sizes = [memoryview(part).nbytes for part in parts]
        self._write(_HEAD.pack(_MARK, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes))
        for part in parts:
            self._write(part)

    def recv(self) -> list[bytearray]:
        mark, count = _HEAD.unpack(self._piece(0, _HEAD.size))
        if mark != _MARK:
            raise NonsenseError(f"expected a message that begins with {_MARK!r}, got {mark!r}")
        sizes = struct.unpack(f"<{count}Q", self._piece(1, 8 * count))
        parts = [self._piece(2 + i, size) for i, size in enumerate(sizes)]
        self._pieces = []
        return parts

    def send_object(self, value: Any) -> None:
        self.send(dump(value))

    def recv_object(self) -> Any:
        return load(self.recv())

    # -- file descriptors ------------------------------------------------------------------------------

    def send_fds(self, fds: Sequence[int]) -> None:
        socket.send_fds(self._sock, [b"F"], list(fds))

    def recv_fds(self, count: int) -> list[int]:
        marker, fds, _, _ = socket.recv_fds(self._sock, 1, count)
        if marker != b"F" or len(fds) != count:
            raise EOFError("the other end closed before it had passed its descriptors")
        return fds

    # -- bytes -----------------------------------------------------------------------------------------

    def _write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            try:
                view = view[self._sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                    self._inbox += _some(self._sock.recv(1 << 16))

    def _piece(self, index: int, size: int) -> bytearray:
        """The index-th piece of the message: a new one, or what an interrupted `recv` has of it."""
        if index == len(self._pieces):
            self._pieces.append(_Piece(size))
        piece = self._pieces[index]
        while missing := piece.missing():
            self._fill(piece, missing)
        return piece.data

    def _fill(self, piece: _Piece, missing: memoryview) -> None:
        if early := self._inbox[: len(missing)]:
            missing[: len(early)] = early
            piece.counts.append(len(early))
            del self._inbox[: len(early)]
            return
        self._wait(select.POLLIN)
        # One step for the interpreter, so that no signal handler comes between reading and noting how much.
        next(map(piece.counts.append, map(self._sock.recv_into, [missing])))
        _some(piece.counts[-1])

    def _wait(self, events: int) -> int:
        """Until the socket is ready for one of `events`. Raises EOFError when the peer or our time ends first."""
        poller = select.poll()
        poller.register(self._sock, events)
        if self._peer is not None:
            poller.register(self._peer, select.POLLIN)
        left = None if self.deadline is None else max(0, min(self.deadline - time.monotonic(), 1e6) * 1000)
        ready = dict(poller.poll(left))
        if self._sock.fileno() not in ready:
            raise EOFError("the process at the other end has ended" if ready else "it keeps us waiting for too long")
        return ready[self._sock.fileno()]


class _Piece:
    """A part of a message on its way in."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.counts: list[int] = []  # of the bytes that have come, read by read

    def missing(self) -> memoryview:
        return memoryview(self.data)[sum(self.counts) :]


def _some(received: Any) -> Any:
    if not received:
        raise EOFError("the other end closed the channel")
    return received


class LocalChannel:
    """A channel within a process, for workers that are threads or the caller itself."""

    def __init__(self, inbox: SimpleQueue[Parts], outbox: SimpleQueue[Parts]) -> None:
        self._inbox, self._outbox = inbox, outbox

    @classmethod
    def pair(cls) -> tuple[LocalChannel, LocalChannel]:
        one: SimpleQueue[Parts] = SimpleQueue()
        other: SimpleQueue[Parts] = SimpleQueue()
        return cls(one, other), cls(other, one)

    def send(self, parts: Parts) -> None:
        self._outbox.put([bytearray(part) for part in parts])

    def recv(self) -> Parts:
        return self._inbox.get()
