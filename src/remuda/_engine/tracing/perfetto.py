"""Writes a trace in the JSON format of Chrome's tracing, which Perfetto reads too.

Times are those of the wall clock, less `baseTimeNanoseconds`, as in traces of torch.profiler.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import IO, Any

from remuda import _core
from remuda._engine.supervision.descriptions import OPERATIONS
from remuda._engine.supervision.fault_history import FaultNote, StateChange
from remuda._engine.tracing.spans import TracedSpan
from remuda._engine.tracing.tracer import EVENT, Events, PoolTracer, envs_text

# Kinds of the core's `TraceEvent`, and its number for no worker; see trace_log.hpp.
_RESULT, _BATCH = 0, 1
_NOBODY = 0xFFFFFFFF

# All process ids are below this number. Pools are shown as processes with ids from this number on.
_POOL_PIDS = 1 << 22
_POOL_TIDS = 1 << 22  # all thread ids are below this number; the lines of pools' callers get ids from this number on

_KIND = list(EVENT.fields or ()).index("kind")
_OPERATIONS = {int(op.value): name for op, name in OPERATIONS.items()}
_SHOWN = {  # names for the states in which a worker does not step its envs
    _core.WorkerState.CLOSING: "closes its env",
    _core.WorkerState.KILLED: "killed",
    _core.WorkerState.STARTING: "is rebuilt",
    _core.WorkerState.DEAD: "lost",
}


def write_trace(
    path: Path, begin: int, pools: Sequence[tuple[PoolTracer, Events]], spans: Sequence[TracedSpan]
) -> None:
    """Writes what came after `begin` into a file, completely or not at all; compressed if its name ends in ".gz"."""
    with written_whole(path) as file:
        _Writer(file, begin).write(pools, spans)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[Any]]:
    """Yields a text file that replaces `path` when it is complete; compressed if the name ends in ".gz".

    Raises OSError, which names the file.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(part, "wt", compresslevel=4) if path.suffix == ".gz" else part.open("w") as file:
            yield file
        part.replace(path)
    except OSError as error:
        if error.filename is None:  # on a full disk, the error of a write has no file name
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


