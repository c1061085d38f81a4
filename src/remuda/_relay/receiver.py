"""Receives the logs and warnings of workers, and passes them to this process's logging and warnings."""

from __future__ import annotations

import logging
import pickle
import socket
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from remuda._progress.bar import make_way
from remuda._relay.log import logger, print_error_of_handler
from remuda._relay.records import MAX_BYTES, SentWarning
from remuda._system.forks import fork_safe_lock
from remuda._system.polling import wait_readable
from remuda._system.sockets import socket_pair

ShownWarnings: TypeAlias = dict[str, dict[Any, Any]]  # by file: its registry of shown warnings, for `warn_explicit`

_AT_ONCE = 1000  # the most datagrams per `drain`, so that fast writing workers do not keep the pool busy.
_ROOM = 1 << 20  # bytes of the socket's buffer; the kernel may give less.
_SILENCE = 0.1  # seconds to wait for each datagram that was sent and has not come.
_COUNTER = 1 << 32  # the number at which the count of datagrams wraps around


class Relay:
    """A socket that all workers of a pool write datagrams to. The pool's supervisor reads it.

    One socket serves all workers. A worker that dies while it writes leaves a whole datagram or none, and a successor
    only needs the same descriptor.
    """

    def __init__(self, shown_warnings: ShownWarnings | None = None) -> None:
        """`shown_warnings`: the warnings that were shown before; new ones are added."""
        self._reader, self._writer = socket_pair(socket.SOCK_SEQPACKET)
        self._writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._registries: ShownWarnings = {} if shown_warnings is None else shown_warnings
        self._lock = fork_safe_lock()  # held while records are passed on
        self._is_draining = False
        self._received = 0  # datagrams

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a worker has sent something."""
        return self._reader.fileno()

    @property
    def sending_end(self) -> int:
        """The descriptor that workers inherit and write to."""
        return self._writer.fileno()

    def drain(self, at_once: int = _AT_ONCE) -> None:
        """Passes on at most `at_once` of the datagrams that have come. Raises no Exception."""
        with self._lock:
            if self._is_draining:  # a log handler, called by `drain`, has called the pool
                return
            self._is_draining = True
            try:
                while at_once > 0 and self._is_open:  # a log handler may have called `close`
                    at_once -= 1
                    datagram = self._reader.recv(MAX_BYTES, socket.MSG_DONTWAIT)
                    self._received += 1
                    make_way()
                    self._pass_on(datagram)
            except BlockingIOError:
                pass
            finally:
                self._is_draining = False

    def drain_all(self, sent: Callable[[], int]) -> None:
        """Passes on the datagrams in the socket, and those that wait in workers for room in the socket.

        The wait is limited, because a worker may be killed or stopped before it sends a record.

        Args:
            sent: Returns the number of datagrams that have been sent or are about to be sent.
        """
        with self._lock:
            if self._is_draining:
                return
            first = sent()
            self.drain(max(_AT_ONCE, self._missing(first)))
            while self._is_open and self._missing(first) > 0:
                if not wait_readable([self.fileno()], _SILENCE):
                    self._received = first
                self.drain(self._missing(first))
            if self._is_open and self._missing(sent()) < 0:  # `sent` does not count the records of env builds
                self._received = sent()

    def _missing(self, sent: int) -> int:
        """Returns the number of the `sent` datagrams that have not come; negative if more have come."""
        return (sent - self._received + _COUNTER // 2) % _COUNTER - _COUNTER // 2

    @property
    def _is_open(self) -> bool:
        return self._reader.fileno() >= 0

    def close(self) -> None:
        """Passes on the remaining datagrams, and closes the socket."""
        with self._lock:
            try:
                self.drain(10 * _AT_ONCE)  # the socket has room for fewer datagrams
            finally:
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
            logger.warning(text, type(error).__name__, error)
            return
        try:
            if isinstance(sent, SentWarning):
                self._warn(sent)
            else:
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
