"""Starts and ends the process of a fork server, and reaps workers that the server has not reaped."""

from __future__ import annotations

import os
import posix
import signal
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path

from remuda import _core
from remuda._backends.process.interpreter import start_python
from remuda._backends.process.process_tree import new_key, with_key
from remuda._system.exiting import leave_pools_alone
from remuda._system.polling import wait_readable
from remuda._system.processes import stat_of
from remuda._system.sockets import Socket, socket_pair

DEATH_SECONDS = 1.0  # seconds for a killed server to end


def children() -> list[int]:
    """Returns the children of the main thread, adopted orphans included; empty if the kernel does not list them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()]
    except OSError:
        return []


class ServerProcess:
    """A process that `subprocess` has started, watched through a pidfd. A lost exit code is reported as unknown.

    `Popen.wait` returns 0 if the exit code is lost: if SIGCHLD is ignored, or other code waits for all children.

    Attributes:
        pid: Its process id.
        exitcode: Negative for a signal; None while it runs, or if it is unknown.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        try:
            self._pidfds = _core.Descriptors([os.pidfd_open(process.pid)])
        except OSError:  # no descriptor is free
            process.kill()
            process.wait()
            raise
        self.exitcode: int | None = None

    def close(self) -> None:
        """Closes the pidfd. `has_ended` must not be called afterwards."""
        self._pidfds.close()

    def has_ended(self, seconds: float | None = 0) -> bool:
        """Whether the process ends within `seconds` (None: no limit). A process that has ended is reaped."""
        if self._process.returncode is None and wait_readable([self._pidfds[0]], seconds):
            code = _core.reap_group(self._pidfds[0], self.pid, 0)
            if self.exitcode is None:  # another thread may have taken the exit code
                self.exitcode = _core.exit_code_of(self._pidfds[0]) if code is None else code
            self._process.returncode = 0  # the process is reaped: `subprocess` must not wait for it
        return self._process.returncode is not None

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
            return ServerProcess(start_python(module, "serve", server_end.fileno(), variables)), client_end
    except BaseException:
        client_end.close()
        raise


def end_server(process: ServerProcess, sock: Socket, owner: int) -> None:
    if os.getpid() == owner and leave_pools_alone():
        return  # this process is exiting, and the server ends with it
    sock.close()
    if os.getpid() == owner:  # a forked child does not own the server.
        process.kill()  # the server may hang in an import; its children are not killed with it
        process.has_ended(None)
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
