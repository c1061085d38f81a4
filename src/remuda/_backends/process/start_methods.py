"""The three start methods of worker processes: forkserver, spawn and fork."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from remuda import _core
from remuda._backends.forkserver.client import ForkServer, Pending, ServerGoneError, fork_server, request_for_worker
from remuda._backends.process.forked_descriptors import drop_inherited, register
from remuda._backends.process.interpreter import python_command
from remuda._backends.process.process_tree import kill_process_trees, new_key, show, with_key
from remuda._backends.process.watcher import watch
from remuda._backends.process.worker_process import WorkerProcess
from remuda._system.limits import no_more_processes
from remuda._wire.channel import SocketChannel
from remuda._wire.parcel import Address
from remuda._worker.main import WorkerConfig, environment, flush_output, run_worker


@dataclass(frozen=True)
class Launch:
    """What is to be started.

    Attributes:
        config: What the worker is told where it is forked from this process and inherits them.
        parcel: Otherwise: the descriptor of the parcel that they are in, and
        address: where.
        output: The descriptor that it gets as its standard output and error; None: it inherits ours.
        relay: The descriptor that it is to send its logs and warnings to.
        board: That of the board on which it notes what it has built; -1: there is none.
    """

    config: WorkerConfig
    parcel: int | None
    address: Address
    output: int | None
    relay: int
    board: int = -1

    @property
    def descriptors(self) -> list[int]:
        """What is sent along, in this order."""
        return [self.relay, *([] if self.parcel is None else [self.parcel]), *([] if self.board < 0 else [self.board])]


Register: TypeAlias = Callable[[WorkerProcess], None]
_KILLED_SECONDS = 1.0  # for a process that was started while we were interrupted, and was killed


class Launching:
    """A worker process that is being started. Nobody need wait for it: `poll` goes on as far as it can.

    It is registered as soon as there is one: an interrupt leaves none that is not.

    Attributes:
        process: When it has been started.
        key: Of all that is started from it.
    """

    def __init__(self, start: Start, what: Launch, register: Register) -> None:
        """`register`: from then on the end of the process is the caller's affair."""
        self.key = new_key()
        self.process: WorkerProcess | None = None
        self._start, self._what, self._register = start, what, register

    def poll(self) -> WorkerProcess | None:
        """Raises ResourceError where the system allows no more processes, and what a preloaded module raised."""
        if self.process is None:
            try:
                self.process = self._start(self._what, self.key, self._register)
            except BlockingIOError as refused:  # EAGAIN: nothing else here is asked not to wait
                raise no_more_processes(refused) from refused
        return self.process

    @property
    def is_under_way(self) -> bool:
        """Whether it has been asked for."""
        return self.process is not None or self._start.is_under_way

    def descriptors(self) -> list[int]:
        """Those that become readable when there is reason to `poll`."""
        return self._start.descriptors()

    def abandon(self) -> bool:
        """It is not wanted any more, unless it has been started; whether it may have been without our knowing."""
        if self.process is not None:
            return False
        was_under_way = self._start.is_under_way
        self._start.abandon()
        return was_under_way

    def close(self) -> None:
        """After `abandon`, and when whatever carries the key has been killed: closes what a worker would be told by."""
        self._start.close()


def abandon(launchings: Sequence[Launching]) -> None:
    """None of them is wanted any more. A server that was ended may just have forked one: it is looked for."""
    kill_process_trees([launching.key for launching in launchings if launching.abandon()], _KILLED_SECONDS)
    for launching in launchings:
        launching.close()


class Start(Protocol):
    """A way to start one process. Calling it again goes on, until it returns the process.

    Where it raises instead, whatever carries the key has been killed.
    """

    @property
    def is_under_way(self) -> bool: ...
    def __call__(self, what: Launch, key: str, register: Register) -> WorkerProcess | None: ...
    def descriptors(self) -> list[int]: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...


class Launcher:
    """Starts the worker processes of one pool."""

    def __init__(self, start_method: str, threads: int | None, preload: tuple[str, ...]) -> None:
        """Takes what all its workers have in common.

        Args:
            start_method: "forkserver", "spawn" or "fork".
            threads: That numeric libraries may start in a worker; None leaves them alone.
            preload: Modules for the fork server to import first.
        """
        self._threads, self._preload = threads, preload
        self._start_method = start_method
        self._server: ForkServer | None = None
        self._left: list[ForkServer] = []

    def launch(self, what: Launch, register: Register) -> Launching:
        """Raises ResourceError where the system allows no more processes."""
        occupy_standard_descriptors()
        try:
            watch()
        except BlockingIOError as refused:
            raise no_more_processes(refused) from refused
        _core.fill_reserve()
        return Launching(self._start(), what, register)

    def _start(self) -> Start:
        if self._start_method == "forkserver":
            return _FromServer(self)
        return _AtOnce(_start_fresh if self._start_method == "spawn" else _start_by_fork, self)

    def variables(self, key: str) -> dict[str, str]:
        return with_key(environment(self._threads), key)

    def server(self) -> ForkServer:
        """The pool's own, so that all its workers have the same code; another one when that has ended."""
        if self._server is None or not self._server.is_alive():
            if self._server is not None:
                self._server.pump()  # it learns of its end, and holds nothing any more
            self._server = fork_server(self._threads, environment(self._threads))
        return self._server

    def leave(self, server: ForkServer) -> None:
        """The next worker comes from another one."""
        if self._server is server:
            self._server = None
            self._left.append(server)

    def preloads(self) -> list[Pending]:
        return [self.server().preload(module) for module in self._preload]

    def finish(self) -> None:
        """No zombies are left, where that is ours to say."""
        for server in (*self._left, *([] if self._server is None else [self._server])):
            server.finish_reaping()


