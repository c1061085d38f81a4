"""Blocks signals that a scheduler sends to every process of a job while a process is started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from remuda import _core


@contextmanager
def job_signals_blocked() -> Iterator[None]:
    """Blocks JOB_SIGNALS in this thread. A process that is started meanwhile blocks them until it unblocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _core.JOB_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
