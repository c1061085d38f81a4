"""Receives the logs and warnings of workers, and passes them to this process's logging and warnings."""

from __future__ import annotations

import logging
import pickle
import socket
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from remuda._progress.bar import make_way
from remuda._relay.log import logger, print_error_of_handler
from remuda._relay.records import LOST, MAX_BYTES, SentWarning
from remuda._system.forks import fork_safe_lock
from remuda._system.sockets import socket_pair, wait_readable
from remuda._wire.exceptions import text_of

ShownWarnings: TypeAlias = dict[str, dict[Any, Any]]  # by file: its registry of shown warnings, for `warn_explicit`

_AT_ONCE = 1000  # the most datagrams per `drain`, so that fast writing workers do not keep the pool busy
_ROOM = 1 << 20  # bytes of the socket's buffer; the kernel may give less.
_SILENCE = 0.1  # seconds to wait for each datagram that was sent and has not come.
_COUNTER = 1 << 32  # the number at which the count of datagrams wraps around


class Relay:
    """A socket that all workers of a pool write datagrams to.

    One socket serves all workers. A worker that dies while it writes leaves a whole datagram or none, and a successor
    only needs the same descriptor. One thread at a time passes the datagrams on to log handlers, which are code of the
    program, so no other thread may wait for that thread.
    """

    def __init__(self, shown_warnings: ShownWarnings | None = None) -> None:
        """`shown_warnings`: the warnings that were shown before; new ones are added."""
        self._reader, self._writer = socket_pair(socket.SOCK_SEQPACKET)
        self._writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._registries: ShownWarnings = {} if shown_warnings is None else shown_warnings
        self._left: deque[bytes] = deque()  # datagrams that had not been passed on when the socket was closed
        self._lock = fork_safe_lock()  # held while a datagram is read, not while it is passed on
        self._received = 0  # datagrams

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a worker has sent something."""
        return self._reader.fileno()

    @property
    def sending_end(self) -> int:
        """The descriptor that workers inherit and write to."""
        return self._writer.fileno()

    def has_records(self) -> bool:
        """Whether datagrams have come that were not passed on."""
        return bool(self._left) or (self._is_open and wait_readable([self.fileno()], 0))

    def drain(self, after_each: Callable[[], object] = lambda: None) -> None:
        """Passes on the datagrams that have come, and calls `after_each` after each one. Raises no Exception."""
        at_once = _AT_ONCE
        while (at_once > 0 or not self._is_open) and (datagram := self._next()) is not None:
            at_once -= 1
            make_way()
            self._pass_on(datagram)
            after_each()

    def drain_all(self, sent: Callable[[], int], after_each: Callable[[], object] = lambda: None) -> None:
        """Passes on the datagrams in the socket, and those that wait in workers for room in the socket.

        The wait is limited, because a worker may be killed or stopped before it sends a record.

        Args:
            sent: Returns the number of datagrams that have been sent or are about to be sent.
            after_each: Called after each datagram.
        """
        first = sent()
        self.drain(after_each)
        while self._is_open and self._missing(first) > 0:
            if not wait_readable([self.fileno()], _SILENCE):
                self._received = first
            self.drain(after_each)
        if self._is_open and self._missing(sent()) < 0:  # `sent` does not count the records of env builds
            self._received = sent()

    def _missing(self, sent: int) -> int:
        """Returns the number of the `sent` datagrams that have not come; negative if more have come."""
        return (sent - self._received + _COUNTER // 2) % _COUNTER - _COUNTER // 2

    def _next(self) -> bytes | None:
        """Returns the next datagram; None if none has come."""
        with self._lock:
            if not self._is_open:
                return self._left.popleft() if self._left else None
            try:
                datagram = self._reader.recv(MAX_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            self._received += 1
            return datagram

    @property
    def _is_open(self) -> bool:
        return self._reader.fileno() >= 0

    def close(self) -> None:
        """Closes the socket. The datagrams in it can still be passed on."""
        with self._lock:
            left = list[bytes]()
            while self._is_open and (datagram := self._next()) is not None:
                left.append(datagram)
            self._left.extend(left)
            self.drop_descriptors()

    def drop_descriptors(self) -> None:
        """Closes the descriptors, which a forked child has copies of."""
        self._reader.close()
        self._writer.close()

    def _pass_on(self, datagram: bytes) -> None:
        try:
            sent = pickle.loads(datagram)
        except Exception as error:
            text = (
                "something from a worker that cannot be unpickled here was dropped, in place of a log record (%s: %s)"
            )
            # Texts only: a handler may keep the record, and must not keep the pool with the error's frames.
            logger.warning(text, type(error).__name__, text_of(error))
            return
        try:
            if isinstance(sent, SentWarning):
                self._warn(sent)
            else:
                if (lost := sent.pop(LOST, None)) is not None:
                    with self._lock:
                        self._received += lost - 1  # those were announced and will not come; this one was not announced
                record = logging.makeLogRecord(sent)
                if (target := logging.getLogger(record.name)).isEnabledFor(record.levelno):
                    target.handle(record)
        except Exception:  # an error of a log handler or filter must not end a call of the pool
            print_error_of_handler()

    def _warn(self, sent: SentWarning) -> None:
        warning = sent.to_warning()
        registry = self._registries.setdefault(sent.filename, {})
        try:
            warnings.warn_explicit(warning, type(warning), sent.filename, sent.lineno, sent.module, registry)
        except Exception:  # a filter has made the warning an error.
            warning.__traceback__ = None  # breaks a reference cycle with this frame
            text, extra = "%s:%s: %s: %s", {"worker": sent.worker, "env": sent.env}
            logger.error(text, sent.filename, sent.lineno, type(warning).__name__, warning, extra=extra)
