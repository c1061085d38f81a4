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
import weakref
from dataclasses import dataclass
from typing import Any, NoReturn

from remuda._backends.channel import SocketChannel
from remuda._backends.family import PLACEHOLDER, show, with_key
from remuda._backends.host import load_exception, portable
from remuda.errors import RemoteTraceback, RemudaError, describe_exitcode

_BASICS = ("numpy", "gymnasium", "cloudpickle", "remuda._backends.worker_process")


@dataclass(frozen=True)
class _Fork:
    """Start a worker whose socket and output streams follow as descriptors."""

    owner: int
    environment: dict[str, str]
    directory: str | None
    path: list[str]
    argv: list[str]
    doing = "forking a worker"


@dataclass(frozen=True)
class _Reap:
    """Tell the exit code of a worker that has ended."""

    pid: int
    doing = "reaping a worker"


@dataclass(frozen=True)
class _Preload:
    module: str
    path: list[str]

    @property
    def doing(self) -> str:
        return f"importing {self.module}"


# -- the owner's side ------------------------------------------------------------------------------------


class ForkServer:
    """A connection to a running fork server, which ends with this process or this object. Thread-safe."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python_command("remuda._backends.forkserver", "serve", theirs.fileno(), os.getpid()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=with_key(environment, PLACEHOLDER),
                stdin=subprocess.DEVNULL,
            )
        self._channel = SocketChannel(ours)
        self._lock = threading.RLock()  # a finalizer may end a pool in the middle of anything
        self._is_asking = False
        self._late: list[int] = []  # to be reaped when the next worker is forked
        self._preloaded: set[str] = set()
        self.close = weakref.finalize(self, _end, self._process, self._channel, os.getpid())

    def preload(self, modules: tuple[str, ...]) -> None:
        """Imports modules once for all workers to come. Raises what the import raised."""
        for module in modules:
            if module not in self._preloaded:
                self._ask(_Preload(module, sys.path))
                self._preloaded.add(module)

    def fork(self, worker_socket: int, environment: dict[str, str], output: int | None = None) -> int:
        """Starts a worker on that socket; returns its pid. `output`: its descriptors 1 and 2, instead of ours."""
        request = _Fork(os.getpid(), environment, _directory(), sys.path, sys.argv)
        pid: int = self._ask(request, [worker_socket, *((1, 2) if output is None else (output, output))])
        late, self._late = self._late, []
        for ended in late:
            self.reap(ended)
        return pid

    def reap(self, pid: int) -> int | None:
        """The exit code of a worker known to have ended, and an end to its being a zombie; None: it is not known.

        It is put off in the middle of a request of the same thread, as where a garbage collection comes upon a pool
        that nobody has closed.
        """
        with self._lock:
            if self._is_asking:
                self._late.append(pid)
                return None
            try:
                code: int | None = self._ask(_Reap(pid))
            except RemudaError:
                return None  # the server itself was killed; its children went to init
            return code

    def alive(self) -> bool:
        return self._process.poll() is None

    def _ask(self, request: Any, fds: list[int] | None = None) -> Any:
        with self._lock:
            self._is_asking = True
            try:
                self._channel.send_object(request)
                if fds is not None:
                    self._channel.send_fds(fds)
                answer, error = self._channel.recv_object()
            except (EOFError, OSError):
                raise RemudaError(
                    f"the fork server died: {describe_exitcode(self._end())}, in {request.doing}"
                ) from None
            except BaseException:
                self._end()  # its answer to this request would be taken for the next one's
                raise
            finally:
                self._is_asking = False
        if error is not None:
            _raise_remote(error, request)
        return answer

    def _end(self) -> int:
        self._process.kill()
        return self._process.wait()


def _end(process: subprocess.Popen[bytes], channel: SocketChannel, owner: int) -> None:
    if os.getpid() == owner:  # in a forked copy it is somebody else's
        channel.close()
        process.kill()  # an import may be stuck; its children are not killed with it
        process.wait()


def _raise_remote(error: tuple[str, str, str, bytes | None], request: Any) -> NoReturn:
    name, message, text, pickled = error
    exception = load_exception(text, pickled)
    if isinstance(exception, Exception):
        raise exception
    raise RemudaError(f"the fork server met {name} in {request.doing}: {message}") from RemoteTraceback(text)


_servers: dict[tuple[int, int | None], ForkServer] = {}
_servers_lock = threading.Lock()


def fork_server(threads: int | None, environment: dict[str, str]) -> ForkServer:
    """This process's fork server for workers with that many threads; started when first needed."""
    key = (os.getpid(), threads)  # a forked copy of this process must not use its parent's
    with _servers_lock:
        server = _servers.get(key)
        if server is None or not server.alive():
            if server is not None:
                server.close()
            server = _servers[key] = ForkServer(environment)
        return server


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None  # it was removed: one place is as good as another


def python_command(module: str, function: str, *args: int) -> list[str]:
    """The command line of a fresh interpreter that finds what this one finds, and calls `function(*args)`."""
    call = f"{function}({', '.join(map(str, args))})"
    path = [entry for entry in sys.path if isinstance(entry, str)]  # as importing does, which skips others
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; from {module} import {function}; {call}"]


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
            channel.send_object(_try_to_answer(channel.recv_object(), channel, owner_fd))
    except (EOFError, ConnectionError):
        pass  # the owner has closed its end


def _try_to_answer(request: Any, channel: SocketChannel, owner_fd: int) -> Any:
    """(answer, None), or (None, the exception in a form that can travel)."""
    try:
        return _answer(request, channel, owner_fd), None
    except (EOFError, ConnectionError):
        raise
    except BaseException as error:
        return None, portable(error)


def _answer(request: Any, channel: SocketChannel, owner_fd: int) -> Any:
    if isinstance(request, _Fork):
        return _fork(request, channel, owner_fd)
    if isinstance(request, _Preload):
        return _preload(request)
    return _reap(request)


def _fork(request: _Fork, channel: SocketChannel, owner_fd: int) -> int:
    fds = channel.recv_fds(3)
    try:
        pid = os.fork()
        if pid == 0:
            channel.close()
            os.close(owner_fd)
            _become_worker(request, fds)
    finally:
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


def _preload(request: _Preload) -> None:
    sys.path[:] = request.path
    importlib.invalidate_caches()
    importlib.import_module(request.module)


def _reap(request: _Reap) -> int | None:
    try:
        _, status = os.waitpid(request.pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
