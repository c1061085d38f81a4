"""Replays a crash record in another process, which may crash or hang like the worker."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing, suppress

from remuda import _core
from remuda._backends.process.interpreter import python_command
from remuda._backends.process.process_tree import kill_process_trees, new_key, with_key
from remuda._backends.process.watcher import watch
from remuda._crash.record import Record
from remuda._replay.plan import Plan
from remuda._replay.play import Outcome
from remuda._replay.recorded_code import Leave
from remuda._system.originals import time
from remuda._system.polling import wait_readable
from remuda._system.sockets import socket_pair
from remuda._wire.channel import SocketChannel
from remuda.errors import RecordError

_DEATH_SECONDS = 10.0  # the time limit for a process to end after it has closed its socket.
_CORRUPT_SECONDS = 5.0  # the time limit for the last op of a "corrupt" fault: overwritten memory may make it hang.
_FAMILY_SECONDS = 1.0  # the time limit for processes of the env to end when they are killed


def replay(record: Record, plan: Plan, leave: Leave) -> Outcome:
    """Follows a plan in another process, and returns the outcome.

    Raises:
        RecordError: The replay needs data or a permission that it lacks.
    """
    ours, theirs = socket_pair()
    key = new_key()
    watch()
    with closing(ours), closing(theirs):
        process = subprocess.Popen(
            python_command("remuda._replay.play", "run_play", theirs.fileno(), os.getpid()),
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # the replay and its env's processes form a group, and can be killed together
            env=with_key(dict(os.environ), key),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        pidfd = os.pidfd_open(process.pid)
        try:
            channel = SocketChannel(ours, pidfd)  # the pidfd shows the death even if a child keeps the socket open.
            with suppress(ConnectionError):  # the process died at once; `_watch` returns the outcome
                channel.send_object((record, plan, leave))
            return _watch(process, pidfd, channel, record, plan)
        finally:
            process.kill()
            process.wait()
            os.close(pidfd)
            kill_process_trees([key], _FAMILY_SECONDS)


def _watch(process: subprocess.Popen[bytes], pidfd: int, channel: SocketChannel, record: Record, plan: Plan) -> Outcome:
    deadline = _CORRUPT_SECONDS if record.fault.kind == "corrupt" else record.fault.deadline
    reached = -1
    while True:
        try:
            report = channel.recv_object()
        except (EOFError, ConnectionError):
            return _silence(process, pidfd, channel, reached)
        if isinstance(report, RecordError):
            raise report
        if isinstance(report, Outcome):
            return report
        reached = report
        if reached == len(plan.ops) - 1 and deadline is not None:
            channel.deadline = time.monotonic() + deadline


def _silence(process: subprocess.Popen[bytes], pidfd: int, channel: SocketChannel, reached: int) -> Outcome:
    """Returns the outcome if the process has died, is late, or has closed its socket without a report."""
    if channel.deadline is not None and time.monotonic() >= channel.deadline and not wait_readable([pidfd], 0):
        return Outcome(reached, "late")
    if not wait_readable([pidfd], _DEATH_SECONDS):
        return Outcome(reached, "died")
    code = _core.reap_group(pidfd, process.pid, 0)
    process.returncode = 0  # `subprocess` must not wait for the process, because it is reaped already
    return Outcome(reached, "died", exitcode=_core.exit_code_of(pidfd) if code is None else code)
