"""Starts and ends the process of a fork server, and reaps workers that the server has not reaped."""

from __future__ import annotations

import os
import posix
import signal
import socket
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from remuda import _core
from remuda._backends.process.interpreter import start_python
from remuda._backends.process.process_tree import new_key, with_key
from remuda._system.finalizers import hand_over
from remuda._system.interpreter import leave_pools_alone
from remuda._system.processes import stat_of
from remuda._system.sockets import Socket, socket_pair, wait_readable

DEATH_SECONDS = 1.0  # seconds for a killed server to end, while a request waits
_KILLED_SECONDS = 10.0  # seconds for a killed server to end, while nothing waits


def children() -> list[int]:
    """Returns the children of the main thread, adopted orphans included; empty if the kernel does not list them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()]
    except OSError:
        return []


class ServerProcess:
    """A child process, watched through a pidfd.

    Attributes:
        pid: Its process id.
        exitcode: Negative for a signal; None while it runs, or if it is unknown, because SIGCHLD is ignored, or other
            code waits for all children.
    """

    def __init__(self, pid: int, pidfds: _core.Descriptors) -> None:
        """Owns `pidfds`."""
        self.pid, self._pidfds = pid, pidfds
        self._is_reaped = False
        self.exitcode: int | None = None

    def fileno(self) -> int:
        """Returns the pidfd, which is readable once the process has ended."""
        return self._pidfds[0]

    def close(self) -> None:
        """Closes the pidfd. `has_ended` must not be called afterwards."""
        self._pidfds.close()

    def has_ended(self, seconds: float | None = 0) -> bool:
        """Whether the process ends within `seconds` (None: no limit). A process that has ended is reaped."""
        if not self._is_reaped and wait_readable([self._pidfds[0]], seconds):
            code = _core.reap_group(self._pidfds[0], self.pid, 0)
            if self.exitcode is None:  # another thread may have taken the exit code
                self.exitcode = _core.exit_code_of(self._pidfds[0]) if code is None else code
            self._is_reaped = True
        return self._is_reaped

    def kill(self) -> None:
        if not self.has_ended():
            signal.pidfd_send_signal(self._pidfds[0], signal.SIGKILL)  # not `kill`: that calls a function of `os`


def start_server(environment: dict[str, str]) -> tuple[ServerProcess, Socket]:
    """Starts a fork server. Returns its process, and this process's end of its socket."""
    variables = with_key(environment, new_key())  # workers replace this key by their own
    client_end, server_end = socket_pair(socket.SOCK_SEQPACKET)
    try:
        with closing(server_end):
            module = "remuda._backends.forkserver.server"
            return ServerProcess(*start_python(module, "serve", server_end.fileno(), variables)), client_end
    except BaseException:
        client_end.close()
        raise


def abandon_server(process: ServerProcess, sock: Socket, owner: int) -> None:
    """Ends a server that no pool uses any longer, or at the interpreter's exit."""
    if os.getpid() != owner:  # a forked child does not own the server
        sock.close()
        process.close()
    elif not leave_pools_alone():  # otherwise this process is exiting, and the server ends with it
        hand_over(partial(end_server, process, sock))


def end_server(process: ServerProcess, sock: Socket) -> None:
    sock.close()
    process.kill()  # the server may hang in an import; its children are not killed with it
    process.has_ended(_KILLED_SECONDS)
    for pid in children():  # the exit codes of the workers are no longer needed
        reap_orphan(pid, process)
    process.close()


def reap_orphan(pid: int, server: ServerProcess, patience: float = 0.0) -> int | None:
    """Reaps a worker of a server that has ended, if this process has adopted it. Returns its exit code if known.

    `patience`: seconds to wait for its end.
    """
    with suppress(OSError):  # raised if the worker is no child of this process.
        if os.getsid(pid) == server.pid:  # a later process with this pid has another session
            wait_readable(_core.Descriptors([os.pidfd_open(pid)]), patience)
            end = posix.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
            return None if end is None else end.si_status * (1 if end.si_code == os.CLD_EXITED else -1)
    return None


def exitcode_of_zombie(pid: int) -> int | None:
    """Returns the exit code of a zombie from `/proc`; None if only the server can read it."""
    fields = stat_of(pid)
    try:
        is_visible = os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # /proc shows other users the exit code 0
    except OSError:
        return None
    if not is_visible or fields[:1] != ["Z"]:
        return None
    return os.waitstatus_to_exitcode(int(fields[-1]))
