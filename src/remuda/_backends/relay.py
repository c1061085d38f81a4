"""The pool's end of what its workers log and warn: handed on as if it had been said here."""

from __future__ import annotations

import logging
import socket
import sys
import traceback
import warnings
from typing import Any

from remuda._backends.log import logger
from remuda._backends.records import MAX_BYTES, Logged, Warned, load

_AT_ONCE = 1000  # datagrams; workers that write faster than we read must not keep the pool from its work
_ROOM = 1 << 20  # bytes; the kernel gives what it thinks right


class Relay:
    """A socket that all workers of a pool write datagrams to, and the pool reads when it looks up.

    One for all, not one each: a worker that dies in the middle leaves a whole datagram or none, and a new one needs
    nothing but the same descriptor.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._registries: dict[str, dict[Any, Any]] = {}  # of the warnings shown, by file
        self._hearing = False

    def fileno(self) -> int:
        """The descriptor that can be read when somebody has said something."""
        return self._ours.fileno()

    @property
    def mouthpiece(self) -> int:
        """The descriptor that workers inherit."""
        return self._theirs.fileno()

    def hear(self, at_once: int = _AT_ONCE) -> None:
        """Hands on what there is, as far as it is not more than `at_once`. Raises no Exception."""
        if self._hearing:  # a handler of logs has asked the pool for something
            return
        self._hearing = True
        try:
            for _ in range(at_once):
                try:
                    datagram = self._ours.recv(MAX_BYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                self._hand_on(datagram)
        finally:
            self._hearing = False

    def close(self) -> None:
        """Hands on the rest."""
        if self._ours.fileno() < 0:
            return
        try:
            self.hear(10 * _AT_ONCE)  # more than the socket has room for
        finally:
            self._ours.close()
            self._theirs.close()

    def _hand_on(self, datagram: bytes) -> None:
        try:
            said = load(datagram)
            if isinstance(said, Logged):
                _log(said)
            else:
                self._warn(said)
        except Exception:  # of somebody's handler or filter: whoever receives a batch is the wrong one to tell
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()

    def _warn(self, said: Warned) -> None:
        warning = said.to_warning()
        registry = self._registries.setdefault(said.filename, {})
        try:
            warnings.warn_explicit(warning, type(warning), said.filename, said.lineno, said.module, registry)
        except Exception:  # a filter wants it raised
            warning.__traceback__ = None  # it refers to our frame, and we to it
            place = f"{said.filename}:{said.lineno}"
            extra = {"worker": said.worker, "env": said.env}
            logger.error("%s: %s: %s", place, type(warning).__name__, str(warning), extra=extra)


def _log(said: Logged) -> None:
    record = said.to_record()
    if (target := logging.getLogger(record.name)).isEnabledFor(record.levelno):
        target.handle(record)
