"""Sealed memory files, for data that is too large for a socket's buffer.

The sender never waits for the reader, and may end before it. Data that many readers share is written once.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from typing import TypeAlias

from remuda import _core
from remuda._system.limits import check_file_length
from remuda._wire.pickling import Buffers

Address: TypeAlias = bytes  # the offsets and sizes of one message's parts in a sealed file

_PART = struct.Struct("<QQ")  # the offset and size of a part.
_AT_ONCE = 1 << 30  # the most bytes of one read or write, because the system limits both to 2 GiB


class SealedFile:
    """A sealed file that is being written. The caller must close it, sent or not.

    Attributes:
        fd: Its descriptor.
    """

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self._fds = _core.Descriptors(map(os.memfd_create, ["remuda-payload"], [flags]))
        self.fd = self._fds[0]
        self._end = 0
        self._known: dict[bytes, bytes] = {}  # the offset and size of each part, by the part's content

    def add(self, parts: Buffers) -> Address:
        """Adds a message, and returns the address by which `fetch` finds it. Equal parts are written once."""
        return b"".join(map(self._place, parts))

    def seal(self) -> None:
        """Makes the file read-only, for this process and for every receiver."""
        self._known = {}
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        self._fds.close()
        self.fd = -1

    def _place(self, part: object) -> bytes:
        data = part if isinstance(part, bytes) else None
        if data is not None and (known := self._known.get(data)) is not None:
            return known
        view = memoryview(part).cast("B")  # type: ignore[arg-type]
        place = _PART.pack(self._end, view.nbytes)
        self._end += view.nbytes
        check_file_length(self._end)
        while view:
            view = view[os.write(self.fd, view[:_AT_ONCE]) :]
        if data is not None:
            self._known[data] = place
        return place


def fetch(fd: int, address: Address | memoryview) -> Sequence[bytearray]:
    """Reads a message from a sealed file by its address. Raises EOFError if the file is too short."""
    return [_read(fd, offset, size) for offset, size in _PART.iter_unpack(address)]


def _read(fd: int, offset: int, size: int) -> bytearray:
    data = bytearray(size)
    missing = memoryview(data)
    while missing:
        count = os.preadv(fd, [missing[:_AT_ONCE]], offset)
        if count == 0:
            raise EOFError(f"expected {len(missing)} more bytes at {offset} of a sealed file, got its end")
        missing = missing[count:]
        offset += count
    return data
