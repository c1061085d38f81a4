"""The client of a fork server or a template: requests workers from it.

Each process that owns pools has one server (for each thread setting), shared by all its pools; it ends with its owner.
Unlike `multiprocessing`'s server, it never imports the owner's main module, so scripts need no
`if __name__ == "__main__"` guard. Each worker gets the owner's environment variables, working directory,
import path and output streams as they are when it starts. A template belongs to one pool.

Only threads that no signal handler interrupts request something (`_system/apart.py`). One thread at a time has the
turn: it sends a request, and waits for the answer.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from remuda import _core
from remuda._backends.forkserver.imports import Imports
from remuda._backends.forkserver.messages import Answer, Failed, Fork, Preload, Reap, Request, receive, send_pickled
from remuda._backends.forkserver.server_process import (
    DEATH_SECONDS,
    ServerProcess,
    abandon_server,
    end_server,
    exitcode_of_zombie,
    reap_orphan,
    start_server,
)
from remuda._system.forks import fork_safe_lock, register_holder
from remuda._system.interpreter import arguments, import_path
from remuda._system.originals import time
from remuda._system.sockets import Socket, wait_readable
from remuda._wording import describe_exitcode
from remuda.errors import PickledException, RemoteTraceback, RemudaError

Wait: TypeAlias = Callable[[Sequence[int], "float | None"], object]
"""Waits until a descriptor is readable; at most so many seconds, if a number is given. Returns whether one is.

It raises an exception to give up the request.
"""

_PATIENCE = 10.0  # seconds for an answer before the server is replaced; imports may take longer.
_MOMENT = 0.5  # seconds for the answer to an abandoned request, before the server is ended.
_REAP_SECONDS = 5.0  # seconds for an exit code that only the server can read.
_SLICE = 0.05  # seconds between two checks whether a request that waits for its turn is given up

_AT_START = (
    "when it started; its output is on stderr; expected {!r} (sys.executable) to run Python with the packages and "
    "environment variables of this program; correct these, or use the start method 'fork'"
)


class ServerGoneError(Exception):
    """The server ended before it processed this request, which can be repeated with another server."""


class ServerError(RemudaError):
    """An exception of the fork server."""

    def __init__(self, error: Failed, request: Request) -> None:
        name, message, text, pickled = error
        super().__init__(f"the fork server met {name} in {request.doing}: {message}")
        self.__cause__ = RemoteTraceback(text)
        self._original = None if pickled is None else PickledException(pickled, text)

    def original(self) -> Exception:
        """Returns the server's exception itself, or this error if it cannot be loaded. May run code of the program."""
        exception = None if self._original is None else self._original.load()
        return exception if isinstance(exception, Exception) else self


