"""The three ways to start a worker process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from select import POLLIN, poll

from remuda._backends.channel import SocketChannel
from remuda._backends.forkserver import fork_server, python_command
from remuda._backends.worker_process import Orders, environment, flush_output, run_worker

START_METHODS = ("forkserver", "spawn", "fork")


class WorkerProcess:
    """A started process, watched through a pidfd: no other process can ever be mistaken for it.

    Attributes:
        pid: Its process id, which is also its process group's.
        pidfd: Readable once it has ended.
        channel: The socket to it.
    """

    def __init__(self, pid: int, sock: socket.socket, reap: Callable[[], int | None]) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = SocketChannel(sock, self.pidfd)
        self._reap = reap
        self._ended = False
        self._exitcode: int | None = None

    def wait(self, timeout: float | None) -> bool:
        """Whether it ends within `timeout` seconds (None: for ever)."""
        if self._ended:
            return True
        poller = poll()
        poller.register(self.pidfd, POLLIN)
        return bool(poller.poll(None if timeout is None else max(0, min(timeout, 1e6) * 1000)))

    def exitcode(self) -> int | None:
        """None while it runs, or when it cannot be learned; negative for a signal."""
        if not self._ended and self.wait(0):
            self.kill_group()  # what it has spawned must not outlive it; before the pid can be reused
            self._exitcode = self._reap()
            self._ended = True
        return self._exitcode

    def queued_seconds(self) -> float:
        """How long its main thread has been ready to run without a core to run on; 0 when it cannot be learned."""
        try:
            with open(f"/proc/{self.pid}/schedstat") as schedstat:
                return int(schedstat.read().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def signal_group(self, number: int) -> None:
        if self._ended:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            self._signal_alone(number)

    def _signal_alone(self, number: int) -> None:
        """For the moment before it has made its own group."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass  # it has ended already

    def kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)

    def release(self) -> None:
        """Closes what we hold of it. It must have ended."""
        self.exitcode()
        self.channel.close()
        os.close(self.pidfd)


@dataclass(frozen=True)
class Launch:
    """What is to be started.

    Attributes:
        orders: What the worker will be told. It inherits them where it is forked from this process; otherwise the
            caller sends them.
        threads: That numeric libraries may start in it; None leaves them alone.
        preload: Modules for the fork server to import first.
    """

    orders: Orders
    threads: int | None
    preload: tuple[str, ...]


def launch(start_method: str, what: Launch) -> WorkerProcess:
    """Starts a worker process."""
    _occupy_standard_descriptors()
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            pid, reap = _STARTERS[start_method](theirs, ours, what)
    except BaseException:
        ours.close()
        raise
    return WorkerProcess(pid, ours, reap)


def _occupy_standard_descriptors() -> None:
    """Where the caller has closed them, our sockets would get their numbers, and then what a worker prints."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


_Started = tuple[int, Callable[[], "int | None"]]


def _start_from_server(theirs: socket.socket, ours: socket.socket, what: Launch) -> _Started:
    variables = environment(what.threads)
    server = fork_server(what.threads, variables)
    server.preload(what.preload)
    pid = server.fork(theirs.fileno(), variables)
    return pid, lambda: server.reap(pid)


def _start_fresh(theirs: socket.socket, ours: socket.socket, what: Launch) -> _Started:
    process = subprocess.Popen(
        python_command("remuda._backends.worker_process", "run_worker", theirs.fileno(), os.getpid()),
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env=environment(what.threads),
        stdin=subprocess.DEVNULL,
    )
    return process.pid, process.wait


def _start_by_fork(theirs: socket.socket, ours: socket.socket, what: Launch) -> _Started:
    owner = os.getpid()
    flush_output()  # or the child would print it a second time
    # Until it has a process group of its own, Ctrl-C in the terminal hits the child too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pid = os.fork()
        if pid == 0:
            _become_worker(theirs, ours, owner, what)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid, lambda: _waitpid(pid)


def _become_worker(theirs: socket.socket, ours: socket.socket, owner: int, what: Launch) -> None:
    """Never returns."""
    status = 1
    try:
        ours.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a terminal stops a background process that reads from it
        variables = environment(what.threads)
        os.environ.clear()
        os.environ.update(variables)
        run_worker(theirs.detach(), owner, what.orders)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # not the owner's exit handlers


def _waitpid(pid: int) -> int | None:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None  # somebody else in this process reaped it
    return os.waitstatus_to_exitcode(status)


_STARTERS = {"forkserver": _start_from_server, "spawn": _start_fresh, "fork": _start_by_fork}


def end_all(processes: list[WorkerProcess], timeout: float) -> None:
    """Ends processes: `timeout` seconds for those that are leaving, then SIGTERM, then SIGKILL."""
    try:
        if not _all_end_within(timeout, processes):
            _signal_all(signal.SIGTERM, processes)
            _all_end_within(1.0, processes)
    finally:  # also where Ctrl-C cuts our patience short
        _signal_all(signal.SIGKILL, processes)
        _all_end_within(10.0, processes)
        for process in processes:
            process.release()


def _signal_all(number: int, processes: list[WorkerProcess]) -> None:
    for process in processes:
        if not process.wait(0):
            process.signal_group(number)


def _all_end_within(timeout: float, processes: list[WorkerProcess]) -> bool:
    deadline = time.monotonic() + timeout
    # A list, so that every process is waited for, also after one that is late.
    return all([process.wait(deadline - time.monotonic()) for process in processes])  # noqa: C419