def _open_channel(what: Launch) -> tuple[SocketChannel, socket.socket]:
    """Our end, on which the worker's first message is on its way already, and its own."""
    ours, theirs = socket.socketpair()
    channel = SocketChannel(ours)
    register(channel)
    try:
        channel.send_fds(what.descriptors)
        channel.post([what.address])
    except BaseException:
        channel.close()
        theirs.close()
        raise
    return channel, theirs


def occupy_standard_descriptors() -> None:
    """Before anything else is opened: where the caller has closed them, our sockets would get their numbers, and then
    what a worker prints."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


class _FromServer:
    """Asks the fork server, and takes its answer when it has come.

    There may be a worker of which we have not been told. It is killed before our end of its socket is closed: it would
    end by itself then, and one that has ended shows its key to nobody.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._server: ForkServer | None = None
        self._preloads: list[Pending] = []
        self._fork: Pending | None = None
        self._channel: SocketChannel | None = None

    @property
    def is_under_way(self) -> bool:
        return self._fork is not None

    def __call__(self, what: Launch, key: str, register: Register) -> WorkerProcess | None:
        while True:
            try:
                process = self._go_on(what, key)
                if process is not None:
                    register(process)
                return process
            except ServerGoneError:
                kill_process_trees([key], _KILLED_SECONDS)
                self.close()
            except BaseException:
                self.abandon()
                kill_process_trees([key], _KILLED_SECONDS)
                self.close()
                raise

    def descriptors(self) -> list[int]:
        return [] if self._server is None else self._server.descriptors()

    def abandon(self) -> None:
        server, asked = self._server, [*self._preloads, *([] if self._fork is None else [self._fork])]
        self._server = self._fork = None
        self._preloads = []
        if server is None:
            return
        for pending in asked:
            server.abandon(pending)
        if not all(pending.done for pending in asked):
            self._launcher.leave(server)  # it did not answer in time

    def _go_on(self, what: Launch, key: str) -> WorkerProcess | None:
        if self._server is None:
            self._server = self._launcher.server()
            self._preloads = self._launcher.preloads()
        self._server.pump()
        for preload in self._preloads:
            if not preload.done:
                return None
            preload.result()
        if self._fork is None:
            if not self._server.has_room:
                return None
            variables = self._launcher.variables(key)
            self._channel, theirs = _open_channel(what)
            socket_of_worker = _core.Descriptors()
            socket_of_worker.extend(map(socket.socket.detach, [theirs]))
            self._fork = request_for_worker(socket_of_worker, variables, what.output)
            self._server.ask(self._fork)
        if not self._fork.done:
            return None
        pid, pidfds = self._fork.result()
        assert self._channel is not None  # it was opened for this
        server, channel, self._channel = self._server, self._channel, None
        return WorkerProcess(pid, pidfds, channel, lambda: server.reap(pid), key)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._server = self._fork = self._channel = None
        self._preloads = []


class _AtOnce:
    """Starts a process within one call."""

    is_under_way = False

    def __init__(self, start: Callable[..., _Reaper], launcher: Launcher) -> None:
        self._start, self._launcher = start, launcher

    def __call__(self, what: Launch, key: str, register: Register) -> WorkerProcess:
        channel, theirs = _open_channel(what)
        pids: list[int] = []
        pidfds = _core.Descriptors()
        reap: _Reaper = lambda: None  # noqa: E731 - nothing is there to be reaped yet
        try:
            with theirs, open(os.devnull) as place:
                reap = self._start(theirs, what, self._launcher.variables(key), pids)
                place.close()  # there is room for its pidfd
                pidfds.extend(map(os.pidfd_open, pids))  # no interrupt between opening it and knowing it
                process = WorkerProcess(pids[0], pidfds, channel, reap, key)
            register(process)
            return process
        except BaseException:
            kill_process_trees([key], _KILLED_SECONDS)  # also one whose pid we do not know yet: it waits for us
            channel.close()
            pidfds.close()
            for pid in pids:
                _end_child(pid)
                reap()
            raise

    def descriptors(self) -> list[int]:
        return []

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass


def _end_child(pid: int) -> None:
    """Where it is a child of ours whose exit code nobody has taken: otherwise its pid may be another's."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


_Reaper: TypeAlias = "Callable[[], int | None]"


def _start_fresh(theirs: socket.socket, what: Launch, variables: dict[str, str], pids: list[int]) -> _Reaper:
    process = subprocess.Popen(
        python_command("remuda._worker.main", "run_worker", theirs.fileno(), os.getpid()),
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=what.output,
        stderr=what.output,
    )
    pids.append(process.pid)

    def forget() -> None:
        process.returncode = 0  # it has been reaped: `subprocess` need not ask for its exit code, and must not guess

    return forget


def _start_by_fork(theirs: socket.socket, what: Launch, variables: dict[str, str], pids: list[int]) -> _Reaper:
    owner = os.getpid()
    flush_output()  # or the child would print it a second time
    # Until it has a process group of its own, Ctrl-C in the terminal hits the child too: it is blocked there.
    _core.fork_into(pids)
    if pids == [0]:
        _become_worker(theirs, owner, what, variables)
    return lambda: None


def _become_worker(theirs: socket.socket, owner: int, what: Launch, variables: dict[str, str]) -> None:
    """Never returns."""
    status = 1
    try:
        show(variables)
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)  # a terminal stops a background process that reads from it
        os.close(devnull)
        if what.output is not None:
            os.dup2(what.output, 1)
            os.dup2(what.output, 2)
        drop_inherited()
        os.environ.clear()
        os.environ.update(variables)
        run_worker(theirs.detach(), owner, what.config)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # not the owner's exit handlers
