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

from remuda._relay.records import dump_record, dump_warning
from remuda._relay.verbosity import Verbosity, loggers
from remuda._system.originals import select, time
from remuda._system.sockets import Socket
from remuda._wire.registrations import says_nothing_new

_QUEUE_BYTES = 1 << 20  # the most bytes of all datagrams that wait for room in the socket


class DatagramSender:
    """Sends datagrams, queues them, or drops the oldest ones. Never blocks or raises. Thread-safe."""

    def __init__(self, sock: Socket, worker: int) -> None:
        self._sock, self.worker = sock, worker
        self.before_record: Callable[[], None] = lambda: None  # called before each datagram; must not raise.
        self._waiter: threading.Thread | None = None  # a thread that runs while datagrams wait for room
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Empties the queue and renews the lock. A thread that a forked child lacks may hold the old one."""
        self._lock = threading.RLock()  # reentrant, because a finalizer may log at any point
        self._queue: deque[bytes] = deque()
        self._queued_bytes = self._dropped = 0
        self._draining = False

    def say(self, datagram: bytes) -> None:
        with self._lock:
            self.before_record()
            self._queue.append(datagram)
            self._queued_bytes += len(datagram)
            if not self._drain():
                self._make_room()
                self._wait_for_room()

    def flush(self, seconds: float) -> None:
        """Waits until all datagrams in the queue are sent, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                if self._drain():
                    return
            if (left := deadline - time.monotonic()) <= 0:
                return
            _await_room(self._sock, left)

    def _drain(self) -> bool:
        """Sends as much as there is room for. Returns True if the queue is empty, or another call is emptying it."""
        if self._draining:  # a finalizer has called this: the interrupted call empties the queue
            return True
        self._draining = True
        try:
            return self._drain_queue()
        finally:
            self._draining = False

    def _drain_queue(self) -> bool:
        if self._dropped:
            if not self._send(self._loss()):
                return False
            self._dropped = 0
        while self._queue:
            if not self._send(self._queue[0]):
                return False
            self._forget_oldest()
        return True

    def _send(self, datagram: bytes) -> bool:
        try:
            self._sock.send(datagram, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the pool has closed its end of the socket
        return True

    def _make_room(self) -> None:
        while self._queued_bytes > _QUEUE_BYTES:
            self._forget_oldest()
            self._dropped += 1

    def _forget_oldest(self) -> None:
        self._queued_bytes -= len(self._queue.popleft())

    def _loss(self) -> bytes:
        record = logging.makeLogRecord(
            {
                "name": "remuda",
                "levelno": logging.WARNING,
                "levelname": logging.getLevelName(logging.WARNING),
                "msg": "%d log records were dropped: they came faster than the pool could read them",
                "args": (self._dropped,),
            }
        )
        return dump_record(record, self.worker, None)

    def _wait_for_room(self) -> None:
        if self._waiter is None or not self._waiter.is_alive():
            self._waiter = threading.Thread(target=self._send_the_rest, name="remuda-relay", daemon=True)
            with suppress(RuntimeError):  # if no thread can be started, the next datagram tries again
                self._waiter.start()

    def _send_the_rest(self) -> None:
        while True:
            _await_room(self._sock, None)
            with self._lock:
                if self._drain():
                    self._waiter = None
                    return


def _await_room(sock: Socket, seconds: float | None) -> None:
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    poller.poll(None if seconds is None else seconds * 1000)


class RelayHandler(logging.Handler):
    """Sends the log records and warnings of this process to the pool's process."""

    def __init__(self, sender: DatagramSender, current_env: Callable[[], int | None]) -> None:
        super().__init__()
        self._sender, self._worker, self._current_env = sender, sender.worker, current_env

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sender.say(dump_record(record, self._worker, self._current_env()))
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
        self._sender.say(dump_warning(warning, filename, lineno, module, self._worker, self._current_env()))


def _module_of(filename: str, frame: FrameType | None) -> str:
    """Returns the module that a warning is about, for filters; if it is unknown, the file's name, as in Python."""
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    name: Any = None if frame is None else frame.f_globals.get("__name__")
    return name if isinstance(name, str) else filename.removesuffix(".py")


def start_relaying(sender: DatagramSender, verbosity: Verbosity, current_env: Callable[[], int | None]) -> None:
    """Starts to send all logs and warnings of this process that `verbosity` allows.

    Removes inherited handlers and filters, because the pool's process applies its own.
    """
    handler = RelayHandler(sender, current_env)
    for logger in (logging.root, *loggers()):
        logger.handlers[:] = []
        logger.filters[:] = []
        logger.propagate = True
    verbosity.apply()
    logging.root.addHandler(handler)
    warnings.showwarning = handler.show_warning
