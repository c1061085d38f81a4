"""The fork server's client: starts the server, and requests workers from it without ever blocking.

Each process that owns pools has one server (for each thread setting), shared by all its pools; it ends with its owner.
In contrast to `multiprocessing`'s it never imports the owner's main module, so scripts need no
`if __name__ == "__main__"` guard, and each worker gets the owner's environment variables, working directory,
import path and output streams as they are when it starts.

The client never waits for it: it sends requests while the server is busy with others, and takes answers that have come.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
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
from remuda._system.polling import wait_readable
from remuda._wire.failures import load_exception
from remuda._wording import describe_exitcode
from remuda.errors import RemoteTraceback, RemudaError

_IN_FLIGHT = 8  # workers that are being forked at a time; each takes descriptors
_PATIENCE = 10.0  # seconds for an answer other than to an import, before the server is replaced
_MOMENT = 0.5  # seconds for the answer to an abandoned request, before the server is ended
_REAP_SECONDS = 1.0  # for an exit code that only the server can tell
_SLICE = 0.05  # seconds between two looks at an answer: another thread may have taken it for us


class ServerGoneError(Exception):
    """The server ended before it processed this request: repeat it with another server."""


class Pending:
    """A request, and later its answer.

    Attributes:
        request, message: It, and its pickle.
        fds: The descriptors that are sent with it.
        own: Those of them that are closed once it has been sent or canceled.
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
        """Raises what the server met, or ServerGoneError."""
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error, self.done = value, error, True
        self.own.close()


def request_for_worker(
    worker_socket: _core.Descriptors, environment: dict[str, str], output: int | None = None
) -> Pending:
    """Requests a worker with that socket, which is closed here. The answer is its pid and, as `Descriptors`, a pidfd.

    `output`: for its descriptors 1 and 2, instead of those of this process.
    """
    request = Fork(os.getpid(), environment, _directory(), list(sys.path), list(sys.argv))
    fds = (*worker_socket, *((1, 2) if output is None else (output, output)))
    return Pending(request, fds, worker_socket)


