"""Signals that a scheduler sends to every process of a job, such as SIGUSR1 before the time limit.

The program may handle them and go on, so its workers and its fork server must not die of them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

from remuda import _core

Handler: TypeAlias = "Callable[[int, FrameType | None], Any] | int | signal.Handlers | None"


def settle_signals(owner: int, on_interrupt: Handler = signal.default_int_handler) -> None:
    """Makes this process, started by `owner`, survive the job's signals that the owner survives. Unblocks all signals.

    Replaces handlers and masks that were inherited from the owner. `on_interrupt`: the handler of a SIGINT that the
    owner does not survive, or has sent to this process.
    """
    for number in _core.JOB_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, on_interrupt if number == signal.SIGINT else signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise envs get no exit codes of their child processes
    signal.set_wakeup_fd(-1)  # otherwise signals here would be reported to the owner's event loop
    _core.follow_signals(owner)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextmanager
def job_signals_blocked() -> Iterator[None]:
    """Blocks these signals in this thread. A process that is started meanwhile blocks them until it unblocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _core.JOB_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
