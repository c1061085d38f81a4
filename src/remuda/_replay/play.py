"""The main function of a replay process: follows a plan, and reports the outcome."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

from remuda import _core
from remuda._crash.record import Record
from remuda._replay.harness import Harness
from remuda._replay.plan import Plan
from remuda._replay.unpickling import Leave, unpickle
from remuda._wire.channel import SocketChannel
from remuda._wire.failures import portable
from remuda._worker.worker_info import WorkerInfo, settle_in_process
from remuda.errors import RecordError


@dataclass(frozen=True)
class Raised:
    """An exception: its class, text and traceback, and the operation that it came from ("build", "reset", "step")."""

    type_name: str
    message: str
    traceback: str
    operation: str

    @classmethod
    def of(cls, error: BaseException, operation: str) -> Raised:
        name, message, traceback, _ = portable(error)
        return cls(name, message, traceback, operation)


@dataclass(frozen=True)
class Outcome:
    """The end of a replay.

    Attributes:
        reached: Index of the op that was begun last; -1: none was.
        raised: The exception of that op; None: it raised none.
        finished: Whether all ops were done and nothing was raised.
        exitcode: Of the process, if it neither finished nor reported an exception; negative for a signal.
        is_spoilt: Whether the results of the last op made no sense.
        is_late: Whether it was killed because the last op took longer than the deadline that was missed originally.
    """

    reached: int
    raised: Raised | None = None
    finished: bool = False
    exitcode: int | None = None
    is_spoilt: bool = False
    is_late: bool = False


def run_play(fd: int, owner: int) -> None:
    """Receives a record, a plan and the user's leave through the socket `fd`, and reports there.

    It reports the index of each op before the op begins, and the `Outcome`; or a RecordError, and nothing was begun.
    """
    _core.tie_life_to(os.pidfd_open(owner))
    channel = SocketChannel(socket.socket(fileno=fd))
    with suppress(EOFError, ConnectionError):  # the process that would receive the report is gone
        record, plan, leave = channel.recv_object()
        try:
            settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
            outcome: Outcome | RecordError = _play(record, plan, leave, channel)
        except RecordError as error:
            outcome = RecordError(str(error))  # without its cause, which may not be picklable
        _flush_output()
        channel.send_object(outcome)
    os._exit(0)  # without the end of the interpreter, in which the env may hang


def _play(record: Record, plan: Plan, leave: Leave, channel: SocketChannel) -> Outcome:
    unpickled = unpickle(record, leave)
    try:
        harness = Harness(record, unpickled)
    except RecordError:
        raise
    except BaseException as error:
        return Outcome(-1, raised=Raised.of(error, "build"))
    for i, op in enumerate(plan.ops[:-1] if plan.is_cut else plan.ops):
        channel.send_object(i)
        harness.perform(op)
        if harness.error is not None:
            return Outcome(i, raised=Raised.of(harness.error, harness.operation))
        if harness.is_spoilt:
            return Outcome(i, is_spoilt=True)
    return Outcome(len(plan.ops) - 1, finished=True)


def _flush_output() -> None:
    """Flushes the output of the env, which may be what the user looks for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
