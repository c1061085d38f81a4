"""Workers that are processes of their own: a crash, a leak or a hung simulator stays theirs."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import cloudpickle

from remuda import _core
from remuda._backends.base import Assignment, death_of
from remuda._backends.channel import NonsenseError
from remuda._backends.host import EnvReport, build_error, load_failure
from remuda._backends.launch import START_METHODS, Launch, WorkerProcess, bury, end_all, launch
from remuda._backends.layout import InfoColumn, Layout
from remuda._backends.limits import check_descriptors
from remuda._backends.oom import OomWatch
from remuda._backends.output import Output, WorkerOutput, open_outputs
from remuda._backends.pickling import Parts, dump_for_worker, load
from remuda._backends.relay import Relay
from remuda._backends.resets import ResetDefaults
from remuda._backends.verbosity import Verbosity
from remuda._backends.worker_process import Orders, pickle_registrations
from remuda.errors import (
    CloseTimeoutError,
    CorruptReplyError,
    Failure,
    InvalidEnvError,
    MemoryVerdict,
    StartTimeoutError,
    WorkerDiedError,
)

_LAST_BREATH = 1.0  # seconds for one that was killed a moment ago, before its successor starts


class ProcessWorker:
    """A worker process, as its pool's user sees it."""

    def __init__(
        self, order: Orders, process: WorkerProcess, output: Output, siblings: list[WorkerProcess], oom: OomWatch
    ) -> None:
        self.index, self.env_ids, self.name = order.info.index, order.info.env_ids, order.name
        self.process = process
        # For a successor. Factories may refer to their pool, so who will have none keeps none.
        self.order = order if order.rebuilds else None
        self.mail: list[Parts] | None = None  # for one that has no loop yet
        self._output = output
        self._siblings, self._oom = siblings, oom
        self._verdict: MemoryVerdict | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exitcode(self) -> int | None:
        bury(self._siblings)  # where many end together, one look for what they have left does for all
        return self.process.exitcode()

    def is_alive(self) -> bool:
        return not self.process.wait(0)

    def take_over(self, process: WorkerProcess) -> None:
        """Another process is this worker from now on."""
        before, self.process, self._verdict = self.process, process, None
        before.release()
        if before.wait(0):
            self._siblings.remove(before)
        self._siblings.append(process)  # beside one that will not die: the end of the pool waits for that too

    def verdict(self) -> MemoryVerdict | None:
        if self._verdict is None and self.exitcode == -signal.SIGKILL:
            self._verdict = self._oom.judge()
        return self._verdict

    def output(self, limit: int = 65536) -> str:
        return self._output.read(limit)

    def last_words(self) -> str:
        return self._output.last_words()

    def __repr__(self) -> str:
        return f"<{self.name} pid={self.pid} envs={list(self.env_ids)}>"