class ForkServer:
    """A connection to a running fork server or template, which ends with this process or this object. Thread-safe."""

    is_template = False  # whether it is a `Template`, which cannot be replaced

    def __init__(self, environment: dict[str, str]) -> None:
        self._connect(*start_server(environment))

    def _connect(self, process: ServerProcess, sock: Socket) -> None:
        self._process, self._sock = process, sock
        self._was_late = False  # whether it was ended because it did not answer
        # Held by the thread that has the turn. Order of locks: `_reaping` (`os_process.py`), this one, `_servers_lock`.
        self._lock = threading.Lock()
        self._unread: deque[Request | None] = deque([None])  # requests without an answer; None: the server's start
        self._preloaded: set[str] = set()
        self._workers: set[int] = set()  # pids of workers that the server has not reaped
        self._zombies: set[int] = set()  # those of them that it must reap
        self._imports = Imports()
        self._is_ended = False
        self.close = weakref.finalize(self, abandon_server, self._process, self._sock, os.getpid())
        register_holder(self)

    def is_alive(self) -> bool:
        return self._is_open and not self._process.has_ended()

    @property
    def _is_open(self) -> bool:
        return not self._is_ended and self.close.alive  # at exit, `close` may have run while pools still use the server

    def end(self) -> None:
        """Ends the process, and waits for its end."""
        if self.close.detach() is not None:
            end_server(self._process, self._sock)

    def describe_end(self) -> str:
        """Describes the end of the process, which is not alive."""
        if self._was_late:
            return "was ended, because it did not answer in time"
        return f"died: {describe_exitcode(self._process.exitcode)}"

    def is_outdated(self) -> bool:
        """Whether the server has imported a module that has changed since."""
        return self._imports.are_outdated()

    # Each of these methods raises what `wait` raises, and ServerGoneError. They raise RemudaError if a fork server dies
    # of the request.

    def preload(self, module: str, wait: Wait) -> None:
        """Imports a module for all later workers. Raises ServerError if the import fails."""
        if module not in self._preloaded:
            self._request(Preload(module, import_path()), (), wait)
            self._preloaded.add(module)

    def fork(
        self, worker: int, worker_socket: int, environment: dict[str, str], output: int | None, wait: Wait
    ) -> tuple[int, _core.Descriptors]:
        """Forks a worker. Returns its pid and its pidfd.

        `output`: the worker's descriptors 1 and 2; None: those of this process.
        """
        request = Fork(worker, os.getpid(), environment, _directory(), import_path(), arguments())
        pid, pidfds = self._request(request, (worker_socket, *((1, 2) if output is None else (output, output))), wait)
        self._workers.add(pid)
        return pid, pidfds

    def reap(self, pid: int) -> int | None:
        """Leaves a worker that has ended to the server to reap. Returns its exit code; None if it is not known."""
        if not self.is_alive():
            return reap_orphan(pid, self._process)
        code = exitcode_of_zombie(pid)
        self._zombies.add(pid)
        if code is None:
            return self.finish_reaping().get(pid)
        if not self._unread and self._lock.acquire(blocking=False):
            try:
                with suppress(ServerGoneError):
                    self._send(Reap((pid,)))  # a later request reads the answer
            finally:
                self._lock.release()
        return code

    def finish_reaping(self) -> dict[int, int]:
        """Waits for a short time until the server has reaped all zombies. Returns the exit codes of these."""
        deadline = time.monotonic() + _REAP_SECONDS

        def wait(fds: Sequence[int], seconds: float | None) -> bool:
            left = deadline - time.monotonic()
            if wait_readable(fds, left if seconds is None else min(left, seconds)):
                return True
            if left <= 0:
                raise TimeoutError
            return False

        codes: dict[int, int] = {}
        if self._zombies and self._is_open:
            with suppress(TimeoutError, ServerGoneError, RemudaError):
                while self._zombies:  # late answers to abandoned requests may add some
                    codes |= self._request(Reap(tuple(self._zombies.copy())), (), wait)
        return codes

    def retire(self, wait: Wait) -> None:
        """Ends the server and closes its resources. Its workers continue."""
        with suppress(ServerGoneError), self._turn(wait):
            self._end()

    def drop_descriptors(self) -> None:
        """Closes a forked child's copies of the descriptors."""
        self._sock.close()
        self._process.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _request(self, request: Request, fds: Sequence[int], wait: Wait) -> Any:
        """Sends a request, and returns the value of its answer; for a `Fork`, also its descriptors."""
        data = pickle.dumps(request)
        with self._turn(wait):
            while self._unread:  # the server's start, or requests that were abandoned
                self._clear_away(*self._next_answer(request, wait))
            if self._zombies and not isinstance(request, Reap):
                self._send(Reap(tuple(self._zombies.copy())))
            self._send(request, data, fds)
            while True:
                answered, answer, received = self._next_answer(request, wait)
                if answered is not request:
                    continue
                if answer.error is not None:
                    error = ServerError(answer.error, request)
                    raise error if isinstance(request, Preload) else error.original()  # no module of the program
                return (answer.value, received) if isinstance(request, Fork) else answer.value

    @contextmanager
    def _turn(self, wait: Wait) -> Iterator[None]:
        """Waits until no other thread has the turn, and has it then. Raises ServerGoneError if the server has ended."""
        while not self._lock.acquire(timeout=_SLICE):
            try:
                wait((), 0)
            except BaseException:
                if any(isinstance(request, Preload) for request in self._unread.copy()):
                    _forget(self)  # the server is busy for another pool, so the next pool starts another server
                raise
        try:
            if not self._is_open:
                raise ServerGoneError
            yield
        finally:
            self._lock.release()

    def _send(self, request: Request, data: bytes | None = None, fds: Sequence[int] = ()) -> None:
        try:
            send_pickled(self._sock, pickle.dumps(request) if data is None else data, fds)
        except ConnectionError:
            self._end()
            raise ServerGoneError from None
        self._unread.append(request)

    def _next_answer(self, awaited: Request, wait: Wait) -> tuple[Request | None, Answer, _core.Descriptors]:
        """Waits for the answer to the first request in `_unread`. Returns both, and the descriptors of the answer."""
        request = self._unread[0]
        try:
            # Both, because another forked child may have a copy of the server's end of the socket, and keep it open.
            fds = [self._sock.fileno(), self._process.fileno()]
            is_there = wait(fds, _PATIENCE if isinstance(request, (Fork, Reap)) else None)
        except BaseException:
            self._abandon()
            raise
        if not is_there:
            self._end(was_late=True)
            raise ServerGoneError
        try:
            return self._read_answer()
        except (EOFError, ConnectionError, BlockingIOError):
            self._end()
        if self.is_template or (request is not awaited and request is not None):
            raise ServerGoneError
        where = _AT_START.format(sys.executable) if request is None else f"in {request.doing}"
        raise RemudaError(f"the fork server {self.describe_end()}, {where}")

    def _read_answer(self) -> tuple[Request | None, Answer, _core.Descriptors]:
        try:
            answer, fds = receive(self._sock)
        except (ConnectionError, BlockingIOError):
            raise
        except OSError:  # no descriptor was free for the ones in the answer
            self._unread.popleft()
            raise
        request = self._unread.popleft()
        self._imports.add(answer.imported)
        if isinstance(request, Reap):
            self._zombies.difference_update(request.pids)
            self._workers.difference_update(request.pids)
        return request, answer, fds

    def _abandon(self) -> None:
        """Gives up the requests without an answer, except those to reap.

        Ends a server that starts, or that does not fork within a moment: no later request might come to read its answer
        and to reap the worker. Ends a server that is busy with another request only if it has no workers, whose exit
        codes would be lost. Otherwise the next pool gets another server.
        """
        with suppress(EOFError, OSError):
            while any(isinstance(request, Fork) for request in self._unread):
                if not wait_readable([self._sock.fileno()], _MOMENT):
                    break
                self._clear_away(*self._read_answer())
        if all(isinstance(request, Reap) for request in self._unread):
            return None
        if isinstance(self._unread[0], (Preload, Reap)) and self._workers - self._zombies:
            return _forget(self)
        self._end(was_late=True)
        return None

    def _clear_away(self, request: Request | None, answer: Answer, fds: _core.Descriptors) -> None:
        """Kills the worker that was forked for an abandoned request."""
        if isinstance(request, Fork) and answer.error is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fds[0], signal.SIGKILL)
            self._zombies.add(answer.value)

    def _end(self, *, was_late: bool = False) -> None:
        """Ends the server. `was_late`: because it did not answer."""
        _forget(self)
        self._is_ended, self._was_late = True, was_late or self._was_late
        self._sock.close()
        self._process.kill()
        if self._process.has_ended(DEATH_SECONDS):
            self._process.close()
        while self._zombies:
            reap_orphan(self._zombies.pop(), self._process, DEATH_SECONDS)  # the worker may still be dying


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
