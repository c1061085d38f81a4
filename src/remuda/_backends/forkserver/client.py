"""The fork server's client: starts the server, and asks it for workers without ever blocking.

One runs for each pool-owning process (and thread setting), shared by all its pools; it ends with its owner. In
contrast to `multiprocessing`'s it never imports the owner's main module, so scripts need no
`if __name__ == "__main__"` guard, and each worker gets the owner's environment variables, working directory,
import path and output streams as they are when it starts.

Nobody waits for it here: requests are sent while it is busy with others, and answers are taken when they have come.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
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
from remuda._backends.process.child import Child, children
from remuda._backends.process.forked_descriptors import register
from remuda._backends.process.interpreter import python_command
from remuda._backends.process.process_tree import kill_process_trees, new_key, with_key
from remuda._system.exiting import leave_pools_alone
from remuda._system.forks import fork_safe_lock
from remuda._wire.failures import load_exception
from remuda._wording import describe_exitcode
from remuda.errors import RemoteTraceback, RemudaError

_IN_FLIGHT = 8  # workers that are being forked at a time; each takes descriptors
_PATIENCE = 10.0  # seconds for one answer, but for imports, which take what they take: who is silent is replaced
_MOMENT = 0.5  # seconds for an answer that nobody wants any more, before the server is ended for it
_REAP_SECONDS = 1.0  # for an exit code that only the server can tell
_SLICE = 0.05  # seconds between two looks at an answer: another thread may have taken it for us
_DEATH_SECONDS = 1.0  # for a server that was killed


class ServerGoneError(Exception):
    """The server ended while it was busy with another request, or has never been asked: ask again."""


class Pending:
    """A request, and later its answer.

    Attributes:
        request, message: It, and its pickle.
        fds: What is sent with it.
        own: Of these, what is closed as soon as it was sent, or will not be.
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
    """A worker on that socket, which is closed here; the answer is its pid and, as `Descriptors`, a pidfd.

    `output`: for its descriptors 1 and 2, instead of ours.
    """
    request = Fork(os.getpid(), environment, _directory(), list(sys.path), list(sys.argv))
    fds = (*worker_socket, *((1, 2) if output is None else (output, output)))
    return Pending(request, fds, worker_socket)


class ForkServer:
    """A connection to a running fork server, which ends with this process or this object. Thread-safe.

    Its lock is held for moments only, and again by a finalizer that comes in the middle of anything.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._process, self._sock = _start(environment)
        self._lock = fork_safe_lock()
        self._is_pumping = False
        self._unsent: deque[Pending] = deque()
        self._sent: deque[Pending] = deque([Pending(None)])  # the first answer tells that it has started
        self._asked_at = time.monotonic()  # when it came to the first of them
        self._preloads: dict[str, Pending] = {}
        self._zombies: set[int] = set()  # that it is to reap, as far as it has not said that it has
        self._to_reap: list[int] = []  # of these, those to be told when it has answered the last `Reap`
        self._reaping: Pending | None = None
        self._awaited: dict[int, int | None] = {}  # exit codes that somebody waits for, as far as they have come
        self._imports = Imports()
        self._is_ended = False
        self.close = weakref.finalize(self, _end, self._process, self._sock, os.getpid())
        register(self)

    def descriptors(self) -> list[int]:
        """The one that is readable when an answer has come; none when it has ended."""
        with self._lock:
            return [self._sock.fileno()] if self._is_open else []

    def is_alive(self) -> bool:
        return self._is_open and not self._process.has_ended()

    @property
    def _is_open(self) -> bool:
        return not self._is_ended and self.close.alive  # at exit it may be closed before its pools

    def is_outdated(self) -> bool:
        """Whether it has imported what would be imported otherwise now."""
        return self._imports.are_outdated()

    @property
    def has_room(self) -> bool:
        """Whether it may be asked to fork another worker."""
        return len(self._sent) + len(self._unsent) < _IN_FLIGHT

    def preload(self, module: str) -> Pending:
        """Imports a module once for all workers to come; what is done raises what the import raised."""
        with self._lock:
            known = self._preloads.get(module)
            if known is None or (known.done and known._error is not None):
                known = Pending(Preload(module, list(sys.path)))
                self.ask(known)
                self._preloads[module] = known  # now that it is sure to be asked for: others will wait for it
            return known

    def ask(self, pending: Pending) -> None:
        """The answer settles it. Whoever asks has it already: an interrupt in here loses no request to be abandoned."""
        with self._lock:
            if not self._is_open:
                return pending.settle(None, ServerGoneError())
            self._unsent.append(pending)
        return self.pump()

    def reap(self, pid: int) -> int | None:
        """The exit code of a worker known to have ended, and an end to its being a zombie; None: it is not known."""
        if not self.is_alive():
            return _reap_orphan(pid, self._process)
        code = _exitcode_of_zombie(pid)
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
        """Waits, though not for long, until no worker that was to be reaped is a zombie any more."""
        self._await(lambda: not self._has_zombies(), _REAP_SECONDS)

    def abandon(self, pending: Pending) -> None:
        """Nobody wants the answer any more, perhaps because it does not come."""
        self._await(lambda: pending.done, self._moment_left())
        with self._lock:
            pending.is_unwanted = True
            if pending.done:
                return self._clear_away(pending)
            if pending in self._unsent:
                self._unsent.remove(pending)
            if pending not in self._sent:
                return pending.settle(None, ServerGoneError())  # who waits for the same import asks for it
            if self._sent[0] is pending:
                return self.retire()
            if isinstance(pending.request, Preload) or not self._is_starting():
                _forget(self)  # it is busy for somebody else, or will be, but who comes next need not wait for that
        return None

    def pump(self) -> None:
        """Takes the answers that have come, sends what can be sent; a server that does not answer is ended."""
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
        """Ends it; its workers go on. It holds nothing any more. Who has asked it for something is to ask another."""
        with self._lock:
            self._end(None)

    def drop_descriptors(self) -> None:
        self._sock.close()
        self._process.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """For `pump`, which retires a server where this is cut off, be it in its last line."""
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
            except OSError as error:  # there is no descriptor for it
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
        """A worker that nobody wants is ended; nobody has talked to it."""
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
        """Seconds for an answer that will come at once if at all."""
        if not self._sent or not isinstance(self._sent[0].request, (Fork, Reap)):
            return 0.0
        return max(0.0, self._asked_at + _MOMENT - time.monotonic())

    def _is_silent(self) -> bool:
        """Whether it has been busy for too long with what takes but a moment."""
        if not self._sent or not isinstance(self._sent[0].request, (Fork, Reap)):
            return False
        return time.monotonic() - self._asked_at > _PATIENCE

    def _died(self) -> None:
        # Who asked first for what it was about to do, be it that it had not even started.
        what = next((pending for pending in (*self._sent, *self._unsent) if pending.request is not None), None)
        exitcode = self._end(what)
        if what is not None:
            what.settle(None, RemudaError(f"the fork server died: {describe_exitcode(exitcode)}, in {_doing(what)}"))

    def _end(self, culprit: Pending | None) -> int | None:
        """Tells all but the culprit that it is gone; returns its exit code."""
        _forget(self)
        self._is_ended = True
        self._sock.close()
        self._process.kill()
        if self._process.has_ended(_DEATH_SECONDS):
            self._process.close()
        while self._zombies:
            _reap_orphan(self._zombies.pop(), self._process, _DEATH_SECONDS)  # it may have been killed just now
        for pending in (*self._sent, *self._unsent):
            if pending is not culprit:
                pending.settle(None, ServerGoneError())
        self._sent.clear()
        self._unsent.clear()
        self._to_reap = []
        return self._process.exitcode

    def _leave_to_reap(self, pid: int) -> None:
        if not self._is_open:
            _reap_orphan(pid, self._process, _DEATH_SECONDS)
            return
        self._zombies.add(pid)
        self._to_reap.append(pid)

    def _has_zombies(self) -> bool:
        return bool(self._zombies)

    def _await(self, is_done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._is_open and not self._is_pumping:  # a finalizer in the middle of our own work gets no answer
            self.pump()
            left = deadline - time.monotonic()
            if is_done() or left <= 0:
                return
            poller = select.poll()
            for fd in self.descriptors():
                poller.register(fd, select.POLLIN)
            poller.poll(min(left, _SLICE) * 1000)


def _exitcode_of_zombie(pid: int) -> int | None:
    """As the kernel tells whoever may look; None: the server has to be asked."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        is_told = os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # others are told 0
    except OSError:
        return None
    if not is_told or words[0] != "Z":
        return None
    return os.waitstatus_to_exitcode(int(words[-1]))


