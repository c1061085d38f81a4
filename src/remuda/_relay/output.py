"""Redirects a worker's standard output and error, and reads back what was written."""

from __future__ import annotations

import io
import operator
import os
import re
import sys
from pathlib import Path
from typing import Any, TypeAlias

from remuda import _core
from remuda._system.directories import unusable

WorkerOutput: TypeAlias = "str | os.PathLike[str]"  # "inherit", "capture", or a directory

KEPT = 1 << 18  # bytes of captured output that stay readable
_DEFAULT_LIMIT = 1 << 16
_LAST_LINES = 20
_LAST_BYTES = 1 << 13  # the most bytes that `output_tail` reads


class Output:
    """The output of a worker: of its process, and of the processes that replace it.

    It belongs to a worker's place in the pool, so it outlives each process. `release` keeps its end.

    Attributes:
        fd: The file that a new process gets as descriptors 1 and 2; None: it inherits the pool's.
    """

    def __init__(self, fd: int | None) -> None:
        self.fd = fd
        self._opened_at = self._began_at = self._size()
        self._last = b""

    def begin(self) -> None:
        """Notes that a new process begins. All later output is from this process."""
        self._began_at = self._size()

    def read(self, limit: int = _DEFAULT_LIMIT) -> str:
        """Returns the end of the output since the pool was made: `limit` bytes at most."""
        return _text(self._tail(self._opened_at, check_limit(limit)))

    def output_tail(self) -> str:
        """Returns the last lines that the latest process wrote."""
        lines = _text(self._tail(self._began_at, _LAST_BYTES)).splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def release(self) -> None:
        """Closes the file, and keeps the end of the output in memory."""
        self._last = self._tail(self._opened_at, KEPT)
        self.drop_descriptor()

    def drop_descriptor(self) -> None:
        """Closes the file, of which a forked child has a copy."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def _size(self) -> int:
        return 0 if self.fd is None else os.fstat(self.fd).st_size

    def _tail(self, since: int, limit: int) -> bytes:
        limit = min(limit, KEPT)
        if self.fd is None:
            return self._last[max(0, len(self._last) - limit) :]
        size = self._size()
        first = max(size - limit, since if since <= size else 0)  # 0 if the file was truncated
        return os.pread(self.fd, size - first, first)


def _text(data: bytes) -> str:
    """Decodes the end of an output. Drops a character at the start if some of its bytes are missing."""
    return re.sub(rb"^[\x80-\xbf]{1,3}", b"", data).decode(errors="replace")


def check_limit(limit: Any) -> int:
    try:
        number = operator.index(limit)
    except TypeError:
        raise TypeError(f"expected limit to be an int, got {limit!r}") from None
    if number < 0:
        raise ValueError(f"expected limit to be at least 0, got {limit}")
    return number


# -- making outputs --------------------------------------------------------------------------------------


def check_output(where: Any) -> None:
    """Raises TypeError or ValueError if `where` is not a valid `worker_output`."""
    if not isinstance(where, (str, os.PathLike)) or isinstance(os.fspath(where), bytes):
        raise TypeError(f"expected worker_output to be 'inherit', 'capture' or a directory, got {where!r}")
    if not os.fspath(where):
        raise ValueError("expected worker_output to be 'inherit', 'capture' or a directory, got an empty string")


def open_outputs(where: WorkerOutput, num_workers: int) -> list[Output]:
    """Returns an output for each worker.

    Raises:
        OSError: The directory cannot be made, or a file in it cannot be written to. Nothing is left open.
    """
    outputs: list[Output] = []
    try:
        for index in range(num_workers):
            outputs.append(_open(where, index))  # noqa: PERF401 - those that were opened are closed below
    except BaseException:
        for output in outputs:
            output.release()
        raise
    return outputs


def _open(where: WorkerOutput, index: int) -> Output:
    if where == "inherit":
        return Output(None)
    if where == "capture":
        import fcntl  # `fcntl` is missing on systems without worker processes

        fd = os.memfd_create("remuda-output")
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # stdout, stderr and children all write at the file's end
        return Output(fd)
    path = Path(where) / f"worker-{index}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Follows no link: in a directory that others may write to, a link could lead to any file of this user.
        return Output(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise unusable("worker_output", "'inherit', 'capture' or a directory", where, error) from error


# -- in the worker ---------------------------------------------------------------------------------------


def settle_output(where: WorkerOutput) -> None:
    """Makes `sys.stdout` and `sys.stderr` of this worker write to descriptors 1 and 2 line by line.

    A worker that is forked from a notebook or a test has other streams. A line that waits in a buffer would be lost if
    the worker is killed, although it may show the reason.
    """
    if where == "inherit":
        return
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = _line_stream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if where == "capture":
        _core.trim_output(os.dup(1), KEPT)


def _line_stream(fd: int) -> io.TextIOWrapper:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
