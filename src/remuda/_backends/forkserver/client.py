"""The fork server's client: starts the server, and requests workers from it without ever blocking.

Each process that owns pools has one server (for each thread setting), shared by all its pools; it ends with its owner.
Unlike `multiprocessing`'s server, it never imports the owner's main module, so scripts need no
`if __name__ == "__main__"` guard. Each worker gets the owner's environment variables, working directory,
import path and output streams as they are when it starts.

The client never waits for the server: it sends requests while the server processes others, and reads the answers that
have come.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from remuda import _core
from remuda._backends.forkserver.imports import Imports
from remuda._backends.forkserver.messages import Answer, Fork, Preload, Reap, Request, receive, send_pickled
from remuda._backends.forkserver.server_process import (
    DEATH_SECONDS,
    end_server,
    exitcode_of_zombie,
    reap_orphan,
    start_server,
)
from remuda._system.forks import fork_safe_lock, register_holder
from remuda._system.interpreter import arguments, import_path
from remuda._system.originals import time
from remuda._system.polling import wait_readable
from remuda._wire.failures import load_exception
from remuda._wording import describe_exitcode
from remuda.errors import RemoteTraceback, RemudaError

_IN_FLIGHT = 8  # the most workers to fork at a time, because each takes descriptors.
_PATIENCE = 10.0  # seconds for an answer before the server is replaced; imports may take longer.
_MOMENT = 0.5  # seconds for the answer to an abandoned request, before the server is ended.
_REAP_SECONDS = 1.0  # seconds for an exit code that only the server can read.
_SLICE = 0.05  # seconds between two checks for an answer, which another thread may have read from the socket

_AT_START = (
    "when it started; its output is on stderr; expected {!r} (sys.executable) to run Python with the packages and "
    "environment variables of this program; correct these, or use the start method 'fork'"
)


class ServerGoneError(Exception):
    """The fork server ended before it processed this request, which can be repeated with another server."""


class Pending:
    """A request to the fork server, and later its answer.

    Attributes:
        request, message: The request, and its pickle.
        fds: The descriptors that are sent with it.
        own: The ones of these that are closed once the request has been sent or canceled.
        done: Whether the answer has come.
    """

    def __init__(self, request: Request | None, fds: Sequence[int] = (), own: _core.Descriptors | None = None) -> None:
        self.request, self.fds, self.own = request, fds, _core.Descriptors() if own is None else own
        self.message = pickle.dumps(request)
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self.is_unwanted = False

    def result(self) -> Any:
        """Returns the value of the answer. Raises the server's exception, or ServerGoneError."""
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error, self.done = value, error, True
        self.own.close()


def request_for_worker(
    worker_socket: _core.Descriptors, environment: dict[str, str], output: int | None = None
) -> Pending:
    """Returns a request to fork a worker. Its answer is the worker's pid and pidfd. Sending closes `worker_socket`.

    `output`: the worker's descriptors 1 and 2; None: those of this process.
    """
    request = Fork(os.getpid(), environment, _directory(), import_path(), arguments())
    fds = (*worker_socket, *((1, 2) if output is None else (output, output)))
    return Pending(request, fds, worker_socket)