class _Writer:
    """Writes one trace file. Its methods take times in ns of CLOCK_MONOTONIC."""

    def __init__(self, file: IO[Any], begin: int) -> None:
        self._file, self._begin = file, begin
        self._base, self._offset = _base_and_offset()
        self._pid = os.getpid()

    def write(self, pools: Sequence[tuple[PoolTracer, Events]], spans: Sequence[TracedSpan]) -> None:
        head = {"displayTimeUnit": "ms", "baseTimeNanoseconds": self._base, "traceName": "remuda"}
        self._file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        self._file.write(self._label("process_name", self._pid, 0, "program"))
        of_pools = (self._of_pool(*one, _POOL_PIDS + number, _POOL_TIDS + number) for number, one in enumerate(pools))
        for line in chain(*of_pools, self._of_spans(spans)):
            self._file.write(",\n" + line)
        self._file.write("\n]}\n")

    # -- lines -------------------------------------------------------------------------------------------

    def _event(self, pid: int, tid: int, kind: str, name: str, begin: int, end: int | None = None, **args: Any) -> str:
        """Returns an event as JSON, for the line `tid` of the process `pid`. `end`: None if the event has no length."""
        phase = '"ph": "i", "s": "p"' if end is None else f'"ph": "X", "dur": {_microseconds(max(0, end - begin))}'
        return (
            f'{{{phase}, "pid": {pid}, "tid": {tid}, "ts": {_microseconds(begin + self._offset)}, "cat": "{kind}", '
            f'"name": {json.dumps(name)}, "args": {json.dumps(args)}}}'
        )

    @staticmethod
    def _label(what: str, pid: int, tid: int, label: str | int) -> str:
        """Returns the event that gives a process or thread its name, or its place in the order of lines."""
        key = "sort_index" if what.endswith("sort_index") else "name"
        return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {key: label}})

    # -- a pool ------------------------------------------------------------------------------------------

    def _of_pool(self, tracer: PoolTracer, events: Events, pid: int, tid: int) -> Iterator[str]:
        """Yields the events of a pool. `pid`: the process id for its workers. `tid`: the thread id for its caller."""
        yield self._label("thread_name", self._pid, tid, f"pool {tracer.name}")
        yield self._label("thread_sort_index", self._pid, tid, tid - _POOL_TIDS - 1000)
        yield self._label("process_name", pid, 0, f"workers of {tracer.name}")
        for index, name in enumerate(tracer.workers):
            yield self._label("thread_name", pid, index + 1, name)
            yield self._label("thread_sort_index", pid, index + 1, index)
        for event in events.tolist():
            if event[_KIND] == _RESULT:
                yield from self._of_result(pid, event)
            else:
                yield from self._of_caller(tid, event)
        for fault in tracer.fault_history.faults:
            if fault.at_ns > self._begin:
                yield from self._of_fault(fault, pid)
        late = [change for change in tracer.fault_history.changes if change.at_ns > self._begin]
        for index in range(len(tracer.workers)):
            changes = [change for change in late if change.worker == index]
            yield from self._of_life(changes, pid, index + 1)

    def _of_caller(self, tid: int, event: tuple[int, ...]) -> Iterator[str]:
        begin, end, wait_begin, wait_end, kind, worker, env, count, *_ = event
        last = {} if worker == _NOBODY else {"last": f"env {env} of worker {worker}"}
        if kind == _BATCH:
            yield self._event(self._pid, tid, "batch", f"batch of {count}", begin, end, **last)
        else:
            wait_begin, wait_end = begin, end
        if wait_begin:
            yield self._event(self._pid, tid, "wait", "wait", wait_begin, wait_end, **last)

    def _of_result(self, pid: int, event: tuple[int, ...]) -> Iterator[str]:
        begin, end, reset_begin, reset_end, _, worker, env, count, op, flags, reset_env, _ = event
        tid = worker + 1
        operation = _OPERATIONS.get(op, "call")
        envs = "" if env == _core.WHOLE_WORKER else f" {envs_text(env, count)}"
        failed = {"failed": True} if flags & _core.IS_FAILURE else {}
        yield self._event(pid, tid, operation, f"{operation}{envs}", begin, end, **failed)
        if not reset_begin:
            return
        if reset_begin < begin:
            yield self._event(pid, tid, "reset", f"reset env {reset_env} (in advance)", reset_begin, reset_end)
        elif operation != "reset":
            yield self._event(pid, tid, "reset", f"reset env {reset_env}", reset_begin, min(reset_end, end))

    def _of_fault(self, fault: FaultNote, pid: int) -> Iterator[str]:
        env = "" if fault.env is None else f" env {fault.env}"
        if fault.began_ns:
            name = f"{fault.operation}{env} ({fault.kind})"
            yield self._event(pid, fault.worker + 1, "fault", name, fault.began_ns, fault.at_ns, error=fault.text)
        name = f"{fault.kind}{env}"
        yield self._event(pid, fault.worker + 1, "fault", name, fault.at_ns, error=fault.text)

    def _of_life(self, changes: Sequence[StateChange], pid: int, tid: int) -> Iterator[str]:
        """Yields a slice for each state of a worker in `_SHOWN`. Successive states with the same name share a slice."""
        runs = [(name, next(run).at_ns) for name, run in groupby(changes, lambda change: _SHOWN.get(change.state))]
        for (name, begin), (_, end) in pairwise([*runs, (None, time.monotonic_ns())]):
            if name is not None:
                yield self._event(pid, tid, "restart", name, begin, end)

    # -- spans -------------------------------------------------------------------------------------------

    def _of_spans(self, spans: Sequence[TracedSpan]) -> Iterator[str]:
        for thread in {span.thread for span in spans}:
            yield self._label("thread_name", self._pid, thread, f"spans of thread {thread}")
        for span in spans:
            raised = {"raised": span.raised} if span.raised else {}
            yield self._event(self._pid, span.thread, "span", span.name, span.begin_ns, span.end_ns, **raised)


def _base_and_offset() -> tuple[int, int]:
    """Returns (base, offset): the wall-clock time of the file's time 0, and the file's times minus CLOCK_MONOTONIC."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(5)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])  # the quickest is the most exact
    base = wall - wall % (86400 * 10**9)  # the start of the day, so that files of a day have the same zero
    return base, wall - (before + after) // 2 - base


def _microseconds(ns: int) -> str:
    """Returns nanoseconds as a text in microseconds, which is exact, as a float would not be."""
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03}"
