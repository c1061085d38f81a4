"""Follows a plan in another process, which may die or hang like the worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from remuda._replay.plan import Plan
from remuda._replay.player import Outcome, follow
from remuda._replay.recorded_code import RecordedCode
from remuda._worker.forked_children import flush_output
from remuda.errors import RecordError

_HAS_GROUPS = hasattr(os, "setsid")  # Windows has no process groups
_CORRUPT_SECONDS = 5.0  # the time limit for the last op of a "corrupt" fault: overwritten memory may make it hang


def follow_apart(plan: Plan, code: RecordedCode) -> Outcome:
    """Follows a plan in another process. Raises RecordError if the record does not suffice."""
    context = multiprocessing.get_context("spawn")
    reports, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_follow, args=(plan, code, theirs))
    process.start()
    theirs.close()
    try:
        return _watch(process, reports, plan, code)
    finally:
        process.kill()
        if _HAS_GROUPS and process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that the env has started
        process.join()
        reports.close()


def _follow(plan: Plan, code: RecordedCode, reports: Connection) -> None:
    """Reports the index of each op before the op begins, and then the `Outcome`; or a RecordError."""
    if _HAS_GROUPS:
        os.setsid()
    try:
        outcome: Outcome | RecordError = follow(plan, code, reports.send)
    except RecordError as error:
        outcome = RecordError(str(error))  # a copy without the error's cause, which may not be picklable
    flush_output()  # `os._exit` would lose it
    reports.send(outcome)
    os._exit(0)  # skips the interpreter's shutdown, in which the env may hang


def _watch(process: Any, reports: Connection, plan: Plan, code: RecordedCode) -> Outcome:
    fault, reached, end = code.record.fault, -1, None
    deadline = _CORRUPT_SECONDS if fault.kind == "corrupt" else fault.deadline
    while ready := wait([reports, process.sentinel], None if end is None else max(0.0, end - time.monotonic())):
        report = None
        if reports in ready:
            with suppress(EOFError, ConnectionError):
                report = reports.recv()
        if isinstance(report, RecordError):
            raise report
        if isinstance(report, Outcome):
            return report
        if report is None:  # the process is dying
            process.join()
            return Outcome(reached, "died", exitcode=process.exitcode)
        reached = report
        if reached == len(plan) - 1 and deadline is not None:
            end = time.monotonic() + deadline
    return Outcome(reached, "late")
