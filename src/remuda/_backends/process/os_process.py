"""A handle of a worker process, with its pid, socket and exit code. Kills and reaps the process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from remuda import _core
from remuda._backends.process.process_tree import kill_process_trees
from remuda._backends.waiting import Deadline
from remuda._system.forks import fork_safe_lock
from remuda._system.sockets import wait_readable
from remuda._wire.channel import SocketChannel

_SIGTERM_SECONDS = 1.0  # seconds for workers that clean up on SIGTERM.
_SIGKILL_SECONDS = 10.0  # seconds for the kernel to free a large memory. A slower process hangs in a system call.
_FAMILY_SECONDS = 1.0  # seconds for the end of processes that a worker has started

# Held while exit codes are taken, because each of them can be taken once. A thread that holds it may wait for the turn
# at a fork server, but no thread waits for this lock within such a turn.
_reaping = fork_safe_lock()


class WorkerProcess:
    """A started process, watched through a pidfd, so that it is never confused with another process.

    Attributes:
        pid: Its process id, which is also the id of its process group.
        pidfd: A descriptor that is readable once it has ended.
        channel: The channel to it.
        key: The key that all processes started from it carry in their environment.
        ended: Whether it has ended and its exit code has been taken, by `reap`.
        exitcode: Negative for a signal; None while the process runs, or if the code is unknown.
        has_survivors: Whether some processes with the key had not ended when its exit code was taken.
    """

    def __init__(
        self, pid: int, pidfds: _core.Descriptors, channel: SocketChannel, reap: Callable[[], int | None], key: str
    ) -> None:
        """Owns `pidfds`. `reap`: called when the process has ended; returns the exit code if a fork server has it."""
        self.pid, self.pidfd, self._pidfds = pid, pidfds[0], pidfds
        self.channel = channel
        channel.peer = self.pidfd
        self.key = key
        self.has_survivors = False
        self._reap = reap
        self.ended = False
        self.exitcode: int | None = None

    def wait(self, timeout: float | None) -> bool:
        """Returns whether the process ends within `timeout` seconds (None: no limit)."""
        return self.ended or wait_readable([self.pidfd], timeout)

    def _take_exitcode(self) -> None:
        self.kill_group()  # before reaping, which frees the pid for another process
        code = _core.reap_group(self.pidfd, self.pid, round(_FAMILY_SECONDS * 1000))
        parents = self._reap()
        self.exitcode = next((c for c in (code, parents, _core.exit_code_of(self.pidfd)) if c is not None), None)
        self.ended = True

    def signal_group(self, number: int) -> None:
        """Signals the worker's process group, but never a later process with the same pid."""
        if not self.ended:
            _core.signal_group(self.pidfd, self.pid, number)

    def kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)

    def drop_descriptors(self) -> None:
        """Closes a forked child's copies of the descriptors."""
        self._pidfds.close()

    def release(self) -> None:
        """Closes the descriptors. Keeps the pidfd of a process that has not ended, so that `wait` still works."""
        reap([self])
        self.channel.close()
        if self.ended:
            self._pidfds.close()


def reap(processes: Sequence[WorkerProcess]) -> None:
    """Takes the exit codes of processes that have ended, and kills their descendants.

    One search serves all of them, so the process that a survivor belongs to is not known.
    """
    with _reaping:
        ended = [process for process in list(processes) if not process.ended and process.wait(0)]
        survivors = kill_process_trees([process.key for process in ended], _FAMILY_SECONDS)
        for process in ended:
            process.has_survivors = bool(survivors)
            process._take_exitcode()


def end_all(
    processes: Sequence[WorkerProcess], timeout: float, is_urgent: Callable[[], bool] = lambda: False
) -> list[int]:
    """Ends processes: waits `timeout` seconds for them to end, then sends SIGTERM, then SIGKILL.

    Sends SIGKILL at once if `is_urgent` returns True. Returns the pids of the processes and their descendants that did
    not end.
    """
    if not _all_end_within(timeout, processes, is_urgent):
        _signal_all(signal.SIGTERM, processes)
        _all_end_within(_SIGTERM_SECONDS, processes, is_urgent)
    _signal_all(signal.SIGKILL, processes)
    _all_end_within(_SIGKILL_SECONDS, processes)
    reap(processes)
    for process in processes:
        process.release()
    survivors = kill_process_trees([process.key for process in processes if process.has_survivors], _FAMILY_SECONDS)
    return [process.pid for process in processes if not process.wait(0)] + survivors


def _signal_all(number: int, processes: Sequence[WorkerProcess]) -> None:
    for process in processes:
        if not process.wait(0):
            process.signal_group(number)


def _all_end_within(
    seconds: float, processes: Sequence[WorkerProcess], is_urgent: Callable[[], bool] = lambda: False
) -> bool:
    """Returns whether all processes end within `seconds`. Does not wait any longer once `is_urgent` returns True."""
    deadline, is_late = Deadline(seconds), False
    while running := [process.pidfd for process in processes if not process.wait(0)]:
        if is_late or is_urgent():
            return False
        wait_readable(running, deadline.slice())
        is_late = deadline.has_passed()
    return True
