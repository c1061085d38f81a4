"""The fork server: a process that imports what workers need, and forks them."""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from typing import Any

from remuda._backends.forkserver.messages import Answer, Fork, Module, Preload, Reap, receive, send
from remuda._backends.process.process_tree import show
from remuda._wire.failures import portable

_BASICS = ("numpy", "gymnasium", "cloudpickle", "remuda._worker.main")


def serve(fd: int, owner: int) -> None:
    """Serves requests from the socket `fd` until it is closed, or `owner` is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where the owner ignores it, we did too, and exit codes were lost
    try:
        _Server(socket.socket(fileno=fd), os.pidfd_open(owner)).run()
    except (EOFError, ConnectionError):
        pass  # the owner has closed its end


class _Server:
    def __init__(self, sock: socket.socket, owner_fd: int) -> None:
        self._sock, self._owner_fd = sock, owner_fd
        self._told: set[str] = set()  # modules that the owner knows we have

    def run(self) -> None:
        for module in _BASICS:
            importlib.import_module(module)
        gc.freeze()
        send(self._sock, Answer(imported=self._news()))
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        poller.register(self._owner_fd, select.POLLIN)
        while self._owner_fd not in dict(poller.poll()):
            request, fds = receive(self._sock)
            try:
                answer, told = self._try_to_answer(request, fds)
            finally:
                for fd in fds:
                    os.close(fd)
            try:
                send(self._sock, answer, told)
            finally:
                for fd in told:
                    os.close(fd)

    def _try_to_answer(self, request: Any, fds: list[int]) -> tuple[Answer, list[int]]:
        try:
            if isinstance(request, Fork):
                pid = self._fork(request, fds)
                return Answer(pid), [os.pidfd_open(pid)]
            if isinstance(request, Preload):
                _preload(request)
                return Answer(imported=self._news()), []
            return Answer(_reap(request)), []
        except BaseException as error:
            return Answer(error=portable(error), imported=self._news()), []

    def _fork(self, request: Fork, fds: list[int]) -> int:
        pid = os.fork()
        if pid == 0:
            self._sock.close()
            os.close(self._owner_fd)
            _become_worker(request, fds)
        return pid

    def _news(self) -> tuple[Module, ...]:
        """What was imported since the last time, as far as it is somebody's who may change it."""
        names = [name for name in sys.modules if name not in self._told]
        self._told.update(names)
        own = [name for name in names if _top(name) not in sys.stdlib_module_names and _top(name) != "remuda"]
        return tuple(module for name in own if (module := _described(name)) is not None)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _described(name: str) -> Module | None:
    origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
    if not isinstance(origin, str):
        return None
    try:
        stat = os.stat(origin)
    except OSError:
        return None  # "built-in", or within an archive
    return Module(name, os.path.abspath(origin), stat.st_mtime_ns, stat.st_size)


def _become_worker(request: Fork, fds: list[int]) -> None:
    """Never returns."""
    from remuda._worker.main import run_worker

    status = 1
    try:
        worker_socket, out, err = fds
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        show(request.environment)
        os.environ.clear()
        os.environ.update(request.environment)
        if request.directory is not None:
            os.chdir(request.directory)
        sys.path[:], sys.argv[:] = request.path, request.argv
        run_worker(worker_socket, request.owner)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # not the server's exit handlers


def _preload(request: Preload) -> None:
    sys.path[:] = request.path
    importlib.invalidate_caches()
    importlib.import_module(request.module)


def _reap(request: Reap) -> dict[int, int]:
    codes = {}
    for pid in request.pids:
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            continue
        codes[pid] = os.waitstatus_to_exitcode(status)
    return codes
