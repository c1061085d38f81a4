"""Receives what workers log and warn, and hands it to this process's logging and warnings."""

from __future__ import annotations

import logging
import select
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from remuda._progress.bar import make_way
from remuda._relay.log import logger
from remuda._relay.records import MAX_BYTES, Logged, NoRecordError, Warned, load

ShownWarnings: TypeAlias = dict[str, dict[Any, Any]]  # by file, its registry as `warnings` has it

_AT_ONCE = 1000  # datagrams; workers that write faster than we read must not keep the pool from its work
_ROOM = 1 << 20  # bytes; the kernel gives what it thinks right
_SILENCE = 0.1  # seconds to wait for what was said and has not come
_COUNTER = 1 << 32  # where the count of words begins anew


class Relay:
    """A socket that all workers of a pool write datagrams to, and the pool reads when it looks up.

    One for all, not one each: a worker that dies in the middle leaves a whole datagram or none, and a new one needs
    nothing but the same descriptor.
    """

    def __init__(self, shown_warnings: ShownWarnings | None = None) -> None:
        """`shown_warnings`: those that were shown before, to which more are added; None: there are none yet."""
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._registries: ShownWarnings = {} if shown_warnings is None else shown_warnings
        self._hearing = self._has_told_of_others = False
        self._heard = 0  # datagrams

    def fileno(self) -> int:
        """The descriptor that can be read when somebody has said something."""
        return self._ours.fileno()

    @property
    def sending_end(self) -> int:
        """The descriptor that workers inherit."""
        return self._theirs.fileno()

    def drain(self, at_once: int = _AT_ONCE) -> None:
        """Hands on what there is, as far as it is not more than `at_once`. Raises no Exception."""
        if self._hearing:  # a handler of logs has asked the pool for something
            return
        try:
            self._hearing = True
            for _ in range(at_once):
                if not self._hear_one():
                    return
        finally:
            self._hearing = False

    def hear_all(self, said: Callable[[], int]) -> None:
        """The same, and what is on its way: where it came faster than the socket takes it, some waits in the workers.

        It is not waited for without end: who said it may have been killed, or stopped, before it was sent.

        Args:
            said: Tells how many datagrams have been sent, or are about to be.
        """
        if self._hearing:
            return
        first = said()
        self.drain(max(_AT_ONCE, self._missing(first)))
        poller = select.poll()
        while self._is_open and self._missing(first) > 0:
            poller.register(self._ours, select.POLLIN)
            if not poller.poll(_SILENCE * 1000):
                self._heard = first
            self.drain(self._missing(first))
        if self._is_open and self._missing(said()) < 0:  # who builds its envs does not count
            self._heard = said()

    def _missing(self, said: int) -> int:
        """How many of so many have not come; less than 0 for more than those."""
        return (said - self._heard + _COUNTER // 2) % _COUNTER - _COUNTER // 2

    @property
    def _is_open(self) -> bool:
        """Whether `close` has not been called, be it by a handler of what was handed on."""
        return self._ours.fileno() >= 0

    def _hear_one(self) -> bool:
        if not self._is_open:
            return False
        try:
            datagram = self._ours.recv(MAX_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        self._heard += 1
        make_way()
        self._hand_on(datagram)
        return True

    def close(self) -> None:
        """Hands on the rest."""
        if not self._is_open:
            return
        try:
            self.drain(10 * _AT_ONCE)  # more than the socket has room for
        finally:
            self._ours.close()
            self._theirs.close()

    def drop_descriptors(self) -> None:
        """In a forked child, to whom it is nothing."""
        self._ours.close()
        self._theirs.close()

    def _hand_on(self, datagram: bytes) -> None:
        try:
            said = load(datagram)
            if isinstance(said, Logged):
                _log(said)
            else:
                self._warn(said)
        except NoRecordError as error:
            self._tell_of_others(error)
        except Exception:  # of somebody's handler or filter: whoever receives a batch is the wrong one to tell
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()

    def _tell_of_others(self, error: NoRecordError) -> None:
        """Once: whoever writes such things may write them without end."""
        if not self._has_told_of_others:
            self._has_told_of_others = True
            logger.warning(
                "something has written to the socket of the workers' logs what no worker would, and it was dropped "
                "(%s): native code of an env, or a program that it has started, writes to descriptors not its own",
                error,
            )

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
