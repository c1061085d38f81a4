"""Replaces workers by successors that rebuild the envs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf

from remuda import _core
from remuda._engine.batches.infos import InfoColumns
from remuda._engine.calls import Addressee
from remuda._engine.changes import Changes
from remuda._engine.history.fault_kinds import forget_frames
from remuda._engine.history.worker_state import ABSENT, Life, WorkerState
from remuda._engine.running import Running
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

_CLOSING = 5.0  # the seconds that a worker has to close an env that is renewed.
_ENDING = 1.0  # the longest wait, in seconds, for the end of a killed worker before its successor starts.
_LOOK = 0.01  # the seconds between two checks whether a killed worker has ended.
_POLL = 1.0  # the seconds between two checks that the fork server of a starting successor still answers.
_AT_ONCE = 0.02  # after so many seconds `look` starts no more successors, so as not to delay batches


class Replacements:
    """Replaces dead workers by successors: takes each worker from VACANT to RUNNING in steps that do not wait.

    Commands and messages for an absent worker wait in a new port until its successor reads them.

    Attributes:
        lives: The state of each worker.
        remembered, preparations: The lasting calls, and the resets in advance, that successors receive again.
        start_timeout: Seconds in which a successor must build its envs; None for no limit.
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
        """Keeps the objects of the pool that successors need.

        Args:
            running, lives, budget, start_timeout: Those of the pool.
            infos, defaults: The columns of infos and the defaults of resets so far.
            faults: Keeps the failure of a reset in advance.
            addressees: The receivers of answers, by the sequence of the message.
        """
        self.lives, self.remembered, self.start_timeout = lives, RememberedCalls(), start_timeout
        self.preparations = Preparations(faults)
        self._planned = [0] * len(running.backend.workers)  # the number of successors of each worker so far.
        self._out_since: dict[int, int] = {}  # the time of each worker's failure, in ns of CLOCK_MONOTONIC
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._budget, self._infos, self._defaults = budget, infos, defaults
        self._addressees = addressees

    # -- the end of a predecessor ------------------------------------------------------------------------

    def close_worker(self, worker: int, changes: Changes) -> None:
        """Sends a worker the command to close its env and to end, so that a successor takes its place."""
        deadline = self._running_time() + _CLOSING
        self.lives.plan(worker, WorkerState.CLOSING, changes, deadline=deadline)
        changes.do(self._running.hub.instruct, _core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)
        changes.do(self._running.workers.raise_news)  # so that `look` runs, and sets the alarm for the deadline

    def replace(self, worker: int, at: float, addressee: Addressee, changes: Changes) -> None:
        """Plans the start of a dead worker's successor. `at`: the time of the start, of `time.monotonic`.

        `addressee`: the receiver of the successor's answer to the remembered calls.
        """
        changes.do(self._running.hub.reopen, worker)
        env_ids = self._backend.workers[worker].env_ids
        number = self._planned[worker] + 1
        changes.do(self._planned.__setitem__, worker, number)
        if (calls := self.remembered.for_successor(env_ids, number)) is not None:  # before other commands
            changes.do(
                self._running.hub.instruct,
                _core.Op.MESSAGE,
                worker,
                _core.WHOLE_WORKER,
                calls,
                self._addressees,
                addressee,
            )
        for env in filter(self._is_due, env_ids):
            changes.do(self._running.hub.instruct, _core.Op.PREPARE, worker, env, None)
        self.prepare_again(worker, env_ids, changes)
        self.lives.plan(worker, WorkerState.VACANT, changes, start_at=at)
        changes.do(self._running.workers.raise_news)  # `look` then starts the successors of all dead workers

    def _is_due(self, env: int) -> bool:
        """Whether an env resets in advance without arguments, as if its worker had not been replaced.

        That precedes later commands, so that the number of resets does not depend on the time of the rebuild.
        """
        slot = self._running.slots.slot_of(env)
        if slot is None:
            return not self.preparations.is_unmade(env)
        in_background = self._layout.mode.in_background  # the pool then sends the reset
        return self._layout.resets_ahead and not in_background and self._running.slots.needs_reset(slot)

    def note_outage(self, worker: int, changes: Changes) -> None:
        """Notes the time of a worker's failure: the start of an outage, which ends when the worker's successor runs."""
        since = self._running.workers.busy_since(worker) or time.monotonic_ns()
        changes.do(self._out_since.setdefault, worker, since)

    def prepare_again(self, worker: int, env_ids: Iterable[int], changes: Changes) -> None:
        """Sends these rebuilt envs the commands for resets in advance that their predecessors did not complete."""
        for env, arguments, preparation in self.preparations.unmade(env_ids):
            changes.do(
                self._running.hub.instruct, _core.Op.PREPARE, worker, env, arguments, self._addressees, preparation
            )

    # -- the start of a successor ------------------------------------------------------------------------

    def resume(self) -> None:
        """Kills successors that an interrupt left in an unknown state while they started. `look` starts others."""
        for worker in self.lives.among(WorkerState.STARTING, WorkerState.JOINING):
            self._running.processes.kill(worker)
            self.lives.enter(worker, WorkerState.VACANT)

    def look(self) -> None:
        """Continues the replacement of each absent worker as far as it can go now."""
        running_time = self._running_time()
        for worker, life in self.lives.among(WorkerState.CLOSING).items():
            if running_time >= life.deadline:
                self._running.processes.kill(worker)
        for worker, life in self.lives.among(WorkerState.BUILDING).items():
            self._try(self._poll, worker, life)
        now = time.monotonic()
        for worker, life in self.lives.among(WorkerState.VACANT).items():
            if life.start_at <= time.monotonic() < now + _AT_ONCE:  # an alarm makes `look` start the rest later
                self._try(self._start, worker, life)
        self._listen()

    def stop(self) -> None:
        """Kills the processes of all successors that have not joined the pool yet."""
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
        vacant_by = now + _ENDING if life.vacant_by is None else life.vacant_by
        if now < vacant_by and self._backend.workers[worker].is_alive():
            return self.lives.enter(worker, WorkerState.VACANT, start_at=now + _LOOK, vacant_by=vacant_by)
        self.lives.enter(worker, WorkerState.STARTING)
        deadline = inf if self.start_timeout is None else self._running_time() + self.start_timeout
        self._running.processes.start_replacement(worker)
        self._running.workers.count_restart(worker)
        return self.lives.enter(worker, WorkerState.BUILDING, deadline=deadline)

    def _poll(self, worker: int, life: Life) -> None:
        """Checks whether a successor has built its envs. If so, it joins the pool."""
        self.lives.enter(worker, WorkerState.JOINING)  # before the poll: if interrupted, it may lose the report
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
        changes.do(self._running.workers.arrive, worker, pidfd, socket)
        changes.make()
        if (since := self._out_since.pop(worker, None)) is not None:
            self._running.workers.count_outage(worker, time.monotonic_ns() - since)

    def _fail(self, worker: int, error: RemudaError | OSError) -> None:
        """Handles a successor that failed: did not start, or died, raised or was late while it built its envs."""
        if not isinstance(error, RemudaError):
            error = RemudaError(f"worker {worker} could not be started: {error}")
        forget_frames(error)
        self._running.processes.kill(worker)  # the process of a successor that failed may still run
        changes = Changes()
        _, at = self._budget.charge_worker(worker, error, changes)
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
                continue  # an env that is built later (lazily) is checked then
            if not self._layout.any_observation:
                check_agreement("observation", self._layout.observation_space, name, [report.observation_space], env)
            check_agreement("action", self._layout.action_space, name, [report.action_space], env)
            check_same(self._layout.computed, name, {env: report.computed})

    # -- time ----------------------------------------------------------------------------------------------

    def _running_time(self) -> float:
        """Returns the clock of deadlines: `time.monotonic()` minus the seconds in which this process was frozen."""
        return time.monotonic() - self._running.workers.lost_ns() / 1e9

    def _listen(self) -> None:
        """Sets the descriptors and the alarm that end the hub's wait when a replacement can continue."""
        building = self.lives.among(WorkerState.BUILDING)
        limited = [*building.values(), *self.lives.among(WorkerState.CLOSING).values()]
        lost = self._running.workers.lost_ns() / 1e9
        times = [life.deadline + lost for life in limited]
        times += [life.start_at for life in self.lives.among(WorkerState.VACANT).values()]
        if any(self._running.processes.is_coming(worker) for worker in building):
            times.append(time.monotonic() + _POLL)
        first = min(times, default=inf)
        fds = dict.fromkeys(fd for worker in building for fd in self._running.processes.descriptors(worker))
        self._running.workers.listen(list(fds), int(first * 1e9) if first < 1e9 else 0)