class ForkServer:
    """A connection to a running fork server, which ends with this process or this object. Thread-safe.

    Its lock is held only briefly. The lock is reentrant, because a finalizer may run at any point.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._process, self._sock = start_server(environment)
        self._lock = fork_safe_lock()
        self._is_pumping = False
        self._unsent: deque[Pending] = deque()
        self._sent: deque[Pending] = deque([Pending(None)])  # the server's first answer reports that it has started.
        self._asked_at = time.monotonic()  # the time when the server began to process the first request in `_sent`
        self._preloads: dict[str, Pending] = {}
        self._zombies: set[int] = set()  # pids of workers that the server must reap, and has not reported as reaped.
        self._to_reap: list[int] = []  # pids in `_zombies` for the next request to reap
        self._reaping: Pending | None = None
        self._awaited: dict[int, int | None] = {}  # the exit codes that threads wait for, by pid; None: unknown yet
        self._imports = Imports()
        self._is_ended = False
        self._failure: RemudaError | None = None  # the error for later requests, if the server died when it started
        self.close = weakref.finalize(self, end_server, self._process, self._sock, os.getpid())
        register_holder(self)

    def descriptors(self) -> list[int]:
        """Returns the descriptor that is readable when an answer has come; empty if the server has ended."""
        with self._lock:
            return [self._sock.fileno()] if self._is_open else []

    def is_alive(self) -> bool:
        return self._is_open and not self._process.has_ended()

    @property
    def _is_open(self) -> bool:
        return not self._is_ended and self.close.alive  # at exit, `close` may have run while pools still use the server

    def is_outdated(self) -> bool:
        """Whether the server has imported a module that has changed since."""
        return self._imports.are_outdated()

    @property
    def has_room(self) -> bool:
        """Whether so few requests are pending that another worker may be requested."""
        return len(self._sent) + len(self._unsent) < _IN_FLIGHT

    def preload(self, module: str) -> Pending:
        """Requests the import of a module for all later workers. `result` raises the import's exception."""
        with self._lock:
            known = self._preloads.get(module)
            if known is None or (known.done and known._error is not None):
                known = Pending(Preload(module, import_path()))
                self.ask(known)
                self._preloads[module] = known  # only if it was sent: other threads wait for stored requests
            return known

    def ask(self, pending: Pending) -> None:
        """Sends a request without waiting. The caller can abandon the request even if this call is interrupted."""
        with self._lock:
            if not self._is_open:
                return pending.settle(None, self._failure or ServerGoneError())
            self._unsent.append(pending)
        return self.pump()

    def reap(self, pid: int) -> int | None:
        """Reaps a worker that has ended, and returns its exit code; None if it is not known."""
        if not self.is_alive():
            return reap_orphan(pid, self._process)
        code = exitcode_of_zombie(pid)
        with self._lock:
            self._leave_to_reap(pid)
            if code is None:
                self._awaited[pid] = None
        self.pump()
        if code is None:
            self._await(lambda: self._awaited[pid] is not None or not self._has_zombies(), _REAP_SECONDS)
            code = self._awaited.pop(pid)
        return code

    def finish_reaping(self) -> None:
        """Waits for a short time until the server has reaped all workers that it was requested to reap."""
        self._await(lambda: not self._has_zombies(), _REAP_SECONDS)

    def abandon(self, pending: Pending) -> None:
        """Cancels a request. Ends the server if it does not answer soon, and is busy with that request, or no other
        request waits for it: then no later call would read the answer and reap the worker."""
        self._await(lambda: pending.done, self._moment_left())
        with self._lock:
            pending.is_unwanted = True
            if pending.done:
                return self._clear_away(pending)
            if pending in self._unsent:
                self._unsent.remove(pending)
            if pending not in self._sent:
                return pending.settle(None, ServerGoneError())  # threads that wait for this import request it again
            if self._sent[0] is pending or self._is_abandoned():
                return self.retire()
            if isinstance(pending.request, Preload) or not self._is_starting():
                _forget(self)  # the server is busy for another pool, so the next pool starts another server
        return None

    def pump(self) -> None:
        """Reads the answers that have come, and sends requests without waiting. Ends a server that does not answer."""
        with self._lock:
            if self._is_pumping or not self._is_open:
                return
            try:
                self._exchange()
            except (EOFError, ConnectionError):
                self._died()
            except BaseException:
                self.retire()  # otherwise the next request would get the late answer to this one
                raise
            if self._is_silent():
                self.retire()

    def retire(self) -> None:
        """Ends the server and closes its resources. Its workers continue. Pending requests raise ServerGoneError."""
        with self._lock:
            self._end(None)

    def drop_descriptors(self) -> None:
        self._sock.close()
        self._process.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Sends and receives messages. If this is interrupted, even in its last line, `pump` retires the server."""
        self._is_pumping = True
        try:
            self._send_some()
            while self._take_answer():
                self._send_some()
        finally:
            self._is_pumping = False

    def _send_some(self) -> None:
        if self._to_reap and (self._reaping is None or self._reaping.done):
            self._reaping = Pending(Reap(tuple(self._to_reap)))
            self._unsent.append(self._reaping)
            self._to_reap = []
        while self._unsent:
            pending = self._unsent[0]
            try:
                send_pickled(self._sock, pending.message, pending.fds, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                raise
            except OSError as error:  # no descriptor is free for a file with the message
                self._unsent.popleft()
                pending.settle(None, error)
                continue
            if not self._sent:
                self._asked_at = time.monotonic()
            self._sent.append(self._unsent.popleft())
            pending.own.close()

    def _take_answer(self) -> bool:
        try:
            answer, fds = receive(self._sock, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            raise
        except OSError as error:  # no descriptor was free for the ones in the answer
            self._settle_first(None, error)
            return True
        pending = self._sent[0]
        self._imports.add(answer.imported)
        if pending is self._reaping and answer.error is None:
            self._awaited.update({pid: code for pid, code in answer.value.items() if pid in self._awaited})
        value = (answer.value, fds) if isinstance(pending.request, Fork) else answer.value
        self._settle_first(value, _error_of(answer, pending))
        return True

    def _settle_first(self, value: Any, error: BaseException | None) -> None:
        pending = self._sent.popleft()
        self._asked_at = time.monotonic()
        pending.settle(value, error)
        if isinstance(pending.request, Reap):
            self._zombies.difference_update(pending.request.pids)
        if pending.is_unwanted:
            self._clear_away(pending)

    def _clear_away(self, pending: Pending) -> None:
        """Kills the worker that was forked for an abandoned request."""
        if not isinstance(pending.request, Fork) or pending._error is not None:
            return
        pid, pidfds = pending.result()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfds[0], signal.SIGKILL)
        pidfds.close()
        self._leave_to_reap(pid)

    def _is_abandoned(self) -> bool:
        return all(pending.is_unwanted for pending in (*self._sent, *self._unsent) if pending.request is not None)

    def _is_starting(self) -> bool:
        return self._sent[0].request is None and time.monotonic() - self._asked_at < _PATIENCE

    def _moment_left(self) -> float:
        """Returns the seconds left to wait for the next answer; 0 for an answer that may take long, as to an import."""
        return max(0.0, self._asked_at + _MOMENT - time.monotonic()) if self._is_due_at_once() else 0.0

    def _is_silent(self) -> bool:
        """Whether the server has taken too long for a request that it should answer at once."""
        return self._is_due_at_once() and time.monotonic() - self._asked_at > _PATIENCE

    def _is_due_at_once(self) -> bool:
        return bool(self._sent) and isinstance(self._sent[0].request, (Fork, Reap))

    def _died(self) -> None:
        # The request that may be the cause of death: the one that the server was processing, or the first one if the
        # server had not started.
        what = next((pending for pending in (*self._sent, *self._unsent) if pending.request is not None), None)
        had_started = not self._sent or self._sent[0].request is not None
        exitcode = self._end(what)
        where = f"in {_doing(what)}" if had_started and what is not None else _AT_START.format(sys.executable)
        error = RemudaError(f"the fork server died: {describe_exitcode(exitcode)}, {where}")
        if what is not None:
            what.settle(None, error)
        elif not had_started:
            self._failure = error

    def _end(self, culprit: Pending | None) -> int | None:
        """Ends the server, and returns its exit code. All requests except `culprit` get ServerGoneError."""
        _forget(self)
        self._is_ended = True
        self._sock.close()
        self._process.kill()
        if self._process.has_ended(DEATH_SECONDS):
            self._process.close()
        while self._zombies:
            reap_orphan(self._zombies.pop(), self._process, DEATH_SECONDS)  # the worker may still be dying
        for pending in (*self._sent, *self._unsent):
            if pending is not culprit:
                pending.settle(None, ServerGoneError())
        self._sent.clear()
        self._unsent.clear()
        self._to_reap = []
        return self._process.exitcode

    def _leave_to_reap(self, pid: int) -> None:
        if not self._is_open:
            reap_orphan(pid, self._process, DEATH_SECONDS)
            return
        self._zombies.add(pid)
        self._to_reap.append(pid)

    def _has_zombies(self) -> bool:
        return bool(self._zombies)

    def _await(self, is_done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._is_open and not self._is_pumping:  # in a finalizer that interrupts `_exchange`, `pump` does nothing
            self.pump()
            left = deadline - time.monotonic()
            if is_done() or left <= 0:
                return
            wait_readable(self.descriptors(), min(left, _SLICE))


def _error_of(answer: Answer, pending: Pending) -> BaseException | None:
    if answer.error is None:
        return None
    name, message, text, pickled = answer.error
    exception = load_exception(text, pickled)
    if isinstance(exception, Exception):
        return exception
    error = RemudaError(f"the fork server met {name} in {_doing(pending)}: {message}")
    error.__cause__ = RemoteTraceback(text)
    return error


def _doing(pending: Pending) -> str:
    return "its start" if pending.request is None else pending.request.doing


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None  # the directory was removed, so the worker starts in the server's directory


# -- the servers of this process -------------------------------------------------------------------------------------

_servers: dict[tuple[int, int | None], ForkServer] = {}
_servers_lock = fork_safe_lock()


def fork_server(threads: int | None, environment: dict[str, str]) -> ForkServer:
    """Returns this process's fork server for workers with this number of threads. Starts it if needed.

    A server with outdated modules is replaced. Pools that use it keep it.
    """
    key = (os.getpid(), threads)  # a forked child must not use its parent's server
    with _servers_lock:
        server = _servers.get(key)
        if server is None or not server.is_alive() or server.is_outdated():
            server = _servers[key] = ForkServer(environment)
        return server


def _forget(server: ForkServer) -> None:
    """Makes the next pool start another server."""
    with _servers_lock:
        for key in [key for key, known in _servers.items() if known is server]:
            del _servers[key]