def _start(environment: dict[str, str]) -> tuple[Child, socket.socket]:
    """A server's process, and our end of its socket."""
    key = new_key()  # workers write their own over it
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            process = subprocess.Popen(
                python_command("remuda._backends.forkserver.server", "serve", theirs.fileno(), os.getpid()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=with_key(environment, key),
                stdin=subprocess.DEVNULL,
            )
        return Child(process), ours
    except BaseException:  # interrupted: `Popen` may have started it, and not have told its pid
        ours.close()
        kill_process_trees([key], _DEATH_SECONDS)
        raise


def _end(process: Child, sock: socket.socket, owner: int) -> None:
    if os.getpid() == owner and leave_pools_alone():
        return  # it ends with us
    sock.close()
    if os.getpid() == owner:  # in a forked copy it is somebody else's
        process.kill()  # an import may be stuck; its children are not killed with it
        process.has_ended(None)
        for pid in children():  # nobody asks for their exit codes any more, if anybody has ever known of them
            _reap_orphan(pid, process)
    process.close()


def _reap_orphan(pid: int, server: Child, patience: float = 0.0) -> int | None:
    """The exit code of a worker whose server has ended: it went to the first process, which may be us.

    `patience`: seconds for it to end.
    """
    with suppress(OSError):  # it is not ours, or gone
        if os.getsid(pid) == server.pid:  # nobody else who has its pid by now
            _await_end(pid, patience)
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
            return None if end is None else end.si_status * (1 if end.si_code == os.CLD_EXITED else -1)
    return None


def _await_end(pid: int, seconds: float) -> None:
    pidfds = _core.Descriptors()
    pidfds.extend(map(os.pidfd_open, [pid]))
    poller = select.poll()
    poller.register(pidfds[0], select.POLLIN)
    poller.poll(seconds * 1000)


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


# -- who has which ---------------------------------------------------------------------------------------

_servers: dict[tuple[int, int | None], ForkServer] = {}
_servers_lock = fork_safe_lock()


def fork_server(threads: int | None, environment: dict[str, str]) -> ForkServer:
    """This process's fork server for workers with that many threads; started when first needed.

    One that has imported what has changed since is left to the pools that have it.
    """
    key = (os.getpid(), threads)  # a forked copy of this process must not use its parent's
    with _servers_lock:
        server = _servers.get(key)
        if server is None or not server.is_alive() or server.is_outdated():
            server = _servers[key] = ForkServer(environment)
        return server


def _forget(server: ForkServer) -> None:
    """The next pool gets another one."""
    with _servers_lock:
        for key in [key for key, known in _servers.items() if known is server]:
            del _servers[key]
