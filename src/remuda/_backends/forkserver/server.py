"""The fork server: a process that imports modules for workers, forks workers, and reaps their orphans.

A template (`template.py`) does the same, but imports nothing, because it was forked from the owner.

It adopts the orphans among its workers' descendants, as a subreaper. Otherwise they would become children of the owner
if that is the first process of a container, and the owner could not distinguish them from its own children.
"""

from __future__ import annotations

import gc
import importlib
import os
import posix
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda import _core
from remuda._backends.forkserver.messages import Answer, Fork, Module, Preload, Reap, receive, send
from remuda._backends.forkserver.server_process import children
from remuda._backends.process.process_tree import can_show_for_a_moment, show, take_on
from remuda._system.originals import select
from remuda._system.sockets import Socket, open_socket, socket_pair
from remuda._wire.failures import portable
from remuda._worker.forked_children import OneProcess, flush_output, run_and_end
from remuda._worker.job_signals import job_signals_blocked, settle_signals

if TYPE_CHECKING:
    from remuda._worker.main import Inherited

_BASICS = ("numpy", "gymnasium", "cloudpickle", "remuda._worker.main")


def serve(fd: int, owner: int, inherited: Sequence[Inherited] = ()) -> None:
    """Serves requests from the socket `fd` until it is closed, or the process `owner` has ended.

    `inherited`: in a template, what each worker inherits from the owner.
    """
    settle_signals(owner, on_interrupt=signal.SIG_DFL)
    with closing(open_socket(fd)) as sock:
        try:
            owner_fd = os.pidfd_open(owner)
        except ProcessLookupError:
            return  # the owner has ended already.
        server = _Server(sock, owner_fd, inherited)
        with closing(server), suppress(EOFError, ConnectionError):  # raised if the owner ends
            server.run()


class _Server:
    def __init__(self, sock: Socket, owner_fd: int, inherited: Sequence[Inherited]) -> None:
        self._sock, self._owner_fd, self._inherited = sock, owner_fd, inherited
        # Names of the modules that were reported to the owner. It knows those of a template.
        self._reported = set(sys.modules) if inherited else set[str]()
        self._workers: set[int] = set()  # pids of workers that are not reaped yet
        self._deaths = _Deaths()

    def run(self) -> None:
        _core.take_in_orphans()
        for module in () if self._inherited else _BASICS:
            importlib.import_module(module)
        gc.freeze()
        send(self._sock, Answer(imported=self._new_modules()))
        poller = select.poll()
        for fd in (self._sock, self._owner_fd, self._deaths):
            poller.register(fd, select.POLLIN)
        while self._owner_fd not in (ready := dict(poller.poll())):
            if self._deaths.fileno() in ready:
                self._deaths.forget()
                self._reap_orphans()
            if self._sock.fileno() in ready:
                self._serve_one()

    def close(self) -> None:
        """Closes the server's descriptors and resets its signal handler, at the end or in a forked worker."""
        self._deaths.close()
        self._sock.close()
        os.close(self._owner_fd)

    def _serve_one(self) -> None:
        request, fds = receive(self._sock)
        try:
            answer, pidfds = self._try_to_answer(request, fds)
        finally:
            fds.close()
        try:
            send(self._sock, answer, pidfds)
        finally:
            pidfds.close()

    def _try_to_answer(self, request: Any, fds: _core.Descriptors) -> tuple[Answer, _core.Descriptors]:
        try:
            if isinstance(request, Fork):
                pid = self._fork(request, fds)
                pidfds = _core.Descriptors([os.pidfd_open(pid)])
                self._workers.add(pid)  # last, because the owner gets no pid if `pidfd_open` raises
                return Answer(pid), pidfds
            if isinstance(request, Preload):
                with OneProcess():
                    _preload(request)
                return Answer(imported=self._new_modules()), _core.Descriptors([])
            return Answer(self._reap(request)), _core.Descriptors([])
        except BaseException as error:
            return Answer(error=portable(error), imported=self._new_modules()), _core.Descriptors([])

    def _fork(self, request: Fork, fds: _core.Descriptors) -> int:
        """Forks a worker. If possible, /proc shows the worker's key from the start, so that the owner can find it."""
        shows_its_key = can_show_for_a_moment(request.environment)
        if shows_its_key:
            show(request.environment)
        flush_output()  # otherwise the worker would print the buffered output again
        try:
            with job_signals_blocked():
                if (pid := _core.fork()) == 0:
                    self.close()
                    inherited = self._inherited[request.worker] if self._inherited else None
                    run_and_end(partial(_become_worker, request, fds, inherited))
            return pid
        finally:
            if shows_its_key:
                show(os.environ)

    def _reap(self, request: Reap) -> dict[int, int]:
        codes = {}
        for pid in self._workers.intersection(request.pids):
            _, status = posix.waitpid(pid, 0)  # not the function in `os`, which gevent replaces
            codes[pid] = os.waitstatus_to_exitcode(status)
            self._workers.remove(pid)
        self._reap_orphans()
        return codes

    def _reap_orphans(self) -> None:
        """Reaps all children except workers, which keep their pids until the owner requests a `Reap`."""
        for pid in set(children()) - self._workers:
            with suppress(ChildProcessError):
                posix.waitpid(pid, os.WNOHANG)

    def _new_modules(self) -> tuple[Module, ...]:
        """Returns the modules that were imported since the last call and that the user may edit."""
        names = [name for name in sys.modules if name not in self._reported]
        self._reported.update(names)
        own = [name for name in names if _top(name) not in sys.stdlib_module_names and _top(name) != "remuda"]
        return tuple(module for name in own if (module := _described(name)) is not None)


class _Deaths:
    """An object for `poll` that is readable when a child may have ended.

    If the owner ignores SIGCHLD, this process inherits that, and exit codes would be lost. Handling it prevents that.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket_pair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        return self._reader.fileno()

    def forget(self) -> None:
        with suppress(BlockingIOError):
            while self._reader.recv(1 << 12):
                pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._reader.close()
        self._writer.close()


def _top(name: str) -> str:
    return name.partition(".")[0]


def _described(name: str) -> Module | None:
    origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
    if not isinstance(origin, str):
        return None
    try:
        stat = os.stat(origin)
    except OSError:
        return None  # the origin is no file: "built-in", or a path within an archive
    return Module(name, os.path.abspath(origin), stat.st_mtime_ns, stat.st_size)


def _become_worker(request: Fork, fds: Iterable[int], inherited: Inherited | None) -> None:
    from remuda._worker.main import run_worker

    worker_socket, *outputs = fds
    for number, fd in enumerate(outputs, start=1):
        os.dup2(fd, number)
        os.close(fd)
    take_on(request.environment)
    if request.directory is not None:
        os.chdir(request.directory)
    sys.path[:], sys.argv = request.path, request.argv
    run_worker(worker_socket, request.owner, inherited)


def _preload(request: Preload) -> None:
    sys.path[:] = request.path
    importlib.invalidate_caches()
    importlib.import_module(request.module)
