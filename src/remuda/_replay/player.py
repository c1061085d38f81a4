"""Replays a crash record in a process of its own, which may crash or hang as the worker did."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import suppress
from select import POLLIN, poll

from remuda import _core
from remuda._backends.process.interpreter import python_command
from remuda._backends.process.process_tree import kill_process_trees, new_key, with_key
from remuda._backends.process.watcher import watch
from remuda._crash.record import RecordedFault
from remuda._replay.outcome import Outcome
from remuda._replay.play import Assignment
from remuda._wire.channel import SocketChannel
from remuda.errors import RecordError

_DEATH_SECONDS = 10.0  # for a process that has closed its socket to end
_CORRUPT_SECONDS = 5.0  # for a step after which the loop may read garbage without end
_FAMILY_SECONDS = 1.0  # for what the env has started to end when it is killed


def replay(assignment: Assignment, fault: RecordedFault, last: int) -> Outcome:
    """Replays in another process, and says how that ended.

    Args:
        assignment: What to replay.
        fault: How the env failed.
        last: Index of the op that it failed in.

    Raises:
        RecordError: There is not what is needed.
    """
    deadline = _CORRUPT_SECONDS if fault.kind == "corrupt" else fault.deadline
    ours, theirs = socket.socketpair()
    key = new_key()
    watch()
    with ours, theirs:
        process = subprocess.Popen(
            python_command("remuda._replay.play", "run_play", theirs.fileno(), os.getpid()),
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # so that it can be killed with what the env has started in its group
            env=with_key(dict(os.environ), key),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        pidfd = os.pidfd_open(process.pid)
        try:
            channel = SocketChannel(ours, pidfd)  # what the env forks may keep the socket open
            with suppress(ConnectionError):  # it died before it knew what to do, which is noticed when we listen
                channel.send_object(assignment)
            return _watch(process, pidfd, channel, last, deadline)
        finally:
            process.kill()
            process.wait()
            os.close(pidfd)
            kill_process_trees([key], _FAMILY_SECONDS)


def _watch(
    process: subprocess.Popen[bytes], pidfd: int, channel: SocketChannel, last: int, deadline: float | None
) -> Outcome:
    reached = -1
    while True:
        try:
            told = channel.recv_object()
        except (EOFError, ConnectionError):
            return _silence(process, pidfd, channel, reached)
        if isinstance(told, RecordError):
            raise told
        if isinstance(told, Outcome):
            return told
        reached = told
        if reached == last and deadline is not None:
            channel.deadline = time.monotonic() + deadline


def _silence(process: subprocess.Popen[bytes], pidfd: int, channel: SocketChannel, reached: int) -> Outcome:
    """It has died, is late, or has closed its socket without a word."""
    has_ended = poll()
    has_ended.register(pidfd, POLLIN)
    if channel.deadline is not None and time.monotonic() >= channel.deadline and not has_ended.poll(0):
        return Outcome(reached, is_late=True)
    if not has_ended.poll(_DEATH_SECONDS * 1000):
        return Outcome(reached)
    code = _core.reap_group(pidfd, process.pid, 0)
    process.returncode = 0  # `subprocess` need not ask for it any more, nor guess
    return Outcome(reached, exitcode=_core.exit_code_of(pidfd) if code is None else code)
