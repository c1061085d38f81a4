"""Replaces workers that are dead, or are to close their env, by successors that build the envs anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf

from remuda import _core
from remuda._engine.running.calls import Addressee
from remuda._engine.running.changes import Changes
from remuda._engine.running.fault_kinds import forget_frames
from remuda._engine.running.infos import InfoColumns
from remuda._engine.running.running import Running
from remuda._engine.running.worker_state import ABSENT, Life, WorkerState
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.preparations import Preparations
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.worker_states import WorkerStates
from remuda._wire.codec import check_agreement
from remuda._wire.computed import check_same
from remuda._wire.failures import build_error
from remuda._wire.requests import RememberedCalls
from remuda._worker.env_report import Reports
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import Failure, RemudaError, StartTimeoutError

_FAREWELL = 5.0  # seconds for the worker of an env that is renewed to close it
_LAST_BREATH = 1.0  # seconds for a worker that was killed a moment ago, before its successor starts
_LOOK = 0.01  # seconds until we look whether it has ended
_ASK = 1.0  # seconds until we ask for a successor that has not been started, whose server may not answer
_AT_ONCE = 0.02  # seconds for starting successors, before others get their batch


class Replacements:
    """Takes workers from VACANT to RUNNING, each as far as it can go without waiting for anybody.

    Commands and messages for a worker that is away wait for its successor: its port is opened anew at once.

    Attributes:
        lives: The state of each worker.
        standing, preparations: What envs were told that their successors are told again.
        start_timeout: Seconds in which a successor must have built its envs; None for no limit.
    """

    def __init__(
        self,
        running: Running,
        lives: WorkerStates,
        budget: RestartBudget,
        start_timeout: float | None,
        infos: InfoColumns,
        defaults: ResetDefaults,
        faults: Faults,
        addressees: dict[int, Addressee | None],
    ) -> None:
        """Takes what successors are told.

        Args:
            running, lives, budget, start_timeout: Of the pool.
            infos, defaults: The columns of infos, and what resets are given by now.
            faults: Where the failure of a reset in advance is told.
            addressees: By sequence of a message: who is told the answer.
        """
        self.lives, self.standing, self.start_timeout = lives, RememberedCalls(), start_timeout
        self.preparations = Preparations(faults)
        self._planned = [0] * len(running.backend.workers)  # how many successors each worker was to have so far
        self._out_since: dict[int, int] = {}  # when workers that failed began with that, in ns of CLOCK_MONOTONIC
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._budget, self._infos, self._defaults = budget, infos, defaults
        self._addressees = addressees

    # -- a predecessor goes ------------------------------------------------------------------------------

    def close_worker(self, worker: int, changes: Changes) -> None:
        """Tells a worker to close its env and to end, for a successor to take its place."""
        deadline = self._running_time() + _FAREWELL
        self.lives.plan(worker, WorkerState.CLOSING, changes, deadline=deadline)
        changes.do(self._running.hub.instruct, _core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)
        changes.do(self._running.workers.raise_news)  # there is a deadline to be listened for

    def replace(self, worker: int, at: float, addressee: Addressee, changes: Changes) -> None:
        """A worker is dead: its successor is started at that time, of `time.monotonic`.

        `addressee`: is told whether its envs took what holds for them.
        """
        changes.do(self._running.hub.reopen, worker)
        env_ids = self._backend.workers[worker].env_ids
        number = self._planned[worker] + 1
        changes.do(self._planned.__setitem__, worker, number)
        if (told := self.standing.for_successor(env_ids, number)) is not None:  # before what it is sent
            changes.do(
                self._running.hub.instruct,
                _core.Op.MESSAGE,
                worker,
                _core.WHOLE_WORKER,
                told,
                self._addressees,
                addressee,
            )
        self.prepare_again(worker, env_ids, changes)
        self.lives.plan(worker, WorkerState.VACANT, changes, start_at=at)
        changes.do(self._running.workers.raise_news)  # those that died together start together

    def note_outage(self, worker: int, changes: Changes) -> None:
        """A worker failed in what it has been doing, or just now: until its successor serves, time is lost."""
        since = self._running.workers.busy_since(worker) or time.monotonic_ns()
        changes.do(self._out_since.setdefault, worker, since)

    def prepare_again(self, worker: int, env_ids: Iterable[int], changes: Changes) -> None:
        """Envs that are built anew make the resets in advance that those before them could not."""
        for env, arguments, preparation in self.preparations.unmade(env_ids):
            changes.do(
                self._running.hub.instruct, _core.Op.PREPARE, worker, env, arguments, self._addressees, preparation
            )

    # -- a successor comes -------------------------------------------------------------------------------

    def resume(self) -> None:
        """Takes up what was interrupted. Nobody knows what a successor has been told by then: there is another one."""
        for worker in self.lives.among(WorkerState.STARTING, WorkerState.JOINING):
            self._running.processes.kill(worker)
            self.lives.enter(worker, WorkerState.VACANT)

    def look(self) -> None:
        """Goes on with each worker that is away, as far as it has come."""
        running_time = self._running_time()
        for worker, life in self.lives.among(WorkerState.CLOSING).items():
            if running_time >= life.deadline:
                self._running.processes.kill(worker)
        for worker, life in self.lives.among(WorkerState.BUILDING).items():
            self._try(self._ask, worker, life)
        now = time.monotonic()
        for worker, life in self.lives.among(WorkerState.VACANT).items():
            if life.start_at <= time.monotonic() < now + _AT_ONCE:  # the alarm brings us back
                self._try(self._start, worker, life)
        self._listen()

    def stop(self) -> None:
        """Ends the successors that are on their way."""
        self.resume()
        for worker in self.lives.among(*ABSENT):
            self._running.processes.kill(worker)

    def _try(self, step: Callable[[int, Life], None], worker: int, life: Life) -> None:
        try:
            step(worker, life)
        except (RemudaError, OSError) as error:
            self._fail(worker, error)

    def _start(self, worker: int, life: Life) -> None:
        now = time.monotonic()
        vacant_by = now + _LAST_BREATH if life.vacant_by is None else life.vacant_by
        if now < vacant_by and self._backend.workers[worker].is_alive():
            return self.lives.enter(worker, WorkerState.VACANT, start_at=now + _LOOK, vacant_by=vacant_by)
        self.lives.enter(worker, WorkerState.STARTING)
        deadline = inf if self.start_timeout is None else self._running_time() + self.start_timeout
        self._running.processes.start_replacement(worker)
        self._running.workers.count_restart(worker)
        return self.lives.enter(worker, WorkerState.BUILDING, deadline=deadline)

    def _ask(self, worker: int, life: Life) -> None:
        """Whether a successor has built its envs: then it joins the pool."""
        self.lives.enter(worker, WorkerState.JOINING)  # what it says is said once
        reports = self._running.processes.poll_successor(worker)
        if isinstance(reports, Failure):
            raise build_error([reports])
        if reports is not None:
            return self._join(worker, reports)
        self.lives.enter(worker, WorkerState.BUILDING, deadline=life.deadline)
        if self._running_time() >= life.deadline:
            raise StartTimeoutError(f"worker {worker} did not build its envs within {self.start_timeout} s")
        return None

    def _join(self, worker: int, reports: Reports) -> None:
        self._check_spaces(worker, reports)
        pidfd, socket = self._running.processes.join(
            worker, self._layout, self._running.arena, self._infos.columns, self._defaults
        )
        changes = Changes()
        self.lives.plan(worker, WorkerState.RUNNING, changes)
        changes.do(self._running.hub.arrive, worker, pidfd, socket)
        for env in self._backend.workers[worker].env_ids:
            if self._running.slots.slot_of(env) is None:
                changes.do(self._running.hub.instruct, _core.Op.PREPARE, worker, env, None)
        changes.make()
        if (since := self._out_since.pop(worker, None)) is not None:
            self._running.workers.count_outage(worker, time.monotonic_ns() - since)

    def _fail(self, worker: int, error: RemudaError | OSError) -> None:
        """It died, raised or was late while it built its envs, or could not be started at all."""
        told = (
            error if isinstance(error, RemudaError) else RemudaError(f"worker {worker} could not be started: {error}")
        )
        forget_frames(told)
        self._running.processes.kill(worker)  # it may hang, or wait for a loop
        changes = Changes()
        _, at = self._budget.charge_worker(worker, told, changes)
        if at is not None:
            self.lives.plan(worker, WorkerState.VACANT, changes, start_at=at)
        else:
            self.lives.plan(worker, WorkerState.GIVEN_UP, changes)
            changes.do(self._running.hub.give_up, worker)
        changes.make()

    def _check_spaces(self, worker: int, reports: Reports) -> None:
        first = self._backend.workers[worker].env_ids[0]
        name = f"env {first} and its like before the restart"
        for env, report in enumerate(reports, first):
            if report is None:
                continue  # it is checked when it is built
            if not self._layout.any_observation:
                check_agreement("observation", self._layout.observation_space, name, [report.observation_space], env)
            check_agreement("action", self._layout.action_space, name, [report.action_space], env)
            check_same(self._layout.computed, name, {env: report.computed})

    # -- time ----------------------------------------------------------------------------------------------

    def _running_time(self) -> float:
        """`time.monotonic()` less the time in which this process was frozen, or did not look: what deadlines are in."""
        return time.monotonic() - self._running.workers.lost_ns() / 1e9

    def _listen(self) -> None:
        """Has the hub wake us when a successor has something to say, and when there is something to be done."""
        building = self.lives.among(WorkerState.BUILDING)
        limited = [*building.values(), *self.lives.among(WorkerState.CLOSING).values()]
        lost = self._running.workers.lost_ns() / 1e9
        times = [life.deadline + lost for life in limited]
        times += [life.start_at for life in self.lives.among(WorkerState.VACANT).values()]
        if any(self._running.processes.is_coming(worker) for worker in building):
            times.append(time.monotonic() + _ASK)
        first = min(times, default=inf)
        fds = dict.fromkeys(fd for worker in building for fd in self._running.processes.descriptors(worker))
        self._running.workers.listen(list(fds), int(first * 1e9) if first < 1e9 else 0)
