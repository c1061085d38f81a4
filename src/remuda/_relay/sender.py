"""Sends a worker's log records and warnings to the pool's process, without ever blocking."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TextIO

from remuda._relay.records import LOST, dump_record, dump_warning
from remuda._relay.verbosity import Verbosity, loggers
from remuda._system.originals import select, time
from remuda._system.sockets import Socket
from remuda._wire.registrations import says_nothing_new

_MOST_WAITING = 1000  # the most datagrams that wait for room in the socket


class RelayHandler(logging.Handler):
    """Sends datagrams, queues them if the socket is full, and drops the oldest ones if the queue is full.

    The lock of the handler guards the queue. The lock is reentrant, because a finalizer may log at any point, and
    `logging` renews it in a forked child.

    Attributes:
        current_env: Returns the env that records are about.
        before_record: Called before each datagram; must not raise.
        is_silent: Whether all datagrams are dropped.
    """

    def __init__(self, sock: Socket, worker: int) -> None:
        super().__init__()
        self._sock, self._worker = sock, worker
        self.current_env: Callable[[], int | None] = lambda: None
        self.before_record: Callable[[], None] = lambda: None
        self.is_silent = False
        self._queue = deque[bytes]()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Empties the queue. A forked child has no thread that sends it, and its parent sends it anyway."""
        self._queue.clear()
        self._dropped = 0
        self._waiter: threading.Thread | None = None  # a thread that runs while datagrams wait for room

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.send(dump_record(record, self._worker, self.current_env()))
        except Exception:
            self.handleError(record)

    def show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Replaces `warnings.showwarning`."""
        if file is not None:
            file.write(warnings.formatwarning(message, category, filename, lineno, line))
            return
        if says_nothing_new(filename, sys._getframe(1)):
            return
        warning = message if isinstance(message, Warning) else category(message)
        module = _module_of(filename, sys._getframe(1))
        self.send(dump_warning(warning, filename, lineno, module, self._worker, self.current_env()))

    def send(self, datagram: bytes) -> None:
        """Sends or queues a datagram. Never blocks or raises. Any thread may call this."""
        if self.is_silent:
            return
        self.acquire()
        try:
            self.before_record()
            self._queue.append(datagram)
            if not self._send_queue() and self._waiter is None:
                self._waiter = threading.Thread(target=self.flush, name="remuda-relay", daemon=True)
                with suppress(RuntimeError):  # if no thread can be started, the next flush sends the queue
                    self._waiter.start()
        finally:
            self.release()

    def flush(self, seconds: float = float("inf")) -> None:
        """Waits until all datagrams in the queue are sent, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._sock, select.POLLOUT)
        while not self._send_queue() and (left := deadline - time.monotonic()) > 0:
            poller.poll(min(left, 60.0) * 1000)

    def _send_queue(self) -> bool:
        """Sends as much as there is room for. Returns whether the queue is empty."""
        self.acquire()
        try:
            while self._dropped or self._queue:
                dropped, self._dropped = self._dropped, 0
                # Removed before it is sent, because a finalizer may log meanwhile and send the rest.
                datagram = self._loss(dropped) if dropped else self._queue.popleft()
                try:
                    self._sock.send(datagram, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    self._dropped += dropped
                    if not dropped:
                        self._queue.appendleft(datagram)
                    while len(self._queue) > _MOST_WAITING:
                        self._queue.popleft()
                        self._dropped += 1
                    return False
                except OSError:
                    pass  # the pool has closed its end of the socket
            self._waiter = None
            return True
        finally:
            self.release()

    def _loss(self, dropped: int) -> bytes:
        """Returns a datagram that was not announced, in place of so many that were."""
        text = "%d log records were dropped: they came faster than the pool could read them"
        record = logging.LogRecord("remuda", logging.WARNING, __file__, 0, text, (dropped,), None)
        setattr(record, LOST, dropped)
        return dump_record(record, self._worker, None)


def _module_of(filename: str, frame: FrameType | None) -> str:
    """Returns the module that a warning is about, for filters; if it is unknown, the file's name, as in Python."""
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    name: Any = None if frame is None else frame.f_globals.get("__name__")
    return name if isinstance(name, str) else filename.removesuffix(".py")


def start_relaying(handler: RelayHandler, verbosity: Verbosity) -> None:
    """Starts to send all logs and warnings of this process that `verbosity` allows.

    Removes inherited handlers and filters, because the pool's process applies its own.
    """
    for logger in (logging.root, *loggers()):
        logger.handlers[:] = []
        logger.filters[:] = []
        logger.propagate = True
    verbosity.apply()
    logging.root.addHandler(handler)
    warnings.showwarning = handler.show_warning
