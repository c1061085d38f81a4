"""The process backend: each worker is a process, so a crash, leak or hang of an env affects no other worker."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from remuda import _core
from remuda._backends.base import Assignment, Queues, death_of
from remuda._backends.forkserver.client import ServerError
from remuda._backends.process.os_process import WorkerProcess, end_all
from remuda._backends.process.start_methods import Launch, Launcher, occupy_standard_descriptors
from remuda._backends.process.worker import ProcessWorker, start_timeout
from remuda._backends.process.worker_configs import WorkerConfigs
from remuda._backends.waiting import Flag, LateError, StartWait
from remuda._progress.bar import BuildBar
from remuda._relay.output import Output, WorkerOutput, open_outputs
from remuda._relay.receiver import Relay, ShownWarnings
from remuda._relay.stacks import stack_of
from remuda._system.cores import cores_for
from remuda._system.ending import Ending
from remuda._system.finalizers import hand_over
from remuda._system.forks import register_holder
from remuda._system.limits import check_descriptors
from remuda._system.oom import OomWatch
from remuda._system.own_thread import run_apart
from remuda._system.sockets import wait_readable
from remuda._wire.channel import NonsenseError
from remuda._wire.failures import Interrupts, build_error, load_failure, not_loaded, raised
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump, load
from remuda._wire.sealed_file import SealedFile
from remuda._worker.env_report import EnvReport, Reports
from remuda._worker.factories import carry
from remuda._worker.main import Inherited
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import (
    CloseTimeoutError,
    CorruptReplyError,
    Failure,
    StartTimeoutError,
    WorkerDiedError,
)

_Result = TypeVar("_Result")

_ENDING = 1.0  # the longest wait, in seconds, for the end of a killed worker before its successor starts


class ProcessOptions(Protocol):
    """The options of a pool that this backend acts on; `PoolOptions` describes them."""

    @property
    def start_method(self) -> str: ...
    @property
    def threads_per_worker(self) -> int | None: ...
    @property
    def preload(self) -> Sequence[str]: ...
    @property
    def pin_workers(self) -> bool | tuple[frozenset[int], ...]: ...
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
        self._unwanted = Flag()  # set if a signal handler has interrupted the start of the first processes
        self._ending: Ending[list[int]] = Ending()  # returns the pids of processes that did not end
        self._is_urgent = _core.Event()  # set if the end must not wait for workers that end by themselves
        self._wait = StartWait(None, self._unwanted)  # of this start
        self._progress = BuildBar(())
        self._oom = OomWatch()
        self._near: list[frozenset[int]] = []  # cores, by worker
        self._processes: list[WorkerProcess] = []
        self.interrupts: Interrupts = {}
        # An interrupt between two steps of a start leaves a backend that no pool owns yet.
        weakref.finalize(self, _abandon, self._processes, os.getpid()).atexit = False
        register_holder(self)

    @property
    def processes(self) -> ProcessBackend:
        return self

    # -- start -----------------------------------------------------------------------------------------

    def build_first(self, assignments: Sequence[Assignment], timeout: float | None) -> tuple[EnvReport | None, float]:
        """Starts the first worker. Returns the report of its first env, and the seconds in which it has built its envs.

        `build` starts the other workers. Raises as `build` does.
        """
        try:
            self._prepare(assignments, timeout)
            self._build([0])
        except BaseException:
            self.stop(0)
            raise
        return self._built[0][0], self.workers[0].build_seconds

    def build(self, assignments: Sequence[Assignment], timeout: float | None) -> list[Reports]:
        try:
            if self._configs is None:
                self._prepare(assignments, timeout)
            indices = range(len(self._built), len(assignments))
            for together in [[index] for index in indices] if self._starts_serially else [indices]:
                self._build(together)
            assert self._configs is not None
            if not any(assignment.spec.rebuilds for assignment in assignments):
                self._configs.close()  # there will be no successors
            self._unwanted.close()
            return self._built
        except BaseException:
            self.stop(0)
            raise

    def _prepare(self, assignments: Sequence[Assignment], timeout: float | None) -> None:
        """Makes the resources of workers, before the first one starts. `timeout`: seconds for building all envs."""
        check_descriptors(len(assignments), with_output=self._output != "inherit")
        occupy_standard_descriptors()
        # All configs are pickled before the first start, because an error in pickling must not leave workers behind.
        # The caller's thread pickles them, so that an interrupt ends a function of the program that hangs.
        self._configs = WorkerConfigs(assignments, self._name, self._output, inherited=self._inherits)
        if self._inherits:
            self._launcher.inherited = [Inherited(one.env_fns, one.computed) for one in assignments]
        self._outputs = open_outputs(self._output, len(assignments))
        self._relay = Relay(self._shown_warnings)
        self._near = [assignment.cores for assignment in assignments]
        self._progress = BuildBar(env for assignment in assignments for env in assignment.spec.first_slots)
        self._timeout, self._wait = timeout, StartWait(timeout, self._unwanted)

    def _build(self, indices: Sequence[int]) -> None:
        """Starts workers, and waits until they have built their envs."""
        assert self._configs is not None  # made by `_prepare`
        workers = [
            ProcessWorker(self._configs.config(index), self._outputs[index], self._processes, self._oom)
            for index in indices
        ]
        self.workers += workers
        # The caller's thread loads the messages, because that may import a module that this thread is importing.
        self._progress.hide()  # a forked worker must not inherit a progress bar in its standard output
        try:
            with self._progress:
                messages = self._run_apart(partial(self._start, workers, self._wait))
                self._show()
        except ServerError as error:
            raise error.original()  # noqa: B904 - it has its own cause
        answers = [self._load_reports(*pair) for pair in zip(workers, messages, strict=True)]
        if failures := [answer for answer in answers if isinstance(answer, Failure)]:
            raise raised(build_error(failures))
        self._built += [answer for answer in answers if not isinstance(answer, Failure)]

    def _run_apart(self, work: Callable[[], _Result]) -> _Result:
        """Returns `work()`, a part of the first start. An interrupt makes it end, and the end of the backend waits."""
        return run_apart(partial(self._ending.before, work), self._unwanted.set, self._show)

    def _show(self) -> None:
        """Shows the progress of the first start, and passes on log records."""
        assert self._relay is not None  # made by `_prepare`
        self._relay.drain()
        self._progress.show_builds()

    def _start(self, workers: Sequence[ProcessWorker], wait: StartWait) -> list[Buffers]:
        """Starts workers' processes, and waits until they have built their envs. Returns the messages of these."""
        messages: dict[int, Buffers] = {}
        try:
            for worker in workers:
                self._launch(worker, wait)
            while silent := [worker for worker in workers if worker.index not in messages]:
                ready = wait([fd for worker in silent for fd in _fds(worker)])
                for worker in silent:
                    if ready.intersection(_fds(worker)) and (message := self._read(worker)) is not None:
                        messages[worker.index] = message
                        self._progress.missing.difference_update(worker.env_ids)
        except LateError:
            raise start_timeout([one for one in workers if one.index not in messages], self._timeout) from None
        return [messages[worker.index] for worker in workers]

    def _launch(self, worker: ProcessWorker, wait: StartWait) -> None:
        assert self._relay is not None  # `_prepare` has made the relay and the configs
        assert self._configs is not None
        output = self._outputs[worker.index]
        output.begin()
        config, place = self._configs.config(worker.index), self._configs.place(worker.index)
        layout = self._configs.layout  # not None if this is a successor
        by_reset = config.spec.rebuilt_by_reset and layout is not None
        launch = Launch(worker.index, *place, output.fd, self._relay.sending_end, layout, by_reset)
        worker.take_over(self._launcher.start(launch, wait))

    def _read(self, worker: ProcessWorker) -> Buffers | None:
        """Returns the message that a worker sends when it has built its envs; None if it is not complete yet."""
        try:
            return worker.channel.recv_nowait()
        except NonsenseError as nonsense:
            worker.kill()
            raise self._died(worker, CorruptReplyError) from nonsense
        except (EOFError, ConnectionError):
            raise self._died(worker) from None

    def _load_reports(self, worker: ProcessWorker, message: Buffers) -> Reports | Failure:
        if failure := _failure_in(message):
            return failure
        _, seconds, *parts = message
        worker.build_seconds = float(bytes(seconds))
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
        assert self._configs is not None  # the workers have been started
        self._configs.keep_layout(layout)
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
                        os.sched_setaffinity(worker.pid, cores_for(worker.index, self._pins, self._near))

    # -- successors ------------------------------------------------------------------------------------

    def kill(self, worker: int) -> None:
        self.workers[worker].kill()

    def last_stack(self, worker: int) -> str:
        process = self.workers[worker].process
        return "" if process is None or process.wait(0) else stack_of(process.pid, last=True)

    def start_successor(self, worker: int, timeout: float | None, unwanted: Flag) -> None:
        self._ending.before(partial(self._start_successor, self.workers[worker], timeout, unwanted))

    def _start_successor(self, place: ProcessWorker, timeout: float | None, unwanted: Flag) -> None:
        if place.process is not None:
            if not place.process.ended:
                wait_readable([place.process.pidfd, unwanted.fileno()], _ENDING)
            place.release()
        try:
            (message,) = self._start([place], StartWait(timeout, unwanted))
            if failure := _failure_in(message):
                raise build_error([failure])
        except StartTimeoutError:
            place.kill()
            raise StartTimeoutError(f"worker {place.index} did not build its envs within {timeout} s") from None
        except BaseException:
            place.kill()
            raise

    def join(
        self,
        worker: int,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> tuple[int, int]:
        successor = self.workers[worker]
        known = defaults.for_successor(successor.env_ids)
        self._start_loops([successor], dump((None, tuple(info_columns), known)), arena)
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

    def has_records(self) -> bool:
        return self._relay is not None and self._relay.has_records()

    def drain(self, sent: Callable[[], int], after_each: Callable[[], object] = lambda: None) -> None:
        if self._relay is not None:
            self._relay.drain_all(sent, after_each)

    # -- end -------------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> None:
        if pids := self._end(timeout):
            raise CloseTimeoutError(pids=pids, workers=[worker.index for worker in self.workers if worker.pid in pids])

    def abandon(self) -> None:
        self._end(0)

    def _end(self, timeout: float) -> list[int]:
        """Ends the backend, in one thread that no signal handler interrupts. Later calls wait for that thread."""
        self._unwanted.set()
        if self._ending.has_begun:  # an earlier call was interrupted
            self._is_urgent.set()
        end = partial(self._end_processes, timeout)
        return run_apart(partial(self._ending.run, end), self._is_urgent.set) or []

    def _end_processes(self, timeout: float) -> list[int]:
        try:
            pids = end_all(self._processes, timeout, self._is_urgent.is_set)
            self._launcher.finish()
            return pids
        finally:
            self._processes[:] = [process for process in self._processes if not process.ended]
            self._free()

    def _free(self) -> None:
        for output in self._outputs:
            output.release()
        for held in (self._relay, self._configs, self._unwanted):
            if held is not None:
                held.close()
        self._arena = None

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


def _failure_in(message: Buffers) -> Failure | None:
    """Returns the failure that a worker has sent after its build; None if it has built its envs."""
    verdict, *parts = message
    return load_failure(parts) if bytes(verdict) == b"failed" else None


def _abandon(processes: list[WorkerProcess], owner: int) -> None:
    """Ends the processes of a backend that was dropped. In a forked copy of the owner, does nothing."""
    if processes and os.getpid() == owner:
        hand_over(partial(end_all, processes, 0))


def _fds(worker: ProcessWorker) -> tuple[int, int]:
    """Returns a worker's socket and pidfd. The pidfd is needed because a child may keep a dead worker's socket open."""
    assert worker.process is not None  # the worker has been started
    return worker.channel.fileno(), worker.process.pidfd
