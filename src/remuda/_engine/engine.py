"""The engine of a pool: the workers, memory, supervision and seeds that all parts of the pool share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda import _core
from remuda._engine.batches.infos import InfoColumns
from remuda._engine.batches.pool_rows import PoolRows
from remuda._engine.calls import Addressee
from remuda._engine.commands.action_spaces import ActionSpaces
from remuda._engine.commands.exchange import Exchange
from remuda._engine.commands.info_column_assignment import InfoColumnAssignment
from remuda._engine.commands.replacing import Replacing
from remuda._engine.commands.resets import Resets
from remuda._engine.commands.shared_rendering import SharedRendering
from remuda._engine.options.extras import check_extras
from remuda._engine.options.settings import Settings
from remuda._engine.running import CLOSED, SPLIT_SINCE, Phase, Running
from remuda._engine.seeds import Seeds
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.reading import Figures, Origin, read_stats, torch_threads
from remuda._engine.stats.snapshot import PoolSetup
from remuda._engine.supervision.crash_recorder import CrashRecorder
from remuda._engine.supervision.descriptions import Descriptions
from remuda._engine.supervision.env_faults import EnvFaults
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda._engine.supervision.fault_history import FaultHistory
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.log_records import LogRecords
from remuda._engine.supervision.preparations import Preparations
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.resumption import Resumption
from remuda._engine.supervision.supervisor import Supervisor
from remuda._engine.supervision.thread import SupervisorThread
from remuda._engine.supervision.worker_faults import WorkerFaults
from remuda._engine.tracing.tracer import PoolTracer
from remuda._system.interpreter import hold_daemon_thread
from remuda._tensors.cuda import finish_all
from remuda._wire.pool_description import PoolDescription, start_of
from remuda.errors import ClosedError, RemudaError, StateError


class Engine:
    """The running workers of a pool, and the objects that use them.

    Attributes:
        settings: The options of the pool.
        running: The running parts. The engine owns them, and all other objects borrow them.
        owner: The process that made the engine.
        parts: The number of parts.
        pool_rows: Makes the rows that no worker makes.
        seeds: The rule of seeding, and the seeds so far.
        rendering: Warns if envs that render share a process.
        tracer: Makes traces.
        fault_log: Logs faults.
        logs: The log records that are not emitted yet.
        hub: The hub of `running` while it can be used; then None. A call that may raise uses this name, not a local
            variable: a traceback that is kept would keep the shared memory mapped after a close.
    """

    def __init__(self, settings: Settings, running: Running) -> None:
        self.settings, self.owner = settings, os.getpid()
        self.parts = 1
        self.running, self.backend, self.layout = running, running.backend, running.layout
        self.faults = Faults(running, in_callers_thread=settings.backend == "serial", remedy=settings.remedy)
        infos, defaults = InfoColumns(running.layout.info_bytes), running.defaults
        per_episode = settings.seeding == "per_episode"
        self.seeds = Seeds(defaults, running.layout, per_episode=per_episode)
        self.tracker = ProgressTracker(running, self.seeds)
        recorder = None
        if settings.crash_dir is not None and running.factories is not None:
            recorder = CrashRecorder(settings.crash_dir, running.factories, settings.backend, running)
        history = FaultHistory()
        self.tracer = PoolTracer(settings.name, running, history)
        reports = FaultReports(running, self.tracker, recorder, history)
        self.fault_log = reports.log
        self.pool_rows = PoolRows(running)
        self.logs = LogRecords(running, reports, settings.name)
        supervisor = _supervisor(settings, running, self.faults, reports, self.logs, infos)
        self.exchange = Exchange(running, self.faults, supervisor)
        names = tuple(column.name for column in check_extras(settings.extras))
        self.batches = InfoColumnAssignment(running, infos, self.exchange, names)
        action_spaces = [report.action_space for report in running.reports[: running.layout.num_slots]]
        self.action_spaces = ActionSpaces(running.layout.action_space, action_spaces, are_seeded=per_episode)
        self.rendering = SharedRendering(running, has_processes=settings.backend == "process")
        self.replacing = Replacing(running, self.exchange, self.action_spaces, self.rendering)
        self.resets = Resets(running, self.seeds, defaults, self.action_spaces, self.exchange)
        self._origin = Origin.now(self._pids(), self.owner)
        self.publish()
        self.hub: _core.Hub | None = running.hub  # set last: the traceback of an error above would keep the hub alive
        thread = SupervisorThread(running.workers.supervision, supervisor, settings.name)
        running.threads.insert(0, thread)  # before the start, which a signal handler may interrupt
        thread.start()

    @property
    def setup(self) -> PoolSetup:
        """The pool's `PoolSetup`. If envs draw, `is_chosen` is True: then no advice makes them share a process."""
        settings = self.settings
        return PoolSetup(
            settings.envs_of_worker(),
            settings.backend,
            settings.autoreset,
            settings.spares,
            settings.vector_size,
            is_chosen=settings.choice is not None or self.rendering.any_draws,
            parts=self.parts,
            keeps_apart=settings.keeps_apart,
            is_remote=settings.is_remote,
            object_bytes=settings.object_bytes,
        )

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        return self.running.is_closed

    def enter(self, phase: Phase) -> None:
        """Changes the phase of the pool."""
        self.hub = self.running.hub if phase is Phase.OPEN else None  # commands fail if it is None
        self.running.phase = phase

    def check_open(self) -> None:
        """Raises an error if the pool does not run. While it is paused, the pool of a cluster has its own error."""
        match self.running.phase:
            case Phase.CLOSED:
                hold_daemon_thread()
                raise ClosedError(CLOSED)
            case Phase.SUCCEEDED:
                raise StateError(SPLIT_SINCE)
            case Phase.COPIED:
                raise StateError(
                    f"this pool belongs to process {self.owner}, got a call from its forked copy {os.getpid()}; "
                    "make a pool of its own there"
                )

    def publish(self) -> None:
        """Writes the pool's `PoolDescription`, with which other processes of this user can read its figures."""
        fd, started = self.running.arena.fd, start_of(self.owner)
        if fd < 0 or started is None:  # no other process can find the memory, as on systems other than Linux
            return
        setup, plan = asdict(self.setup), self.layout.plan_arguments()
        description = PoolDescription(self.owner, started, self.settings.name, setup, plan, asdict(self._origin))
        description.write(fd, self.layout.plan.bytes)

    def stats(self) -> PoolStats:
        """Returns a snapshot of the pool's figures."""
        figures = Figures.read(self.running.arena, self.layout.plan)
        return read_stats(figures, self.setup, self._pids(), self.owner, self._origin, torch_threads())

    def _pids(self) -> list[int | None]:
        return [worker.pid if worker.is_alive() else None for worker in self.backend.workers]

    def divide(self, shares: list[list[int]]) -> int:
        """Divides the pool into parts. `shares`: the slots of each part. Returns the number of the first part."""
        first = self.running.hub.split(shares)
        self.parts = len(shares)
        self.publish()
        return first

    def stop_supervision(self) -> None:
        """Ends the threads that supervise the pool. Calls that still wait for answers raise ClosedError.

        Can be called again, also after `release` was interrupted.
        """
        for thread in self.running.threads if self.running.is_there else ():
            self.running.hub.in_absence(thread.stop)

    def release(self) -> None:
        """Releases the shared memory once no GPU reads it."""
        self.stop_supervision()
        self.tracer.close()
        self.logs.emit()
        try:
            finish_all()
        finally:
            self.running.release()