class ProcessBackend:
    """Starts and ends worker processes."""

    def __init__(
        self,
        start_method: str,
        threads: int | None,
        preload: Sequence[str],
        pin: bool,
        name: str,
        output: WorkerOutput = "inherit",
        serially: bool = False,
    ) -> None:
        if sys.platform != "linux":
            raise NotImplementedError(
                f"expected Linux for backend='process', got {sys.platform}; use backend='thread' or 'serial' here"
            )
        if start_method not in START_METHODS:
            raise ValueError(f"expected start_method to be one of {START_METHODS}, got {start_method!r}")
        self.workers: list[ProcessWorker] = []
        self._start_method, self._threads = start_method, threads
        self._inherits = start_method == "fork"  # then factories need not be pickled
        self._preload, self._pin, self._name = tuple(preload), pin, name
        self._output, self._serially = output, serially
        self._outputs: list[Output] = []  # by worker
        self._relay: Relay | None = None
        self._reports: dict[bytes, list[EnvReport]] = {}
        self._oom = OomWatch()
        self._processes: list[WorkerProcess] = []

    # -- start -----------------------------------------------------------------------------------------

    def build(self, assignments: Sequence[Assignment], timeout: float | None) -> list[list[EnvReport]]:
        check_descriptors(len(assignments), with_output=self._output != "inherit")
        orders = self._orders(assignments)
        try:
            self._outputs = open_outputs(self._output, len(orders))
            self._relay = Relay()
            deadline = None if timeout is None else time.monotonic() + timeout
            reports = []
            for together in [[order] for order in orders] if self._serially else [orders]:
                started = [self._start(order) for order in together]
                reports += self._collect_reports(started, deadline, timeout)
            return reports
        except BaseException:
            self.stop(0)
            raise

    def _start(self, order: Orders) -> ProcessWorker:
        process = self._launch(order)
        self._processes.append(process)
        output = self._outputs[order.info.index]
        worker = ProcessWorker(order, process, output, self._processes, self._oom)
        self.workers.append(worker)
        self._send_orders(worker, order)
        return worker

    def _launch(self, order: Orders) -> WorkerProcess:
        assert self._relay is not None  # it was made before the first worker
        output = self._outputs[order.info.index]
        output.begin()
        what = Launch(order, self._threads, self._preload, output.fd, self._relay.mouthpiece)
        return launch(self._start_method, what)

    def _orders(self, assignments: Sequence[Assignment]) -> list[Orders]:
        """All of them before anything is started: one that cannot be pickled must not leave workers behind."""
        registrations = None if self._inherits else pickle_registrations()
        verbosity = Verbosity.current()
        return [
            Orders(
                a.info,
                f"{self._name}-{a.info.index}",
                a.env_fns if self._inherits else _pickle(a),
                registrations,
                verbosity,
                self._output,
                a.rebuilds,
                a.vector_size,
            )
            for a in assignments
        ]

    def _send_orders(self, worker: ProcessWorker, order: Orders) -> None:
        if self._inherits:
            return
        try:
            worker.process.channel.send_object(order)
        except (EOFError, ConnectionError):
            raise self._died(worker, "build") from None

    def _collect_reports(
        self, workers: Sequence[ProcessWorker], deadline: float | None, timeout: float | None
    ) -> list[list[EnvReport]]:
        """Of these workers. `timeout`: by which the deadline came to be."""
        reports: dict[int, list[EnvReport]] = {}
        failures: list[Failure] = []
        waiting = {fd: worker for worker in workers for fd in _fds(worker)}
        poller = select.poll()
        assert self._relay is not None  # it was made before the workers
        for fd in (*waiting, self._relay.fileno()):
            poller.register(fd, select.POLLIN)
        while waiting:
            events = poller.poll(None if deadline is None else max(0, min(deadline - time.monotonic(), 1e6) * 1000))
            self._relay.hear()
            ready = {waiting[fd].index: waiting[fd] for fd, _ in events if fd in waiting}
            if not ready and deadline is not None and time.monotonic() >= deadline:
                raise _start_timeout([w for w in workers if w.process.pidfd in waiting], timeout)
            for worker in ready.values():
                for fd in _fds(worker):
                    poller.unregister(fd)
                    del waiting[fd]
                answer = self._read_report(worker)
                if isinstance(answer, Failure):
                    failures.append(answer)
                else:
                    reports[worker.index] = answer
        self._relay.hear()
        if failures:
            raise build_error(failures)
        return [reports[worker.index] for worker in workers]

    def _read_report(self, worker: ProcessWorker) -> list[EnvReport] | Failure:
        try:
            verdict, *parts = worker.process.channel.recv()
        except NonsenseError as nonsense:
            worker.process.kill_group()
            raise self._died(worker, "build", CorruptReplyError) from nonsense
        except (EOFError, ConnectionError):
            raise self._died(worker, "build") from None
        if verdict == b"failed":
            return load_failure(parts)
        key = b"".join(parts)
        if key not in self._reports:  # most envs of a pool say the same
            self._reports[key] = load(parts)
        return self._reports[key]

    def _died(
        self, worker: ProcessWorker, operation: str, error: type[WorkerDiedError] = WorkerDiedError
    ) -> WorkerDiedError:
        worker.process.wait(1.0)  # its socket closes a moment before it is gone
        return death_of(worker, operation, None, error)

    # -- service ---------------------------------------------------------------------------------------

    def attach(self, layout: Layout, arena: _core.Arena) -> None:
        parts = dump_for_worker((layout, (), ResetDefaults()))
        for worker in self.workers:
            self._start_loop(worker, arena, parts)

    def _start_loop(self, worker: ProcessWorker, arena: _core.Arena, parts: Parts) -> None:
        try:
            worker.process.channel.send_fds([arena.fd])
            worker.process.channel.send(parts)
        except (EOFError, ConnectionError):
            raise self._died(worker, "build") from None
        if self._pin:  # only its own thread: what the envs have started by now keeps the freedom to run anywhere
            cores = sorted(os.sched_getaffinity(0))
            with suppress(ProcessLookupError):  # its death is noticed elsewhere
                os.sched_setaffinity(worker.pid, {cores[worker.index % len(cores)]})

    # -- successors ------------------------------------------------------------------------------------

    def kill(self, worker: int) -> None:
        self.workers[worker].process.kill_group()

    def vacate(self, worker: int) -> None:
        self.workers[worker].mail = []

    def succeed(self, worker: int) -> None:
        place = self.workers[worker]
        assert place.order is not None
        place.process.wait(_LAST_BREATH)
        place.take_over(self._launch(place.order))
        self._send_orders(place, place.order)

    def descriptors(self, worker: int) -> list[int]:
        return list(_fds(self.workers[worker]))

    def poll_successor(self, worker: int) -> list[EnvReport] | Failure | None:
        successor = self.workers[worker]
        poller = select.poll()
        for fd in _fds(successor):
            poller.register(fd, select.POLLIN)
        return self._read_report(successor) if poller.poll(0) else None

    def join(
        self,
        worker: int,
        layout: Layout,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> int:
        successor = self.workers[worker]
        known = defaults.part(successor.env_ids)
        self._start_loop(successor, arena, dump_for_worker((layout, tuple(info_columns), known)))
        return successor.process.pidfd

    def deliver(self, worker: int) -> None:
        mail, self.workers[worker].mail = self.workers[worker].mail, None
        for parts in mail or ():
            self.send(worker, parts)

    def watch(self, hub: _core.Hub) -> None:
        for worker in self.workers:
            hub.watch(worker.index, worker.process.pidfd)
        if self._relay is not None:
            hub.relay(self._relay.fileno())

    def hear(self) -> None:
        if self._relay is not None:
            self._relay.hear()

    def pump(self) -> None:
        pass

    def queued_seconds(self) -> float:
        return sum(worker.process.queued_seconds() for worker in self.workers)

    def send(self, worker: int, parts: Parts) -> None:
        if (mail := self.workers[worker].mail) is not None:
            mail.append(parts)
            return
        try:
            self.workers[worker].process.channel.send(parts)
        except (EOFError, ConnectionError):
            pass  # it is gone: whoever waits for it is told by its pidfd
        except BaseException:  # interrupted: it could make nothing of what follows half a message
            self.workers[worker].process.kill_group()
            raise

    def receive(self, worker: int) -> Parts | Literal[False] | None:
        try:
            return self.workers[worker].process.channel.recv()
        except NonsenseError:
            return False
        except (EOFError, ConnectionError):
            return None

    # -- end -------------------------------------------------------------------------------------------

    def hurry(self, deadline: float) -> None:
        for worker in self.workers:
            worker.process.channel.deadline = deadline

    def stop(self, timeout: float) -> None:
        try:
            pids = end_all(self._processes, timeout)
        finally:
            for output in self._outputs:
                output.release()
            if self._relay is not None:
                self._relay.close()
        if pids:
            raise CloseTimeoutError(pids=pids, workers=[worker.index for worker in self.workers if worker.pid in pids])


def _pickle(assignment: Assignment) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(list(assignment.env_fns))
    except Exception as error:
        raise InvalidEnvError(
            f"expected env_fns that can be pickled, to build the envs {list(assignment.info.env_ids)} "
            "in a worker process, "
            f"got {type(error).__name__}: {error}; build inside the function what it cannot carry, "
            "or use start_method='fork' or backend='thread'"
        ) from error
    return pickled


def _fds(worker: ProcessWorker) -> tuple[int, int]:
    """What shows that it has something to say, or has died without a word (a child of it may keep the socket open)."""
    return worker.process.channel.fileno(), worker.process.pidfd


def _start_timeout(late: list[ProcessWorker], timeout: float | None) -> StartTimeoutError:
    envs = [env_id for worker in late for env_id in worker.env_ids]
    return StartTimeoutError(
        f"expected every env to be built within start_timeout={timeout} s, got no answer for the envs {envs} "
        f"(workers {[worker.index for worker in late]}); give it more time, or preload=[...] the modules they import"
    )
