"""Starts worker processes by one of three start methods: forkserver, spawn and fork."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from remuda import _core
from remuda._backends.forkserver.client import ForkServer, Pending, ServerGoneError, fork_server, request_for_worker
from remuda._backends.process.interpreter import start_python
from remuda._backends.process.os_process import WorkerProcess
from remuda._backends.process.process_tree import kill_process_trees, new_key, take_on, with_key
from remuda._backends.process.watcher import watch
from remuda._system.forks import drop_inherited, register_holder
from remuda._system.limits import no_more_processes
from remuda._system.sockets import Socket, socket_pair
from remuda._wire.channel import SocketChannel
from remuda._wire.sealed_file import Address
from remuda._worker.forked_children import flush_output, run_and_end
from remuda._worker.main import WorkerConfig, environment, run_worker

Register: TypeAlias = Callable[[WorkerProcess], None]
_Reaper: TypeAlias = Callable[[], int | None]

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
    """

    config: WorkerConfig
    payload: int | None
    address: Address
    output: int | None
    relay: int

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that are sent to the worker, in this order."""
        return [self.relay] if self.payload is None else [self.relay, self.payload]


class Launching:
    """A worker process that is being started. `poll` continues the start as far as possible without waiting.

    An interrupt of a start kills the process, unless it is stored already.

    Attributes:
        process: The process, once it has been started and registered.
        key: The key that the process and its descendants carry.
        is_under_way: Whether the process has been requested.
    """

    def __init__(self, launcher: Launcher, what: Launch, register: Register) -> None:
        """`register`: a C function, called with the new process, which the caller of `launch` must end from then on."""
        self.key = new_key()
        self.process: WorkerProcess | None = None
        self._launcher, self._what, self._register = launcher, what, register
        self._channel: SocketChannel | None = None  # until the process owns it

    def poll(self) -> WorkerProcess | None:
        """Returns the process; None while it has not been started.

        Raises ResourceError if the system allows no more processes, and the exception of a preloaded module. Kills all
        processes with the key before it raises.
        """
        if self.process is None:
            try:
                self._start()
            except BlockingIOError as refused:  # a fork failed with EAGAIN: no other call here is nonblocking
                raise no_more_processes(refused) from refused
        return self.process

    def _start(self) -> None:
        """Continues the start, and keeps the process once it has been started."""
        raise NotImplementedError

    def _keep(self, pid: int, pidfds: _core.Descriptors, reap: _Reaper) -> None:
        """Registers and stores the process, which owns the channel, in one step that no signal handler interrupts."""
        assert self._channel is not None  # opened for this process
        process = WorkerProcess(pid, pidfds, self._channel, reap, self.key)
        store = partial(setattr, self)
        keeping = [
            partial(self._register, process),
            partial(store, "process", process),
            partial(store, "_channel", None),
        ]
        _core.call_all(keeping)

    @property
    def is_under_way(self) -> bool:
        return self.process is not None

    def descriptors(self) -> list[int]:
        """Returns the descriptors that become readable when `poll` can continue."""
        return []

    def abandon(self) -> bool:
        """Cancels the start if there is no process yet. Returns True if a process may have been started anyway."""
        return False

    def close(self) -> None:
        """Closes the channel of an abandoned start, after all processes with the key have been killed."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def abandon(launchings: Sequence[Launching]) -> None:
    """Cancels starts. Kills workers that a fork server may have forked nevertheless; their keys identify them."""
    kill_process_trees([launching.key for launching in launchings if launching.abandon()], _KILLED_SECONDS)
    for launching in launchings:
        launching.close()


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
        self._left: list[ForkServer] = []

    def launch(self, what: Launch, register: Register) -> Launching:
        """Begins to start a process. Raises ResourceError if the system allows no more processes."""
        occupy_standard_descriptors()
        try:
            watch()
        except BlockingIOError as refused:
            raise no_more_processes(refused) from refused
        _core.fill_reserve()
        if self._start_method == "forkserver":
            return _ByServer(self, what, register)
        return (_BySpawn if self._start_method == "spawn" else _ByFork)(self, what, register)

    def variables(self, key: str) -> dict[str, str]:
        return with_key(environment(self._threads), key)

    def server(self) -> ForkServer:
        """Returns the pool's fork server, which gives all workers the same code. Replaces a server that has ended."""
        if self._server is None or not self._server.is_alive():
            if self._server is not None:
                self._server.pump()  # settles requests to the dead server and closes its descriptors
            self._server = fork_server(self._threads, environment(self._threads))
        return self._server

    def leave(self, server: ForkServer) -> None:
        """Makes another server start the next worker."""
        if self._server is server:
            self._server = None
            self._left.append(server)

    def preloads(self) -> list[Pending]:
        return [self.server().preload(module) for module in self._preload]

    def finish(self) -> None:
        """Waits for a short time until the servers have reaped this pool's workers."""
        for server in (*self._left, *([] if self._server is None else [self._server])):
            server.finish_reaping()


def _open_channel(what: Launch) -> tuple[SocketChannel, Socket]:
    """Returns this process's end of a socket, with the worker's first message posted, and the worker's end."""
    pool_end, worker_end = socket_pair()
    channel = SocketChannel(pool_end)
    register_holder(channel)
    try:
        channel.send_fds(what.descriptors)
        channel.post([what.address])
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


