"""Starts worker processes by one of three start methods: forkserver, spawn and fork (from a template).

Only threads that no signal handler interrupts start processes (`_system/apart.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from remuda import _core
from remuda._backends.forkserver.client import ForkServer, ServerGoneError, fork_server
from remuda._backends.forkserver.template import Template
from remuda._backends.process.interpreter import start_python
from remuda._backends.process.os_process import WorkerProcess
from remuda._backends.process.process_tree import kill_process_trees, new_key, with_key
from remuda._backends.process.watcher import watch
from remuda._backends.waiting import StartWait
from remuda._system.forks import register_holder
from remuda._system.limits import no_more_processes
from remuda._system.sockets import Socket, socket_pair
from remuda._wire.channel import SocketChannel
from remuda._wire.sealed_file import Address
from remuda._worker.main import Inherited, environment
from remuda.errors import RemudaError

_KILLED_SECONDS = 1.0  # seconds for the death of a process that is killed while it starts


@dataclass(frozen=True)
class Launch:
    """Describes the worker process to start.

    Attributes:
        worker: Its index.
        payload: The descriptor of the sealed file that has its config.
        address: The address of the config in that file.
        output: The descriptor of the worker's standard output and error; None: it inherits those of this process.
        relay: The descriptor that the worker sends its logs and warnings to.
        layout: For a successor: the descriptor of the sealed file with the pool's layout, and its address there.
        by_reset: Whether the first resets of the successor's envs build them, rather than the start.
    """

    worker: int
    payload: int
    address: Address
    output: int | None
    relay: int
    layout: tuple[int, Address] | None = None
    by_reset: bool = False


class Launcher:
    """Starts the worker processes of one pool.

    Attributes:
        inherited: For the start method "fork", what each worker inherits. The owner sets it before the first start,
            which forks the template and then clears it.
    """

    inherited: Sequence[Inherited] = ()

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

        Raises ResourceError if the system allows no more processes, ServerError if a module cannot be preloaded,
        RemudaError if the fork server or the template dies, and what `wait` raises.
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
        """Waits for a short time until this pool's workers are reaped. Ends its template."""
        if self._server is not None:
            self._server.finish_reaping()
            if self._server.is_template:
                self._server.end()

    def _start(self, what: Launch, wait: StartWait) -> WorkerProcess:
        server = None if self._start_method == "spawn" else self._ready_server(what.worker, wait)
        key = new_key()
        variables = with_key(environment(self._threads), key)
        channel, worker_end = _open_channel(what)
        try:
            with closing(worker_end):
                fd = worker_end.fileno()
                if server is None:
                    pid, pidfds = start_python("remuda._worker.main", "run_worker", fd, variables, what.output)
                else:
                    pid, pidfds = server.fork(what.worker, fd, variables, what.output, wait)
            reap = (lambda: None) if server is None else partial(server.reap, pid)
            return WorkerProcess(pid, pidfds, channel, reap, key)
        except BaseException:
            # Before the channel is closed, which ends the worker: a process that has ended no longer shows its key.
            kill_process_trees([key], _KILLED_SECONDS)
            channel.close()
            raise

    def _ready_server(self, worker: int, wait: StartWait) -> ForkServer:
        """Returns the pool's fork server or template, which gives all workers the same code.

        Replaces a fork server that has ended. Raises RemudaError if a template has ended.
        """
        if self._server is not None and not self._server.is_alive():
            self._server.retire(wait)
            if self._server.is_template:
                raise RemudaError(
                    f"worker {worker} could not be started: the process that forks workers "
                    f"{self._server.describe_end()}; make another pool"
                )
            self._server = None
        if self._server is None:
            variables = environment(self._threads)
            if self._start_method == "fork":
                self._server = Template(variables, self.inherited)
                self.inherited = ()  # the factories may keep the pool alive
            else:
                self._server = fork_server(self._threads, variables)
        for module in () if self._server.is_template else self._preload:
            self._server.preload(module, wait)
        return self._server


def _open_channel(what: Launch) -> tuple[SocketChannel, Socket]:
    """Returns this process's end of a socket, with the worker's first message posted, and the worker's end."""
    pool_end, worker_end = socket_pair()
    channel = SocketChannel(pool_end)
    register_holder(channel)
    try:
        channel.send_fds([what.relay, what.payload])
        if what.layout is None:
            channel.post([what.address])
        else:
            fd, address = what.layout
            channel.post([what.address, address, b"by reset" if what.by_reset else b""])
            channel.send_fds([fd])
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
