"""The socket between the pool and one worker: whole messages of several buffers.

Only what is rare travels here: the start, requests, and what does not fit in shared memory.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from remuda._backends.pickling import Parts, dump, load

_COUNT = struct.Struct("<I")


class Channel(Protocol):
    """One end: `send` and `recv` whole messages. `recv` raises EOFError when the other end is gone."""

    def send(self, parts: Parts) -> None: ...
    def recv(self) -> Parts: ...


class SocketChannel:
    """A channel over a connected stream socket, which it owns.

    A write that would block reads meanwhile what the other end has written: two ends that both write
    a lot at the same time would wait for each other for ever otherwise.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._inbox = bytearray()  # read early, while we were writing

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    # -- messages --------------------------------------------------------------------------------------

    def send(self, parts: Parts) -> None:
        sizes = [memoryview(part).nbytes for part in parts]
        self._write(_COUNT.pack(len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes))
        for part in parts:
            self._write(part)

    def recv(self) -> list[bytearray]:
        (count,) = _COUNT.unpack(self._read(_COUNT.size))
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count))
        return [self._read(size) for size in sizes]

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
                self._wait_until_writable()

    def _wait_until_writable(self) -> None:
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | select.POLLOUT)
        ((_, events),) = poller.poll()
        if events & select.POLLIN:
            self._inbox += self._receive(1 << 16)

    def _read(self, size: int) -> bytearray:
        data = self._inbox[:size]
        del self._inbox[:size]
        have = len(data)
        if have == size:
            return data
        data.extend(bytes(size - have))
        view = memoryview(data)
        while have < size:
            count = self._sock.recv_into(view[have:])
            if count == 0:
                raise EOFError("the other end closed the channel")
            have += count
        return data

    def _receive(self, limit: int) -> bytes:
        data = self._sock.recv(limit)
        if not data:
            raise EOFError("the other end closed the channel")
        return data


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
