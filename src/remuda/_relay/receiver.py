"""Receives the logs and warnings of workers, and passes them to this process's logging and warnings."""

from __future__ import annotations

import logging
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from remuda._progress.bar import make_way
from remuda._relay.log import logger
from remuda._relay.records import MAX_BYTES, Logged, NoRecordError, Warned, load
from remuda._system.polling import wait_readable
from remuda._system.sockets import socket_pair

ShownWarnings: TypeAlias = dict[str, dict[Any, Any]]  # by file: its registry of shown warnings, for `warn_explicit`

_AT_ONCE = 1000  # the most datagrams per `drain`, so that fast writing workers do not keep the pool busy.
_ROOM = 1 << 20  # bytes of the socket's buffer; the kernel may give less.
_SILENCE = 0.1  # seconds to wait for each datagram that was sent and has not come.
_COUNTER = 1 << 32  # the number at which the count of datagrams wraps around


class Relay:
    """A socket that all workers of a pool write datagrams to. The pool reads it while it waits.

    One socket serves all workers. A worker that dies while it writes leaves a whole datagram or none, and a successor
    only needs the same descriptor.
    """

    def __init__(self, shown_warnings: ShownWarnings | None = None) -> None:
        """`shown_warnings`: the warnings that were shown before; new ones are added."""
        self._reader, self._writer = socket_pair(socket.SOCK_SEQPACKET)
        self._writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._registries: ShownWarnings = {} if shown_warnings is None else shown_warnings
        self._is_draining = self._has_warned_of_others = False
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
        if self._is_draining:  # a log handler, called by `drain`, has called the pool
            return
        try:
            self._is_draining = True
            for _ in range(at_once):
                if not self._receive_one():
                    return
        finally:
            self._is_draining = False

    def drain_all(self, sent: Callable[[], int]) -> None:
        """Passes on the datagrams in the socket, and those that wait in workers for room in the socket.

        The wait is limited, because a worker may be killed or stopped before it sends a record.

        Args:
            sent: Returns the number of datagrams that have been sent or are about to be sent.
        """
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
        """Whether the socket is open. A log handler may have called `close`."""
        return self._reader.fileno() >= 0

    def _receive_one(self) -> bool:
        if not self._is_open:
            return False
        try:
            datagram = self._reader.recv(MAX_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        self._received += 1
        make_way()
        self._pass_on(datagram)
        return True

    def close(self) -> None:
        """Passes on the remaining datagrams, and closes the socket."""
        if not self._is_open:
            return
        try:
            self.drain(10 * _AT_ONCE)  # the socket has room for fewer datagrams
        finally:
            self._reader.close()
            self._writer.close()

    def drop_descriptors(self) -> None:
        """Closes a forked child's copies of the descriptors."""
        self._reader.close()
        self._writer.close()

    def _pass_on(self, datagram: bytes) -> None:
        try:
            record = load(datagram)
            if isinstance(record, Logged):
                _log(record)
            else:
                self._warn(record)
        except NoRecordError as error:
            self._warn_of_others(error)
        except Exception:  # an error of a log handler or filter must not end a call of the pool
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()

    def _warn_of_others(self, error: NoRecordError) -> None:
        """Warns only once of datagrams that are not records, because there may be many."""
        if not self._has_warned_of_others:
            self._has_warned_of_others = True
            logger.warning(
                "something has written to the socket of the workers' logs what no worker would, and it was dropped "
                "(%s): native code of an env, or a program that it has started, writes to descriptors not its own",
                error,
            )

    def _warn(self, record: Warned) -> None:
        warning = record.to_warning()
        registry = self._registries.setdefault(record.filename, {})
        try:
            warnings.warn_explicit(warning, type(warning), record.filename, record.lineno, record.module, registry)
        except Exception:  # a filter has made the warning an error.
            warning.__traceback__ = None  # breaks a reference cycle with this frame
            place = f"{record.filename}:{record.lineno}"
            extra = {"worker": record.worker, "env": record.env}
            logger.error("%s: %s: %s", place, type(warning).__name__, str(warning), extra=extra)


def _log(logged: Logged) -> None:
    record = logged.to_record()
    if (target := logging.getLogger(record.name)).isEnabledFor(record.levelno):
        target.handle(record)
