"""Emits the log records of a pool: those of its workers, and those about faults."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from remuda import _core
from remuda._engine.running import Running
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._relay.log import print_error_of_handler
from remuda._system.own_thread import OwnThread

_AWAY_NS = 100_000_000  # the time for which records wait for the caller


class LogRecords:
    """The log records of a pool that are not emitted yet.

    Log handlers are code of the program: they may take its locks, block, and call the pool. So the caller's own thread
    emits the records, before a wait for results ends. If the caller is away, a thread emits them for which no other
    thread waits.
    """

    def __init__(self, running: Running, reports: FaultReports, name: str) -> None:
        self._running, self._backend, self._reports, self._name = running, running.backend, reports, name
        # The time of `monotonic_ns` at which records have waited too long. The thread that emits them sets it to None.
        self._late_at: int | None = None
        self._apart: OwnThread | None = None  # the latest thread that emits records
        running.hub.callbacks.log = partial(_emit, weakref.ref(self))  # weak, because the hub would be in a cycle

    @property
    def has_faults(self) -> bool:
        """Whether there are records about faults."""
        return self._reports.has_unlogged

    def emit(self) -> None:
        """Emits all records, unless another thread is doing so, or this is called by a log handler."""
        if self._running.is_there:
            self._running.hub.log()

    def emit_if_late(self) -> int | None:
        """Starts a thread that emits the records, if these have waited too long for the caller.

        Only the supervisor calls this. It must call this again after the returned number of ns; None: after an event.
        """
        if not self._has_any():
            self._late_at = None
            return None
        now, late_at = time.monotonic_ns(), self._late_at
        if late_at is not None and now >= late_at:
            if self._apart is None or self._apart.has_returned(0):
                with suppress(RuntimeError):  # the system allows no more threads now
                    self._apart = OwnThread(_emit_apart, (self._running.hub,), f"{self._name}-log")
                    self._apart.start()
            late_at = None
        if late_at is None:
            self._late_at = late_at = now + _AWAY_NS
        return late_at - now

    def emit_now(self) -> None:
        """Emits all records. The hub calls this in one thread at a time."""
        self._late_at = None
        progress = self._running.hub.note_logged if self._running.is_there else _nothing
        for emit in (self._drain, self._reports.log_all):
            try:
                emit(progress)
            except Exception:  # of a log handler
                print_error_of_handler()
        if self._running.is_there:
            self._running.workers.supervision.await_records()

    def _drain(self, after_each: Callable[[], object]) -> None:
        if self._backend.processes is not None:
            self._backend.processes.drain(self._sent, after_each)

    def _has_any(self) -> bool:
        processes = self._backend.processes
        return self.has_faults or (processes is not None and processes.has_records())

    def _sent(self) -> int:
        return self._running.records_sent() if self._running.is_there else 0


def _emit_apart(hub: _core.Hub) -> None:
    """Emits all records in a thread that does nothing else."""
    try:
        hub.log(is_apart=True)
    except BaseException:  # of a log handler; here there is no caller that could receive it
        print_error_of_handler()


def _nothing() -> None:
    """Does nothing after a record that is emitted once the pool is closed."""


def _emit(reference: weakref.ref[LogRecords]) -> None:
    if (records := reference()) is not None:
        records.emit_now()
