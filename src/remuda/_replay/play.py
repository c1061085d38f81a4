"""The main function of a replay process: follows a plan, and reports how far it has come."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from remuda import _core
from remuda._crash.file import load_record
from remuda._crash.record import Record
from remuda._replay.harness import Harness
from remuda._replay.outcome import Outcome, Raised
from remuda._replay.plan import Extent, Plan, make_plan
from remuda._replay.unpickling import Leave, unpickle
from remuda._wire.channel import SocketChannel
from remuda._wire.failures import portable
from remuda._worker.worker_info import WorkerInfo, settle_in_process
from remuda.errors import RecordError


@dataclass(frozen=True)
class Assignment:
    """What to replay."""

    path: Path
    extent: Extent
    leave: Leave
    until_step: int | None = None


def run_play(fd: int, owner: int) -> None:
    """Takes an `Assignment` from the socket `fd`, and tells there: the number of each op before it is begun, and the
    `Outcome`; or the RecordError for which nothing was begun."""
    _core.tie_life_to(os.pidfd_open(owner))
    channel = SocketChannel(socket.socket(fileno=fd))
    with suppress(EOFError, ConnectionError):  # nobody is left to be told
        assignment: Assignment = channel.recv_object()
        try:
            record = load_record(assignment.path)
            settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
            outcome: Outcome | RecordError = _play(record, assignment, channel)
        except RecordError as error:
            outcome = RecordError(str(error))  # without what caused it, which may not travel
        flush_output()
        channel.send_object(outcome)
    os._exit(0)  # not by way of what the env may hang in at its end: all is told


def _play(record: Record, assignment: Assignment, channel: SocketChannel) -> Outcome:
    unpickled = unpickle(record, assignment.leave)
    plan = make_plan(record, assignment.extent, assignment.until_step)
    try:
        harness = Harness(record, unpickled)
    except RecordError:
        raise
    except BaseException as error:
        return Outcome(-1, raised=describe(error, "build"))
    return _follow(plan, harness, channel)


def _follow(plan: Plan, harness: Harness, channel: SocketChannel) -> Outcome:
    for i, op in enumerate(plan.ops[:-1] if plan.is_cut else plan.ops):
        channel.send_object(i)
        harness.perform(op)
        if harness.error is not None:
            return Outcome(i, raised=describe(harness.error, harness.operation))
        if harness.is_spoilt:
            return Outcome(i, is_spoilt=True)
    return Outcome(len(plan.ops) - 1, finished=True)


def describe(error: BaseException, operation: str) -> Raised:
    name, message, text, _ = portable(error)
    return Raised(name, message, text, operation)


def flush_output() -> None:
    """What it has printed may be just what is looked for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
