"""Starts worker processes by one of three start methods: forkserver, spawn and fork.

Only threads that no signal handler interrupts start processes (`_system/apart.py`).
"""

from __future__ import annotations

import os
import posix
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from remuda import _core
from remuda._backends.forkserver.client import ForkServer, ServerGoneError, fork_server
from remuda._backends.process.interpreter import start_python
from remuda._backends.process.os_process import WorkerProcess
from remuda._backends.process.process_tree import kill_process_trees, new_key, take_on, with_key
from remuda._backends.process.start_wait import StartWait
from remuda._backends.process.watcher import watch
from remuda._system.forks import drop_inherited, register_holder
from remuda._system.limits import no_more_processes
from remuda._system.sockets import Socket, socket_pair
from remuda._wire.channel import SocketChannel
from remuda._wire.sealed_file import Address
from remuda._worker.forked_children import flush_output, run_and_end
from remuda._worker.job_signals import job_signals_blocked
from remuda._worker.main import WorkerConfig, environment, run_worker

# The pid of a new process, its pidfd, and a function to call once the process is reaped, which may return its exit code
_Started: TypeAlias = tuple[int, _core.Descriptors, Callable[[], "int | None"]]

_KILLED_SECONDS = 1.0  # seconds for the death of a process that is killed while it starts


@dataclass(frozen=True)
class Launch:
    """Describes the worker process to start.

    Attributes:
        config: The worker's config, which a worker that is forked from this process inherits.
        payload: The descriptor of the sealed file that has the config; None if the worker inherits it.
        address: The address of the config in that file.
        output: The descriptor of the worker's standard output and error; None: it inherits those of this process.
        relay: The descriptor that the worker sends its logs and warnings to.
        by_reset: Whether the first resets of the envs build them, rather than the start.
    """

    config: WorkerConfig
    payload: int | None
    address: Address
    output: int | None
    relay: int
    by_reset: bool = False

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that are sent to the worker, in this order."""
        return [self.relay] if self.payload is None else [self.relay, self.payload]


class Launcher:
    """Starts the worker processes of one pool."""

    def __init__(self, start_method: str, threads: int | None, preload: tuple[str, ...]) -> None:
        """Takes the settings that all workers share.

        Args:
            start_method: "forkserver", "spawn" or "fork".
            threads: The number of threads that numeric libraries may start in a worker; None: no limit.
            preload: Modules for the fork server to import first.
        """
        self._threads, self._preload = threads, preload
        self._start_method = start_method
        self._server: ForkServer | None = None

    def start(self, what: Launch, wait: StartWait) -> WorkerProcess:
        """Starts a process. If this raises, all processes with its key were killed.

        Raises ResourceError if the system allows no more processes, the exception of a preloaded module, RemudaError if
        the fork server dies, and what `wait` raises.
        """
        occupy_standard_descriptors()
        try:
            watch()
            _core.fill_reserve()
            while True:
                with suppress(ServerGoneError):  # another server repeats the start
                    return self._start(what, wait)
        except BlockingIOError as refused:  # a fork failed with EAGAIN: no other call here is nonblocking
            raise no_more_processes(refused) from refused

    def finish(self) -> None:
        """Waits for a short time until the fork server has reaped this pool's workers."""
        if self._server is not None:
            self._server.finish_reaping()

    def _start(self, what: Launch, wait: StartWait) -> WorkerProcess:
        server = self._ready_server(wait) if self._start_method == "forkserver" else None
        key = new_key()
        variables = with_key(environment(self._threads), key)
        channel, worker_end = _open_channel(what)
        try:
            with closing(worker_end):
                if server is not None:
                    pid, pidfds = server.fork(worker_end.fileno(), variables, what.output, wait)
                    reap: Callable[[], int | None] = partial(server.reap, pid)
                else:
                    start = _spawn if self._start_method == "spawn" else _fork
                    pid, pidfds, reap = start(what, worker_end, variables)
            return WorkerProcess(pid, pidfds, channel, reap, key)
        except BaseException:
            # Before the channel is closed, which ends the worker: a process that has ended no longer shows its key.
            kill_process_trees([key], _KILLED_SECONDS)
            channel.close()
            raise

    def _ready_server(self, wait: StartWait) -> ForkServer:
        """Returns the pool's fork server, which gives all workers the same code. Replaces a server that has ended."""
        if self._server is not None and not self._server.is_alive():
            self._server.retire(wait)
            self._server = None
        if self._server is None:
            self._server = fork_server(self._threads, environment(self._threads))
        for module in self._preload:
            self._server.preload(module, wait)
        return self._server


def _open_channel(what: Launch) -> tuple[SocketChannel, Socket]:
    """Returns this process's end of a socket, with the worker's first message posted, and the worker's end."""
    pool_end, worker_end = socket_pair()
    channel = SocketChannel(pool_end)
    register_holder(channel)
    try:
        channel.send_fds(what.descriptors)
        channel.post([what.address, b"by reset"] if what.by_reset else [what.address])
    except BaseException:
        channel.close()
        worker_end.close()
        raise
    return channel, worker_end


def occupy_standard_descriptors() -> None:
    """Opens the standard descriptors that the caller has closed, before any other descriptor is opened.

    Otherwise sockets would get their numbers and receive a worker's output.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # opens `fd`, the lowest free number


def _spawn(what: Launch, worker_end: Socket, variables: dict[str, str]) -> _Started:
    """Starts a worker in a fresh interpreter."""
    process = start_python("remuda._worker.main", "run_worker", worker_end.fileno(), variables, output=what.output)

    def forget() -> None:
        process.returncode = 0  # the child is reaped: `subprocess` must not wait for it or guess its exit code

    return process.pid, _pidfd_of_child(process.pid, forget), forget


def _fork(what: Launch, worker_end: Socket, variables: dict[str, str]) -> _Started:
    """Forks this process."""
    owner = os.getpid()
    flush_output()  # otherwise the child would print the buffered output again.
    # The child blocks signals such as SIGINT, until it has replaced the handlers and the process group of this one.
    with job_signals_blocked():
        if (pid := _core.fork()) == 0:
            run_and_end(partial(_become_worker, worker_end, owner, what, variables))
    return pid, _pidfd_of_child(pid, lambda: None), lambda: None


def _pidfd_of_child(pid: int, forget: Callable[[], object]) -> _core.Descriptors:
    """Opens the pidfd of a new child. If no descriptor is free, kills and reaps the child, calls `forget`, raises."""
    try:
        return _core.Descriptors([os.pidfd_open(pid)])
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # SIGCHLD is ignored, or other code waits for all children
            posix.waitid(os.P_PID, pid, os.WEXITED)
        forget()
        raise


def _become_worker(worker_end: Socket, owner: int, what: Launch, variables: dict[str, str]) -> None:
    """Runs the worker in a forked child."""
    take_on(variables)
    main = threading.current_thread()  # the thread that forked is the main thread of the child
    main.name, main._daemonic = "MainThread", False  # type: ignore[attr-defined]
    _end_imports()
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)  # not the terminal, which stops background processes that read
    os.close(devnull)
    if what.output is not None:
        os.dup2(what.output, 1)
        os.dup2(what.output, 2)
    drop_inherited()
    run_worker(worker_end.detach(), owner, what.config)


def _end_imports() -> None:
    """Makes the modules usable that another thread of the parent imports, such as one that makes a pool when imported.

    That thread does not exist in this child. Without this, an import of such a module would wait for it forever.
    """
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            spec._initializing = False  # type: ignore[union-attr]
