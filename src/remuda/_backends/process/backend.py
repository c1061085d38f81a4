"""The process backend: each worker is a process, so a crash, leak or hang of an env affects no other worker."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, Protocol

from remuda import _core
from remuda._backends.base import PATIENCE_SECONDS, Assignment, Queues, death_of
from remuda._backends.deadline import Deadline
from remuda._backends.process.os_process import WorkerProcess, end_all
from remuda._backends.process.start_methods import Launch, Launcher, Launching, abandon, occupy_standard_descriptors
from remuda._backends.process.worker import ProcessWorker, start_timeout
from remuda._backends.process.worker_configs import WorkerConfigs
from remuda._progress.bar import BuildBar
from remuda._relay.output import Output, WorkerOutput, open_outputs
from remuda._relay.receiver import Relay, ShownWarnings
from remuda._relay.stacks import stack_of
from remuda._system.cores import core_for
from remuda._system.forks import register_holder
from remuda._system.limits import check_descriptors
from remuda._system.oom import OomWatch
from remuda._system.originals import select
from remuda._system.polling import wait_readable
from remuda._wire.channel import NonsenseError
from remuda._wire.failures import Interrupts, build_error, load_failure, not_loaded
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump, load
from remuda._wire.sealed_file import SealedFile
from remuda._worker.env_report import Reports
from remuda._worker.factories import carry
from remuda._worker.reset_defaults import ResetDefaults
from remuda._worker.second_build import Limits, SecondBuild
from remuda.errors import (
    CloseTimeoutError,
    CorruptReplyError,
    Failure,
    RemudaError,
    StartTimeoutError,
    WorkerDiedError,
)

_ENDING = 1.0  # the longest wait, in seconds, for the end of a killed worker before its successor starts
_LOOK = 0.05  # seconds between two checks whether a successor is late or unwanted
_SLICE = 1.0  # seconds between two checks that the fork server still answers


class ProcessOptions(Protocol):
    """The options of a pool that this backend acts on; `PoolOptions` describes them."""

    @property
    def start_method(self) -> str: ...
    @property
    def threads_per_worker(self) -> int | None: ...
    @property
    def preload(self) -> Sequence[str]: ...
    @property
    def pin_workers(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def worker_output(self) -> WorkerOutput: ...
    @property
    def starts_serially(self) -> bool: ...
    @property
    def shown_warnings(self) -> ShownWarnings:
        """The warnings of workers that were shown before. No warning is shown twice."""


class ProcessBackend:
    """Starts and ends worker processes."""

    threads: None = None

    def __init__(self, options: ProcessOptions) -> None:
        self.workers: list[ProcessWorker] = []
        # The options may refer to the pool, so they are not kept. Otherwise the pool's finalizer, which refers to the
        # backend, would keep the pool alive.
        self._inherits = options.start_method == "fork"  # whether workers inherit the factories, unpickled
        self._pins, self._name, self._output = options.pin_workers, options.name, options.worker_output
        self._starts_serially, self._shown_warnings = options.starts_serially, options.shown_warnings
        self._launcher = Launcher(options.start_method, options.threads_per_worker, tuple(options.preload))
        self._outputs: list[Output] = []  # by worker
        self._configs: WorkerConfigs | None = None  # the configs of workers and their successors.
        self._arena: _core.Arena | None = None  # kept to close its descriptor in forked children
        self._relay: Relay | None = None
        self._reports: dict[bytes, Reports] = {}
        self._built: list[Reports] = []  # by worker.
        self._timeout: float | None = None  # seconds for building all envs
        self._deadline = Deadline(None)
        self._progress = BuildBar(())
        self._oom = OomWatch()
        self._near: list[frozenset[int]] = []  # cores, by worker
        self._processes: list[WorkerProcess] = []
        self.interrupts: Interrupts = {}
        # An interrupt between two steps of a start leaves a backend that no pool owns yet.
        weakref.finalize(self, _end_left, self._processes, os.getpid()).atexit = False
        register_holder(self)

    @property
    def processes(self) -> ProcessBackend:
        return self

    # -- start -----------------------------------------------------------------------------------------

    def build_first(self, assignments: Sequence[Assignment], timeout: float | None, limits: Limits) -> SecondBuild:
        try:
            self._prepare(assignments, timeout)
            with self._progress:
                first = self._start(0)
                self._built = self._collect_reports([first])
                return self._second_build(first, limits)
        except BaseException:
            self.stop(0)
            raise

    def build(self, assignments: Sequence[Assignment], timeout: float | None) -> list[Reports]:
        try:
            if not self.workers:
                self._prepare(assignments, timeout)
            with self._progress:
                self._build_others(len(assignments))
            assert self._configs is not None  # made by `_prepare`
            if not any(assignment.spec.rebuilds for assignment in assignments):
                self._configs.close()  # there will be no successors, and the factories may keep the pool alive
            return self._built
        except BaseException:
            self.stop(0)
            raise

    def _build_others(self, num_workers: int) -> None:
        """Starts the workers that have not been started."""
        indices = list(range(len(self.workers), num_workers))
        for together in [[index] for index in indices] if self._starts_serially else [indices]:
            self._progress.hide()  # a forked worker must not inherit a progress bar in its standard output
            started = [self._start(index) for index in together]
            self._built += self._collect_reports(started)

    def _prepare(self, assignments: Sequence[Assignment], timeout: float | None) -> None:
        """Makes the resources of workers, before the first one starts. `timeout`: seconds for building all envs."""
        check_descriptors(len(assignments), with_output=self._output != "inherit")
        occupy_standard_descriptors()
        # All configs are pickled before the first start, because an error in pickling must not leave workers behind.
        self._configs = WorkerConfigs(
            assignments,
            self._name,
            self._output,
            inherited=self._inherits,
        )
        self._outputs = open_outputs(self._output, len(assignments))
        self._relay = Relay(self._shown_warnings)
        self._timeout, self._deadline = timeout, Deadline(timeout)
        self._near = [assignment.cores for assignment in assignments]
        self._progress = BuildBar(env for assignment in assignments for env in assignment.spec.first_slots)

    def _start(self, index: int) -> ProcessWorker:
        assert self._configs is not None  # made by `_prepare`
        config = self._configs.config(index)
        worker = ProcessWorker(config, self._launch(index), self._outputs[index], self._processes, self._oom)
        self.workers.append(worker)
        worker.has_arrived()
        return worker

    def _launch(self, index: int) -> Launching:
        assert self._relay is not None  # `_prepare` has made the relay and the configs
        assert self._configs is not None
        output = self._outputs[index]
        output.begin()
        config, place = self._configs.config(index), self._configs.place(index)
        what = Launch(config, *place, output.fd, self._relay.sending_end)
        return self._launcher.launch(what, self._processes.append)

    def _collect_reports(self, workers: Sequence[ProcessWorker]) -> list[Reports]:
        """Waits until these workers have built their envs. Returns their reports."""
        reports: dict[int, Reports] = {}
        failures: list[Failure] = []
        silent = {worker.index: worker for worker in workers}
        while silent:
            is_late, before = self._deadline.has_passed(), len(silent)
            for worker in self._wait_for_some(silent.values(), self._deadline.slice()):
                answer = self._read_report(worker)
                if answer is None:
                    continue
                del silent[worker.index]
                self._progress.missing.difference_update(worker.env_ids)
                if isinstance(answer, Failure):
                    failures.append(answer)
                else:
                    reports[worker.index] = answer
            if is_late and len(silent) == before:
                raise start_timeout(list(silent.values()), self._timeout)
        self._drain_logs()
        if failures:
            raise build_error(failures)
        return [reports[worker.index] for worker in workers]

    def _second_build(self, worker: ProcessWorker, limits: Limits) -> SecondBuild:
        """Makes a worker build its env a second time. If the worker dies or is late, `stays` of the result is False."""
        patience = Deadline(PATIENCE_SECONDS)
        try:
            worker.channel.post([b"", *dump(limits)])
            while not patience.has_passed():
                for _ in self._wait_for_some([worker], patience.slice()):
                    if (message := worker.channel.recv_nowait()) is not None:
                        result: SecondBuild = load(message)
                        return result
        except (EOFError, ConnectionError):
            return SecondBuild("its worker died when it was built a second time", stays=False)
        why = f"building it a second time took more than {PATIENCE_SECONDS:.0f} s"
        return SecondBuild(why, stays=False)

    def _wait_for_some(self, silent: Iterable[ProcessWorker], timeout: float | None) -> list[ProcessWorker]:
        """Waits until some of these workers have sent something or died. Meanwhile continues pending starts."""
        timeout = self._progress.show(timeout)
        poller, by_fd = select.poll(), dict[int, ProcessWorker]()
        for worker in silent:
            if worker.has_arrived():
                by_fd.update(dict.fromkeys(_fds(worker), worker))
            elif worker.launching is not None:
                for fd in worker.launching.descriptors():
                    poller.register(fd, select.POLLIN)
                timeout = _SLICE if timeout is None else min(timeout, _SLICE)
                if not worker.launching.is_under_way:
                    break  # later workers have not been requested either.
        assert self._relay is not None  # made by `_prepare`
        for fd in (*by_fd, self._relay.fileno()):
            poller.register(fd, select.POLLIN)
        events = poller.poll(None if timeout is None else timeout * 1000)
        self._drain_logs()
        return list({by_fd[fd].index: by_fd[fd] for fd, _ in events if fd in by_fd}.values())

    def _drain_logs(self) -> None:
        if self._relay is not None:
            self._relay.drain()

    def _read_report(self, worker: ProcessWorker) -> Reports | Failure | None:
        """Returns the reports of a worker, or its failure; None if the message is not complete yet."""
        try:
            message = worker.channel.recv_nowait()
        except NonsenseError as nonsense:
            worker.kill()
            raise self._died(worker, CorruptReplyError) from nonsense
        except (EOFError, ConnectionError):
            raise self._died(worker) from None
        if message is None:
            return None
        verdict, *parts = message
        if bytes(verdict) == b"failed":
            return load_failure(parts)
        key = b"".join(parts)
        if key not in self._reports:  # most workers send equal reports, which are loaded once
            try:
                self._reports[key] = load(parts)
            except Exception as error:
                return not_loaded(worker.env_ids[0], worker.index, "build", "spaces and metadata", error)
        return self._reports[key]

    def _died(self, worker: ProcessWorker, error: type[WorkerDiedError] = WorkerDiedError) -> WorkerDiedError:
        if worker.process is not None:
            worker.process.wait(1.0)  # the socket closes shortly before the process ends
        return death_of(worker, "build", None, error)

    # -- service ---------------------------------------------------------------------------------------

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        self._arena = arena
        self._start_loops(self.workers, dump((layout, (), defaults.for_successor(range(layout.num_envs)))), arena)

    def _start_loops(self, workers: Sequence[ProcessWorker], message: Buffers, arena: _core.Arena) -> None:
        with closing(SealedFile()) as file:
            address = file.add(message)
            file.seal()
            for worker in workers:
                try:
                    worker.channel.post([address])
                    worker.channel.send_fds([arena.fd, file.fd, arena.wakeup_fd])
                except (EOFError, ConnectionError):
                    raise self._died(worker) from None
                if self._pins and worker.pid is not None:  # pins the main thread, not threads of envs.
                    with suppress(ProcessLookupError):  # the worker has died, which the hub reports
                        os.sched_setaffinity(worker.pid, {core_for(worker.index, self._near)})

    # -- successors ------------------------------------------------------------------------------------

    def kill(self, worker: int) -> None:
        self.workers[worker].kill()

    def last_stack(self, worker: int) -> str:
        process = self.workers[worker].process
        return "" if process is None or process.wait(0) else stack_of(process.pid, last=True)

    def start_successor(self, worker: int, timeout: float | None, is_unwanted: Callable[[], bool]) -> Reports:
        place = self.workers[worker]
        if place.process is not None:
            place.process.wait(_ENDING)
        deadline = Deadline(timeout)
        place.launching = self._launch(worker)
        while not is_unwanted():
            late = deadline.has_passed()
            if place.launching is not None:
                if not _has_arrived(place):
                    wait_readable(place.launching.descriptors(), _LOOK)
            elif wait_readable(_fds(place), _LOOK):
                answer = self._read_report(place)
                if isinstance(answer, Failure):
                    raise build_error([answer])
                if answer is not None:
                    return answer
            if late:
                raise StartTimeoutError(f"worker {worker} did not build its envs within {timeout} s")
        place.kill()
        raise RemudaError("the pool was closed")

    def join(
        self,
        worker: int,
        layout: Layout,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> tuple[int, int]:
        successor = self.workers[worker]
        known = defaults.for_successor(successor.env_ids)
        self._start_loops([successor], dump((layout, tuple(info_columns), known)), arena)
        assert successor.process is not None  # the successor has been started
        return successor.process.pidfd, successor.channel.fileno()

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Buffers:
        return carry(env_fn, slot)

    def adopt(self, worker: int, slot: int, carried: Buffers) -> None:
        assert self._configs is not None  # the worker has been started
        self._configs.adopt(worker, slot, carried)

    def watch(self, hub: _core.Hub) -> None:
        for worker in self.workers:
            if worker.process is not None:
                hub.workers.watch(worker.index, worker.process.pidfd, worker.channel.fileno())
        if self._relay is not None:
            hub.workers.relay(self._relay.fileno())

    def queues(self) -> list[Queues]:
        return []

    def drain(self, sent: Callable[[], int]) -> None:
        if self._relay is not None:
            self._relay.drain_all(sent)

    # -- end -------------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> None:
        try:
            abandon([worker.launching for worker in self.workers if worker.launching is not None])
            pids = end_all(self._processes, timeout)
            self._launcher.finish()
        finally:
            for output in self._outputs:
                output.release()
            for held in (self._relay, self._configs):
                if held is not None:
                    held.close()
            self._arena = None
        if pids:
            raise CloseTimeoutError(pids=pids, workers=[worker.index for worker in self.workers if worker.pid in pids])

    def abandon(self) -> None:
        self.stop(0)

    def drop_descriptors(self) -> None:
        for process in self._processes:
            process.drop_descriptors()
        for output in self._outputs:
            output.drop_descriptor()
        if self._relay is not None:
            self._relay.drop_descriptors()
        if self._configs is not None:
            self._configs.close()
        if self._arena is not None:
            self._arena.close_fd()


def _end_left(processes: list[WorkerProcess], owner: int) -> None:
    """Ends the processes of a backend that was dropped. In a forked copy of the owner, does nothing."""
    if processes and os.getpid() == owner:
        end_all(processes, 0)


def _has_arrived(successor: ProcessWorker) -> bool:
    """Returns whether a successor has been started. Raises RemudaError for exceptions of preloaded modules."""
    try:
        return successor.has_arrived()
    except (RemudaError, OSError):
        raise
    except Exception as error:
        raise RemudaError(f"what is to be preloaded raised {type(error).__name__}: {error}") from error


def _fds(worker: ProcessWorker) -> tuple[int, int]:
    """Returns a worker's socket and pidfd. The pidfd is needed because a child may keep a dead worker's socket open."""
    assert worker.process is not None  # the worker has been started
    return worker.channel.fileno(), worker.process.pidfd
