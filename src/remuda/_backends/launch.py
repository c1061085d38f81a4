"""The three ways to start a worker process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from select import POLLIN, poll

from remuda import _core
from remuda._backends.channel import SocketChannel
from remuda._backends.family import new_key, with_key
from remuda._backends.forkserver import fork_server, python_command
from remuda._backends.limits import no_more_processes
from remuda._backends.worker_process import Orders, environment, flush_output, run_worker

START_METHODS = ("forkserver", "spawn", "fork")

_SIGTERM_SECONDS = 1.0  # for those that clean up when asked to stop
_SIGKILL_SECONDS = 10.0  # for the kernel to free a large memory; whoever has not ended by then hangs in a system call
_FAMILY_SECONDS = 1.0  # the same for what a worker has started


class WorkerProcess:
    """A started process, watched through a pidfd: no other process can ever be mistaken for it.

    Attributes:
        pid: Its process id, which is also its process group's.
        pidfd: Readable once it has ended.
        channel: The socket to it.
        key: What all that was started from it carries in its environment.
    """

    def __init__(self, pid: int, sock: socket.socket, reap: Callable[[], int | None], key: str) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self._close_pidfd = weakref.finalize(self, os.close, self.pidfd)
        self._close_pidfd.atexit = False
        self.channel = SocketChannel(sock, self.pidfd)
        self.key = key
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
        bury([self])
        return self._exitcode

    def _take_exitcode(self) -> None:
        self.kill_group()  # before the pid can be reused
        self._exitcode = self._reap()
        self._ended = True

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
        """Closes what we hold of it; where it has not ended yet, whether it has can be asked all the same."""
        self.exitcode()
        self.channel.close()
        if self._ended:
            self._close_pidfd()


def bury(processes: Sequence[WorkerProcess]) -> list[int]:
    """Takes the exit codes of those that have ended; what they have spawned must not outlive them.

    One look through all processes does for all of them. Returns the pids of those spawned that would not die.
    """
    ended = [process for process in processes if not process._ended and process.wait(0)]
    left = _core.kill_family([process.key for process in ended], round(_FAMILY_SECONDS * 1000))
    for process in ended:
        process._take_exitcode()
    return left


@dataclass(frozen=True)
class Launch:
    """What is to be started.

    Attributes:
        orders: What the worker will be told. It inherits them where it is forked from this process; otherwise the
            caller sends them.
        threads: That numeric libraries may start in it; None leaves them alone.
        preload: Modules for the fork server to import first.
        output: The descriptor that it gets as its standard output and error; None: it inherits ours.
        relay: The descriptor that it is to send its logs and warnings to.
    """

    orders: Orders
    threads: int | None
    preload: tuple[str, ...]
    output: int | None
    relay: int


def launch(start_method: str, what: Launch) -> WorkerProcess:
    """Starts a worker process. Raises ResourceError where the system allows no more of them."""
    _occupy_standard_descriptors()
    ours, theirs = socket.socketpair()
    key = new_key()
    try:
        with theirs:
            pid, reap = _STARTERS[start_method](theirs, ours, what, key)
        process = _watched(pid, ours, reap, key)
    except BlockingIOError as refused:  # EAGAIN: nothing else here is asked not to wait
        ours.close()
        raise no_more_processes(refused) from refused
    except BaseException:
        ours.close()
        raise
    with suppress(ConnectionError):  # it has died already, which is noticed by its pidfd
        process.channel.send_fds([what.relay])
    return process


def _watched(pid: int, ours: socket.socket, reap: Callable[[], int | None], key: str) -> WorkerProcess:
    try:
        return WorkerProcess(pid, ours, reap, key)
    except OSError:  # no descriptor left for its pidfd; nobody has reaped it yet, so it is still its pid
        os.kill(pid, signal.SIGKILL)
        reap()
        raise


def _occupy_standard_descriptors() -> None:
    """Where the caller has closed them, our sockets would get their numbers, and then what a worker prints."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


_Started = tuple[int, Callable[[], "int | None"]]


def _start_from_server(theirs: socket.socket, ours: socket.socket, what: Launch, key: str) -> _Started:
    variables = environment(what.threads)
    server = fork_server(what.threads, variables)
    server.preload(what.preload)
    pid = server.fork(theirs.fileno(), with_key(variables, key), what.output)
    return pid, lambda: server.reap(pid)


def _start_fresh(theirs: socket.socket, ours: socket.socket, what: Launch, key: str) -> _Started:
    process = subprocess.Popen(
        python_command("remuda._backends.worker_process", "run_worker", theirs.fileno(), os.getpid()),
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        env=with_key(environment(what.threads), key),
        stdin=subprocess.DEVNULL,
        stdout=what.output,
        stderr=what.output,
    )
    return process.pid, process.wait


def _start_by_fork(theirs: socket.socket, ours: socket.socket, what: Launch, key: str) -> _Started:
    owner = os.getpid()
    flush_output()  # or the child would print it a second time
    # Until it has a process group of its own, Ctrl-C in the terminal hits the child too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pid = os.fork()
        if pid == 0:
            _become_worker(theirs, ours, owner, what, key)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid, lambda: _waitpid(pid)


def _become_worker(theirs: socket.socket, ours: socket.socket, owner: int, what: Launch, key: str) -> None:
    """Never returns."""
    status = 1
    try:
        ours.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a terminal stops a background process that reads from it
        if what.output is not None:
            os.dup2(what.output, 1)
            os.dup2(what.output, 2)
        variables = with_key(environment(what.threads), key)
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


def end_all(processes: Sequence[WorkerProcess], timeout: float) -> list[int]:
    """Ends processes: `timeout` seconds for those that are leaving, then SIGTERM, then SIGKILL.

    Returns the pids of those that were there all the same, and of what they have spawned.
    """
    left: list[int] = []
    try:
        if not _all_end_within(timeout, processes):
            _signal_all(signal.SIGTERM, processes)
            _all_end_within(_SIGTERM_SECONDS, processes)
    finally:  # also where Ctrl-C cuts our patience short
        _signal_all(signal.SIGKILL, processes)
        _all_end_within(_SIGKILL_SECONDS, processes)
        left += bury(processes)
        for process in processes:
            process.release()
    return [process.pid for process in processes if not process.wait(0)] + left


def _signal_all(number: int, processes: Sequence[WorkerProcess]) -> None:
    for process in processes:
        if not process.wait(0):
            process.signal_group(number)


def _all_end_within(timeout: float, processes: Sequence[WorkerProcess]) -> bool:
    deadline = time.monotonic() + timeout
    # A list, so that every process is waited for, also after one that is late.
    return all([process.wait(deadline - time.monotonic()) for process in processes])  # noqa: C419
