"""The main function of a replay process: follows a plan, and reports the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from remuda import _core
from remuda._crash.record import Record
from remuda._replay.harness import Harness
from remuda._replay.plan import Op, Plan
from remuda._replay.recorded_code import Leave, RecordedCode
from remuda._system.sockets import open_socket
from remuda._wire.channel import SocketChannel
from remuda._wire.failures import portable
from remuda._worker.forked_children import flush_output
from remuda._worker.worker_info import WorkerInfo, settle_in_process
from remuda.errors import RecordError


@dataclass(frozen=True)
class Raised:
    """An exception of the env as text, with the operation that raised it: "build", "reset" or "step"."""

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
    """The outcome of a replay.

    Attributes:
        reached: The index of the op that was begun last; -1: none was.
        end: "finished": all ops were done; "raised": that op raised; "spoilt": its results were invalid; "late": it
            took longer than the deadline that was missed originally; "died": the process ended.
        raised: The exception; None unless an op raised.
        exitcode: The exit code of a process that died, negative for a signal; None if it is not known.
    """

    reached: int
    end: Literal["finished", "raised", "spoilt", "late", "died"]
    raised: Raised | None = None
    exitcode: int | None = None


def run_play(fd: int, owner: int) -> None:
    """Receives a record, a plan and the user's permissions through the socket `fd`, and sends reports through it.

    It reports the index of each op before the op begins, and then the `Outcome`; or a RecordError if it cannot begin.
    """
    _core.tie_life_to(os.pidfd_open(owner))
    channel = SocketChannel(open_socket(fd))
    with suppress(EOFError, ConnectionError):  # the process that receives the reports may have ended
        record, plan, leave = channel.recv_object()
        try:
            settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
            outcome: Outcome | RecordError = _play(record, plan, leave, channel)
        except RecordError as error:
            outcome = RecordError(str(error))  # a copy without the error's cause, which may not be picklable
        flush_output()  # `os._exit` would lose it
        channel.send_object(outcome)
    os._exit(0)  # skips the interpreter's shutdown, in which the env may hang


def _play(record: Record, plan: Plan, leave: Leave, channel: SocketChannel) -> Outcome:
    code = RecordedCode(record, leave)
    try:
        harness = Harness(record, code)
    except RecordError:
        raise
    except BaseException as error:
        return Outcome(-1, "raised", Raised.of(error, "build"))
    return follow(plan.ops[:-1] if plan.is_cut else plan.ops, harness, channel.send_object)


def follow(ops: Sequence[Op], harness: Harness, before_op: Callable[[int], None] = lambda _: None) -> Outcome:
    """Performs the ops until one fails. Before each op, calls `before_op` with the index of the op."""
    for i, op in enumerate(ops):
        before_op(i)
        harness.perform(op)
        if harness.error is not None:
            return Outcome(i, "raised", Raised.of(harness.error, harness.operation))
        if harness.is_spoilt:
            return Outcome(i, "spoilt")
    return Outcome(len(ops) - 1, "finished")
