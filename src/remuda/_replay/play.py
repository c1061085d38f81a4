"""What runs in the process of a replay: follows a script, and tells how far it has come."""

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
from remuda._replay.harness import Stage
from remuda._replay.outcome import Ending, Raised
from remuda._replay.plan import Extent, Script, write_script
from remuda._replay.unpickling import Leave, unseal
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
    """Takes an `Assignment` from the socket `fd`, and tells there: the number of each deed before it is begun, and the
    `Ending`; or the RecordError for which nothing was begun."""
    _core.tie_life_to(os.pidfd_open(owner))
    channel = SocketChannel(socket.socket(fileno=fd))
    with suppress(EOFError, ConnectionError):  # nobody is left to be told
        assignment: Assignment = channel.recv_object()
        try:
            record = load_record(assignment.path)
            settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
            ending: Ending | RecordError = _play(record, assignment, channel)
        except RecordError as error:
            ending = RecordError(str(error))  # without what caused it, which may not travel
        flush_output()
        channel.send_object(ending)
    os._exit(0)  # not by way of what the env may hang in at its end: all is told


def _play(record: Record, assignment: Assignment, channel: SocketChannel) -> Ending:
    unsealed = unseal(record, assignment.leave)
    script = write_script(record, assignment.extent, assignment.until_step)
    try:
        stage = Stage(record, unsealed)
    except RecordError:
        raise
    except BaseException as error:
        return Ending(-1, raised=describe(error, "build"))
    return _follow(script, stage, channel)


def _follow(script: Script, stage: Stage, channel: SocketChannel) -> Ending:
    for i, deed in enumerate(script.deeds[:-1] if script.is_cut else script.deeds):
        channel.send_object(i)
        stage.perform(deed)
        if stage.error is not None:
            return Ending(i, raised=describe(stage.error, stage.operation))
        if stage.is_spoilt:
            return Ending(i, is_spoilt=True)
    return Ending(len(script.deeds) - 1, finished=True)


def describe(error: BaseException, operation: str) -> Raised:
    name, message, text, _ = portable(error)
    return Raised(name, message, text, operation)


def flush_output() -> None:
    """What it has printed may be just what is looked for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