class ForkServer:
    """A connection to a running fork server, which ends with this process or this object. Thread-safe.

    Its lock is held for moments only. It is reentrant, because a finalizer may run in the middle of anything.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._process, self._sock = start_server(environment)
        self._lock = fork_safe_lock()
        self._is_pumping = False
        self._unsent: deque[Pending] = deque()
        self._sent: deque[Pending] = deque([Pending(None)])  # the first answer comes once it has started
        self._asked_at = time.monotonic()  # when the server began to process the first of them
        self._preloads: dict[str, Pending] = {}
        self._zombies: set[int] = set()  # pids that it is to reap, and has not reported as reaped
        self._to_reap: list[int] = []  # of these, the pids for the next `Reap`
        self._reaping: Pending | None = None
        self._awaited: dict[int, int | None] = {}  # exit codes that a thread waits for; None: not known yet
        self._imports = Imports()
        self._is_ended = False
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
        return not self._is_ended and self.close.alive  # at exit it may be closed before its pools

    def is_outdated(self) -> bool:
        """Whether it has imported a module that has changed since."""
        return self._imports.are_outdated()

    @property
    def has_room(self) -> bool:
        """Whether another worker may be requested."""
        return len(self._sent) + len(self._unsent) < _IN_FLIGHT

    def preload(self, module: str) -> Pending:
        """Imports a module once for all workers to come; `result` raises what the import raised."""
        with self._lock:
            known = self._preloads.get(module)
            if known is None or (known.done and known._error is not None):
                known = Pending(Preload(module, list(sys.path)))
                self.ask(known)
                self._preloads[module] = known  # only now that it is sent, because others will wait for it
            return known

    def ask(self, pending: Pending) -> None:
        """Sends a request; the answer settles it. The caller can abandon it, even if this call is interrupted."""
        with self._lock:
            if not self._is_open:
                return pending.settle(None, ServerGoneError())
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
        """Waits for a short time until all workers that were to be reaped are reaped."""
        self._await(lambda: not self._has_zombies(), _REAP_SECONDS)

    def abandon(self, pending: Pending) -> None:
        """Cancels a request. A server that does not answer it soon is ended."""
        self._await(lambda: pending.done, self._moment_left())
        with self._lock:
            pending.is_unwanted = True
            if pending.done:
                return self._clear_away(pending)
            if pending in self._unsent:
                self._unsent.remove(pending)
            if pending not in self._sent:
                return pending.settle(None, ServerGoneError())  # others that wait for the same import repeat it
            if self._sent[0] is pending:
                return self.retire()
            if isinstance(pending.request, Preload) or not self._is_starting():
                _forget(self)  # it is busy for another pool, but the next pool need not wait for that
        return None

    def pump(self) -> None:
        """Takes the answers that have come, and sends what can be sent. Ends a server that does not answer."""
        with self._lock:
            if self._is_pumping or not self._is_open:
                return
            try:
                self._exchange()
            except (EOFError, ConnectionError):
                self._died()
            except BaseException:
                self.retire()  # its answer to this request would be taken for the next one's
                raise
            if self._is_silent():
                self.retire()

    def retire(self) -> None:
        """Ends the server and closes all it holds; its workers continue. Its requests raise ServerGoneError."""
        with self._lock:
            self._end(None)

    def drop_descriptors(self) -> None:
        self._sock.close()
        self._process.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Exchanges messages. If it is interrupted, even in its last line, `pump` retires the server."""
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
            except OSError as error:  # there is no free descriptor for its message
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
        except OSError as error:  # no descriptor was left for what came with it
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
        """Kills the worker of an abandoned request."""
        if not isinstance(pending.request, Fork) or pending._error is not None:
            return
        pid, pidfds = pending.result()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfds[0], signal.SIGKILL)
        pidfds.close()
        self._leave_to_reap(pid)

    def _is_starting(self) -> bool:
        return self._sent[0].request is None and time.monotonic() - self._asked_at < _PATIENCE

    def _moment_left(self) -> float:
        """Returns the seconds left for an answer that should come at once; 0 for other answers."""
        return max(0.0, self._asked_at + _MOMENT - time.monotonic()) if self._is_due_at_once() else 0.0

    def _is_silent(self) -> bool:
        """Whether it has been busy for too long with a request that takes a moment."""
        return self._is_due_at_once() and time.monotonic() - self._asked_at > _PATIENCE

    def _is_due_at_once(self) -> bool:
        return bool(self._sent) and isinstance(self._sent[0].request, (Fork, Reap))

    def _died(self) -> None:
        # The request that the server was processing, or the first one for a server that has not started.
        what = next((pending for pending in (*self._sent, *self._unsent) if pending.request is not None), None)
        exitcode = self._end(what)
        if what is not None:
            what.settle(None, RemudaError(f"the fork server died: {describe_exitcode(exitcode)}, in {_doing(what)}"))

    def _end(self, culprit: Pending | None) -> int | None:
        """Settles all requests but the culprit with ServerGoneError; returns the server's exit code."""
        _forget(self)
        self._is_ended = True
        self._sock.close()
        self._process.kill()
        if self._process.has_ended(DEATH_SECONDS):
            self._process.close()
        while self._zombies:
            reap_orphan(self._zombies.pop(), self._process, DEATH_SECONDS)  # it may have been killed just now
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
        while self._is_open and not self._is_pumping:  # a finalizer in the middle of `_exchange` gets no answer
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
        return None  # it was removed: one place is as good as another


# -- servers by thread setting ---------------------------------------------------------------------------------------

_servers: dict[tuple[int, int | None], ForkServer] = {}
_servers_lock = fork_safe_lock()


def fork_server(threads: int | None, environment: dict[str, str]) -> ForkServer:
    """Returns this process's fork server for workers with that many threads; starts it when first needed.

    A server with outdated modules is replaced; pools that use it keep it.
    """
    key = (os.getpid(), threads)  # a forked copy of this process must not use its parent's
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
