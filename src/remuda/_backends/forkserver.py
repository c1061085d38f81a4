"""A process that forks workers: it has imported what they all need, and nothing that does not survive a fork.

One runs for each pool-owning process (and thread setting), shared by all its pools; it ends with its owner. In
contrast to `multiprocessing`'s it never imports the owner's main module, so scripts need no
`if __name__ == "__main__"` guard, and each worker gets the owner's environment variables, working directory,
import path and output streams as they are when it starts.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

from remuda._backends.channel import SocketChannel

_BASICS = ("numpy", "gymnasium", "cloudpickle", "remuda._backends.worker_process")


@dataclass(frozen=True)
class _Fork:
    """Start a worker whose socket and output streams follow as descriptors."""

    owner: int
    environment: dict[str, str]
    directory: str
    path: list[str]
    argv: list[str]


@dataclass(frozen=True)
class _Reap:
    """Tell the exit code of a worker that has ended."""

    pid: int


@dataclass(frozen=True)
class _Preload:
    modules: tuple[str, ...]


# -- the owner's side ------------------------------------------------------------------------------------


class ForkServer:
    """A connection to a running fork server. Thread-safe."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python_command("remuda._backends.forkserver", "serve", theirs.fileno(), os.getpid()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        self._channel = SocketChannel(ours)
        self._lock = threading.Lock()
        self._preloaded: set[str] = set()

    def preload(self, modules: tuple[str, ...]) -> None:
        """Imports modules once for all workers to come. Raises what the import raised."""
        new = tuple(module for module in modules if module not in self._preloaded)
        if not new:
            return
        error = self._ask(_Preload(new))
        if error is not None:
            raise error
        self._preloaded.update(new)

    def fork(self, worker_socket: int, environment: dict[str, str]) -> int:
        """Starts a worker on that socket; returns its pid."""
        request = _Fork(os.getpid(), environment, os.getcwd(), sys.path, sys.argv)
        pid: int = self._ask(request, [worker_socket, 1, 2])
        return pid

    def reap(self, pid: int) -> int | None:
        """The exit code of a worker known to have ended, and an end to its being a zombie."""
        try:
            code: int | None = self._ask(_Reap(pid))
        except (EOFError, ConnectionError):
            return None  # the server itself was killed; its children went to init
        return code

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._channel.close()  # it ends when its socket does
        self._process.wait()

    def _ask(self, request: Any, fds: list[int] | None = None) -> Any:
        with self._lock:
            self._channel.send_object(request)
            if fds is not None:
                self._channel.send_fds(fds)
            return self._channel.recv_object()


_servers: dict[tuple[int, int | None], ForkServer] = {}
_servers_lock = threading.Lock()


def fork_server(threads: int | None, environment: dict[str, str]) -> ForkServer:
    """This process's fork server for workers with that many threads; started when first needed."""
    key = (os.getpid(), threads)  # a forked copy of this process must not use its parent's
    with _servers_lock:
        server = _servers.get(key)
        if server is None or not server.alive():
            server = _servers[key] = ForkServer(environment)
        return server


def python_command(module: str, function: str, *args: int) -> list[str]:
    """The command line of a fresh interpreter that finds what this one finds, and calls `function(*args)`."""
    call = f"{function}({', '.join(map(str, args))})"
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {call}",
    ]


# -- the server ------------------------------------------------------------------------------------------


def serve(fd: int, owner: int) -> None:
    """Serves requests from the socket `fd` until it is closed, or `owner` is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = SocketChannel(socket.socket(fileno=fd))
    owner_fd = os.pidfd_open(owner)
    for module in _BASICS:
        importlib.import_module(module)
    gc.freeze()
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    poller.register(owner_fd, select.POLLIN)
    try:
        while owner_fd not in dict(poller.poll()):
            channel.send_object(_answer(channel.recv_object(), channel, owner_fd))
    except (EOFError, ConnectionError):
        pass  # the owner has closed its end


def _answer(request: Any, channel: SocketChannel, owner_fd: int) -> Any:
    if isinstance(request, _Fork):
        return _fork(request, channel, owner_fd)
    if isinstance(request, _Preload):
        return _preload(request)
    return _reap(request)


def _fork(request: _Fork, channel: SocketChannel, owner_fd: int) -> int:
    fds = channel.recv_fds(3)
    pid = os.fork()
    if pid == 0:
        channel.close()
        os.close(owner_fd)
        _become_worker(request, fds)
    for fd in fds:
        os.close(fd)
    return pid


def _become_worker(request: _Fork, fds: list[int]) -> None:
    """Never returns."""
    from remuda._backends.worker_process import run_worker

    status = 1
    try:
        worker_socket, out, err = fds
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.directory)
        sys.path[:], sys.argv[:] = request.path, request.argv
        _reseed()
        run_worker(worker_socket, request.owner)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # not the server's exit handlers


def _reseed() -> None:
    """NumPy's global generator is the server's: without this all workers would draw the same numbers."""
    import numpy as np

    np.random.seed()


def _preload(request: _Preload) -> Exception | None:
    try:
        for module in request.modules:
            importlib.import_module(module)
    except Exception as error:
        return error
    return None


def _reap(request: _Reap) -> int | None:
    try:
        _, status = os.waitpid(request.pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