class _ByServer(Launching):
    """Requests a worker from the fork server, and reads the answer once it has come.

    If the start is abandoned, there may be a worker without an answer. It is killed before this process closes the
    worker's socket, because that would end the worker, and a process that has ended no longer shows its key.
    """

    def __init__(self, launcher: Launcher, what: Launch, register: Register) -> None:
        super().__init__(launcher, what, register)
        self._server: ForkServer | None = None
        self._preloads: list[Pending] = []
        self._fork: Pending | None = None

    @property
    def is_under_way(self) -> bool:
        return self.process is not None or self._fork is not None

    def _start(self) -> None:
        while True:
            try:
                return self._go_on()
            except ServerGoneError:
                kill_process_trees([self.key], _KILLED_SECONDS)
                self.close()
            except BaseException:
                if self.process is None:
                    self._abandon_requests()
                    kill_process_trees([self.key], _KILLED_SECONDS)
                    self.close()
                raise

    def descriptors(self) -> list[int]:
        return [] if self._server is None else self._server.descriptors()

    def abandon(self) -> bool:
        if self.process is not None:
            return False
        was_under_way = self.is_under_way
        self._abandon_requests()
        return was_under_way

    def _abandon_requests(self) -> None:
        server, requests = self._server, [*self._preloads, *([] if self._fork is None else [self._fork])]
        self._server = self._fork = None
        self._preloads = []
        if server is None:
            return
        for pending in requests:
            server.abandon(pending)
        if not all(pending.done for pending in requests):
            self._launcher.leave(server)  # the server did not answer in time

    def _go_on(self) -> None:
        if self._server is None:
            self._server = self._launcher.server()
            self._preloads = self._launcher.preloads()
        self._server.pump()
        for preload in self._preloads:
            if not preload.done:
                return
            preload.result()
        if self._fork is None:
            if not self._server.has_room:
                return
            variables = self._launcher.variables(self.key)
            self._channel, worker_end = _open_channel(self._what)
            socket_of_worker = _core.Descriptors()
            socket_of_worker.extend(map(Socket.detach, [worker_end]))
            self._fork = request_for_worker(socket_of_worker, variables, self._what.output)
            self._server.ask(self._fork)
        if not self._fork.done:
            return
        pid, pidfds = self._fork.result()
        self._keep(pid, pidfds, partial(self._server.reap, pid))

    def close(self) -> None:
        super().close()
        self._server = self._fork = None
        self._preloads = []


class _AtOnce(Launching):
    """Starts a process within one call of `poll`."""

    def _start(self) -> None:
        self._channel, worker_end = _open_channel(self._what)
        pids: list[int] = []
        pidfds = _core.Descriptors()
        reap: _Reaper = lambda: None  # noqa: E731 - there is no process to reap yet
        try:
            with closing(worker_end), open(os.devnull, "rb") as place:
                reap = self._start_child(worker_end, self._launcher.variables(self.key), pids)
                place.close()  # frees a descriptor for the pidfd.
                pidfds.extend(map(os.pidfd_open, pids))  # no interrupt comes before the pidfd is stored
                self._keep(pids[0], pidfds, reap)
        except BaseException:
            if self.process is None:
                kill_process_trees([self.key], _KILLED_SECONDS)  # kills the child even if its pid was not stored
                self.close()
                pidfds.close()
                for pid in pids:
                    _end_child(pid)
                    reap()
            raise

    def _start_child(self, worker_end: Socket, variables: dict[str, str], pids: list[int]) -> _Reaper:
        """Starts a child, and adds its pid to `pids`. Returns a function to call once the child is reaped."""
        raise NotImplementedError


def _end_child(pid: int) -> None:
    """Kills and reaps a child, unless it has been reaped already: its pid may then be another process's."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED)


class _BySpawn(_AtOnce):
    """Starts a worker in a fresh interpreter."""

    def _start_child(self, worker_end: Socket, variables: dict[str, str], pids: list[int]) -> _Reaper:
        process = start_python(
            "remuda._worker.main", "run_worker", worker_end.fileno(), variables, output=self._what.output
        )
        pids.append(process.pid)

        def forget() -> None:
            process.returncode = 0  # the child is reaped: `subprocess` must not wait for it or guess its exit code

        return forget


class _ByFork(_AtOnce):
    """Forks this process."""

    def _start_child(self, worker_end: Socket, variables: dict[str, str], pids: list[int]) -> _Reaper:
        owner = os.getpid()
        flush_output()  # otherwise the child would print the buffered output again.
        # The child blocks signals such as SIGINT, until it has replaced the handlers and the process group of this one.
        _core.fork_into(pids)
        if pids == [0]:
            run_and_end(partial(_become_worker, worker_end, owner, self._what, variables))
        return lambda: None


def _become_worker(worker_end: Socket, owner: int, what: Launch, variables: dict[str, str]) -> None:
    """Runs the worker in a forked child."""
    take_on(variables)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)  # not the terminal, which stops background processes that read
    os.close(devnull)
    if what.output is not None:
        os.dup2(what.output, 1)
        os.dup2(what.output, 2)
    drop_inherited()
    run_worker(worker_end.detach(), owner, what.config)