def _supervisor(
    settings: Settings,
    running: Running,
    faults: Faults,
    reports: FaultReports,
    logs: LogRecords,
    infos: InfoColumns,
) -> Supervisor:
    policy = settings.faults
    addressees: dict[int, Addressee | None] = {}
    descriptions = Descriptions(policy, running, settings.start_timeout, reports.tracker)
    budget = RestartBudget(policy, running, faults, reports)
    preparations = Preparations(faults)
    resumption = Resumption(policy, running, preparations, addressees, reports.log)
    workers = WorkerFaults(
        policy,
        running,
        settings.start_timeout,
        faults,
        descriptions,
        reports,
        budget,
        infos,
        addressees,
        preparations,
        resumption,
    )
    envs = EnvFaults(policy, running, faults, descriptions, reports, budget, workers, addressees, resumption)
    return Supervisor(running, faults, logs, envs, workers, addressees)


def shares_of_parts(worker_of: Sequence[int], parts: int) -> list[list[int]]:
    """Gives each part an equal share of each worker's envs. Envs with neighbouring ids stay together.

    Args:
        worker_of: The worker of each env.
        parts: The number of parts, at most that of envs.

    Returns: The envs of each part, ascending. No part is empty, and their sizes differ by one env at most.
    """
    by_worker: dict[int, list[int]] = {}
    for env, worker in enumerate(worker_of):
        by_worker.setdefault(worker, []).append(env)
    shares: list[list[int]] = [[] for _ in range(parts)]
    for envs in by_worker.values():
        # The parts that have the fewest envs so far get one of the remaining envs each.
        fewest = sorted(range(parts), key=lambda part: len(shares[part]))[: len(envs) % parts]
        first = 0
        for part in range(parts):
            end = first + len(envs) // parts + (part in fewest)
            shares[part] += envs[first:end]
            first = end
    return [sorted(share) for share in shares]


class OfAPart(Protocol):
    """The members of `Part` that the decorator uses."""

    _engine: Engine
    _part: int


P = ParamSpec("P")
S = TypeVar("S", bound=OfAPart)
T = TypeVar("T")


def with_hub_lock(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A decorator of methods that call the hub several times. While the method runs, threads that use other parts enter
    the hub only while it sleeps."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._engine.hub is None:  # the pool cannot be used: the method raises the error
            return method(self, *args, **kwargs)
        try:
            return self._engine.hub.in_turn(partial(method, self, *args, **kwargs), self._part)  # type: ignore[return-value]
        except RemudaError as error:
            self._engine.faults.shown(error)
            raise

    return call
